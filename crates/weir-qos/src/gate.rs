//! The bounded order in which one volume's requests wait for their budget.
//!
//! Requests wait in the order of their arrival. If reads and writes have ceilings of their own they wait in
//! two lanes, so that a read held back by the read limit does not hold back a write. Only the first request
//! of each lane holds a slot of the budget: volumes that share a budget so take turns, however many
//! requests each of them has waiting.

use std::collections::VecDeque;

use crate::ceiling::{Ceiling, Cost, Dimension, Direction, Slot};

/// A request that waits, named by a ticket of the caller's.
#[derive(Clone, Copy, Debug)]
struct Waiting<T> {
    ticket: T,
    cost: Cost,
    arrived_ns: u64,
}

/// One order of waiting requests; only the first has a slot.
#[derive(Clone, Debug)]
struct Lane<T> {
    waiting: VecDeque<Waiting<T>>,
    slot: Option<Slot>,
}

/// The answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may run now.
    Run,
    /// It waits; [`Gate::release`] will name its ticket.
    Wait,
}

/// A request that waited and may run now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Released<T> {
    /// The ticket under which it arrived.
    pub ticket: T,
    /// How long it waited, in nanoseconds.
    pub waited_ns: u64,
    /// The limit that set the instant of its release; `None` if it only waited behind others.
    pub bound_by: Option<Dimension>,
}

/// The waiting requests of one volume. Its length is bounded by the requests that its connections may have
/// open; the gate itself adds no bound of its own.
#[derive(Clone, Debug)]
pub struct Gate<T> {
    lanes: [Lane<T>; 2],
    is_split: bool,
}

impl<T: Copy> Gate<T> {
    /// An empty gate; `is_split` gives reads and writes a lane each.
    pub fn new(is_split: bool) -> Gate<T> {
        let lane = || Lane { waiting: VecDeque::new(), slot: None };
        Gate { lanes: [lane(), lane()], is_split }
    }

    fn lane_of(&mut self, direction: Direction) -> &mut Lane<T> {
        &mut self.lanes[usize::from(self.is_split && direction == Direction::Write)]
    }

    /// A request arrives. If it has to wait, the ticket is kept.
    pub fn arrive(&mut self, now_ns: u64, ticket: T, cost: Cost, ceiling: &mut Ceiling) -> Verdict {
        let lane = self.lane_of(cost.direction);
        if lane.waiting.is_empty() {
            let slot = ceiling.reserve(now_ns, cost);
            if slot.at_ns <= now_ns {
                return Verdict::Run;
            }
            lane.slot = Some(slot);
        }
        lane.waiting.push_back(Waiting { ticket, cost, arrived_ns: now_ns });
        Verdict::Wait
    }

    /// The first instant at which [`Gate::release`] has something to do; `None` if nothing waits.
    pub fn next_ns(&self) -> Option<u64> {
        self.lanes.iter().filter_map(|lane| lane.slot).map(|slot| slot.at_ns).min()
    }

    /// Takes out one request whose slot has come, if any. Call it until it answers `None`.
    pub fn release(&mut self, now_ns: u64, ceiling: &mut Ceiling) -> Option<Released<T>> {
        let due = |lane: &&mut Lane<T>| lane.slot.is_some_and(|slot| slot.at_ns <= now_ns);
        let lane = self.lanes.iter_mut().find(due)?;
        let slot = lane.slot.take()?;
        let first = lane.waiting.pop_front()?;
        lane.reserve_for_first(now_ns, ceiling);
        let waited_ns = now_ns.saturating_sub(first.arrived_ns);
        Some(Released { ticket: first.ticket, waited_ns, bound_by: slot.bound_by })
    }

    /// Number of waiting requests.
    pub fn len(&self) -> usize {
        self.lanes.iter().map(|lane| lane.waiting.len()).sum()
    }

    /// True if nothing waits.
    pub fn is_empty(&self) -> bool {
        self.lanes.iter().all(|lane| lane.waiting.is_empty())
    }

    /// Forgets the requests that `is_gone` names, as when their connection has ended. Their slots go back.
    pub fn forget(&mut self, now_ns: u64, ceiling: &mut Ceiling, is_gone: impl Fn(T) -> bool) {
        self.give_back(ceiling);
        for lane in &mut self.lanes {
            lane.waiting.retain(|waiting| !is_gone(waiting.ticket));
            lane.reserve_for_first(now_ns, ceiling);
        }
    }

    /// Gives all slots back to the budget, as before a change of the budget.
    pub fn give_back(&mut self, ceiling: &mut Ceiling) {
        for lane in &mut self.lanes {
            if let (Some(_), Some(first)) = (lane.slot.take(), lane.waiting.front()) {
                ceiling.cancel(first.cost);
            }
        }
    }

    /// Reserves slots anew, as after a change of the budget; the order of arrival stays.
    pub fn rearm(&mut self, now_ns: u64, ceiling: &mut Ceiling, is_split: bool) {
        if std::mem::replace(&mut self.is_split, is_split) != is_split {
            self.sort_into_lanes();
        }
        for lane in &mut self.lanes {
            lane.reserve_for_first(now_ns, ceiling);
        }
    }

