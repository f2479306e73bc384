//! State of one extent of a mirror: its replicas, their metadata, and the operations in progress.

use std::collections::VecDeque;

use weir_types::bounds::REPLICA_SLOTS_MAX;

use super::MirrorId;
use super::checksum_state::ExtentChecksums;
use super::recovered_extent::{RecoveredExtent, ReplicaMetadata, ReplicaState};
use super::regions::{RegionSet, regions_of};
use crate::action::Request;
use crate::geometry::covering_blocks;

/// Bytes after which reads move on to the next of several equally fast replicas. Stretches are long enough
/// that sequential reads stay sequential on each replica.
const READ_STRETCH_BYTES: u32 = 1 << 20;

/// A set of replicas, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Slots(u8);

impl Slots {
    /// All possible replicas.
    pub const ALL: Slots = Slots((1 << REPLICA_SLOTS_MAX) - 1);

    /// The set of one replica.
    pub fn one(slot: usize) -> Slots {
        Slots(1 << slot)
    }

    /// True if the replica is in the set.
    pub fn contains(self, slot: usize) -> bool {
        self.0 & (1 << slot) != 0
    }

    /// Adds a replica.
    pub fn insert(&mut self, slot: usize) {
        self.0 |= 1 << slot;
    }

    /// Removes a replica.
    pub fn remove(&mut self, slot: usize) {
        self.0 &= !(1 << slot);
    }

    /// True if the sets have a replica in common.
    pub fn intersects(self, others: Slots) -> bool {
        self.0 & others.0 != 0
    }

    /// True if the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// True if the set has a replica other than this one.
    pub fn has_other(self, slot: usize) -> bool {
        self.0 & !(1 << slot) != 0
    }

    /// Number of replicas.
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// The first replica.
    pub fn first(self) -> Option<usize> {
        (self.0 != 0).then(|| self.0.trailing_zeros() as usize)
    }

    /// Intersection of both sets.
    pub fn both(self, others: Slots) -> Slots {
        Slots(self.0 & others.0)
    }

    /// Union of both sets.
    pub fn either(self, others: Slots) -> Slots {
        Slots(self.0 | others.0)
    }

    /// Replicas of this set that are not in the other.
    pub fn without(self, others: Slots) -> Slots {
        Slots(self.0 & !others.0)
    }

    /// Replicas that satisfy a condition.
    pub fn filter(self, mut is_wanted: impl FnMut(usize) -> bool) -> Slots {
        self.iter().filter(|slot| is_wanted(*slot)).collect()
    }

    /// The replicas, in order.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        let left = |bits: u8| (bits != 0).then_some(bits);
        let bits = std::iter::successors(left(self.0), move |bits| left(bits & (bits - 1)));
        bits.map(|bits| bits.trailing_zeros() as usize)
    }
}

impl FromIterator<usize> for Slots {
    fn from_iter<I: IntoIterator<Item = usize>>(slots: I) -> Slots {
        let mut set = Slots::default();
        slots.into_iter().for_each(|slot| set.insert(slot));
        set
    }
}

/// One extent of a mirror.
#[derive(Debug)]
pub(super) struct MirroredExtent {
    /// Metadata as it should be.
    pub wanted: ReplicaMetadata,
    /// Metadata as it durably is.
    pub recorded: ReplicaMetadata,
    /// Metadata that is being written.
    pub writing: Option<ReplicaMetadata>,
    /// Replicas beside which it is being written.
    pub writing_beside: Slots,
    /// Number of the last metadata write, including failed ones.
    pub number: u64,
    /// By replica, the number of the last metadata that it is known to have taken.
    pub taken: [u64; REPLICA_SLOTS_MAX],
    /// By replica, the highest number that metadata beside it may have.
    pub tried: [u64; REPLICA_SLOTS_MAX],
    /// Common content of metadata whose writes failed and which may lie beside replicas all the same.
    pub doubtful: Option<ReplicaMetadata>,
    /// Highest epoch that any unreachable metadata may have.
    pub epoch_allocated: u64,
    /// False until the metadata is written once. Before that the metadata must not be relied on.
    pub is_confirmed: bool,
    /// Replicas that can be reached and have not failed.
    pub is_there: [bool; REPLICA_SLOTS_MAX],
    /// Added replicas that a start would not look for yet. They never count as in sync. Otherwise the next
    /// start would miss the only replica in sync if the others failed.
    pub unconfirmed: Slots,
    /// Cost of a read of each replica, in any unit. Reads go to the lowest cost.
    pub read_costs: [u32; REPLICA_SLOTS_MAX],
    /// By replica in sync, regions in which a failed change may have left it different from the authoritative
    /// one. These regions are not read from it. For each region at least one replica in sync is not behind.
    pub behind: [RegionSet; REPLICA_SLOTS_MAX],
    /// By stale replica, out-of-sync regions that it has again, but not in stable form yet.
    pub caught_up: [RegionSet; REPLICA_SLOTS_MAX],
    /// By replica, a counter of state changes and of regions lost or resynced.
    pub versions: [u64; REPLICA_SLOTS_MAX],
    /// By replica, a counter of its rejoins and replacements.
    pub incarnations: [u64; REPLICA_SLOTS_MAX],
    /// Changes and resync steps in progress. They do not overlap.
    pub running: Vec<MirrorId>,
    /// Changes and resync steps that wait for others, in order.
    pub waiting: VecDeque<MirrorId>,
    /// Reads that wait until the authoritative replica is recorded.
    pub reads_waiting: Vec<MirrorId>,
    /// Regions that changed since regions were chosen to leave the dirty region log, while this choice is in
    /// progress.
    pub changed: Option<RegionSet>,
    /// Dirty regions that changed since the last search for regions that can leave the log.
    pub recent: RegionSet,
    /// Checksum state; `None` if the extent was never scrubbed.
    pub checksums: Option<Box<ExtentChecksums>>,
}

