//! Journal bindings: which replicas are behind a write journal, and on which drive the journal lies.
//!
//! A template can put a replica on a slower class of drives than others. This replica is behind a journal on
//! a drive of the template's fastest class. An acknowledged write costs there as much as on the fast replica.
//!
//! With the I/O profile `journal`, each replica of a volume is behind a journal on a journal drive.
//!
//! The loss of one drive must not cost two replicas. So a replica's journal lies on no drive that has another
//! replica of the extent, or the journal of one.
//!
//! Only the drives hold the truth: a marker beside each replica names its journal. This module holds the
//! markers that were read. The content of journals belongs to the data plane.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_engine_interface::{JournalSpec, VolumeHome};
use weir_reactor::Descriptor;
use weir_store::journal::{Behind, ReadyJournal, journaled_metadata_path, read_marker};
use weir_store::{Store, StoreError, extent_file_name, extents_folder, replica_metadata};
use weir_types::units::Size;
use weir_types::{Class, DriveId, DriveRole, ExtentIndex, JournalId, VolumeId};
use weir_volume::mirror::ReplicaMetadata;

use crate::core::Core;
use crate::error::{ControlError, Outcome};
use crate::model::{Drive, Model};
use crate::records::{DriveRecord, ExtentReplica, VolumeRecord};

/// The journals of a volume.
#[derive(Clone, Debug, Default)]
struct VolumeJournals {
    /// Usable journals by their drive.
    ready: BTreeMap<DriveId, JournalId>,
    /// Bound replicas, with the drive of their journal.
    bindings: BTreeMap<ExtentReplica, DriveId>,
}

/// Journal binding of a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum JournalPlace {
    /// The replica is behind no journal.
    Direct,
    /// The replica is behind the journal on this drive, which is ready. Its metadata is at this path beside
    /// the journal.
    Journaled(DriveId, PathBuf),
    /// The drive of the replica's journal is missing.
    Waiting,
    /// The replica's journal is lost, or its binding cannot be read.
    Lost,
}

/// Replicas that have a write journal or none, against the I/O profile of their volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AgainstProfile {
    /// Another replica can take the place.
    pub replaceable: BTreeSet<ExtentReplica>,
    /// There is no journal drive for the replica that would take the place.
    pub waiting: BTreeSet<ExtentReplica>,
}

/// Content of the marker beside a replica.
enum Sign {
    /// The replica with this file is behind a journal.
    Behind(PathBuf, Behind),
    /// The replica is behind no journal.
    Direct,
    /// The marker is unknown, because the drive is missing or unreadable.
    Unknown,
}

/// The journals of all volumes that are served.
pub struct Journals {
    pub(crate) core: Arc<Core>,
    /// Size of a new journal in bytes.
    size_bytes: u64,
    volumes: Mutex<BTreeMap<VolumeId, VolumeJournals>>,
}

impl Journals {
    pub(crate) fn new(core: Arc<Core>, size_bytes: u64) -> Journals {
        Journals { core, size_bytes, volumes: Default::default() }
    }
}

impl Journals {
    fn volumes(&self) -> MutexGuard<'_, BTreeMap<VolumeId, VolumeJournals>> {
        self.volumes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn of(&self, volume: VolumeId) -> VolumeJournals {
        self.volumes().get(&volume).cloned().unwrap_or_default()
    }

    fn change<T>(&self, volume: VolumeId, change: impl FnOnce(&mut VolumeJournals) -> T) -> T {
        change(self.volumes().entry(volume).or_default())
    }

    /// The bindings of all volumes that have or had journals.
    pub(crate) fn all_bindings(&self) -> BTreeMap<VolumeId, BTreeMap<ExtentReplica, DriveId>> {
        self.volumes().iter().map(|(volume, journals)| (*volume, journals.bindings.clone())).collect()
    }

