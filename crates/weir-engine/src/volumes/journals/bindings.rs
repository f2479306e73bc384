//! Journal bindings: which replicas are behind which journal, as replicas and journals come, go and fail.
//!
//! This module does not know the content of journals.

use std::os::fd::OwnedFd;

use weir_engine_interface::JournalSpec;
use weir_engine_interface::VolumeHome;
use weir_engine_interface::statistics::JournalUsage;
use weir_journal::{Action, DestageFault, FileId, FileKey, SlowFault, Work};
use weir_reactor::Descriptor;
use weir_types::bounds::{ALLOCATION_BYTES, BLOCK_BYTES, EXTENT_BYTES};
use weir_types::{DriveId, ExtentIndex};
use weir_volume::AllocationMap;

use super::desk::{Desk, JournalEffect};
use super::{Binding, SlowFile, VolumeJournal, VolumeJournals, key_of, replica_of};

/// Message for a replica whose journal failed, or to which the journal could not destage.
const FAILED: &str = "is behind a write journal that failed, or cannot be destaged from its journal";

impl VolumeJournals {
    /// Adds a journal, with its home in the volume and the homes of the replicas behind it.
    pub fn add(
        &mut self,
        spec: JournalSpec,
        home: usize,
        home_of: impl Fn((ExtentIndex, usize)) -> Option<usize>,
        desk: &mut Desk<'_>,
    ) {
        let JournalSpec {
            home: VolumeHome { drive, .. },
            directory,
            core,
            file,
            size_bytes,
            bindings,
            keeps,
        } = spec;
        let journal_index = self.all.next_index();
        self.all.add(VolumeJournal {
            place: (self.volume, journal_index),
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
            changed_ns: desk.io.now_ns,
            is_draining: false,
            is_told_empty: false,
            commits: 0,
            commit_ns: 0,
        });
        for (replica, file) in bindings {
            self.attach_at(journal_index, (replica, home_of(replica)), file.map(Descriptor::file));
        }
        let actions = self.forget_others(journal_index, &keeps);
        self.carry_out(journal_index, actions, desk);
    }

    /// The journal that was added last is in use.
    pub fn begin_last(&mut self) {
        self.publish(self.all.next_index() - 1);
        self.effects.push(JournalEffect::Wake);
    }

    /// True if there is a journal on a drive.
    pub fn has_on(&self, drive: DriveId) -> bool {
        self.all.on(drive).is_some()
    }

    /// Removes the journal on a drive. False if replicas are behind the journal or operations are under way;
    /// the caller may ask again.
    pub fn remove(&mut self, drive: DriveId) -> bool {
        let Some(journal_index) = self.all.on(drive) else { return true };
        let is_in_use = self.bindings.values().any(|binding| binding.journal == journal_index);
        let journal = self.all.at(journal_index);
        let is_quiet = journal.flights.is_empty() && (journal.files.is_empty() || journal.has_failed);
        if is_in_use || !is_quiet {
            return false;
        }
        self.all.remove(journal_index);
        self.open.statistics.journals.is_gone(drive);
        self.open.status.set_journal_failed(drive, false);
        true
    }

    /// Detaches a removed extent replica; its journal forgets its data.
    pub fn detach(&mut self, extent: ExtentIndex, slot: usize, desk: &mut Desk<'_>) {
        self.invalidated.remove(&(extent, slot));
        self.publish_invalidated();
        let key = key_of(self.id, (extent, slot));
        self.bindings.remove(&(extent, slot));
        for journal_index in self.all.indices() {
            self.forget_in(journal_index, |other| other == key, desk);
        }
    }

    /// Suspends the binding of an extent replica that is out of service while another one serves. Unsynced
    /// destaged data does not count as destaged: the drive may have lost it when it comes back.
    pub fn suspend(&mut self, (extent, slot): (ExtentIndex, usize), desk: &mut Desk<'_>) {
        let Some(Binding { journal: journal_index, file }) = self.binding(extent, slot) else { return };
        let mut actions = Vec::new();
        self.all.at_mut(journal_index).core.suspend(file, &mut actions);
        self.carry_out(journal_index, actions, desk);
    }