impl MirroredExtent {
    /// An extent in its recovered state.
    ///
    /// Replicas in sync may differ in dirty regions. The first reachable one becomes the authoritative
    /// replica there, and the others lack these regions until a resync. This is recorded before any of them
    /// is read. Otherwise a client could act on data that it read, and find other data once the replica is
    /// lost.
    pub fn new(recovered_extent: RecoveredExtent) -> MirroredExtent {
        let RecoveredExtent { metadata, is_there, lacks, epoch_allocated, is_confirmed } = recovered_extent;
        let (number, taken) = (metadata.number, metadata.taken);
        let mut extent = MirroredExtent {
            recorded: metadata.clone(),
            wanted: metadata,
            writing: None,
            writing_beside: Slots::default(),
            number,
            taken,
            // One write may have been in flight when the last process ended.
            tried: [number + 1; REPLICA_SLOTS_MAX],
            doubtful: None,
            epoch_allocated,
            is_confirmed,
            is_there,
            unconfirmed: Slots::default(),
            read_costs: [0; REPLICA_SLOTS_MAX],
            behind: Default::default(),
            caught_up: Default::default(),
            versions: [0; REPLICA_SLOTS_MAX],
            incarnations: [0; REPLICA_SLOTS_MAX],
            running: Vec::new(),
            waiting: VecDeque::new(),
            reads_waiting: Vec::new(),
            changed: None,
            recent: RegionSet::default(),
            checksums: None,
        };
        if !is_confirmed {
            extent.new_epoch();
        }
        // Replicas with the newest metadata are authoritative.
        lacks.iter().enumerate().for_each(|(slot, lacks)| extent.lack(slot, lacks));
        let dirty = extent.wanted.dirty.clone();
        let first = extent.in_sync().first();
        for slot in (0..REPLICA_SLOTS_MAX).filter(|slot| !dirty.is_empty() && Some(*slot) != first) {
            extent.degrade(slot);
            if extent.wanted.replica_states[slot] == ReplicaState::Stale {
                extent.wanted.out_of_sync[slot].add(&dirty);
            }
        }
        extent
    }

    /// Makes a replica stale in these regions, if another replica is in sync.
    pub fn lack(&mut self, slot: usize, regions: &RegionSet) {
        if regions.is_empty() {
            return;
        }
        self.degrade(slot);
        if self.wanted.replica_states[slot] == ReplicaState::Stale {
            self.wanted.out_of_sync[slot].add(regions);
        }
    }

    /// True if metadata found beside a replica cannot come from the recorded writes. Then an older state of
    /// the replica is back, or metadata of another volume.
    pub fn is_foreign(&self, slot: usize, found: &ReplicaMetadata) -> bool {
        !(self.taken[slot]..=self.tried[slot]).contains(&found.number)
    }

    /// True if there is a single replica, durably known to be alone. It needs no further metadata.
    pub fn is_alone(&self) -> bool {
        let replicas =
            self.wanted.replica_states.iter().filter(|replica_state| **replica_state != ReplicaState::Absent);
        replicas.count() == 1 && self.wanted.dirty.is_empty() && self.wanted == self.recorded
    }

