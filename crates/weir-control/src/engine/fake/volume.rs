//! A volume of the fake engine.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use weir_engine_interface::statistics::JournalUsage;
use weir_engine_interface::{
    CgroupLimit, Content, FileIdentity, FlushWindow, JournalSpec, OpenFile, OpenVolume, PublishedStatus,
    ScrubEnd, ScrubProgress, SnapshotSpec, VolumeLayout, VolumeSpec,
};
use weir_store::extent_count;
use weir_store::journal::log_path;
use weir_types::{BackgroundKind, DriveId, ExtentIndex, Scope, Terms, VolumeId};
use weir_volume::mirror::{RecoveredExtent, ReplicaMetadata, ReplicaState, SECTIONS, Slots};

use super::background::Pace;
use super::replica::{FakeExtent, FakeReplica};

/// An open volume.
pub struct FakeVolume {
    id: VolumeId,
    status: Arc<PublishedStatus>,
    /// The volume as control sees it.
    open: OpenVolume,
    /// The terms of its levels, from the top.
    pub path: Vec<(Scope, Terms)>,
    /// The limits of cgroups below it.
    pub cgroups: Vec<CgroupLimit>,
    /// How long its flushes may be owed.
    pub flush_window: Option<FlushWindow>,
    epoch_records: PathBuf,
    extents: Vec<FakeExtent>,
    /// An extent has, or had, several replicas.
    is_replicated: bool,
    journals: BTreeMap<DriveId, FakeJournal>,
    scrub: Option<Arc<ScrubProgress>>,
}

struct FakeJournal {
    directory: PathBuf,
    file: OpenFile,
    has_failed: bool,
}

impl FakeVolume {
    /// Opens a volume. Also answers what control gets to know of it.
    pub fn open(spec: VolumeSpec, journals: Vec<JournalSpec>) -> (FakeVolume, OpenVolume) {
        let status = Arc::<PublishedStatus>::default();
        let open = OpenVolume::publishing(Arc::clone(&status));
        let mut volume = FakeVolume {
            id: spec.id,
            status,
            open: open.clone(),
            path: Vec::new(),
            cgroups: Vec::new(),
            flush_window: spec.flush_window,
            epoch_records: spec.epoch_records,
            extents: Vec::new(),
            is_replicated: !spec.recovered_extents.is_empty(),
            journals: BTreeMap::new(),
            scrub: None,
        };
        volume.resize(spec.size_bytes, &spec.layout, spec.recovered_extents);
        journals.into_iter().for_each(|journal| _ = volume.add_journal(journal));
        volume.publish();
        (volume, open)
    }

    /// Publishes the status.
    pub fn publish(&self) {
        let states = self.extents.iter().map(FakeExtent::states).collect();
        self.status.set_replica_states(if self.is_replicated { states } else { Vec::new() });
        for (index, extent) in (0..).map(ExtentIndex).zip(&self.extents) {
            self.status.set_away(index, if self.is_replicated { extent.away() } else { Slots::default() });
        }
        let replicas = self.replicas().filter(|(_, replica)| replica.is_invalidated);
        self.status.set_invalidated(replicas.map(|(place, _)| place).collect());
        for (drive, journal) in &self.journals {
            self.status.set_journal_failed(*drive, journal.has_failed);
        }
    }

    /// All replicas, by extent and slot.
    fn replicas(&self) -> impl Iterator<Item = ((ExtentIndex, usize), &FakeReplica)> {
        (0..).map(ExtentIndex).zip(&self.extents).flat_map(|(index, extent)| {
            extent.replicas.iter().enumerate().map(move |(slot, replica)| ((index, slot), replica))
        })
    }

    fn extent(&mut self, index: ExtentIndex) -> Option<&mut FakeExtent> {
        self.extents.get_mut(index.index())
    }

    /// Takes a size, with the state of the extents that are new.
    pub fn resize(&mut self, size_bytes: u64, layout: &VolumeLayout, recovered: Vec<RecoveredExtent>) {
        let count = extent_count(size_bytes);
        self.extents.truncate(usize::try_from(count).unwrap_or(usize::MAX));
        let mut recovered = recovered.into_iter();
        for index in ExtentIndex(self.extents.len() as u32).onward(count as u32) {
            self.extents.push(FakeExtent::new(index, layout, recovered.next()));
        }
    }

    /// Sets the number of attached clients.
    pub fn attach_clients(&self, clients: u64) {
        self.status.set_connections(clients);
    }

