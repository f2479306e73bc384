//! Naming the one thing that binds a volume, from what was counted in a span of time. Pure.

use super::{NamedLimit, Place};
use crate::statistics::TimeByCause;

/// With fewer requests under way than this in the mean, clients leave the volume idle for most of the time, and
/// whatever the few requests spent their time on binds nothing.
const CONCURRENCY_MIN: f64 = 0.5;
/// A ceiling that holds back at least this share of the requests is reached, even if they spend more of their time
/// elsewhere; unless it is less than the second share of it.
const HELD_SHARE_MIN: f64 = 0.5;
const DELAYED_SHARE_MIN: f64 = 0.05;

/// What binds a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A ceiling, above it or its own.
    Ceiling,
    /// Others go first for their floors.
    Floors,
    /// The line for the drive, which others use too.
    Queue,
    /// the drive itself.
    Drive,
    /// Waiting for buffers or for others that touch the same blocks, and Weir's own work.
    Other,
    /// Nothing: its clients offer less than it could do.
    Nothing,
    /// Nothing: no request came.
    Idle,
}

/// A limit with what it held back in the span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    /// The limit.
    pub limit: NamedLimit,
    /// Requests that it held back.
    pub requests: u64,
    /// For how long, together, in nanoseconds.
    pub waited_ns: u64,
    /// Since when it has held requests back without a pause of more than a second, by the clock of statistics.
    pub since_ns: u64,
}

/// What happened to a volume in a span of time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Situation {
    /// The volume.
    pub volume: String,
    /// The span.
    pub elapsed_ns: u64,
    /// Requests that were answered in it.
    pub operations: u64,
    /// What their time was spent on.
    pub time: TimeByCause,
    /// The limits that held requests back, the strongest first.
    pub bindings: Vec<Binding>,
    /// The limit that let a request go last, whenever that was.
    pub latest: Option<Binding>,
    /// Requests not answered at the end.
    pub queue_depth: u64,
    /// Of these, those held back by a ceiling.
    pub queue_depth_delayed: u64,
    /// Where it stands among those that use its drive.
    pub place: Place,
}

/// What binds a volume, and the limit that does, if one does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The cause.
    pub cause: Cause,
    /// The limit, of a ceiling; `None` if requests only wait behind others that a ceiling holds.
    pub binding: Option<Binding>,
}

impl Situation {
    /// Requests under way in the mean, by Little's law.
    pub fn concurrency(&self) -> f64 {
        self.time.sum_ns() as f64 / self.elapsed_ns.max(1) as f64
    }

    /// A part of all time of requests, from 0 to 1.
    pub fn share(&self, part_ns: u64) -> f64 {
        part_ns as f64 / self.time.sum_ns().max(1) as f64
    }
}

/// Names what binds a volume.
pub fn decide(situation: &Situation) -> Finding {
    let cause = cause_of(situation);
    let strongest = situation.bindings.first().or(situation.latest.as_ref());
    Finding { cause, binding: strongest.filter(|_| cause == Cause::Ceiling).cloned() }
}

fn cause_of(situation: &Situation) -> Cause {
    let Situation { operations, time, bindings, queue_depth, queue_depth_delayed, .. } = situation;
    if *operations == 0 {
        // What is under way for longer than the span.
        return match (queue_depth, queue_depth_delayed) {
            (0, _) => Cause::Idle,
            (_, 0) => Cause::Drive,
            _ => Cause::Ceiling,
        };
    }
    if situation.concurrency() < CONCURRENCY_MIN {
        return if *queue_depth_delayed > 0 { Cause::Ceiling } else { Cause::Nothing };
    }
    let held: u64 = bindings.iter().map(|binding| binding.requests).sum();
    let is_reached = held as f64 >= HELD_SHARE_MIN * *operations as f64
        && situation.share(time.delayed_ns) >= DELAYED_SHARE_MIN;
    let in_queue_ns = time.floors_ns + time.queue_ns;
    let elsewhere_ns = in_queue_ns.max(time.drive_ns).max(time.other_ns);
    if is_reached || time.delayed_ns > elsewhere_ns {
        return Cause::Ceiling;
    }
    if in_queue_ns > time.drive_ns.max(time.other_ns) {
        return if time.floors_ns > time.queue_ns { Cause::Floors } else { Cause::Queue };
    }
    if time.drive_ns >= time.other_ns { Cause::Drive } else { Cause::Other }
}
