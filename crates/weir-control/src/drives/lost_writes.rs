//! Drives on which writes of an earlier daemon were lost.
//!
//! When the daemon starts, or a drive comes back, earlier writes are made durable. If that fails,
//! acknowledged writes may be lost. The kernel reports this failure only once: the next sync succeeds. So the
//! failure is recorded under its own key, which no change of the drive's record touches. The drive counts as
//! missing, across restarts too, until an operator removes or accepts it.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use weir_types::{DriveId, Name};

use super::super::Control;
use super::super::catalogue::{Catalogue, Transaction};
use super::super::error::{ControlError, Outcome};
use super::super::records::{DriveRecord, keys};
use super::{Drive, DriveView, Unused};
use weir_store::{Store, StoreError};

/// Record of lost writes on a drive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostWrites {
    /// Message of the system.
    pub message: String,
    /// Time when the loss was found.
    pub found_at: Timestamp,
}

impl LostWrites {
    /// The record of earlier writes that could not be made durable.
    pub(super) fn found(error: &StoreError) -> LostWrites {
        LostWrites { message: error.to_string(), found_at: Timestamp::now() }
    }
}

impl fmt::Display for LostWrites {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LostWrites { message, found_at } = self;
        write!(f, "acknowledged writes to it may be lost, which was found at {found_at}: {message}")
    }
}

/// The recorded lost writes of a drive.
pub(super) fn known(catalogue: &dyn Catalogue, drive: DriveId) -> Outcome<Option<LostWrites>> {
    let entry = catalogue.get(&keys::lost_writes(drive))?;
    Ok(entry.map(|entry| entry.decode()).transpose()?)
}

/// Records lost writes of a drive. Returns its files or the reason why it is not used, and the lost writes.
///
/// If the catalogue cannot be written, the daemon retries for as long as it runs. The disk that lost the
/// writes may be the disk that holds the catalogue.
pub(super) fn recorded(
    catalogue: &dyn Catalogue,
    drive: &DriveRecord,
    found: Result<Store, Unused>,
) -> (Result<Store, String>, Option<LostWrites>) {
    let lost = match found {
        Ok(store) => return (Ok(store), None),
        Err(Unused::Missing(why)) => return (Err(why), None),
        Err(Unused::Lost(lost)) => lost,
    };
    if let Err(error) = put(catalogue, drive.id, &lost) {
        tracing::error!(
            drive = %drive.name, %error,
            "lost writes of the drive are not recorded yet: the daemon must not be restarted before the catalogue can be written"
        );
    }
    (Err(lost.to_string()), Some(lost))
}

/// Retries to record the lost writes of a drive. The first failure was logged.
pub(super) fn record_again(catalogue: &dyn Catalogue, drive: &Drive) {
    if let Some(lost) = &drive.lost_writes {
        let _ = put(catalogue, drive.record.id, lost);
    }
}

/// Records lost writes unless a record exists.
fn put(catalogue: &dyn Catalogue, drive: DriveId, lost: &LostWrites) -> Outcome<()> {
    if known(catalogue, drive)?.is_none() {
        catalogue.commit(Transaction::freeing_space().put(keys::lost_writes(drive), lost)?)?;
    }
    Ok(())
}

/// How to bring a missing drive back that leaves `volumes_lost` volumes unserved.
pub(super) fn remedy(drive: &Drive, volumes_lost: usize) -> String {
    let name = &drive.record.name;
    let accept = format!(
        "'weir drive accept {name}' uses it as it is, and has those replicas resynced that others stand in for; bring \
         other missing drives back first"
    );
    match drive.lost_writes {
        None => "bring it back, and it is used again".to_owned(),
        // No other replica has the data of this drive.
        Some(_) if volumes_lost > 0 || drive.record.id == DriveId::DEFAULT => accept,
        Some(_) => format!("'weir drive remove {name}' rebuilds its replicas elsewhere; {accept}"),
    }
}

impl Control {
    /// Uses a drive with lost writes again.
    ///
    /// Replicas on it are resynced if other replicas have everything. Extents without another replica are
    /// used as they are.
    ///
    /// # Errors
    /// Not found if no drive has that name. Refused if no writes to it were lost, or if it still cannot be
    /// used.
    pub fn accept_drive(&self, name: &Name) -> Outcome<DriveView> {
        let mut change = self.begin_drive_change()?;
        let drive = self.model().drive(name)?.clone();
        if drive.lost_writes.is_none() {
            return Err(ControlError::refused(format!(
                "no writes to drive '{name}' are known to be lost, so there is nothing to accept"
            )));
        }
        let id = drive.record.id;
        let found = change.beside(|| {
            let found = self.open_settled(&drive);
            let store = found
                .files
                .as_ref()
                .map_err(|why| ControlError::refused(format!("drive '{name}': {why}")))?;
            self.forget_replicas(id, store)?;
            Ok::<_, ControlError>(found)
        })?;
        self.catalogue.commit(Transaction::freeing_space().delete(keys::lost_writes(id)))?;
        let back = self.note_found(&mut change, found);
        drop(change);
        back.into_iter().for_each(|drive| self.use_again(drive));
        self.drive(name)
    }

    /// Discards the metadata of all replaceable replicas on the drive and behind a write journal on it, so
    /// that they are resynced in full.
    ///
    /// A replica on the drive that is behind a journal elsewhere keeps its content. Data that may not be
    /// durable there is still in the journal, or in dirty regions.
    fn forget_replicas(&self, drive: DriveId, store: &Store) -> Outcome<()> {
        for volume in self.resyncing_volumes() {
            let replicas = self.replaceable(&volume)?;
            let here = replicas.iter().filter(|(_, (_, home))| *home == drive);
            store.forget_metadata(volume.id, here.map(|(extent, _)| *extent))?;
            store.forget_journaled_metadata(
                volume.id,
                replicas.iter().map(|(extent, (slot, _))| (*extent, *slot)),
            )?;
        }
        Ok(())
    }
}
