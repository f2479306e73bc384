//! Replay of recorded or invented loads, under any policies.
//!
//! A recorded request counts as caused by the latest answer before it on its connection. The time between the
//! two is the client's think time and stays as recorded. Requests before the first answer come at their
//! recorded instants. So a load arrives sooner or later under other policies, as its client would send it. A
//! connection that has played its last request begins again, after the time that the recording had left.

use std::collections::BTreeMap;

use weir_qos::{DriveModel, Kind};
use weir_types::Emulation;

use super::Event;
use super::world::{Clients, Demand, Drive, Stage, Work, play};
use weir_types::random::Random;

/// Maximum number of requests in a replay: some minutes of a fast drive.
pub const PLAYED_REQUESTS_MAX: u64 = 20_000_000;

/// One recorded request.
#[derive(Clone, Copy, Debug)]
pub struct Recorded {
    /// The request. Its `node` is the leaf of its connection; its `name` is not used.
    pub demand: Demand,
    /// Instant of the arrival, in nanoseconds.
    pub arrived_ns: u64,
    /// Instant of the answer, in nanoseconds.
    pub answered_ns: u64,
}

/// An invented client. It keeps requests open, of random kinds and each at another place.
#[derive(Clone, Copy, Debug)]
pub struct MadeUp {
    /// Leaf of the client's connection.
    pub node: usize,
    /// Number of requests that the client keeps open.
    pub depth: u32,
    /// Bytes of each request.
    pub bytes: u32,
    /// Percentage of requests that are reads. The others are writes.
    pub read_percent: u32,
    /// Time between an answer and the request that follows it, in nanoseconds.
    pub think_ns: u64,
}

impl Drive {
    /// A drive as the data plane sees it: emulated, or with unknown rates. `in_flight` is the queue depth
    /// that was found right for the drive before.
    pub fn of(emulation: Option<Emulation>, in_flight: Option<u32>) -> Drive {
        let model = emulation.map_or(DriveModel::UNKNOWN, DriveModel::emulated);
        Drive { model, emulation, queue_target: None, in_flight }
    }
}

/// Replays recorded requests on a stage; `observe` sees every answer. Returns the instant at which the replay
/// stopped: the stage's end, or earlier after [`PLAYED_REQUESTS_MAX`] requests.
pub fn replay(stage: &Stage, records: &[Recorded], observe: impl FnMut(&Event)) -> u64 {
    let followers = Followers::of(records, stage.duration_ns);
    finish(stage, Replay { records, followers }, observe)
}

/// Plays invented clients on a stage, like [`replay`].
pub fn invent(stage: &Stage, clients: &[MadeUp], observe: impl FnMut(&Event)) -> u64 {
    finish(stage, Invention { clients, random: Random::new(stage.seed) }, observe)
}

fn finish(stage: &Stage, source: impl Source, observe: impl FnMut(&Event)) -> u64 {
    let mut watched = Watched { source, observe, played: 0, until_ns: stage.duration_ns };
    play(stage, &mut watched);
    watched.until_ns
}

/// A source of requests.
trait Source {
    fn begin(&mut self) -> Vec<(u64, Demand)>;
    fn answered(&mut self, name: usize, now_ns: u64, next: &mut Vec<(u64, Demand)>);
}

/// A source whose answers are counted and observed.
struct Watched<S, F> {
    source: S,
    observe: F,
    played: u64,
    until_ns: u64,
}

impl<S: Source, F: FnMut(&Event)> Clients for Watched<S, F> {
    fn begin(&mut self) -> Vec<(u64, Demand)> {
        self.source.begin()
    }

    fn answered(&mut self, event: &Event, name: usize, next: &mut Vec<(u64, Demand)>) {
        (self.observe)(event);
        self.played += 1;
        if self.is_done() {
            self.until_ns = event.answered_ns;
            return;
        }
        self.source.answered(name, event.answered_ns, next);
    }

    fn is_done(&self) -> bool {
        self.played >= PLAYED_REQUESTS_MAX
    }
}

/// Stands for no request.
const NOBODY: u32 = u32::MAX;

/// For each answer, the requests that follow it.
struct Followers {
    /// Requests that came before any answer on their connection.
    first: Vec<u32>,
    /// By request, its first follower, and the next follower of the same answer.
    follower: Vec<u32>,
    sibling: Vec<u32>,
    /// Time from an answer to the request that follows it, in nanoseconds.
    think_ns: Vec<u64>,
}

