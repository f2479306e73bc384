//! Journal files: the files of write journals. This module knows bytes, files and names, not journal
//! bindings.
//!
//! The journal of a volume on a fast drive is the folder `<drive>/journals/<volume-id>/`. It holds `log`, the
//! file of the journal. It also holds `NNNNNNNN.C.metadata`, the metadata of replica C of an extent behind
//! the journal. The metadata lies there and not beside the replica, because writes wait for it. Beside each
//! replica behind the journal, on its slow drive, lies the marker `extents/NNNNNNNN.journal`. The marker
//! names the journal. Without the journal the replica's file is useless.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::FallocateFlags;
use weir_journal::superblock::{self, Superblock};
use weir_journal::{Block, Geometry, Journal, Recovery, Step};
use weir_reactor::Descriptor;
use weir_types::bounds::BLOCK_BYTES;
use weir_types::{DriveId, ExtentIndex, JournalId, VolumeId};

use super::{Context, DELETED_SUFFIX, NEW_SUFFIX, Store, StoreError, extent_file_name, remove_if_there};
use super::{remove_tree, sync_folder};

/// Name of the folder of all journals in the drive's folder.
pub const JOURNALS_FOLDER: &str = "journals";
/// Name of a journal's file.
const LOG_FILE: &str = "log";
/// Suffix of a marker.
const MARKER_SUFFIX: &str = "journal";
/// First bytes of a marker.
const MARKER_MAGIC: [u8; 8] = *b"WEIRBHND";
/// Version of the format of a marker.
const MARKER_FORMAT: u32 = 1;
/// Size of a marker: the magic, the version, the drive, the journal, and a checksum of them.
pub const MARKER_BYTES: usize = 48;
const MARKER_FORMAT_START: usize = MARKER_MAGIC.len();
const MARKER_DRIVE_START: usize = 12;
const MARKER_JOURNAL_START: usize = 28;
/// Bytes of a new journal that are written at a time.
const ZEROES_BYTES: u64 = 1 << 20;
/// Position of the checksum of all bytes before it.
const MARKER_CHECKSUM_START: usize = MARKER_BYTES - 4;

/// Why bytes are no marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MarkerFault {
    /// The marker is damaged, or was only partly written.
    #[error("it is damaged")]
    Damaged,
    /// A later version wrote the marker.
    #[error("it has format {0}, not {MARKER_FORMAT}")]
    Format(u32),
}

/// Journal binding: the journal that a replica is behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Behind {
    /// The drive that has the journal.
    pub drive: DriveId,
    /// The journal.
    pub journal: JournalId,
}

/// A journal that is ready for use.
#[derive(Debug)]
pub struct ReadyJournal {
    /// Identity of the journal.
    pub id: JournalId,
    /// State of the journal.
    pub core: Journal,
    /// File of the journal.
    pub file: OwnedFd,
    /// Size of the file, in bytes.
    pub size_bytes: u64,
}

/// Path of the marker beside the replica of the extent with this index in a folder of extents.
pub fn marker_path(extents: &Path, index: ExtentIndex) -> PathBuf {
    extents.join(format!("{}.{MARKER_SUFFIX}", extent_file_name(index)))
}

/// The name of the extent's file that a file beside it belongs to, if it is a marker.
pub(crate) fn extent_name_of(file_name: &str) -> Option<&str> {
    file_name.strip_suffix(MARKER_SUFFIX)?.strip_suffix('.')
}

/// Path of the log in a journal's folder.
pub fn log_path(journal: &Path) -> PathBuf {
    journal.join(LOG_FILE)
}

/// Path of the metadata of a replica behind a journal, in the journal's folder.
pub fn journaled_metadata_path(journal: &Path, extent: ExtentIndex, slot: usize) -> PathBuf {
    journal.join(format!("{}.{slot}.metadata", extent_file_name(extent)))
}

/// The folder of a volume's journal on a drive, whether it exists or not.
pub fn journal_folder(drive: &Path, volume: VolumeId) -> PathBuf {
    drive.join(JOURNALS_FOLDER).join(volume.to_string())
}

