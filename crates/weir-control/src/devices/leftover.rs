//! Leftovers of unfinished formats: whether a device with one may be formatted again.
//!
//! A filesystem that this daemon made may still have been used since, because it can be mounted by hand. So
//! its content is checked. Only a filesystem that was never finished, or that is empty, is given up.

use std::path::Path;
use std::{fs, io};

use weir_store::{MARKER_FILE, VOLUMES_FOLDER};

use crate::devices::mount;
use crate::devices::probe::BlockDevice;
use crate::error::{ControlError, Outcome};

/// Refuses a device whose filesystem is finished and holds data. The check mounts the filesystem at `folder`.
///
/// # Errors
/// Refused also if the content cannot be read.
pub fn refuse_used(device: &BlockDevice, shown: &str, folder: &Path) -> Outcome<()> {
    let path = device.path.display();
    let refused = |what: String| {
        ControlError::refused(format!(
            "{shown} has a filesystem that was made to be a drive and never became one, and {what}; if nothing of that \
             is needed any more, 'wipefs --all {path}' takes it away, and the device is accepted then"
        ))
    };
    let unclear = |why: String| refused(format!("whether it holds anything cannot be told: {why}"));
    if device.is_half_made().map_err(|error| unclear(error.to_string()))? {
        return Ok(());
    }
    let looked = mount::mount(&device.path, folder).map_err(|error| error.to_string());
    let looked = looked.and_then(|()| stranger(folder).map_err(|error| error.to_string()));
    mount::release(folder);
    match looked.map_err(unclear)? {
        Some(name) => Err(refused(format!("it holds '{name}'"))),
        None => Ok(()),
    }
}

/// Name of an entry in a folder that does not belong to a drive without volumes, if there is one.
fn stranger(folder: &Path) -> io::Result<Option<String>> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let is_ours = if name == VOLUMES_FOLDER {
            fs::read_dir(entry.path())?.next().is_none()
        } else {
            Path::new(&name).file_stem() == Path::new(MARKER_FILE).file_stem()
        };
        if !is_ours {
            return Ok(Some(name.to_string_lossy().into_owned()));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drive_without_volumes_counts_as_empty() {
        let folder = tempfile::tempdir().unwrap();
        let found = || stranger(folder.path()).unwrap();
        assert_eq!(found(), None);
        for marker in [MARKER_FILE, "weir-drive.new"] {
            fs::write(folder.path().join(marker), "{").unwrap();
        }
        let volumes = folder.path().join(VOLUMES_FOLDER);
        fs::create_dir(&volumes).unwrap();
        assert_eq!(found(), None);
        fs::create_dir(volumes.join("one")).unwrap();
        assert_eq!(found().as_deref(), Some(VOLUMES_FOLDER));
        fs::remove_dir(volumes.join("one")).unwrap();
        fs::write(folder.path().join("letter"), "").unwrap();
        assert_eq!(found().as_deref(), Some("letter"));
        assert!(stranger(&volumes.join("nowhere")).is_err());
    }
}
