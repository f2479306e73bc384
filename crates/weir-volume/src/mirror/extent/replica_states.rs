//! Transitions of replica states: a replica is added, misses a change and so becomes stale, fails, returns, is
//! resynced, is promoted or is removed.
//!
//! Every state change passes [`MirroredExtent::set_state`]. The other methods say when it happens, and which regions the
//! replica lacks then. They change the wanted state. It holds for clients once the metadata that records it is durable.

use super::MirroredExtent;
use crate::action::Request;
use crate::mirror::regions::{RegionSet, regions_of};
use crate::mirror::replica_metadata::{ReplicaMetadata, ReplicaState};
use crate::mirror::slots::Slots;

impl MirroredExtent {
    /// Changes the state of a replica.
    fn set_state(&mut self, slot: usize, replica_state: ReplicaState) {
        let before = self.wanted.replica_states[slot];
        assert!(before.can_become(replica_state), "{before:?} never becomes {replica_state:?}");
        self.wanted.replica_states[slot] = replica_state;
        self.checksums.iter_mut().for_each(|checksums| checksums.lose(slot));
        self.new_epoch();
        self.wanted.out_of_sync[slot] = RegionSet::default();
        self.differences.reset(slot);
        self.choose_authoritative();
        self.check_invariants();
    }

    pub(super) fn new_epoch(&mut self) {
        self.wanted.epoch = self.durable.epoch_after(self.wanted.epoch);
    }

    fn check_invariants(&self) {
        for (slot, replica_state) in self.wanted.replica_states.iter().enumerate() {
            debug_assert!(*replica_state == ReplicaState::InSync || self.differences.behind(slot).is_empty());
            debug_assert!(
                *replica_state == ReplicaState::Stale || self.differences.caught_up(slot).is_empty()
            );
        }
        let orphaned = || self.differences.orphaned_regions(self.in_sync());
        debug_assert!(orphaned().is_empty(), "a replica in sync is readable in each region");
    }

    /// Makes a replica stale that missed a change, if another replica is in sync. Dirty regions may not be
    /// stable on the stale replica, so it lacks them.
    pub(super) fn make_stale(&mut self, slot: usize) {
        let has_other = self.in_sync().has_other(slot);
        if self.wanted.replica_states[slot] == ReplicaState::InSync && has_other {
            self.set_state(slot, ReplicaState::Stale);
            self.wanted.out_of_sync[slot] = self.wanted.dirty.clone();
        }
    }

    /// Makes a replica stale in these regions, if another replica is in sync.
    pub(super) fn add_out_of_sync(&mut self, slot: usize, regions: &RegionSet) {
        if regions.is_empty() {
            return;
        }
        self.make_stale(slot);
        if self.wanted.replica_states[slot] == ReplicaState::Stale {
            self.wanted.out_of_sync[slot].add(regions);
        }
    }

    /// Marks a range as out of sync on a replica.
    pub(super) fn lose(&mut self, slot: usize, request: &Request) {
        if self.wanted.replica_states[slot] == ReplicaState::Absent {
            return;
        }
        let regions = regions_of(request.offset, request.length);
        self.differences.lose(slot, regions.clone());
        regions.for_each(|region| _ = self.wanted.out_of_sync[slot].insert(region));
    }

    /// Handles a change that these replicas missed, and that a replica in sync has.
    pub fn miss(&mut self, slots: Slots, request: &Request) {
        for slot in slots.iter() {
            self.make_stale(slot);
            self.lose(slot, request);
        }
    }

    /// Handles a failed change, after which replicas may differ. In each region the first readable replica
    /// becomes authoritative. The range stays dirty while replicas may differ.
    pub fn diverge(&mut self, request: &Request) {
        let in_sync = self.in_sync();
        let regions = regions_of(request.offset, request.length);
        regions.for_each(|region| self.differences.diverge(in_sync, region));
        self.with(ReplicaState::Stale).iter().for_each(|slot| self.lose(slot, request));
        self.check_invariants();
    }

    /// Notes that a replica has a region again.
    pub fn resynced(&mut self, slot: usize, region: u32) {
        self.differences.change_version(slot);
        match self.wanted.replica_states[slot] {
            ReplicaState::InSync => self.differences.end_behind(slot, region),
            ReplicaState::Stale => self.differences.catch_up(slot, region),
            ReplicaState::Absent => {}
        }
    }