/// The journal binding in the marker of a replica. `None` if the replica has no marker and is behind no
/// journal.
///
/// # Errors
/// If the marker cannot be read or is damaged. Then it is unknown whether the replica's file is complete.
pub fn read_marker(extents: &Path, index: ExtentIndex) -> Result<Option<Behind>, StoreError> {
    let path = marker_path(extents, index);
    let bytes = match fs::read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        result => result.context("read", &path)?,
    };
    decode_marker(&bytes).map(Some).map_err(io::Error::other).context("understand", &path)
}

/// Decodes a marker.
///
/// # Errors
/// If the marker is damaged, or a later version wrote it.
pub fn decode_marker(bytes: &[u8]) -> Result<Behind, MarkerFault> {
    let bytes: &[u8; MARKER_BYTES] = bytes.try_into().map_err(|_| MarkerFault::Damaged)?;
    let (content, checksum) = bytes.split_at(MARKER_CHECKSUM_START);
    if crc32c::crc32c(content).to_le_bytes() != checksum || !content.starts_with(&MARKER_MAGIC) {
        return Err(MarkerFault::Damaged);
    }
    let format = u32::from_le_bytes(field(content, MARKER_FORMAT_START));
    if format != MARKER_FORMAT {
        return Err(MarkerFault::Format(format));
    }
    Ok(Behind {
        drive: DriveId::from_bytes(field(content, MARKER_DRIVE_START)),
        journal: JournalId::from_bytes(field(content, MARKER_JOURNAL_START)),
    })
}

fn field<const N: usize>(content: &[u8], start: usize) -> [u8; N] {
    content[start..start + N].try_into().expect("a field lies within the marker")
}

