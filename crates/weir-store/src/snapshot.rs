//! Snapshot files: taking extent files into the files of a new volume, by reflink or else byte by byte.
//!
//! A write journal may hold newer data than the extent file behind it. This data is laid over the new file.
//!
//! The new files lie in a folder marked as half made, until the snapshot is complete and durable.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, copy_file_range, fallocate};
use rustix::io::Errno;
use weir_types::bounds::{ALLOCATION_BYTES, BLOCK_BYTES, REGION_BYTES};
use weir_types::{ExtentIndex, VolumeId};
use weir_volume::mirror::ReplicaMetadata;

use super::extent_file::{next_data, next_hole, open_whole};
use super::volume_folder::create_extents;
use super::{
    Context, NEW_SUFFIX, Store, StoreError, WriteScope, extent_file_name, record_backup, remove_if_there,
    replica_metadata, sync_folder,
};

/// Longest step of a snapshot. A write waits for little more than one step. That holds even if all data must
/// be duplicated, or if a file has so many fragments that its reflink takes seconds. Each of several open
/// writes may wait for one step. A step has an overhead of some tens of microseconds.
const STEP_TIME: Duration = Duration::from_micros(250);
/// Bytes between two looks at the clock, at the beginning. The number doubles while a part takes less than a
/// quarter of a step. So no step takes much longer than intended.
const FIRST_PART_BYTES: u64 = REGION_BYTES;
/// Bytes that are duplicated at a time.
const DUPLICATED_BYTES: u64 = 1 << 20;

/// Where a snapshot puts extent files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The folder for files of the same names.
    pub folder: PathBuf,
    /// Files in the folder can share extents with the source files.
    pub can_share: bool,
    /// Each piece of a file with data gets its space in full, as a write journal in front of the file expects.
    pub has_space: bool,
}

/// What a write journal holds of a part of an extent file. It is newer than the file.
#[derive(Debug)]
pub struct Held {
    /// The log of the journal. It may be open for direct I/O.
    pub log: File,
    /// The pieces, which do not overlap.
    pub pieces: Vec<HeldPiece>,
}

/// Whole blocks that a journal holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldPiece {
    /// Offset in the extent file, in bytes.
    pub offset: u32,
    /// Number of bytes.
    pub length: u32,
    /// Where the blocks lie in the log, in bytes; `None` if they are zero.
    pub position_bytes: Option<u64>,
}

impl Held {
    /// Writes the pieces into a new file, over the content of the extent file.
    ///
    /// # Errors
    /// If the log cannot be read, or the new file cannot be written.
    pub fn lay_over(&self, target: &Path) -> io::Result<()> {
        let target = OpenOptions::new().write(true).open(target)?;
        self.pieces.iter().try_for_each(|piece| self.lay_piece_over(&target, piece))
    }

    fn lay_piece_over(&self, target: &File, piece: &HeldPiece) -> io::Result<()> {
        let (offset, length) = (u64::from(piece.offset), u64::from(piece.length));
        let Some(position_bytes) = piece.position_bytes else {
            let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            return match fallocate(target, hole, offset, length) {
                Err(Errno::OPNOTSUPP) => target.write_all_at(&vec![0; piece.length as usize], offset),
                result => Ok(result?),
            };
        };
        // Direct I/O needs memory at a multiple of the block size.
        let mut memory = vec![0; piece.length as usize + BLOCK_BYTES as usize];
        let start = memory.as_ptr().align_offset(BLOCK_BYTES as usize);
        let blocks = &mut memory[start..start + piece.length as usize];
        let read = self.log.read_exact_at(blocks, position_bytes);
        read.map_err(|error| io::Error::new(error.kind(), format!("read the write journal: {error}")))?;
        target.write_all_at(blocks, offset)
    }
}

/// Takes at most `length` bytes from `offset` of a whole extent file into a file that is empty there. Returns
/// the end of the completed range, which has at least one region. Holes cost nothing and are skipped.
pub fn snapshot(
    source: &Path,
    target: &Path,
    (offset, length): (u32, u32),
    can_share: bool,
) -> io::Result<u32> {
    let began = Instant::now();
    let source = open_whole(source)?;
    let target = OpenOptions::new().write(true).open(target)?;
    let end = u64::from(offset) + u64::from(length);
    let (mut position, mut part, mut data_end) = (u64::from(offset), FIRST_PART_BYTES, 0);
    while let Some(data) = next_data(&source, position)?.filter(|data| *data < end) {
        let part_began = began.elapsed();
        let part_end = end.min(data / REGION_BYTES * REGION_BYTES + part);
        if can_share {
            // Holes are included: to find the end of data takes longer the more fragments the file has.
            share(&source, &target, data, part_end)?;
        } else {
            transfer_data(&source, &target, (data, part_end), &mut data_end)?;
        }
        position = part_end;
        let elapsed = began.elapsed();
        if position == end || elapsed >= STEP_TIME {
            return Ok(position as u32);
        }
        if elapsed - part_began < STEP_TIME / 4 {
            part *= 2;
        }
    }
    Ok(end as u32)
}