    /// Handles the failure of a replica.
    pub fn fail(&mut self, slot: usize) {
        self.is_there[slot] = false;
        self.checksums.iter_mut().for_each(|checksums| checksums.lose(slot));
        self.differences.fail(slot);
        if self.wanted.replica_states[slot] == ReplicaState::Stale {
            let dirty = self.wanted.dirty.clone();
            self.wanted.out_of_sync[slot].add(&dirty);
        }
        self.make_stale(slot);
        self.choose_authoritative();
        self.check_invariants();
    }

    /// Chooses an authoritative replica where the lost one was it.
    fn choose_authoritative(&mut self) {
        let (in_sync, stale) = (self.in_sync(), self.with(ReplicaState::Stale));
        self.differences.choose_authoritative(in_sync, stale);
    }

    /// True if a stale replica lacks nothing, and may become in sync.
    pub fn can_be_promoted(&self, slot: usize) -> bool {
        let is_stale = self.is_there[slot] && self.wanted.replica_states[slot] == ReplicaState::Stale;
        // Without a replica in sync, it is unknown whether the stale one has everything.
        let may_count = is_stale && !self.unconfirmed.contains(slot);
        may_count && self.out_of_sync(slot).is_empty() && !self.in_sync().is_empty()
    }

    /// True if checksums may be valid beside a replica. They are invalidated before it becomes in sync.
    pub fn may_have_valid_checksums(&self, slot: usize) -> bool {
        self.checksums.as_ref().is_some_and(|checksums| !checksums.may_be_valid(slot).is_empty())
    }

    /// Makes a stale replica in sync that lacks nothing.
    pub fn promote(&mut self, slot: usize) {
        self.set_state(slot, ReplicaState::InSync);
    }

    /// True if a replica can be added in a slot. The slot must be durably free, and the extent needs a
    /// replica to resync from.
    pub fn can_add(&self, slot: usize) -> bool {
        let is_free = |metadata: &ReplicaMetadata| metadata.replica_states[slot] == ReplicaState::Absent;
        let is_free = is_free(&self.wanted) && is_free(self.durable.recorded());
        is_free && !self.durable.is_being_written() && !self.in_sync().is_empty()
    }

    /// Adds a replica whose files are empty: it lacks all regions. It counts as in sync only after
    /// [`MirroredExtent::confirm_added`].
    pub fn add(&mut self, slot: usize) {
        let is_free = self.wanted.replica_states[slot] == ReplicaState::Absent;
        assert!(is_free, "a replica is added where there is none");
        self.is_there[slot] = true;
        self.incarnations[slot] += 1;
        self.durable.forget_taken(slot);
        self.unconfirmed.insert(slot);
        self.checksums.iter_mut().for_each(|checksums| checksums.distrust(slot));
        self.set_state(slot, ReplicaState::Stale);
        self.wanted.out_of_sync[slot] = RegionSet::all();
    }

    /// Notes that a start would look for an added replica: it may become in sync.
    pub fn confirm_added(&mut self, slot: usize) {
        self.unconfirmed.remove(slot);
    }

    /// Takes back added replicas that are not durably recorded. If one replica is left, it needs no metadata,
    /// whatever lies beside others: each of them names it as the only one that counts. Otherwise the next
    /// metadata gets an epoch above any that may lie there, unless none does.
    pub(super) fn take_back_additions(&mut self, has_begun: bool) -> Slots {
        let recorded = self.durable.recorded().replica_states;
        let is_new = |slot: usize| recorded[slot] == ReplicaState::Absent;
        let is_added = |slot: usize| self.wanted.replica_states[slot] != ReplicaState::Absent && is_new(slot);
        let added = Slots::ALL.filter(is_added);
        for slot in added.iter() {
            self.set_state(slot, ReplicaState::Absent);
            self.is_there[slot] = false;
            self.incarnations[slot] += 1;
        }
        let has_recorded_states = self.wanted.replica_states == recorded && self.durable.is_confirmed();
        if !added.is_empty() && has_recorded_states {
            let replicas = recorded.iter().filter(|replica_state| **replica_state != ReplicaState::Absent);
            match replicas.count() {
                1 if self.durable.recorded().dirty.is_empty() => {
                    self.wanted = self.durable.recorded().clone()
                }
                _ if !has_begun && !self.durable.is_doubtful() => {
                    self.wanted.epoch = self.durable.recorded().epoch;
                }
                _ => {}
            }
        }
        added
    }

