//! The replicas of one extent in the fake engine: their states, and the metadata that lies beside them.

use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};

use weir_engine_interface::{Content, FileIdentity, OpenFile, VolumeHome, VolumeLayout, home_beyond_list};
use weir_store::extent_file::open_whole;
use weir_store::journal::journaled_metadata_path;
use weir_store::replica_metadata::{self, metadata_file_name};
use weir_store::{epoch_record, extent_file_name, snapshot};
use weir_types::bounds::{EXTENT_BYTES, REPLICA_SLOTS_MAX};
use weir_types::{DriveId, ExtentIndex, VolumeId};
use weir_volume::mirror::{RecoveredExtent, RegionSet, ReplicaMetadata, ReplicaState, ReplicaStates, Slots};

/// One replica of an extent.
#[derive(Clone, Debug, Default)]
pub struct FakeReplica {
    /// Its drive, and the folder of its file; `None` if there is no replica.
    pub home: Option<(DriveId, PathBuf)>,
    /// It can be reached.
    pub is_there: bool,
    /// Control has recorded it, so that it may come in sync.
    pub is_confirmed: bool,
    /// It lost the data in its journal.
    pub is_invalidated: bool,
    /// The drive and the folder of the journal that it is behind.
    pub journal: Option<(DriveId, PathBuf)>,
    /// Its file, if it was opened.
    pub file: Option<OpenFile>,
}

/// An extent with all its replicas.
#[derive(Clone, Debug)]
pub struct FakeExtent {
    index: ExtentIndex,
    pub metadata: ReplicaMetadata,
    epoch_allocated: u64,
    pub replicas: [FakeReplica; REPLICA_SLOTS_MAX],
}

impl FakeReplica {
    /// True if the replica, or its journal, is on a drive.
    pub fn relies_on(&self, drive: DriveId) -> bool {
        let drives = [&self.home, &self.journal];
        drives.into_iter().flatten().any(|(own, _)| *own == drive)
    }

    fn path(&self, extent: ExtentIndex) -> Option<PathBuf> {
        self.home.as_ref().map(|(_, folder)| folder.join(extent_file_name(extent)))
    }

    fn metadata_path(&self, extent: ExtentIndex, slot: usize) -> Option<PathBuf> {
        match &self.journal {
            Some((_, folder)) => Some(journaled_metadata_path(folder, extent, slot)),
            None => self.home.as_ref().map(|(_, folder)| folder.join(metadata_file_name(extent))),
        }
    }

    /// Opens the replica's file, unless it is open.
    fn open(&mut self, volume: VolumeId, (extent, slot): (ExtentIndex, usize)) -> io::Result<PathBuf> {
        let path = self.path(extent).ok_or(io::ErrorKind::NotFound)?;
        if self.file.is_none() {
            let identity = FileIdentity::of(&std::fs::symlink_metadata(&path)?);
            let content = Content::Replica(extent, slot);
            self.file =
                Some(OpenFile { volume, content, path: path.clone(), identity, size_bytes: EXTENT_BYTES });
        }
        Ok(path)
    }
}

impl FakeExtent {
    /// An extent as control describes it; without a recovered state, an extent that never had replicas.
    pub fn new(index: ExtentIndex, layout: &VolumeLayout, recovered: Option<RecoveredExtent>) -> FakeExtent {
        let mut replicas: [FakeReplica; REPLICA_SLOTS_MAX] = Default::default();
        for (slot, (places, replica)) in layout.replicas.iter().zip(&mut replicas).enumerate() {
            let home = places.get(index.index()).copied().unwrap_or_else(|| home_beyond_list(slot));
            replica.home = layout.homes.get(usize::from(home)).map(place_of);
            (replica.is_there, replica.is_confirmed) = (replica.home.is_some(), true);
        }
        let Some(recovered) = recovered else {
            return FakeExtent { index, metadata: ReplicaMetadata::default(), epoch_allocated: 0, replicas };
        };
        let RecoveredExtent { metadata, is_there, out_of_sync, epoch_allocated, .. } = recovered;
        let mut extent = FakeExtent { index, metadata, epoch_allocated, replicas };
        for (slot, out_of_sync) in out_of_sync.into_iter().enumerate() {
            extent.replicas[slot].is_there = is_there[slot];
            if !out_of_sync.is_empty() || !is_there[slot] {
                extent.make_stale(slot);
            }
            extent.metadata.out_of_sync[slot].add(&out_of_sync);
        }
        extent
    }

    /// The states of the replicas. A replica that never had another has no recorded state: it is in sync.
    pub fn states(&self) -> ReplicaStates {
        let states = self.metadata.replica_states;
        if states.iter().any(|state| *state != ReplicaState::Absent) {
            return states;
        }
        std::array::from_fn(|slot| match self.replicas[slot].home {
            Some(_) => ReplicaState::InSync,
            None => ReplicaState::Absent,
        })
    }

    /// Replicas in sync that can be reached.
    pub fn in_sync(&self) -> Slots {
        let states = self.states();
        let is_in_sync =
            |slot: &usize| states[*slot] == ReplicaState::InSync && self.replicas[*slot].is_there;
        (0..REPLICA_SLOTS_MAX).filter(is_in_sync).collect()
    }

    /// Replicas that cannot be reached.
    pub fn away(&self) -> Slots {
        let states = self.states();
        let is_away = |slot: &usize| states[*slot] != ReplicaState::Absent && !self.replicas[*slot].is_there;
        (0..REPLICA_SLOTS_MAX).filter(is_away).collect()
    }