    /// Reachable replicas in sync.
    pub fn in_sync(&self) -> Slots {
        self.with(ReplicaState::InSync)
    }

    /// Reachable replicas with a replica state.
    pub fn with(&self, replica_state: ReplicaState) -> Slots {
        let is_one = |slot: usize| self.is_there[slot] && self.wanted.replica_states[slot] == replica_state;
        // Branch-free, because every request asks several times.
        Slots((0..REPLICA_SLOTS_MAX).map(|slot| u8::from(is_one(slot)) << slot).sum())
    }

    /// True if a range must not be read yet: replicas may differ there, and the authoritative one is not
    /// recorded.
    pub fn is_open(&self, request: &Request) -> bool {
        let mut regions = regions_of(request.offset, request.length);
        !self.is_recorded() && regions.any(|region| self.wanted.dirty.contains(region))
    }

    /// Handles a failed change, after which replicas may differ. In each region the first readable replica
    /// becomes authoritative. The range stays dirty while replicas may differ.
    pub fn fall_apart(&mut self, request: &Request) {
        for region in regions_of(request.offset, request.length) {
            let is_current = |slot: usize| !self.behind[slot].contains(region);
            let others = self.in_sync().filter(is_current).iter().skip(1);
            others.for_each(|slot| _ = self.behind[slot].insert(region));
        }
        self.with(ReplicaState::Stale).iter().for_each(|slot| self.lose(slot, request));
    }

    /// Replicas that may be read in a range.
    pub fn readable(&self, offset: u32, length: u32) -> Slots {
        let is_current =
            |slot: usize| !regions_of(offset, length).any(|region| self.behind[slot].contains(region));
        self.in_sync().filter(is_current)
    }

    /// Replica to read a range from, other than the failed ones: the fastest. Equally fast ones take turns by
    /// stretches of the extent.
    pub fn read_from(&self, request: &Request, failed: Slots) -> Option<usize> {
        let candidates = self.readable(request.offset, request.length).without(failed);
        let least = candidates.iter().map(|slot| self.read_costs[slot]).min()?;
        let fastest = candidates.filter(|slot| self.read_costs[slot] == least);
        let turn = (request.offset / READ_STRETCH_BYTES) as usize % fastest.len();
        fastest.iter().nth(turn)
    }

    /// True if a stale replica is up to date in a range.
    fn has(&self, slot: usize, request: &Request) -> bool {
        let (out_of_sync, caught_up) = (&self.wanted.out_of_sync[slot], &self.caught_up[slot]);
        let mut regions = regions_of(request.offset, request.length);
        regions.all(|region| !out_of_sync.contains(region) || caught_up.contains(region))
    }

    /// Replicas that a change of a range goes to: those in sync, and stale ones that are up to date in the
    /// range.
    pub fn targets(&self, request: &Request) -> Slots {
        self.in_sync().either(self.with(ReplicaState::Stale).filter(|slot| self.has(slot, request)))
    }

    /// Enters a change in the dirty region log. True if the entry is durable already.
    pub fn mark(&mut self, request: &Request) -> bool {
        for slot in Slots::ALL.without(self.targets(request)).iter() {
            self.degrade(slot);
            if self.wanted.replica_states[slot] == ReplicaState::Stale {
                self.lose(slot, request);
            }
        }
        for region in regions_of(request.offset, request.length) {
            self.mark_region_dirty(region);
            if let Some(changed) = &mut self.changed {
                changed.insert(region);
            }
        }
        self.is_dirty(request)
    }

    /// Marks a region dirty, and the whole group if another of its regions is dirty.
    ///
    /// Each new dirty region costs a durable write that a change waits for. A client that writes in two
    /// regions of a group soon writes in more of them. The price is a resync of the whole group after a
    /// crash. The group stays dirty while anything in it changes, except for regions that were about to leave
    /// the log.
    fn mark_region_dirty(&mut self, region: u32) {
        let is_new = self.wanted.dirty.insert(region);
        if self.wanted.dirty.count_in_group(region) == 1 {
            self.recent.insert(region);
            return;
        }
        self.recent.insert_group(region);
        if is_new {
            self.wanted.dirty.insert_group(region);
        }
    }

    /// Marks a range as out of sync on a replica.
    pub fn lose(&mut self, slot: usize, request: &Request) {
        if self.wanted.replica_states[slot] == ReplicaState::Absent {
            return;
        }
        for region in regions_of(request.offset, request.length) {
            self.wanted.out_of_sync[slot].insert(region);
            self.caught_up[slot].remove(region);
        }
        self.versions[slot] += 1;
    }

