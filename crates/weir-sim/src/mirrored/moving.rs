//! Moves of replicas in the imagined machine: the planner and the order of steps are those of the daemon. Chance changes
//! the wishes, also in the middle of a move, and power fails between any two steps.
//!
//! A replica has the number of its drive. The planner chooses drives; numbers mean nothing to it.

use weir_plan::replica_change::{Action, Outcome, ReplicaChange};
use weir_plan::replica_plan::{Candidate, Step, may_be_removed};
use weir_types::Class;
use weir_types::bounds::{EXTENT_BYTES, REPLICA_SLOTS_MAX};
use weir_volume::mirror::{AwaitedChange, FileState, ReplicaChange as Change, ReplicaState, Slots};

use super::MirrorWorld;
use super::checksums::ChecksumFile;
use super::control::{Doing, candidate, class_of, slot_of};
use crate::disk::File;
use crate::requests::EXTENTS;

impl MirrorWorld {
    /// Takes the next step of the move that is under way, or begins one.
    pub(super) fn move_replicas(&mut self) -> Result<(), String> {
        let extent = self.random.below(EXTENTS.into()) as u32;
        if self.random.chance(1, 12) {
            self.wish_otherwise(extent);
        }
        match self.control.doing {
            Some(doing) => self.go_on_moving(doing),
            None => self.begin_moving(extent),
        }
    }

    /// Chance changes the wishes of an extent or the drives that are being emptied, if all wishes can still be met.
    fn wish_otherwise(&mut self, extent: u32) {
        let before = self.control.clone();
        if self.random.chance(1, 2) {
            let slot = self.random.below(REPLICA_SLOTS_MAX as u64) as usize;
            match self.control.draining.contains(slot) {
                true => self.control.draining.remove(slot),
                false => self.control.draining.insert(slot),
            }
        } else {
            let replicas = self.settings.replicas;
            let class = |choice| if choice == 0 { Class::High } else { Class::Low };
            // A volume wishes for a class for each replica, or for none.
            self.control.wishes[extent as usize] = match self.random.chance(1, 2) {
                true => vec![None; replicas],
                false => (0..replicas).map(|_| Some(class(self.random.below(2)))).collect(),
            };
        }
        if !self.control.can_be_met() {
            self.control = before;
        }
    }

    /// Drives that a replica could be made on. How full they are is chance.
    fn candidates(&mut self) -> Vec<Candidate> {
        let is_free = |slot: &usize| !self.drives[*slot].is_away() && !self.control.draining.contains(*slot);
        let free: Vec<usize> = (0..REPLICA_SLOTS_MAX).filter(is_free).collect();
        free.into_iter().map(|slot| candidate(slot, self.random.below(8) * EXTENT_BYTES)).collect()
    }

    /// Begins the next step for an extent.
    fn begin_moving(&mut self, extent: u32) -> Result<(), String> {
        // A snapshot reads the files of replicas as they are.
        if self.mirror.has_snapshot_in_progress() {
            return Ok(());
        }
        self.delete_stray_extents(extent);
        let candidates = self.candidates();
        match self.control.next(extent, &self.stands[extent as usize], &candidates) {
            Step::Done | Step::Wait | Step::Blocked(_) => Ok(()),
            Step::Add { drive, .. } if self.touches(extent, slot_of(drive)) => Ok(()),
            Step::Add { drive, .. } => self.begin_change(extent, slot_of(drive), ReplicaChange::add()),
            Step::Remove(slot) => {
                let recorded = self.control.recorded[extent as usize];
                if !may_be_removed(recorded, slot) {
                    return Ok(());
                }
                self.check_redundancy(extent, slot)?;
                self.begin_change(extent, slot, ReplicaChange::remove(recorded.contains(slot)))
            }
        }
    }

    /// A replica in sync goes only if as many stay in sync as there were, or as are wished for.
    fn check_redundancy(&self, extent: u32, slot: usize) -> Result<(), String> {
        let states = &self.stands[extent as usize];
        let is_in_sync = |slot: &usize| states[*slot] == ReplicaState::InSync;
        let in_sync = (0..REPLICA_SLOTS_MAX).filter(is_in_sync).count();
        let wished = self.control.wishes[extent as usize].len();
        match is_in_sync(&slot) && in_sync <= wished {
            true => {
                Err(format!("replica {slot} of extent {extent} goes while {in_sync} of {wished} are in sync"))
            }
            false => Ok(()),
        }
    }

    fn begin_change(&mut self, extent: u32, slot: usize, change: ReplicaChange) -> Result<(), String> {
        let doing = Doing { extent, slot, change, awaited: None };
        self.control.doing = Some(doing);
        self.go_on_moving(doing)
    }

