//! Guarded catalogue: a catalogue that records why it cannot be written, and names the filesystem and the
//! remedy.
//!
//! A disk that failed once is not written again. The kernel reports a failed write once, and a later success
//! would prove nothing about earlier commits. The guard does not know the content of the catalogue.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{Catalogue, CatalogueError, Entry, Revision, Transaction};
use weir_store::space::{Obstacle, Space};

/// Free space that is always enough for a catalogue, in bytes. With less, a failure to open or write counts
/// as a full filesystem.
pub const CATALOGUE_BYTES_MIN: u64 = 128 << 10;

/// A catalogue in a file, with its last fault.
pub struct Guarded<C> {
    inner: C,
    path: PathBuf,
    fault: Mutex<Option<CatalogueFault>>,
}

/// Fault that keeps a catalogue from being written, as of the last attempt.
#[derive(Clone, Debug, PartialEq)]
pub struct CatalogueFault {
    /// Obstacle outside the catalogue's content, if the fault has one.
    pub obstacle: Option<Obstacle>,
    /// The error, with the filesystem and the remedy if they are known.
    pub error: CatalogueError,
}

impl<C: Catalogue> Guarded<C> {
    /// Guards a catalogue that lies in a file.
    pub fn new(inner: C, path: PathBuf) -> Guarded<C> {
        Guarded { inner, path, fault: Mutex::default() }
    }

    fn known(&self) -> MutexGuard<'_, Option<CatalogueFault>> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refuse_failed_disk(&self) -> Result<(), CatalogueError> {
        match &*self.known() {
            Some(CatalogueFault { obstacle: Some(Obstacle::Disk), error }) => Err(error.clone()),
            _ => Ok(()),
        }
    }
}

impl<C: Catalogue> Catalogue for Guarded<C> {
    fn get(&self, key: &str) -> Result<Option<Entry>, CatalogueError> {
        self.inner.get(key)
    }

    fn range(&self, prefix: &str) -> Result<Vec<Entry>, CatalogueError> {
        self.inner.range(prefix)
    }

    fn commit(&self, transaction: Transaction) -> Result<Revision, CatalogueError> {
        self.refuse_failed_disk()?;
        match self.inner.commit(transaction) {
            Ok(revision) => {
                *self.known() = None;
                Ok(revision)
            }
            // These errors come before any write.
            Err(error @ (CatalogueError::Conflict { .. } | CatalogueError::Unreadable { .. })) => Err(error),
            Err(error) => {
                let obstacle = obstacle(&self.path, &error);
                let error = error.with_remedy(obstacle.map(|obstacle| remedy(obstacle, &self.path)));
                *self.known() = Some(CatalogueFault { obstacle, error: error.clone() });
                Err(error)
            }
        }
    }

    fn fault(&self) -> Option<CatalogueFault> {
        self.known().clone()
    }
}

/// Obstacle that keeps a catalogue from being opened or written, and that has nothing to do with its content.
pub fn obstacle(path: &Path, error: &CatalogueError) -> Option<Obstacle> {
    // Each step of SQLite reports missing space by another error.
    let is_full = || Space::of(path).is_ok_and(|space| space.free_bytes < CATALOGUE_BYTES_MIN);
    match error {
        CatalogueError::Store { is_full: true, .. } => Some(Obstacle::Full),
        CatalogueError::ReadOnly { .. } => Some(Obstacle::ReadOnly),
        _ if Space::of(path).is_ok_and(|space| space.is_read_only) => Some(Obstacle::ReadOnly),
        _ if is_full() => Some(Obstacle::Full),
        CatalogueError::Disk { .. } => Some(Obstacle::Disk),
        _ => None,
    }
}

fn remedy(obstacle: Obstacle, path: &Path) -> String {
    let remedy = obstacle.explain(path);
    match obstacle {
        Obstacle::Disk => format!("{remedy}. No change is accepted until the daemon is started again"),
        Obstacle::Full | Obstacle::ReadOnly => remedy,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    /// A catalogue whose commits return preset results.
    struct Told(Mutex<VecDeque<Result<Revision, CatalogueError>>>);

    impl Catalogue for Told {
        fn get(&self, _: &str) -> Result<Option<Entry>, CatalogueError> {
            Ok(None)
        }

        fn range(&self, _: &str) -> Result<Vec<Entry>, CatalogueError> {
            Ok(Vec::new())
        }

        fn commit(&self, _: Transaction) -> Result<Revision, CatalogueError> {
            self.0.lock().unwrap().pop_front().expect("as many commits as were told of")
        }
    }

    fn told(answers: impl IntoIterator<Item = Result<Revision, CatalogueError>>) -> Guarded<Told> {
        let path = std::env::temp_dir().join("catalogue.sqlite");
        Guarded::new(Told(Mutex::new(answers.into_iter().collect())), path)
    }

    fn commit(catalogue: &Guarded<Told>) -> Result<Revision, CatalogueError> {
        catalogue.commit(Transaction::default())
    }

    #[test]
    fn failed_disk_is_not_written_again() {
        let failed = CatalogueError::Disk { message: "disk I/O error".to_owned() };
        let catalogue = told([Ok(Revision(1)), Err(failed), Ok(Revision(2))]);
        assert_eq!(commit(&catalogue).unwrap(), Revision(1));
        assert_eq!(catalogue.fault(), None);
        let first = commit(&catalogue).unwrap_err().to_string();
        assert!(
            first.contains("the disk below the filesystem at") && first.contains("started again"),
            "{first}"
        );
        assert_eq!(commit(&catalogue).unwrap_err().to_string(), first, "the third answer is never asked for");
        assert_eq!(catalogue.fault().unwrap().obstacle, Some(Obstacle::Disk));
    }

    #[test]
    fn fault_of_a_full_catalogue_lasts_until_the_next_commit() {
        let full = CatalogueError::Store { message: "database or disk is full".to_owned(), is_full: true };
        let conflict =
            CatalogueError::Conflict { key: "key".to_owned(), expected: Revision(1), found: Revision(2) };
        let catalogue = told([Err(full), Err(conflict), Ok(Revision(1))]);
        let message = commit(&catalogue).unwrap_err().to_string();
        assert!(message.contains("is full; the filesystem at") && message.contains("free"), "{message}");
        assert!(commit(&catalogue).is_err());
        assert_eq!(
            catalogue.fault().unwrap().obstacle,
            Some(Obstacle::Full),
            "nothing was written meanwhile"
        );
        commit(&catalogue).unwrap();
        assert_eq!(catalogue.fault(), None);
    }
}
