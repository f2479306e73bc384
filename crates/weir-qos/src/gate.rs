//! The bounded order in which one volume's requests wait for their budget.
//!
//! Requests wait in the order of their arrival. If reads and writes have ceilings of their own they wait in
//! two lanes, so that a read held back by the read limit does not hold back a write.
//!
//! Only the first requests of each lane hold slots of the budget: volumes that share a budget so take turns,
//! however many requests each of them has waiting. With a budget of its own, one request has a slot. With a
//! shared one, every member leases slots for the same few milliseconds' worth of the budget ahead: so a
//! reactor that wakes late does not lose its turn to another that wakes in time, and members with requests of
//! different sizes get equal parts of the budget and not equal numbers of requests.

use std::collections::VecDeque;

use weir_types::bounds::{BACKLOG_CATCH_UP_NS, LEASED_SLOTS_MAX};

use crate::ceiling::{Ceiling, Cost, Dimension, Direction, Slot};

/// A request that waits, named by a ticket of the caller's.
#[derive(Clone, Copy, Debug)]
struct Waiting<T> {
    ticket: T,
    cost: Cost,
    arrived_ns: u64,
}

/// One order of waiting requests.
#[derive(Clone, Debug)]
struct Lane<T> {
    waiting: VecDeque<Waiting<T>>,
    /// The slots of the first requests with what each is worth in nanoseconds of the budget; never more than
    /// there are requests.
    slots: VecDeque<(Slot, u64)>,
    /// What all slots are worth.
    leased_ns: u64,
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
    lease_ns: u64,
}

impl<T: Copy> Gate<T> {
    /// An empty gate; `is_split` gives reads and writes a lane each. Slots are leased for
    /// `lease_ns` nanoseconds' worth of the budget, or one at a time if that is 0.
    pub fn new(is_split: bool, lease_ns: u64) -> Gate<T> {
        let lane = || Lane { waiting: VecDeque::new(), slots: VecDeque::new(), leased_ns: 0 };
        Gate { lanes: [lane(), lane()], is_split, lease_ns }
    }

    fn lane_of(&mut self, direction: Direction) -> &mut Lane<T> {
        &mut self.lanes[usize::from(self.is_split && direction == Direction::Write)]
    }

    /// A request arrives. If it has to wait, the ticket is kept.
    pub fn arrive(&mut self, now_ns: u64, ticket: T, cost: Cost, ceiling: &mut Ceiling) -> Verdict {
        let lease_ns = self.lease_ns;
        let lane = self.lane_of(cost.direction);
        if lane.waiting.is_empty() {
            let slot = ceiling.reserve(now_ns, cost);
            if slot.at_ns <= now_ns {
                return Verdict::Run;
            }
            lane.add(slot, 0);
        }
        lane.waiting.push_back(Waiting { ticket, cost, arrived_ns: now_ns });
        lane.lease(now_ns, lease_ns, ceiling);
        Verdict::Wait
    }

    /// The first instant at which [`Gate::release`] has something to do; `None` if nothing waits.
    pub fn next_ns(&self) -> Option<u64> {
        self.lanes.iter().filter_map(|lane| lane.slots.front()).map(|(slot, _)| slot.at_ns).min()
    }

    /// Takes out one request whose slot has come, if any. Call it until it answers `None`.
    pub fn release(&mut self, now_ns: u64, ceiling: &mut Ceiling) -> Option<Released<T>> {
        let take = |lane: &mut Lane<T>| lane.take_due(now_ns);
        let (index, (slot, first)) =
            self.lanes.iter_mut().enumerate().find_map(|(index, lane)| Some((index, take(lane)?)))?;
        // Whoever waits behind keeps the schedule even if this call comes late: the machine's stalls are not
        // the workload's, which asked in time.
        let from_ns = slot.at_ns.max(now_ns.saturating_sub(BACKLOG_CATCH_UP_NS));
        self.lanes[index].lease(from_ns, self.lease_ns, ceiling);
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
            lane.lease(now_ns, self.lease_ns, ceiling);
        }
    }

    /// Gives all slots back to the budget, as before a change of the budget.
    pub fn give_back(&mut self, ceiling: &mut Ceiling) {
        for lane in &mut self.lanes {
            lane.waiting.iter().take(lane.slots.len()).for_each(|waiting| ceiling.cancel(waiting.cost));
            lane.drop_slots();
        }
    }

    /// Reserves slots anew, as after a change of the budget; the order of arrival stays.
    pub fn rearm(&mut self, now_ns: u64, ceiling: &mut Ceiling, is_split: bool, lease_ns: u64) {
        self.lease_ns = lease_ns;
        if std::mem::replace(&mut self.is_split, is_split) != is_split {
            self.sort_into_lanes();
        }
        for lane in &mut self.lanes {
            lane.lease(now_ns, lease_ns, ceiling);
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
        self.lanes.iter_mut().for_each(Lane::drop_slots);
        self.lanes[0].waiting.drain(..).map(released).collect()
    }
}

impl<T> Lane<T> {
    /// Reserves slots for requests that have none: for the first one in any case, for those behind it while
    /// the slots are worth less than `lease_ns` of the budget.
    fn lease(&mut self, now_ns: u64, lease_ns: u64, ceiling: &mut Ceiling) {
        while let Some(next) = self.waiting.get(self.slots.len()) {
            let is_enough = self.leased_ns >= lease_ns || self.slots.len() >= LEASED_SLOTS_MAX;
            if !self.slots.is_empty() && is_enough {
                return;
            }
            let slot = ceiling.reserve(now_ns, next.cost);
            self.add(slot, if lease_ns > 0 { ceiling.span_ns(next.cost) } else { 0 });
        }
    }

