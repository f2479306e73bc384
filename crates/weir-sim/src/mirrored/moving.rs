//! Moves of replicas in the simulated machine: the planner and the order of steps are those of the daemon. Chance changes
//! the wishes, also in the middle of a move, and power fails between any two steps.
//!
//! A replica has the number of its drive. The planner chooses drives; numbers mean nothing to it.

use weir_plan::replica_plan::Step;
use weir_plan::replica_steps::{Action, Outcome, ReplicaChange};
use weir_types::ExtentIndex;
use weir_types::bounds::REPLICA_SLOTS_MAX;
use weir_volume::mirror::{AwaitedChange, FileState, ReplicaChange as Change, ReplicaState};

use super::MirrorWorld;
use super::daemon::{Daemon, Doing, slot_of};
use super::machine::{Journaling, Machine};
use crate::requests::{EXTENTS, random_extent};

impl MirrorWorld {
    /// Takes the next step of the move that is under way, or begins one.
    pub(super) fn move_replicas(&mut self) -> Result<(), String> {
        let extent = random_extent(&mut self.daemon.machine.random);
        if self.is_by_chance(1, 12) {
            let Daemon { machine, control, .. } = &mut self.daemon;
            control.wish_otherwise(extent, machine.settings.replicas, &mut machine.random);
        }
        match self.daemon.control.doing() {
            Some(doing) => self.go_on_moving(doing),
            None => self.begin_moving(extent),
        }
    }

    /// Begins the next step for an extent.
    fn begin_moving(&mut self, extent: ExtentIndex) -> Result<(), String> {
        // A snapshot reads the files of replicas as they are.
        if self.daemon.mirror.is_busy_with_snapshot() {
            return Ok(());
        }
        self.delete_stray_extents(extent);
        let replica_states = self.daemon.durable_states[extent.index()];
        let Machine { drives, random, .. } = &mut self.daemon.machine;
        match self.daemon.control.next(extent, &replica_states, drives, random) {
            Step::Done | Step::Wait | Step::Blocked(_) => Ok(()),
            Step::Add { drive, .. } if self.daemon.machine.touches(extent, slot_of(drive)) => Ok(()),
            Step::Add { drive, .. } => self.begin_change(extent, slot_of(drive), ReplicaChange::add()),
            Step::Remove(slot) => {
                let Some(change) = self.daemon.control.removal(extent, slot, &replica_states)? else {
                    return Ok(());
                };
                self.begin_change(extent, slot, change)
            }
        }
    }

    fn begin_change(
        &mut self,
        extent: ExtentIndex,
        slot: usize,
        change: ReplicaChange,
    ) -> Result<(), String> {
        let doing = self.daemon.control.begin(extent, slot, change);
        self.go_on_moving(doing)
    }

    fn go_on_moving(&mut self, doing: Doing) -> Result<(), String> {
        let Doing { extent, slot, change, awaited } = doing;
        if awaited.is_some() {
            if self.daemon.mirror.is_lost(extent) {
                self.daemon.control.hear(extent, None, |_| true);
            } else if self.is_by_chance(1, 50) {
                // A drive does not answer, and nobody waits for ever: the next look goes on from what it finds.
                self.daemon.control.give_up();
            }
            return Ok(());
        }
        let Some(action) = change.next() else {
            self.daemon.machine.report.moves += u64::from(change.has_come_about());
            self.daemon.control.give_up();
            return Ok(());
        };
        match action {
            Action::MakeFile => {
                let machine = &mut self.daemon.machine;
                machine.delete_files((slot, extent));
                machine.drives[slot].is_made[extent.index()] = true;
                self.daemon.control.file_made(extent, slot);
                self.daemon.failures.file_made((slot, extent));
            }
            Action::AddToVolume => return self.ask_volume(doing, Change::Add),
            Action::RemoveFromVolume => return self.ask_volume(doing, Change::Remove),
            Action::Record => self.daemon.control.record(extent, slot),
            Action::ConfirmAdded => self.daemon.mirror.confirm_added(extent, slot),
            Action::Unrecord => self.daemon.control.unrecord(extent, slot),
            Action::DeleteFile => self.daemon.machine.delete_files((slot, extent)),
        }
        self.daemon.control.end_step(Outcome::Done);
        Ok(())
    }

    /// Asks the volume for its part of a change.
    fn ask_volume(&mut self, doing: Doing, change: Change<'_>) -> Result<(), String> {
        let replica = (doing.extent, doing.slot);
        let files = FileState {
            has_orphaned_io: self.daemon.machine.orphans.has(doing.extent, doing.slot),
            can_attach: self.daemon.machine.can_attach_anew((doing.slot, doing.extent)),
        };
        // A drive does in order what it is asked for beside a replica. Here it may answer in any order.
        if matches!(change, Change::Add) && self.daemon.machine.touches(doing.extent, doing.slot) {
            self.daemon.control.end_step(Outcome::Refused);
            return Ok(());
        }
        self.daemon.control.await_answer(AwaitedChange::new(replica, change));
        let mut effects = Vec::new();
        if self.daemon.mirror.change_replica(replica, change, files, &mut effects) {
            if matches!(change, Change::Add) {
                self.daemon.machine.attach((doing.slot, doing.extent));
                self.daemon.failures.replica_added((doing.slot, doing.extent));
            }
        } else {
            self.daemon.control.end_step(Outcome::Refused);
        }
        self.daemon.take(effects)
    }

    /// Deletes files that neither the record nor replica metadata names: a move has left them.
    fn delete_stray_extents(&mut self, extent: ExtentIndex) {
        for slot in 0..REPLICA_SLOTS_MAX {
            let Daemon { machine, control, durable_states, .. } = &self.daemon;
            let is_named = durable_states[extent.index()][slot] != ReplicaState::Absent;
            let is_stray = machine.drives[slot].is_made[extent.index()] && !control.knows(extent, slot);
            if is_stray && !is_named && !machine.touches(extent, slot) {
                self.daemon.machine.delete_files((slot, extent));
            }
        }
    }

    /// Starts the daemon again if its journal was lost: only a start finds one.
    fn bring_journal_back(&mut self) -> Result<(), String> {
        let is_lost = self.daemon.machine.journaling.as_ref().is_some_and(Journaling::is_away);
        if is_lost {
            self.daemon.machine.settings.breaks_per_ten_thousand = 0;
            self.crash()?;
        }
        Ok(())
    }

    /// Finishes all moves, without faults.
    pub(super) fn finish_moves(&mut self) -> Result<(), String> {
        for _ in 0..60 {
            self.bring_journal_back()?;
            for slot in 0..REPLICA_SLOTS_MAX {
                self.take_back(slot)?;
            }
            for extent in ExtentIndex::first(EXTENTS) {
                match self.daemon.control.doing() {
                    Some(doing) => self.go_on_moving(doing)?,
                    None => self.begin_moving(extent)?,
                }
                self.settle()?;
            }
            self.make_up()?;
            let Daemon { machine, control, durable_states, .. } = &self.daemon;
            if control.has_ended(&machine.drives, durable_states) {
                return Ok(());
            }
        }
        Err(format!("moves do not end: {:?} with {:?}", self.daemon.control, self.daemon.durable_states))
    }
}
