//! Extent file: where the file holds data, and whether it is whole.

use std::fs::{File, Metadata};
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{SeekFrom, seek};
use weir_types::bounds::EXTENT_BYTES;

/// Refuses a file that is not a whole extent file. The lost end of a short file would read as a hole.
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

/// Opens a whole extent file for examination.
pub fn open_whole(path: &Path) -> io::Result<File> {
    let file = File::open(path)?;
    check_whole(&file.metadata()?)?;
    Ok(file)
}

/// The first offset at or after `position` that holds data. `None` if there is none.
pub fn next_data(file: &impl AsFd, position: u64) -> io::Result<Option<u64>> {
    match seek(file, SeekFrom::Data(position)) {
        Ok(offset) => Ok(Some(offset)),
        Err(rustix::io::Errno::NXIO) => Ok(None),
        // On a filesystem without holes all bytes are data.
        Err(rustix::io::Errno::INVAL) => Ok(Some(position)),
        Err(error) => Err(error.into()),
    }
}

/// The first hole at or after `position`, which must hold data.
pub fn next_hole(file: &impl AsFd, position: u64) -> io::Result<u64> {
    match seek(file, SeekFrom::Hole(position)) {
        Ok(offset) => Ok(offset),
        Err(rustix::io::Errno::INVAL) => Ok(EXTENT_BYTES),
        Err(error) => Err(error.into()),
    }
}

/// Bytes of a range that need new space when they are written, including bytes whose extents another file
/// shares. Some filesystems (tmpfs) do not tell where files lie. There no range counts as shared, and
/// fallocated but unwritten space counts as a hole.
pub fn space_needed_bytes(file: &File, range: Range<u64>) -> io::Result<u64> {
    match weir_reactor::mapped(file, range.clone()) {
        Ok(mapped) => Ok((range.end - range.start).saturating_sub(mapped.own_bytes)),
        Err(_) => bytes_in_holes(file, range),
    }
}

fn bytes_in_holes(file: &File, range: Range<u64>) -> io::Result<u64> {
    let (mut position, mut bytes) = (range.start, 0);
    while position < range.end {
        let data = next_data(file, position)?.unwrap_or(range.end).min(range.end);
        bytes += data - position;
        position = if data < range.end { next_hole(file, data)?.max(data + 1) } else { data };
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn unwritten_range_needs_space() {
        const PART: u64 = 1 << 16;
        let file = tempfile::tempfile().unwrap();
        file.set_len(8 * PART).unwrap();
        file.write_all_at(&[1; PART as usize], PART).unwrap();
        file.write_all_at(&[1; PART as usize], 5 * PART).unwrap();
        file.sync_all().unwrap();
        for needed_bytes in [space_needed_bytes, bytes_in_holes] {
            assert_eq!(needed_bytes(&file, 0..8 * PART).unwrap(), 6 * PART);
            assert_eq!(needed_bytes(&file, PART..2 * PART).unwrap(), 0);
            assert_eq!(needed_bytes(&file, PART / 2..3 * PART).unwrap(), PART + PART / 2);
            assert_eq!(needed_bytes(&file, 6 * PART..7 * PART).unwrap(), PART);
        }
    }
}
