//! Failures that clients of the simulated daemon may see: no error reaches a client while a replica is left that can
//! serve it.

use weir_types::ExtentIndex;
use weir_types::bounds::REPLICA_SLOTS_MAX;
use weir_volume::mirror::{Answer, MirrorId, ReplicaState};
use weir_volume::{Content, Fault};

use super::Daemon;
use super::clients::InFlight;

impl Daemon {
    /// Notes a fault that may be a reason for a later failed request.
    pub fn note_fault(&mut self, replica: (usize, ExtentIndex), owner: Option<MirrorId>, answer: &Answer) {
        let (Answer::Opened(_, _, Err(fault))
        | Answer::Refused(_, _, _, fault)
        | Answer::Completed(_, Err(fault))) = answer
        else {
            return;
        };
        let now = self.machine.now;
        if matches!(fault, Fault::NoSpace | Fault::NoMemory | Fault::Away) {
            self.failures.was_short(replica, now);
        }
        let (slot, extent) = replica;
        let is_in_sync = self.mirror.replica_states(extent)[slot] == ReplicaState::InSync;
        if let Some(owner) = owner.filter(|_| is_in_sync && *fault == Fault::Broken) {
            self.clients.replica_failed(owner, now);
        }
    }

    /// Checks that a request had a reason to fail.
    pub(super) fn check_failed(
        &mut self,
        flying: &InFlight,
        result: Result<Content, Fault>,
    ) -> Result<(), String> {
        self.failures.request_failed(&flying.request);
        let extent = flying.request.extent;
        let replica_states = self.mirror.replica_states(extent);
        let is_left = |slot: &usize| {
            replica_states[*slot] == ReplicaState::InSync
                && self.machine.is_well(*slot)
                && !self.failures.has_replica_failed((*slot, extent))
        };
        let left: Vec<usize> = (0..REPLICA_SLOTS_MAX).filter(is_left).collect();
        self.failures.check(flying, result, &left, self.machine.settings.can_all_place())
    }
}
