//! Conversion between the types of the API and those of control, with a check of every value.

mod attachments;
mod background;
mod cgroups;
mod codes;
mod drives;
mod from_control;
mod journals;
mod measurements;
pub mod policy;
mod pools;
mod scrubs;
mod snapshots;
mod templates;

use weir_engine_interface::statistics::{Bucket, OperationCounters, ReplicationCounters};
use weir_types::{FlushTerms, IoProfile, Name};

pub use attachments::method_asked;
pub use from_control::{FromControl, IntoApi};

use weir_api_types::{
    BoundPolicy, FlushCoalescing, IoPriority, LatencyBucket, LatencyPercentiles, OperationSample,
    PolicyGroupSample, ReplicaPlacement, Scrub, Tenant, Volume, VolumeClassPolicy, VolumeDrive, VolumeHealth,
    VolumeLife, VolumeMoveState, VolumeMoving, VolumePolicy, VolumeReplication, VolumeSample,
};
use weir_control::records::{DriveRecord, VolumeState};
use weir_control::totals::{OperationTotals, Totals};
use weir_control::{
    self, ControlError, FlushTermsChange, MoveState, MoveView, Outcome, ReplicaCounts, TenantView,
    VolumeCondition, VolumeView,
};

/// Point at which a flush of a volume with this I/O profile in effect is answered.
fn ack_point(replicas: u8, io_profile: IoProfile, flush_terms: FlushTerms) -> String {
    let place = match io_profile {
        IoProfile::DbRemote => {
            let window_ms = flush_terms.window_ms;
            return format!("memory of {replicas} replicas, stable within {window_ms} ms");
        }
        IoProfile::Journal => "in the write journal of",
        IoProfile::None | IoProfile::Auto => "on",
    };
    match replicas {
        1 => format!("stable {place} 1 replica at flush or FUA"),
        replicas => format!("stable {place} each of {replicas} replicas that is in sync, at flush or FUA"),
    }
}

/// Terms of coalesced flushes, to show.
fn flush_coalescing(terms: FlushTerms) -> FlushCoalescing {
    FlushCoalescing {
        window_seconds: Some(f64::from(terms.window_ms) / 1000.0),
        allow_shared_failure_domain: Some(terms.may_share_failure_domain),
        coalesce_fua: Some(terms.covers_fua),
    }
}

/// Reads the requested terms of coalesced flushes.
pub fn flush_terms(asked: Option<FlushCoalescing>) -> Outcome<FlushTermsChange> {
    let FlushCoalescing { window_seconds, allow_shared_failure_domain, coalesce_fua } =
        asked.unwrap_or_default();
    let milliseconds = |seconds: f64| {
        let whole = (seconds * 1000.0).round();
        let is_whole =
            (seconds * 1000.0 - whole).abs() < 1e-6 && (0.0..=f64::from(u32::MAX)).contains(&whole);
        let error = || {
            ControlError::invalid(format!(
                "a flush window of {seconds} s is not a whole number of milliseconds"
            ))
        };
        if is_whole { Ok(whole as u32) } else { Err(error()) }
    };
    Ok(FlushTermsChange {
        window_ms: window_seconds.map(milliseconds).transpose()?,
        may_share_failure_domain: allow_shared_failure_domain,
        covers_fua: coalesce_fua,
    })
}

/// Reads a name.
pub fn name(text: &str) -> Outcome<Name> {
    Name::new(text).map_err(|error| ControlError::invalid(error.to_string()))
}

/// Reads a name that may be absent.
pub fn optional_name(text: Option<&str>) -> Outcome<Option<Name>> {
    text.map(name).transpose()
}

impl FromControl<TenantView> for Tenant {
    fn from_control(view: TenantView) -> Tenant {
        Tenant {
            name: view.record.name.into(),
            qos_policy_group: view.policy_group.map(|group| group.name.into()),
            default_policy_group: view.default_policy_group.map(|group| group.name.into()),
            volumes: view.volumes as u64,
            version: view.version,
            created_at: view.record.created_at,
        }
    }
}

/// Fixed and adaptive policy of a volume, of which at most one exists.
fn bound_policies(view: &VolumeView) -> (Option<BoundPolicy>, Option<BoundPolicy>) {
    let Some(record) = &view.policy else { return (None, None) };
    let policy = Some(BoundPolicy {
        id: record.id.0,
        name: record.name.to_string(),
        is_shared: record.is_shared,
        limits: view.policy_limits().unwrap_or_default().into(),
    });
    if record.adaptive.is_some() { (None, policy) } else { (policy, None) }
}

