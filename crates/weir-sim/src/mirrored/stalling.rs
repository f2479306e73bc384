//! Drives that do not answer in the simulated machine.
//!
//! Operations on a silent drive are given up while other replicas are in sync, as in the data plane.

use weir_types::bounds::REPLICA_SLOTS_MAX;
use weir_volume::Fault;
use weir_volume::mirror::stall::{ChecksumPhase, goes_on_without_late};
use weir_volume::mirror::{Answer, ChecksumWork};

use super::MirrorWorld;
use super::work::Pending;

impl MirrorWorld {
    /// Makes drives silent and responsive again, and lets orphaned I/O end. True if the step is used up.
    pub(super) fn stall(&mut self) -> Result<bool, String> {
        if self.random.chance(self.settings.stalls_per_ten_thousand, 10_000) {
            let slot = self.random.below(REPLICA_SLOTS_MAX as u64) as usize;
            (self.drives[slot].is_silent, self.drives[slot].has_failed) = (true, true);
        }
        let silent = self.drives.iter().position(|drive| drive.is_silent);
        if let Some(slot) = silent.filter(|_| self.random.chance(1, 60)) {
            self.drives[slot].is_silent = false;
        }
        let slot = self.random.below(REPLICA_SLOTS_MAX as u64) as usize;
        if !self.drives[slot].is_away() && self.random.chance(1, 20) {
            self.take_back(slot)?;
        }
        if silent.is_some() && self.random.chance(1, 30) {
            self.look_for_stalls()?;
            return Ok(true);
        }
        if !self.orphans.is_empty() && self.random.chance(1, 400) {
            self.come_back()?;
            return Ok(true);
        }
        Ok(false)
    }

    /// Gives up operations on silent drives that other replicas can stand in for.
    fn look_for_stalls(&mut self) -> Result<(), String> {
        self.give_up_metadata()?;
        while let Some(index) = self.pending.iter().position(|pending| self.is_to_be_given_up(pending)) {
            let pending = self.pending.swap_remove(index);
            match pending {
                Pending::Action(slot, ..) | Pending::Sync(slot, ..) => {
                    let extent = pending.concerns().map_or(0, |(extent, _)| extent);
                    self.pending.push(pending);
                    self.give_up_replica(slot, extent)?;
                }
                _ => self.give_up_in_part(pending)?,
            }
        }
        Ok(())
    }

    fn is_to_be_given_up(&self, pending: &Pending) -> bool {
        let Some((extent, slots)) = pending.concerns().filter(|_| self.is_silent(pending)) else {
            return false;
        };
        let replica_states = self.mirror.replica_states(extent);
        // A drive that refuses a header does not have it.
        let takes_it =
            |slot: &usize| !self.drives[*slot].is_away() && self.drives[*slot].metadata_fault.is_none();
        match pending {
            Pending::Action(slot, ..) | Pending::Sync(slot, ..) => {
                self.mirror.is_failed_when_late(extent, *slot)
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
    fn give_up_replica(&mut self, slot: usize, extent: u32) -> Result<(), String> {
        let replica = std::iter::once(slot).collect();
        let is_meant = |pending: &mut Pending| {
            pending.is_of_one() && pending.concerns().is_some_and(|concerns| concerns == (extent, replica))
        };
        let given_up: Vec<Pending> = self.pending.extract_if(.., is_meant).collect();
        let mut operations = Vec::new();
        for pending in given_up {
            if let Pending::Action(_, owner, action) = &pending
                && let Some(operation) = action.operation()
            {
                let answer = Answer::Completed(operation, Err(Fault::Broken));
                self.note_fault((slot, extent), *owner, &answer);
                operations.push(operation);
            }
            self.orphan(slot, extent, pending);
        }
        let mut effects = Vec::new();
        self.mirror.give_up_replica((extent, slot), &operations, &mut effects);
        self.take(effects)
    }

    /// Ends an operation with the answers of the replicas that gave one.
    fn give_up_in_part(&mut self, pending: Pending) -> Result<(), String> {
        let (extent, slots) = pending.concerns().expect("what drives are asked for concerns them");
        for slot in slots.iter().filter(|slot| self.drives[*slot].is_silent).collect::<Vec<_>>() {
            self.orphan(slot, extent, pending.clone());
        }
        self.answer(pending)
    }
}