    /// Resumes the binding of an extent replica that is back in service: its journal destages again.
    pub fn resume(&mut self, (extent, slot): (ExtentIndex, usize), desk: &mut Desk<'_>) {
        let Some(Binding { journal: journal_index, file }) = self.binding(extent, slot) else { return };
        let mut actions = Vec::new();
        self.all.at_mut(journal_index).core.resume(file, &mut actions);
        self.carry_out(journal_index, actions, desk);
    }

    /// Detaches all replicas from this extent on; their journals forget their data.
    pub fn detach_from(&mut self, first: u32, desk: &mut Desk<'_>) {
        self.invalidated.retain(|(extent, _)| extent.is_within(first));
        self.publish_invalidated();
        self.bindings.retain(|(extent, _), _| extent.is_within(first));
        for journal_index in self.all.indices() {
            self.forget_in(journal_index, |key| !key.extent.is_within(first), desk);
        }
    }

    /// Makes all journals except a replica's own forget the replica, because their data is older than the
    /// replica's file.
    pub fn forget_elsewhere(&mut self, replica: (ExtentIndex, usize), desk: &mut Desk<'_>) {
        let key = key_of(self.id, replica);
        let own = self.binding(replica.0, replica.1).map(|binding| binding.journal);
        for journal_index in self.all.indices() {
            if Some(journal_index) != own {
                self.forget_in(journal_index, |other| other == key, desk);
            }
        }
    }

    /// Discards for good the data that journals hold for the last extent beyond the volume's end.
    pub fn trim_beyond(&mut self, size_bytes: u64, desk: &mut Desk<'_>) {
        for journal_index in self.all.indices() {
            let mut actions = Vec::new();
            let journal = self.all.at_mut(journal_index);
            for ((extent, _), binding) in
                self.bindings.iter().filter(|(_, binding)| binding.journal == journal_index)
            {
                let Some(end) = end_in(*extent, size_bytes) else { continue };
                if journal.core.live(binding.file).any(|(offset, length)| offset + length > end) {
                    journal.trim(binding.file, end, &mut actions);
                }
            }
            self.carry_out(journal_index, actions, desk);
        }
    }

    fn forget_in(&mut self, journal_index: usize, is_meant: impl Fn(FileKey) -> bool, desk: &mut Desk<'_>) {
        let journal = self.all.at_mut(journal_index);
        let mut actions = Vec::new();
        for file in journal.files_that(is_meant) {
            journal.forget(file, &mut actions);
        }
        self.carry_out(journal_index, actions, desk);
    }

    /// A journal holds nothing of a file any more. Waiters check this at the end of the round.
    pub fn forgotten(&mut self, journal_index: usize, key: FileKey) {
        let journal = self.all.at_mut(journal_index);
        journal.files.values_mut().filter(|file| file.key == key).for_each(|file| file.is_forgotten = true);
        journal.remove_forgotten();
    }

    /// A journal could not destage to a file.
    pub fn file_failed(&mut self, journal_index: usize, file: FileId) {
        let (extent, slot) = replica_of(self.all.at(journal_index).files[&file].key);
        self.invalidate(extent, slot);
    }

    /// Invalidates the journal on a drive and all replicas behind it, because the next start would not find
    /// the journal's data.
    pub fn give_up(&mut self, drive: DriveId, desk: &mut Desk<'_>) {
        let Some(journal_index) = self.all.on(drive) else { return };
        let mut actions = Vec::new();
        self.all.at_mut(journal_index).core.journal_unreadable(&mut actions);
        self.carry_out(journal_index, actions, desk);
    }

