//! Bounds: which limits held a volume's requests back, for how long in total, and since when without a pause.

use std::sync::{Mutex, PoisonError};

use weir_qos::Limit;
use weir_types::Scope;

/// A limit that holds no request back for longer than this has paused. Its next delay starts a new period.
const PAUSE_NS_MAX: u64 = 1_000_000_000;
/// Limits that are kept for one volume, several times the limits that can apply at once. Beyond that number
/// the limit that was idle longest is forgotten.
const LIMITS_MAX: usize = 512;

/// Delays by one limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoundTotals {
    /// Tenant, policy group or volume of the limit.
    pub scope: Scope,
    /// The limit.
    pub limit: Limit,
    /// Requests that the limit held back.
    pub requests: u64,
    /// Total delay of the held-back requests, in nanoseconds.
    pub waited_ns: u64,
    /// Begin of the current period without a pause of more than a second, by the clock of reactors.
    pub since_ns: u64,
    /// Time at which the limit last released a request, by the same clock.
    pub last_ns: u64,
}

/// Delays by all limits. One thread writes, any thread reads.
#[derive(Default)]
pub struct Bounds(Mutex<Vec<BoundTotals>>);

impl Bounds {
    /// Counts a request that a limit held back until now.
    pub fn record(&self, scope: &Scope, limit: Limit, waited_ns: u64, now_ns: u64) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let from_ns = now_ns.saturating_sub(waited_ns);
        if let Some(known) = all.iter_mut().find(|known| known.limit == limit && known.scope == *scope) {
            known.requests += 1;
            known.waited_ns += waited_ns;
            if from_ns > known.last_ns.saturating_add(PAUSE_NS_MAX) {
                known.since_ns = from_ns;
            }
            known.last_ns = known.last_ns.max(now_ns);
            return;
        }
        if all.len() >= LIMITS_MAX
            && let Some(oldest) = (0..all.len()).min_by_key(|&index| all[index].last_ns)
        {
            all.swap_remove(oldest);
        }
        let scope = scope.clone();
        all.push(BoundTotals { scope, limit, requests: 1, waited_ns, since_ns: from_ns, last_ns: now_ns });
    }

    /// The totals so far.
    pub fn totals(&self) -> Vec<BoundTotals> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_qos::{Dimension, Rate};
    use weir_types::VolumeId;

    const SECOND_NS: u64 = 1_000_000_000;
    const LIMIT: Limit = Limit { dimension: Dimension::ReadBytes, rate: Rate::Sustained };

    fn scope(number: u128) -> Scope {
        Scope::Volume(VolumeId(uuid::Uuid::from_u128(number)))
    }

    #[test]
    fn limit_period_begins_anew_after_pause() {
        let bounds = Bounds::default();
        let record = |waited_ns, now_ns| bounds.record(&scope(1), LIMIT, waited_ns, now_ns);
        record(SECOND_NS / 2, 10 * SECOND_NS);
        // Three seconds later, but the request had been waiting for most of that time.
        record(5 * SECOND_NS / 2, 13 * SECOND_NS);
        let first = &bounds.totals()[0];
        assert_eq!((first.requests, first.waited_ns, first.since_ns), (2, 3 * SECOND_NS, 19 * SECOND_NS / 2));
        record(1, 15 * SECOND_NS);
        let later = &bounds.totals()[0];
        assert_eq!((later.since_ns, later.last_ns), (15 * SECOND_NS - 1, 15 * SECOND_NS));
    }

    #[test]
    fn longest_idle_limits_are_forgotten() {
        let bounds = Bounds::default();
        for number in 0..2 * LIMITS_MAX as u64 {
            bounds.record(&scope(u128::from(number)), LIMIT, 1, number + 1);
        }
        let totals = bounds.totals();
        assert_eq!(totals.len(), LIMITS_MAX);
        assert!(totals.iter().all(|bound| bound.last_ns > LIMITS_MAX as u64));
    }
}
