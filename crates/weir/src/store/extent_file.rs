//! Where an extent's file holds data, and whether it is whole.

use std::fs::{File, Metadata};
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{SeekFrom, seek};
use weir_types::bounds::EXTENT_BYTES;

/// Refuses what is not a whole extent's file: one that ends early would show its lost end as a hole.
pub fn check_whole(metadata: &Metadata) -> io::Result<()> {
    if !metadata.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    if metadata.len() != EXTENT_BYTES {
        let message = format!("has {} bytes instead of {EXTENT_BYTES}: it was shortened", metadata.len());
        return Err(io::Error::other(message));
    }
    Ok(())
}

/// Opens a whole extent's file to look at it.
pub fn open_whole(path: &Path) -> io::Result<File> {
    let file = File::open(path)?;
    check_whole(&file.metadata()?)?;
    Ok(file)
}

/// The first offset at or after `position` that holds data; `None` if there is none.
pub fn next_data(file: &impl AsFd, position: u64) -> io::Result<Option<u64>> {
    match seek(file, SeekFrom::Data(position)) {
        Ok(offset) => Ok(Some(offset)),
        Err(rustix::io::Errno::NXIO) => Ok(None),
        // A filesystem without holes: everything is data.
        Err(rustix::io::Errno::INVAL) => Ok(Some(position)),
        Err(error) => Err(error.into()),
    }
}

/// The first offset at or after `position`, where there is data, that holds none.
pub fn next_hole(file: &impl AsFd, position: u64) -> io::Result<u64> {
    match seek(file, SeekFrom::Hole(position)) {
        Ok(offset) => Ok(offset),
        Err(rustix::io::Errno::INVAL) => Ok(EXTENT_BYTES),
        Err(error) => Err(error.into()),
    }
}
