//! Backups of replicas of the simulated machine, which take the place of the replicas while a drive is away.
//!
//! The folder of the drive was restored from a backup, or an earlier clone of the drive replaced it.

use std::collections::{BTreeMap, BTreeSet};

use weir_types::bounds::REPLICA_SLOTS_MAX;
use weir_volume::mirror::{ReplicaMetadata, ReplicaState, ReplicaStates};

use super::Machine;
use super::checksum_file::ChecksumFile;
use super::journal::ExtentReplica;
use crate::disk::File;
use crate::requests::EXTENTS;

/// A backup of an extent replica.
#[derive(Clone, Debug)]
struct OlderState {
    file: File,
    metadata: ReplicaMetadata,
    block_checksums: ChecksumFile,
}

/// Backups of extent replicas, each complete, and what became of them.
#[derive(Debug, Default)]
pub(in crate::mirrored) struct Backups {
    older: BTreeMap<ExtentReplica, OlderState>,
    /// Extent replicas in an older state that the metadata still counts as in sync.
    in_sync: BTreeSet<ExtentReplica>,
}

impl Backups {
    /// True if the metadata counts a replica in an older state as in sync.
    pub fn are_believed(&self) -> bool {
        !self.in_sync.is_empty()
    }

    /// The replica states of an extent are durably these.
    pub fn states_changed(&mut self, extent: u32, replica_states: &ReplicaStates) {
        let is_in_sync = |slot: usize| replica_states[slot] == ReplicaState::InSync;
        self.in_sync.retain(|(slot, of)| *of != extent || is_in_sync(*slot));
    }

    pub fn forget_extent(&mut self, gone: u32) {
        self.in_sync.retain(|(_, extent)| *extent != gone);
    }
}

impl Machine {
    /// Backs up a replica.
    pub fn back_up(&mut self) {
        let extent = self.random.below(EXTENTS.into()) as u32;
        let slot = self.random.below(REPLICA_SLOTS_MAX as u64) as usize;
        // The oldest backup lacks the most, so it is seldom replaced.
        if self.backups.older.contains_key(&(slot, extent)) && !self.random.chance(1, 50) {
            return;
        }
        let (drive, index) = (&self.drives[slot], extent as usize);
        if let Some(metadata) = drive.all_metadata[index].clone().filter(|_| drive.is_made[index]) {
            let (file, block_checksums) = (drive.files[index].clone(), drive.block_checksums[index].clone());
            self.backups.older.insert((slot, extent), OlderState { file, metadata, block_checksums });
        }
    }

    /// Puts the backup of a replica in its place, now and then.
    pub fn restore_backup(&mut self, (slot, extent): ExtentReplica, replica_state: ReplicaState) {
        if !self.random.chance(self.settings.swaps_per_mille, 1000) {
            return;
        }
        let Some(older) = self.backups.older.get(&(slot, extent)).cloned() else { return };
        let (drive, index) = (&mut self.drives[slot], extent as usize);
        drive.files[index] = older.file;
        drive.all_metadata[index] = Some(older.metadata);
        drive.block_checksums[index] = older.block_checksums;
        if replica_state == ReplicaState::InSync {
            self.backups.in_sync.insert((slot, extent));
        }
    }
}