    /// The volumes that have journals.
    pub(crate) fn volumes_with_journals(&self) -> Vec<VolumeId> {
        let volumes = self.volumes();
        volumes.iter().filter(|(_, journals)| !journals.ready.is_empty()).map(|(volume, _)| *volume).collect()
    }

    /// The journal's drive for each bound replica of a volume.
    pub fn bindings(&self, volume: VolumeId) -> BTreeMap<ExtentReplica, DriveId> {
        self.of(volume).bindings
    }

    /// True if a replica of a volume is behind a journal.
    pub fn has_bindings(&self, volume: VolumeId) -> bool {
        self.volumes().get(&volume).is_some_and(|journals| !journals.bindings.is_empty())
    }

    /// Binds a replica to the journal on a drive, or removes its binding.
    pub fn note(&self, volume: VolumeId, replica: ExtentReplica, drive: Option<DriveId>) {
        self.change(volume, |journals| match drive {
            Some(drive) => _ = journals.bindings.insert(replica, drive),
            None => _ = journals.bindings.remove(&replica),
        });
    }

    /// The volumes with a journal on a drive.
    pub fn volumes_on(&self, drive: DriveId) -> Vec<VolumeId> {
        let has_one = |journals: &VolumeJournals| {
            journals.ready.contains_key(&drive) || journals.bindings.values().any(|on| *on == drive)
        };
        let volumes = self.volumes();
        volumes.iter().filter(|(_, journals)| has_one(journals)).map(|(volume, _)| *volume).collect()
    }

    /// The drive of the journal that a replica is behind, if it is behind one.
    pub fn drive_of(&self, volume: VolumeId, replica: ExtentReplica) -> Option<DriveId> {
        self.volumes().get(&volume)?.bindings.get(&replica).copied()
    }

    /// Removes the bindings of a volume's extents from `first` on.
    pub fn cut(&self, volume: VolumeId, first: u64) {
        self.change(volume, |journals| {
            journals.bindings.retain(|(extent, _), _| u64::from(extent.0) < first)
        });
    }
}

impl Journals {
    /// The drives for a replica's journal, if the replica should have one: those with the fewest replicas of the
    /// volume behind their journals come first.
    ///
    /// Replicas on the drives in `going` are about to be removed and do not count.
    fn places_for_journal(
        &self,
        volume: &VolumeRecord,
        (extent, slot): ExtentReplica,
        bindings: &BTreeMap<ExtentReplica, DriveId>,
        going: &[DriveId],
    ) -> Vec<DriveId> {
        let model = self.core.model();
        let replicas: Vec<(usize, DriveId)> = volume.placement.replicas_of(extent).collect();
        let Some((_, slow)) = replicas.iter().find(|(other, _)| *other == slot) else { return Vec::new() };
        // Its successor may be behind the same journal: a volume may have no other journal drive.
        let is_followed = |other: usize| {
            let goes = |(slot, drive): &(usize, DriveId)| *slot == other && going.contains(drive);
            volume.is_promised_journals() && replicas.iter().any(goes)
        };
        let is_near = |drive: DriveId| {
            let has_replica = !going.contains(&drive) && replicas.iter().any(|(_, other)| *other == drive);
            let mut others = bindings.iter().filter(|((of, other), _)| *of == extent && *other != slot);
            has_replica || others.any(|((_, other), on)| *on == drive && !is_followed(*other))
        };
        let open = model.open.get(&volume.id);
        let has_failed = |drive: DriveId| open.is_some_and(|open| open.has_failed_journal(drive));
        let drives = journal_drives(&model, volume, *slow).into_iter().map(|drive| drive.id);
        let mut drives: Vec<DriveId> =
            drives.filter(|drive| !is_near(*drive) && !has_failed(*drive)).collect();
        drives.sort_by_key(|drive| bindings.values().filter(|on| *on == drive).count());
        drives
    }

