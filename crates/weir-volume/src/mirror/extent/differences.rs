//! Differences of an extent's replicas that no durable metadata names: regions in which a replica in sync is
//! behind the authoritative one, and regions that a stale replica has again.
//!
//! This module does not know replica states. Its caller says which replicas are in sync and which are stale.

use weir_types::bounds::REPLICA_SLOTS_MAX;

use crate::mirror::regions::RegionSet;
use crate::mirror::slots::Slots;

/// Differences of the replicas of an extent.
#[derive(Debug, Default)]
pub(super) struct Differences {
    /// By replica in sync, regions in which a failed change may have left it different from the authoritative
    /// one. These regions are not read from it.
    behind: [RegionSet; REPLICA_SLOTS_MAX],
    /// By stale replica, out-of-sync regions that it has again, but not in stable form yet.
    caught_up: [RegionSet; REPLICA_SLOTS_MAX],
    /// By replica, a counter of state changes and of regions lost or resynced.
    versions: [u64; REPLICA_SLOTS_MAX],
}

impl Differences {
    /// Regions in which a replica in sync is behind.
    pub fn behind(&self, slot: usize) -> &RegionSet {
        &self.behind[slot]
    }

    /// Out-of-sync regions that a stale replica has again.
    pub fn caught_up(&self, slot: usize) -> &RegionSet {
        &self.caught_up[slot]
    }

    /// Counter of state changes and of regions lost or resynced by a replica.
    pub fn version(&self, slot: usize) -> u64 {
        self.versions[slot]
    }

    /// Notes that a replica changed in a way that a flush begun before does not cover.
    pub fn change_version(&mut self, slot: usize) {
        self.versions[slot] += 1;
    }

    /// Forgets the differences of a replica whose state changes.
    pub fn reset(&mut self, slot: usize) {
        self.behind[slot] = RegionSet::default();
        self.caught_up[slot] = RegionSet::default();
        self.versions[slot] += 1;
    }

    /// Forgets the regions that a replica had again, because it failed.
    pub fn fail(&mut self, slot: usize) {
        self.caught_up[slot] = RegionSet::default();
        self.versions[slot] += 1;
    }

    /// Notes that a replica lost regions.
    pub fn lose(&mut self, slot: usize, regions: impl Iterator<Item = u32>) {
        regions.for_each(|region| self.caught_up[slot].remove(region));
        self.versions[slot] += 1;
    }

    /// Notes that a replica in sync has a region again.
    pub fn end_behind(&mut self, slot: usize, region: u32) {
        self.behind[slot].remove(region);
    }

    /// Notes that a stale replica has a region again.
    pub fn catch_up(&mut self, slot: usize, region: u32) {
        self.caught_up[slot].insert(region);
    }

    /// Notes that replicas in sync may differ in a region: the first one that is not behind becomes
    /// authoritative.
    pub fn diverge(&mut self, in_sync: Slots, region: u32) {
        let others = in_sync.filter(|slot| !self.behind[slot].contains(region)).iter().skip(1);
        others.for_each(|slot| _ = self.behind[slot].insert(region));
    }

    /// Regions in which all replicas in sync are behind a lost one.
    pub fn orphaned_regions(&self, in_sync: Slots) -> RegionSet {
        let Some(first) = in_sync.first() else { return RegionSet::default() };
        let is_orphaned = |region: &u32| in_sync.iter().all(|slot| self.behind[slot].contains(*region));
        self.behind[first].iter().filter(is_orphaned).collect()
    }

    /// Chooses a new authoritative replica where all replicas in sync are behind a lost one: the first
    /// becomes authoritative. Stale replicas that got the lost one's data there lack these regions again.
    pub fn choose_authoritative(&mut self, in_sync: Slots, stale: Slots) {
        let orphaned = self.orphaned_regions(in_sync);
        let Some(first) = in_sync.first().filter(|_| !orphaned.is_empty()) else { return };
        self.behind[first].subtract(&orphaned);
        for slot in stale.iter() {
            self.caught_up[slot].subtract(&orphaned);
            self.versions[slot] += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn region_that_all_are_behind_in_goes_to_the_first() {
        let (mut differences, all) = (Differences::default(), [0, 1, 2].into_iter().collect::<Slots>());
        differences.diverge(all, 7);
        assert!(differences.behind(0).is_empty() && differences.behind(1).contains(7));
        differences.catch_up(3, 7);
        let (left, version) = (all.without(Slots::one(0)), differences.version(3));
        assert!(differences.orphaned_regions(all).is_empty());
        assert!(differences.orphaned_regions(left).iter().eq([7]));
        differences.choose_authoritative(left, Slots::one(3));
        assert!(differences.behind(1).is_empty() && differences.behind(2).contains(7));
        assert!(differences.caught_up(3).is_empty() && differences.version(3) > version);
    }
}