/// Duplicates data but no holes, which would become zeros that take space. `data_end` is the end of the data
/// found last.
fn transfer_data(
    source: &File,
    target: &File,
    (start, end): (u64, u64),
    data_end: &mut u64,
) -> io::Result<()> {
    let mut position = start;
    while position < end {
        if *data_end <= position {
            *data_end = next_hole(source, position)?;
        }
        let until = end.min(*data_end);
        duplicate(source, target, position, until)?;
        position = if until < end { next_data(source, until)?.unwrap_or(end) } else { end };
    }
    Ok(())
}

/// Duplicates a range of a file. The kernel's own call would share the range wherever the filesystem can.
fn duplicate(source: &File, target: &File, start: u64, end: u64) -> io::Result<()> {
    let mut memory = vec![0; usize::try_from((end - start).min(DUPLICATED_BYTES)).unwrap_or(0)];
    for position in (start..end).step_by(DUPLICATED_BYTES as usize) {
        let part = &mut memory[..(end - position).min(DUPLICATED_BYTES) as usize];
        source.read_exact_at(part, position)?;
        target.write_all_at(part, position)?;
    }
    Ok(())
}

/// Reserves the space of each piece of a new file that has data in a range.
///
/// # Errors
/// If the filesystem has no space for it.
pub fn reserve(target: &Path, start: u32, end: u32) -> io::Result<()> {
    let target = OpenOptions::new().read(true).write(true).open(target)?;
    let mut position = u64::from(start);
    while let Some(data) = next_data(&target, position)?.filter(|data| *data < u64::from(end)) {
        let piece = data / ALLOCATION_BYTES * ALLOCATION_BYTES;
        fallocate(&target, FallocateFlags::KEEP_SIZE, piece, ALLOCATION_BYTES)?;
        position = piece + ALLOCATION_BYTES;
    }
    Ok(())
}

/// Shares a range of a file with another file, or duplicates it.
fn share(source: &File, target: &File, start: u64, end: u64) -> io::Result<()> {
    let (mut from, mut to) = (start, start);
    while from < end {
        let wanted = usize::try_from(end - from).unwrap_or(usize::MAX);
        if copy_file_range(source, Some(&mut from), target, Some(&mut to), wanted)? == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
        }
    }
    Ok(())
}

/// Space of a volume's files, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Occupied {
    /// Space that the files occupy.
    pub used_bytes: u64,
    /// Space that no other file shares. Deletion of the files would free it.
    pub unique_bytes: u64,
}

impl Store {
    /// Makes the empty files of a new volume's extents on this drive. They belong to no volume, and are not
    /// durable, before [`Store::adopt_snapshots`]. Returns their place.
    ///
    /// # Errors
    /// If the files cannot be made. Then no file is left.
    pub fn begin_snapshot(&self, volume: VolumeId, extents: &[ExtentIndex]) -> Result<Target, StoreError> {
        let new = self.folder_with(volume, NEW_SUFFIX);
        let folder = new.join("extents");
        let make = || {
            self.create_folder_of_extents(&folder)?;
            create_extents(&folder, extents, None)
        };
        make().inspect_err(|_| _ = fs::remove_dir_all(&new))?;
        Ok(Target { folder, can_share: self.look_whether_it_shares(), has_space: false })
    }

    /// Completes the snapshot files of a new volume on this drive. Removes missed extents, and adds replica
    /// metadata to extents with replicas elsewhere. The result is not durable yet.
    ///
    /// # Errors
    /// If the files cannot be changed.
    pub fn complete_snapshot(
        &self,
        volume: VolumeId,
        missed: &[ExtentIndex],
        all_metadata: &[(ExtentIndex, ReplicaMetadata)],
        record: &[u8],
    ) -> Result<(), StoreError> {
        let new = self.folder_with(volume, NEW_SUFFIX);
        let folder = new.join("extents");
        for extent in missed {
            remove_if_there(&folder.join(extent_file_name(*extent)))?;
        }
        for (extent, metadata) in all_metadata {
            let path = replica_metadata::metadata_path(&folder, *extent);
            replica_metadata::write_new(&path, metadata).context("create", &path)?;
        }
        record_backup::write_new(&new, record)
    }

    /// Turns completed snapshot files on this drive into volumes, durably. All volumes become durable at
    /// once, because each sync delays every writer on the drive. The scope must be opened before the first of
    /// the files is made.
    ///
    /// # Errors
    /// If the filesystem fails, now or since the scope was opened. Then some may be volumes already.
    pub fn adopt_snapshots(&self, writes: &WriteScope, volumes: &[VolumeId]) -> Result<(), StoreError> {
        writes.make_durable()?;
        self.refuse_another_folder()?;
        for volume in volumes {
            let (new, folder) = (self.folder_with(*volume, NEW_SUFFIX), self.folder(*volume));
            fs::rename(&new, &folder).context("rename", &new)?;
        }
        sync_folder(&self.volumes())
    }