    /// A journal for a replica, made if there is none; `None` if no drive can take one. The replica is not bound yet.
    ///
    /// Replicas on the drives in `going` are about to be removed and do not count.
    fn journal_for(
        &self,
        volume: &VolumeRecord,
        replica: ExtentReplica,
        bindings: &BTreeMap<ExtentReplica, DriveId>,
        going: &[DriveId],
    ) -> Outcome<Option<Behind>> {
        for drive in self.places_for_journal(volume, replica, bindings, going) {
            if let Some(behind) = self.ready_journal(volume, drive)? {
                return Ok(Some(behind));
            }
        }
        Ok(None)
    }

    /// A journal for one more replica of an open volume, if a drive can take one.
    ///
    /// # Errors
    /// Full if there is none, the volume's I/O profile promises one, and the replica is not needed for redundancy.
    pub(crate) fn journal_for_one_more(
        &self,
        volume: &VolumeRecord,
        replica: ExtentReplica,
        going: &[DriveId],
        is_needed: bool,
    ) -> Outcome<Option<Behind>> {
        let behind = self.journal_for(volume, replica, &self.bindings(volume.id), going)?;
        if behind.is_none() && !is_needed {
            self.refuse_without_journal(volume)?;
        }
        Ok(behind)
    }

    /// Makes the journals of a new volume as far as there are suitable drives, so that replicas can be bound to them
    /// later.
    ///
    /// # Errors
    /// Full if no drive can take a journal that the volume's I/O profile promises.
    pub(crate) fn make_journals(&self, volume: &VolumeRecord) -> Outcome<()> {
        self.choose(volume, ExtentIndex::all_of(volume.size_bytes)).map(|_| ())
    }

    /// Binds new replicas of a volume to journals, as far as there are suitable drives. Their files are not in use,
    /// and complete without the journals. The metadata of a replica may differ by extent.
    ///
    /// Returns the bound replicas with the journals' drives.
    pub(crate) fn put_behind_journals(
        &self,
        volume: &VolumeRecord,
        extents: impl Iterator<Item = ExtentIndex>,
        metadata: impl Fn(ExtentIndex) -> Option<ReplicaMetadata>,
    ) -> Outcome<Vec<(ExtentReplica, DriveId)>> {
        let chosen = self.choose(volume, extents)?;
        self.note_behind(volume, &chosen, metadata)?;
        Ok(chosen.into_iter().map(|(replica, _, behind)| (replica, behind.drive)).collect())
    }

    /// The journals that new replicas of a volume go behind, which are made if they do not exist.
    fn choose(
        &self,
        volume: &VolumeRecord,
        extents: impl Iterator<Item = ExtentIndex>,
    ) -> Outcome<Vec<(ExtentReplica, DriveId, Behind)>> {
        let mut bindings = self.bindings(volume.id);
        let mut chosen = Vec::new();
        for extent in extents {
            for (slot, slow) in volume.placement.replicas_of(extent) {
                let replica = (extent, slot);
                let Some(behind) = self.journal_for(volume, replica, &bindings, &[])? else {
                    self.refuse_without_journal(volume)?;
                    continue;
                };
                bindings.insert(replica, behind.drive);
                chosen.push((replica, slow, behind));
            }
        }
        Ok(chosen)
    }

    /// Refuses a new replica without a journal if the volume's I/O profile promises one.
    fn refuse_without_journal(&self, volume: &VolumeRecord) -> Outcome<()> {
        if !volume.is_promised_journals() {
            return Ok(());
        }
        let size = Size(self.size_bytes);
        Err(ControlError::full(format!(
            "no journal drive has room for another write journal of {size}, which each replica of {} needs; \
             'weir journal add' adds a drive",
            volume.title()
        )))
    }

