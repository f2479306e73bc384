//! Journal bindings: which replicas are behind which journal, as replicas and journals come, go and fail.
//!
//! This module does not know the content of journals.

use std::os::fd::OwnedFd;

use weir_journal::{Action, DestageFault, FileId, FileKey, SlowFault};
use weir_reactor::Descriptor;
use weir_types::bounds::{ALLOCATION_BYTES, BLOCK_BYTES, EXTENT_BYTES};
use weir_types::{DriveId, VolumeId};
use weir_volume::AllocationMap;

use super::super::VolumeHome;
use super::super::reactor::Reactor;
use super::super::served_volume::ServedVolume;
use super::super::token::VolumeIndex;
use super::{Binding, JournalSpec, NewJournal, SlowFile, VolumeJournal, VolumeJournals, key_of, replica_of};
use crate::statistics::JournalUsage;

/// Message for a replica whose journal failed, or to which the journal could not destage.
const FAILED: &str = "is behind a write journal that failed, or could not be brought from it what it holds";

impl Reactor {
    /// Adds a journal to a volume.
    pub(crate) fn add_journal(&mut self, index: VolumeIndex, new: NewJournal) {
        let home = usize::from(self.add_new_homes(index, vec![new.home])[0]);
        let JournalSpec {
            home: VolumeHome { drive, .. },
            directory,
            core,
            file,
            size_bytes,
            bindings,
            keeps,
        } = new.spec;
        let journals = &mut self.volumes[index].journals;
        let journal_index = journals.all.len();
        journals.all.push(Some(VolumeJournal {
            drive: drive.id,
            home,
            directory,
            file: Descriptor::file(file),
            size_bytes,
            core,
            asked: Default::default(),
            last_ticket: 0,
            unasked: Default::default(),
            flights: Default::default(),
            last_flight: 0,
            record: Default::default(),
            destages: Default::default(),
            files: Default::default(),
            is_stopped: false,
            has_failed: false,
            changed_ns: self.io.now_ns,
            is_draining: false,
            is_told_empty: false,
        }));
        for (replica, file) in bindings {
            self.volumes[index].attach_at(journal_index, replica, file.map(Descriptor::file));
        }
        let actions = self.volumes[index].forget_others(journal_index, &keeps);
        self.carry_out_journal(index, journal_index, actions);
        // A shrink may have been interrupted before it reached the journal.
        self.trim_bindings(index, self.volumes[index].size_bytes);
        self.volumes[index].publish_journal(journal_index);
        self.wake_journals();
    }

    /// Adds a journal that control has recovered to a volume; true if the volume has the journal now.
    pub(crate) fn add_journal_to(&mut self, volume: VolumeId, new: NewJournal) -> bool {
        let Some(&index) = self.by_id.get(&volume) else { return false };
        if self.volumes[index].is_ending() || self.volumes[index].journals.on(new.home.drive).is_some() {
            return false;
        }
        self.add_journal(index, new);
        self.carry_out(index);
        true
    }

    /// Removes a volume's journal on a drive. False if replicas are behind the journal or operations are
    /// under way; the caller may ask again.
    pub(crate) fn drop_journal(&mut self, volume: VolumeId, drive: DriveId) -> bool {
        let Some(&index) = self.by_id.get(&volume) else { return true };
        let journals = &mut self.volumes[index].journals;
        let Some(journal_index) = journals.on(drive) else { return true };
        let is_in_use = journals.bindings.values().any(|binding| binding.journal == journal_index);
        let journal = journals.at(journal_index);
        let is_quiet = journal.flights.is_empty() && (journal.files.is_empty() || journal.has_failed);
        if is_in_use || !is_quiet {
            return false;
        }
        journals.all[journal_index] = None;
        self.volumes[index].statistics.journals.is_gone(drive);
        true
    }

    /// Detaches a removed extent replica; its journal forgets its data.
    pub(crate) fn detach_replica(&mut self, index: VolumeIndex, extent: u32, slot: usize) {
        let volume = &mut self.volumes[index];
        volume.statistics.journals.forget(extent, slot);
        let key = key_of((extent, slot));
        volume.journals.bindings.remove(&(extent, slot));
        for journal_index in volume.journals.journal_indices() {
            self.forget_in(index, journal_index, |other| other == key);
        }
    }

    /// Suspends the binding of an extent replica that is out of service. If another replica serves, unsynced
    /// destaged data does not count as destaged: the drive may have lost it when it comes back.
    pub(crate) fn suspend_binding(&mut self, index: VolumeIndex, (extent, slot): (u32, usize)) {
        let volume = &mut self.volumes[index];
        let Some(Binding { journal: journal_index, file }) = volume.journals.binding(extent, slot) else {
            return;
        };
        if volume.mirror.has_other(extent, slot) {
            let mut actions = Vec::new();
            volume.journals.at_mut(journal_index).core.suspend(file, &mut actions);
            self.carry_out_journal(index, journal_index, actions);
        }
    }

