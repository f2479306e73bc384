//! What a mirror knows of one extent: its replicas, the metadata of them, and what is under way there.

use std::collections::VecDeque;

use weir_types::bounds::REPLICAS_MAX;

use super::MirrorId;
use super::checksum_state::ExtentChecksums;
use super::recovered_extent::{RecoveredExtent, ReplicaMetadata, ReplicaState};
use super::regions::{RegionSet, regions_of};
use crate::action::Request;
use crate::geometry::covering_blocks;

/// Replicas that are equally fast take turns in reading by stretches of this many bytes: long enough that what is read in
/// sequence is so on each of them.
const READ_STRETCH_BYTES: u32 = 1 << 20;

/// Replicas, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Slots(u8);

impl Slots {
    /// As many as there may be.
    pub const ALL: Slots = Slots((1 << REPLICAS_MAX) - 1);

    /// This replica alone.
    pub fn one(slot: usize) -> Slots {
        Slots(1 << slot)
    }

    /// True if the replica is one of them.
    pub fn contains(self, slot: usize) -> bool {
        self.0 & (1 << slot) != 0
    }

    /// Adds a replica.
    pub fn insert(&mut self, slot: usize) {
        self.0 |= 1 << slot;
    }

    /// Takes a replica out.
    pub fn remove(&mut self, slot: usize) {
        self.0 &= !(1 << slot);
    }

    /// True if one of them is among others.
    pub fn intersects(self, others: Slots) -> bool {
        self.0 & others.0 != 0
    }

    /// True if there is none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// True if there is one beside this replica.
    pub fn has_other(self, slot: usize) -> bool {
        self.0 & !(1 << slot) != 0
    }

    /// How many they are.
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// The first one.
    pub fn first(self) -> Option<usize> {
        (self.0 != 0).then(|| self.0.trailing_zeros() as usize)
    }

    /// Those that are among others too.
    pub fn both(self, others: Slots) -> Slots {
        Slots(self.0 & others.0)
    }

    /// These and others.
    pub fn either(self, others: Slots) -> Slots {
        Slots(self.0 | others.0)
    }

    /// Those that are not among others.
    pub fn without(self, others: Slots) -> Slots {
        Slots(self.0 & !others.0)
    }

    /// Those of which something is true.
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
    /// The metadata as it should be.
    pub wanted: ReplicaMetadata,
    /// The metadata as it durably is.
    pub recorded: ReplicaMetadata,
    /// The metadata that is being written.
    pub writing: Option<ReplicaMetadata>,
    /// Beside which replicas.
    pub writing_beside: Slots,
    /// The number of the last metadata that was written, or tried to be.
    pub number: u64,
    /// By replica, the number of the last metadata that it is known to have taken.
    pub taken: [u64; REPLICAS_MAX],
    /// By replica, the highest number of any metadata that may lie beside it.
    pub tried: [u64; REPLICAS_MAX],
    /// What replica metadata have in common whose writing failed, and which may lie beside replicas all the same.
    pub doubtful: Option<ReplicaMetadata>,
    /// The highest epoch that replica metadata may have that cannot be reached.
    pub epoch_allocated: u64,
    /// Nobody must rely on the metadata before it is written once.
    pub is_confirmed: bool,
    /// Replicas that can be reached and have not failed.
    pub is_there: [bool; REPLICAS_MAX],
    /// Replicas that were added and that a start would not look for yet. They never count as in sync: if the others failed,
    /// the next start would not find the one that has everything.
    pub unconfirmed: Slots,
    /// How long a read of each replica takes, in any unit: the smallest are read.
    pub read_costs: [u32; REPLICAS_MAX],
    /// Of replicas in sync, regions in which a change that failed may have left them different from the others: not to be
    /// read there. Of each region at least one replica in sync is not behind.
    pub behind: [RegionSet; REPLICAS_MAX],
    /// Of stale replicas, regions out of sync that they have again, though not in stable form yet.
    pub caught_up: [RegionSet; REPLICAS_MAX],
    /// Grows with everything that a replica loses, gets or becomes.
    pub versions: [u64; REPLICAS_MAX],
    /// Grows with each replica that takes a place anew.
    pub incarnations: [u64; REPLICAS_MAX],
    /// Changes and duplicate steps that have begun: none of them overlap.
    pub running: Vec<MirrorId>,
    /// Those that have to wait for others, in order.
    pub waiting: VecDeque<MirrorId>,
    /// Reads that wait until it is recorded whose word counts.
    pub reads_waiting: Vec<MirrorId>,
    /// Regions that were changed since those were chosen that are to leave the metadata, while some are.
    pub changed: Option<RegionSet>,
    /// Marked regions that were changed since some were last looked for that could leave the metadata.
    pub recent: RegionSet,
    /// What is said of it at rest; `None` if it was never scrubbed.
    pub checksums: Option<Box<ExtentChecksums>>,
}

