//! Where a drive may lie: in an existing directory that no other drive and no other installation uses.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use weir_store::{MARKER_FILE, Marker, VOLUMES_FOLDER};
use weir_types::{DriveId, Name};

use crate::error::{ControlError, Outcome};
use crate::records::DriveRecord;

/// Name of the catalogue in a state folder.
const CATALOGUE_FILE: &str = "catalogue.sqlite";

/// The directory at a path, without symbolic links.
///
/// # Errors
/// Invalid if there is none, or if its path cannot be recorded.
pub fn directory(path: &Path) -> Outcome<PathBuf> {
    let shown = path.display();
    let invalid = |why: String| ControlError::invalid(format!("'{shown}' {why}"));
    if !path.is_absolute() {
        return Err(invalid("is not an absolute path such as /srv/drive1".to_owned()));
    }
    let canonical = path.canonicalize().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            invalid("does not exist; an existing directory or block device is accepted".to_owned())
        }
        _ => invalid(format!("cannot be examined: {error}")),
    })?;
    if !canonical.is_dir() {
        return Err(invalid(
            "is not a directory; an existing directory or block device is accepted".to_owned(),
        ));
    }
    if canonical.to_str().is_none() {
        return Err(invalid("has a path that is not UTF-8".to_owned()));
    }
    Ok(canonical)
}

/// The default name of a drive: the name of its directory.
pub fn name_of(path: &Path) -> Outcome<Name> {
    let last = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    Name::new(last).map_err(|error| {
        ControlError::invalid(format!(
            "'{}' gives no name: {error}; name the drive with --name",
            path.display()
        ))
    })
}

/// Refuses a directory that is a drive, lies inside one, or contains one. It also finds a directory that is
/// visible at several paths.
pub fn refuse_overlap(path: &Path, drives: &[DriveRecord]) -> Outcome<()> {
    for drive in drives {
        let other = drive.path.canonicalize().unwrap_or_else(|_| drive.path.clone());
        let (shown, name, at) = (path.display(), &drive.name, drive.path.display());
        match (contains(&other, path), contains(path, &other)) {
            (true, true) => {
                return Err(ControlError::conflict(format!("'{shown}' is drive '{name}' already, at {at}")));
            }
            (true, false) => {
                return Err(ControlError::refused(format!("'{shown}' is inside of drive '{name}' at {at}")));
            }
            (false, true) => {
                return Err(ControlError::refused(format!("'{shown}' holds drive '{name}' at {at}")));
            }
            (false, false) => {}
        }
    }
    Ok(())
}

/// True if `inner` is `outer` or below it, by path or by inode.
fn contains(outer: &Path, inner: &Path) -> bool {
    let identity = |path: &Path| path.metadata().ok().map(|found| (found.dev(), found.ino()));
    let wanted = identity(outer);
    inner.starts_with(outer) || wanted.is_some() && inner.ancestors().any(|path| identity(path) == wanted)
}

/// The identity of a drive's directory: the previous one if it was a drive of this installation, else a new
/// one.
///
/// # Errors
/// Refused if another installation uses the directory.
pub fn identity(path: &Path, node: uuid::Uuid, drives: &[DriveRecord]) -> Outcome<DriveId> {
    let shown = path.display();
    if path.join(CATALOGUE_FILE).exists() {
        let what = "is the state folder of another installation";
        return Err(ControlError::refused(format!("'{shown}' {what}; an unused directory is accepted")));
    }
    match Marker::read(path)? {
        Some(marker) if marker.node != node => Err(ControlError::refused(format!(
            "'{shown}' is a drive of another installation ({}); if that is given up, remove {MARKER_FILE} and \
             {VOLUMES_FOLDER} in it",
            marker.node
        ))),
        Some(marker) => match drives.iter().find(|drive| drive.id == marker.drive) {
            Some(drive) => {
                let name = &drive.name;
                Err(ControlError::conflict(format!(
                    "'{shown}' is drive '{name}' already, or a duplicate of it"
                )))
            }
            None => Ok(marker.drive),
        },
        None if path.join(VOLUMES_FOLDER).exists() => Err(ControlError::refused(format!(
            "'{shown}' holds '{VOLUMES_FOLDER}' that may be of another installation; \
             a directory without it is accepted"
        ))),
        None => Ok(DriveId(uuid::Uuid::new_v4())),
    }
}