    /// Resumes the binding of an extent replica that is back in service: its journal destages again.
    pub(crate) fn resume_binding(&mut self, index: VolumeIndex, (extent, slot): (u32, usize)) {
        let journals = &mut self.volumes[index].journals;
        let Some(Binding { journal: journal_index, file }) = journals.binding(extent, slot) else { return };
        let mut actions = Vec::new();
        journals.at_mut(journal_index).core.resume(file, &mut actions);
        self.carry_out_journal(index, journal_index, actions);
    }

    /// Detaches all replicas from this extent on; their journals forget their data.
    pub(crate) fn detach_replicas_from(&mut self, index: VolumeIndex, first: u32) {
        let volume = &mut self.volumes[index];
        volume.statistics.journals.forget_from(first);
        let journals = &mut volume.journals;
        journals.bindings.retain(|(extent, _), _| *extent < first);
        for journal_index in journals.journal_indices() {
            self.forget_in(index, journal_index, |key| key.extent >= first);
        }
    }

    /// Makes all journals except a replica's own forget the replica, because their data is older than the
    /// replica's file.
    pub(crate) fn forget_elsewhere(&mut self, index: VolumeIndex, replica: (u32, usize)) {
        let journals = &self.volumes[index].journals;
        let own = journals.binding(replica.0, replica.1).map(|binding| binding.journal);
        for journal_index in
            journals.journal_indices().into_iter().filter(|journal_index| Some(*journal_index) != own)
        {
            self.forget_in(index, journal_index, |other| other == key_of(replica));
        }
    }

    /// Discards for good the data that journals hold for the last extent beyond the volume's end.
    pub(crate) fn trim_bindings(&mut self, index: VolumeIndex, size_bytes: u64) {
        for journal_index in self.volumes[index].journals.journal_indices() {
            let mut actions = Vec::new();
            let VolumeJournals { all, bindings, .. } = &mut self.volumes[index].journals;
            let journal = all[journal_index].as_mut().expect("it was just found");
            for ((extent, _), binding) in
                bindings.iter().filter(|(_, binding)| binding.journal == journal_index)
            {
                let Some(end) = end_in(*extent, size_bytes) else { continue };
                if journal.core.live(binding.file).any(|(offset, length)| offset + length > end) {
                    journal.trim(binding.file, end, &mut actions);
                }
            }
            self.carry_out_journal(index, journal_index, actions);
        }
    }

    fn forget_in(&mut self, index: VolumeIndex, journal_index: usize, is_meant: impl Fn(FileKey) -> bool) {
        let journal = self.volumes[index].journals.at_mut(journal_index);
        let mut actions = Vec::new();
        for file in journal.files_that(is_meant) {
            journal.forget(file, &mut actions);
        }
        self.carry_out_journal(index, journal_index, actions);
    }

    /// A journal holds nothing of a file any more. Waiters check this at the end of the round.
    pub(super) fn forgotten(&mut self, index: VolumeIndex, journal_index: usize, key: FileKey) {
        let journal = self.volumes[index].journals.at_mut(journal_index);
        journal.files.values_mut().filter(|file| file.key == key).for_each(|file| file.is_forgotten = true);
        journal.remove_forgotten();
    }

    /// A journal could not destage to a file.
    pub(super) fn file_failed(&mut self, index: VolumeIndex, journal_index: usize, file: FileId) {
        let volume = &mut self.volumes[index];
        let (extent, slot) = replica_of(volume.journals.at(journal_index).files[&file].key);
        volume.invalidate(extent, slot);
    }

    /// Invalidates a volume's journal on a drive and all replicas behind it, because the next start would
    /// not find the journal's data.
    pub(crate) fn give_up_journal(&mut self, volume: VolumeId, drive: DriveId) {
        let Some(&index) = self.by_id.get(&volume) else { return };
        let Some(journal_index) = self.volumes[index].journals.on(drive) else { return };
        let mut actions = Vec::new();
        self.volumes[index].journals.at_mut(journal_index).core.journal_unreadable(&mut actions);
        self.carry_out_journal(index, journal_index, actions);
        self.carry_out(index);
    }

