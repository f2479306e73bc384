//! Drives on which writes of an earlier daemon were lost.
//!
//! When the daemon starts, or a drive comes back, earlier writes are made durable. If that fails,
//! acknowledged writes may be lost. The kernel reports this failure only once: the next sync succeeds. So the
//! failure is recorded under its own key, which no change of the drive's record touches. The drive counts as
//! missing, across restarts too, until an operator removes or accepts it.

use weir_store::Store;
use weir_types::{DriveId, DriveRole};

use crate::catalogue::{Catalogue, Transaction};
use crate::drives::Unused;
use crate::error::Outcome;
use crate::model::Drive;
use crate::records::{DriveRecord, LostWrites, keys};

/// The recorded lost writes of a drive.
pub(crate) fn known(catalogue: &dyn Catalogue, drive: DriveId) -> Outcome<Option<LostWrites>> {
    let entry = catalogue.get(&keys::lost_writes(drive))?;
    Ok(entry.map(|entry| entry.decode()).transpose()?)
}

/// Records lost writes of a drive. Returns its files or the reason why it is not used, and the lost writes.
///
/// If the catalogue cannot be written, the daemon retries for as long as it runs. The disk that lost the
/// writes may be the disk that holds the catalogue.
pub(crate) fn recorded(
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
pub(crate) fn record_again(catalogue: &dyn Catalogue, drive: &Drive) {
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
pub(crate) fn remedy(drive: &Drive, volumes_lost: usize) -> String {
    let name = &drive.record.name;
    let accept = format!(
        "'weir drive accept {name}' uses it as it is, and has those replicas resynced that others stand in for; bring \
         other missing drives back first"
    );
    match drive.lost_writes {
        None => "bring it back, and it is used again".to_owned(),
        // No other replica has the data of this drive.
        Some(_) if volumes_lost > 0 || drive.record.id == DriveId::DEFAULT => accept,
        Some(_) if drive.record.role == DriveRole::Journal => accept,
        Some(_) => format!("'weir drive remove {name}' rebuilds its replicas elsewhere; {accept}"),
    }
}
