//! Formats of block devices: filesystems that are being made, and filesystems that never became a drive.
//!
//! Only the running daemon knows the formats under way, which reserve the device and the drive's name.
//! Unfinished formats are recorded in the catalogue before the first write to the device, until a drive on it
//! is recorded. The record tells which filesystem may be formatted again, if nothing was stored there since.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;
use weir_types::Name;
use weir_types::control_bounds::{DEVICE_FORMATS_MAX, UNFINISHED_FORMATS_MAX};

use crate::catalogue::{Catalogue, Transaction};
use crate::devices::tables::DeviceNumber;
use crate::error::{ControlError, Outcome};
use crate::records::keys;

/// Formats under way.
#[derive(Default)]
pub struct Formats {
    under_way: Mutex<Vec<(DeviceNumber, Name)>>,
}

/// Reservation of a device and of a drive's name, for as long as the value lives.
pub struct Formatting<'formats> {
    formats: &'formats Formats,
    number: DeviceNumber,
}

/// A format that was begun and has no drive yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnfinishedFormat {
    /// UUID of the filesystem.
    pub filesystem: Uuid,
    /// Path of the device, for information only.
    pub device: PathBuf,
    /// Time at which the format began.
    pub begun_at: Timestamp,
}

impl Formats {
    fn under_way(&self) -> MutexGuard<'_, Vec<(DeviceNumber, Name)>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Names of the drives that are being formatted.
    pub fn names(&self) -> Vec<Name> {
        self.under_way().iter().map(|(_, name)| name.clone()).collect()
    }

    /// Reserves a device, and a name that no drive has.
    ///
    /// # Errors
    /// Conflict if the device is already being formatted; full if too many formats are under way.
    pub fn begin(&self, shown: &str, number: DeviceNumber, name: Name) -> Outcome<Formatting<'_>> {
        let mut under_way = self.under_way();
        if let Some((_, name)) = under_way.iter().find(|(found, _)| *found == number) {
            return Err(ControlError::conflict(format!(
                "{shown} is being formatted already, as drive '{name}'"
            )));
        }
        if under_way.len() >= DEVICE_FORMATS_MAX {
            return Err(ControlError::full(format!(
                "{DEVICE_FORMATS_MAX} devices are being formatted, which is the most at a time; try again later"
            )));
        }
        under_way.push((number, name));
        Ok(Formatting { formats: self, number })
    }
}

impl Drop for Formatting<'_> {
    fn drop(&mut self) {
        self.formats.under_way().retain(|(number, _)| *number != self.number);
    }
}

/// All unfinished formats, the oldest first.
pub fn unfinished(catalogue: &dyn Catalogue) -> Outcome<Vec<UnfinishedFormat>> {
    let entries = catalogue.range(keys::DEVICE_FORMATS)?;
    let mut all = entries.iter().map(|entry| entry.decode()).collect::<Result<Vec<UnfinishedFormat>, _>>()?;
    all.sort_by_key(|format| format.begun_at);
    Ok(all)
}

/// Records a format before it begins. If there are too many unfinished ones, the oldest are forgotten. An
/// operator must wipe the devices of forgotten formats by hand.
pub fn note(catalogue: &dyn Catalogue, format: &UnfinishedFormat) -> Outcome<()> {
    let all = unfinished(catalogue)?;
    let surplus = (all.len() + 1).saturating_sub(UNFINISHED_FORMATS_MAX);
    let transaction = Transaction::default().put(keys::device_format(format.filesystem), format)?;
    let forgotten = all.iter().take(surplus).filter(|old| old.filesystem != format.filesystem);
    let transaction = forgotten
        .fold(transaction, |transaction, old| transaction.delete(keys::device_format(old.filesystem)));
    catalogue.commit(transaction)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::SqliteCatalogue;
    use crate::error::ErrorKind;

    fn number(minor: u32) -> DeviceNumber {
        rustix::fs::makedev(7, minor).into()
    }

    #[test]
    fn device_is_formatted_once_at_a_time_within_the_limit() {
        let formats = Formats::default();
        let begin =
            |minor| formats.begin("'/dev/sdb'", number(minor), Name::new(format!("d{minor}")).unwrap());
        let first = begin(0).unwrap();
        let error = begin(0).err().unwrap();
        assert_eq!(error.kind, ErrorKind::Conflict);
        assert_eq!(error.message, "'/dev/sdb' is being formatted already, as drive 'd0'");
        let others: Vec<_> = (1..DEVICE_FORMATS_MAX as u32).map(|minor| begin(minor).unwrap()).collect();
        assert_eq!(formats.names().len(), DEVICE_FORMATS_MAX);
        assert_eq!(begin(99).err().unwrap().kind, ErrorKind::Full);
        drop(first);
        assert!(begin(99).is_ok());
        drop(others);
        assert!(formats.names().is_empty());
    }

    #[test]
    fn oldest_unfinished_formats_are_forgotten_first() {
        let folder = tempfile::tempdir().unwrap();
        let catalogue = SqliteCatalogue::open(&folder.path().join("catalogue.sqlite")).unwrap();
        let format = |second: u64| UnfinishedFormat {
            filesystem: Uuid::from_u128(second.into()),
            device: "/dev/sdb".into(),
            begun_at: Timestamp::from_second(second as i64).unwrap(),
        };
        let most = UNFINISHED_FORMATS_MAX as u64;
        (0..most).for_each(|second| note(&catalogue, &format(second)).unwrap());
        let known =
            || unfinished(&catalogue).unwrap().iter().map(|format| format.filesystem).collect::<Vec<_>>();
        let expected = |seconds: std::ops::Range<u64>| seconds.map(|second| Uuid::from_u128(second.into()));
        assert_eq!(known(), expected(0..most).collect::<Vec<_>>());
        note(&catalogue, &format(most)).unwrap();
        assert_eq!(known(), expected(1..most + 1).collect::<Vec<_>>());
    }
}
