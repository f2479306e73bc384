//! Lane: all work of one kind on one drive. A lane decides which job's step is next, when, and with which
//! claim on the drive.
//!
//! Jobs run in the order in which they began. A job that fails rests and delays no other job. Pure.

use std::collections::VecDeque;
use std::sync::Arc;

use weir_engine_interface::JobProgress;
use weir_qos::background::{FLOOR_INTERVAL_NS, due_ns, rate_needed};
use weir_qos::{Cost, Kind, Pace};
use weir_types::bounds::BACKGROUND_OPERATIONS_MAX;
use weir_types::{BackgroundPolicy, Terms, VolumeId};

use super::reclaim::{Reclaim, Verdict};
use crate::helper::{ReclaimDone, ReclaimOutcome, ReclaimStep};

/// Rest of a failed job before its next attempt, in nanoseconds: an operator has to act first.
const RETRY_NS: u64 = 10_000_000_000;

/// Cost of one operation under a ceiling, before the bytes that it gives back are known.
const OPERATION: Cost = Cost { kind: Kind::Discard, is_first: true, bytes: 0, drive_ns: 0 };

/// Publishes the outcome of a step. Answers the bytes that the step gave back.
fn note(progress: &JobProgress, outcome: &ReclaimOutcome) -> u64 {
    match outcome {
        Ok(ReclaimDone::Surveyed(survey)) => progress.surveyed(survey),
        Ok(ReclaimDone::Given(given)) => {
            progress.given(given);
            return given.bytes;
        }
        Ok(ReclaimDone::Concluded) | Err(_) => {}
    }
    0
}

/// One job of a lane.
#[derive(Debug)]
pub struct Job {
    /// The volume whose space the job reclaims.
    pub id: VolumeId,
    /// When the job began, in nanoseconds of the reactors' clock; it may be before the start of this
    /// machine.
    pub begun_ns: i64,
    /// The job's progress, shared with readers.
    pub progress: Arc<JobProgress>,
    work: Reclaim,
    rests_until_ns: u64,
}

impl Job {
    pub fn new(id: VolumeId, begun_ns: i64, progress: Arc<JobProgress>) -> Job {
        Job { id, begun_ns, progress, work: Reclaim::new(), rests_until_ns: 0 }
    }
}

/// The jobs of one kind on one drive.
#[derive(Debug)]
pub struct Lane {
    pace: Pace,
    jobs: VecDeque<Job>,
    under_way: usize,
}

impl Lane {
    pub fn new(policy: BackgroundPolicy, now_ns: u64) -> Lane {
        Lane { pace: Pace::new(policy, now_ns), jobs: VecDeque::new(), under_way: 0 }
    }

    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Adds a job behind the jobs that began before it.
    pub fn add(&mut self, job: Job) {
        let place = self.jobs.partition_point(|other| other.begun_ns <= job.begun_ns);
        self.jobs.insert(place, job);
    }

    /// Takes another policy.
    pub fn change(&mut self, policy: BackgroundPolicy, now_ns: u64) {
        self.pace.change(policy, now_ns);
    }

    /// The index of the job whose turn it is.
    fn current(&self, now_ns: u64) -> Option<usize> {
        self.jobs.iter().position(|job| job.rests_until_ns <= now_ns)
    }

    /// Takes the next step that may run now, and the job that it belongs to.
    pub fn take(&mut self, now_ns: u64) -> Option<(VolumeId, ReclaimStep)> {
        if self.under_way >= BACKGROUND_OPERATIONS_MAX {
            return None;
        }
        let index = self.current(now_ns)?;
        let job = &mut self.jobs[index];
        if job.work.peek()?.is_for_drive() {
            if self.pace.ready_ns() > now_ns {
                return None;
            }
            self.pace.asked(now_ns, OPERATION);
        }
        let step = job.work.take()?;
        self.under_way += 1;
        job.progress.started(now_ns);
        Some((job.id, step))
    }

