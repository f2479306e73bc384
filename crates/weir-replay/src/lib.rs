//! Workloads that share drives, in virtual time: the very tree and pool that serve real requests, under imagined
//! clients and imagined drives.
//!
//! A [`Plan`] says who there is, what each may do and what each asks for; [`run`] plays it and gives the
//! [`History`]; [`oracle`] says by naive arithmetic what must be true of it. [`replay`] plays what was recorded, or
//! made up, under any policies.

#![forbid(unsafe_code)]

pub mod chance;
pub mod oracle;
mod planned;
pub mod replay;
pub mod world;

use weir_qos::{Kind, Limit};
use weir_types::Terms;

pub use planned::run;

/// One workload of a plan.
#[derive(Clone, Debug)]
pub struct PlannedNode {
    /// Index of its parent in the plan; `None` directly below the root. Parents come before their children.
    pub parent: Option<usize>,
    /// What it may do.
    pub terms: Terms,
    /// What its client asks for; `None` for nodes that have children.
    pub load: Option<Load>,
}

/// A client that keeps a number of requests open.
#[derive(Clone, Debug)]
pub struct Load {
    /// Requests that it keeps open.
    pub depth: u32,
    /// What they do.
    pub kind: Kind,
    /// Bytes of each.
    pub bytes: u32,
    /// Time between an answer and the request that follows it, in nanoseconds.
    pub think_ns: u64,
    /// When it asks: from and until, in nanoseconds, in order.
    pub active: Vec<(u64, u64)>,
}

/// Drives that serve one operation after another, each for its cost, and answer a fixed time later.
#[derive(Clone, Copy, Debug)]
pub struct PlannedDrive {
    /// Small operations per second.
    pub iops: u64,
    /// Bytes per second.
    pub bytes_per_second: u64,
    /// From the end of an operation to its answer, in nanoseconds.
    pub latency_ns: u64,
    /// Operations that the pool keeps in flight; `None` if it has to find out.
    pub queue_target: Option<u32>,
}

/// A whole world.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The workloads.
    pub nodes: Vec<PlannedNode>,
    /// What they share; without drives, requests are answered as soon as they may go.
    pub planned_drive: Option<PlannedDrive>,
    /// How long it runs, in nanoseconds.
    pub duration_ns: u64,
    /// How late the scheduler may wake up, in nanoseconds.
    pub late_ns_max: u64,
    /// Where chance begins.
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

/// One request, from being asked for to being answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// Index of the workload in the plan.
    pub node: usize,
    /// Its length in bytes.
    pub bytes: u64,
    /// When it was asked for.
    pub asked_ns: u64,
    /// When its ceilings let it go.
    pub admitted_ns: u64,
    /// When the last piece of it went to the drive.
    pub started_ns: u64,
    /// When it was answered.
    pub answered_ns: u64,
    /// Time in the queue of the drive, in nanoseconds.
    pub queue_ns: u64,
    /// Part of it in which others went first because of their floors, in nanoseconds.
    pub floors_ns: u64,
    /// The node and the limit that held it until it was admitted, if one did.
    pub bound_by: Option<(usize, Limit)>,
}

/// All requests that were answered, in the order of their answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// The requests.
    pub events: Vec<Event>,
    /// Admissions in their order: instant and workload.
    pub admissions: Vec<(u64, usize)>,
    /// Operations that the pool keeps in flight at the end.
    pub depth: u32,
}

impl History {
    /// A hash of everything, by which two runs are compared (FNV-1a).
    pub fn fingerprint(&self) -> u64 {
        let words =
            self.events.iter().flat_map(|e| [e.node as u64, e.admitted_ns, e.started_ns, e.answered_ns]);
        words.fold(0xcbf2_9ce4_8422_2325, |hash, word| (hash ^ word).wrapping_mul(0x0100_0000_01b3))
    }

    /// Requests of a workload that were answered within a time.
    pub fn answered(&self, node: usize, from_ns: u64, until_ns: u64) -> usize {
        let is_within =
            |event: &&Event| (from_ns..until_ns).contains(&event.answered_ns) && event.node == node;
        self.events.iter().filter(is_within).count()
    }
}
