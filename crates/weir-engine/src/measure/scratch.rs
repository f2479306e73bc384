//! Scratch file: the file through which a drive is measured.
//!
//! The file loses its name as soon as it is open. So its space is free again whenever the daemon ends. If a
//! crash leaves a named file, the next start removes it.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;
use weir_reactor::Descriptor;
use weir_store::{remove_scratch, scratch_path};
use weir_types::bounds::{
    MEASUREMENT_EMULATED_SCRATCH_BYTES_MAX, MEASUREMENT_SCRATCH_BYTES_MAX, MEASUREMENT_SCRATCH_BYTES_MIN,
    MEASUREMENT_SPACE_DIVISOR, PIECE_BYTES,
};
use weir_types::units::Size;

use super::MeasureError;

/// The open scratch file.
pub struct Scratch {
    /// The file to read and write.
    pub file: Descriptor,
    /// Whether reads and writes bypass the page cache.
    pub is_direct: bool,
    /// Largest size of the file, in bytes.
    pub bytes_max: u64,
}

impl Scratch {
    /// Makes the empty file.
    ///
    /// # Errors
    /// If there is no space for the file, or it cannot be made.
    pub fn create(folder: &Path, is_emulated: bool) -> Result<Scratch, MeasureError> {
        let space = rustix::fs::statvfs(folder).map_err(|error| failed("examine", folder, error.into()))?;
        let bytes_max = size(space.f_bavail.saturating_mul(space.f_frsize), is_emulated)?;
        let path = scratch_path(folder);
        remove_scratch(folder).map_err(|error| failed("remove", &path, error))?;
        let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        drop(made.map_err(|error| failed("make", &path, error))?);
        let opened = Descriptor::open_direct(&path);
        let removed = fs::remove_file(&path);
        let opened = opened.map_err(|error| failed("open", &path, error))?;
        removed.map_err(|error| failed("remove", &path, error))?;
        let is_direct = is_direct(&opened).map_err(|error| failed("examine", &path, error))?;
        let file = Descriptor::file(opened);
        // On a filesystem in memory there is no page cache to bypass.
        let is_direct = is_direct && !file.is_in_memory();
        Ok(Scratch { file, is_direct, bytes_max })
    }
}

fn failed(action: &'static str, path: &Path, source: io::Error) -> MeasureError {
    MeasureError::Scratch { action, path: path.to_owned(), source }
}

fn is_direct(file: &OwnedFd) -> io::Result<bool> {
    Ok(rustix::fs::fcntl_getfl(file)?.contains(OFlags::DIRECT))
}

/// Size of the file for the available space: a fraction of the space, in whole pieces.
fn size(available_bytes: u64, is_emulated: bool) -> Result<u64, MeasureError> {
    let most = match is_emulated {
        true => MEASUREMENT_EMULATED_SCRATCH_BYTES_MAX,
        false => MEASUREMENT_SCRATCH_BYTES_MAX,
    };
    let bytes = (available_bytes / MEASUREMENT_SPACE_DIVISOR).min(most);
    match bytes >= MEASUREMENT_SCRATCH_BYTES_MIN {
        true => Ok(bytes - bytes % PIECE_BYTES),
        false => Err(MeasureError::NoRoom {
            available: Size(available_bytes).to_string(),
            needed: Size(MEASUREMENT_SCRATCH_BYTES_MIN * MEASUREMENT_SPACE_DIVISOR).to_string(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn scratch_file_takes_at_most_quarter_of_free_space() {
        for (available, is_emulated, expected) in [
            (10_000 * MIB, false, Some(256 * MIB)),
            (10_000 * MIB, true, Some(32 * MIB)),
            (1023 * MIB + 5, false, Some(255 * MIB + 6 * PIECE_BYTES)),
            (40 * MIB, true, Some(10 * MIB)),
            (32 * MIB, false, Some(8 * MIB)),
            (32 * MIB - 1, false, None),
            (0, true, None),
        ] {
            assert_eq!(size(available, is_emulated).ok(), expected, "{available}");
        }
        let refused = size(3 * MIB, false).unwrap_err().to_string();
        assert_eq!(refused, "there is no room to measure in: 3MiB are free, and 32MiB must be");
    }

    #[test]
    fn scratch_file_is_unnamed_and_leftover_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(scratch_path(folder.path()), "left by a crash").unwrap();
        let scratch = Scratch::create(folder.path(), true).unwrap();
        assert_eq!(scratch.bytes_max, 32 * MIB);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        fs::write(scratch_path(folder.path()), "left by a crash").unwrap();
        remove_scratch(folder.path()).unwrap();
        remove_scratch(folder.path()).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        let error = Scratch::create(&folder.path().join("away"), true).err().unwrap().to_string();
        assert!(error.starts_with("cannot examine "), "{error}");
    }
}
