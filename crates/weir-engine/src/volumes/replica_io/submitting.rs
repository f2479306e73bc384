//! Submitting: giving an action to its journal or its file, if its drive is there and has space for it, and
//! refusing it otherwise.

use std::sync::Arc;

use weir_volume::mirror::Answer;
use weir_volume::{Action, Fault};

use super::Disk;
use crate::drive_queue::SharedDriveQueue;
use crate::helper::{Job, OpenError, SpaceAnswer, SpaceJob};
use crate::space_count::TakenSpace;
use crate::token::{AskNumber, ReplicaIndex};
use crate::volumes::refusals::{Refused, permission};
use crate::volumes::space_permission::{Permission, SpaceAsked};
use crate::volumes::volume_files::Home;

/// True for actions that a journal does for a replica behind it; the others concern the slow file itself.
fn is_journals_work(action: &Action) -> bool {
    !matches!(action, Action::Open { .. } | Action::Allocate { .. })
}

impl Disk<'_> {
    pub(super) fn submit(&mut self, slot: usize, action: Action) {
        let (replica, now_ns) = (ReplicaIndex { volume: self.volume, slot }, self.desk.io.now_ns);
        let extent = action.extent().expect("ends are not submitted");
        let home = self.files.home_of(slot, extent).expect("the mirror knows only replicas that exist");
        if let Some(journal) = self.journals.home_of(extent, slot).filter(|_| is_journals_work(&action)) {
            let is_refused = self.files.homes[journal].is_away && !matches!(action, Action::Sync { .. });
            let number = self.number(slot, &action, (now_ns, None));
            return match is_refused {
                true => self.refuse(slot, number, &action, Fault::Away),
                false => self.ask_journal((replica, number), home, &action),
            };
        }
        let Home { is_away, is_counted, .. } = &self.files.homes[home];
        match permission(*is_away, is_counted, &self.desk.io.space, &action) {
            Permission::Granted(taken) => {
                let asked_ns = self.emulated.submit(now_ns, home, slot, &action);
                let number = self.number(slot, &action, (asked_ns, taken));
                self.act((replica, number), home, action);
            }
            Permission::Refused(fault) => {
                let number = self.number(slot, &action, (now_ns, None));
                self.refuse(slot, number, &action, fault);
            }
            Permission::AfterALook => {
                let number = self.number(slot, &action, (now_ns, None));
                self.look_for_space((replica, number), home, action);
            }
        }
    }

    /// The number for an action on a replica that is submitted at a given time, with the space that the
    /// action takes.
    fn number(
        &mut self,
        slot: usize,
        action: &Action,
        (asked_ns, space): (u64, Option<TakenSpace>),
    ) -> AskNumber {
        if let Some(operation) = action.operation() {
            return self.operations.context(slot, operation).ask(asked_ns, space);
        }
        let file = action.extent().zip(action.generation()).expect("what names no operation names a file");
        self.operations.ask(slot, file, (asked_ns, space))
    }

    /// Has a helper find out whether there is space for an action.
    fn look_for_space(&mut self, (replica, number): (ReplicaIndex, AskNumber), home: usize, action: Action) {
        let extent = action.extent().expect("what takes space names an extent");
        let (path, drive) = (self.files.extent_path(replica.slot, extent), self.files.homes[home].drive);
        let count = Arc::clone(self.desk.io.space.count());
        let SpaceAsked { offset, bytes } = SpaceAsked::of(&action);
        let range = offset..offset + bytes;
        let job = SpaceJob { replica, number, drive, action, path, range, count };
        self.desk.io.helper.submit(Job::Space(Box::new(job)));
    }

    /// Runs or refuses an action after its look. Answers the drive queue in which others wait and may run
    /// now.
    pub fn space_seen(&mut self, answer: SpaceAnswer) -> Option<SharedDriveQueue> {
        let SpaceAnswer { replica, number, action, needed_bytes } = answer;
        let slot = replica.slot;
        let is_wanted = match action.operation() {
            Some(operation) => self.operations.is_wanted(slot, operation, number),
            None => self.operations.is_asked(slot, number),
        };
        if !is_wanted {
            return self.end_orphan(slot, number).room();
        }
        let extent = action.extent().expect("what takes space names an extent");
        let is_current = |generation| self.mirror.is_current(slot, extent, generation);
        if action.operation().is_none() && !action.generation().is_some_and(is_current) {
            // The file was given up during the look, so no operation waits for this action.
            self.operations.answered(slot, number);
            self.operations.end();
            return None;
        }
        let home = self.files.home_of(slot, extent).expect("the mirror knows only replicas that exist");
        let permission = match self.files.homes[home].is_away {
            true => Permission::Refused(Fault::Away),
            false => Permission::after_a_look(&self.desk.io.space, &action, &needed_bytes),
        };
        match permission {
            Permission::Granted(taken) => self.submit_with_space((replica, number), home, action, taken),
            Permission::Refused(fault) => self.refuse(slot, number, &action, fault),
            Permission::AfterALook => unreachable!("it was looked"),
        }
        None
    }

    fn submit_with_space(
        &mut self,
        (replica, number): (ReplicaIndex, AskNumber),
        home: usize,
        action: Action,
        taken: Option<TakenSpace>,
    ) {
        let asked_ns = self.emulated.submit(self.desk.io.now_ns, home, replica.slot, &action);
        match action.operation() {
            Some(operation) => _ = self.operations.context(replica.slot, operation).ask(asked_ns, taken),
            None => self.operations.set_space(replica.slot, number, taken),
        }
        self.act((replica, number), home, action);
    }

    /// Fails an action; the answer follows later.
    pub(super) fn refuse(&mut self, slot: usize, number: AskNumber, action: &Action, fault: Fault) {
        let replica = ReplicaIndex { volume: self.volume, slot };
        let refused = match *action {
            Action::Open { extent, .. } => Refused::Open { replica, number, extent },
            Action::Allocate { extent, piece, .. } => {
                Refused::Allocate { replica, number, extent, piece, fault }
            }
            _ => {
                let operation = action.operation().expect("all else belongs to an operation");
                Refused::Operation { replica, operation, number, fault }
            }
        };
        self.desk.answers.refuse(refused);
    }

    /// Answers a refused action. Answers the drive queue in which others wait and may run now.
    pub fn refused(&mut self, refused: Refused) -> Option<SharedDriveQueue> {
        match refused {
            Refused::Open { replica, number, extent } => {
                let error = OpenError { message: "its drive is away".to_owned(), fault: Fault::Away };
                self.opened((replica.slot, number), extent, Err(error));
                None
            }
            Refused::Allocate { replica, number, extent, piece, fault } => {
                let Some(generation) = self.operations.answered(replica.slot, number) else {
                    return self.end_orphan(replica.slot, number).room();
                };
                self.tell(replica.slot, Answer::Refused(extent, generation, piece, fault));
                self.operations.end();
                None
            }
            Refused::Operation { replica, operation, number, fault } => {
                if !self.operations.is_wanted(replica.slot, operation, number) {
                    return self.end_orphan(replica.slot, number).room();
                }
                let waited_for = self.completed(replica.slot, operation, Err(fault));
                self.operations.end();
                waited_for.map(|home| self.files.homes[home].queue.shared().clone())
            }
        }
    }
}
