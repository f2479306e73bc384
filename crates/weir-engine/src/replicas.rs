//! Changes of replicas: adding, removing and rejoining extent replicas for control. A change is answered
//! once it is durable in the replica metadata, or cannot be made now.

use std::os::fd::OwnedFd;
use std::sync::mpsc::SyncSender;

use weir_types::DriveId;
use weir_volume::mirror::{AwaitedChange, ReplicaMetadata};

use super::volume_files::NewHome;

/// What becomes of a replica of an extent.
pub enum NewChange {
    /// Its file is there and holds nothing, on the home with this index of these; it is behind the journal on a drive, or
    /// behind none.
    Add { homes: Vec<NewHome>, home: u8, journal: Option<DriveId> },
    /// The replica is removed.
    Remove,
    /// A missing replica is back, with this replica metadata; behind the journal on a drive, or behind
    /// none.
    Rejoin { found: Box<ReplicaMetadata>, journal: Option<(DriveId, OwnedFd)> },
}

/// A change that is not durable yet, and who waits for it.
pub struct ReplicaWaiter {
    pub change: AwaitedChange,
    pub done: SyncSender<ChangeAnswer>,
}

/// Whether a change was made, or the reason of its failure in words. False if it cannot be made now.
pub type ChangeAnswer = Result<bool, String>;

/// Answers a caller, which may have stopped waiting.
pub fn tell(done: SyncSender<ChangeAnswer>, is_so: bool) {
    let _ = done.send(Ok(is_so));
}
