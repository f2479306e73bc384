//! Space: letting actions wait for a look at the filesystem that finds out whether there is space for them.

use weir_volume::Fault;

use crate::helper::SpaceAnswer;
use crate::reactor::Reactor;
use crate::space_permission::Permission;

impl Reactor {
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
        volume.disk(&mut self.io).act((replica, number), home, action);
    }
}