    /// Returns a step that was taken but is not carried out, because the daemon ends.
    pub fn put_back(&mut self, id: VolumeId, step: ReclaimStep) {
        self.under_way -= 1;
        if let Some(job) = self.jobs.iter_mut().find(|job| job.id == id) {
            job.work.put_back(step);
        }
    }

    /// Takes the end of a step. Answers the fault if the job has to begin anew.
    pub fn ended(
        &mut self,
        now_ns: u64,
        id: VolumeId,
        step: ReclaimStep,
        outcome: ReclaimOutcome,
    ) -> Option<String> {
        self.under_way -= 1;
        let index = self.jobs.iter().position(|job| job.id == id)?;
        let job = &mut self.jobs[index];
        let bytes = note(&job.progress, &outcome);
        self.pace.moved(now_ns, OPERATION, u32::try_from(bytes).unwrap_or(u32::MAX));
        match job.work.ended(step, outcome) {
            Verdict::Going => {}
            Verdict::Finished => {
                job.progress.finished();
                self.jobs.remove(index);
            }
            Verdict::Failed(fault) => {
                job.rests_until_ns = now_ns + RETRY_NS;
                job.progress.failed(fault.clone());
                return Some(fault);
            }
        }
        None
    }

    /// The lane's current terms in the drive queue.
    pub fn terms(&self, now_ns: u64) -> Terms {
        let policy = self.pace.policy();
        let floor = policy.deadline_seconds.and_then(|seconds| {
            let active = self.jobs.iter().filter(|job| job.rests_until_ns <= now_ns);
            let work = active.map(|job| (job.progress.operations_left(), due_ns(job.begun_ns, seconds)));
            rate_needed(now_ns, work)
        });
        policy.terms(floor)
    }