    /// Refuses a volume whose I/O profile promises journals if there are fewer journal drives than replicas, without
    /// these drives.
    pub(crate) fn refuse_too_few_drives(
        &self,
        volume: &VolumeRecord,
        without: &BTreeSet<DriveId>,
    ) -> Outcome<()> {
        let model = self.core.model();
        let is_left = |drive: &&Drive| {
            let record = &drive.record;
            let is_usable = drive.store.is_ok() && !record.is_draining;
            record.role == DriveRole::Journal && is_usable && !without.contains(&record.id)
        };
        let left = model.drives.values().filter(is_left).count();
        if !volume.is_promised_journals() || left >= usize::from(volume.replicas) {
            return Ok(());
        }
        Err(ControlError::refused(format!(
            "{} has the I/O profile journal and needs {} journal drives, where there would be {left}; 'weir journal add' \
             adds one",
            volume.title(),
            volume.replicas
        )))
    }

    /// Writes the markers of new replicas durably, and their replica metadata beside the journals.
    fn note_behind(
        &self,
        volume: &VolumeRecord,
        chosen: &[(ExtentReplica, DriveId, Behind)],
        metadata: impl Fn(ExtentIndex) -> Option<ReplicaMetadata>,
    ) -> Outcome<()> {
        let slow: BTreeSet<DriveId> = chosen.iter().map(|(_, slow, _)| *slow).collect();
        for drive in slow {
            let own = chosen.iter().filter(|(_, slow, _)| *slow == drive);
            let own: Vec<(ExtentIndex, Behind)> =
                own.map(|((extent, _), _, behind)| (*extent, *behind)).collect();
            self.core.store(drive)?.put_behind(volume.id, &own)?;
        }
        let fast: BTreeSet<DriveId> = chosen.iter().map(|(_, _, behind)| behind.drive).collect();
        for drive in fast {
            let store = self.core.store(drive)?;
            let (folder, writes) = (store.journal(volume.id), store.begin_writes()?);
            for ((extent, slot), ..) in chosen.iter().filter(|(_, _, behind)| behind.drive == drive) {
                let Some(metadata) = metadata(*extent) else { continue };
                let path = journaled_metadata_path(&folder, *extent, *slot);
                replica_metadata::write_new(&path, &metadata).map_err(|source| StoreError {
                    action: "create",
                    path,
                    source,
                })?;
            }
            writes.make_durable()?;
        }
        Ok(())
    }

    /// The journal of a volume on a drive, made if there is none. `None` if the drive lacks space: the
    /// replica then has no journal.
    fn ready_journal(&self, volume: &VolumeRecord, drive: DriveId) -> Outcome<Option<Behind>> {
        if let Some(journal) = self.of(volume.id).ready.get(&drive) {
            return Ok(Some(Behind { drive, journal: *journal }));
        }
        let store = self.core.store(drive)?;
        // A journal that lies here has no bound replica, or it would be ready.
        store.remove_journal(volume.id)?;
        let journal = match store.create_journal(volume.id, self.size_bytes) {
            Err(error) if error.is_full() => {
                tracing::warn!(volume = %volume.id, %drive, %error, "no space for a write journal");
                return Ok(None);
            }
            journal => journal?,
        };
        if self.core.model().open.contains_key(&volume.id) {
            let ReadyJournal { core, file, size_bytes, .. } = store.open_journal(volume.id)?;
            let home = self.journal_home(volume, drive)?;
            let directory = store.journal(volume.id);
            let (bindings, keeps) = (Vec::new(), Vec::new());
            let spec = JournalSpec { home, directory, core, file, size_bytes, bindings, keeps };
            self.core.engine.add_journal(volume.id, spec)?;
        }
        self.change(volume.id, |journals| journals.ready.insert(drive, journal));
        Ok(Some(Behind { drive, journal }))
    }

    /// Binds one more replica of an open volume to a journal. The replica's file was just made.
    pub(crate) fn put_replica_behind(
        &self,
        volume: &VolumeRecord,
        replica: ExtentReplica,
        slow: DriveId,
        behind: Behind,
    ) -> Outcome<()> {
        self.forget_metadata(volume.id, replica, behind.drive)?;
        Ok(self.core.store(slow)?.put_behind(volume.id, &[(replica.0, behind)])?)
    }

