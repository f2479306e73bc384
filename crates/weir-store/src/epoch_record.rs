//! The file of a volume's epoch records, apart from all its replicas. What is in it, and when it is written again, is decided in
//! [`epoch_record`](weir_volume::mirror::epoch_record).
//!
//! It is read and written past the kernel's cache where the filesystem can: what is read is on the drive, also after a
//! write that failed. Its space is allocated when it is made, so that a full filesystem keeps no number out.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::Path;

use weir_reactor::Descriptor;
use weir_types::bounds::BLOCK_BYTES;
use weir_volume::mirror::EpochRecord;
use weir_volume::mirror::epoch_record::{self, RecordBlock, RecordBlocks};

use super::{Context, StoreError};

/// An open file of epoch records.
struct RecordFile(File);

impl RecordBlocks for RecordFile {
    type Error = io::Error;

    fn read(&mut self, block: u64) -> io::Result<RecordBlock> {
        let mut content = RecordBlock::default();
        loop {
            // Less than a block is there only at the end of the file.
            match self.0.read_at(&mut content.0, block * BLOCK_BYTES) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result.map(|_| content),
            }
        }
    }

    fn write(&mut self, block: u64, content: &RecordBlock) -> io::Result<()> {
        self.0.write_all_at(&content.0, block * BLOCK_BYTES)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.0.sync_all()
    }
}

/// The epoch records of a volume's first extents; those that were never written are zero.
///
/// # Errors
/// If there is a file that cannot be read.
pub fn read_all(path: &Path, extents: u64) -> Result<Vec<EpochRecord>, StoreError> {
    match Descriptor::open_direct(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Ok(vec![EpochRecord::default(); usize::try_from(extents).unwrap_or(usize::MAX)])
        }
        file => {
            let mut file = RecordFile(file.context("open", path)?.into());
            epoch_record::read_all(&mut file, extents).context("read", path)
        }
    }
}

/// Notes the epoch that any metadata of an extent may have from now on, durably. A higher one that is noted stays.
pub fn reserve(path: &Path, extent: u32, epoch: u64) -> io::Result<()> {
    epoch_record::raise(&mut open(path)?, extent, epoch, false)
}

/// Notes the epoch of replica metadata that counts, durably. A higher one that is noted stays.
pub fn know(path: &Path, extent: u32, epoch: u64) -> io::Result<()> {
    epoch_record::raise(&mut open(path)?, extent, epoch, true)
}

/// Notes durably that the last replica in sync of an extent failed, and that nobody knows what it holds.
pub fn fail(path: &Path, extent: u32) -> io::Result<()> {
    epoch_record::fail(&mut open(path)?, extent)
}

/// Sees to it that there is space for the epoch records of so many extents, durably, whatever is noted.
///
/// # Errors
/// Those of the file: nothing can be noted of a volume then that is not noted yet.
pub fn prepare(path: &Path, extents: u64) -> Result<(), StoreError> {
    let mut file = open(path).context("create", path)?;
    let blocks = epoch_record::blocks_of(extents);
    let there = file.0.metadata().context("look at", path)?.len() / BLOCK_BYTES;
    if there >= blocks {
        return Ok(());
    }
    let mut fill = || {
        (there..blocks).try_for_each(|block| {
            let content = file.read(block)?;
            file.write(block, &content)
        })?;
        file.sync()
    };
    fill().context("set space aside in", path)
}

/// Notes the epoch record of extents that are new, durably, whatever was noted of earlier ones.
///
/// # Errors
/// Those of the file.
pub fn begin(path: &Path, extents: Range<u32>, new: EpochRecord) -> Result<(), StoreError> {
    prepare(path, extents.end.into())?;
    let mut file = open(path).context("create", path)?;
    epoch_record::begin(&mut file, extents, new).context("write", path)
}