    /// A journal has failed, and all replicas behind it fail too.
    pub fn journal_failed(&mut self, journal_index: usize) {
        let volume = self.id;
        let journal = self.all.at_mut(journal_index);
        journal.has_failed = true;
        tracing::error!(%volume, drive = %journal.drive, "a write journal has failed");
        let behind = self.bindings.iter().filter(|(_, binding)| binding.journal == journal_index);
        let behind: Vec<(ExtentIndex, usize)> = behind.map(|(replica, _)| *replica).collect();
        self.publish(journal_index);
        behind.into_iter().for_each(|(extent, slot)| self.invalidate(extent, slot));
    }

    /// Acknowledged writes of a replica are lost with its journal.
    pub fn invalidate(&mut self, extent: ExtentIndex, slot: usize) {
        self.invalidated.insert((extent, slot));
        self.publish_invalidated();
        self.effects.push(JournalEffect::Invalidated { extent, slot });
    }

    fn publish_invalidated(&self) {
        self.open.status.set_invalidated(self.invalidated.clone());
    }

    /// Refuses the actions that waited for a file to be opened.
    pub fn refuse_parked(&mut self, journal_index: usize, file: FileId, desk: &mut Desk<'_>) {
        let journal = self.all.at_mut(journal_index);
        let mut actions = Vec::new();
        journal.refuse_parked(file, &mut actions);
        self.carry_out(journal_index, actions, desk);
    }

    /// The file of a replica is open, so its journal can use it too.
    pub fn opened(
        &mut self,
        (extent, slot): (ExtentIndex, usize),
        (home, file): (Option<usize>, &Descriptor),
        desk: &mut Desk<'_>,
    ) {
        let Some(Binding { journal: journal_index, file: name }) = self.binding(extent, slot) else { return };
        let slow = self.all.at_mut(journal_index).files.get_mut(&name);
        let slow = slow.expect("a journal knows the files of those behind it");
        (slow.home, slow.descriptor) = (home, Some(file.clone()));
        let parked = std::mem::take(&mut slow.parked);
        self.carry_out(journal_index, parked, desk);
    }

    /// True if a replica can be attached to the journal on a drive, or, with `None`, is attached to none.
    pub fn can_attach(&self, (extent, slot): (ExtentIndex, usize), drive: Option<DriveId>) -> bool {
        if self.is_forgetting(extent, slot) {
            return false;
        }
        let binding = self.binding(extent, slot);
        let Some(drive) = drive else { return binding.is_none() };
        let Some(journal_index) = self.all.on(drive) else { return false };
        let journal = self.all.at(journal_index);
        let is_other = binding.is_some_and(|binding| binding.journal != journal_index);
        !is_other && !journal.is_stopped && !journal.has_failed && !self.invalidated.contains(&(extent, slot))
    }

    /// Attaches a replica, which is at a home, to the journal on a drive. The caller has checked that this
    /// is possible.
    pub fn attach(
        &mut self,
        replica: ((ExtentIndex, usize), Option<usize>),
        drive: DriveId,
        file: Option<OwnedFd>,
    ) {
        let journal_index = self.all.on(drive).expect("it was looked whether it can be");
        self.attach_at(journal_index, replica, file.map(Descriptor::file));
    }

    fn attach_at(
        &mut self,
        journal_index: usize,
        (replica, home): ((ExtentIndex, usize), Option<usize>),
        descriptor: Option<Descriptor>,
    ) {
        let journal = self.all.at_mut(journal_index);
        let file = journal.core.open(key_of(self.id, replica));
        let file = file.expect("a volume has fewer replicas of extents than a journal takes files");
        let new = SlowFile::new(key_of(self.id, replica), home, None);
        let slow = journal.files.entry(file).or_insert(new);
        slow.home = home;
        slow.descriptor = descriptor.or(slow.descriptor.take());
        self.bindings.insert(replica, Binding { journal: journal_index, file });
    }