    fn add(&mut self, slot: Slot, span_ns: u64) {
        self.slots.push_back((slot, span_ns));
        self.leased_ns += span_ns;
    }

    /// Takes out the first request if its slot has come.
    fn take_due(&mut self, now_ns: u64) -> Option<(Slot, Waiting<T>)> {
        let (slot, span_ns) = *self.slots.front().filter(|(slot, _)| slot.at_ns <= now_ns)?;
        self.slots.pop_front();
        self.leased_ns -= span_ns;
        self.waiting.pop_front().map(|first| (slot, first))
    }

    /// Drops all slots without giving them back.
    fn drop_slots(&mut self) {
        self.slots.clear();
        self.leased_ns = 0;
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
    /// The second gate is served up to `late_ns` after each of its instants, as by a reactor that wakes late.
    fn compete(
        ceiling: &mut Ceiling,
        depths: [u32; 2],
        duration_ns: u64,
        lease_ns: u64,
        late_ns: u64,
    ) -> [u64; 2] {
        let mut gates = [Gate::new(false, lease_ns), Gate::new(false, lease_ns)];
        let mut served = [0; 2];
        for (gate, depth) in gates.iter_mut().zip(depths) {
            (0..depth).for_each(|n| {
                gate.arrive(0, n, READ, ceiling);
            });
        }
        let mut chance = 1u64;
        let mut wakes = [gates[0].next_ns(), gates[1].next_ns()];
        while let Some(now_ns) = wakes.iter().flatten().min().copied().filter(|&n| n < duration_ns) {
            let which = usize::from(wakes[0] != Some(now_ns));
            let gate = &mut gates[which];
            while let Some(released) = gate.release(now_ns, ceiling) {
                served[which] += 1;
                gate.arrive(now_ns, released.ticket, READ, ceiling);
            }
            chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let lateness_ns = if which == 1 && late_ns > 0 { (chance >> 33) % late_ns } else { 0 };
            wakes[which] = gate.next_ns().map(|next_ns| next_ns.max(now_ns) + lateness_ns);
        }
        served
    }

    #[test]
    fn members_of_a_group_get_equal_halves_whatever_their_depth() {
        let [few, many] = compete(&mut ceiling("3000IOPS", "none"), [2, 512], 10_000_000_000, 0, 0);
        assert!(few.abs_diff(many) <= 1, "{few} and {many}");
        assert!((few + many).abs_diff(30_000) <= 1, "{few} + {many}");
    }

    #[test]
    fn a_member_that_wakes_late_keeps_its_half() {
        let mut shared = ceiling("3000IOPS", "none");
        let [prompt, late] = compete(&mut shared, [128, 128], 10_000_000_000, 20_000_000, 2_000_000);
        assert!(prompt.abs_diff(15_000) <= 300, "{prompt} and {late}");
        assert!((prompt + late).abs_diff(30_000) <= 30, "{prompt} + {late}");
    }

    #[test]
    fn waiting_requests_lose_nothing_to_a_stall() {
        let mut ceiling = ceiling("1000IOPS", "none");
        let mut gate = Gate::new(false, 0);
        (0..10_000).for_each(|n| {
            gate.arrive(0, n, READ, &mut ceiling);
        });
        let mut served = 1;
        for stall in 1..=100 {
            while gate.release(stall * 50_000_000, &mut ceiling).is_some() {
                served += 1;
            }
        }
        assert_eq!(served, 5001);
        // A stall longer than what is caught up.
        while gate.release(7_000_000_000, &mut ceiling).is_some() {
            served += 1;
        }
        assert!((5101..=5115).contains(&served), "{served}");
    }

    #[test]
    fn a_lone_member_has_the_whole_budget() {
        let [served, none] = compete(&mut ceiling("3000IOPS", "none"), [4, 0], 10_000_000_000, 0, 0);
        assert!(served.abs_diff(30_000) <= 1 && none == 0, "{served}");
    }

    #[test]
    fn a_throttled_read_does_not_hold_back_a_write() {
        let mut ceiling = ceiling("none", "1IOPS");
        let mut gate = Gate::new(true, 0);
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
        let mut gate = Gate::new(false, 0);
        for (ticket, cost) in [(0, READ), (1, WRITE), (2, READ), (3, WRITE)] {
            gate.arrive(ticket, ticket, cost, &mut ceiling);
        }
        for is_split in [true, false] {
            gate.give_back(&mut ceiling);
            gate.rearm(10, &mut ceiling, is_split, 0);
        }
        let order: Vec<u64> = gate.drain(20).into_iter().map(|released| released.ticket).collect();
        assert_eq!(order, [1, 2, 3]);
        assert!(gate.is_empty() && gate.next_ns().is_none());
    }

    #[test]
    fn requests_of_an_ended_connection_leave_no_charge() {
        let mut ceiling = ceiling("1IOPS", "none");
        let mut gate = Gate::new(false, 0);
        (0..4).for_each(|ticket| {
            gate.arrive(0, ticket, READ, &mut ceiling);
        });
        gate.forget(0, &mut ceiling, |ticket| ticket < 3);
        assert_eq!((gate.len(), gate.next_ns()), (1, Some(1_000_000_000)));
        gate.forget(0, &mut ceiling, |_| true);
        assert_eq!(ceiling.reserve(1_000_000_000, READ).at_ns, 1_000_000_000);
    }
}
