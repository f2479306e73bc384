//! Rates and percentiles from two samples of the daemon's totals.

use serde::Serialize;

use crate::api::types::{LatencyBucket, OperationSample, VolumeSample, VolumeStatistics};

/// What one kind of operation, or all together, did in a span of time.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Activity {
    /// Operations per second.
    pub iops: f64,
    /// Bytes per second.
    pub bytes_per_second: f64,
    /// Mean latency in nanoseconds; `None` if nothing was done.
    pub latency_mean_ns: Option<u64>,
    /// Latency in nanoseconds that half of the requests did not exceed.
    pub p50_ns: Option<u64>,
    /// Latency in nanoseconds that 99 of 100 requests did not exceed.
    pub p99_ns: Option<u64>,
    /// Latency in nanoseconds that 999 of 1000 requests did not exceed.
    pub p999_ns: Option<u64>,
    /// Requests answered.
    pub operations: u64,
    /// Bytes that they covered.
    pub bytes: u64,
    /// Requests answered with an error.
    pub errors: u64,
    /// Requests held back by a ceiling.
    pub delayed: u64,
    /// Time held back by a ceiling, in nanoseconds, of all requests together.
    pub delayed_ns: u64,
    /// Time in line while others went first for their floors, in nanoseconds, of all requests together.
    pub floors_ns: u64,
    /// Time in the queue of other reasons, in nanoseconds, of all requests together.
    pub queue_ns: u64,
    /// Time at the drive, in nanoseconds, of all requests together.
    pub drive_ns: u64,
    /// The rest, in nanoseconds, of all requests together.
    pub other_ns: u64,
    /// Sum of the latencies of all requests, in nanoseconds: that of the five times.
    pub latency_sum_ns: u64,
    /// Requests of up to 4 KiB, of more and up to 16 KiB, 64 KiB, 256 KiB, and larger ones.
    pub size_counts: Vec<u64>,
}

/// What one volume did in a span of time.
#[derive(Clone, Debug, Default, Serialize)]
pub struct VolumeActivity {
    /// Its name.
    pub volume: String,
    /// Its tenant.
    pub tenant: String,
    /// The policy group that it is bound to.
    pub qos_policy_group: Option<String>,
    /// Reads.
    pub read: Activity,
    /// Writes.
    pub write: Activity,
    /// Reads and writes together.
    pub total: Activity,
    /// Requests that were not yet answered at the end.
    pub queue_depth: u64,
    /// Of these, requests held back by a ceiling.
    pub queue_depth_delayed: u64,
    /// Connections that were open at the end.
    pub connections: u64,
}

/// What all volumes did in a span of time.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Interval {
    /// The span in seconds.
    pub seconds: f64,
    /// All volumes together.
    pub total: Activity,
    /// Each volume.
    pub volumes: Vec<VolumeActivity>,
}

/// Takes `earlier` from `later`; a bucket that is in only one of them has no requests in the other.
fn between(earlier: &OperationSample, later: &OperationSample) -> OperationSample {
    let before = |bucket: &LatencyBucket| {
        let same = earlier.latency_buckets.iter().find(|other| other.up_to_ns == bucket.up_to_ns);
        same.map_or(0, |bucket| bucket.count)
    };
    let bucket = |bucket: &LatencyBucket| LatencyBucket {
        count: bucket.count.saturating_sub(before(bucket)),
        ..*bucket
    };
    OperationSample {
        latency_buckets: later.latency_buckets.iter().map(bucket).collect(),
        ..combine(later, earlier, u64::saturating_sub)
    }
}

fn sum(one: &OperationSample, other: &OperationSample) -> OperationSample {
    let mut buckets = one.latency_buckets.clone();
    for bucket in &other.latency_buckets {
        match buckets.iter_mut().find(|mine| mine.up_to_ns == bucket.up_to_ns) {
            Some(mine) => mine.count += bucket.count,
            None => buckets.push(*bucket),
        }
    }
    buckets.sort_by_key(|bucket| bucket.up_to_ns);
    OperationSample { latency_buckets: buckets, ..combine(one, other, u64::saturating_add) }
}

/// Combines everything but latency buckets and percentiles.
fn combine(one: &OperationSample, other: &OperationSample, combine: fn(u64, u64) -> u64) -> OperationSample {
    let size = |index: usize, counts: &[u64]| counts.get(index).copied().unwrap_or(0);
    let sizes = 0..one.size_counts.len().max(other.size_counts.len());
    OperationSample {
        operations: combine(one.operations, other.operations),
        bytes: combine(one.bytes, other.bytes),
        errors: combine(one.errors, other.errors),
        delayed: combine(one.delayed, other.delayed),
        delayed_ns: combine(one.delayed_ns, other.delayed_ns),
        floors_ns: combine(one.floors_ns, other.floors_ns),
        queue_ns: combine(one.queue_ns, other.queue_ns),
        drive_ns: combine(one.drive_ns, other.drive_ns),
        other_ns: combine(one.other_ns, other.other_ns),
        latency_sum_ns: combine(one.latency_sum_ns, other.latency_sum_ns),
        size_counts: sizes
            .map(|index| combine(size(index, &one.size_counts), size(index, &other.size_counts)))
            .collect(),
        latency_percentiles: None,
        latency_buckets: Vec::new(),
    }
}

