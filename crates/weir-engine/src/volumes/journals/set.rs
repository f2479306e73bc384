//! Journal set: the journals of a volume by their index, which stays as long as the volume is open.

use weir_types::DriveId;

use super::{SlowFile, VolumeJournal};

/// The journals of a volume. An index is never used again.
#[derive(Default)]
pub struct JournalSet(Vec<Option<VolumeJournal>>);

impl JournalSet {
    /// The index of the next journal.
    pub fn next_index(&self) -> usize {
        self.0.len()
    }

    /// Adds the journal with the next index.
    pub fn add(&mut self, journal: VolumeJournal) {
        self.0.push(Some(journal));
    }

    pub fn remove(&mut self, journal: usize) {
        self.0[journal] = None;
    }

    /// The index of the journal on a drive.
    pub fn on(&self, drive: DriveId) -> Option<usize> {
        self.0.iter().position(|journal| journal.as_ref().is_some_and(|journal| journal.drive == drive))
    }

    pub fn at(&self, journal: usize) -> &VolumeJournal {
        self.0[journal].as_ref().expect("a journal is asked for while it is there")
    }

    pub fn at_mut(&mut self, journal: usize) -> &mut VolumeJournal {
        self.0[journal].as_mut().expect("a journal is asked for while it is there")
    }

    /// A journal that may have been removed.
    pub fn get_mut(&mut self, journal: usize) -> Option<&mut VolumeJournal> {
        self.0.get_mut(journal)?.as_mut()
    }

    /// The indices of all journals.
    pub fn indices(&self) -> Vec<usize> {
        (0..self.0.len()).filter(|journal| self.0[*journal].is_some()).collect()
    }

    pub fn iter(&self) -> impl Iterator<Item = &VolumeJournal> {
        self.0.iter().flatten()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut VolumeJournal> {
        self.0.iter_mut().flatten()
    }

    /// The files behind all journals.
    pub fn files(&self) -> impl Iterator<Item = &SlowFile> {
        self.iter().flat_map(|journal| journal.files.values())
    }
}
