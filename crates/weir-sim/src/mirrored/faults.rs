//! Failures that clients of the simulated machine may see: no error reaches a client while a replica is left
//! that can serve it.

use weir_types::bounds::REPLICA_SLOTS_MAX;
use weir_volume::mirror::{Answer, MirrorId, ReplicaState, regions_of};
use weir_volume::{Content, Fault, Kind, Request};

use super::MirrorWorld;
use super::work::InFlight;

impl MirrorWorld {
    /// Notes a fault that may be a reason for a later failed request.
    pub(super) fn note_fault(&mut self, replica: (usize, u32), owner: Option<MirrorId>, answer: &Answer) {
        let (Answer::Opened(_, _, Err(fault))
        | Answer::Refused(_, _, _, fault)
        | Answer::Completed(_, Err(fault))) = answer
        else {
            return;
        };
        if matches!(fault, Fault::NoSpace | Fault::NoMemory | Fault::Away) {
            self.short_at.insert(replica, self.now);
        }
        let (slot, extent) = replica;
        let is_in_sync = self.mirror.replica_states(extent)[slot] == ReplicaState::InSync;
        let flying = owner.and_then(|owner| self.in_flight.get_mut(&owner));
        if let Some(flying) = flying.filter(|_| is_in_sync && *fault == Fault::Broken) {
            flying.failed_at = self.now;
        }
    }

    /// Checks that a request had a reason to fail.
    pub(super) fn check_failed(
        &mut self,
        flying: &InFlight,
        result: Result<Content, Fault>,
    ) -> Result<(), String> {
        if flying.request.kind != Kind::Read {
            self.differing.extend(places(&flying.request));
        }
        self.check_fault(flying, result)
    }

    /// Checks that every remaining replica had a shortage since the request came and since another replica
    /// failed it. Where replicas may differ, a shortage of one replica is enough, because it may be the
    /// authoritative one.
    fn check_fault(&self, flying: &InFlight, result: Result<Content, Fault>) -> Result<(), String> {
        let extent = flying.request.extent;
        // The failure that the request leaves behind could not be recorded durably.
        if self.refused_at.get(&extent).is_some_and(|at| *at >= flying.began) {
            return Ok(());
        }
        let replica_states = self.mirror.replica_states(extent);
        let is_left = |slot: &usize| {
            replica_states[*slot] == ReplicaState::InSync
                && self.is_well(*slot)
                && !self.replica_failed.contains(&(*slot, extent))
        };
        let is_shortage = matches!(result, Err(Fault::NoSpace | Fault::NoMemory | Fault::Away));
        let since = flying.began.max(flying.failed_at);
        let was_short =
            |slot: &usize| is_shortage && self.short_at.get(&(*slot, extent)).is_some_and(|at| *at >= since);
        let left = || (0..REPLICA_SLOTS_MAX).filter(is_left);
        let is_unsupported = !self.settings.can_all_place() && result == Err(Fault::Unsupported);
        let is_only_one_short = self.may_differ(&flying.request) && left().any(|slot| was_short(&slot));
        match left().find(|slot| !was_short(slot)) {
            Some(slot) if !is_unsupported && !is_only_one_short => {
                Err(format!("{flying:?} failed with {result:?} though replica {slot} is left"))
            }
            _ => Ok(()),
        }
    }

    /// True for a read of regions in which replicas may differ because a change failed there.
    fn may_differ(&self, request: &Request) -> bool {
        request.kind == Kind::Read && places(request).any(|place| self.differing.contains(&place))
    }
}

/// Regions that a request touches, each with the extent.
fn places(request: &Request) -> impl Iterator<Item = (u32, u32)> {
    let extent = request.extent;
    regions_of(request.offset, request.length).map(move |region| (extent, region))
}
