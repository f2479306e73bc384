//! Checksum files: reading and writing the file with the checksums of one replica, for a helper thread.
//!
//! This module does not know the meaning of checksums, or which replicas a request is for.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use weir_store::checksums;
use weir_types::DriveId;
use weir_volume::mirror::ChecksumHeader;

use super::shortage::patiently;
use crate::token::{AskNumber, ReplicaIndex};

/// The operation on a checksum file.
pub enum ChecksumOperation {
    Load { section: u32 },
    Store { section: u32, block_checksums: Arc<Vec<u32>> },
    WriteHeader(ChecksumHeader),
}

/// An operation on the checksum file of one replica.
pub struct ChecksumJob {
    /// The drive that holds the file.
    pub drive: DriveId,
    /// Number of the request that the operation belongs to.
    pub request: u64,
    pub replica: ReplicaIndex,
    pub number: AskNumber,
    pub path: PathBuf,
    pub operation: ChecksumOperation,
    /// When an emulated drive is done with the operation, in nanoseconds.
    pub due_ns: u64,
}

/// Answer to a [`ChecksumJob`].
pub struct ChecksumAnswer {
    pub request: u64,
    pub replica: ReplicaIndex,
    pub number: AskNumber,
    pub due_ns: u64,
    pub outcome: ChecksumOutcome,
}

/// The outcome of an operation on a checksum file.
pub enum ChecksumOutcome {
    Loaded(Option<Vec<u32>>),
    Done,
    /// The header could not be written and the file was removed, so no checksum counts any more.
    Dropped(String),
    Failed(String),
}

impl ChecksumJob {
    /// Carries out the operation.
    pub fn perform(self) -> ChecksumAnswer {
        let ChecksumJob { request, replica, number, due_ns, .. } = self;
        let path = &self.path;
        let describe = |error: std::io::Error| format!("checksums {}: {error}", path.display());
        let outcome = match self.operation {
            ChecksumOperation::Load { section } => match checksums::read_section(path, section) {
                Ok(block_checksums) => ChecksumOutcome::Loaded(block_checksums),
                Err(error) => {
                    tracing::warn!("{}", describe(error));
                    ChecksumOutcome::Loaded(None)
                }
            },
            ChecksumOperation::Store { section, block_checksums } => {
                match checksums::write_section(path, section, &block_checksums) {
                    Ok(()) => ChecksumOutcome::Done,
                    Err(error) => ChecksumOutcome::Failed(describe(error)),
                }
            }
            ChecksumOperation::WriteHeader(header) => {
                let written = patiently(|| checksums::write_header(path, &header));
                written.map_or_else(|error| drop_checksums(path, describe(error)), |()| ChecksumOutcome::Done)
            }
        };
        ChecksumAnswer { request, replica, number, due_ns, outcome }
    }
}

/// Removes a checksum file whose header cannot be written, because an outdated header must not count later.
fn drop_checksums(path: &Path, why: String) -> ChecksumOutcome {
    match checksums::remove(path) {
        Ok(()) => ChecksumOutcome::Dropped(why),
        Err(error) => ChecksumOutcome::Failed(format!("{why}; and cannot be removed: {error}")),
    }
}
