//! Extent replicas out of service: whether their files are whole, so that they can rejoin.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;

use weir_plan::replica_return::{self, JournalOf, Verdict};
use weir_reactor::Descriptor;
use weir_store::replica_metadata::{self, metadata_file_name};
use weir_store::{extent_fault, extent_file_name};
use weir_types::{DriveId, ExtentIndex, VolumeId};
use weir_volume::mirror::ReplicaMetadata;

use crate::extents::Extents;
use crate::journals::JournalPlace;
use crate::records::{ExtentReplica, VolumeRecord};

/// Whether an unreachable replica can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AwayState {
    /// It can be used, with this replica metadata, behind the journal on this drive or behind none.
    Whole(Option<DriveId>, Box<ReplicaMetadata>),
    /// The drive of its journal is missing.
    Waiting,
    /// Its files or its journal are damaged or gone.
    Damaged,
}

impl AwayState {
    /// The state of a replica that is not used.
    fn without_files(verdict: Verdict) -> AwayState {
        if verdict == Verdict::Wait { AwayState::Waiting } else { AwayState::Damaged }
    }
}

impl Extents {
    /// The file of a replica behind a journal, to which the journal destages.
    pub(crate) fn open_slow(
        &self,
        volume: VolumeId,
        drive: DriveId,
        extent: ExtentIndex,
    ) -> std::io::Result<OwnedFd> {
        let store = self.core.store(drive).map_err(|error| std::io::Error::other(error.message))?;
        Descriptor::open_direct(&store.extents(volume).join(extent_file_name(extent)))
    }

    /// Unreachable replicas whose drives are present, with these drives.
    pub(crate) fn replicas_away(&self, volume: &VolumeRecord) -> Vec<((ExtentIndex, usize), DriveId)> {
        let model = self.core.model();
        let Some(open) = model.open.get(&volume.id) else { return Vec::new() };
        let faults = open.faults();
        let of_extent = |extent: ExtentIndex| {
            let replicas = volume.placement.replicas_of(extent);
            replicas.map(move |(slot, drive)| ((extent, slot), drive))
        };
        let replicas = faults.away.keys().copied().flat_map(of_extent);
        let is_away = |((extent, slot), drive): &((ExtentIndex, usize), DriveId)| {
            faults.is_away(*extent, *slot) && model.is_there(*drive)
        };
        replicas.filter(is_away).collect()
    }

    /// Replicas whose files are damaged or gone, on drives that are present.
    ///
    /// The drive must be in place before and after its files are examined. Otherwise replicas on a drive that
    /// goes or comes in between would be given up and resynced in full.
    pub(crate) fn damaged_replicas(&self, volume: &VolumeRecord) -> BTreeSet<(ExtentIndex, usize)> {
        let away = self.replicas_away(volume).into_iter();
        let damaged = away.filter(|(replica, drive)| {
            let is_broken = || self.state_of(volume.id, *drive, *replica) == AwayState::Damaged;
            self.core.is_in_place(*drive) && is_broken() && self.core.is_in_place(*drive)
        });
        damaged.map(|(replica, _)| replica).collect()
    }

    /// Whether the files of a replica on a present drive can be used.
    pub(crate) fn state_of(&self, volume: VolumeId, drive: DriveId, replica: ExtentReplica) -> AwayState {
        let Ok(store) = self.core.store(drive) else { return AwayState::Damaged };
        let (folder, extent) = (store.extents(volume), replica.0);
        let place = self.journals.journal_of(volume, drive, replica);
        let (metadata, journal, journal_of) = match place {
            JournalPlace::Direct => (Some(folder.join(metadata_file_name(extent))), None, JournalOf::None),
            JournalPlace::Journaled(journal, metadata) => {
                let is_in_place = self.core.is_in_place(journal);
                (Some(metadata), Some(journal), JournalOf::Known { is_in_place })
            }
            JournalPlace::Waiting => (None, None, JournalOf::Missing),
            JournalPlace::Lost => (None, None, JournalOf::Lost),
        };
        let is_replaced = self.absences.is_replaced(drive, volume, replica);
        let before = replica_return::before_files(true, is_replaced, journal_of);
        let Some(metadata) = metadata.filter(|_| before.is_none()) else {
            return AwayState::without_files(before.unwrap_or(Verdict::Damaged));
        };
        let is_whole = extent_fault(&folder, extent).is_none();
        let found = replica_metadata::read(&metadata).ok().flatten();
        let is_journal_in_place = || journal.is_none_or(|journal| self.core.is_in_place(journal));
        match (replica_return::by_files(found.is_some(), is_whole, is_journal_in_place), found) {
            (Verdict::Usable, Some(found)) => AwayState::Whole(journal, Box::new(found)),
            (verdict, _) => AwayState::without_files(verdict),
        }
    }
}
