//! Volumes that shrink and grow in the simulated machine: the last extent is deleted, and a new one takes its
//! place.

use weir_types::ExtentIndex;
use weir_types::bounds::{EXTENT_BYTES, REPLICA_SLOTS_MAX};
use weir_volume::mirror::RecoveredExtent;

use super::MirrorWorld;
use super::daemon::Daemon;
use crate::SECTOR_BYTES;
use crate::requests::EXTENTS;

/// The extent that is deleted and created again.
const LAST: ExtentIndex = ExtentIndex(EXTENTS - 1);

impl MirrorWorld {
    /// Sometimes shrinks and grows the volume, once no operation is in flight. True if this step belongs to a
    /// resize.
    pub(super) fn resize_sometimes(&mut self) -> Result<bool, String> {
        let resizes = self.daemon.machine.settings.resizes_per_ten_thousand;
        if resizes == 0 {
            return Ok(false);
        }
        if self.is_by_chance(resizes, 10_000) {
            self.is_resizing = self.can_be_resized();
        }
        if !self.is_resizing {
            return Ok(false);
        }
        if !self.is_quiet() {
            self.daemon.answer_one()?;
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
        let Daemon { machine, snapshot, .. } = &self.daemon;
        let is_well = |slot: usize| machine.reachable[slot] && !machine.drives[slot].is_away();
        (0..REPLICA_SLOTS_MAX).all(is_well) && machine.records.is_well() && snapshot.is_none()
    }

    fn is_quiet(&self) -> bool {
        let Daemon { machine, clients, steps, metadata, .. } = &self.daemon;
        machine.operations.is_empty() && clients.unanswered() == 0 && steps.count() == 0 && metadata.is_idle()
    }

    fn shrink_and_grow(&mut self) {
        self.daemon.machine.report.resizes += 1;
        self.daemon.mirror.resize(LAST.start_bytes(), Vec::new());
        self.forget_last_extent();
        let metadata = self.daemon.machine.create_extent(LAST);
        self.daemon.durable_states[LAST.index()] = metadata.replica_states;
        let begun = vec![RecoveredExtent::new(metadata)];
        self.daemon.mirror.resize(u64::from(EXTENTS) * EXTENT_BYTES, begun);
        self.daemon.resync.look_at_all(&self.daemon.mirror);
    }

    fn forget_last_extent(&mut self) {
        let Daemon { machine, metadata, failures, clients, .. } = &mut self.daemon;
        metadata.truncate(LAST.0);
        // Orphaned I/O goes to files that are deleted.
        machine.orphans.forget_extent(LAST);
        machine.drives.iter_mut().for_each(|drive| drive.note_doubtful(LAST, false));
        machine.backups.forget_extent(LAST);
        failures.forget_extent(LAST);
        clients.history.cut(LAST.start_bytes() / u64::from(SECTOR_BYTES));
    }
}
