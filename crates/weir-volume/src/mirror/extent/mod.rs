//! One extent of a mirror: the states of its replicas, the regions in which they may differ, and the metadata
//! that says so.
//!
//! The extent keeps these invariants:
//!
//! * A replica changes its state by [`ReplicaState::can_become`] alone. Each change has a new epoch.
//! * Only a replica in sync is behind, and in each region at least one replica in sync is not.
//! * Only a stale replica has caught up in regions.
//! * A replica that changes its state has no valid checksums.
//!
//! This module decides nothing about operations. It does not know which of them are under way, or who asked
//! for them.

mod differences;
mod dirty_log;
mod durable_metadata;
mod replica_states;

use weir_types::ExtentIndex;
use weir_types::bounds::REPLICA_SLOTS_MAX;

use super::checksums::{ChecksumHeader, ExtentChecksums, SectionScrub};
use super::metadata_write::{MetadataRequest, Written};
use super::recovered_extent::RecoveredExtent;
use super::regions::{RegionSet, regions_of};
use super::replica_metadata::{ReplicaMetadata, ReplicaState, ReplicaStates};
use super::slots::Slots;
use crate::action::Request;
use differences::Differences;
use dirty_log::DirtyLog;
use durable_metadata::DurableMetadata;

/// Bytes after which reads move on to the next of several equally fast replicas. Stretches are long enough
/// that sequential reads stay sequential on each replica.
const READ_STRETCH_BYTES: u32 = 1 << 20;

/// One extent of a mirror.
#[derive(Debug)]
pub(super) struct MirroredExtent {
    /// Metadata as it should be.
    wanted: ReplicaMetadata,
    /// Metadata that may lie beside the replicas.
    durable: DurableMetadata,
    /// Changes of dirty regions.
    dirty_log: DirtyLog,
    /// Replicas that can be reached and have not failed.
    is_there: [bool; REPLICA_SLOTS_MAX],
    /// Added replicas that a start would not look for yet. They never count as in sync. Otherwise the next
    /// start would miss the only replica in sync if the others failed.
    unconfirmed: Slots,
    /// Cost of a read of each replica, in any unit. Reads go to the lowest cost.
    read_costs: [u32; REPLICA_SLOTS_MAX],
    /// Differences of the replicas beyond those in the metadata.
    differences: Differences,
    /// By replica, a counter of its rejoins and replacements.
    incarnations: [u64; REPLICA_SLOTS_MAX],
    /// Checksum state; `None` if the extent was never scrubbed.
    checksums: Option<Box<ExtentChecksums>>,
}

/// Outcome of a write of replica metadata.
#[derive(Debug)]
pub(super) enum MetadataOutcome {
    /// A replica in sync has the metadata. With a new epoch come the states that are durable now.
    Recorded(Option<(u64, ReplicaStates)>),
    /// No replica in sync has the metadata, or it must not be relied on. These added replicas are taken back.
    Refused(Slots),
}

impl MirroredExtent {
    /// An extent in its recovered state.
    ///
    /// Replicas in sync may differ in dirty regions. The first reachable one becomes the authoritative
    /// replica there, and the others lack these regions until a resync. This is recorded before any of them
    /// is read. Otherwise a client could act on data that it read, and find other data once the replica is
    /// lost.
    pub fn new(recovered_extent: RecoveredExtent) -> MirroredExtent {
        let RecoveredExtent { metadata, is_there, out_of_sync, epoch_allocated, is_confirmed } =
            recovered_extent;
        let mut extent = MirroredExtent {
            durable: DurableMetadata::new(metadata.clone(), epoch_allocated, is_confirmed),
            wanted: metadata,
            dirty_log: DirtyLog::default(),
            is_there,
            unconfirmed: Slots::default(),
            read_costs: [0; REPLICA_SLOTS_MAX],
            differences: Differences::default(),
            incarnations: [0; REPLICA_SLOTS_MAX],
            checksums: None,
        };
        if !is_confirmed {
            extent.new_epoch();
        }
        // Replicas with the newest metadata are authoritative.
        for (slot, regions) in out_of_sync.iter().enumerate() {
            extent.add_out_of_sync(slot, regions);
        }
        let dirty = extent.wanted.dirty.clone();
        let first = extent.in_sync().first();
        for slot in (0..REPLICA_SLOTS_MAX).filter(|slot| !dirty.is_empty() && Some(*slot) != first) {
            extent.add_out_of_sync(slot, &dirty);
        }
        extent
    }

