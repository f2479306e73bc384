//! When an emulated drive has carried out an operation. Decides only; knows no clock and does no I/O.
//!
//! The drive is one serial resource: operations occupy it one after the other in the order in which they were
//! submitted, each for `1 / iops` or for the time that its bytes need, whichever is longer, and for a seek
//! more if it does not begin where the one before it ended. An operation is finished `latency_ns` after its
//! turn has ended, while the next ones have theirs: enough of them in flight sustain exactly the stated rate,
//! and one at a time gets `1 / (turn + latency)`. Where only so many are served in parallel, the turn of a
//! further one begins no sooner than the earliest of them is finished.
//!
//! A flush takes no turn, or one of its own length. Wherever it writes what was kept back, the time for
//! coming back is in it: it does not count as a move elsewhere.
//!
//! Turns are kept as exact fractions of nanoseconds, so nothing is lost or gained by rounding, however long
//! the drive is busy.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use weir_types::Emulation;
use weir_types::emulation::Turns;

/// Where on a drive an operation begins. Files are apart from each other: none begins where another ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Whose file it is: a number that nobody else on the drive has.
    pub volume: u128,
    /// Which of its extents.
    pub extent: u32,
    /// Where in the extent, in bytes.
    pub offset: u64,
}

/// An exact moment: so many parts of a nanosecond after a nanosecond.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Moment {
    ns: u64,
    parts: u128,
}

/// The state of one emulated drive.
#[derive(Clone, Debug)]
pub struct EmulatedDrive {
    latency_ns: u64,
    flush_ns: Option<u64>,
    turns: Turns,
    /// When the last turn ends.
    free: Moment,
    /// Where the last operation ended; `None` before the first, which begins elsewhere whatever it is.
    head: Option<Position>,
    /// Operations that are served at a time, at least 1.
    parallel: Option<usize>,
    /// When those are finished that may still be served when the next turn begins; at most `parallel`, and
    /// none where that has no bound.
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

    /// Takes an operation that moves `bytes` (none for a discard or zeroes) and answers when it is finished.
    /// It ends that many bytes after its position.
    pub fn submit(&mut self, now_ns: u64, position: Position, bytes: u64) -> u64 {
        let end = Position { offset: position.offset.saturating_add(bytes), ..position };
        let is_elsewhere = self.head.replace(end) != Some(position);
        self.serve(now_ns, self.turns.turn_parts(bytes, is_elsewhere), self.latency_ns)
    }

    /// Takes a flush and answers when it is finished.
    pub fn flush(&mut self, now_ns: u64) -> u64 {
        match self.flush_ns {
            None => now_ns.saturating_add(self.latency_ns),
            Some(flush_ns) => self.serve(now_ns, u128::from(flush_ns) * self.turns.parts_per_ns(), 0),
        }
    }

    /// Gives out the next turn and answers when that and the time after it are over.
    fn serve(&mut self, now_ns: u64, turn_parts: u128, after_ns: u64) -> u64 {
        let begin = Moment::at(now_ns).max(self.free).max(self.time_free_());
        self.free = begin.after(turn_parts, self.turns.parts_per_ns());
        let end = Moment { ns: self.free.ns.saturating_add(after_ns), ..self.free };
        if self.parallel.is_some() {
            self.served.push(Reverse(end));
        }
        end.rounded_up()
    }

    /// When one more can be served. Turns begin in their order, so whoever is finished by then is so for all
    /// that follow.
    fn time_free_(&mut self) -> Moment {
        let is_full = self.parallel.is_some_and(|operations| self.served.len() >= operations);
        let first = if is_full { self.served.pop() } else { None };
        first.map_or(Moment::default(), |Reverse(end)| end)
    }
}

#[cfg(test)]
mod tests;