    /// The next time at which the lane may have a step without any step having ended, in nanoseconds.
    pub fn wake_ns(&self, now_ns: u64) -> Option<u64> {
        let rests =
            self.jobs.iter().map(|job| job.rests_until_ns).filter(|until_ns| *until_ns > now_ns).min();
        let has_step = self.current(now_ns).is_some_and(|index| self.jobs[index].work.peek().is_some());
        let may_step = has_step && self.under_way < BACKGROUND_OPERATIONS_MAX;
        let step = may_step.then(|| self.pace.ready_ns().max(now_ns));
        let has_deadline = self.pace.policy().deadline_seconds.is_some() && !self.jobs.is_empty();
        let look = has_deadline.then_some(now_ns + FLOOR_INTERVAL_NS);
        [rests, step, look].into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::helper::ReclaimDone;
    use weir_store::{Given, Survey};
    use weir_types::ExtentIndex;
    use weir_types::{Throughput, Weight};

    const SECOND_NS: u64 = 1_000_000_000;

    fn id(number: u128) -> VolumeId {
        VolumeId(uuid::Uuid::from_u128(number))
    }

    fn policy(ceiling: &str, deadline_seconds: Option<u32>) -> BackgroundPolicy {
        let ceiling = Throughput::parse(ceiling).unwrap();
        BackgroundPolicy { ceiling, deadline_seconds, ..BackgroundPolicy::default() }
    }

    /// A lane with one job that was surveyed.
    fn lane(policy: BackgroundPolicy, extents: u32) -> (Lane, Arc<JobProgress>) {
        let progress = Arc::<JobProgress>::default();
        let mut lane = Lane::new(policy, 0);
        lane.add(Job::new(id(1), 0, progress.clone()));
        assert_eq!(lane.take(0), Some((id(1), ReclaimStep::Survey)));
        let survey = Survey { first: ExtentIndex(0), end: extents, operations: u64::from(extents), bytes: 0 };
        lane.ended(0, id(1), ReclaimStep::Survey, Ok(ReclaimDone::Surveyed(survey)));
        (lane, progress)
    }

    fn give(lane: &mut Lane, now_ns: u64, step: ReclaimStep) {
        lane.ended(now_ns, id(1), step, Ok(ReclaimDone::Given(Given { bytes: 4096, is_gone: true })));
    }

    #[test]
    fn operations_under_way_are_bounded() {
        let (mut lane, progress) = lane(policy("none", None), 100);
        let taken: Vec<_> = std::iter::from_fn(|| lane.take(0)).collect();
        assert_eq!(taken.len(), BACKGROUND_OPERATIONS_MAX);
        assert_eq!(lane.wake_ns(0), None, "nothing happens before one ends");
        give(&mut lane, 5, taken[0].1);
        assert_eq!((lane.take(5).is_some(), lane.take(5)), (true, None));
        assert_eq!((progress.operations_left(), progress.counters().bytes_done), (99, 4096));
    }

    #[test]
    fn ceiling_bounds_operations_and_bytes() {
        let (mut lane, _) = lane(policy("10IOPS,4096B/s", None), 100);
        let (_, step) = lane.take(0).unwrap();
        assert_eq!((lane.take(0), lane.wake_ns(0)), (None, Some(SECOND_NS / 10)));
        give(&mut lane, 0, step);
        assert_eq!((lane.take(SECOND_NS / 10), lane.wake_ns(0)), (None, Some(SECOND_NS)));
        assert!(lane.take(SECOND_NS).is_some());
        lane.change(policy("none", None), SECOND_NS);
        assert!(lane.take(SECOND_NS).is_some());
    }

    #[test]
    fn floor_grows_toward_deadline_and_ends_with_the_job() {
        let (mut lane, progress) = lane(policy("none", Some(1600)), 1500);
        let floor = |lane: &Lane, seconds: u64| lane.terms(seconds * SECOND_NS).floor.iops;
        assert_eq!((floor(&lane, 0), floor(&lane, 750), floor(&lane, 1499)), (Some(1), Some(2), Some(1500)));
        assert_eq!(lane.wake_ns(0), Some(0));
        let (_, step) = lane.take(0).unwrap();
        give(&mut lane, 0, step);
        assert_eq!(lane.terms(0).weight, Weight(10));
        let below =
            BackgroundPolicy { ceiling: Throughput::parse("7IOPS").unwrap(), ..policy("none", Some(1600)) };
        lane.change(below, 0);
        assert_eq!(floor(&lane, 1499), Some(7), "the ceiling holds");
        lane.change(policy("none", Some(1600)), 0);
        while let Some((_, step)) = lane.take(u64::MAX / 2) {
            match step {
                ReclaimStep::Conclude => _ = lane.ended(0, id(1), step, Ok(ReclaimDone::Concluded)),
                _ => give(&mut lane, u64::MAX / 2, step),
            }
        }
        assert!(lane.is_empty() && progress.is_finished());
        assert_eq!((floor(&lane, 1499), lane.wake_ns(0)), (None, None));
    }

    #[test]
    fn oldest_job_is_first_and_failed_job_rests() {
        let (mut lane, progress) = lane(policy("none", None), 1);
        lane.add(Job::new(id(3), 30, Arc::default()));
        lane.add(Job::new(id(2), -20, Arc::default()));
        assert_eq!(lane.take(0), Some((id(2), ReclaimStep::Survey)));
        lane.ended(0, id(2), ReclaimStep::Survey, Err("broken".to_owned()));
        assert_eq!(lane.take(0), Some((id(1), ReclaimStep::GiveBack(ExtentIndex(0)))));
        lane.ended(0, id(1), ReclaimStep::GiveBack(ExtentIndex(0)), Err("broken too".to_owned()));
        assert_eq!(progress.counters().fault.as_deref(), Some("broken too"));
        assert_eq!(lane.take(0), Some((id(3), ReclaimStep::Survey)));
        assert_eq!((lane.take(0), lane.wake_ns(0)), (None, Some(RETRY_NS)));
        assert_eq!(lane.take(RETRY_NS), Some((id(2), ReclaimStep::Survey)), "once more");
    }
}