    /// True if there is a single replica, durably known to be alone. It needs no further metadata.
    pub fn is_alone(&self) -> bool {
        let replicas =
            self.wanted.replica_states.iter().filter(|replica_state| **replica_state != ReplicaState::Absent);
        replicas.count() == 1 && self.wanted.dirty.is_empty() && self.wanted == *self.durable.recorded()
    }

    /// True if a replica can be reached and has not failed.
    pub fn is_there(&self, slot: usize) -> bool {
        self.is_there[slot]
    }

    /// Reachable replicas in sync.
    pub fn in_sync(&self) -> Slots {
        self.with(ReplicaState::InSync)
    }

    /// Reachable replicas that hold all acknowledged changes, also for whoever reads the metadata after a crash. None
    /// while a replica durably counts as in sync that is not.
    pub fn holders(&self) -> Slots {
        let states = &self.durable.recorded().replica_states;
        let is_known = self.is_recorded();
        self.in_sync().filter(|slot| is_known && states[slot] == ReplicaState::InSync)
    }

    /// Reachable replicas with a replica state.
    pub fn with(&self, replica_state: ReplicaState) -> Slots {
        let is_one = |slot: usize| self.is_there[slot] && self.wanted.replica_states[slot] == replica_state;
        // Branch-free, because every request asks several times.
        Slots::from_bits((0..REPLICA_SLOTS_MAX).map(|slot| u8::from(is_one(slot)) << slot).sum())
    }

    /// Replica states as wanted, durable or not.
    pub fn replica_states(&self) -> ReplicaStates {
        self.wanted.replica_states
    }

    /// Replica states that can be relied on. A replica counts as in sync or absent only if this is so and
    /// durably recorded. Every other durably recorded replica counts as stale.
    pub fn reliable_replica_states(&self) -> ReplicaStates {
        std::array::from_fn(|slot| match self.durable.recorded().replica_states[slot] {
            ReplicaState::Absent => ReplicaState::Absent,
            known if known == self.wanted.replica_states[slot] => known,
            _ => ReplicaState::Stale,
        })
    }

    /// Counter of state changes and of regions lost or resynced by a replica.
    pub fn version(&self, slot: usize) -> u64 {
        self.differences.version(slot)
    }

    /// Counter of a replica's rejoins and replacements.
    pub fn incarnation(&self, slot: usize) -> u64 {
        self.incarnations[slot]
    }

    /// Sets the cost of a read from a replica.
    pub fn set_read_cost(&mut self, slot: usize, cost: u32) {
        self.read_costs[slot] = cost;
    }

    /// True if a range must not be read yet: replicas may differ there, and the authoritative one is not
    /// recorded.
    pub fn awaits_authoritative_replica(&self, request: &Request) -> bool {
        let mut regions = regions_of(request.offset, request.length);
        !self.is_recorded() && regions.any(|region| self.wanted.dirty.contains(region))
    }

    /// Replicas that may be read in a range.
    pub fn readable(&self, offset: u32, length: u32) -> Slots {
        let is_current = |slot: usize| {
            let behind = self.differences.behind(slot);
            !regions_of(offset, length).any(|region| behind.contains(region))
        };
        self.in_sync().filter(is_current)
    }