    /// Removes the binding of a deleted extent replica.
    pub(crate) fn leave_journal(&self, volume: VolumeId, replica: ExtentReplica) -> Outcome<()> {
        let drive = self.bindings(volume).get(&replica).copied();
        self.note(volume, replica, None);
        drive
            .filter(|drive| self.core.store(*drive).is_ok())
            .map_or(Ok(()), |drive| self.forget_metadata(volume, replica, drive))
    }

    fn forget_metadata(
        &self,
        volume: VolumeId,
        (extent, slot): ExtentReplica,
        drive: DriveId,
    ) -> Outcome<()> {
        let path = journaled_metadata_path(&self.core.store(drive)?.journal(volume), extent, slot);
        match std::fs::remove_file(&path) {
            Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                Err(StoreError { action: "remove", path, source }.into())
            }
            _ => Ok(()),
        }
    }

    /// Recovers the journals of a volume that is about to be served, on all present drives.
    pub(crate) fn open_journals(&self, volume: &VolumeRecord) -> Outcome<Vec<JournalSpec>> {
        self.volumes().remove(&volume.id);
        if volume.may_have_journals() { self.recover_journals(volume) } else { Ok(Vec::new()) }
    }

    /// Recovers the journals of an open volume that were unavailable, because their drives were missing.
    pub(crate) fn attach_journals(&self, volume: &VolumeRecord) -> Outcome<()> {
        for spec in self.recover_journals(volume)? {
            self.core.engine.add_journal(volume.id, spec)?;
        }
        Ok(())
    }

    fn recover_journals(&self, volume: &VolumeRecord) -> Outcome<Vec<JournalSpec>> {
        let ready = self.of(volume.id).ready;
        let is_new =
            |drive: &DriveId, store: &Store| !ready.contains_key(drive) && store.journal(volume.id).exists();
        let found: Vec<_> =
            self.core.stores().into_iter().filter(|(drive, store)| is_new(drive, store)).collect();
        if found.is_empty() {
            return Ok(Vec::new());
        }
        let signs = self.signs(volume);
        let mut specs = Vec::new();
        for (drive, store) in found {
            match store.open_journal(volume.id) {
                Ok(journal) => specs.extend(self.take_journal((volume, drive), &store, journal, &signs)?),
                Err(error) => {
                    let message = format!(
                        "a write journal of volume '{}' is lost, and what is behind it is made anew: {error}",
                        volume.export_name()
                    );
                    tracing::error!("{message}");
                    self.core.alarms.raise(message);
                }
            }
        }
        Ok(specs)
    }

    /// Takes a recovered journal into use; `None` if no replica is behind it.
    fn take_journal(
        &self,
        (volume, drive): (&VolumeRecord, DriveId),
        store: &Store,
        journal: ReadyJournal,
        signs: &BTreeMap<ExtentReplica, Sign>,
    ) -> Outcome<Option<JournalSpec>> {
        let ReadyJournal { id, core, file, size_bytes } = journal;
        let behind = Behind { drive, journal: id };
        let held: BTreeSet<ExtentReplica> =
            core.files().map(|(key, _)| (key.extent, usize::from(key.replica))).collect();
        let (mut bindings, mut keeps) = (Vec::new(), Vec::new());
        for (replica, sign) in signs {
            match sign {
                Sign::Behind(slow, other) if *other == behind && held.contains(replica) => {
                    match Descriptor::open_direct(slow) {
                        Ok(file) => bindings.push((*replica, Some(file))),
                        // The replica rejoins later, like one that was unreachable.
                        Err(_) => keeps.push(*replica),
                    }
                }
                Sign::Behind(_, other) if *other == behind => bindings.push((*replica, None)),
                Sign::Unknown => keeps.push(*replica),
                Sign::Behind(..) | Sign::Direct => {}
            }
        }
        if bindings.is_empty() && keeps.is_empty() {
            store.remove_journal(volume.id)?;
            return Ok(None);
        }
        self.change(volume.id, |journals| {
            journals.ready.insert(drive, id);
            journals.bindings.extend(bindings.iter().map(|(replica, _)| (*replica, drive)));
        });
        let (home, directory) = (self.journal_home(volume, drive)?, store.journal(volume.id));
        Ok(Some(JournalSpec { home, directory, core, file, size_bytes, bindings, keeps }))
    }

    /// The markers of all replicas of a volume.
    ///
    /// An uncertain marker never counts as "no journal", because a journal discards the records of unbound
    /// replicas.
    fn signs(&self, volume: &VolumeRecord) -> BTreeMap<ExtentReplica, Sign> {
        let folders: BTreeMap<DriveId, PathBuf> = self
            .core
            .stores_there(volume)
            .into_iter()
            .map(|(drive, store)| (drive, store.extents(volume.id)))
            .collect();
        let sign = |extent: ExtentIndex, drive: DriveId| {
            let Some(folder) = folders.get(&drive) else { return Sign::Unknown };
            let slow = folder.join(extent_file_name(extent));
            match read_marker(folder, extent) {
                Ok(Some(behind)) => Sign::Behind(slow, behind),
                // A missing marker could also mean that the filesystem is not mounted.
                Ok(None) if slow.exists() => Sign::Direct,
                Ok(None) | Err(_) => Sign::Unknown,
            }
        };
        let of_extent = |extent: ExtentIndex| {
            let replicas = volume.placement.replicas_of(extent);
            replicas.map(|(slot, drive)| ((extent, slot), sign(extent, drive))).collect::<Vec<_>>()
        };
        ExtentIndex::all_of(volume.size_bytes).flat_map(of_extent).collect()
    }

    /// The drive of a journal as a home of its volume.
    fn journal_home(&self, volume: &VolumeRecord, drive: DriveId) -> Outcome<VolumeHome> {
        let model = self.core.model();
        let record =
            &model.drives.get(&drive).ok_or_else(|| ControlError::internal("a drive is gone"))?.record;
        let directory = extents_folder(&record.path, volume.id);
        Ok(VolumeHome { drive: record.spec(), directory, read_cost: record.read_cost() })
    }

    /// The journal binding of a replica on a present drive.
    pub(crate) fn journal_of(
        &self,
        volume: VolumeId,
        slow: DriveId,
        (extent, slot): ExtentReplica,
    ) -> JournalPlace {
        let Ok(store) = self.core.store(slow) else { return JournalPlace::Lost };
        let behind = match read_marker(&store.extents(volume), extent) {
            Ok(None) => return JournalPlace::Direct,
            Ok(Some(behind)) => behind,
            Err(error) => {
                tracing::error!(%volume, %error, "a replica is not used: it cannot be told behind which journal it is");
                return JournalPlace::Lost;
            }
        };
        let Ok(fast) = self.core.store(behind.drive) else {
            let is_known = self.core.model().drives.contains_key(&behind.drive);
            return if is_known { JournalPlace::Waiting } else { JournalPlace::Lost };
        };
        let is_ready = self.of(volume).ready.get(&behind.drive) == Some(&behind.journal);
        let open = self.core.model().open.get(&volume).cloned();
        let is_lost = open.is_some_and(|open| open.has_lost_journal((extent, slot), behind.drive));
        let metadata = journaled_metadata_path(&fast.journal(volume), extent, slot);
        if is_ready && !is_lost {
            JournalPlace::Journaled(behind.drive, metadata)
        } else {
            JournalPlace::Lost
        }
    }

    /// The replicas of a volume that are behind its journal on a drive, according to the markers beside them.
    pub(crate) fn replicas_behind(&self, volume: &VolumeRecord, drive: DriveId) -> BTreeSet<ExtentReplica> {
        let signs = self.signs(volume).into_iter();
        let behind =
            signs.filter(|(_, sign)| matches!(sign, Sign::Behind(_, behind) if behind.drive == drive));
        behind.map(|(replica, _)| replica).collect()
    }

    /// Removes journals of a volume that no replica is behind any more. Returns false if a journal is still
    /// in use for a moment.
    pub(crate) fn drop_unused_journals(&self, volume: &VolumeRecord) -> Outcome<bool> {
        let VolumeJournals { ready, bindings } = self.of(volume.id);
        let unused: Vec<DriveId> =
            ready.into_keys().filter(|drive| bindings.values().all(|other| other != drive)).collect();
        if unused.is_empty() || self.signs(volume).values().any(|sign| matches!(sign, Sign::Unknown)) {
            return Ok(true);
        }
        for drive in unused {
            if !self.core.engine.drop_journal(volume.id, drive)? {
                return Ok(false);
            }
            self.change(volume.id, |journals| journals.ready.remove(&drive));
            if let Ok(store) = self.core.store(drive) {
                store.remove_journal(volume.id)?;
            }
        }
        Ok(true)
    }

    /// The missing drives that a volume may have journals on: journal drives if its profile promises journals or it has
    /// some, and data drives if it follows a template.
    pub(crate) fn absent_drives(&self, volume: &VolumeRecord) -> BTreeSet<DriveId> {
        let VolumeJournals { ready, bindings } = self.of(volume.id);
        let has_some = volume.is_promised_journals() || !ready.is_empty() || !bindings.is_empty();
        let model = self.core.model();
        let may_have_one = |drive: &DriveRecord| match drive.role {
            DriveRole::Journal => has_some,
            DriveRole::Data => volume.template.is_some(),
        };
        let missing =
            model.drives.values().filter(|drive| drive.store.is_err() && may_have_one(&drive.record));
        missing.map(|drive| drive.record.id).collect()
    }

    /// Removes the journals of a deleted volume from the drives that are present.
    pub(crate) fn remove_journals(&self, volume: VolumeId) {
        self.volumes().remove(&volume);
        for (_, store) in self.core.stores() {
            if let Err(error) = store.remove_journal(volume) {
                tracing::warn!(%volume, %error, "a write journal of a deleted volume stays");
            }
        }
    }

    /// Drains the journals from a drive: replicas behind them are bound to other journals. Journals of
    /// unknown volumes are removed, unless a snapshot in progress makes the volume.
    pub(crate) fn empty_of_journals(&self, drive: DriveId) -> Outcome<(Vec<VolumeId>, Outcome<()>)> {
        let mut journaled = Vec::new();
        let Ok(store) = self.core.store(drive) else { return Ok((journaled, Ok(()))) };
        let is_being_made = |volume: VolumeId| self.core.snapshots_in_progress.concern(volume);
        store.remove_journal_remains(is_being_made)?;
        for volume in store.journaled_volumes()? {
            // In this order: a volume is known before it counts as made.
            let is_spared = is_being_made(volume);
            let record = self.core.model().volumes.get(&volume).map(|volume| volume.record.clone());
            let Some(record) = record else {
                if !is_spared {
                    store.remove_journal(volume)?;
                }
                continue;
            };
            if !self.core.model().open.contains_key(&volume) {
                let refused = ControlError::refused(format!(
                    "it has a write journal of volume '{}', which is not served; 'weir status' says why",
                    record.export_name()
                ));
                return Ok((journaled, Err(refused)));
            }
            journaled.push(volume);
        }
        Ok((journaled, Ok(())))
    }

    /// The replicas that are behind a journal drive's journal or not, against the volume's I/O profile. A replica whose
    /// drive or journal drive is missing is not among them: it may be as it should.
    pub(crate) fn against_profile(&self, volume: &VolumeRecord) -> AgainstProfile {
        let bindings = self.bindings(volume.id);
        let journal_drives: BTreeSet<DriveId> = {
            let model = self.core.model();
            let drives = model.drives.values().map(|drive| &drive.record);
            drives.filter(|drive| drive.role == DriveRole::Journal).map(|drive| drive.id).collect()
        };
        let is_on_journal_drive = |replica: &ExtentReplica| {
            bindings.get(replica).is_some_and(|drive| journal_drives.contains(drive))
        };
        if !volume.is_promised_journals() {
            let behind = bindings.keys().filter(|replica| is_on_journal_drive(replica)).copied().collect();
            return AgainstProfile { replaceable: behind, waiting: BTreeSet::new() };
        }
        let replicas = ExtentIndex::all_of(volume.size_bytes).flat_map(|extent| {
            volume.placement.replicas_of(extent).map(move |(slot, drive)| ((extent, slot), drive))
        });
        let is_known = |(replica, drive): &(ExtentReplica, DriveId)| {
            bindings.contains_key(replica)
                || self.journal_of(volume.id, *drive, *replica) == JournalPlace::Direct
        };
        let others = replicas.filter(|(replica, _)| !is_on_journal_drive(replica)).filter(is_known);
        // Enough others have a journal, or there is a journal drive for the replica that takes its place.
        let can_be_replaced = |replica: &ExtentReplica| {
            let others = bindings.keys().filter(|other| other.0 == replica.0 && *other != replica);
            others.count() >= usize::from(volume.replicas)
                || !self.places_for_journal(volume, *replica, &bindings, &[]).is_empty()
        };
        let (replaceable, waiting) = others.map(|(replica, _)| replica).partition(can_be_replaced);
        AgainstProfile { replaceable, waiting }
    }

    /// True if any replica of a volume on a drive is behind a journal.
    pub(crate) fn is_behind_any(&self, volume: &VolumeRecord, slow: DriveId) -> bool {
        let is_on = |(extent, slot): ExtentReplica| {
            volume.placement.replicas_of(extent).any(|(other, drive)| other == slot && drive == slow)
        };
        self.bindings(volume.id).into_keys().any(is_on)
    }

    /// Bytes that the journals of a volume hold, at most.
    pub(crate) fn held_bytes(&self, volume: &VolumeRecord) -> u64 {
        let open = self.core.model().open.get(&volume.id).cloned();
        let usages = open.map(|open| open.statistics().journals.usages()).unwrap_or_default();
        usages.values().map(|usage| usage.used_bytes).sum()
    }

    /// True if a journal lies on a drive that is present.
    pub(crate) fn has_journals(&self, drive: DriveId) -> bool {
        self.core.store(drive).is_ok_and(|store| store.has_journals().unwrap_or(false))
    }
}