/// Encodes a marker.
pub fn encode_marker(behind: Behind) -> [u8; MARKER_BYTES] {
    let mut bytes = [0; MARKER_BYTES];
    let mut put = |start: usize, field: &[u8]| bytes[start..start + field.len()].copy_from_slice(field);
    put(0, &MARKER_MAGIC);
    put(MARKER_FORMAT_START, &MARKER_FORMAT.to_le_bytes());
    put(MARKER_DRIVE_START, &behind.drive.bytes());
    put(MARKER_JOURNAL_START, &behind.journal.bytes());
    let checksum = crc32c::crc32c(&bytes[..MARKER_CHECKSUM_START]);
    bytes[MARKER_CHECKSUM_START..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

impl Store {
    /// The folder of all journals on this drive.
    fn journals(&self) -> PathBuf {
        self.drive().join(JOURNALS_FOLDER)
    }

    /// The folder of a volume's journal on this drive.
    pub fn journal(&self, volume: VolumeId) -> PathBuf {
        journal_folder(self.drive(), volume)
    }

    /// The volumes that have a journal on this drive.
    pub fn journaled_volumes(&self) -> Result<Vec<VolumeId>, StoreError> {
        let folder = self.journals();
        let entries = match fs::read_dir(&folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.context("read", &folder)?,
        };
        let mut volumes = Vec::new();
        for entry in entries {
            let name = entry.context("read", &folder)?.file_name();
            let name = name.to_string_lossy();
            volumes.extend(name.parse().ok().map(VolumeId));
        }
        Ok(volumes)
    }

    /// Removes unfinished and deleted journals that a crash left, except those of volumes that are being made.
    ///
    /// # Errors
    /// If the filesystem fails.
    pub fn remove_journal_remains(&self, is_being_made: impl Fn(VolumeId) -> bool) -> Result<(), StoreError> {
        let folder = self.journals();
        let entries = match fs::read_dir(&folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries.context("read", &folder)?,
        };
        for entry in entries {
            let name = entry.context("read", &folder)?.file_name();
            let name = name.to_string_lossy();
            let id = name.strip_suffix(NEW_SUFFIX).or_else(|| name.strip_suffix(DELETED_SUFFIX));
            let is_in_use = |id: &str| id.parse().is_ok_and(|id| is_being_made(VolumeId(id)));
            if id.is_some_and(|id| !is_in_use(id)) {
                remove_tree(&folder.join(&*name))?;
            }
        }
        Ok(())
    }

    /// True if any journal lies on this drive, also one that is being made now. Removes nothing.
    pub fn has_journals(&self) -> Result<bool, StoreError> {
        let folder = self.journals();
        match fs::read_dir(&folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            entries => Ok(entries.context("read", &folder)?.next().is_some()),
        }
    }

    /// Makes a journal of so many bytes for a volume, durably, and allocates all space that it will ever use.
    ///
    /// # Errors
    /// If there is not enough space. Then no part of the journal stays.
    pub fn create_journal(&self, volume: VolumeId, size_bytes: u64) -> Result<JournalId, StoreError> {
        self.refuse_another_folder()?;
        let new = self.journals().join(format!("{volume}{NEW_SUFFIX}"));
        remove_tree(&new)?;
        let id = JournalId::from_bytes(uuid::Uuid::new_v4().into_bytes());
        let made = format_in(&new, id, size_bytes).and_then(|()| {
            self.refuse_another_folder()?;
            let folder = self.journal(volume);
            fs::rename(&new, &folder).context("rename", &new)?;
            sync_folder(&self.journals())?;
            sync_folder(self.drive())
        });
        if made.is_err() {
            // On a full drive no space may leak.
            let _ = fs::remove_dir_all(&new);
        }
        made.map(|()| id)
    }

    /// Opens a volume's journal and recovers it.
    ///
    /// # Errors
    /// If the journal cannot be read or trusted. Then the replicas behind it are useless.
    pub fn open_journal(&self, volume: VolumeId) -> Result<ReadyJournal, StoreError> {
        let path = log_path(&self.journal(volume));
        // The direct open comes first: until then writes of an earlier daemon may still land.
        let direct = Descriptor::open_direct(&path).context("open", &path)?;
        let file = OpenOptions::new().read(true).write(true).open(&path).context("open", &path)?;
        let size_bytes = file.metadata().context("examine", &path)?.len();
        let id = identity_in(&file).context("use the journal", &path)?;
        let core = recover(&file, id, size_bytes).context("use the journal", &path)?;
        // Data of another volume would be taken for data that nobody needs any more.
        if let Some(key) = core.files().map(|(key, _)| key).find(|key| key.volume != volume) {
            let foreign = io::Error::other(format!("it has data of volume {}, not {volume}", key.volume));
            return Err(foreign).context("use the journal", &path);
        }
        Ok(ReadyJournal { id, core, file: direct, size_bytes })
    }

    /// Makes replicas behind a volume's journal on this drive lack everything, durably, if there is a
    /// journal. Of the given replicas, by extent and number, only those behind the journal change.
    ///
    /// # Errors
    /// If the filesystem fails.
    pub fn forget_journaled_metadata(
        &self,
        volume: VolumeId,
        replicas: impl Iterator<Item = (ExtentIndex, usize)>,
    ) -> Result<(), StoreError> {
        let journal = self.journal(volume);
        let paths = replicas.map(|(extent, slot)| journaled_metadata_path(&journal, extent, slot));
        for path in paths {
            if path.try_exists().context("examine", &path)? {
                super::replica_metadata::forget(&path)?;
            }
        }
        Ok(())
    }

    /// Removes a volume's journal, also a half made one, if there is one. No replica may be behind it any more.
    pub fn remove_journal(&self, volume: VolumeId) -> Result<(), StoreError> {
        let folder = self.journal(volume);
        remove_tree(&self.journals().join(format!("{volume}{NEW_SUFFIX}")))?;
        let deleted = self.journals().join(format!("{volume}{DELETED_SUFFIX}"));
        remove_tree(&deleted)?;
        match fs::rename(&folder, &deleted) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            result => result.context("rename", &folder)?,
        }
        sync_folder(&self.journals())?;
        remove_tree(&deleted)
    }

    /// Removes the folder of all journals if it is empty.
    pub(crate) fn dissolve_journals(&self) -> Result<(), StoreError> {
        let folder = self.journals();
        match fs::remove_dir(&folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result.context("remove", &folder),
        }
    }

    /// Writes the journal bindings of replicas on this drive to their markers, durably. Replica metadata
    /// beside the replicas is removed, because it no longer counts.
    pub fn put_behind(&self, volume: VolumeId, replicas: &[(ExtentIndex, Behind)]) -> Result<(), StoreError> {
        let extents = self.extents(volume);
        for (index, behind) in replicas {
            let path = marker_path(&extents, *index);
            let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path);
            let file = file.context("create", &path)?;
            file.write_all_at(&encode_marker(*behind), 0).context("write", &path)?;
            file.sync_data().context("make durable", &path)?;
            remove_if_there(&super::replica_metadata::metadata_path(&extents, *index))?;
        }
        if replicas.is_empty() { Ok(()) } else { sync_folder(&extents) }
    }
}