    /// A journal has failed, and all replicas behind it fail too.
    pub(super) fn journal_failed(&mut self, index: VolumeIndex, journal_index: usize) {
        let volume = &mut self.volumes[index];
        let journal = volume.journals.at_mut(journal_index);
        journal.has_failed = true;
        tracing::error!(volume = %volume.id, drive = %journal.drive, "a write journal has failed");
        let behind = volume.journals.bindings.iter().filter(|(_, binding)| binding.journal == journal_index);
        let behind: Vec<(u32, usize)> = behind.map(|(replica, _)| *replica).collect();
        volume.publish_journal(journal_index);
        behind.into_iter().for_each(|(extent, slot)| volume.invalidate(extent, slot));
    }

    /// Refuses the actions that waited for a file to be opened.
    pub(super) fn refuse_parked(&mut self, index: VolumeIndex, journal_index: usize, file: FileId) {
        let journal = self.volumes[index].journals.at_mut(journal_index);
        let mut actions = Vec::new();
        journal.refuse_parked(file, &mut actions);
        self.carry_out_journal(index, journal_index, actions);
    }

    /// The file of a replica is open, so its journal can use it too.
    pub(crate) fn binding_opened(
        &mut self,
        index: VolumeIndex,
        (extent, slot): (u32, usize),
        file: &Descriptor,
    ) {
        let volume = &mut self.volumes[index];
        let Some(Binding { journal: journal_index, file: name }) = volume.journals.binding(extent, slot)
        else {
            return;
        };
        let home = volume.home_of(slot, extent);
        let slow = volume.journals.at_mut(journal_index).files.get_mut(&name);
        let slow = slow.expect("a journal knows the files of those behind it");
        (slow.home, slow.descriptor) = (home, Some(file.clone()));
        let parked = std::mem::take(&mut slow.parked);
        self.carry_out_journal(index, journal_index, parked);
    }
}

impl ServedVolume {
    /// True if a replica can be attached to the journal on a drive, or, with `None`, is attached to none.
    pub fn can_attach(&self, (extent, slot): (u32, usize), drive: Option<DriveId>) -> bool {
        if self.journals.is_forgetting(extent, slot) {
            return false;
        }
        let Some(drive) = drive else { return self.journals.binding(extent, slot).is_none() };
        let Some(journal_index) = self.journals.on(drive) else { return false };
        let journal = self.journals.at(journal_index);
        let is_other =
            self.journals.binding(extent, slot).is_some_and(|binding| binding.journal != journal_index);
        !is_other
            && !journal.is_stopped
            && !journal.has_failed
            && !self.statistics.journals.is_invalidated(extent, slot)
    }

    /// Attaches a replica to the journal on a drive. The caller has checked that this is possible.
    pub fn attach(&mut self, replica: (u32, usize), drive: DriveId, file: Option<OwnedFd>) {
        let journal_index = self.journals.on(drive).expect("it was looked whether it can be");
        self.attach_at(journal_index, replica, file.map(Descriptor::file));
    }

    fn attach_at(&mut self, journal_index: usize, replica: (u32, usize), descriptor: Option<Descriptor>) {
        let home = self.home_of(replica.1, replica.0);
        let journal = self.journals.at_mut(journal_index);
        let file = journal.core.open(key_of(replica));
        let file = file.expect("a volume has fewer replicas of extents than a journal takes files");
        let new = SlowFile::new(key_of(replica), home, None);
        let slow = journal.files.entry(file).or_insert(new);
        slow.home = home;
        slow.descriptor = descriptor.or(slow.descriptor.take());
        self.journals.bindings.insert(replica, Binding { journal: journal_index, file });
    }

    /// Makes a journal forget replicas that are neither attached to it nor in `keeps`.
    fn forget_others(&mut self, journal_index: usize, keeps: &[(u32, usize)]) -> Vec<Action> {
        let VolumeJournals { all, bindings, .. } = &mut self.journals;
        let journal = all[journal_index].as_mut().expect("it was just added");
        let mut actions = Vec::new();
        let known: Vec<(FileKey, FileId)> = journal.core.files().collect();
        for (key, file) in known {
            let is_seated = bindings.get(&replica_of(key)) == Some(&Binding { journal: journal_index, file });
            journal.files.entry(file).or_insert_with(|| SlowFile::new(key, None, None));
            if !is_seated && !keeps.contains(&replica_of(key)) {
                journal.forget(file, &mut actions);
            }
        }
        actions
    }

    /// Acknowledged writes of a replica are lost with its journal: the replica fails and is never added
    /// back as it is.
    pub fn invalidate(&mut self, extent: u32, slot: usize) {
        self.statistics.journals.invalidate(extent, slot);
        if self.mirror.is_there(extent, slot) {
            self.mirror.fail_replica(extent, slot, &mut self.effects);
        }
    }

