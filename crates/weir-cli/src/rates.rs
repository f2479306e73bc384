//! Rates and percentiles from two samples of the daemon's totals.

use serde::Serialize;

use weir_api_types::{LatencyBucket, OperationSample, VolumeSample, VolumeStatistics};

/// Activity of one kind of operation, or of all kinds together, in a time span.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Activity {
    /// Operations per second.
    pub iops: f64,
    /// Bytes per second.
    pub bytes_per_second: f64,
    /// Mean latency in nanoseconds; `None` if there were no requests.
    pub latency_mean_ns: Option<u64>,
    /// Median latency in nanoseconds.
    pub p50_ns: Option<u64>,
    /// 99th percentile of the latency, in nanoseconds.
    pub p99_ns: Option<u64>,
    /// 99.9th percentile of the latency, in nanoseconds.
    pub p999_ns: Option<u64>,
    /// Number of requests answered.
    pub operations: u64,
    /// Number of bytes that the requests covered.
    pub bytes: u64,
    /// Number of requests answered with an error.
    pub errors: u64,
    /// Number of requests delayed by a ceiling.
    pub delayed: u64,
    /// Time that ceilings delayed requests, in nanoseconds, summed over all requests.
    pub delayed_ns: u64,
    /// Time in the queue while others were served first for their floors, in nanoseconds, summed over all
    /// requests.
    pub floors_ns: u64,
    /// Time in the queue for other reasons, in nanoseconds, summed over all requests.
    pub queue_ns: u64,
    /// Time at the drive, in nanoseconds, summed over all requests.
    pub drive_ns: u64,
    /// Remaining time, in nanoseconds, summed over all requests.
    pub other_ns: u64,
    /// Sum of the latencies of all requests, in nanoseconds; equal to the sum of the five times.
    pub latency_sum_ns: u64,
    /// Number of requests by size: up to 4 KiB, up to 16 KiB, up to 64 KiB, up to 256 KiB, and larger ones.
    pub size_counts: Vec<u64>,
}

/// Activity of one volume in a time span.
#[derive(Clone, Debug, Default, Serialize)]
pub struct VolumeActivity {
    /// Name of the volume.
    pub volume: String,
    /// Tenant of the volume.
    pub tenant: String,
    /// Policy group that the volume is bound to.
    pub qos_policy_group: Option<String>,
    /// Activity of reads.
    pub read: Activity,
    /// Activity of writes.
    pub write: Activity,
    /// Activity of reads and writes together.
    pub total: Activity,
    /// Number of requests under way at the end of the span.
    pub queue_depth: u64,
    /// Number of those requests that a ceiling delays.
    pub queue_depth_delayed: u64,
    /// Number of open connections at the end of the span.
    pub connections: u64,
}

/// Activity of all volumes in a time span.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Interval {
    /// Length of the span in seconds.
    pub seconds: f64,
    /// Activity of all volumes together.
    pub total: Activity,
    /// Activity of each volume.
    pub volumes: Vec<VolumeActivity>,
}

/// Subtracts `earlier` from `later`. A bucket that only one of them has counts no requests in the other.
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

/// Combines all counters except latency buckets and percentiles.
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

/// The latency that `per_mille` of 1000 requests do not exceed, with requests spread evenly within their
/// bucket.
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
    /// Activity of a volume since the daemon started. The rates are 0, because the span is unknown.
    pub fn since_start(sample: &VolumeSample) -> VolumeActivity {
        VolumeActivity::between(&VolumeSample::default(), sample, 0.0).0
    }

    /// Activity of a volume between two samples, and the same as totals.
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
    /// Activity between two samples. After a restart of the daemon, the span begins at the restart. A new
    /// volume counts from zero.
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
    fn restarted_daemon_counts_from_the_restart() {
        let earlier = at(9_000_000_000, reads(1000, &[]));
        let interval = Interval::between(&earlier, &at(2_000_000_000, reads(10, &[])));
        assert_eq!((interval.seconds, interval.total.iops), (2.0, 5.0));
    }

    #[test]
    fn idle_span_has_no_latency_and_no_rate() {
        let idle = at(5, VolumeSample::default());
        let interval = Interval::between(&idle, &idle);
        assert_eq!((interval.total.iops, interval.total.latency_mean_ns), (0.0, None));
    }
}
