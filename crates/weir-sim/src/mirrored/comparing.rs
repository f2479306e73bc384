//! Compares the replicas of a machine at rest: all in sync are equal, and none has bytes of another tenant.

use std::collections::BTreeSet;

use weir_types::ExtentIndex;
use weir_types::bounds::{EXTENT_BYTES, REPLICA_SLOTS_MAX};
use weir_volume::mirror::ReplicaState;

use super::MirrorWorld;
use crate::disk::Block;
use crate::requests::EXTENTS;

impl MirrorWorld {
    /// Checks that all replicas in sync are equal.
    pub(super) fn compare(&mut self) -> Result<(), String> {
        for (slot, drive) in self.daemon.machine.drives.iter().enumerate() {
            // No file holds what memory held before it was filled.
            if let Some((extent, block)) = drive.foreign_block() {
                return Err(format!("block {block} of extent {extent} has foreign bytes on replica {slot}"));
            }
        }
        for extent in ExtentIndex::first(EXTENTS) {
            let replica_states = self.daemon.mirror.replica_states(extent);
            let reachable = self.daemon.machine.reachable;
            let is_stale = |slot: &usize| reachable[*slot] && replica_states[*slot] == ReplicaState::Stale;
            if let Some(slot) = (0..REPLICA_SLOTS_MAX).find(is_stale) {
                let out_of_sync = self.daemon.mirror.regions_out_of_sync(extent, slot);
                return Err(format!(
                    "replica {slot} of extent {extent} cannot be resynced: {out_of_sync} regions are out of sync"
                ));
            }
            let readable = self.daemon.mirror.readable(extent, 0, EXTENT_BYTES as u32);
            let good: Vec<usize> = readable.iter().collect();
            let blocks: BTreeSet<u32> =
                good.iter().flat_map(|slot| self.daemon.machine.blocks_of((*slot, extent))).collect();
            for block in blocks {
                let contents: Result<BTreeSet<Block>, String> =
                    good.iter().map(|slot| self.daemon.content((*slot, extent), block)).collect();
                let contents = contents?;
                if contents.len() > 1 {
                    return Err(format!("block {block} of extent {extent} differs on replicas {good:?}"));
                }
            }
        }
        Ok(())
    }
}