    /// True if a change is durably in the dirty region log, and no write in progress removes it.
    pub fn is_dirty(&self, request: &Request) -> bool {
        let losers = Slots::ALL.without(self.targets(request));
        self.all_metadata().all(|metadata| contains(&metadata.dirty, request))
            && self.is_lost_to(losers, request)
    }

    /// True if the metadata durably says that stale replicas lack a range, and counts no replica as in sync
    /// that is not.
    pub fn is_lost_to(&self, slots: Slots, request: &Request) -> bool {
        let mut stale = slots.iter().filter(|slot| self.wanted.replica_states[*slot] == ReplicaState::Stale);
        let is_known =
            |slot: usize| self.all_metadata().all(|metadata| contains(&metadata.out_of_sync[slot], request));
        stale.all(is_known) && self.is_recorded()
    }

    /// All metadata that may be durable at any moment: the recorded, the one being written and the doubtful
    /// one.
    fn all_metadata(&self) -> impl Iterator<Item = &ReplicaMetadata> {
        std::iter::once(&self.recorded).chain(&self.writing).chain(&self.doubtful)
    }

    /// True if no replica durably counts as in sync that should not.
    pub fn is_recorded(&self) -> bool {
        let is_lost = |slot: usize| {
            let was = |metadata: &ReplicaMetadata| metadata.replica_states[slot] == ReplicaState::InSync;
            self.wanted.replica_states[slot] != ReplicaState::InSync && self.all_metadata().any(was)
        };
        self.is_confirmed && !(0..REPLICA_SLOTS_MAX).any(is_lost)
    }

    /// Makes a replica stale that missed a change, if another replica is in sync. Dirty regions may not be
    /// stable on the stale replica, so it lacks them.
    pub fn degrade(&mut self, slot: usize) {
        let has_other = self.in_sync().has_other(slot);
        if self.wanted.replica_states[slot] == ReplicaState::InSync && has_other {
            self.stand(slot, ReplicaState::Stale);
            self.wanted.out_of_sync[slot] = self.wanted.dirty.clone();
        }
    }

    /// Handles the loss of a replica.
    pub fn fall(&mut self, slot: usize) {
        self.is_there[slot] = false;
        self.checksums.iter_mut().for_each(|checksums| checksums.lose(slot));
        self.caught_up[slot] = RegionSet::default();
        self.versions[slot] += 1;
        if self.wanted.replica_states[slot] == ReplicaState::Stale {
            let dirty = self.wanted.dirty.clone();
            self.wanted.out_of_sync[slot].add(&dirty);
        }
        self.degrade(slot);
        self.choose_authoritative();
    }

    /// Takes a reachable replica back. It may have missed metadata, so a new epoch has the metadata written
    /// to it.
    pub fn rejoin(&mut self, slot: usize) {
        self.is_there[slot] = true;
        self.checksums.get_or_insert_default().distrust(slot);
        self.versions[slot] += 1;
        self.incarnations[slot] += 1;
        self.new_epoch();
    }

    fn new_epoch(&mut self) {
        self.wanted.epoch = self.wanted.epoch.max(self.epoch_allocated) + 1;
    }

    /// Changes the state of a replica.
    pub fn stand(&mut self, slot: usize, replica_state: ReplicaState) {
        self.wanted.replica_states[slot] = replica_state;
        self.checksums.iter_mut().for_each(|checksums| checksums.lose(slot));
        self.new_epoch();
        self.wanted.out_of_sync[slot] = RegionSet::default();
        self.behind[slot] = RegionSet::default();
        self.caught_up[slot] = RegionSet::default();
        self.versions[slot] += 1;
        self.choose_authoritative();
    }

    /// Chooses a new authoritative replica where all replicas in sync are behind a lost one: the first
    /// becomes authoritative. Stale replicas that got the lost one's data there lack these regions again.
    fn choose_authoritative(&mut self) {
        let Some(first) = self.in_sync().first() else { return };
        let is_orphaned =
            |region: &u32| self.in_sync().iter().all(|slot| self.behind[slot].contains(*region));
        let orphaned: RegionSet = self.behind[first].iter().filter(is_orphaned).collect();
        if orphaned.is_empty() {
            return;
        }
        self.behind[first].subtract(&orphaned);
        for slot in self.with(ReplicaState::Stale).iter() {
            self.caught_up[slot].subtract(&orphaned);
            self.versions[slot] += 1;
        }
    }