    fn sort_into_lanes(&mut self) {
        let mut all: Vec<Waiting<T>> = self.lanes.iter_mut().flat_map(|l| l.waiting.drain(..)).collect();
        all.sort_by_key(|waiting| waiting.arrived_ns);
        for waiting in all {
            self.lane_of(waiting.cost.direction).waiting.push_back(waiting);
        }
    }

    /// Takes out everything that waits, in order, without slots: the budget is gone.
    pub fn drain(&mut self, now_ns: u64) -> Vec<Released<T>> {
        self.is_split = false;
        self.sort_into_lanes();
        let released = |w: Waiting<T>| Released {
            ticket: w.ticket,
            waited_ns: now_ns.saturating_sub(w.arrived_ns),
            bound_by: None,
        };
        self.lanes.iter_mut().for_each(|lane| lane.slot = None);
        self.lanes[0].waiting.drain(..).map(released).collect()
    }
}

impl<T> Lane<T> {
    fn reserve_for_first(&mut self, now_ns: u64, ceiling: &mut Ceiling) {
        if self.slot.is_none() {
            self.slot = self.waiting.front().map(|first| ceiling.reserve(now_ns, first.cost));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_types::{Limits, Throughput};

    fn ceiling(total: &str, read: &str) -> Ceiling {
        let (total, read) = (Throughput::parse(total).unwrap(), Throughput::parse(read).unwrap());
        Ceiling::new(Limits { total, read, write: Throughput::default() }, 0)
    }

    const READ: Cost = Cost { direction: Direction::Read, bytes: 4096 };
    const WRITE: Cost = Cost { direction: Direction::Write, bytes: 4096 };

    /// Serves two saturating gates from one ceiling for `duration_ns`; each keeps `depth` requests waiting.
    fn compete(ceiling: &mut Ceiling, depths: [u32; 2], duration_ns: u64) -> [u64; 2] {
        let mut gates = [Gate::new(false), Gate::new(false)];
        let mut served = [0; 2];
        for (gate, depth) in gates.iter_mut().zip(depths) {
            (0..depth).for_each(|n| {
                gate.arrive(0, n, READ, ceiling);
            });
        }
        while let Some(now_ns) = gates.iter().filter_map(Gate::next_ns).min().filter(|&n| n < duration_ns) {
            for (gate, served) in gates.iter_mut().zip(&mut served) {
                while let Some(released) = gate.release(now_ns, ceiling) {
                    *served += 1;
                    gate.arrive(now_ns, released.ticket, READ, ceiling);
                }
            }
        }
        served
    }

    #[test]
    fn members_of_a_group_get_equal_halves_whatever_their_depth() {
        let [few, many] = compete(&mut ceiling("3000IOPS", "none"), [2, 512], 10_000_000_000);
        assert!(few.abs_diff(many) <= 1, "{few} and {many}");
        assert!((few + many).abs_diff(30_000) <= 1, "{few} + {many}");
    }

    #[test]
    fn a_lone_member_has_the_whole_budget() {
        let [served, none] = compete(&mut ceiling("3000IOPS", "none"), [4, 0], 10_000_000_000);
        assert!(served.abs_diff(30_000) <= 1 && none == 0, "{served}");
    }

    #[test]
    fn a_throttled_read_does_not_hold_back_a_write() {
        let mut ceiling = ceiling("none", "1IOPS");
        let mut gate = Gate::new(true);
        assert_eq!(gate.arrive(0, 1, READ, &mut ceiling), Verdict::Run);
        assert_eq!(gate.arrive(0, 2, READ, &mut ceiling), Verdict::Wait);
        assert_eq!(gate.arrive(0, 3, WRITE, &mut ceiling), Verdict::Run);
        assert_eq!(gate.next_ns(), Some(1_000_000_000));
        assert_eq!(gate.release(999_999_999, &mut ceiling), None);
        let released = gate.release(1_000_000_000, &mut ceiling);
        let bound_by = Some(Dimension::ReadOperations);
        assert_eq!(released, Some(Released { ticket: 2, waited_ns: 1_000_000_000, bound_by }));
    }

    #[test]
    fn waiting_requests_keep_their_order_through_changes() {
        let mut ceiling = ceiling("1IOPS", "none");
        let mut gate = Gate::new(false);
        for (ticket, cost) in [(0, READ), (1, WRITE), (2, READ), (3, WRITE)] {
            gate.arrive(ticket, ticket, cost, &mut ceiling);
        }
        for is_split in [true, false] {
            gate.give_back(&mut ceiling);
            gate.rearm(10, &mut ceiling, is_split);
        }
        let order: Vec<u64> = gate.drain(20).into_iter().map(|released| released.ticket).collect();
        assert_eq!(order, [1, 2, 3]);
        assert!(gate.is_empty() && gate.next_ns().is_none());
    }

    #[test]
    fn requests_of_an_ended_connection_leave_no_charge() {
        let mut ceiling = ceiling("1IOPS", "none");
        let mut gate = Gate::new(false);
        (0..4).for_each(|ticket| {
            gate.arrive(0, ticket, READ, &mut ceiling);
        });
        gate.forget(0, &mut ceiling, |ticket| ticket < 3);
        assert_eq!((gate.len(), gate.next_ns()), (1, Some(1_000_000_000)));
        gate.forget(0, &mut ceiling, |_| true);
        assert_eq!(ceiling.reserve(1_000_000_000, READ).at_ns, 1_000_000_000);
    }
}
