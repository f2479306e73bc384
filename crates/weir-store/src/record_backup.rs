//! Record backup: a volume's record beside its extents, from which a lost catalogue is rebuilt.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use weir_types::VolumeId;

use super::durability::SINGLE_SYNC_FILES_MAX;
use super::{Context, Store, StoreError, sync_folder};

/// Name of the file that holds the record backup.
pub const RECORD_FILE: &str = "record.json";
/// Name under which a new record backup is written before it replaces the old one.
const TEMPORARY_FILE: &str = "record.json.new";

/// A new record backup of one volume.
#[derive(Debug)]
pub struct RecordUpdate {
    /// The volume.
    pub volume: VolumeId,
    /// The whole content of the file.
    pub content: Vec<u8>,
}

/// Writes a record durably under its final name.
pub(crate) fn write_durably(folder: &Path, content: &[u8]) -> Result<(), StoreError> {
    write_temporary(folder, content, true)?;
    replace(folder)?;
    sync_folder(folder)
}

/// Writes the record of a volume that is being made, under its final name; it is not durable yet.
pub(crate) fn write_new(folder: &Path, content: &[u8]) -> Result<(), StoreError> {
    write_temporary(folder, content, false)?;
    replace(folder)
}

fn write_temporary(folder: &Path, content: &[u8], sync: bool) -> Result<(), StoreError> {
    let path = folder.join(TEMPORARY_FILE);
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path);
    let mut file = file.context("create", &path)?;
    file.write_all(content).context("write", &path)?;
    if sync { file.sync_all().context("make durable", &path) } else { Ok(()) }
}

/// Removes a replica that a crash kept from replacing the old one.
pub(crate) fn remove_temporary(folder: &Path) -> Result<(), StoreError> {
    let path = folder.join(TEMPORARY_FILE);
    match fs::remove_file(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result.context("remove", &path),
    }
}

fn replace(folder: &Path) -> Result<(), StoreError> {
    let path = folder.join(TEMPORARY_FILE);
    fs::rename(&path, folder.join(RECORD_FILE)).context("rename", &path)
}

impl Store {
    /// Replaces the record backups of some volumes, each atomically and all durably.
    pub fn write_records(&self, updates: &[RecordUpdate]) -> Result<(), StoreError> {
        if updates.len() as u64 <= SINGLE_SYNC_FILES_MAX {
            return updates.iter().try_for_each(|u| write_durably(&self.folder(u.volume), &u.content));
        }
        let writes = self.begin_writes()?;
        for update in updates {
            write_temporary(&self.folder(update.volume), &update.content, false)?;
        }
        // The content must be durable before the names that make it count.
        writes.make_durable()?;
        for update in updates {
            replace(&self.folder(update.volume))?;
        }
        writes.make_durable()
    }

    /// Reads the record backup of a volume. `None` if there is none.
    pub fn read_record(&self, volume: VolumeId) -> Result<Option<Vec<u8>>, StoreError> {
        let path = self.folder(volume).join(RECORD_FILE);
        match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            result => result.map(Some).context("read", &path),
        }
    }
}
