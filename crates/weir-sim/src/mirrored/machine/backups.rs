//! Backups of replicas of the simulated machine, which take the place of the replicas while a drive is away.
//!
//! The folder of the drive was restored from a backup, or an earlier clone of the drive replaced it.

use std::collections::{BTreeMap, BTreeSet};

use weir_types::ExtentIndex;
use weir_types::random::Random;
use weir_volume::mirror::{ReplicaMetadata, ReplicaState, ReplicaStates};

use super::checksum_file::ChecksumFile;
use super::drive::Drive;
use super::journal::ExtentReplica;
use crate::disk::File;
use crate::requests::{random_extent, random_slot};

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
    pub fn states_changed(&mut self, extent: ExtentIndex, replica_states: &ReplicaStates) {
        let is_in_sync = |slot: usize| replica_states[slot] == ReplicaState::InSync;
        self.in_sync.retain(|(slot, of)| *of != extent || is_in_sync(*slot));
    }

    pub fn forget_extent(&mut self, gone: ExtentIndex) {
        self.in_sync.retain(|(_, extent)| *extent != gone);
    }

    /// Backs up a random replica.
    pub fn back_up(&mut self, drives: &[Drive], random: &mut Random) {
        let (extent, slot) = (random_extent(random), random_slot(random));
        // The oldest backup lacks the most, so it is seldom replaced.
        if self.older.contains_key(&(slot, extent)) && !random.chance(1, 50) {
            return;
        }
        let (drive, index) = (&drives[slot], extent.index());
        if let Some(metadata) = drive.all_metadata[index].clone().filter(|_| drive.is_made[index]) {
            let (file, block_checksums) = (drive.files[index].clone(), drive.block_checksums[index].clone());
            self.older.insert((slot, extent), OlderState { file, metadata, block_checksums });
        }
    }

    /// Puts the backup of a replica in its place, if there is one.
    pub fn restore(&mut self, drives: &mut [Drive], (slot, extent): ExtentReplica, state: ReplicaState) {
        let Some(older) = self.older.get(&(slot, extent)).cloned() else { return };
        let (drive, index) = (&mut drives[slot], extent.index());
        drive.files[index] = older.file;
        drive.all_metadata[index] = Some(older.metadata);
        drive.block_checksums[index] = older.block_checksums;
        if state == ReplicaState::InSync {
            self.in_sync.insert((slot, extent));
        }
    }
}