impl MirroredExtent {
    /// An extent as it is found. What is marked may differ between replicas that are in sync: the first that can be
    /// reached is authoritative from now on, and the others lack it until they were given it. This is recorded before
    /// anything of it is read: or a client that acted on what it read would find something else there once that replica
    /// is lost.
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
            // One write may have been under way when the last process ended.
            tried: [number + 1; REPLICAS_MAX],
            doubtful: None,
            epoch_allocated,
            is_confirmed,
            is_there,
            unconfirmed: Slots::default(),
            read_costs: [0; REPLICAS_MAX],
            behind: Default::default(),
            caught_up: Default::default(),
            versions: [0; REPLICAS_MAX],
            incarnations: [0; REPLICAS_MAX],
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
        // Those whose metadata is the newest are authoritative.
        lacks.iter().enumerate().for_each(|(slot, lacks)| extent.lack(slot, lacks));
        let dirty = extent.wanted.dirty.clone();
        let first = extent.in_sync().first();
        for slot in (0..REPLICAS_MAX).filter(|slot| !dirty.is_empty() && Some(*slot) != first) {
            extent.degrade(slot);
            if extent.wanted.replica_states[slot] == ReplicaState::Stale {
                extent.wanted.out_of_sync[slot].add(&dirty);
            }
        }
        extent
    }

    /// A replica may lack these regions, if another one has them.
    pub fn lack(&mut self, slot: usize, regions: &RegionSet) {
        if regions.is_empty() {
            return;
        }
        self.degrade(slot);
        if self.wanted.replica_states[slot] == ReplicaState::Stale {
            self.wanted.out_of_sync[slot].add(regions);
        }
    }

    /// True if metadata that was found beside a replica is not what may lie there by what was written: an older state of
    /// the replica is back, or another volume's history.
    pub fn is_foreign(&self, slot: usize, found: &ReplicaMetadata) -> bool {
        !(self.taken[slot]..=self.tried[slot]).contains(&found.number)
    }

    /// True if there is one replica, and durably known to be alone: nothing is kept metadata of.
    pub fn is_alone(&self) -> bool {
        let replicas =
            self.wanted.replica_states.iter().filter(|replica_state| **replica_state != ReplicaState::Absent);
        replicas.count() == 1 && self.wanted.dirty.is_empty() && self.wanted == self.recorded
    }

    /// Replicas that have everything and can be reached.
    pub fn in_sync(&self) -> Slots {
        self.with(ReplicaState::InSync)
    }

    /// Replicas of a replica state that can be reached.
    pub fn with(&self, replica_state: ReplicaState) -> Slots {
        let is_one = |slot: usize| self.is_there[slot] && self.wanted.replica_states[slot] == replica_state;
        // Without a branch for each: every request asks this several times.
        Slots((0..REPLICAS_MAX).map(|slot| u8::from(is_one(slot)) << slot).sum())
    }

    /// True if a range must not be read yet: replicas may differ there, and it is not recorded whose word counts.
    pub fn is_open(&self, request: &Request) -> bool {
        let mut regions = regions_of(request.offset, request.length);
        !self.is_recorded() && regions.any(|region| self.wanted.dirty.contains(region))
    }

    /// A change failed that was not promised, and replicas may differ for it: of each region the first is authoritative that
    /// may be read there. While they may differ, the range is marked.
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

    /// The replica to read a range from, unless it is one of those that failed to: the fastest, or in turn by stretches of
    /// the extent those that are as fast.
    pub fn read_from(&self, request: &Request, failed: Slots) -> Option<usize> {
        let candidates = self.readable(request.offset, request.length).without(failed);
        let least = candidates.iter().map(|slot| self.read_costs[slot]).min()?;
        let fastest = candidates.filter(|slot| self.read_costs[slot] == least);
        let turn = (request.offset / READ_STRETCH_BYTES) as usize % fastest.len();
        fastest.iter().nth(turn)
    }

    /// True if a stale replica has a range as those in sync do.
    fn has(&self, slot: usize, request: &Request) -> bool {
        let (out_of_sync, caught_up) = (&self.wanted.out_of_sync[slot], &self.caught_up[slot]);
        let mut regions = regions_of(request.offset, request.length);
        regions.all(|region| !out_of_sync.contains(region) || caught_up.contains(region))
    }

    /// Replicas that a change of a range has to reach, or can.
    pub fn targets(&self, request: &Request) -> Slots {
        self.in_sync().either(self.with(ReplicaState::Stale).filter(|slot| self.has(slot, request)))
    }

    /// Enters a change in the metadata; true if it is there durably.
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

    /// Marks a region, and once there is another one marked beside it the whole group of both: each mark costs a durable
    /// writing that a change waits for, and whoever writes in two regions of a group writes in more of them soon. After a
    /// crash the group is copied for it. While anything in it is changed it stays, but for what was about to leave.
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

    /// A replica does not have a range any more, or will not.
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

    /// True if a change is in the metadata durably, and nothing is under way that takes it out.
    pub fn is_dirty(&self, request: &Request) -> bool {
        let losers = Slots::ALL.without(self.targets(request));
        self.all_metadata().all(|metadata| contains(&metadata.dirty, request))
            && self.is_lost_to(losers, request)
    }

    /// True if it is durably known of replicas that are stale that they lack a range, and of none that is not in sync
    /// any more that it is.
    pub fn is_lost_to(&self, slots: Slots, request: &Request) -> bool {
        let mut stale = slots.iter().filter(|slot| self.wanted.replica_states[*slot] == ReplicaState::Stale);
        let is_known =
            |slot: usize| self.all_metadata().all(|metadata| contains(&metadata.out_of_sync[slot], request));
        stale.all(is_known) && self.is_recorded()
    }

    /// The metadata as it is, and as it may be at any moment.
    fn all_metadata(&self) -> impl Iterator<Item = &ReplicaMetadata> {
        std::iter::once(&self.recorded).chain(&self.writing).chain(&self.doubtful)
    }

    /// True if no replica counts as in sync durably that should not any more.
    pub fn is_recorded(&self) -> bool {
        let is_lost = |slot: usize| {
            let was = |metadata: &ReplicaMetadata| metadata.replica_states[slot] == ReplicaState::InSync;
            self.wanted.replica_states[slot] != ReplicaState::InSync && self.all_metadata().any(was)
        };
        self.is_confirmed && !(0..REPLICAS_MAX).any(is_lost)
    }

    /// A replica missed something, if another one has it. What is marked may not be stable there.
    pub fn degrade(&mut self, slot: usize) {
        let has_other = self.in_sync().has_other(slot);
        if self.wanted.replica_states[slot] == ReplicaState::InSync && has_other {
            self.stand(slot, ReplicaState::Stale);
            self.wanted.out_of_sync[slot] = self.wanted.dirty.clone();
        }
    }

    /// A replica cannot be reached any more.
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

    /// A replica can be reached again. It gets the metadata, which it may have missed.
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

    /// Gives a replica another replica state.
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

    /// Where all replicas in sync are behind one that is not in sync any more, the first of them is authoritative now.
    /// What stale ones got there is that replica's, which nobody has.
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

    /// Regions that a replica still has to get.
    pub fn lacks(&self, slot: usize) -> RegionSet {
        let mut lacks = match self.wanted.replica_states[slot] {
            ReplicaState::InSync => return self.behind[slot].clone(),
            ReplicaState::Stale => self.wanted.out_of_sync[slot].clone(),
            ReplicaState::Absent => return RegionSet::default(),
        };
        lacks.subtract(&self.caught_up[slot]);
        lacks
    }

    /// A replica has a region again.
    pub fn has_again(&mut self, slot: usize, region: u32) {
        self.versions[slot] += 1;
        match self.wanted.replica_states[slot] {
            ReplicaState::InSync => self.behind[slot].remove(region),
            ReplicaState::Stale => _ = self.caught_up[slot].insert(region),
            ReplicaState::Absent => {}
        }
    }

    /// Regions in which replicas in sync do not differ, as far as nothing changes them: once that is stable they can
    /// leave the metadata.
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
    fn regions_are_dirty_one_by_one_until_there_are_two_of_a_group() {
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
        // As long as anything of a group is changed, none of it leaves the metadata.
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
        recovered_extent.is_there = [true; REPLICAS_MAX];
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
    fn region_is_read_from_a_replica_that_has_it_as_the_one_that_failed() {
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
    fn stale_replica_lacks_what_it_got_from_a_replica_that_nobody_agrees_with() {
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