    /// Publishes how a journal is used.
    pub fn publish_journal(&mut self, journal_index: usize) {
        let journal = self.journals.at_mut(journal_index);
        let usage = journal.core.usage();
        let bytes = |blocks: u32| u64::from(blocks) * BLOCK_BYTES;
        let (size_bytes, used_bytes) = (bytes(usage.log_blocks), bytes(usage.used_blocks));
        let (is_empty, has_failed) = (journal.core.is_empty(), journal.has_failed);
        journal.is_told_empty = is_empty;
        let told = JournalUsage { size_bytes, used_bytes, is_empty, has_failed };
        self.statistics.journals.is_used(journal.drive, told);
    }

    /// Why a replica behind a journal failed, if its journal failed.
    pub fn journal_fault(&self, extent: u32, slot: usize) -> Option<String> {
        self.statistics.journals.is_invalidated(extent, slot).then(|| FAILED.to_owned())
    }

    /// Records which pieces of a replica's file its journal has, before the file itself is mapped. Data
    /// that is destaged while the file is mapped is then in at least one of the two.
    pub fn note_journaled_pieces(&mut self, slot: usize, extent: u32) {
        if let Some(binding) = self.journals.binding(extent, slot) {
            let pieces = self.journals.pieces(binding);
            self.journals.opening.insert((extent, slot), pieces);
        }
    }

    /// Adds the pieces that a replica's journal has to the map of its file.
    pub fn add_journaled_pieces(&mut self, slot: usize, extent: u32, map: &mut AllocationMap) {
        let before = self.journals.opening.remove(&(extent, slot)).unwrap_or_default();
        let now = self.journals.binding(extent, slot).map(|binding| self.journals.pieces(binding));
        before.into_iter().chain(now.unwrap_or_default()).for_each(|piece| map.set(piece));
    }
}

impl VolumeJournals {
    /// Pieces of a file for which a journal has data.
    fn pieces(&self, binding: Binding) -> Vec<u32> {
        let live = self.at(binding.journal).core.live(binding.file);
        let piece = |byte: u32| byte / ALLOCATION_BYTES as u32;
        live.flat_map(|(offset, length)| piece(offset)..=piece(offset + length - 1)).collect()
    }
}

/// Offset in an extent at which the volume ends, in bytes; `None` unless the volume ends within this
/// extent.
fn end_in(extent: u32, size_bytes: u64) -> Option<u32> {
    let end = size_bytes.checked_sub(u64::from(extent) * EXTENT_BYTES)?;
    (0 < end && end < EXTENT_BYTES).then_some(end as u32)
}

impl VolumeJournal {
    /// Removes forgotten files on which no operation is under way.
    pub(super) fn remove_forgotten(&mut self) {
        let flights = &self.flights;
        let is_busy = |file: &FileId| flights.values().any(|flight| flight.changes() == Some(*file));
        self.files.retain(|id, file| !file.is_forgotten || is_busy(id));
    }

    /// Replicas that hold up the tail of a journal with little room left, because their files are not open
    /// or they are out of service.
    pub(super) fn in_the_way(&self) -> Vec<(u32, usize)> {
        let is_full = self.core.is_nearly_full();
        let parked = self.files.values().filter(|file| !file.parked.is_empty() && !file.is_forgetting);
        let parked = parked.filter(|_| is_full).map(|file| replica_of(file.key));
        parked.chain(self.core.in_the_way().into_iter().map(replica_of)).collect()
    }

    fn files_that(&self, is_meant: impl Fn(FileKey) -> bool) -> Vec<FileId> {
        let meant = self.files.iter().filter(|(_, file)| is_meant(file.key) && !file.is_forgetting);
        meant.map(|(file, _)| *file).collect()
    }

    fn forget(&mut self, file: FileId, actions: &mut Vec<Action>) {
        let slow = self.files.get_mut(&file).expect("a journal knows what it is to forget");
        slow.is_forgetting = true;
        self.core.forget(file, actions);
        self.refuse_unasked(file, actions);
        self.refuse_parked(file, actions);
    }

    fn refuse_parked(&mut self, file: FileId, actions: &mut Vec<Action>) {
        let Some(slow) = self.files.get_mut(&file) else { return };
        for action in std::mem::take(&mut slow.parked) {
            match action {
                Action::Destage { operation, .. } => {
                    let fault = Err(DestageFault::Slow(SlowFault::Broken));
                    self.core.destaged(operation, fault, actions);
                }
                Action::SyncSlow { file } => self.core.slow_synced(file, Err(()), actions),
                _ => unreachable!("only what needs the file waits for it"),
            }
        }
    }
}
