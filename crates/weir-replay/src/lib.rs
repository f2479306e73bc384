//! Workloads that share drives, in virtual time: the real policy tree and drive queue, with simulated clients
//! and drives.
//!
//! A [`Plan`] names the workloads, their terms and their loads. [`run`] plays a plan and returns the
//! [`History`]. [`oracle`] checks a history by naive arithmetic. [`replay`] plays recorded or invented loads
//! under any policies. [`trace`] is the format of a recording, and [`dry_run`] predicts figures from one.

#![forbid(unsafe_code)]

pub mod chance;
pub mod dry_run;
pub mod oracle;
mod planned;
pub mod replay;
pub mod trace;
pub mod world;

use weir_qos::{Kind, Limit};
use weir_types::Terms;

pub use planned::run;

/// One workload of a plan.
#[derive(Clone, Debug)]
pub struct PlannedNode {
    /// Index of its parent in the plan; `None` directly below the root. Parents come before their children.
    pub parent: Option<usize>,
    /// Terms of the workload.
    pub terms: Terms,
    /// Load of its client; `None` for nodes with children.
    pub load: Option<Load>,
}

/// A client that keeps a number of requests open.
#[derive(Clone, Debug)]
pub struct Load {
    /// Number of requests that the client keeps open.
    pub depth: u32,
    /// Kind of the requests.
    pub kind: Kind,
    /// Bytes of each request.
    pub bytes: u32,
    /// Time between an answer and the request that follows it, in nanoseconds.
    pub think_ns: u64,
    /// Active periods, as start and end in nanoseconds, in order.
    pub active: Vec<(u64, u64)>,
}

/// A drive that serves one operation after another, each for its cost, and answers a fixed time later.
#[derive(Clone, Copy, Debug)]
pub struct PlannedDrive {
    /// Small operations per second.
    pub iops: u64,
    /// Bytes per second.
    pub bytes_per_second: u64,
    /// Time from the end of an operation to its answer, in nanoseconds.
    pub latency_ns: u64,
    /// Operations that the drive queue keeps in flight; `None` if the queue has to find the number.
    pub queue_target: Option<u32>,
}

/// A whole simulated world.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The workloads.
    pub nodes: Vec<PlannedNode>,
    /// The shared drive. Without one, requests are answered as soon as their ceilings admit them.
    pub planned_drive: Option<PlannedDrive>,
    /// Duration of the plan, in nanoseconds.
    pub duration_ns: u64,
    /// Maximum delay of a wake-up of the scheduler, in nanoseconds.
    pub late_ns_max: u64,
    /// Seed of the random numbers.
    pub seed: u64,
}

impl std::fmt::Display for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "drive {:?}", self.planned_drive)?;
        for (index, PlannedNode { parent, terms, load }) in self.nodes.iter().enumerate() {
            let (limits, floor, weight) = (terms.limits, terms.floor, terms.weight.0);
            write!(
                f,
                "{index} under {parent:?}: total {} read {} write {}",
                limits.total, limits.read, limits.write
            )?;
            writeln!(
                f,
                " floor {floor} weight {weight} {:?} {:?} {load:?}",
                terms.operation_size, terms.burst
            )?;
        }
        Ok(())
    }
}

/// One request, from its arrival to its answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// Index of the workload in the plan.
    pub node: usize,
    /// Length of the request in bytes.
    pub bytes: u64,
    /// Instant of the arrival.
    pub asked_ns: u64,
    /// Instant at which the ceilings admitted the request.
    pub admitted_ns: u64,
    /// Instant at which the last piece of the request went to the drive.
    pub started_ns: u64,
    /// Instant of the answer.
    pub answered_ns: u64,
    /// Time in the drive queue, in nanoseconds.
    pub queue_ns: u64,
    /// Part of `queue_ns` in which floors of other workloads went first, in nanoseconds.
    pub floors_ns: u64,
    /// Node and limit that held the request until its admission, if any.
    pub bound_by: Option<(usize, Limit)>,
}

/// All answered requests, in the order of their answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// The requests.
    pub events: Vec<Event>,
    /// Admissions in order: instant and workload.
    pub admissions: Vec<(u64, usize)>,
    /// Operations that the drive queue keeps in flight at the end.
    pub depth: u32,
}

impl History {
    /// Hash of all events, by which two runs are compared (FNV-1a).
    pub fn fingerprint(&self) -> u64 {
        let words =
            self.events.iter().flat_map(|e| [e.node as u64, e.admitted_ns, e.started_ns, e.answered_ns]);
        words.fold(0xcbf2_9ce4_8422_2325, |hash, word| (hash ^ word).wrapping_mul(0x0100_0000_01b3))
    }

    /// Number of requests of a workload that were answered within a period.
    pub fn answered(&self, node: usize, from_ns: u64, until_ns: u64) -> usize {
        let is_within =
            |event: &&Event| (from_ns..until_ns).contains(&event.answered_ns) && event.node == node;
        self.events.iter().filter(is_within).count()
    }
}
