//! Emulated drives: when an emulated drive would have answered. The answers of the real files are held back
//! until then (`volumes/deferred_answers`).
//!
//! The model is asked when an operation is submitted, and the real operation runs at the same time. If the
//! real operation takes longer, its answer is passed on when it comes. A held completion is still
//! outstanding: its volume is not quiet and its buffer is in use.
//!
//! Waiting for a volume to become quiet does not wait for the model. The time that the model has assigned
//! to an operation stays assigned, as on a real drive.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_types::bounds::{BLOCK_BYTES, EXTENT_BYTES};
use weir_types::{ExtentIndex, VolumeId};
use weir_volume::zeroing::Step;
use weir_volume::{Action, EmulatedDrive, OperationId, Position};

use crate::token::{Token, VolumeIndex};

/// The model of one drive, shared by all reactors with volumes on the drive.
pub type SharedEmulation = Arc<Mutex<EmulatedDrive>>;

/// The emulated drives of one volume.
pub struct Emulated {
    /// The models by home of the volume; `None` for a drive that is not emulated.
    emulated: Vec<Option<SharedEmulation>>,
    volume: VolumeId,
    /// Earliest answer of each submitted operation, in nanoseconds. An operation that submits again
    /// replaces its entry.
    due_ns: BTreeMap<Held, u64>,
}

/// An operation that can be held back: an operation on a replica, or the sync of an extent replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Held {
    Operation(usize, OperationId),
    Sync(usize, ExtentIndex),
}

/// Position of an operation, for emulated drives.
#[derive(Clone, Copy)]
pub struct Site {
    pub home: usize,
    /// The file, and the offset in it in bytes.
    pub extent: ExtentIndex,
    pub offset: u64,
}

/// Work for a drive.
enum Work {
    /// Moving this number of bytes at an offset in an extent.
    Move {
        extent: ExtentIndex,
        offset: u32,
        bytes: u64,
    },
    Flush,
}

impl Emulated {
    pub fn new(volume: VolumeId) -> Emulated {
        Emulated { emulated: Vec::new(), volume, due_ns: BTreeMap::new() }
    }

    /// Adds the volume's next home.
    pub fn add_home(&mut self, emulated: Option<SharedEmulation>) {
        self.emulated.push(emulated);
    }

    /// True if any drive of the volume is emulated.
    pub fn is_any(&self) -> bool {
        self.emulated.iter().any(Option::is_some)
    }

    /// Submits an action on a replica to the model of its home. Answers the earliest time of the answer, in
    /// nanoseconds.
    pub fn submit(&mut self, now_ns: u64, home: usize, slot: usize, action: &Action) -> u64 {
        let Some(emulated) = &self.emulated[home] else { return now_ns };
        let Some((held, work)) = work_of(slot, action) else { return now_ns };
        let mut emulated = lock(emulated);
        let due_ns = match work {
            Work::Move { extent, offset, bytes } => {
                emulated.submit(now_ns, position(self.volume, extent, offset), bytes)
            }
            Work::Flush => emulated.flush(now_ns),
        };
        drop(emulated);
        self.due_ns.insert(held, due_ns);
        due_ns
    }

    /// Submits an operation of a journal to the model of its home. Answers its end in nanoseconds, or 0 if
    /// the home is not emulated.
    pub fn act(&mut self, now_ns: u64, site: Site, bytes: u32, is_durable: bool) -> u64 {
        let Some(emulated) = &self.emulated[site.home] else { return 0 };
        let mut emulated = lock(emulated);
        let position = Position { offset: site.offset, ..position(self.volume, site.extent, 0) };
        let done_ns = emulated.submit(now_ns, position, bytes.into());
        if is_durable { done_ns.max(emulated.flush(now_ns)) } else { done_ns }
    }

    /// Takes the earliest time at which an answer may be passed on, in nanoseconds; `None` if at once.
    #[inline]
    pub fn take_due_ns(&mut self, token: &Token) -> Option<u64> {
        if self.due_ns.is_empty() {
            return None;
        }
        let (_, held) = held_of(token)?;
        self.due_ns.remove(&held)
    }