/// The latency that `per_mille` of 1000 requests do not exceed, taking requests as evenly spread within
/// their bucket.
fn percentile_ns(buckets: &[LatencyBucket], per_mille: u64) -> Option<u64> {
    let count: u64 = buckets.iter().map(|bucket| bucket.count).sum();
    let rank = (count * per_mille).div_ceil(1000).max(1);
    let mut below = 0;
    for bucket in buckets.iter().filter(|bucket| bucket.count > 0) {
        if below + bucket.count >= rank {
            let width = u128::from(bucket.up_to_ns - bucket.above_ns);
            let part = width * u128::from(rank - below) / u128::from(bucket.count);
            return Some(bucket.above_ns + u64::try_from(part).unwrap_or(0));
        }
        below += bucket.count;
    }
    None
}

impl Activity {
    /// Mean size of requests in bytes; `None` if there were none.
    pub fn bytes_mean(&self) -> Option<u64> {
        self.bytes.checked_div(self.operations)
    }

    fn of(sample: &OperationSample, seconds: f64) -> Activity {
        let percentile = |per_mille| percentile_ns(&sample.latency_buckets, per_mille);
        let rate = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
        Activity {
            iops: rate(sample.operations),
            bytes_per_second: rate(sample.bytes),
            latency_mean_ns: sample.latency_sum_ns.checked_div(sample.operations),
            p50_ns: percentile(500),
            p99_ns: percentile(990),
            p999_ns: percentile(999),
            operations: sample.operations,
            bytes: sample.bytes,
            errors: sample.errors,
            delayed: sample.delayed,
            delayed_ns: sample.delayed_ns,
            floors_ns: sample.floors_ns,
            queue_ns: sample.queue_ns,
            drive_ns: sample.drive_ns,
            other_ns: sample.other_ns,
            latency_sum_ns: sample.latency_sum_ns,
            size_counts: sample.size_counts.clone(),
        }
    }
}

impl VolumeActivity {
    /// What a volume did since the daemon started; the rates are 0, because the span is not known.
    pub fn since_start(sample: &VolumeSample) -> VolumeActivity {
        VolumeActivity::between(&VolumeSample::default(), sample, 0.0).0
    }

    /// What a volume did between two samples, and the same as totals.
    fn between(
        earlier: &VolumeSample,
        later: &VolumeSample,
        seconds: f64,
    ) -> (VolumeActivity, OperationSample) {
        let read = between(&earlier.read, &later.read);
        let write = between(&earlier.write, &later.write);
        let total = sum(&read, &write);
        let activity = VolumeActivity {
            volume: later.volume.clone(),
            tenant: later.tenant.clone(),
            qos_policy_group: later.qos_policy_group.clone(),
            read: Activity::of(&read, seconds),
            write: Activity::of(&write, seconds),
            total: Activity::of(&total, seconds),
            queue_depth: later.queue_depth,
            queue_depth_delayed: later.queue_depth_delayed,
            connections: later.connections,
        };
        (activity, total)
    }
}

impl Interval {
    /// What happened between two samples. After a restart of the daemon everything counts as since then, and
    /// so it does for a volume that is new.
    pub fn between(earlier: &VolumeStatistics, later: &VolumeStatistics) -> Interval {
        let restarted = later.timestamp_ns < earlier.timestamp_ns;
        let from_ns = if restarted { 0 } else { earlier.timestamp_ns };
        let seconds = (later.timestamp_ns - from_ns) as f64 / 1e9;
        let nothing = VolumeSample::default();
        let mut total = OperationSample::default();
        let mut volumes = Vec::with_capacity(later.volumes.len());
        for sample in &later.volumes {
            let before = earlier.volumes.iter().filter(|_| !restarted).find(|other| other.id == sample.id);
            let (activity, totals) = VolumeActivity::between(before.unwrap_or(&nothing), sample, seconds);
            total = sum(&total, &totals);
            volumes.push(activity);
        }
        Interval { seconds, total: Activity::of(&total, seconds), volumes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reads(operations: u64, buckets: &[(u64, u64, u64)]) -> VolumeSample {
        let bucket = |&(above_ns, up_to_ns, count)| LatencyBucket { above_ns, up_to_ns, count };
        let read = OperationSample {
            operations,
            bytes: operations * 4096,
            latency_sum_ns: operations * 1000,
            latency_buckets: buckets.iter().map(bucket).collect(),
            ..OperationSample::default()
        };
        VolumeSample { id: uuid::Uuid::from_u128(1), read, ..VolumeSample::default() }
    }

    fn at(timestamp_ns: u64, sample: VolumeSample) -> VolumeStatistics {
        VolumeStatistics { timestamp_ns, volumes: vec![sample] }
    }

    #[test]
    fn rates_are_differences_over_time() {
        let earlier = at(1_000_000_000, reads(100, &[(512, 1024, 100)]));
        let later = at(3_000_000_000, reads(300, &[(512, 1024, 100), (1024, 2048, 200)]));
        let interval = Interval::between(&earlier, &later);
        assert_eq!(
            (interval.seconds, interval.total.iops, interval.total.latency_mean_ns),
            (2.0, 100.0, Some(1000))
        );
        assert_eq!(interval.volumes[0].read.bytes_per_second, 409_600.0);
        assert_eq!(interval.volumes[0].total.p50_ns, Some(1536));
        assert_eq!(interval.volumes[0].write.p50_ns, None);
    }

    #[test]
    fn a_restart_counts_from_the_restart() {
        let earlier = at(9_000_000_000, reads(1000, &[]));
        let interval = Interval::between(&earlier, &at(2_000_000_000, reads(10, &[])));
        assert_eq!((interval.seconds, interval.total.iops), (2.0, 5.0));
    }

    #[test]
    fn nothing_done_has_no_latency_and_no_rate() {
        let idle = at(5, VolumeSample::default());
        let interval = Interval::between(&idle, &idle);
        assert_eq!((interval.total.iops, interval.total.latency_mean_ns), (0.0, None));
    }
}
