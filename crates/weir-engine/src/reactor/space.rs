//! Space: letting actions wait for a look at the filesystem that finds out whether there is space for them.

use std::sync::Arc;

use weir_volume::{Action, Fault};

use crate::helper::{Job, SpaceAnswer, SpaceJob};
use crate::reactor::Reactor;
use crate::space_permission::{Permission, SpaceAsked};
use crate::token::{AskNumber, ReplicaIndex};

impl Reactor {
    /// Lets an action wait until a look finds out whether there is space.
    pub(crate) fn look_for_space(
        &mut self,
        (replica, number): (ReplicaIndex, AskNumber),
        home: usize,
        action: Action,
    ) {
        let volume = &self.volumes[replica.volume];
        let extent = action.extent().expect("what takes space names an extent");
        let (path, drive) = (volume.files.extent_path(replica.slot, extent), volume.files.homes[home].drive);
        let count = Arc::clone(self.io.space.count());
        let SpaceAsked { offset, bytes } = SpaceAsked::of(&action);
        let range = offset..offset + bytes;
        let job = SpaceJob { replica, number, drive, action, path, range, count };
        self.io.helper.submit(Job::Space(Box::new(job)));
    }

    /// Runs or refuses an action after its look.
    pub(crate) fn space_seen(&mut self, answer: SpaceAnswer) {
        let SpaceAnswer { replica, number, action, needed_bytes } = answer;
        let volume = &mut self.volumes[replica.volume];
        let is_wanted = match action.operation() {
            Some(operation) => volume.operations.is_wanted(replica.slot, operation, number),
            None => volume.operations.is_asked(replica.slot, number),
        };
        if !is_wanted {
            self.is_orphaned(replica, number);
            return;
        }
        let extent = action.extent().expect("what takes space names an extent");
        let is_current = |generation| volume.mirror.is_current(replica.slot, extent, generation);
        if action.operation().is_none() && !action.generation().is_some_and(is_current) {
            // The file was given up during the look, so no operation waits for this action.
            volume.operations.answered(replica.slot, number);
            volume.operations.end();
            return self.settle_volume(replica.volume);
        }
        let home =
            volume.files.home_of(replica.slot, extent).expect("the mirror knows only replicas that exist");
        let permission = match volume.files.homes[home].is_away {
            true => Permission::Refused(Fault::Away),
            false => Permission::after_a_look(&self.io.space, &action, &needed_bytes),
        };
        let taken = match permission {
            Permission::Granted(taken) => taken,
            Permission::Refused(fault) => return self.refuse_action(replica, number, &action, fault),
            Permission::AfterALook => unreachable!("it was looked"),
        };
        let asked_ns = volume.emulated.submit(self.io.now_ns, home, replica.slot, &action);
        match action.operation() {
            Some(operation) => _ = volume.operations.context(replica.slot, operation).ask(asked_ns, taken),
            None => volume.operations.set_space(replica.slot, number, taken),
        }
        self.act((replica, number), home, action);
    }
}
