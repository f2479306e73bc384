//! Journal specification: a recovered write journal, as control hands it over.

use std::os::fd::OwnedFd;
use std::path::PathBuf;

use weir_journal::Journal;
use weir_types::ExtentIndex;

use crate::specification::VolumeHome;

/// A recovered journal for a volume, as control hands it over.
pub struct JournalSpec {
    /// The drive of the journal, as a home of the volume.
    pub home: VolumeHome,
    /// The journal's folder.
    pub directory: PathBuf,
    /// The journal's state.
    pub core: Journal,
    /// The journal's log file.
    pub file: OwnedFd,
    /// Size of the log file in bytes.
    pub size_bytes: u64,
    /// The replicas behind the journal, by extent and slot; with their files, if the journal holds data of
    /// them.
    pub bindings: Vec<((ExtentIndex, usize), Option<OwnedFd>)>,
    /// Replicas on missing drives, which may or may not be behind this journal; their data stays in the
    /// journal. The journal forgets the data of all other unbound replicas.
    pub keeps: Vec<(ExtentIndex, usize)>,
}
