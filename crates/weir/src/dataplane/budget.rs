//! The budget that a volume's requests are admitted against: its own, or one shared with other volumes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_qos::{Ceiling, Cost, Gate, Released, Verdict};
use weir_types::bounds::SHARED_LEASE_NS;
use weir_types::{Limits, PolicyGroupId};

/// A ceiling that the volumes of a shared group lease slots from, wherever their reactors run. It is held
/// only for the few arithmetic steps of one reservation.
pub(super) type SharedCeiling = Arc<Mutex<Ceiling>>;

/// Whose ceiling it is.
#[derive(Clone)]
pub(super) enum Source {
    /// This volume's alone.
    Own(Box<Ceiling>),
    /// All members' of a group.
    Shared(SharedCeiling),
}

impl Source {
    /// How far ahead slots are taken.
    fn lease_ns(&self) -> u64 {
        match self {
            Source::Own(_) => 0,
            Source::Shared(_) => SHARED_LEASE_NS,
        }
    }

    fn with<R>(&mut self, use_ceiling: impl FnOnce(&mut Ceiling) -> R) -> R {
        match self {
            Source::Own(ceiling) => use_ceiling(ceiling),
            Source::Shared(shared) => use_ceiling(&mut lock(shared)),
        }
    }
}

/// Locks a shared ceiling; its arithmetic cannot be left half done, so a poisoned lock is as good.
pub(super) fn lock(shared: &SharedCeiling) -> MutexGuard<'_, Ceiling> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A policy at work on one volume: the budget, and the order in which requests wait for it.
pub(super) struct Budget<T> {
    pub group: PolicyGroupId,
    pub limits: Limits,
    source: Source,
    gate: Gate<T>,
}

impl<T: Copy> Budget<T> {
    pub fn new(group: PolicyGroupId, limits: Limits, source: Source) -> Budget<T> {
        let gate = Gate::new(limits.is_directional(), source.lease_ns());
        Budget { group, limits, source, gate }
    }

    pub fn arrive(&mut self, now_ns: u64, ticket: T, cost: Cost) -> Verdict {
        let gate = &mut self.gate;
        // A group without any ceiling only observes, and costs nothing.
        if self.limits.is_unlimited() && gate.is_empty() {
            return Verdict::Run;
        }
        self.source.with(|ceiling| gate.arrive(now_ns, ticket, cost, ceiling))
    }

    pub fn release(&mut self, now_ns: u64) -> Option<Released<T>> {
        let gate = &mut self.gate;
        if gate.next_ns().is_none_or(|next_ns| next_ns > now_ns) {
            return None;
        }
        self.source.with(|ceiling| gate.release(now_ns, ceiling))
    }

    pub fn next_ns(&self) -> Option<u64> {
        self.gate.next_ns()
    }

    pub fn waiting(&self) -> usize {
        self.gate.len()
    }

    pub fn forget(&mut self, now_ns: u64, is_gone: impl Fn(T) -> bool) {
        let gate = &mut self.gate;
        self.source.with(|ceiling| gate.forget(now_ns, ceiling, is_gone));
    }

    /// Takes over changed limits. A shared ceiling was changed already, by whoever changed the group.
    pub fn change(&mut self, now_ns: u64, limits: Limits) {
        self.limits = limits;
        let gate = &mut self.gate;
        self.source.with(|ceiling| gate.give_back(ceiling));
        if let Source::Own(ceiling) = &mut self.source {
            ceiling.change(limits, now_ns);
        }
        self.rearm(now_ns);
    }

    /// Puts the waiting requests before another budget.
    pub fn replace(&mut self, now_ns: u64, group: PolicyGroupId, limits: Limits, source: Source) {
        let gate = &mut self.gate;
        self.source.with(|ceiling| gate.give_back(ceiling));
        (self.group, self.limits, self.source) = (group, limits, source);
        self.rearm(now_ns);
    }

    fn rearm(&mut self, now_ns: u64) {
        let (gate, is_split) = (&mut self.gate, self.limits.is_directional());
        let lease_ns = self.source.lease_ns();
        self.source.with(|ceiling| gate.rearm(now_ns, ceiling, is_split, lease_ns));
    }

    /// Ends the policy: everything that waits may run.
    pub fn dissolve(mut self, now_ns: u64) -> Vec<Released<T>> {
        let gate = &mut self.gate;
        self.source.with(|ceiling| gate.give_back(ceiling));
        self.gate.drain(now_ns)
    }
}