fn format_in(folder: &Path, id: JournalId, size_bytes: u64) -> Result<(), StoreError> {
    let path = log_path(folder);
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).context("create", folder)?;
    folder
        .ancestors()
        .take(3)
        .find(|above| above.ends_with(JOURNALS_FOLDER))
        .map_or(Ok(()), super::refuse_foreign)?;
    let geometry = Geometry::of_file(size_bytes).map_err(io::Error::other).context("create", &path)?;
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path);
    let file = file.context("create", &path)?;
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, size_bytes)
        .context("reserve space for", &path)?;
    // A rewrite of written blocks changes no other part of the filesystem for which a sync would have to
    // wait.
    let zeroes = vec![0; ZEROES_BYTES as usize];
    for offset in (0..size_bytes).step_by(ZEROES_BYTES as usize) {
        let count = ZEROES_BYTES.min(size_bytes - offset) as usize;
        file.write_all_at(&zeroes[..count], offset).context("fill", &path)?;
    }
    let superblocks = superblock::format(id, geometry);
    file.write_all_at(superblocks.as_flattened(), 0).context("write", &path)?;
    file.sync_all().context("make durable", &path)?;
    sync_folder(folder)
}

/// Identity of a journal, from either superblock.
fn identity_in(file: &File) -> io::Result<JournalId> {
    let mut superblocks = [[0; BLOCK_BYTES as usize]; 2];
    file.read_exact_at(superblocks.as_flattened_mut(), 0)?;
    let found = superblocks.each_ref().map(Superblock::decode);
    let whole = found.iter().flatten().max_by_key(|superblock| superblock.generation);
    let fault = || found[0].as_ref().err().map_or_else(String::new, ToString::to_string);
    whole.map(|superblock| superblock.journal).ok_or_else(|| io::Error::other(fault()))
}

