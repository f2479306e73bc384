//! Steps that follow from an event, in their order.
//!
//! The parts of a mirror do not call each other. A part that has handled an event returns the steps that
//! follow, and the mirror hands each to the part that it is for. A step is done with all that follows from it
//! before the next one begins, as if the part had called the other.

use weir_types::ExtentIndex;

use super::effect::Effect;
use super::mirror_id::MirrorId;
use super::slots::Slots;
use crate::action::{Content, Fault};

/// A step that follows from an event.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    /// Start the current move of an operation on these replicas.
    Launch(MirrorId, Slots),
    /// Let a change begin, unless it must wait.
    Enqueue(MirrorId),
    /// Let all changes of an extent begin that need not wait any more.
    EnqueueWaiting(ExtentIndex),
    /// Begin a client's change whose turn it is, and whose range has no valid checksums.
    BeginChange(MirrorId),
    /// End a change, a resync step or a piece of a scrub: it is acknowledged, or failed.
    End(MirrorId, Result<Content, Fault>),
    /// Read from the next replica.
    Read(MirrorId),
    /// Let a change continue that waited for the metadata of an extent.
    Continue(MirrorId),
    /// Let reads and changes continue that waited for the metadata of an extent.
    ContinueAll(ExtentIndex),
    /// Fail reads that wait for the metadata of an extent.
    FailReads(ExtentIndex),
    /// Fail a read that waited for the metadata of its extent, unless it need not wait any more.
    FailRead(MirrorId),
    /// Fail flushes that wait for the metadata of an extent.
    FailFlushes(ExtentIndex),
    /// Fail changes that wait for the metadata of an extent.
    FailChanges(ExtentIndex, Fault),
    /// Fail these replicas of an extent.
    FailReplicas(ExtentIndex, Slots),
    /// Write the metadata of an extent.
    WriteMetadata(ExtentIndex),
    /// Begin the flush with this number.
    Flush(u32),
    /// Carry out the flushes that are owed.
    PayFlushes,
    /// End flushes that wait for metadata.
    EndFlushes,
    /// Let a change continue that waits until the checksums of its range are invalid.
    Invalidate(MirrorId),
    /// Let changes of an extent continue that wait until the checksums of their ranges are invalid.
    InvalidateAll(ExtentIndex),
    /// Write the checksum headers of an extent.
    WriteChecksumHeaders(ExtentIndex),
    /// Move the section forward that is being scrubbed.
    ContinueScrub(ExtentIndex),
    /// Give the executor the next regions of the snapshot in progress.
    ContinueSnapshot,
}

/// Each request takes a few steps, so a step must stay small: it fits into a register.
const _: () = assert!(size_of::<Step>() <= 8);

/// Steps that are still to be done.
#[derive(Debug, Default)]
pub(super) struct Steps {
    /// The next step is the last one in the list.
    pending: Vec<Step>,
    /// Steps of the event that is being handled: those from here on are in the order of their arrival.
    arrived: usize,
}

impl Steps {
    /// Number of pending steps. They wait while an event that comes now is handled.
    pub fn level(&mut self) -> usize {
        self.sort();
        self.pending.len()
    }

    /// Adds a step, behind those that the same event has added.
    pub fn add(&mut self, step: Step) {
        self.pending.push(step);
    }

    /// Takes the next step above a level.
    pub fn next_above(&mut self, level: usize) -> Option<Step> {
        self.sort();
        let next = if self.pending.len() > level { self.pending.pop() } else { None };
        self.arrived = self.pending.len();
        next
    }

    fn sort(&mut self) {
        let arrived = std::mem::replace(&mut self.arrived, self.pending.len());
        if self.pending.len() > arrived + 1 {
            self.pending[arrived..].reverse();
        }
    }
}

/// Outcome of an event: effects for the executor, and steps for the mirror. The effects come first.
#[derive(Debug)]
pub(super) struct Outcome<'a> {
    pub effects: &'a mut Vec<Effect>,
    pub steps: &'a mut Steps,
}

impl Outcome<'_> {
    /// Adds an effect. Steps that were added before come after it.
    pub fn effect(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    /// Adds a step.
    pub fn step(&mut self, step: Step) {
        self.steps.add(step);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn step_is_done_with_all_that_follows_before_the_next() {
        let mut steps = Steps::default();
        let (read, id) = (
            |number| Step::Read(MirrorId(number)),
            |step: Option<Step>| match step {
                Some(Step::Read(id)) => id.0,
                other => panic!("{other:?}"),
            },
        );
        [1, 2, 3].into_iter().for_each(|number| steps.add(read(number)));
        assert_eq!(id(steps.next_above(0)), 1);
        [11, 12].into_iter().for_each(|number| steps.add(read(number)));
        assert_eq!(id(steps.next_above(0)), 11);
        let level = steps.level();
        steps.add(read(111));
        assert_eq!(id(steps.next_above(level)), 111);
        assert!(steps.next_above(level).is_none());
        assert_eq!([12, 2, 3], std::array::from_fn(|_| id(steps.next_above(0))));
        assert!(steps.next_above(0).is_none());
    }
}
