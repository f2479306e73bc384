//! Decides what binds a volume, from the counters of a span of time. The module is pure.

use weir_engine_interface::statistics::TimeByCause;

use crate::reasons::{Binding, Place};

/// Mean number of requests under way below which clients leave the volume idle for most of the time.
///
/// Below it, the time that the few requests spend anywhere binds nothing.
const CONCURRENCY_MIN: f64 = 0.5;
/// Share of requests from which the ceiling that holds them back counts as reached.
///
/// It counts even if the requests spend more of their time elsewhere, unless their delay is below
/// `DELAYED_SHARE_MIN` of their time.
const HELD_SHARE_MIN: f64 = 0.5;
const DELAYED_SHARE_MIN: f64 = 0.05;

/// The cause that binds a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A ceiling: the volume's own, or one above it.
    Ceiling,
    /// Other volumes go first for their floors.
    Floors,
    /// The queue of the drive, which other volumes use too.
    Queue,
    /// The drive itself.
    Drive,
    /// Waiting for buffers or for requests to the same blocks, and Weir's own work.
    Other,
    /// Nothing: the clients offer less load than the volume can take.
    Nothing,
    /// Nothing: no request came.
    Idle,
}

/// The counters of a volume over a span of time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Situation {
    /// The volume.
    pub volume: String,
    /// Length of the span in nanoseconds.
    pub elapsed_ns: u64,
    /// Number of requests that were answered in the span.
    pub operations: u64,
    /// Time of the requests, by cause.
    pub time: TimeByCause,
    /// The limits that held requests back, the strongest first.
    pub bindings: Vec<Binding>,
    /// The limit that last released a request, at any time.
    pub latest: Option<Binding>,
    /// Number of unanswered requests at the end of the span.
    pub queue_depth: u64,
    /// Number of requests among them that a ceiling holds back.
    pub queue_depth_delayed: u64,
    /// The volume's position among the users of its drive.
    pub place: Place,
}

/// The cause that binds a volume, with the limit if there is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The cause.
    pub cause: Cause,
    /// The limit of a ceiling; `None` if requests only wait behind others that a ceiling holds back.
    pub binding: Option<Binding>,
}

impl Situation {
    /// Mean number of requests under way, by Little's law.
    pub fn concurrency(&self) -> f64 {
        self.time.sum_ns() as f64 / self.elapsed_ns.max(1) as f64
    }

    /// A part of the requests' total time, as a fraction from 0 to 1.
    pub fn share(&self, part_ns: u64) -> f64 {
        part_ns as f64 / self.time.sum_ns().max(1) as f64
    }
}

/// Decides what binds a volume.
pub fn decide(situation: &Situation) -> Finding {
    let cause = cause_of(situation);
    let strongest = situation.bindings.first().or(situation.latest.as_ref());
    Finding { cause, binding: strongest.filter(|_| cause == Cause::Ceiling).cloned() }
}

fn cause_of(situation: &Situation) -> Cause {
    let Situation { operations, time, bindings, queue_depth, queue_depth_delayed, .. } = situation;
    if *operations == 0 {
        // These requests have been under way for longer than the span.
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
