//! Figures: throughput and waiting times of one volume, added up.

use std::collections::BTreeMap;

use crate::Event;
use serde::Serialize;
use weir_qos::Limit;

use crate::trace::Record;

/// Throughput and waiting times of a volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Figures {
    /// Requests that were answered.
    pub requests: u64,
    /// Answered requests per second.
    pub iops: f64,
    /// Bytes of answered requests per second.
    pub bytes_per_second: f64,
    /// Mean latency in nanoseconds. This and the other times are absent if no request was answered.
    pub latency_mean_ns: Option<u64>,
    /// The 99th percentile of the latency, in nanoseconds.
    pub latency_p99_ns: Option<u64>,
    /// Mean time that ceilings held requests back, in nanoseconds.
    pub ceilings_mean_ns: Option<u64>,
    /// Mean time in the drive queue for reasons other than floors, in nanoseconds.
    pub queue_mean_ns: Option<u64>,
    /// Mean time in which other requests went first for their floors, in nanoseconds.
    pub floors_mean_ns: Option<u64>,
    /// The limit that held requests back longest. Absent for recorded figures.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound_by: Option<BoundBy>,
}

/// A limit that held requests back.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BoundBy {
    /// Level of the limit: `tenant`, `policy group` or `volume`.
    pub level: &'static str,
    /// Name of the tenant, policy group or volume.
    pub name: String,
    /// The limit in words.
    pub limit: String,
    /// The limit's fraction of the time that ceilings held requests back, from 0 to 1.
    pub share: f64,
}

/// Totals of one volume. Requests that were already open at the beginning have no times, because their
/// arrival is unknown.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    requests: u64,
    latencies_ns: Vec<u64>,
    bytes: u64,
    ceilings_ns: u64,
    queue_ns: u64,
    floors_ns: u64,
    bounds: BTreeMap<(usize, Limit), u64>,
}

impl Tally {
    /// Adds a simulated request.
    pub fn add(&mut self, event: &Event) {
        self.requests += 1;
        self.bytes += event.bytes;
        if event.asked_ns == 0 {
            return;
        }
        self.latencies_ns.push(event.answered_ns - event.asked_ns);
        let waited_ns = event.admitted_ns - event.asked_ns;
        self.ceilings_ns += waited_ns;
        self.queue_ns += event.queue_ns - event.floors_ns.min(event.queue_ns);
        self.floors_ns += event.floors_ns;
        if let Some(bound_by) = event.bound_by {
            *self.bounds.entry(bound_by).or_default() += waited_ns;
        }
    }

    /// Adds a recorded request.
    pub fn add_record(&mut self, record: &Record) {
        self.requests += 1;
        self.bytes += u64::from(record.bytes);
        if record.arrived_ns == 0 {
            return;
        }
        self.latencies_ns.push(record.latency_ns);
        self.ceilings_ns = self.ceilings_ns.saturating_add(record.ceilings_ns);
        self.queue_ns = self.queue_ns.saturating_add(record.queue_ns - record.floors_ns);
        self.floors_ns = self.floors_ns.saturating_add(record.floors_ns);
    }

    /// The limit that held requests back longest, and its fraction of the time that all limits did.
    pub fn bound_most(&self) -> Option<(usize, Limit, f64)> {
        let ((node, limit), ns) = self.bounds.iter().max_by_key(|(_, ns)| **ns)?;
        Some((*node, *limit, *ns as f64 / self.ceilings_ns.max(1) as f64))
    }

    /// Figures for all requests over some seconds.
    pub fn figures(mut self, seconds: f64, bound_by: Option<BoundBy>) -> Figures {
        self.latencies_ns.sort_unstable();
        let (requests, timed) = (self.requests, self.latencies_ns.len() as u64);
        let per_second = |amount: u64| if seconds > 0.0 { amount as f64 / seconds } else { 0.0 };
        let sum = self.latencies_ns.iter().map(|ns| u128::from(*ns)).sum::<u128>();
        let rank = (self.latencies_ns.len() * 99).div_ceil(100);
        Figures {
            requests,
            iops: per_second(requests),
            bytes_per_second: per_second(self.bytes),
            latency_mean_ns: sum.checked_div(timed.into()).map(|mean| mean as u64),
            latency_p99_ns: rank.checked_sub(1).map(|index| self.latencies_ns[index]),
            ceilings_mean_ns: self.ceilings_ns.checked_div(timed),
            queue_mean_ns: self.queue_ns.checked_div(timed),
            floors_mean_ns: self.floors_ns.checked_div(timed),
            bound_by,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(asked_ns: u64, admitted_ns: u64, answered_ns: u64) -> Event {
        let (queue_ns, floors_ns) = ((answered_ns - admitted_ns) / 2, (answered_ns - admitted_ns) / 8);
        Event { asked_ns, admitted_ns, answered_ns, queue_ns, floors_ns, bytes: 4096, ..Event::default() }
    }

    #[test]
    fn figures_are_means_over_all_requests() {
        let mut tally = Tally::default();
        (0..100).for_each(|number| tally.add(&event(1, 100 * number + 1, 100 * number + 801)));
        let figures = tally.figures(2.0, None);
        assert_eq!((figures.requests, figures.iops, figures.bytes_per_second), (100, 50.0, 204_800.0));
        assert_eq!((figures.latency_mean_ns, figures.latency_p99_ns), (Some(5750), Some(10_600)));
        assert_eq!(figures.ceilings_mean_ns, Some(4950));
        assert_eq!((figures.queue_mean_ns, figures.floors_mean_ns), (Some(300), Some(100)));
    }

    #[test]
    fn empty_tally_has_no_latency() {
        let figures = Tally::default().figures(1.0, None);
        assert_eq!(figures, Figures::default());
        assert_eq!(Tally::default().figures(0.0, None).iops, 0.0);
    }
}
