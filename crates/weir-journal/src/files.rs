//! The files behind a journal: what of each is stable without the journal, and whether it still counts; it
//! knows nothing of what is in the journal.

use std::collections::BTreeMap;

use weir_types::bounds::JOURNAL_FILES_MAX;

use crate::action::{FileId, FileKey};

/// Whether a file is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileState {
    /// It is.
    Open,
    /// The slow drive failed it.
    Failed,
    /// It is on its way out. The record that says so, if one must.
    Forgetting(Option<u64>),
}

/// One file.
#[derive(Clone, Debug)]
pub(crate) struct File {
    pub key: FileKey,
    pub file_state: FileState,
    /// The newest record that has an entry of it, zero if none ever had.
    pub last_sequence: u64,
    /// Changes of the slow file that were completed.
    pub changes: u64,
    /// Those among them that are stable.
    pub synced: u64,
    /// The last one that passed by and was not durable.
    pub passed_by: u64,
    /// Changes when the sync began that runs.
    pub syncing: Option<u64>,
    /// Changes that somebody wants to be stable.
    pub wants_synced: u64,
    /// Operations on the slow file.
    pub under_way: u32,
    /// Its drive may have forgotten what was not synced: nothing is brought there.
    pub is_suspended: bool,
    /// Its filesystem can neither zero nor release.
    pub is_without_fallocate: bool,
}

impl File {
    fn new(key: FileKey) -> File {
        File {
            key,
            file_state: FileState::Open,
            last_sequence: 0,
            // What passed by in an earlier life, and was never synced, is covered by the first sync.
            changes: 1,
            synced: 0,
            passed_by: 1,
            syncing: None,
            wants_synced: 0,
            under_way: 0,
            is_suspended: false,
            is_without_fallocate: false,
        }
    }

    /// Asks for changes to be made stable; true if a sync must begin.
    pub fn want_synced(&mut self, changes: u64) -> bool {
        self.wants_synced = self.wants_synced.max(changes);
        self.begin_sync()
    }

    /// True if a sync begins.
    fn begin_sync(&mut self) -> bool {
        let may_begin = self.file_state == FileState::Open && !self.is_suspended && self.syncing.is_none();
        let begins = may_begin && self.wants_synced > self.synced;
        if begins {
            self.syncing = Some(self.changes);
            self.under_way += 1;
        }
        begins
    }

    /// Nothing is asked of the slow file any more, and a sync that runs tells nothing.
    pub fn suspend(&mut self) {
        self.is_suspended = true;
        self.syncing = self.syncing.map(|_| 0);
    }

    /// A sync has ended well; true if another one must begin.
    pub fn end_sync(&mut self) -> bool {
        let syncing = self.syncing.take().expect("a sync that ends has begun");
        self.synced = self.synced.max(syncing);
        self.begin_sync()
    }
}

/// As many files as may be are behind the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{JOURNAL_FILES_MAX} files are behind the journal, which is the most")]
pub struct TooManyFiles;

/// All files, by number and by name.
#[derive(Debug, Default)]
pub(crate) struct Files {
    files: Vec<Option<File>>,
    ids: BTreeMap<FileKey, FileId>,
    free: Vec<FileId>,
}

impl Files {
    /// The number of a file, a new one if it has none.
    pub fn open(&mut self, key: FileKey) -> Result<FileId, TooManyFiles> {
        if let Some(id) = self.ids.get(&key) {
            return Ok(*id);
        }
        if self.ids.len() >= JOURNAL_FILES_MAX {
            return Err(TooManyFiles);
        }
        let id = self.free.pop().unwrap_or(FileId(self.files.len() as u32));
        if id.0 as usize == self.files.len() {
            self.files.push(None);
        }
        self.files[id.0 as usize] = Some(File::new(key));
        self.ids.insert(key, id);
        Ok(id)
    }

    /// The file that is forgotten; its number may name another one from now on.
    pub fn remove(&mut self, id: FileId) -> FileKey {
        let file = self.files[id.0 as usize].take().expect("a file is forgotten once");
        self.ids.remove(&file.key);
        self.free.push(id);
        file.key
    }

    pub fn get(&self, id: FileId) -> &File {
        self.files[id.0 as usize].as_ref().expect("a file's number is used until it is forgotten")
    }

    pub fn get_mut(&mut self, id: FileId) -> &mut File {
        self.files[id.0 as usize].as_mut().expect("a file's number is used until it is forgotten")
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = (FileKey, FileId)> + '_ {
        self.ids.iter().map(|(key, id)| (*key, *id))
    }
}
