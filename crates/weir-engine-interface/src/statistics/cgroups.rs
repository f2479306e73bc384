//! Cgroup statistics: what the processes of each cgroup with a limit have done to a volume.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use weir_types::CgroupBindingId;

use super::Served;

/// Totals of one kind of operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CgroupOperations {
    /// Answered requests.
    pub operations: u64,
    /// Bytes that they covered.
    pub bytes: u64,
    /// Time that ceilings held them back, in nanoseconds.
    pub delayed_ns: u64,
}

/// Totals of one cgroup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CgroupTotals {
    /// Reads.
    pub read: CgroupOperations,
    /// Writes.
    pub write: CgroupOperations,
    /// All other operations.
    pub other: CgroupOperations,
}

/// Totals by binding. One thread writes, any thread reads. Requests of other processes do not come here, so its lock
/// costs them nothing.
#[derive(Default)]
pub struct CgroupStatistics(Mutex<BTreeMap<CgroupBindingId, CgroupTotals>>);

impl CgroupOperations {
    /// Counts one answered request.
    pub fn record(&mut self, served: Served) {
        self.operations += 1;
        self.bytes += served.bytes;
        self.delayed_ns += served.delayed_ns;
    }
}

impl CgroupStatistics {
    /// Changes the totals of a binding.
    pub fn record(&self, binding: CgroupBindingId, count: impl FnOnce(&mut CgroupTotals)) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        count(all.entry(binding).or_default());
    }

    /// Forgets bindings that are no more.
    pub fn keep(&self, bindings: &[CgroupBindingId]) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|binding, _| bindings.contains(binding));
    }

    /// The totals of a binding so far.
    pub fn totals(&self, binding: CgroupBindingId) -> CgroupTotals {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(&binding).copied().unwrap_or_default()
    }
}
