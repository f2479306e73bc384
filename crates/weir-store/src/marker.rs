//! Drive marker: the file in a drive's directory that names the installation and the drive.
//!
//! It keeps two installations from using one directory, and tells an unmounted filesystem from an empty
//! drive. It also lets a drive that is added again keep its identity. The drive in the state folder has no
//! marker.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use weir_types::DriveId;

use super::{Context, Store, StoreError, sync_folder};
use crate::format;
use crate::trusted_folder;

/// Name of the marker in the drive's folder.
pub const MARKER_FILE: &str = "weir-drive.json";
/// Name of the folder of all volumes in the drive's folder.
pub const VOLUMES_FOLDER: &str = "volumes";
/// Version of the format of [`Marker`].
const MARKER_FORMAT: u32 = 1;

/// Content of a drive's marker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marker {
    format: u32,
    /// The least version that a reader of the drive needs.
    #[serde(default = "format::first_reader")]
    minimum_reader: u32,
    /// The installation that the drive belongs to.
    pub node: uuid::Uuid,
    /// The drive.
    pub drive: DriveId,
}

impl Marker {
    /// The marker of a drive of an installation.
    pub fn new(node: uuid::Uuid, drive: DriveId) -> Marker {
        Marker { format: MARKER_FORMAT, minimum_reader: format::MINIMUM_READER, node, drive }
    }

    /// Reads the marker of a directory. `None` if it has none.
    ///
    /// # Errors
    /// If the marker cannot be read, or this version does not understand it.
    pub fn read(directory: &Path) -> Result<Option<Marker>, StoreError> {
        let path = directory.join(MARKER_FILE);
        let content = match read_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            result => result.context("read", &path)?,
        };
        Marker::decode(&content).map(Some).map_err(io::Error::other).context("understand", &path)
    }

    /// Decodes the content of a marker's file.
    ///
    /// # Errors
    /// In words, if this version does not understand it.
    pub fn decode(content: &[u8]) -> Result<Marker, String> {
        let value = serde_json::from_slice(content).map_err(|error| error.to_string())?;
        let marker: Marker = format::read(&value)?;
        match marker.format {
            MARKER_FORMAT => Ok(marker),
            format => Err(format!("it has format {format}, not {MARKER_FORMAT}")),
        }
    }

    fn write(&self, directory: &Path) -> Result<(), StoreError> {
        let path = directory.join(MARKER_FILE);
        let content = serde_json::to_vec_pretty(self).context("write", &path)?;
        write_file_durably(&path, &content)
    }
}

impl Store {
    /// Makes a directory a drive, durably.
    ///
    /// # Errors
    /// If other users may write to the directory or one above it, or the directory cannot be written.
    pub fn adopt_directory(directory: PathBuf, marker: &Marker) -> Result<Store, StoreError> {
        rely_on(&directory)?;
        marker.write(&directory)?;
        Store::open(directory)?.earlier_writes()?.settle()
    }

    /// Opens a directory that is already a drive.
    ///
    /// # Errors
    /// If the marker is missing, as on an unmounted filesystem. If the marker is another one. If other users
    /// may write to the directory.
    pub fn open_marked(directory: PathBuf, marker: &Marker) -> Result<Store, StoreError> {
        if directory.exists() {
            rely_on(&directory)?;
        }
        let found = Marker::read(&directory)?;
        let reason = match found {
            Some(found) if (found.node, found.drive) == (marker.node, marker.drive) => {
                if found != *marker {
                    // From here on only a version that can read the records of this one may read the drive.
                    marker.write(&directory)?;
                }
                return Store::open(directory);
            }
            Some(found) => format!("it says drive {} of installation {}", found.drive, found.node),
            None => "there is none; is its filesystem mounted?".to_owned(),
        };
        let source = io::Error::other(reason);
        Err(StoreError { action: "use the marker", path: directory.join(MARKER_FILE), source })
    }

    /// Why the drive's folder is not the one that was opened, or `None` if it is. It is gone, another folder
    /// is there, or it lacks `marker`. An unreadable folder or marker counts as present.
    pub fn absence(&self, marker: Option<&Marker>) -> Option<String> {
        let shown = self.drive().display();
        let found = match fs::metadata(self.drive()) {
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Some(format!("there is no folder {shown}"));
            }
            Err(_) => return None,
            Ok(found) => (found.dev(), found.ino()),
        };
        if found != self.folder {
            return Some(format!("{shown} is another folder than it was; is its filesystem mounted?"));
        }
        let marker = marker?;
        match Marker::read(self.drive()) {
            Ok(None) => Some(format!("{MARKER_FILE} is not in {shown} any more")),
            Ok(Some(other)) if other != *marker => {
                Some(format!("{shown} is drive {} of installation {} now", other.drive, other.node))
            }
            Ok(Some(_)) | Err(_) => None,
        }
    }

    /// Refuses to rely on what was made by its path, where the folder is not the one that was opened: it is not on the drive.
    pub(crate) fn refuse_another_folder(&self) -> Result<(), StoreError> {
        match self.absence(None) {
            None => Ok(()),
            Some(why) => Err(io::Error::other(why)).context("use", self.drive()),
        }
    }

    /// Makes the directory of an empty drive an ordinary directory again.
    pub fn dissolve(&self) -> Result<(), StoreError> {
        let volumes = self.volumes();
        // Only an empty folder is removed: an unknown entry may still be a volume.
        self.dissolve_journals()?;
        fs::remove_dir(&volumes).context("remove", &volumes)?;
        let path = self.drive().join(MARKER_FILE);
        fs::remove_file(&path).context("remove", &path)?;
        sync_folder(self.drive())
    }
}

/// Refuses a directory in which other users could put links where the daemon makes files.
fn rely_on(directory: &Path) -> Result<(), StoreError> {
    trusted_folder::rely_on_own_entries(directory).map_err(io::Error::other).context("use", directory)
}

/// Reads a small file. A symbolic link is an error.
fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    let flags = OFlags::NOFOLLOW.bits() as i32;
    let mut content = Vec::new();
    let mut file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    if !trusted_folder::is_own(&file.metadata()?) {
        return Err(io::Error::other("it belongs to another user, who may have put it there; remove it"));
    }
    file.read_to_end(&mut content)?;
    Ok(content)
}

/// Writes a file so that a crash leaves either the old content or the new.
pub fn write_file_durably(path: &Path, content: &[u8]) -> Result<(), StoreError> {
    let new = path.with_extension("new");
    let written = write_synced(&new, content).and_then(|()| fs::rename(&new, path).context("rename", &new));
    if written.is_err() {
        // Half a file is useless. If it stays, the next write replaces it.
        let _ = fs::remove_file(&new);
    }
    written?;
    path.parent().map_or(Ok(()), sync_folder)
}

fn write_synced(path: &Path, content: &[u8]) -> Result<(), StoreError> {
    // Removes a file that a crash left under this name. A file that appears after that comes from another
    // user.
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error).context("remove", path),
        _ => {}
    }
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let mut file = file.context("create", path)?;
    file.write_all(content).and_then(|()| file.sync_all()).context("write", path)
}