    /// Replicas that have everything in all regions.
    pub fn equal_replicas(&self) -> Slots {
        self.in_sync().filter(|slot| self.differences.behind(slot).is_empty())
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

    /// Replica that the regions of a resync are read from, except regions in which it is behind.
    pub fn resync_source(&self, slot: usize) -> Option<usize> {
        let others = self.in_sync().without(Slots::one(slot));
        others.iter().min_by_key(|other| self.read_costs[*other])
    }

    /// True if a stale replica is up to date in a range.
    fn has(&self, slot: usize, request: &Request) -> bool {
        let (out_of_sync, caught_up) = (&self.wanted.out_of_sync[slot], self.differences.caught_up(slot));
        let mut regions = regions_of(request.offset, request.length);
        regions.all(|region| !out_of_sync.contains(region) || caught_up.contains(region))
    }

    /// Replicas that a change of a range goes to: those in sync, and stale ones that are up to date in the
    /// range.
    pub fn targets(&self, request: &Request) -> Slots {
        self.in_sync().either(self.with(ReplicaState::Stale).filter(|slot| self.has(slot, request)))
    }

    /// Regions that a replica still needs.
    pub fn out_of_sync(&self, slot: usize) -> RegionSet {
        let mut out_of_sync = match self.wanted.replica_states[slot] {
            ReplicaState::InSync => return self.differences.behind(slot).clone(),
            ReplicaState::Stale => self.wanted.out_of_sync[slot].clone(),
            ReplicaState::Absent => return RegionSet::default(),
        };
        out_of_sync.subtract(self.differences.caught_up(slot));
        out_of_sync
    }

    /// True if a reachable replica can be resynced or promoted.
    pub fn is_wanting(&self, slot: usize) -> bool {
        let is_stale = self.wanted.replica_states[slot] == ReplicaState::Stale;
        self.is_there[slot] && (is_stale || !self.out_of_sync(slot).is_empty())
    }

    /// Enters a change in the dirty region log. Replicas that it does not go to become stale, and lack it. True if the
    /// metadata says all of this durably already.
    pub fn make_dirty(&mut self, request: &Request) -> bool {
        for slot in Slots::ALL.without(self.targets(request)).iter() {
            self.make_stale(slot);
            if self.wanted.replica_states[slot] == ReplicaState::Stale {
                self.lose(slot, request);
            }
        }
        let regions = regions_of(request.offset, request.length);
        regions.for_each(|region| self.dirty_log.make_dirty(region, &mut self.wanted.dirty));
        self.is_durably_dirty(request)
    }

    /// True if a change is durably in the dirty region log, and no write in progress removes it.
    fn is_durably_dirty(&self, request: &Request) -> bool {
        let losers = Slots::ALL.without(self.targets(request));
        self.durable.all().all(|metadata| contains(&metadata.dirty, request))
            && self.is_lost_to(losers, request)
    }

    /// True if regions are dirty.
    pub fn is_dirty(&self) -> bool {
        !self.wanted.dirty.is_empty()
    }

    /// True if the metadata durably says that stale replicas lack a range, and counts no replica as in sync
    /// that is not.
    pub fn is_lost_to(&self, slots: Slots, request: &Request) -> bool {
        let mut stale = slots.iter().filter(|slot| self.wanted.replica_states[*slot] == ReplicaState::Stale);
        let is_known =
            |slot: usize| self.durable.all().all(|metadata| contains(&metadata.out_of_sync[slot], request));
        stale.all(is_known) && self.is_recorded()
    }

    /// True if no replica durably counts as in sync that should not.
    pub fn is_recorded(&self) -> bool {
        let is_lost = |slot: usize| {
            let was = |metadata: &ReplicaMetadata| metadata.replica_states[slot] == ReplicaState::InSync;
            self.wanted.replica_states[slot] != ReplicaState::InSync && self.durable.all().any(was)
        };
        self.durable.is_confirmed() && !(0..REPLICA_SLOTS_MAX).any(is_lost)
    }

    /// Dirty regions in which replicas in sync do not differ, unless a change is in progress there. Once they
    /// are stable, they can leave the dirty region log.
    fn settled(&self) -> RegionSet {
        let mut settled = self.wanted.dirty.clone();
        self.in_sync().iter().for_each(|slot| settled.subtract(self.differences.behind(slot)));
        settled
    }

    /// Chooses regions that leave the dirty region log once they are stable: those that have not changed
    /// since the last call, and in which nothing is under way. One such choice is in progress at a time. False
    /// if there are no such regions.
    pub fn begin_tidying(&mut self, under_way: impl FnOnce() -> RegionSet) -> bool {
        if self.dirty_log.is_being_tidied() || self.wanted.dirty.is_empty() {
            return false;
        }
        let mut settled = self.settled();
        settled.subtract(&under_way());
        self.dirty_log.begin_tidying(settled)
    }

    /// Removes the chosen regions from the dirty region log, because they are stable on all replicas in sync.
    /// False if no replica is in sync.
    pub fn end_tidying(&mut self, under_way: impl FnOnce() -> RegionSet) -> bool {
        let mut leaving = self.dirty_log.end_tidying();
        if self.in_sync().is_empty() {
            return false;
        }
        leaving.subtract(&under_way());
        let settled = self.settled();
        let leaving: RegionSet = leaving.iter().filter(|region| settled.contains(*region)).collect();
        self.wanted.dirty.subtract(&leaving);
        true
    }

    /// Lets regions leave the dirty region log even if they changed lately.
    pub fn forget_recent_changes(&mut self) {
        self.dirty_log.forget_recent();
    }

    /// True if the durable metadata differs from the wanted metadata in a way that matters.
    pub fn needs_metadata_write(&self) -> bool {
        self.wanted != *self.durable.recorded() || self.durable.is_doubtful() && !self.is_alone()
    }

    /// True if the wanted replica states differ from the durable ones only by added replicas.
    fn only_adds(&self) -> bool {
        let (wanted, recorded) = (&self.wanted.replica_states, &self.durable.recorded().replica_states);
        let mut pairs = wanted.iter().zip(recorded);
        let is_other = wanted != recorded;
        is_other
            && self.durable.is_confirmed()
            && pairs.all(|(new, old)| new == old || *old == ReplicaState::Absent)
    }

    /// Begins to write the wanted metadata, if it differs from the recorded. Each extent has one write under
    /// way at a time.
    pub fn next_metadata_write(&mut self, index: ExtentIndex) -> Option<MetadataRequest> {
        // Once no replica has everything, there is nothing to track.
        if self.durable.is_being_written() || !self.needs_metadata_write() || self.in_sync().is_empty() {
            return None;
        }
        // Stale replicas get the metadata too, so that none of them takes itself for the newest.
        let slots = self.in_sync().either(self.with(ReplicaState::Stale));
        self.durable.begin_write(&mut self.wanted, slots);
        let metadata = Box::new(self.wanted.clone());
        let is_deferrable = self.only_adds();
        Some(MetadataRequest { extent: index, slots, metadata, is_deferrable })
    }

    /// Takes the outcome of a write of replica metadata.
    pub fn metadata_written(&mut self, written: &Written) -> MetadataOutcome {
        let metadata = self.durable.end_write(written);
        let took_it = |slot: usize| {
            !written.failed.contains(slot) && metadata.replica_states[slot] == ReplicaState::InSync
        };
        if written.is_committed && self.in_sync().iter().any(took_it) {
            let states = (metadata.epoch, metadata.replica_states);
            return MetadataOutcome::Recorded(self.durable.record(metadata).then_some(states));
        }
        self.durable.refuse(metadata, written.has_begun);
        MetadataOutcome::Refused(self.take_back_additions(written.has_begun))
    }

    /// True if metadata found beside a replica cannot come from the recorded writes.
    pub fn is_foreign(&self, slot: usize, found: &ReplicaMetadata) -> bool {
        self.durable.is_foreign(slot, found)
    }

    /// Checksum state; `None` if the extent was never scrubbed.
    pub fn checksums(&self) -> Option<&ExtentChecksums> {
        self.checksums.as_deref()
    }

    /// Checksum state; `None` if the extent was never scrubbed.
    pub fn checksums_mut(&mut self) -> Option<&mut ExtentChecksums> {
        self.checksums.as_deref_mut()
    }

    /// Sets the checksum header found beside a replica; `None` if it could not be read.
    pub fn found_checksum_header(&mut self, slot: usize, header: Option<ChecksumHeader>) {
        let is_in_sync = self.in_sync().contains(slot);
        let checksums = self.checksums.get_or_insert_default();
        match header {
            Some(header) => checksums.found(slot, header, is_in_sync),
            None => checksums.distrust(slot),
        }
    }

    /// Begins the scrub of a section. Returns the replicas whose stored checksums are loaded first; `None` if
    /// a scrub is in progress or no replica can be read.
    pub fn begin_section(&mut self, section: u32, zero_checksum: u32) -> Option<Slots> {
        let slots = self.in_sync();
        let checksums = self.checksums.get_or_insert_default();
        if slots.is_empty() { None } else { checksums.begin_section(section, slots, zero_checksum) }
    }

    /// The scrub of a section, if one is in progress: changes must then wait for its pieces.
    pub fn scrub(&self) -> Option<&SectionScrub> {
        self.checksums.as_ref().and_then(|checksums| checksums.scrub())
    }
}

/// True if a set has all regions of a range.
fn contains(set: &RegionSet, request: &Request) -> bool {
    regions_of(request.offset, request.length).all(|region| set.contains(region))
}
