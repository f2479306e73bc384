//! Writes of replica metadata and epoch records on the simulated machine. Drives and the folder of the epoch records
//! are full or fail, and power fails during a write. `MetadataWrites` of the daemon decides what is written when.

use weir_types::ExtentIndex;
use weir_volume::mirror::{MetadataFault, ReplicaMetadata};

use super::Machine;
use super::work::Pending;
use crate::mirrored::settings::Sabotage;

impl Machine {
    /// Makes drives or the folder of the epoch records refuse metadata, or ends the refusal.
    pub fn change_metadata_faults(&mut self) {
        let per_ten_thousand = self.settings.metadata_faults_per_ten_thousand;
        if per_ten_thousand == 0 {
            return;
        }
        let fault = match self.random.chance(1, 2) {
            true => MetadataFault::Shortage,
            false => MetadataFault::Broken,
        };
        let is_begun = self.random.chance(per_ten_thousand, 10_000);
        // The place after the drives is the folder of the epoch records.
        let place = self.random.below(self.drives.len() as u64 + 1) as usize;
        let fault = Some(fault).filter(|_| is_begun);
        if !is_begun && !self.random.chance(1, 60) {
            return;
        }
        match self.drives.get_mut(place) {
            Some(drive) => drive.metadata_fault = fault,
            None => self.records.set_fault(fault),
        }
    }

    /// Ends all refusals of metadata.
    pub fn end_metadata_faults(&mut self) {
        self.records.set_fault(None);
        self.drives.iter_mut().for_each(|drive| drive.metadata_fault = None);
    }

    /// Ends all faults, except that folders of drives are gone.
    pub fn end_faults(&mut self) {
        self.drives.iter_mut().for_each(|drive| (drive.is_silent, drive.is_broken) = (false, false));
        self.end_metadata_faults();
    }

    /// True if metadata with a new epoch is being written.
    pub fn is_changing_epoch(&self) -> bool {
        self.operations.iter().any(|pending| match pending {
            Pending::Record { .. } => true,
            Pending::Metadata { extent, metadata, .. } => {
                metadata.epoch > self.records.last_read()[extent.index()].committed
            }
            _ => false,
        })
    }

    /// Writes an epoch record.
    pub fn write_record(
        &mut self,
        extent: ExtentIndex,
        epoch: u64,
        is_committed: bool,
    ) -> Result<(), MetadataFault> {
        let is_kept = self.random.chance(1, 2);
        self.records.keep_pages(is_kept);
        let error = if self.records.is_well() { self.record_error() } else { None };
        self.records.raise((extent, epoch, is_committed), error)
    }

    /// Records that the last replica of an extent failed. The record is retried if it fails.
    pub fn write_failure(&mut self, extent: ExtentIndex) {
        let is_kept = self.random.chance(1, 2);
        self.records.keep_pages(is_kept);
        if self.records.fail(extent).is_err() {
            self.operations.add(Pending::Failure(extent));
        }
    }

    /// Writes replica metadata.
    pub fn write_metadata(
        &mut self,
        slot: usize,
        extent: ExtentIndex,
        metadata: &ReplicaMetadata,
    ) -> Result<(), MetadataFault> {
        self.end_earlier_metadata(slot);
        let home = &self.drives[self.metadata_home(slot)];
        let is_gone = home.is_broken || home.is_absent;
        let fault = if is_gone { Some(MetadataFault::Broken) } else { home.metadata_fault };
        let is_torn = fault == Some(MetadataFault::Broken) && !is_gone && self.random.chance(1, 2);
        self.drives[slot].note_doubtful(extent, fault.is_some());
        let is_lied_about = self.settings.sabotage == Sabotage::MetadataLate && self.random.chance(1, 2);
        if (fault.is_none() || is_torn) && !is_lied_about {
            self.drives[slot].all_metadata[extent.index()] = Some(metadata.clone());
        }
        fault.map_or(Ok(()), Err)
    }

    /// Crashes during a write of metadata: it may be written or not.
    pub fn write_metadata_or_not(&mut self, pending: Pending) {
        match pending {
            Pending::Record { extent, epoch, is_committed } if self.random.chance(1, 2) => {
                // The caller of the write no longer exists.
                let _ = self.write_record(extent, epoch, is_committed);
            }
            Pending::Failure(extent) => self.write_failure(extent),
            Pending::Metadata { slot, extent, is_over_doubtful: true, .. } if self.random.chance(1, 2) => {
                self.drives[slot].all_metadata[extent.index()] = None;
            }
            Pending::Metadata { slot, extent, metadata, .. }
                if !self.drives[self.metadata_home(slot)].is_broken && self.random.chance(1, 2) =>
            {
                self.drives[slot].all_metadata[extent.index()] = Some(ReplicaMetadata::clone(&metadata));
            }
            _ => {}
        }
    }
}