    /// Space that a volume's extent files on this drive occupy, and its unshared part. The function examines
    /// every piece of the files.
    ///
    /// # Errors
    /// If the files cannot be examined.
    pub fn occupied(&self, volume: VolumeId) -> Result<Occupied, StoreError> {
        let extents = self.extents(volume);
        let mut occupied = Occupied::default();
        for (index, bytes) in self.used_by_extent(volume)? {
            let path = extents.join(extent_file_name(index));
            let shared = if bytes == 0 { 0 } else { shared_bytes(&path).context("examine", &path)? };
            occupied.used_bytes += bytes;
            occupied.unique_bytes += bytes.saturating_sub(shared);
        }
        Ok(occupied)
    }
}

/// Bytes of a file that another file shares. On a filesystem that cannot tell, no bytes are shared.
fn shared_bytes(path: &Path) -> io::Result<u64> {
    match weir_reactor::mapped(&File::open(path)?, 0..u64::MAX) {
        Ok(mapped) => Ok(mapped.shared_bytes),
        Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(0),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{FileExt, MetadataExt};
    use weir_types::bounds::EXTENT_BYTES;

    #[test]
    fn snapshot_keeps_data_and_holes() {
        for can_share in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let (source, target) = (folder.path().join("source"), folder.path().join("target"));
            let files = [&source, &target].map(|path| File::create(path).unwrap());
            files.iter().for_each(|file| file.set_len(EXTENT_BYTES).unwrap());
            let written = [(0_u64, 4096_usize), (9 << 20, 3 << 20), (700 << 20, 8192)];
            written.iter().for_each(|(at, length)| files[0].write_all_at(&vec![7; *length], *at).unwrap());
            let (mut offset, mut steps) = (0_u32, 0);
            while u64::from(offset) < EXTENT_BYTES {
                let rest = (offset, EXTENT_BYTES as u32 - offset);
                let end = snapshot(&source, &target, rest, can_share).unwrap();
                assert!(end > offset && u64::from(end).is_multiple_of(REGION_BYTES));
                (offset, steps) = (end, steps + 1);
            }
            assert!(steps <= 16, "holes are gone over at once");
            let target = File::open(&target).unwrap();
            for (at, length) in written {
                let mut found = vec![0; length];
                target.read_exact_at(&mut found, at).unwrap();
                assert!(found.iter().all(|byte| *byte == 7));
            }
            // If the filesystem duplicates although sharing was asked for, holes beside data take space too.
            let bytes_max = if can_share { 8 << 20 } else { 5 << 20 };
            assert!(target.metadata().unwrap().blocks() * 512 < bytes_max);
        }
    }

    #[test]
    fn what_a_journal_holds_replaces_the_content_of_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let (log, target) = (folder.path().join("log"), folder.path().join("target"));
        std::fs::write(&log, [[1; 4096], [2; 4096], [3; 4096]].as_flattened()).unwrap();
        std::fs::write(&target, [9; 5 * 4096]).unwrap();
        let piece = |block: u32, blocks: u32, position_bytes| HeldPiece {
            offset: block * 4096,
            length: blocks * 4096,
            position_bytes,
        };
        let pieces = vec![piece(0, 1, None), piece(1, 2, Some(4096)), piece(4, 1, Some(0))];
        let log = File::from(weir_reactor::Descriptor::open_direct(&log).unwrap());
        Held { log, pieces }.lay_over(&target).unwrap();
        let expected = [[0; 4096], [2; 4096], [3; 4096], [9; 4096], [1; 4096]];
        assert_eq!(std::fs::read(&target).unwrap(), expected.as_flattened());
    }

    #[test]
    fn pieces_with_data_get_their_space_in_full() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("target");
        let file = File::create(&target).unwrap();
        file.set_len(EXTENT_BYTES).unwrap();
        [5 << 20, (7 << 20) + 8192].iter().for_each(|at| file.write_all_at(&[1; 4096], *at).unwrap());
        reserve(&target, 0, 6 << 20).unwrap();
        let used = || file.metadata().unwrap().blocks() * 512;
        assert!((1 << 20..2 << 20).contains(&used()), "{}", used());
        reserve(&target, 6 << 20, 8 << 20).unwrap();
        assert!((2 << 20..3 << 20).contains(&used()), "{}", used());
    }

    #[test]
    fn damaged_log_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let (log, target) = (folder.path().join("log"), folder.path().join("target"));
        std::fs::write(&log, [1; 4096]).unwrap();
        std::fs::write(&target, [9; 4096]).unwrap();
        let pieces = vec![HeldPiece { offset: 0, length: 4096, position_bytes: Some(4096) }];
        let error = Held { log: File::open(&log).unwrap(), pieces }.lay_over(&target).unwrap_err();
        assert!(error.to_string().contains("read the write journal"));
    }

    #[test]
    fn shortened_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("source");
        File::create(&source).unwrap().set_len(4096).unwrap();
        let error =
            snapshot(&source, &folder.path().join("target"), (0, REGION_BYTES as u32), true).unwrap_err();
        assert!(error.to_string().contains("shortened"));
    }
}
