//! Volumes that shrink and grow in the simulated machine: the last extent is deleted, and a new one takes its
//! place.

use weir_types::bounds::{EXTENT_BYTES, REPLICA_SLOTS_MAX};
use weir_volume::mirror::{EpochRecord, RecoveredExtent, ReplicaMetadata, ReplicaState, epoch_record};

use super::MirrorWorld;
use super::settings::Sabotage;
use crate::SECTOR_BYTES;
use crate::disk::File;
use crate::requests::EXTENTS;

/// The extent that is deleted and created again.
const LAST: u32 = EXTENTS - 1;

impl MirrorWorld {
    /// Sometimes shrinks and grows the volume, once no operation is in flight. True if this step belongs to a
    /// resize.
    pub(super) fn resize_sometimes(&mut self) -> Result<bool, String> {
        if self.settings.resizes_per_ten_thousand == 0 {
            return Ok(false);
        }
        if self.random.chance(self.settings.resizes_per_ten_thousand, 10_000) {
            self.is_resizing = self.can_be_resized();
        }
        if !self.is_resizing {
            return Ok(false);
        }
        if !self.is_quiet() {
            self.answer_one()?;
            return Ok(true);
        }
        self.is_resizing = false;
        if self.can_be_resized() {
            self.shrink_and_grow();
        }
        Ok(true)
    }

    /// True if all drives are there, records can be written and no snapshot is in progress. Otherwise the
    /// volume keeps its size.
    fn can_be_resized(&self) -> bool {
        let is_well = |slot: usize| self.reachable[slot] && !self.drives[slot].is_away();
        (0..REPLICA_SLOTS_MAX).all(is_well) && self.record.is_well() && self.snapshot.is_none()
    }

    fn is_quiet(&self) -> bool {
        let is_done = self.pending.is_empty() && self.in_flight.is_empty() && self.flushes.is_empty();
        is_done && self.steps.is_empty() && self.metadata.is_idle()
    }

    fn shrink_and_grow(&mut self) {
        self.report.resizes += 1;
        self.mirror.resize(u64::from(LAST) * EXTENT_BYTES, Vec::new());
        self.metadata.truncate(LAST);
        self.forget_last_extent();
        let recovered_extent = self.make_last_extent();
        self.mirror.resize(u64::from(EXTENTS) * EXTENT_BYTES, vec![recovered_extent]);
        self.resync.look_at_all(&self.mirror);
    }

    fn forget_last_extent(&mut self) {
        // Orphaned I/O goes to files that are deleted.
        self.orphans.retain(|orphan| orphan.extent != LAST);
        self.drives.iter_mut().for_each(|drive| _ = drive.doubtful.remove(&LAST));
        self.older_in_sync.retain(|(_, extent)| *extent != LAST);
        self.failures.forget_extent(LAST);
        self.relied_on.remove(&LAST);
        self.history.cut(u64::from(LAST) * EXTENT_BYTES / u64::from(SECTOR_BYTES));
    }

    /// Creates the files of the last extent, with metadata beside all replicas and in the epoch record.
    fn make_last_extent(&mut self) -> RecoveredExtent {
        let replicas = self.settings.replicas;
        let replica_state = |slot| if slot < replicas { ReplicaState::InSync } else { ReplicaState::Absent };
        let replica_states = std::array::from_fn(replica_state);
        let mut earlier = self.record.found().split_off(LAST as usize);
        if self.settings.sabotage == Sabotage::BeginsEpochsAnew {
            earlier.clear();
        }
        let epoch = epoch_record::first_epoch(&earlier);
        let metadata = ReplicaMetadata::first(epoch, replica_states);
        for drive in &mut self.drives {
            if self.settings.sabotage != Sabotage::GrowsOverOldFiles {
                drive.files[LAST as usize] = File::default();
            }
            drive.block_checksums[LAST as usize] = Default::default();
            drive.all_metadata[LAST as usize] = Some(metadata.clone());
        }
        let new = EpochRecord { allocated: epoch, committed: epoch, is_failed: false };
        epoch_record::begin(&mut self.record, LAST..EXTENTS, new).expect("it is well");
        self.epoch_record[LAST as usize] = new;
        self.stands[LAST as usize] = replica_states;
        RecoveredExtent::new(metadata)
    }
}
