//! Drives that do not answer in the simulated machine.
//!
//! Operations on a silent drive are given up while other replicas are in sync, as in the data plane.

use weir_types::ExtentIndex;
use weir_volume::Fault;
use weir_volume::mirror::stall::{ChecksumPhase, goes_on_without_late};
use weir_volume::mirror::{Answer, ChecksumWork};

use super::MirrorWorld;
use super::machine::Pending;
use crate::requests::random_slot;

impl MirrorWorld {
    /// Makes drives silent and responsive again, and lets orphaned I/O end. True if the step is used up.
    pub(super) fn stall(&mut self) -> Result<bool, String> {
        let stalls = self.daemon.machine.settings.stalls_per_ten_thousand;
        if self.is_by_chance(stalls, 10_000) {
            let slot = random_slot(&mut self.daemon.machine.random);
            self.daemon.machine.drives[slot].fall_silent();
        }
        let silent = self.daemon.machine.drives.iter().position(|drive| drive.is_silent);
        if let Some(slot) = silent.filter(|_| self.is_by_chance(1, 60)) {
            self.daemon.machine.drives[slot].is_silent = false;
        }
        let slot = random_slot(&mut self.daemon.machine.random);
        if !self.daemon.machine.drives[slot].is_away() && self.is_by_chance(1, 20) {
            self.take_back(slot)?;
        }
        if silent.is_some() && self.is_by_chance(1, 30) {
            self.look_for_stalls()?;
            return Ok(true);
        }
        if !self.daemon.machine.orphans.is_empty() && self.is_by_chance(1, 400) {
            self.daemon.machine.carry_out_orphan();
            return Ok(true);
        }
        Ok(false)
    }

    /// Gives up operations on silent drives that other replicas can stand in for.
    fn look_for_stalls(&mut self) -> Result<(), String> {
        self.daemon.give_up_metadata()?;
        loop {
            let operations = &self.daemon.machine.operations;
            let index = operations.iter().position(|pending| self.is_to_be_given_up(pending));
            let Some(index) = index else { return Ok(()) };
            let pending = self.daemon.machine.operations.take_at(index);
            match pending {
                Pending::Action(slot, ..) | Pending::Sync(slot, ..) => {
                    let extent = pending.concerns().map_or(ExtentIndex(0), |(extent, _)| extent);
                    self.daemon.machine.operations.add(pending);
                    self.give_up_replica(slot, extent)?;
                }
                _ => self.give_up_in_part(pending)?,
            }
        }
    }

    fn is_to_be_given_up(&self, pending: &Pending) -> bool {
        let concerns = pending.concerns().filter(|_| self.daemon.machine.is_silent(pending));
        let Some((extent, slots)) = concerns else { return false };
        let replica_states = self.daemon.mirror.replica_states(extent);
        // A drive that refuses a header does not have it.
        let takes_it = |slot: &usize| self.daemon.machine.drives[*slot].takes_metadata();
        match pending {
            Pending::Action(slot, ..) | Pending::Sync(slot, ..) => {
                self.daemon.mirror.is_failed_when_late(extent, *slot)
            }
            // That is for `MetadataWrites` to say.
            Pending::Metadata { .. } | Pending::Failure(_) | Pending::Record { .. } => false,
            Pending::ChecksumWork(_, work) => {
                let is_header = matches!(**work, ChecksumWork::WriteHeaders(_));
                let phase = if is_header { ChecksumPhase::Headers } else { ChecksumPhase::Blocks };
                goes_on_without_late(phase, slots.iter().filter(takes_it).collect(), &replica_states)
            }
            Pending::Snapshot(_) | Pending::BeginSnapshot => true,
            Pending::Journal(_) => false,
        }
    }

    /// Fails a replica, and fails all operations that concern it alone.
    fn give_up_replica(&mut self, slot: usize, extent: ExtentIndex) -> Result<(), String> {
        let replica = std::iter::once(slot).collect();
        let given_up = self.daemon.machine.operations.take_those(|pending| {
            pending.is_of_one() && pending.concerns().is_some_and(|concerns| concerns == (extent, replica))
        });
        let mut operations = Vec::new();
        for pending in given_up {
            if let Pending::Action(_, owner, action) = &pending
                && let Some(operation) = action.operation()
            {
                let answer = Answer::Completed(operation, Err(Fault::Broken));
                self.daemon.note_fault((slot, extent), *owner, &answer);
                operations.push(operation);
            }
            self.daemon.machine.orphan(slot, extent, pending);
        }
        let mut effects = Vec::new();
        self.daemon.mirror.give_up_replica((extent, slot), &operations, &mut effects);
        self.daemon.take(effects)
    }

    /// Ends an operation with the answers of the replicas that gave one.
    fn give_up_in_part(&mut self, pending: Pending) -> Result<(), String> {
        let (extent, slots) = pending.concerns().expect("what drives are asked for concerns them");
        let machine = &mut self.daemon.machine;
        for slot in slots.iter() {
            if machine.drives[slot].is_silent {
                machine.orphan(slot, extent, pending.clone());
            }
        }
        self.daemon.answer(pending)
    }
}
