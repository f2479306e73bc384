//! The floor: the rate that a workload gets before others share. It falls due as time passes.

use weir_types::Throughput;
use weir_types::bounds::FLOOR_CREDIT_NS;

use crate::cost::{Cost, Counting, MILLIONTHS};
use crate::meter::{Credit, Meter};

/// A floor. It is due while the workload has had less than the floor's rate gives. Requests beyond the floor
/// go on the workload's share and do not count against the floor later.
#[derive(Clone, Debug)]
pub struct Floor {
    meter: Meter,
    counts_bytes: bool,
}

impl Floor {
    /// Returns the floor that terms ask for, if any. Only one dimension counts: operations, if both are
    /// given.
    pub fn new(floor: Throughput, now_ns: u64) -> Option<Floor> {
        let (rate, counts_bytes) = rate_of(floor)?;
        Some(Floor { meter: Meter::with_credit(rate, credit(rate), now_ns), counts_bytes })
    }

    /// Changes a floor to the one that terms ask for.
    pub fn changed(old: Option<Floor>, floor: Throughput, now_ns: u64) -> Option<Floor> {
        let (rate, counts_bytes) = rate_of(floor)?;
        let mut old = old.filter(|old| old.counts_bytes == counts_bytes);
        if let Some(floor) = &mut old {
            floor.meter.change(rate, credit(rate), now_ns);
        }
        old.or_else(|| Floor::new(floor, now_ns))
    }

    /// Returns the instant from which on the floor is due.
    pub fn due_ns(&self) -> u64 {
        self.meter.ready_ns()
    }

    /// Counts a request that was let go, either because a floor was due here or below, or on the share.
    pub fn charge(&mut self, now_ns: u64, cost: Cost, counting: &Counting, is_due: bool) {
        self.meter.settle(now_ns);
        if !is_due {
            self.meter.forgive();
        }
        let bytes = u64::from(cost.bytes) * MILLIONTHS;
        self.meter.charge(if self.counts_bytes { bytes } else { counting.operations(cost) });
    }

    /// Forgets the time in which the floor fell due while the workload asked for nothing.
    pub fn awaken(&mut self, now_ns: u64) {
        self.meter.settle(now_ns);
        self.meter.drop_credit();
    }
}

fn rate_of(floor: Throughput) -> Option<(u64, bool)> {
    let operations = floor.iops.map(|rate| (rate, false));
    operations.or(floor.bytes_per_second.map(|rate| (rate, true)))
}

fn credit(rate: u64) -> Credit {
    Credit { rate, ns_max: FLOOR_CREDIT_NS }
}
