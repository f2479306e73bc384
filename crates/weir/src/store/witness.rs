//! The file of a volume's witnesses, apart from all its copies; it keeps numbers, and not what follows from them.
//!
//! Each extent has 16 bytes: the epoch that is reserved and the one that is known, little endian. What the file lacks is
//! zero. Numbers only grow, but for extents that are new: what lies beyond a volume's end means nothing.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::Path;

use weir_volume::mirror::Witness;

use super::account::read_up_to;
use super::{Context, StoreError};

/// What an extent has, in bytes: no sector of a drive is so small that it could be torn.
const ENTRY_BYTES: usize = 16;
/// Where in that the known epoch is; the reserved one comes first.
const KNOWN_START: u64 = 8;

/// The witnesses of a volume's first extents; those that were never written are zero.
///
/// # Errors
/// If there is a file that cannot be read.
pub fn read_all(path: &Path, extents: u64) -> Result<Vec<Witness>, StoreError> {
    let mut content = vec![0; usize::try_from(extents).unwrap_or(usize::MAX).saturating_mul(ENTRY_BYTES)];
    match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        file => read_up_to(&file.context("open", path)?, &mut content, 0).context("read", path)?,
    }
    Ok(content.chunks_exact(ENTRY_BYTES).map(decode).collect())
}

/// Notes the epoch that any account of an extent may have from now on, durably. A higher one that is noted stays.
pub fn reserve(path: &Path, extent: u32, epoch: u64) -> io::Result<()> {
    raise(path, offset_of(extent), epoch)
}

/// Notes the epoch of an account that counts, durably. A higher one that is noted stays.
pub fn know(path: &Path, extent: u32, epoch: u64) -> io::Result<()> {
    raise(path, offset_of(extent) + KNOWN_START, epoch)
}

/// Notes an epoch as reserved and known for extents that are new, durably, whatever was noted of earlier ones.
///
/// # Errors
/// Those of the file.
pub fn begin(path: &Path, extents: Range<u32>, epoch: u64) -> Result<(), StoreError> {
    let entry = encode(Witness { reserved: epoch, known: epoch });
    let content: Vec<u8> = extents.clone().flat_map(|_| entry).collect();
    let file = open(path).context("create", path)?;
    file.write_all_at(&content, offset_of(extents.start)).context("write", path)?;
    file.sync_all().context("make durable", path)
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

fn offset_of(extent: u32) -> u64 {
    u64::from(extent) * ENTRY_BYTES as u64
}

fn encode(witness: Witness) -> [u8; ENTRY_BYTES] {
    let mut entry = [0; ENTRY_BYTES];
    entry[..8].copy_from_slice(&witness.reserved.to_le_bytes());
    entry[8..].copy_from_slice(&witness.known.to_le_bytes());
    entry
}

fn decode(entry: &[u8]) -> Witness {
    let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("half an entry is a number"));
    Witness { reserved: number(&entry[..8]), known: number(&entry[8..]) }
}

fn raise(path: &Path, offset: u64, epoch: u64) -> io::Result<()> {
    let file = open(path)?;
    let mut noted = [0; 8];
    read_up_to(&file, &mut noted, offset)?;
    if u64::from_le_bytes(noted) < epoch {
        file.write_all_at(&epoch.to_le_bytes(), offset)?;
    }
    // Also if it says so already: who wrote that may not have lived to make it durable.
    file.sync_all()
}

/// Opens the file; makes it, and the folder that it lies in, durably if there is none.
fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    match options.open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        result => return result,
    }
    let folder = path.parent().unwrap_or(Path::new("/"));
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let file = options.create(true).truncate(false).open(path)?;
    for folder in [Some(folder), folder.parent()].into_iter().flatten() {
        File::open(folder)?.sync_all()?;
    }
    Ok(file)
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
        fn witnesses_are_what_a_plain_list_would_be(steps in prop::collection::vec(steps(), 0..20)) {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("witnesses").join("volume");
            let mut oracle = vec![Witness::default(); 16];
            for step in steps {
                match step {
                    Step::Reserve(extent, epoch) => {
                        reserve(&path, extent, epoch).unwrap();
                        let witness = &mut oracle[extent as usize];
                        witness.reserved = witness.reserved.max(epoch);
                    }
                    Step::Know(extent, epoch) => {
                        know(&path, extent, epoch).unwrap();
                        let witness = &mut oracle[extent as usize];
                        witness.known = witness.known.max(epoch);
                    }
                    Step::Begin(first, count, epoch) => {
                        begin(&path, first..first + count, epoch).unwrap();
                        let new = Witness { reserved: epoch, known: epoch };
                        oracle[first as usize..(first + count) as usize].fill(new);
                    }
                }
                prop_assert_eq!(&read_all(&path, 16).unwrap(), &oracle);
                prop_assert_eq!(&read_all(&path, 3).unwrap()[..], &oracle[..3]);
            }
        }
    }

    #[test]
    fn what_was_never_written_or_is_gone_is_zero() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("witnesses").join("volume");
        assert_eq!(read_all(&path, 2).unwrap(), [Witness::default(); 2]);
        remove(&path).unwrap();
        know(&path, 1, 5).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), 32);
        assert_eq!(read_all(&path, 2).unwrap(), [Witness::default(), Witness { reserved: 0, known: 5 }]);
        remove(&path).unwrap();
        assert_eq!(read_all(&path, 2).unwrap(), [Witness::default(); 2]);
    }
}