    /// Flushes the model of a home. Answers the end of the flush in nanoseconds, or 0 if the home is not
    /// emulated.
    pub fn flush(&mut self, now_ns: u64, home: usize) -> u64 {
        self.emulated[home].as_ref().map_or(0, |emulated| lock(emulated).flush(now_ns))
    }

    /// Writes replica metadata in the model of a home, at a position apart from the extent's data. Answers
    /// in nanoseconds when the metadata is stable, or 0 if the home is not emulated.
    pub fn note(&mut self, now_ns: u64, home: usize, extent: ExtentIndex) -> u64 {
        let Some(emulated) = &self.emulated[home] else { return 0 };
        let mut emulated = lock(emulated);
        let position = Position { offset: EXTENT_BYTES, ..position(self.volume, extent, 0) };
        let written_ns = emulated.submit(now_ns, position, BLOCK_BYTES);
        written_ns.max(emulated.flush(now_ns))
    }
}

/// Locks a model. Every change of its state is one step, so a panic elsewhere leaves the state consistent.
pub fn lock(emulated: &SharedEmulation) -> MutexGuard<'_, EmulatedDrive> {
    emulated.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The work that an action is for a drive; `None` for actions that a drive does not see, for example
/// reserving space.
fn work_of(slot: usize, action: &Action) -> Option<(Held, Work)> {
    let at = |operation: OperationId, extent, offset, bytes| {
        Some((Held::Operation(slot, operation), Work::Move { extent, offset, bytes }))
    };
    match *action {
        Action::Read { operation, extent, offset, length, .. }
        | Action::Write { operation, extent, offset, length, .. } => {
            at(operation, extent, offset, length.into())
        }
        Action::ReadEdge { operation, extent, edge } => at(operation, extent, edge.block_offset, BLOCK_BYTES),
        Action::Release { operation, extent, offset, .. }
        | Action::Zero { operation, extent, offset, .. } => at(operation, extent, offset, 0),
        Action::Sync { extent, .. } => Some((Held::Sync(slot, extent), Work::Flush)),
        _ => None,
    }
}

/// Position of an offset in an extent on the emulated drive.
pub fn position(volume: VolumeId, extent: ExtentIndex, offset: u32) -> Position {
    Position { volume: volume.0.as_u128(), extent, offset: offset.into() }
}

/// The volume of a completion, and its operation, if it can be held back.
fn held_of(token: &Token) -> Option<(VolumeIndex, Held)> {
    match *token {
        Token::Operation(replica, operation, _)
        | Token::Edge(replica, operation, ..)
        | Token::Zero(replica, operation, _, Step::Zero | Step::ReserveAgain) => {
            Some((replica.volume, Held::Operation(replica.slot, operation)))
        }
        Token::Sync { replica, file: (extent, _), .. } => {
            Some((replica.volume, Held::Sync(replica.slot, extent)))
        }
        _ => None,
    }
}

/// The volume of a completion that can be held back.
pub fn volume_of(token: &Token) -> Option<VolumeIndex> {
    held_of(token).map(|(volume, _)| volume)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token::{AskNumber, ReplicaIndex};

    #[test]
    fn actions_invisible_to_the_drive_cost_nothing() {
        let generation = weir_volume::Generation::default();
        assert!(work_of(0, &Action::Allocate { extent: ExtentIndex(0), generation, piece: 0 }).is_none());
        assert!(work_of(0, &Action::Open { extent: ExtentIndex(0), generation }).is_none());
        let replica = ReplicaIndex { volume: 0, slot: 0 };
        assert!(
            held_of(&Token::Allocate {
                replica,
                number: AskNumber::default(),
                file: (ExtentIndex(0), generation),
                piece: 0
            })
            .is_none()
        );
        assert!(held_of(&Token::Receive(0)).is_none());
    }
}
