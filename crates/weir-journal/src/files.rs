//! The files behind a journal: what is stable in each slow file, and whether the file is served. The module
//! knows nothing of the journal's content.

use std::collections::BTreeMap;

use weir_types::bounds::JOURNAL_FILES_MAX;

use crate::action::{Action, FileId, FileKey};

/// The state of a file.
///
/// | from | to | cause |
/// |---|---|---|
/// | open | failed | the slow drive failed a change or a sync |
/// | open, failed | forgetting | its owner gives it up |
/// | forgetting | forgetting, with its record | the record that forgets it is written |
///
/// [`FileState::can_become`] is this table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileState {
    /// The file is served.
    Open,
    /// The slow drive failed the file.
    Failed,
    /// The file is being forgotten. The value is the record that forgets the file, once written; zero if none
    /// is needed.
    Forgetting(Option<u64>),
}

impl FileState {
    /// Returns true if a file in this state can come into the next.
    fn can_become(self, next: FileState) -> bool {
        use FileState::{Failed, Forgetting, Open};
        matches!(
            (self, next),
            (Open, Failed) | (Open | Failed, Forgetting(_)) | (Forgetting(None), Forgetting(Some(_)))
        )
    }
}

/// A file behind the journal.
#[derive(Clone, Debug)]
pub(crate) struct File {
    pub key: FileKey,
    file_state: FileState,
    /// Newest record that has an entry of the file; zero if none ever had.
    pub last_sequence: u64,
    /// Number of completed changes of the slow file.
    pub changes: u64,
    /// Number of changes that are stable.
    pub synced: u64,
    /// Number of the last bypass write that was not durable.
    pub passed_by: u64,
    /// Number of changes at the start of the running sync.
    pub syncing: Option<u64>,
    /// Number of changes that a caller wants to be stable.
    pub wants_synced: u64,
    /// Number of operations in flight on the slow file.
    pub under_way: u32,
    /// Whether the drive may have lost unsynced writes. Nothing is destaged to the file then.
    pub is_suspended: bool,
    /// Whether the filesystem can neither zero nor release.
    pub is_without_fallocate: bool,
}

impl File {
    fn new(key: FileKey) -> File {
        File {
            key,
            file_state: FileState::Open,
            last_sequence: 0,
            // The first sync covers bypass writes of an earlier life that were never synced.
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

    pub fn state(&self) -> FileState {
        self.file_state
    }

    /// Brings the file into its next state.
    pub fn change_state(&mut self, next: FileState) {
        assert!(self.file_state.can_become(next), "{:?} never becomes {next:?}", self.file_state);
        self.file_state = next;
    }

    /// Asks for changes to be made stable; true if a sync must begin.
    pub fn want_synced(&mut self, changes: u64) -> bool {
        self.wants_synced = self.wants_synced.max(changes);
        self.begin_sync()
    }

    /// Returns true if a sync begins.
    fn begin_sync(&mut self) -> bool {
        let may_begin = self.file_state == FileState::Open && !self.is_suspended && self.syncing.is_none();
        let begins = may_begin && self.wants_synced > self.synced;
        if begins {
            self.syncing = Some(self.changes);
            self.under_way += 1;
        }
        begins
    }

    /// Suspends the file: nothing more is asked of the slow file, and a running sync proves nothing.
    pub fn suspend(&mut self) {
        self.is_suspended = true;
        self.syncing = self.syncing.map(|_| 0);
    }

    /// Ends a successful sync; true if another sync must begin.
    pub fn end_sync(&mut self) -> bool {
        let syncing = self.syncing.take().expect("a sync that ends has begun");
        self.synced = self.synced.max(syncing);
        self.begin_sync()
    }
}

/// The journal already has the largest allowed number of files behind it.
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
    /// Returns the number of a file, a new one if the file has none.
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

    /// Removes a forgotten file. Another file may get its number from now on.
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

    /// Makes changes of a slow file stable, with a new sync if one is needed.
    pub fn make_synced(&mut self, id: FileId, changes: u64, actions: &mut Vec<Action>) {
        if self.get_mut(id).want_synced(changes) {
            actions.push(Action::SyncSlow { file: id });
        }
    }

    /// Returns all files, in order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (FileKey, FileId)> + '_ {
        self.ids.iter().map(|(key, id)| (*key, *id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forgotten_file_is_never_served_again() {
        use FileState::{Failed, Forgetting, Open};
        let (asked, recorded) = (Forgetting(None), Forgetting(Some(7)));
        for state in [Open, Failed] {
            assert!(state.can_become(asked) && state.can_become(recorded));
            assert!([Open, Failed, asked, recorded].iter().all(|state| !state.can_become(Open)));
        }
        assert!(asked.can_become(recorded) && !recorded.can_become(asked) && !asked.can_become(Failed));
        assert!(Open.can_become(Failed) && !Failed.can_become(Failed));
    }
}
