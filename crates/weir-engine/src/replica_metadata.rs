//! Replica metadata I/O: the thin shell of [`MetadataWrites`](weir_volume::mirror::MetadataWrites), which
//! decides when to write replica metadata and epoch records.
//!
//! This module does not know the meaning of replica metadata. One helper thread per drive writes the files,
//! so that a drive that hangs delays no other. Answers of an emulated drive are held back until its model
//! would have answered.

use std::collections::BTreeMap;

use super::helper::MetadataError;
use super::token::{AskNumber, ReplicaIndex, VolumeIndex};

/// Result of writing the metadata of an extent replica.
pub type Answered = (ReplicaIndex, u32, AskNumber, Result<(), MetadataError>);

/// A reactor's writes of replica metadata under way.
#[derive(Default)]
pub struct MetadataIo {
    /// The number of the expected answer, by volume, slot and extent.
    pub asked: BTreeMap<(VolumeIndex, usize, u32), AskNumber>,
    pub count: u64,
    /// Answers that emulated drives hold back, by due time.
    pub held: BTreeMap<(u64, u64), Answered>,
}

impl MetadataIo {
    /// The next time at which an emulated drive answers, in nanoseconds.
    pub fn next_ns(&self) -> Option<u64> {
        self.held.first_key_value().map(|((due_ns, _), _)| *due_ns)
    }
}