    /// True if a replica can rejoin: it is known and away, and another one is in sync.
    pub fn can_rejoin(&self, slot: usize) -> bool {
        let is_away = !self.is_there[slot] && self.wanted.replica_states[slot] != ReplicaState::Absent;
        is_away && !self.durable.is_being_written() && !self.in_sync().is_empty()
    }

    /// Takes a reachable replica back, with this metadata beside it. It lacks the regions that its own
    /// metadata names and those that it missed. It lacks all regions if its metadata is not the metadata last
    /// written there. It may have missed metadata, so a new epoch has the metadata written to it.
    pub fn rejoin(&mut self, slot: usize, found: &ReplicaMetadata) {
        self.make_stale(slot);
        // Regions that left the metadata since then may be missing from the returning data.
        self.wanted.out_of_sync[slot].add(&found.maybe_out_of_sync(slot));
        if self.is_foreign(slot, found) {
            self.add_out_of_sync(slot, &RegionSet::all());
        }
        self.is_there[slot] = true;
        self.checksums.get_or_insert_default().distrust(slot);
        self.differences.change_version(slot);
        self.incarnations[slot] += 1;
        self.new_epoch();
        self.check_invariants();
    }

    /// Removes a replica.
    pub fn remove(&mut self, slot: usize) {
        self.set_state(slot, ReplicaState::Absent);
        self.is_there[slot] = false;
    }
}

#[cfg(test)]
mod tests {
    use weir_types::ExtentIndex;
    use weir_types::bounds::{REGION_BYTES, REPLICA_SLOTS_MAX};

    use super::*;
    use crate::action::Kind;
    use crate::mirror::recovered_extent::RecoveredExtent;

    fn write(region: u32) -> Request {
        let kind = Kind::Write { is_durable: false };
        Request { kind, extent: ExtentIndex(0), offset: region * REGION_BYTES as u32, length: 4096 }
    }

    /// An extent with three replicas in sync and a stale one, which differ in a region.
    fn apart(region: u32) -> MirroredExtent {
        let mut recovered_extent = RecoveredExtent { is_confirmed: true, ..RecoveredExtent::default() };
        recovered_extent.metadata.replica_states[..3].fill(ReplicaState::InSync);
        recovered_extent.metadata.replica_states[3] = ReplicaState::Stale;
        recovered_extent.is_there = [true; REPLICA_SLOTS_MAX];
        let mut extent = MirroredExtent::new(recovered_extent);
        extent.make_dirty(&write(region));
        extent.diverge(&write(region));
        extent
    }

    fn readable(extent: &MirroredExtent, region: u32) -> Vec<usize> {
        let Request { offset, length, .. } = write(region);
        extent.readable(offset, length).iter().collect()
    }

    #[test]
    fn region_is_read_from_replica_equal_to_the_failed_one() {
        let mut extent = apart(3);
        assert_eq!(readable(&extent, 3), [0]);
        extent.resynced(2, 3);
        extent.fail(0);
        assert_eq!(readable(&extent, 3), [2], "the other one differs from what was read before");
        extent.diverge(&write(3));
        assert_eq!(readable(&extent, 3), [2]);
        extent.fail(2);
        assert_eq!(readable(&extent, 3), [1]);
    }

    #[test]
    fn stale_replica_lacks_regions_of_unconfirmed_source() {
        for agrees in [false, true] {
            let mut extent = apart(3);
            extent.resynced(3, 3);
            if agrees {
                extent.resynced(1, 3);
            }
            extent.fail(0);
            assert_eq!(readable(&extent, 3), [1]);
            assert_eq!(extent.out_of_sync(3).contains(3), !agrees);
        }
    }

    #[test]
    #[should_panic(expected = "never becomes")]
    fn absent_replica_is_never_promoted() {
        let mut extent = MirroredExtent::new(RecoveredExtent::alone(0));
        extent.promote(1);
    }
}