/// Candidate drives for the journal of a replica on `slow`. Drives in the replica's zone come first.
fn journal_drives<'a>(model: &'a Model, volume: &VolumeRecord, slow: DriveId) -> Vec<&'a DriveRecord> {
    let fastest = faster_class(model, volume, slow);
    let suits = |drive: &&DriveRecord| {
        let is_meant = if volume.is_promised_journals() {
            drive.role == DriveRole::Journal
        } else {
            drive.role == DriveRole::Data && fastest.is_some() && drive.class == fastest
        };
        is_meant && !drive.is_draining && model.is_there(drive.id)
    };
    let mut drives: Vec<&DriveRecord> =
        model.drives.values().map(|drive| &drive.record).filter(suits).collect();
    let zone = |drive: &DriveRecord| model.domain_of(drive).zone;
    let own = model.drives.get(&slow).and_then(|drive| zone(&drive.record));
    drives.sort_by_key(|drive| zone(drive) != own);
    drives
}

/// The fastest class of the volume's template, if it is faster than the drive of a replica.
fn faster_class(model: &Model, volume: &VolumeRecord, slow: DriveId) -> Option<Class> {
    let fastest = model.template_of(volume)?.replicas.iter().copied().max();
    let class = model.drives.get(&slow).and_then(|drive| drive.record.class);
    fastest.filter(|_| class < fastest)
}
