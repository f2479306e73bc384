//! The catalogue: what should exist, durably.
//!
//! One small interface in the shape of etcd: ordered text keys with JSON values, every one with the revision
//! of its last change, and a transaction that compares revisions before it changes anything. Nothing above
//! this module knows where the values lie; SQLite is the embedded default.

mod guarded;
mod reserve;
mod sqlite;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

pub use guarded::{CATALOGUE_BYTES_MIN, CatalogueFault, Guarded, obstacle};
pub use reserve::Reserve;
pub use sqlite::SqliteCatalogue;

/// One key with its value.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// The value.
    pub value: Value,
    /// The revision of the transaction that wrote it; never 0.
    pub revision: u64,
}

/// Why the catalogue could not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CatalogueError {
    /// A key was changed by somebody else since it was read.
    #[error(
        "'{key}' was changed at the same time by somebody else (it is at revision {found}, not {expected})"
    )]
    Conflict {
        /// The key that was compared.
        key: String,
        /// The revision that was expected; 0 means that the key must not exist.
        expected: u64,
        /// The revision that was found; 0 means that the key does not exist.
        found: u64,
    },
    /// A value does not have the expected form.
    #[error("the catalogue's entry '{key}' is not readable: {reason}")]
    Unreadable {
        /// The key.
        key: String,
        /// What is wrong with its value.
        reason: String,
    },
    /// The store below failed.
    #[error("the catalogue failed: {message}")]
    Store {
        /// What it said.
        message: String,
        /// True if there is no space left for it.
        is_full: bool,
    },
    /// Nothing can be written to its file.
    #[error("the catalogue cannot be written: {message}")]
    ReadOnly {
        /// What the store below said.
        message: String,
    },
    /// The disk below failed.
    #[error("the disk that holds the catalogue failed: {message}")]
    Disk {
        /// What the store below said.
        message: String,
    },
}

impl CatalogueError {
    /// True if there is no space left for the catalogue.
    pub fn is_full(&self) -> bool {
        matches!(self, CatalogueError::Store { is_full: true, .. })
    }

    /// The same error with what can be done.
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
    compares: Vec<(String, u64)>,
    puts: Vec<(String, Value)>,
    deletes: Vec<String>,
    frees_space: bool,
}

impl Transaction {
    /// A transaction that serves to give space back: it may use what is kept in reserve for that.
    pub fn freeing_space() -> Transaction {
        Transaction { frees_space: true, ..Transaction::default() }
    }

    /// Requires that `key` is at `revision`; 0 requires that it does not exist.
    pub fn compare(mut self, key: impl Into<String>, revision: u64) -> Transaction {
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

    /// Removes a key; removing one that does not exist changes nothing.
    pub fn delete(mut self, key: impl Into<String>) -> Transaction {
        self.deletes.push(key.into());
        self
    }
}

/// Ordered keys with JSON values. A transaction that answered success survives any crash.
pub trait Catalogue: Send + Sync {
    /// The entry of one key.
    fn get(&self, key: &str) -> Result<Option<Entry>, CatalogueError>;

    /// All entries whose key begins with `prefix`, in the order of their keys.
    fn range(&self, prefix: &str) -> Result<Vec<Entry>, CatalogueError>;

    /// Applies a transaction and answers its revision, which is greater than all before it.
    ///
    /// # Errors
    /// [`CatalogueError::Conflict`] if a comparison does not hold; nothing has changed then.
    fn commit(&self, transaction: Transaction) -> Result<u64, CatalogueError>;

    /// What keeps it from being written, as the last commit found; `None` if nothing did, or that is not watched.
    fn fault(&self) -> Option<CatalogueFault> {
        None
    }
}

impl Entry {
    /// Reads the value as a record, of which nothing would be lost by writing it again.
    pub fn decode<T: DeserializeOwned + Serialize>(&self) -> Result<T, CatalogueError> {
        weir_store::format::read(&self.value)
            .map_err(|reason| CatalogueError::Unreadable { key: self.key.clone(), reason })
    }
}
