//! Finish times of operations on an emulated drive. This module only decides; it knows no clock and does no
//! I/O.
//!
//! The drive is one serial resource, and operations take turns in the order of their submission. A turn takes
//! `1 / iops` or the time that its bytes need, whichever is longer. A seek is added if the operation does not
//! begin where the previous one ended. An operation is finished `latency_ns` after the end of its turn, while
//! the next ones have their turns. Enough operations in flight sustain exactly the stated rate. One at a time
//! gets `1 / (turn + latency)`. If `parallel` bounds the operations in service, the turn of a further one
//! waits until the earliest of them is finished.
//!
//! A flush takes no turn, or one of its own length. Wherever the flush writes cached data, its time includes
//! the way back, so it does not count as a seek.
//!
//! Turns are exact fractions of nanoseconds, so no time is lost or gained by rounding, however long the drive
//! is busy.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use weir_types::emulation::Turns;
use weir_types::{Emulation, ExtentIndex};

/// Position on a drive at which an operation begins. Files are separate: no file begins where another ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Volume of the file: a number that is unique on the drive.
    pub volume: u128,
    /// Number of the extent.
    pub extent: ExtentIndex,
    /// Offset in the extent, in bytes.
    pub offset: u64,
}

/// An exact moment: a nanosecond, and parts of a nanosecond after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Moment {
    ns: u64,
    parts: u128,
}

/// State of one emulated drive.
#[derive(Clone, Debug)]
pub struct EmulatedDrive {
    latency_ns: u64,
    flush_ns: Option<u64>,
    turns: Turns,
    /// End of the last turn.
    free: Moment,
    /// End position of the last operation. `None` before the first operation, which always needs a seek.
    head: Option<Position>,
    /// Operations in service at a time, at least 1; `None` for no bound.
    parallel: Option<usize>,
    /// Finish times of operations that may still be in service when the next turn begins. At most `parallel`,
    /// and none without that bound.
    served: BinaryHeap<Reverse<Moment>>,
}

impl Moment {
    fn at(ns: u64) -> Moment {
        Moment { ns, parts: 0 }
    }

    fn after(self, parts: u128, parts_per_ns: u128) -> Moment {
        let parts = self.parts + parts;
        let whole_ns = u64::try_from(parts / parts_per_ns).unwrap_or(u64::MAX);
        Moment { ns: self.ns.saturating_add(whole_ns), parts: parts % parts_per_ns }
    }

    fn rounded_up(self) -> u64 {
        self.ns.saturating_add(u64::from(self.parts > 0))
    }
}

impl EmulatedDrive {
    /// An idle drive.
    pub fn new(emulation: Emulation) -> EmulatedDrive {
        EmulatedDrive {
            latency_ns: emulation.latency_ns,
            flush_ns: emulation.flush_ns,
            turns: Turns::of(&emulation),
            free: Moment::default(),
            head: None,
            parallel: emulation.parallel.map(|operations| operations.max(1) as usize),
            served: BinaryHeap::new(),
        }
    }

    /// Takes an operation of `bytes` (0 for a discard or zeroes), and returns its finish time. The operation
    /// ends that many bytes after its position.
    pub fn submit(&mut self, now_ns: u64, position: Position, bytes: u64) -> u64 {
        let end = Position { offset: position.offset.saturating_add(bytes), ..position };
        let is_elsewhere = self.head.replace(end) != Some(position);
        self.serve(now_ns, self.turns.turn_parts(bytes, is_elsewhere), self.latency_ns)
    }

    /// Takes a flush, and returns its finish time.
    pub fn flush(&mut self, now_ns: u64) -> u64 {
        match self.flush_ns {
            None => now_ns.saturating_add(self.latency_ns),
            Some(flush_ns) => self.serve(now_ns, u128::from(flush_ns) * self.turns.parts_per_ns(), 0),
        }
    }

    /// Assigns the next turn. Returns the instant `after_ns` after the end of the turn.
    fn serve(&mut self, now_ns: u64, turn_parts: u128, after_ns: u64) -> u64 {
        let begin = Moment::at(now_ns).max(self.free).max(self.time_free_());
        self.free = begin.after(turn_parts, self.turns.parts_per_ns());
        let end = Moment { ns: self.free.ns.saturating_add(after_ns), ..self.free };
        if self.parallel.is_some() {
            self.served.push(Reverse(end));
        }
        end.rounded_up()
    }

    /// First moment at which one more operation can be in service. Turns begin in order, so an operation that
    /// is finished by then is finished for all later turns too.
    fn time_free_(&mut self) -> Moment {
        let is_full = self.parallel.is_some_and(|operations| self.served.len() >= operations);
        let first = if is_full { self.served.pop() } else { None };
        first.map_or(Moment::default(), |Reverse(end)| end)
    }
}

#[cfg(test)]
mod tests;