impl FromControl<VolumeView> for Volume {
    fn from_control(view: VolumeView) -> Volume {
        let policy = VolumePolicy::from_control(&view);
        let (qos_policy_group, qos_adaptive_policy_group) = bound_policies(&view);
        let replica = |(number, drives): (u8, Vec<DriveRecord>)| ReplicaPlacement {
            number,
            drives: drives.into_iter().map(VolumeDrive::from_control).collect(),
        };
        let health = view.health;
        let replication = view.replication.map(|counters| replication(&counters, &health));
        let moving = view.moves.map(VolumeMoving::from_control);
        let scrub = view.scrub.map(Scrub::from_control);
        let record = view.record;
        Volume {
            export_name: record.export_name(),
            id: record.id.0,
            version: view.version,
            tenant: record.tenant.into(),
            name: record.name.into(),
            size_bytes: record.size_bytes,
            used_bytes: view.used_bytes,
            unique_bytes: view.unique_bytes,
            snapshots: view.snapshots,
            cloned_from: record.cloned_from,
            snapshot_bytes_left: view.snapshot_bytes_left,
            drives: view.drives.into_iter().map(VolumeDrive::from_control).collect(),
            replicas: record.replicas,
            placement: (0..)
                .zip(view.replica_drives)
                .filter(|(_, drives)| !drives.is_empty())
                .map(replica)
                .collect(),
            replication,
            moving,
            scrub,
            template: record.template.map(String::from),
            io_priority: IoPriority::from(record.io_priority),
            class_policy: VolumeClassPolicy::from(record.class_policy),
            io_profile: record.io_profile.into(),
            derived_io_profile: view.derived_io_profile.into(),
            flush_coalescing: (view.derived_io_profile == IoProfile::DbRemote)
                .then(|| flush_coalescing(record.flush_terms)),
            class: view.class.map(IoPriority::from),
            read_only: record.is_read_only,
            state: record.state.into_api(),
            health: health.condition.into_api(),
            extents_degraded: health.extents_degraded,
            extents_offline: health.extents_offline,
            qos_policy_group,
            qos_adaptive_policy_group,
            policy,
            ack_point: ack_point(record.replicas, view.derived_io_profile, record.flush_terms),
            connections: view.counters.map_or(0, |counters| counters.connections),
            created_at: record.created_at,
        }
    }
}

fn replication(replication: &ReplicationCounters, health: &weir_control::VolumeHealth) -> VolumeReplication {
    let ReplicaCounts { in_sync, stale, missing } = health.replicas;
    let ReplicationCounters { bytes_left, bytes_resynced, .. } = *replication;
    VolumeReplication { in_sync, stale, missing, bytes_left, bytes_resynced }
}

impl FromControl<VolumeCondition> for VolumeHealth {
    fn from_control(condition: VolumeCondition) -> VolumeHealth {
        match condition {
            VolumeCondition::Online => VolumeHealth::Online,
            VolumeCondition::Degraded => VolumeHealth::Degraded,
            VolumeCondition::Offline => VolumeHealth::Offline,
        }
    }
}

impl FromControl<MoveView> for VolumeMoving {
    fn from_control(view: MoveView) -> VolumeMoving {
        let state = match view.state() {
            MoveState::Planning => VolumeMoveState::Planning,
            MoveState::Moving => VolumeMoveState::Moving,
            MoveState::Resyncing => VolumeMoveState::Resyncing,
            MoveState::RemovingJournals => VolumeMoveState::RemovingJournals,
        };
        let MoveView { extents_left, extents_resyncing, blocked_reason } = view;
        VolumeMoving { state, extents_left, extents_resyncing, blocked_reason }
    }
}

impl FromControl<VolumeState> for VolumeLife {
    fn from_control(state: VolumeState) -> VolumeLife {
        match state {
            VolumeState::Creating => VolumeLife::Creating,
            VolumeState::Online => VolumeLife::Online,
            VolumeState::Deleting => VolumeLife::Deleting,
        }
    }
}

impl FromControl<OperationTotals> for OperationSample {
    fn from_control(totals: OperationTotals) -> OperationSample {
        let bucket = |Bucket { above_ns, up_to_ns, count }| LatencyBucket { above_ns, up_to_ns, count };
        OperationSample {
            operations: totals.operations,
            bytes: totals.bytes,
            errors: totals.errors,
            delayed: totals.delayed,
            delayed_ns: totals.time.delayed_ns,
            floors_ns: totals.time.floors_ns,
            queue_ns: totals.time.queue_ns,
            drive_ns: totals.time.drive_ns,
            other_ns: totals.time.other_ns,
            latency_sum_ns: totals.time.sum_ns(),
            size_counts: totals.sizes.to_vec(),
            latency_percentiles: None,
            latency_buckets: totals.latency.into_iter().map(bucket).collect(),
        }
    }
}

/// Totals with percentiles, which only the daemon's own, finer histogram gives.
fn with_percentiles(totals: OperationTotals, counters: &OperationCounters) -> OperationSample {
    let latency = &counters.latency;
    let percentiles = LatencyPercentiles {
        p50_ns: latency.percentile_ns(500),
        p95_ns: latency.percentile_ns(950),
        p99_ns: latency.percentile_ns(990),
        p999_ns: latency.percentile_ns(999),
    };
    let latency_percentiles = (totals.operations > 0).then_some(percentiles);
    OperationSample { latency_percentiles, ..totals.into_api() }
}

impl FromControl<weir_control::VolumeSample> for VolumeSample {
    fn from_control(sample: weir_control::VolumeSample) -> VolumeSample {
        let (counters, totals) = (&sample.counters, Totals::from(&sample.counters));
        VolumeSample {
            id: sample.volume.record.id.0,
            tenant: sample.volume.record.tenant.clone().into(),
            volume: sample.volume.record.name.clone().into(),
            qos_policy_group: sample.policy.map(Into::into),
            read: with_percentiles(totals.read, &counters.read),
            write: with_percentiles(totals.write, &counters.write),
            other: with_percentiles(totals.other, &counters.other),
            queue_depth: sample.counters.queue_depth,
            queue_depth_delayed: sample.counters.queue_depth_delayed,
            connections: sample.counters.connections,
        }
    }
}

impl FromControl<weir_control::PolicyGroupSample> for PolicyGroupSample {
    fn from_control(sample: weir_control::PolicyGroupSample) -> PolicyGroupSample {
        PolicyGroupSample {
            id: sample.record.id.0,
            tenant: sample.record.tenant.into(),
            policy_group: sample.record.name.into(),
            workloads: sample.workloads as u64,
            read: sample.totals.read.into_api(),
            write: sample.totals.write.into_api(),
            other: sample.totals.other.into_api(),
            queue_depth: sample.queue_depth,
            queue_depth_delayed: sample.queue_depth_delayed,
        }
    }
}