impl Followers {
    fn of(records: &[Recorded], duration_ns: u64) -> Followers {
        assert!(records.len() < NOBODY as usize, "a trace is bounded");
        let none = vec![NOBODY; records.len()];
        let think_ns = vec![0; records.len()];
        let mut followers = Followers { first: Vec::new(), follower: none.clone(), sibling: none, think_ns };
        let mut connections: BTreeMap<usize, Vec<u32>> = BTreeMap::new();
        for (index, record) in (0..).zip(records) {
            connections.entry(record.demand.node).or_default().push(index);
        }
        for arrivals in connections.into_values() {
            followers.add_connection(records, arrivals, duration_ns);
        }
        followers
    }

    fn add_connection(&mut self, records: &[Recorded], mut arrivals: Vec<u32>, duration_ns: u64) {
        let record = |index: u32| &records[index as usize];
        let mut answers = arrivals.clone();
        arrivals.sort_by_key(|&index| record(index).arrived_ns);
        answers.sort_by_key(|&index| record(index).answered_ns);
        let (mut answered, mut first) = (0, Vec::new());
        for index in arrivals {
            let arrived_ns = record(index).arrived_ns;
            answered += answers[answered..].partition_point(|&of| record(of).answered_ns < arrived_ns);
            match answered.checked_sub(1).map(|latest| answers[latest]) {
                Some(cause) => self.follow(cause, index, arrived_ns - record(cause).answered_ns),
                None => first.push(index),
            }
        }
        // The last answers cause the first requests of the next round.
        let last = answers.len() - first.len();
        for (&cause, &index) in answers[last..].iter().zip(&first) {
            let left_ns = duration_ns.saturating_sub(record(cause).answered_ns);
            self.follow(cause, index, left_ns.saturating_add(record(index).arrived_ns).max(1));
        }
        self.first.extend(first);
    }

    fn follow(&mut self, cause: u32, index: u32, think_ns: u64) {
        self.think_ns[index as usize] = think_ns;
        self.sibling[index as usize] = std::mem::replace(&mut self.follower[cause as usize], index);
    }

    fn after(&self, cause: usize) -> impl Iterator<Item = usize> {
        let some = |index: u32| (index != NOBODY).then_some(index as usize);
        std::iter::successors(some(self.follower[cause]), move |&index| some(self.sibling[index]))
    }
}

struct Replay<'a> {
    records: &'a [Recorded],
    followers: Followers,
}

impl Replay<'_> {
    fn demand(&self, index: usize) -> Demand {
        Demand { name: index, ..self.records[index].demand }
    }
}

impl Source for Replay<'_> {
    fn begin(&mut self) -> Vec<(u64, Demand)> {
        let first = self.followers.first.iter().map(|&index| index as usize);
        first.map(|index| (self.records[index].arrived_ns, self.demand(index))).collect()
    }

    fn answered(&mut self, name: usize, now_ns: u64, next: &mut Vec<(u64, Demand)>) {
        let at = |index: usize| now_ns.saturating_add(self.followers.think_ns[index]);
        next.extend(self.followers.after(name).map(|index| (at(index), self.demand(index))));
        // Requests that follow one answer come in their recorded order.
        next.reverse();
        next.sort_by_key(|(at_ns, _)| *at_ns);
    }
}

struct Invention<'a> {
    clients: &'a [MadeUp],
    random: Random,
}

impl Invention<'_> {
    fn demand(&mut self, name: usize) -> Demand {
        let MadeUp { node, bytes, read_percent, .. } = self.clients[name];
        let kind = if self.random.chance(read_percent.into(), 100) { Kind::Read } else { Kind::Write };
        // No request begins where another ends, so the places count as random for a drive with seeks.
        Demand { node, name, kind, bytes, volume: node, offset: 0, work: Work::Turns, after_ns: 0 }
    }
}

impl Source for Invention<'_> {
    fn begin(&mut self) -> Vec<(u64, Demand)> {
        let depths = (0..self.clients.len()).flat_map(|name| vec![name; self.clients[name].depth as usize]);
        let names: Vec<usize> = depths.collect();
        names.into_iter().map(|name| (0, self.demand(name))).collect()
    }

    fn answered(&mut self, name: usize, now_ns: u64, next: &mut Vec<(u64, Demand)>) {
        let at_ns = now_ns.saturating_add(self.clients[name].think_ns);
        next.push((at_ns, self.demand(name)));
    }
}
