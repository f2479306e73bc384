//! Which region of which replica is resynced next.

use std::collections::{BTreeMap, BTreeSet};

use weir_types::ExtentIndex;
use weir_types::bounds::BACKGROUND_OPERATIONS_MAX;

use super::Mirror;

/// How long a replica is left alone whose resync or promotion failed, in nanoseconds.
pub const RETRY_NS: u64 = 1_000_000_000;

/// How long the regions that are resynced at a time may keep a drive busy, in nanoseconds. A shallow client waits behind all
/// of it, because nothing waits in the queue of a drive that has few operations; and a region takes no changes while it is
/// resynced.
const BUSY_NS_MAX: u32 = 10_000_000;

/// A replica of an extent, by the extent and its number.
pub type ExtentReplica = (ExtentIndex, usize);

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Resync a region of the replica.
    Resync(ExtentReplica),
    /// The replica has all regions: promote it to in sync.
    Promote(ExtentReplica),
}

/// The replicas of one volume that may not be in sync.
#[derive(Clone, Debug, Default)]
pub struct ResyncQueue {
    /// Extents with a replica that may not be in sync.
    wanting: BTreeSet<ExtentIndex>,
    /// Replicas that are left alone until an instant, in nanoseconds.
    resting: BTreeMap<ExtentReplica, u64>,
    steps_under_way: usize,
}

impl ResyncQueue {
    /// All replicas of a volume that may not be in sync.
    pub fn new(mirror: &Mirror) -> ResyncQueue {
        let mut queue = ResyncQueue::default();
        queue.look_at_all(mirror);
        queue
    }

    /// Looks at all extents, after the volume was resized.
    pub fn look_at_all(&mut self, mirror: &Mirror) {
        let wants = |extent: &ExtentIndex| !mirror.wanting(*extent).is_empty();
        self.wanting = ExtentIndex::first(mirror.extents()).filter(wants).collect();
        self.resting.retain(|(extent, _), _| extent.is_within(mirror.extents()));
    }

    /// The replicas of an extent have changed.
    pub fn look_at(&mut self, extent: ExtentIndex) {
        self.wanting.insert(extent);
        self.resting.retain(|(other, _), _| *other != extent);
    }

    /// Leaves a replica alone for [`RETRY_NS`].
    pub fn rest(&mut self, replica: ExtentReplica, now_ns: u64) {
        self.resting.insert(replica, now_ns + RETRY_NS);
    }

    /// A region is being resynced.
    pub fn step_begun(&mut self) {
        self.steps_under_way += 1;
    }

    /// The resync of a region has ended.
    pub fn step_ended(&mut self) {
        self.steps_under_way -= 1;
    }

    /// Number of regions that are being resynced.
    pub fn steps_under_way(&self) -> usize {
        self.steps_under_way
    }

    /// What can be done now. The first extent comes first, so that it is in sync soon.
    pub fn next(&mut self, mirror: &Mirror, now_ns: u64) -> Option<Next> {
        self.resting.retain(|_, until_ns| *until_ns > now_ns);
        self.wanting.retain(|extent| !mirror.wanting(*extent).is_empty());
        if self.steps_under_way >= BACKGROUND_OPERATIONS_MAX {
            return None;
        }
        let of_extent = |extent: &ExtentIndex| {
            let extent = *extent;
            mirror.wanting(extent).iter().map(move |slot| (extent, slot)).collect::<Vec<_>>()
        };
        let mut replicas = self.wanting.iter().flat_map(of_extent);
        let replica = replicas.find(|replica| !self.resting.contains_key(replica))?;
        let is_whole = mirror.regions_out_of_sync(replica.0, replica.1) == 0;
        Some(if is_whole { Next::Promote(replica) } else { Next::Resync(replica) })
    }

    /// The next instant at which a replica is left alone no more, in nanoseconds.
    pub fn wake_ns(&self) -> Option<u64> {
        self.resting.values().min().copied()
    }

    /// Regions that replicas which can be reached do not have.
    pub fn regions_left(&self, mirror: &Mirror) -> u64 {
        let out_of_sync = |extent: &ExtentIndex| {
            let slots = mirror.wanting(*extent);
            slots.iter().map(|slot| u64::from(mirror.regions_out_of_sync(*extent, slot))).sum::<u64>()
        };
        self.wanting.iter().map(out_of_sync).sum()
    }
}

/// How many regions are resynced at a time between drives of which the slower takes so long for a piece: at least one.
pub fn steps_at_once(piece_ns: u32) -> usize {
    ((BUSY_NS_MAX / piece_ns.max(1)) as usize).clamp(1, BACKGROUND_OPERATIONS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_drives_resync_one_region_at_a_time_and_fast_ones_several() {
        for (piece_ns, steps) in [(0, 4), (43_000, 4), (2_500_000, 4), (4_000_000, 2), (13_000_000, 1)] {
            assert_eq!(steps_at_once(piece_ns), steps, "{piece_ns}");
        }
    }
}