    /// Regions that a replica still needs.
    pub fn lacks(&self, slot: usize) -> RegionSet {
        let mut lacks = match self.wanted.replica_states[slot] {
            ReplicaState::InSync => return self.behind[slot].clone(),
            ReplicaState::Stale => self.wanted.out_of_sync[slot].clone(),
            ReplicaState::Absent => return RegionSet::default(),
        };
        lacks.subtract(&self.caught_up[slot]);
        lacks
    }

    /// Notes that a replica has a region again.
    pub fn has_again(&mut self, slot: usize, region: u32) {
        self.versions[slot] += 1;
        match self.wanted.replica_states[slot] {
            ReplicaState::InSync => self.behind[slot].remove(region),
            ReplicaState::Stale => _ = self.caught_up[slot].insert(region),
            ReplicaState::Absent => {}
        }
    }

    /// Dirty regions in which replicas in sync do not differ, unless a change is in progress there. Once they
    /// are stable, they can leave the dirty region log.
    pub fn settled(&self) -> RegionSet {
        let mut settled = self.wanted.dirty.clone();
        self.in_sync().iter().for_each(|slot| settled.subtract(&self.behind[slot]));
        settled
    }
}

/// True if a set has all regions of a range.
fn contains(set: &RegionSet, request: &Request) -> bool {
    regions_of(request.offset, request.length).all(|region| set.contains(region))
}

/// True if two ranges have a block in common.
pub(super) fn overlap(one: (u32, u32), other: (u32, u32)) -> bool {
    let ((one, one_length), (other, other_length)) =
        (covering_blocks(one.0, one.1), covering_blocks(other.0, other.1));
    one < other + other_length && other < one + one_length
}

#[cfg(test)]
mod tests {
    use weir_types::bounds::REGION_BYTES;

    use super::*;
    use crate::action::Kind;

    fn write(region: u32) -> Request {
        let kind = Kind::Write { is_durable: false };
        Request { kind, extent: 0, offset: region * REGION_BYTES as u32, length: 4096 }
    }

    #[test]
    fn second_dirty_region_marks_the_whole_group() {
        let mut recovered_extent = RecoveredExtent { is_confirmed: true, ..RecoveredExtent::default() };
        recovered_extent.metadata.replica_states[..2].fill(ReplicaState::InSync);
        recovered_extent.is_there[..2].fill(true);
        let mut extent = MirroredExtent::new(recovered_extent);
        let dirty = |extent: &MirroredExtent| extent.wanted.dirty.iter().collect::<Vec<_>>();
        assert!(!extent.mark(&write(3)), "it is not durable yet");
        extent.mark(&write(3));
        extent.mark(&write(20));
        assert_eq!(dirty(&extent), [3, 20]);
        extent.mark(&write(5));
        assert!(dirty(&extent).into_iter().eq((0..16).chain([20])));
        extent.recorded = extent.wanted.clone();
        assert!(extent.mark(&write(9)), "it was marked with the others, so nothing is waited for");
        // While any region of a group changes, the whole group stays in the dirty region log.
        extent.recent = RegionSet::default();
        extent.mark(&write(9));
        assert!(extent.recent.iter().eq(0..16));
        assert_eq!(extent.wanted, extent.recorded, "and there is nothing new to write");
    }

    /// An extent with three replicas in sync and a stale one, which differ in a region.
    fn apart(region: u32) -> MirroredExtent {
        let mut recovered_extent = RecoveredExtent { is_confirmed: true, ..RecoveredExtent::default() };
        recovered_extent.metadata.replica_states[..3].fill(ReplicaState::InSync);
        recovered_extent.metadata.replica_states[3] = ReplicaState::Stale;
        recovered_extent.is_there = [true; REPLICA_SLOTS_MAX];
        let mut extent = MirroredExtent::new(recovered_extent);
        extent.mark(&write(region));
        extent.fall_apart(&write(region));
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
        extent.has_again(2, 3);
        extent.fall(0);
        assert_eq!(readable(&extent, 3), [2], "the other one differs from what was read before");
        extent.fall_apart(&write(3));
        assert_eq!(readable(&extent, 3), [2]);
        extent.fall(2);
        assert_eq!(readable(&extent, 3), [1]);
    }

    #[test]
    fn stale_replica_lacks_regions_of_unconfirmed_source() {
        for agrees in [false, true] {
            let mut extent = apart(3);
            extent.has_again(3, 3);
            if agrees {
                extent.has_again(1, 3);
            }
            extent.fall(0);
            assert_eq!(readable(&extent, 3), [1]);
            assert_eq!(extent.lacks(3).contains(3), !agrees);
        }
    }
}