    /// The replicas, by extent and slot, that are on a drive or behind a journal there.
    pub fn replicas_relying_on(&self, drive: DriveId) -> Vec<(ExtentIndex, usize)> {
        self.replicas().filter(|(_, replica)| replica.relies_on(drive)).map(|(place, _)| place).collect()
    }

    /// Fails a replica. True if it could be reached before.
    pub fn fail_replica(&mut self, (index, slot): (ExtentIndex, usize)) -> bool {
        let epoch_records = self.epoch_records.clone();
        let Some(extent) = self.extent(index).filter(|extent| extent.replicas[slot].is_there) else {
            return false;
        };
        extent.fail(slot, &epoch_records);
        self.publish();
        true
    }

    /// Fails the replicas that rely on a drive and for which others serve.
    pub fn leave_to_others(&mut self, drive: DriveId) {
        for (index, slot) in self.replicas_relying_on(drive) {
            if self.is_replicated && self.extents[index.index()].in_sync().has_other(slot) {
                self.fail_replica((index, slot));
            }
        }
    }

    /// Adds a replica. False if that is not possible now.
    pub fn add_replica(
        &mut self,
        (index, slot): (ExtentIndex, usize),
        home: (DriveId, PathBuf),
        journal: Option<DriveId>,
    ) -> Result<bool, String> {
        let epoch_records = self.epoch_records.clone();
        let behind =
            journal.map(|drive| (drive, self.journals.get(&drive).filter(|journal| !journal.has_failed)));
        let journal = match behind {
            Some((_, None)) => return Ok(false),
            Some((drive, Some(journal))) => Some((drive, journal.directory.clone())),
            None => None,
        };
        let Some(extent) = self.extent(index) else { return Ok(false) };
        if extent.states()[slot] != ReplicaState::Absent || extent.in_sync().is_empty() {
            return Ok(false);
        }
        let replica = FakeReplica { home: Some(home), is_there: true, journal, ..FakeReplica::default() };
        extent.add(slot, replica, &epoch_records)?;
        self.is_replicated = true;
        self.publish();
        Ok(true)
    }

    /// Lets an added replica come in sync.
    pub fn confirm_added(&mut self, (index, slot): (ExtentIndex, usize)) {
        if let Some(extent) = self.extent(index) {
            extent.replicas[slot].is_confirmed = true;
        }
    }

    /// Removes a replica. False if no other one is in sync.
    pub fn remove_replica(&mut self, (index, slot): (ExtentIndex, usize)) -> bool {
        let epoch_records = self.epoch_records.clone();
        let is_removed = self.extent(index).is_some_and(|extent| extent.remove(slot, &epoch_records));
        self.publish();
        is_removed
    }

    /// Takes a replica back. False if there is none to take back.
    pub fn rejoin_replica(
        &mut self,
        (index, slot): (ExtentIndex, usize),
        found: &ReplicaMetadata,
        journal: Option<DriveId>,
    ) -> bool {
        let is_usable =
            journal.is_none_or(|drive| self.journals.get(&drive).is_some_and(|one| !one.has_failed));
        let has_rejoined = is_usable && self.extent(index).is_some_and(|extent| extent.rejoin(slot, found));
        if let Some((drive, journal)) = journal.and_then(|drive| Some((drive, self.journals.get(&drive)?)))
            && has_rejoined
        {
            self.extents[index.index()].replicas[slot].journal = Some((drive, journal.directory.clone()));
        }
        self.publish();
        has_rejoined
    }

    /// Brings replicas in sync, as far as steps may be taken. Answers the extents whose replicas are all in
    /// sync.
    pub fn resync(&mut self, pace: &mut Pace) -> Vec<ExtentIndex> {
        let mut whole = Vec::new();
        for (index, extent) in (0..).map(ExtentIndex).zip(&mut self.extents) {
            let wanting = extent.wanting();
            for slot in wanting.iter() {
                if pace.take_step(BackgroundKind::Resync)
                    && extent.resync(self.id, slot, &self.epoch_records).is_err()
                {
                    extent.fail(slot, &self.epoch_records);
                }
            }
            if !wanting.is_empty() && !extent.states().contains(&ReplicaState::Stale) {
                whole.push(index);
            }
        }
        self.publish();
        whole
    }