/// Removes the file of a volume that is no more, if there is one. It is not made sure that it stays away: another volume
/// never asks for it.
///
/// # Errors
/// Those of the folder.
pub fn remove(path: &Path) -> Result<(), StoreError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result.context("remove", path),
    }
}

/// Opens the file; makes it, and the folder that it lies in, durably if there is none.
fn open(path: &Path) -> io::Result<RecordFile> {
    match Descriptor::open_direct(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        result => return Ok(RecordFile(result?.into())),
    }
    if let Err(error) = make(path) {
        // Or the next try would find it there, and take its name for durable.
        let _ = fs::remove_file(path);
        return Err(error);
    }
    Ok(RecordFile(Descriptor::open_direct(path)?.into()))
}

/// Makes an empty file, and the folder that it lies in, durably.
fn make(path: &Path) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?.sync_all()?;
    for folder in [Some(folder), folder.parent()].into_iter().flatten() {
        File::open(folder)?.sync_all()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Reserve(u32, u64),
        Know(u32, u64),
        Begin(u32, u32, u64),
    }

    fn steps() -> impl Strategy<Value = Step> {
        let (extent, epoch) = (0u32..12, 0u64..9);
        prop_oneof![
            (extent.clone(), epoch.clone()).prop_map(|(extent, epoch)| Step::Reserve(extent, epoch)),
            (extent.clone(), epoch.clone()).prop_map(|(extent, epoch)| Step::Know(extent, epoch)),
            (extent, 0u32..4, epoch).prop_map(|(first, count, epoch)| Step::Begin(first, count, epoch)),
        ]
    }

    proptest! {
        #[test]
        fn epoch_records_are_what_a_plain_list_would_be(steps in prop::collection::vec(steps(), 0..20)) {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("epoch-records").join("volume");
            let mut oracle = vec![EpochRecord::default(); 16];
            for step in steps {
                match step {
                    Step::Reserve(extent, epoch) => {
                        reserve(&path, extent, epoch).unwrap();
                        let epoch_record = &mut oracle[extent as usize];
                        epoch_record.reserved = epoch_record.reserved.max(epoch);
                    }
                    Step::Know(extent, epoch) => {
                        know(&path, extent, epoch).unwrap();
                        let epoch_record = &mut oracle[extent as usize];
                        epoch_record.known = epoch_record.known.max(epoch);
                    }
                    Step::Begin(first, count, epoch) => {
                        let new = EpochRecord { reserved: epoch, known: epoch / 2, is_failed: false };
                        begin(&path, first..first + count, new).unwrap();
                        oracle[first as usize..(first + count) as usize].fill(new);
                    }
                }
                prop_assert_eq!(&read_all(&path, 16).unwrap(), &oracle);
                prop_assert_eq!(&read_all(&path, 3).unwrap()[..], &oracle[..3]);
            }
        }
    }

    #[test]
    fn space_for_all_extents_is_set_aside_and_what_is_noted_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("epoch-records").join("volume");
        prepare(&path, 300).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), 2 * BLOCK_BYTES);
        reserve(&path, 299, 4).unwrap();
        prepare(&path, 600).unwrap();
        assert_eq!(
            read_all(&path, 600).unwrap()[299],
            EpochRecord { reserved: 4, known: 0, is_failed: false }
        );
        assert_eq!(fs::metadata(&path).unwrap().len(), 3 * BLOCK_BYTES);
    }

    #[test]
    fn what_was_never_written_or_is_gone_is_zero() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("epoch-records").join("volume");
        assert_eq!(read_all(&path, 2).unwrap(), [EpochRecord::default(); 2]);
        remove(&path).unwrap();
        know(&path, 1, 5).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), BLOCK_BYTES);
        assert_eq!(
            read_all(&path, 2).unwrap(),
            [EpochRecord::default(), EpochRecord { reserved: 0, known: 5, is_failed: false }]
        );
        remove(&path).unwrap();
        assert_eq!(read_all(&path, 2).unwrap(), [EpochRecord::default(); 2]);
    }
}