    /// Makes a journal forget replicas that are neither attached to it nor in `keeps`.
    fn forget_others(&mut self, journal_index: usize, keeps: &[(ExtentIndex, usize)]) -> Vec<Action> {
        let journal = self.all.at_mut(journal_index);
        let mut actions = Vec::new();
        let known: Vec<(FileKey, FileId)> = journal.core.files().collect();
        for (key, file) in known {
            let binding = Binding { journal: journal_index, file };
            let is_attached = self.bindings.get(&replica_of(key)) == Some(&binding);
            journal.files.entry(file).or_insert_with(|| SlowFile::new(key, None, None));
            if !is_attached && !keeps.contains(&replica_of(key)) {
                journal.forget(file, &mut actions);
            }
        }
        actions
    }

    /// Publishes how a journal is used.
    pub fn publish(&mut self, journal_index: usize) {
        let journal = self.all.at_mut(journal_index);
        let usage = journal.core.usage();
        let bytes = |blocks: u32| u64::from(blocks) * BLOCK_BYTES;
        let (size_bytes, used_bytes) = (bytes(usage.log_blocks), bytes(usage.used_blocks));
        let (is_empty, has_failed) = (journal.core.is_empty(), journal.has_failed);
        journal.is_told_empty = is_empty;
        let Work { records, changes, destaged_bytes } = usage.work;
        let told = JournalUsage {
            size_bytes,
            used_bytes,
            full_per_mille: journal.core.fullness_per_mille(),
            is_empty,
            has_failed,
            records,
            changes,
            commits: journal.commits,
            commit_ns: journal.commit_ns,
            destaged_bytes,
        };
        let drive = journal.drive;
        self.open.statistics.journals.is_used(drive, told);
        self.open.status.set_journal_failed(drive, has_failed);
    }

    /// Why a replica behind a journal failed, if its journal failed.
    pub fn fault_of(&self, extent: ExtentIndex, slot: usize) -> Option<String> {
        self.invalidated.contains(&(extent, slot)).then(|| FAILED.to_owned())
    }

    /// Records which pieces of a replica's file its journal has, before the file itself is mapped. Data
    /// that is destaged while the file is mapped is then in at least one of the two.
    pub fn note_pieces(&mut self, slot: usize, extent: ExtentIndex) {
        if let Some(binding) = self.binding(extent, slot) {
            let pieces = self.pieces(binding);
            self.opening.insert((extent, slot), pieces);
        }
    }

    /// Adds the pieces that a replica's journal has to the map of its file.
    pub fn add_pieces(&mut self, slot: usize, extent: ExtentIndex, map: &mut AllocationMap) {
        let before = self.opening.remove(&(extent, slot)).unwrap_or_default();
        let now = self.binding(extent, slot).map(|binding| self.pieces(binding));
        before.into_iter().chain(now.unwrap_or_default()).for_each(|piece| map.set(piece));
    }

    /// Pieces of a file for which a journal has data.
    fn pieces(&self, binding: Binding) -> Vec<u32> {
        let live = self.all.at(binding.journal).core.live(binding.file);
        let piece = |byte: u32| byte / ALLOCATION_BYTES as u32;
        live.flat_map(|(offset, length)| piece(offset)..=piece(offset + length - 1)).collect()
    }
}

/// Offset in an extent at which the volume ends, in bytes; `None` unless the volume ends within this
/// extent.
fn end_in(extent: ExtentIndex, size_bytes: u64) -> Option<u32> {
    let end = size_bytes.checked_sub(extent.start_bytes())?;
    (0 < end && end < EXTENT_BYTES).then_some(end as u32)
}

impl VolumeJournal {
    /// Removes forgotten files on which no operation is under way.
    pub fn remove_forgotten(&mut self) {
        let flights = &self.flights;
        let is_busy = |file: &FileId| flights.values().any(|flight| flight.changes() == Some(*file));
        self.files.retain(|id, file| !file.is_forgotten || is_busy(id));
    }

    /// Replicas that hold up the tail of a journal with little room left, because their files are not open
    /// or they are out of service.
    pub fn in_the_way(&self) -> Vec<(ExtentIndex, usize)> {
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