/// Runs a recovery step by step.
fn recover(file: &File, id: JournalId, size_bytes: u64) -> io::Result<Journal> {
    let mut recovery = Recovery::new(id, size_bytes).map_err(io::Error::other)?;
    let mut bytes = Vec::new();
    loop {
        match recovery.step() {
            Step::Sync => {
                file.sync_all()?;
                recovery.synced();
            }
            Step::Read { position_bytes, length } => {
                bytes.resize(length as usize, 0);
                file.read_exact_at(&mut bytes, position_bytes)?;
                recovery.read(&bytes).map_err(io::Error::other)?;
            }
            Step::WriteSuperblock { position_bytes } => {
                let mut block: Block = [0; BLOCK_BYTES as usize];
                recovery.encode_superblock(&mut block);
                file.write_all_at(&block, position_bytes)?;
                file.sync_all()?;
                recovery.superblock_written();
            }
            Step::Ready => return Ok(recovery.finish()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_journal::FileKey;
    use weir_journal::record::{self, Entry, EntryKind, Header};
    use weir_types::bounds::JOURNAL_BYTES_MIN;

    const VOLUME: VolumeId = VolumeId::from_bytes([7; 16]);

    #[test]
    fn journal_is_created_opened_and_removed() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path().to_owned()).unwrap();
        assert!(store.open_journal(VOLUME).is_err() && !store.has_journals().unwrap());
        let unfinished = store.journals().join(format!("{VOLUME}{NEW_SUFFIX}"));
        fs::create_dir_all(&unfinished).unwrap();
        assert!(store.has_journals().unwrap() && unfinished.exists(), "another thread may be making it");
        let id = store.create_journal(VOLUME, JOURNAL_BYTES_MIN).unwrap();
        assert_eq!(store.journaled_volumes().unwrap(), [VOLUME]);
        for _ in 0..2 {
            let ready = store.open_journal(VOLUME).unwrap();
            assert_eq!(ready.id, id);
            assert!(ready.core.is_empty());
        }
        assert!(store.create_journal(VOLUME, 4096).unwrap_err().to_string().contains("64 MiB"));
        store.remove_journal(VOLUME).unwrap();
        assert!(store.journaled_volumes().unwrap().is_empty());
        store.remove_journal(VOLUME).unwrap();
    }

    /// The first record of a journal that was opened once. It zeroes a block of the volume.
    fn zeroed_record(journal: JournalId) -> Block {
        let header = Header { journal, position: 0, sequence: 1, stable: 0, life: 1, generation: 2 };
        let file = FileKey { volume: VOLUME, extent: ExtentIndex(0), replica: 0 };
        let entry = Entry { file, offset: 0, length: BLOCK_BYTES as u32, kind: EntryKind::Zero };
        let mut block = [0; BLOCK_BYTES as usize];
        record::encode(&header, [entry].into_iter(), &mut block);
        block
    }

    #[test]
    fn foreign_or_damaged_journal_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path().to_owned()).unwrap();
        store.create_journal(VOLUME, JOURNAL_BYTES_MIN).unwrap();
        let id = store.open_journal(VOLUME).unwrap().id;
        let log = OpenOptions::new().write(true).open(log_path(&store.journal(VOLUME))).unwrap();
        log.write_all_at(&zeroed_record(id), 2 * BLOCK_BYTES).unwrap();
        assert_eq!(store.open_journal(VOLUME).unwrap().core.files().count(), 1);
        let other = VolumeId::from_bytes([8; 16]);
        fs::rename(store.journal(VOLUME), store.journal(other)).unwrap();
        let error = store.open_journal(other).unwrap_err().to_string();
        assert!(error.contains(&format!("data of volume {VOLUME}")), "{error}");
        log.write_all_at(&[0; 8192], 0).unwrap();
        assert!(store.open_journal(other).is_err());
    }

    #[test]
    fn damaged_journal_marker_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path().to_owned()).unwrap();
        store.create(VOLUME, &[ExtentIndex(3)], b"{}", None).unwrap();
        let extents = store.extents(VOLUME);
        assert_eq!(read_marker(&extents, ExtentIndex(3)).unwrap(), None);
        let behind = Behind { drive: DriveId::from_bytes([1; 16]), journal: JournalId::from_bytes([2; 16]) };
        store.put_behind(VOLUME, &[(ExtentIndex(3), behind)]).unwrap();
        assert_eq!(read_marker(&extents, ExtentIndex(3)).unwrap(), Some(behind));
        let path = marker_path(&extents, ExtentIndex(3));
        let whole = fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            fs::write(&path, damaged).unwrap();
            assert!(read_marker(&extents, ExtentIndex(3)).is_err(), "byte {at}");
        }
        fs::write(&path, &whole[..10]).unwrap();
        assert!(read_marker(&extents, ExtentIndex(3)).is_err(), "torn");
        let mut later = whole.clone();
        later[MARKER_FORMAT_START] = 2;
        let checksum = crc32c::crc32c(&later[..MARKER_CHECKSUM_START]);
        later[MARKER_CHECKSUM_START..].copy_from_slice(&checksum.to_le_bytes());
        fs::write(&path, &later).unwrap();
        assert!(read_marker(&extents, ExtentIndex(3)).unwrap_err().to_string().contains("format 2, not 1"));
        store.delete_extents_at(VOLUME, &[ExtentIndex(3)]).unwrap();
        assert_eq!(read_marker(&extents, ExtentIndex(3)).unwrap(), None, "it goes with its replica");
    }
}
