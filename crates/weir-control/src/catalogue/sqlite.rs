//! SQLite catalogue: the catalogue in one SQLite file.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OptionalExtension, Row, TransactionBehavior, params};

use super::reserve::Reserve;
use super::{Catalogue, CatalogueError, Entry, Revision, Transaction};

/// Version of the tables. A file with a higher version was written by a newer Weir and is refused.
const SCHEMA_VERSION: i64 = 1;

/// Free space below which the filesystem counts as full when a catalogue is opened, in bytes: twice the size
/// of the log index.
const FULL_BELOW_BYTES: u64 = 64 << 10;

const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS entry (
        key TEXT PRIMARY KEY NOT NULL, value TEXT NOT NULL, revision INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS counter (
        name TEXT PRIMARY KEY NOT NULL, value INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    INSERT OR IGNORE INTO counter VALUES ('revision', 0);
";

/// A catalogue in one SQLite file, with a write-ahead log that is flushed at every commit.
pub struct SqliteCatalogue {
    connection: Mutex<Connection>,
    reserve: Reserve,
}

impl From<rusqlite::Error> for CatalogueError {
    fn from(error: rusqlite::Error) -> CatalogueError {
        let message = error.to_string();
        match error.sqlite_error_code() {
            Some(ErrorCode::ReadOnly) => CatalogueError::ReadOnly { message },
            Some(ErrorCode::SystemIoFailure) => CatalogueError::Disk { message },
            code => CatalogueError::Store { message, is_full: code == Some(ErrorCode::DiskFull) },
        }
    }
}

impl SqliteCatalogue {
    /// Opens the catalogue at `path`, and creates it if it does not exist.
    ///
    /// # Errors
    /// If the file is no catalogue, is damaged, or was written by a newer version.
    pub fn open(path: &Path) -> Result<SqliteCatalogue, CatalogueError> {
        let reserve = Reserve::beside(path);
        // Each step of opening reports a full filesystem by another error.
        let is_full = |error: &CatalogueError| error.is_full() || is_filesystem_full(path);
        let connection = reserve.help(is_full, || connect(path))?;
        reserve.refill();
        Ok(SqliteCatalogue { connection: Mutex::new(connection), reserve })
    }

    fn connection(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Opens the file and its log.
fn connect(path: &Path) -> Result<Connection, CatalogueError> {
    let connection = Connection::open(path)?;
    connection.busy_timeout(Duration::from_secs(5))?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    prepare(&connection)?;
    Ok(connection)
}

/// True if the filesystem of a file is full.
fn is_filesystem_full(path: &Path) -> bool {
    let space = path.parent().and_then(|folder| rustix::fs::statvfs(folder).ok());
    space.is_some_and(|space| space.f_bavail.saturating_mul(space.f_frsize) < FULL_BELOW_BYTES)
}

/// Checks that the file is sound and of a supported version, and creates its tables.
fn prepare(connection: &Connection) -> Result<(), CatalogueError> {
    let refuse = |message: String| Err(CatalogueError::Store { message, is_full: false });
    let health: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if health != "ok" {
        return refuse(format!("its file is damaged: {health}"));
    }
    let version: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    if version > SCHEMA_VERSION {
        return refuse(format!("its file has version {version}; this Weir knows {SCHEMA_VERSION}"));
    }
    connection.execute_batch(SCHEMA)?;
    // A start does not write the version again, so it needs no space.
    match version == SCHEMA_VERSION {
        true => Ok(()),
        false => Ok(connection.pragma_update(None, "user_version", SCHEMA_VERSION)?),
    }
}

/// An entry as it lies in the table, before its value is parsed.
type RawEntry = (String, String, u64);

fn raw_entry(row: &Row<'_>) -> rusqlite::Result<RawEntry> {
    Ok((row.get(0)?, row.get(1)?, row.get(2)?))
}

fn entry((key, text, revision): RawEntry) -> Result<Entry, CatalogueError> {
    match serde_json::from_str(&text) {
        Ok(value) => Ok(Entry { key, value, revision: Revision(revision) }),
        Err(error) => Err(CatalogueError::Unreadable { key, reason: error.to_string() }),
    }
}

/// First text after all texts that begin with `prefix`, for prefixes of ASCII.
fn end_of(prefix: &str) -> String {
    let mut end = prefix.to_owned();
    end.push(char::MAX);
    end
}

impl Catalogue for SqliteCatalogue {
    fn get(&self, key: &str) -> Result<Option<Entry>, CatalogueError> {
        let connection = self.connection();
        let mut select =
            connection.prepare_cached("SELECT key, value, revision FROM entry WHERE key = ?1")?;
        select.query_row([key], raw_entry).optional()?.map(entry).transpose()
    }

    fn range(&self, prefix: &str) -> Result<Vec<Entry>, CatalogueError> {
        let connection = self.connection();
        let mut select = connection.prepare_cached(
            "SELECT key, value, revision FROM entry WHERE key >= ?1 AND key < ?2 ORDER BY key",
        )?;
        let rows = select.query_map([prefix, &end_of(prefix)], raw_entry)?;
        rows.map(|row| entry(row?)).collect()
    }

    fn commit(&self, transaction: Transaction) -> Result<Revision, CatalogueError> {
        let mut connection = self.connection();
        let may_help = |error: &CatalogueError| transaction.frees_space && error.is_full();
        let result = self.reserve.help(may_help, || commit(&mut connection, &transaction));
        self.reserve.refill();
        result
    }
}

fn commit(connection: &mut Connection, transaction: &Transaction) -> Result<Revision, CatalogueError> {
    let sql = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for (key, expected) in &transaction.compares {
        let found = revision_of(&sql, key)?;
        if found != *expected {
            return Err(CatalogueError::Conflict { key: key.clone(), expected: *expected, found });
        }
    }
    let revision = apply(&sql, transaction)?;
    sql.commit()?;
    Ok(revision)
}

fn revision_of(sql: &Connection, key: &str) -> Result<Revision, CatalogueError> {
    let mut select = sql.prepare_cached("SELECT revision FROM entry WHERE key = ?1")?;
    let found = select.query_row([key], |row| row.get(0)).optional()?;
    Ok(found.map_or(Revision::ABSENT, Revision))
}

fn apply(sql: &Connection, transaction: &Transaction) -> Result<Revision, CatalogueError> {
    let next = "UPDATE counter SET value = value + 1 WHERE name = 'revision' RETURNING value";
    let revision: u64 = sql.prepare_cached(next)?.query_row([], |row| row.get(0))?;
    let mut put =
        sql.prepare_cached("INSERT OR REPLACE INTO entry (key, value, revision) VALUES (?1, ?2, ?3)")?;
    for (key, value) in &transaction.puts {
        put.execute(params![key, value.to_string(), revision])?;
    }
    let mut delete = sql.prepare_cached("DELETE FROM entry WHERE key = ?1")?;
    for key in &transaction.deletes {
        delete.execute([key])?;
    }
    Ok(Revision(revision))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn catalogue() -> (tempfile::TempDir, SqliteCatalogue) {
        let folder = tempfile::tempdir().unwrap();
        let catalogue = SqliteCatalogue::open(&folder.path().join("catalogue.sqlite")).unwrap();
        (folder, catalogue)
    }

    fn put(key: &str, value: u64, revision: Revision) -> Transaction {
        Transaction::default().compare(key, revision).put(key, &value).unwrap()
    }

    #[test]
    fn failed_comparison_changes_nothing() {
        let (_folder, catalogue) = catalogue();
        let first = catalogue.commit(put("a", 1, Revision::ABSENT)).unwrap();
        let both = put("b", 2, Revision::ABSENT).compare("a", Revision(first.0 + 1)).delete("a");
        let error = catalogue.commit(both).unwrap_err();
        assert!(
            matches!(&error, CatalogueError::Conflict { key, found, .. } if key == "a" && *found == first)
        );
        assert_eq!(catalogue.get("b").unwrap(), None);
        assert!(catalogue.commit(put("a", 3, Revision::ABSENT)).is_err(), "it exists already");
        let second = catalogue.commit(put("a", 3, first)).unwrap();
        assert!(second > first);
        let entry = catalogue.get("a").unwrap().unwrap();
        assert_eq!((entry.decode::<u64>().unwrap(), entry.revision), (3, second));
    }

    #[test]
    fn range_is_ordered_and_limited_to_its_prefix() {
        let (_folder, catalogue) = catalogue();
        for key in ["volume/b", "volume/a", "volumes", "volume", "tenant/x", "volume/a/c"] {
            catalogue.commit(put(key, 0, Revision::ABSENT)).unwrap();
        }
        let keys: Vec<_> = catalogue.range("volume/").unwrap().into_iter().map(|e| e.key).collect();
        assert_eq!(keys, ["volume/a", "volume/a/c", "volume/b"]);
        catalogue.commit(Transaction::default().delete("volume/a").delete("never-was")).unwrap();
        assert_eq!(catalogue.range("volume/").unwrap().len(), 2);
    }

    #[test]
    fn committed_transaction_survives_a_crash() {
        let (folder, catalogue) = catalogue();
        let revision = catalogue.commit(put("a", 1, Revision::ABSENT)).unwrap();
        // A backup of the files as they lie is what a crash leaves: the log was never folded into the file.
        let twin = folder.path().join("backup");
        std::fs::create_dir(&twin).unwrap();
        for name in ["catalogue.sqlite", "catalogue.sqlite-wal"] {
            std::fs::copy(folder.path().join(name), twin.join(name)).unwrap();
        }
        let after = SqliteCatalogue::open(&twin.join("catalogue.sqlite")).unwrap();
        assert_eq!(after.get("a").unwrap().unwrap().revision, revision);
        assert!(after.commit(put("b", 1, Revision::ABSENT)).unwrap() > revision, "revisions never go back");
    }

    #[test]
    fn file_that_is_no_catalogue_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("catalogue.sqlite");
        std::fs::write(&path, "this is no database, and it is long enough to be seen as none").unwrap();
        assert!(SqliteCatalogue::open(&path).is_err());
    }

    #[test]
    fn file_of_a_newer_version_is_refused() {
        let (folder, catalogue) = catalogue();
        catalogue.connection().pragma_update(None, "user_version", 9).unwrap();
        drop(catalogue);
        let error = SqliteCatalogue::open(&folder.path().join("catalogue.sqlite")).err().unwrap();
        assert!(error.to_string().contains("version 9"), "{error}");
    }
}
