//! Which limits held a volume's requests back, for how long together, and since when without a pause.

use std::sync::{Mutex, PoisonError};

use weir_qos::Limit;
use weir_types::Scope;

/// A limit that holds nothing back for longer than this has paused; when it does so again, it does so anew.
const PAUSE_NS_MAX: u64 = 1_000_000_000;
/// Limits that are remembered of one volume, several times what can stand above it at once; past that the one
/// that held nothing back for longest is forgotten.
const LIMITS_MAX: usize = 128;

/// What one limit held back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoundTotals {
    /// Whose limit.
    pub scope: Scope,
    /// Which.
    pub limit: Limit,
    /// Requests that it held back.
    pub requests: u64,
    /// For how long, together, in nanoseconds.
    pub waited_ns: u64,
    /// Since when it has done so without a pause of more than a second, by the clock of reactors.
    pub since_ns: u64,
    /// When it last let a request go, by the same clock.
    pub last_ns: u64,
}

/// What all limits held back. Written by one thread, read by any.
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

    /// What was counted so far.
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
    fn a_limit_binds_since_it_began_without_a_pause() {
        let bounds = Bounds::default();
        let record = |waited_ns, now_ns| bounds.record(&scope(1), LIMIT, waited_ns, now_ns);
        record(SECOND_NS / 2, 10 * SECOND_NS);
        // Three seconds later, but the request had been waiting for most of them.
        record(5 * SECOND_NS / 2, 13 * SECOND_NS);
        let first = &bounds.totals()[0];
        assert_eq!((first.requests, first.waited_ns, first.since_ns), (2, 3 * SECOND_NS, 19 * SECOND_NS / 2));
        record(1, 15 * SECOND_NS);
        let later = &bounds.totals()[0];
        assert_eq!((later.since_ns, later.last_ns), (15 * SECOND_NS - 1, 15 * SECOND_NS));
    }

    #[test]
    fn limits_of_long_ago_are_forgotten() {
        let bounds = Bounds::default();
        for number in 0..2 * LIMITS_MAX as u64 {
            bounds.record(&scope(u128::from(number)), LIMIT, 1, number + 1);
        }
        let totals = bounds.totals();
        assert_eq!(totals.len(), LIMITS_MAX);
        assert!(totals.iter().all(|bound| bound.last_ns > LIMITS_MAX as u64));
    }
}
