//! Catalogue: the durable record of all objects that should exist.
//!
//! The interface is small and has the form of etcd: ordered text keys with JSON values, each with the
//! revision of its last change. A transaction compares revisions before it changes anything. Code above this
//! module does not know where the values lie; SQLite is the embedded default.

mod guarded;
mod reserve;
mod sqlite;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

pub use guarded::{CATALOGUE_BYTES_MIN, CatalogueFault, Guarded, obstacle};
pub use reserve::Reserve;
pub use sqlite::SqliteCatalogue;

/// Number of a transaction that changed something. It grows with each transaction and never goes back. An
/// object's revision is the version that interfaces show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Revision(pub u64);

impl Revision {
    /// Revision of a key that does not exist.
    pub const ABSENT: Revision = Revision(0);
}

impl std::fmt::Display for Revision {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// A key with its value.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// The value.
    pub value: Value,
    /// Revision of the transaction that wrote the value.
    pub revision: Revision,
}

/// Failure of the catalogue.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CatalogueError {
    /// Another change of the key came after it was read.
    #[error(
        "'{key}' was changed at the same time by another change (it is at revision {found}, not {expected})"
    )]
    Conflict {
        /// Key that was compared.
        key: String,
        /// Expected revision; [`Revision::ABSENT`] means that the key must not exist.
        expected: Revision,
        /// Actual revision; [`Revision::ABSENT`] means that the key does not exist.
        found: Revision,
    },
    /// A value does not have the expected form.
    #[error("the catalogue's entry '{key}' is not readable: {reason}")]
    Unreadable {
        /// Key of the value.
        key: String,
        /// Fault in the value.
        reason: String,
    },
    /// The underlying store failed.
    #[error("the catalogue failed: {message}")]
    Store {
        /// Message of the store.
        message: String,
        /// True if the store is out of space.
        is_full: bool,
    },
    /// The file of the catalogue cannot be written.
    #[error("the catalogue cannot be written: {message}")]
    ReadOnly {
        /// Message of the underlying store.
        message: String,
    },
    /// The underlying disk failed.
    #[error("the disk that holds the catalogue failed: {message}")]
    Disk {
        /// Message of the underlying store.
        message: String,
    },
}

impl CatalogueError {
    /// True if the catalogue is out of space.
    pub fn is_full(&self) -> bool {
        matches!(self, CatalogueError::Store { is_full: true, .. })
    }

    /// Returns the error with a remedy.
    fn with_remedy(mut self, remedy: Option<String>) -> CatalogueError {
        if let CatalogueError::Store { message, .. }
        | CatalogueError::ReadOnly { message }
        | CatalogueError::Disk { message } = &mut self
        {
            remedy.iter().for_each(|remedy| message.push_str(&format!("; {remedy}")));
        }
        self
    }
}

/// A change of several keys that happens as a whole or not at all, and only if all comparisons hold.
#[derive(Clone, Debug, Default)]
pub struct Transaction {
    compares: Vec<(String, Revision)>,
    puts: Vec<(String, Value)>,
    deletes: Vec<String>,
    frees_space: bool,
}

impl Transaction {
    /// A transaction that frees space, and may use the reserve that is kept for this purpose.
    pub fn freeing_space() -> Transaction {
        Transaction { frees_space: true, ..Transaction::default() }
    }

    /// Requires that `key` has `revision`; [`Revision::ABSENT`] requires that the key does not exist.
    pub fn compare(mut self, key: impl Into<String>, revision: Revision) -> Transaction {
        self.compares.push((key.into(), revision));
        self
    }

    /// Sets a key.
    ///
    /// # Errors
    /// If the value has no JSON form.
    pub fn put(
        mut self,
        key: impl Into<String>,
        value: &impl Serialize,
    ) -> Result<Transaction, CatalogueError> {
        let key = key.into();
        match serde_json::to_value(value) {
            Ok(value) => self.puts.push((key, value)),
            Err(error) => return Err(CatalogueError::Unreadable { key, reason: error.to_string() }),
        }
        Ok(self)
    }

    /// Removes a key. Removing a key that does not exist changes nothing.
    pub fn delete(mut self, key: impl Into<String>) -> Transaction {
        self.deletes.push(key.into());
        self
    }
}

/// Ordered keys with JSON values. A committed transaction survives any crash.
pub trait Catalogue: Send + Sync {
    /// Returns the entry of one key.
    fn get(&self, key: &str) -> Result<Option<Entry>, CatalogueError>;

    /// Returns all entries whose key begins with `prefix`, ordered by key.
    fn range(&self, prefix: &str) -> Result<Vec<Entry>, CatalogueError>;

    /// Commits a transaction and returns its revision, which is greater than all earlier ones.
    ///
    /// # Errors
    /// [`CatalogueError::Conflict`] if a comparison does not hold; nothing has changed then.
    fn commit(&self, transaction: Transaction) -> Result<Revision, CatalogueError>;

    /// Fault of the last commit; `None` if it succeeded, or if the catalogue does not track faults.
    fn fault(&self) -> Option<CatalogueFault> {
        None
    }
}

impl Entry {
    /// Reads the value as a record. A value that would lose content when written again is an error.
    pub fn decode<T: DeserializeOwned + Serialize>(&self) -> Result<T, CatalogueError> {
        weir_store::format::read(&self.value)
            .map_err(|reason| CatalogueError::Unreadable { key: self.key.clone(), reason })
    }
}
