//! Coalesced flushes of the simulated daemon: the executor's window, and the check that several replicas hold what is owed.

use weir_types::ExtentIndex;
use weir_types::bounds::EXTENT_BYTES;
use weir_volume::mirror::ReplicaState;

use super::Daemon;
use crate::requests::{EXTENTS, first_sector};
use crate::{BLOCK_SECTORS, SECTOR_BYTES};

/// Fewest replicas in sync that hold changes for which a flush is owed, as the promise has it.
const HOLDERS_MIN: usize = 2;

impl Daemon {
    /// Lets flushes be owed, or none. A profile that changes does so.
    pub fn set_flush_coalescing(&mut self, is_on: bool) -> Result<(), String> {
        let mut effects = Vec::new();
        self.mirror.coalescing().set_on(is_on, &mut effects);
        self.take(effects)
    }

    /// Ends the window of coalesced flushes.
    pub fn pay_flushes(&mut self) -> Result<(), String> {
        let mut effects = Vec::new();
        self.mirror.coalescing().end_window(&mut effects);
        self.take(effects)
    }
}

/// The daemon or the power ends. The drives have what is owed, unless one of them lost power or failed that counts
/// as in sync.
pub fn forget_lost_flushes(daemon: &mut Daemon, is_kill: bool) {
    for extent in ExtentIndex::first(EXTENTS) {
        let states = &daemon.durable_states[extent.index()];
        let drives = daemon.machine.drives.iter().zip(states);
        let in_sync = drives.filter(|(_, state)| **state == ReplicaState::InSync);
        if !is_kill || in_sync.clone().any(|(drive, _)| drive.has_failed) {
            let first = first_sector(extent, 0);
            daemon.clients.history.forget_held(first..first + EXTENT_BYTES / u64::from(SECTOR_BYTES));
        }
    }
}

/// Checks that all coalesced flushes were paid, now that the machine is at rest.
pub fn check_paid(daemon: &Daemon) -> Result<(), String> {
    let is_lost = ExtentIndex::first(EXTENTS).any(|extent| daemon.mirror.is_lost(extent));
    match daemon.clients.coalesced_flushes() {
        owed if owed > 0 && !is_lost => Err(format!("{owed} coalesced flushes are never paid")),
        _ => Ok(()),
    }
}

/// Checks that no single replica alone has what is owed, unless the flush that pays it is under way.
pub fn check_coalesced_flushes(daemon: &mut Daemon) -> Result<(), String> {
    if !daemon.mirror.coalescing().has_unpaid() {
        return Ok(());
    }
    for extent in ExtentIndex::first(EXTENTS) {
        let holders = daemon.mirror.in_sync(extent);
        let only = holders.first().filter(|_| holders.len() < HOLDERS_MIN);
        let at_risk = only.and_then(|slot| owed_sector(daemon, slot, extent));
        if let Some(sector) = at_risk {
            return Err(format!("a flush is owed, but one replica alone has sector {sector}"));
        }
    }
    Ok(())
}

/// A sector with a change in the volatile cache of a drive that a coalesced flush covers.
fn owed_sector(daemon: &Daemon, slot: usize, extent: ExtentIndex) -> Option<u64> {
    let volatile = daemon.machine.drives[slot].files[extent.index()].volatile_blocks();
    let sectors = volatile.into_iter().flat_map(|(block, content)| {
        let first = first_sector(extent, block);
        (0..BLOCK_SECTORS).map(move |at| (first + at as u64, content[at]))
    });
    let mut at_risk = sectors.filter(|(sector, stamp)| daemon.clients.history.is_owed(*sector, *stamp));
    at_risk.next().map(|(sector, _)| sector)
}