    fn go_on_moving(&mut self, doing: Doing) -> Result<(), String> {
        let Doing { extent, slot, change, awaited } = doing;
        if awaited.is_some() {
            if self.mirror.is_lost(extent) {
                self.control.hear(extent, None, |_| true);
            } else if self.random.chance(1, 50) {
                // A drive does not answer, and nobody waits for ever: the next look goes on from what it finds.
                self.control.doing = None;
            }
            return Ok(());
        }
        let Some(action) = change.next() else {
            self.report.moves += u64::from(change.has_come_about());
            self.control.doing = None;
            return Ok(());
        };
        match action {
            Action::MakeFile => self.make(extent, slot),
            Action::AddToVolume => return self.ask_volume(doing, Change::Add),
            Action::RemoveFromVolume => return self.ask_volume(doing, Change::Remove),
            Action::Record => self.control.recorded[extent as usize].insert(slot),
            Action::ConfirmAdded => self.mirror.confirm_added(extent, slot),
            Action::Unrecord => self.control.recorded[extent as usize].remove(slot),
            Action::DeleteFile => self.give_back(extent, slot),
        }
        self.control.end_step(Outcome::Done);
        Ok(())
    }

    /// Asks the volume for its part of a change.
    fn ask_volume(&mut self, doing: Doing, change: Change<'_>) -> Result<(), String> {
        let replica = (doing.extent, doing.slot);
        let files = FileState {
            has_orphaned_io: self.has_orphans(doing.extent, doing.slot),
            can_attach: self.can_attach_anew((doing.slot, doing.extent)),
        };
        // A drive does in order what it is asked for beside a replica. Here it may answer in any order.
        if matches!(change, Change::Add) && self.touches(doing.extent, doing.slot) {
            self.control.end_step(Outcome::Refused);
            return Ok(());
        }
        let awaited = Some(AwaitedChange::new(replica, change));
        self.control.doing = Some(Doing { awaited, ..doing });
        let mut effects = Vec::new();
        if self.mirror.change_replica(replica, change, files, &mut effects) {
            if matches!(change, Change::Add) {
                self.failures.replica_added((doing.slot, doing.extent));
            }
        } else {
            self.control.doing = Some(doing);
            self.control.end_step(Outcome::Refused);
        }
        self.take(effects)
    }

    /// Creates the file of a replica.
    fn make(&mut self, extent: u32, slot: usize) {
        self.give_back(extent, slot);
        self.drives[slot].is_made[extent as usize] = true;
        self.control.damaged.remove(&(slot, extent));
        self.failures.file_made((slot, extent));
    }

    /// Deletes the files of a replica, unless its drive cannot be reached.
    fn give_back(&mut self, extent: u32, slot: usize) {
        let (drive, index) = (&mut self.drives[slot], extent as usize);
        if drive.is_away() {
            return;
        }
        drive.files[index] = File::default();
        drive.block_checksums[index] = ChecksumFile::default();
        drive.all_metadata[index] = None;
        drive.is_made[index] = false;
        self.forget_original(extent, slot);
    }

    /// Deletes files that neither the record nor replica metadata names: a move has left them.
    fn delete_stray_extents(&mut self, extent: u32) {
        for slot in 0..REPLICA_SLOTS_MAX {
            let is_named = self.stands[extent as usize][slot] != ReplicaState::Absent;
            let is_stray = self.drives[slot].is_made[extent as usize] && !self.control.knows(extent, slot);
            if is_stray && !is_named && !self.touches(extent, slot) {
                self.give_back(extent, slot);
            }
        }
    }

    /// Finishes all moves, without faults.
    pub(super) fn finish_moves(&mut self) -> Result<(), String> {
        for _ in 0..60 {
            for slot in 0..REPLICA_SLOTS_MAX {
                self.take_back(slot)?;
            }
            for extent in 0..EXTENTS {
                match self.control.doing {
                    Some(doing) => self.go_on_moving(doing)?,
                    None => self.begin_moving(extent)?,
                }
                self.settle()?;
            }
            self.make_up()?;
            if self.control.doing.is_none() && (0..EXTENTS).all(|extent| self.is_as_wished(extent)) {
                return Ok(());
            }
        }
        Err(format!("moves do not end: {:?} with {:?}", self.control, self.stands))
    }

    /// True if an extent has the replicas that were wished for, and no file beside theirs.
    fn is_as_wished(&self, extent: u32) -> bool {
        let (wishes, recorded) =
            (&self.control.wishes[extent as usize], self.control.recorded[extent as usize]);
        let is_made = |slot: &usize| self.drives[*slot].is_made[extent as usize];
        let made: Slots = (0..REPLICA_SLOTS_MAX).filter(is_made).collect();
        let count = |class| wishes.iter().filter(|wish| **wish == Some(class)).count();
        let has = |class| recorded.iter().filter(|slot| class_of(*slot) == class).count();
        let is_met = [Class::High, Class::Low].into_iter().all(|class| has(class) >= count(class));
        let is_free = recorded.iter().all(|slot| !self.control.draining.contains(slot));
        let in_sync = |slot: usize| self.stands[extent as usize][slot] == ReplicaState::InSync;
        made == recorded
            && recorded.iter().count() == wishes.len()
            && is_met
            && is_free
            && recorded.iter().all(in_sync)
    }
}