    /// Adds a journal. False if the volume has one on that drive.
    pub fn add_journal(&mut self, spec: JournalSpec) -> bool {
        let drive = spec.home.drive.id;
        if self.journals.contains_key(&drive) {
            return false;
        }
        let metadata = File::from(spec.file).metadata().expect("an open file has metadata");
        let file = OpenFile {
            volume: self.id,
            content: Content::Journal,
            path: log_path(&spec.directory),
            identity: FileIdentity::of(&metadata),
            size_bytes: spec.size_bytes,
        };
        for (replica, _) in spec.bindings {
            self.bind(replica, (drive, spec.directory.clone()));
        }
        let journal = FakeJournal { directory: spec.directory, file, has_failed: false };
        self.journals.insert(drive, journal);
        self.open
            .statistics()
            .journals
            .is_used(drive, JournalUsage { is_empty: true, ..JournalUsage::default() });
        true
    }

    /// Puts new replicas behind journals that the volume has.
    pub fn bind_all(&mut self, bindings: Vec<((ExtentIndex, usize), DriveId)>) {
        for (replica, drive) in bindings {
            if let Some(directory) = self.journals.get(&drive).map(|journal| journal.directory.clone()) {
                self.bind(replica, (drive, directory));
            }
        }
    }

    fn bind(&mut self, (index, slot): (ExtentIndex, usize), journal: (DriveId, PathBuf)) {
        if let Some(extent) = self.extent(index) {
            extent.replicas[slot].journal = Some(journal);
        }
    }

    /// Removes a journal. False if a replica is behind it.
    pub fn drop_journal(&mut self, drive: DriveId) -> bool {
        let is_behind =
            |replica: &FakeReplica| replica.journal.as_ref().is_some_and(|(own, _)| *own == drive);
        if self.replicas().any(|(_, replica)| is_behind(replica)) {
            return false;
        }
        self.journals.remove(&drive);
        self.status.set_journal_failed(drive, false);
        self.open.statistics().journals.is_gone(drive);
        true
    }

    /// Invalidates a journal and the replicas behind it.
    pub fn give_up_journal(&mut self, drive: DriveId) {
        let Some(journal) = self.journals.get_mut(&drive).filter(|journal| !journal.has_failed) else {
            return;
        };
        journal.has_failed = true;
        let is_behind =
            |replica: &FakeReplica| replica.journal.as_ref().is_some_and(|(own, _)| *own == drive);
        let behind: Vec<_> =
            self.replicas().filter(|(_, one)| is_behind(one)).map(|(place, _)| place).collect();
        for (index, slot) in behind {
            self.extents[index.index()].replicas[slot].is_invalidated = true;
            self.fail_replica((index, slot));
        }
        self.publish();
    }

    /// The files that are open on a drive.
    pub fn open_files(&self, drive: DriveId) -> Vec<OpenFile> {
        let is_there = |replica: &FakeReplica| replica.home.as_ref().is_some_and(|(own, _)| *own == drive);
        let replicas = self.replicas().filter(|(_, replica)| is_there(replica));
        let files = replicas.filter_map(|(_, replica)| replica.file.clone());
        files.chain(self.journals.get(&drive).map(|journal| journal.file.clone())).collect()
    }

    /// The replicas that are in a snapshot, by extent. The content is not taken: nobody writes any.
    pub fn snapshot(&self, spec: &SnapshotSpec) -> Result<Vec<Slots>, String> {
        let in_snapshot = |extent: &FakeExtent| {
            let has_target = |slot: usize| {
                let home = extent.replicas[slot].home.as_ref();
                home.is_some_and(|(drive, _)| spec.targets.contains_key(drive))
            };
            let slots = extent.in_sync().filter(has_target);
            slots.iter().try_for_each(|slot| extent.look_at_file(slot))?;
            if slots.is_empty() { Err("no replica of an extent is in sync".to_owned()) } else { Ok(slots) }
        };
        self.extents.iter().map(in_snapshot).collect()
    }

    /// Begins a scrub. False if one runs.
    pub fn begin_scrub(&mut self, progress: Arc<ScrubProgress>) -> bool {
        if self.scrub.is_some() {
            return false;
        }
        progress.expects(self.extents.len() as u64 * u64::from(SECTIONS));
        self.scrub = Some(progress);
        true
    }

    /// Examines all sections, if a step may be taken.
    pub fn scrub(&mut self, pace: &mut Pace) {
        if let Some(progress) = self.scrub.take_if(|_| pace.take_step(BackgroundKind::Scrub)) {
            let sections = progress.counters().sections_left;
            (0..sections).for_each(|_| progress.section_done());
            progress.ended(ScrubEnd::Completed);
        }
    }

    /// Ends the scrub in this way, if one runs.
    pub fn end_scrub(&mut self, end: ScrubEnd) {
        self.scrub.take().into_iter().for_each(|progress| progress.ended(end));
    }
}
