//! Changes of replicas: adding, removing and rejoining extent replicas for control. A change is answered
//! once it is durable in the replica metadata, or cannot be made now.

use std::os::fd::OwnedFd;
use std::sync::mpsc::SyncSender;

use weir_types::{DriveId, ExtentIndex};
use weir_volume::mirror::{AwaitedChange, ReplicaMetadata, ReplicaStates};

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

/// Changes that are not durable yet, and who waits for each. Control asks for few at a time.
#[derive(Default)]
pub struct ReplicaWaiters(Vec<(AwaitedChange, SyncSender<ChangeAnswer>)>);

impl ReplicaWaiters {
    pub fn add(&mut self, change: AwaitedChange, done: SyncSender<ChangeAnswer>) {
        self.0.push((change, done));
    }

    /// A replica was not added. The waiting caller learns the reason, and may try again.
    pub fn refuse(&mut self, extent: ExtentIndex, slot: usize, reason: &str) {
        for (_, done) in self.0.extract_if(.., |(change, _)| change.is_refused_by(extent, slot)) {
            // They may have stopped waiting.
            let _ = done.send(Err(reason.to_owned()));
        }
    }

    /// Answers the callers whose change is made. Without replica states, no in-sync replica is left, and all
    /// callers of the extent get a negative answer.
    pub fn answer(
        &mut self,
        extent: ExtentIndex,
        replica_states: Option<&ReplicaStates>,
        is_file_needed: impl Fn(usize) -> bool,
    ) {
        for (change, done) in std::mem::take(&mut self.0) {
            let (_, slot) = change.replica();
            match change.outcome(extent, replica_states, || is_file_needed(slot)) {
                Some(has_come_about) => tell(done, has_come_about),
                None => self.0.push((change, done)),
            }
        }
    }
}

/// Whether a change was made, or the reason of its failure in words. False if it cannot be made now.
pub type ChangeAnswer = Result<bool, String>;

/// Answers a caller, which may have stopped waiting.
pub fn tell(done: SyncSender<ChangeAnswer>, is_so: bool) {
    let _ = done.send(Ok(is_so));
}
