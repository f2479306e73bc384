//! Conversion of control's view of background to the API.

use super::FromControl;
use weir_api_types::{BackgroundJob, BackgroundPolicy, BackgroundState};
use weir_control::BackgroundPolicyView;
impl FromControl<BackgroundPolicyView> for BackgroundPolicy {
    fn from_control(view: BackgroundPolicyView) -> BackgroundPolicy {
        BackgroundPolicy {
            kind: view.kind.into(),
            weight: view.policy.weight.0,
            ceiling: view.policy.ceiling.into(),
            deadline_seconds: view.policy.deadline_seconds,
            is_built_in: view.is_built_in,
            version: view.version,
        }
    }
}

impl FromControl<weir_control::BackgroundJob> for BackgroundJob {
    fn from_control(job: weir_control::BackgroundJob) -> BackgroundJob {
        let state = match &job.progress {
            None => BackgroundState::DriveMissing,
            Some(progress) if progress.fault.is_some() => BackgroundState::Failing,
            Some(progress) if progress.elapsed_ns.is_some() => BackgroundState::Running,
            Some(_) => BackgroundState::Waiting,
        };
        let (operations_per_second, left_ns, due_at) =
            (job.operations_per_second(), job.left_ns(), job.due_at());
        let progress = job.progress.unwrap_or_default();
        BackgroundJob {
            id: job.id.0,
            kind: job.kind.into(),
            drive: job.drive,
            what: job.what,
            state,
            reason: progress.fault,
            operations_done: progress.operations_done,
            operations_left: progress.operations_left,
            bytes_done: progress.bytes_done,
            bytes_left: progress.bytes_left,
            operations_per_second,
            left_ns,
            begun_at: job.begun_at,
            due_at,
        }
    }
}