    /// Stale replicas that can be brought in sync.
    pub fn wanting(&self) -> Slots {
        let is_wanting = |slot: &usize| {
            let replica = &self.replicas[*slot];
            let is_stale = self.metadata.replica_states[*slot] == ReplicaState::Stale;
            is_stale && replica.is_there && replica.is_confirmed && self.in_sync().has_other(*slot)
        };
        (0..REPLICA_SLOTS_MAX).filter(is_wanting).collect()
    }

    /// A replica is stale from now on if another one is in sync. The last one stays in sync.
    fn make_stale(&mut self, slot: usize) {
        if self.metadata.replica_states[slot] == ReplicaState::InSync && self.in_sync().has_other(slot) {
            self.metadata.replica_states[slot] = ReplicaState::Stale;
        }
    }

    /// A replica cannot be reached from now on.
    pub fn fail(&mut self, slot: usize, epoch_records: &Path) {
        self.replicas[slot].is_there = false;
        self.make_stale(slot);
        if self.in_sync().has_other(slot) {
            // If it cannot be written now, the next write of the metadata has this state too.
            let _ = self.write_metadata(epoch_records);
        }
    }

    /// Adds a replica that lacks everything.
    pub fn add(&mut self, slot: usize, replica: FakeReplica, epoch_records: &Path) -> Result<(), String> {
        let before = self.clone();
        self.metadata.replica_states = self.states();
        self.metadata.replica_states[slot] = ReplicaState::Stale;
        (self.metadata.out_of_sync[slot], self.metadata.taken[slot]) = (RegionSet::all(), 0);
        self.replicas[slot] = replica;
        self.write_metadata(epoch_records).inspect_err(|_| *self = before)
    }

    /// Removes a replica; false if no other one is in sync.
    pub fn remove(&mut self, slot: usize, epoch_records: &Path) -> bool {
        if !self.in_sync().has_other(slot) {
            return false;
        }
        self.metadata.replica_states = self.states();
        self.metadata.replica_states[slot] = ReplicaState::Absent;
        self.metadata.out_of_sync[slot] = RegionSet::default();
        self.replicas[slot] = FakeReplica::default();
        self.write_metadata(epoch_records).is_ok()
    }

    /// Takes a replica back that was out of reach. It lacks everything if the metadata beside it is not what
    /// was last written there. False if there is no such replica, or none to resync it from.
    pub fn rejoin(&mut self, slot: usize, found: &ReplicaMetadata) -> bool {
        let is_known = self.away().contains(slot) && !self.replicas[slot].is_invalidated;
        if !is_known || !self.in_sync().has_other(slot) {
            return false;
        }
        let may_be = self.metadata.taken[slot]..=self.metadata.number;
        if !may_be.contains(&found.number) {
            self.metadata.out_of_sync[slot] = RegionSet::all();
        }
        (self.replicas[slot].is_there, self.replicas[slot].file) = (true, None);
        self.make_stale(slot);
        true
    }

    /// Looks whether the file of a replica is whole.
    pub fn look_at_file(&self, slot: usize) -> Result<(), String> {
        let path = self.replicas[slot].path(self.index).unwrap_or_default();
        open_whole(&path).map(drop).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Brings a replica in sync with another one. All of its file is replaced if it lacks anything.
    pub fn resync(&mut self, volume: VolumeId, slot: usize, epoch_records: &Path) -> Result<(), String> {
        let source = self.in_sync().iter().find(|other| *other != slot).ok_or("no replica is in sync")?;
        let resynced = self.replace_content(volume, (source, slot));
        resynced.map_err(|error| error.to_string())?;
        self.metadata.replica_states[slot] = ReplicaState::InSync;
        self.metadata.out_of_sync[slot] = RegionSet::default();
        self.write_metadata(epoch_records)
    }

    fn replace_content(&mut self, volume: VolumeId, (source, slot): (usize, usize)) -> io::Result<()> {
        let source = self.replicas[source].open(volume, (self.index, source))?;
        let target = self.replicas[slot].open(volume, (self.index, slot))?;
        if self.metadata.out_of_sync[slot].is_empty() {
            return Ok(());
        }
        let file = OpenOptions::new().write(true).open(&target)?;
        file.set_len(0)?;
        file.set_len(EXTENT_BYTES)?;
        let (mut position, end) = (0, EXTENT_BYTES as u32);
        while position < end {
            position = snapshot::snapshot(&source, &target, (position, end - position), false)?;
        }
        Ok(())
    }

    /// Writes the metadata beside all replicas that can be reached, with a new epoch. A replica beside which it
    /// cannot be written is out of reach from then on.
    fn write_metadata(&mut self, epoch_records: &Path) -> Result<(), String> {
        let epoch = self.metadata.epoch.max(self.epoch_allocated) + 1;
        let described = |error: io::Error| error.to_string();
        epoch_record::reserve(epoch_records, self.index, epoch).map_err(described)?;
        (self.metadata.epoch, self.epoch_allocated) = (epoch, epoch);
        self.metadata.number += 1;
        let (metadata, number) = (self.metadata.clone(), self.metadata.number);
        for slot in 0..REPLICA_SLOTS_MAX {
            let replica = &mut self.replicas[slot];
            let is_wanted = replica.is_there && metadata.replica_states[slot] != ReplicaState::Absent;
            let path = replica.metadata_path(self.index, slot).filter(|_| is_wanted);
            match path.map(|path| replica_metadata::write(&path, &metadata)) {
                None => {}
                Some(Ok(())) => self.metadata.taken[slot] = number,
                Some(Err(_)) => replica.is_there = false,
            }
        }
        if self.in_sync().is_empty() {
            return Err("its metadata cannot be written".to_owned());
        }
        epoch_record::know(epoch_records, self.index, epoch).map_err(described)
    }
}

/// The drive and the folder of a home.
pub fn place_of(home: &VolumeHome) -> (DriveId, PathBuf) {
    (home.drive.id, home.directory.clone())
}
