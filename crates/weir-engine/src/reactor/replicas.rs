//! Changes of replicas: beginning them for control, and answering control.

use crate::reactor::Reactor;
use crate::replicas::{ChangeAnswer, NewChange, ReplicaWaiter, tell};
use crate::served_volume::ServedVolume;
use crate::token::VolumeIndex;
use crate::volume_files::NewHome;
use std::os::fd::OwnedFd;
use std::sync::mpsc::SyncSender;
use weir_types::{DriveId, VolumeId};
use weir_volume::mirror::{AwaitedChange, FileState, ReplicaChange, ReplicaStates};

impl Reactor {
    /// Changes an extent replica.
    pub(crate) fn change_replica(
        &mut self,
        id: VolumeId,
        (extent, slot): (u32, usize),
        change: NewChange,
        done: SyncSender<ChangeAnswer>,
    ) {
        let Some(&index) = self.by_id.get(&id) else { return tell(done, false) };
        if self.volumes[index].is_ending() || self.io.is_stopping {
            return tell(done, false);
        }
        if !self.resyncs.has(index) {
            self.volumes[index].publish_replica_states();
        }
        let Some(change) = self.begin_change(index, (extent, slot), change) else { return tell(done, false) };
        self.volumes[index].replica_waiters.push(ReplicaWaiter { change, done });
        self.resyncs.add(index);
        self.go_on_with_resync(index);
    }

    /// Begins a change; `None` if it cannot begin now.
    fn begin_change(
        &mut self,
        index: VolumeIndex,
        replica: (u32, usize),
        change: NewChange,
    ) -> Option<AwaitedChange> {
        let volume = &mut self.volumes[index];
        let can_attach = match &change {
            NewChange::Add { journal, .. } => volume.journals.can_attach(replica, *journal),
            NewChange::Rejoin { journal, .. } => {
                volume.journals.can_attach(replica, journal.as_ref().map(|(drive, _)| *drive))
            }
            NewChange::Remove => true,
        };
        let files =
            FileState { has_orphaned_io: volume.operations.has_orphans_of(replica.0, replica.1), can_attach };
        let begun = match &change {
            NewChange::Add { .. } => ReplicaChange::Add,
            NewChange::Remove => ReplicaChange::Remove,
            NewChange::Rejoin { found, .. } => ReplicaChange::Rejoin(found),
        };
        let is_foreign = matches!(begun, ReplicaChange::Rejoin(found)
            if volume.mirror.is_foreign(replica.0, replica.1, found));
        if !volume.mirror.change_replica(replica, begun, files, &mut volume.effects) {
            return None;
        }
        if is_foreign {
            let (volume, (extent, slot)) = (volume.id, replica);
            tracing::warn!(
                %volume, extent, slot,
                "replica metadata is not what was last written there: the replica is resynced in full"
            );
        }
        let awaited = AwaitedChange::new(replica, begun);
        match change {
            NewChange::Add { homes, home, journal } => {
                self.take_added(index, replica, (homes, usize::from(home)), journal);
            }
            NewChange::Remove => {}
            NewChange::Rejoin { journal, .. } => self.take_rejoined(index, replica, journal),
        }
        Some(awaited)
    }

    fn take_added(
        &mut self,
        index: VolumeIndex,
        (extent, slot): (u32, usize),
        (homes, home): (Vec<NewHome>, usize),
        journal: Option<DriveId>,
    ) {
        let home = self.add_new_homes(index, homes)[home];
        let volume = &mut self.volumes[index];
        volume.set_home(extent, slot, home);
        let place = ((extent, slot), volume.files.home_of(slot, extent));
        journal.into_iter().for_each(|drive| volume.journals.attach(place, drive, None));
        volume.set_read_costs_of(extent);
        self.with_journals(index, |journals, desk| journals.forget_elsewhere((extent, slot), desk));
    }

    fn take_rejoined(
        &mut self,
        index: VolumeIndex,
        (extent, slot): (u32, usize),
        journal: Option<(DriveId, OwnedFd)>,
    ) {
        let volume = &mut self.volumes[index];
        let place = ((extent, slot), volume.files.home_of(slot, extent));
        journal.into_iter().for_each(|(drive, file)| volume.journals.attach(place, drive, Some(file)));
        volume.files.set_file(slot, extent, None);
        volume.publish_away(extent);
        let size_bytes = volume.size_bytes;
        self.with_journals(index, |journals, desk| {
            journals.forget_elsewhere((extent, slot), desk);
            journals.resume((extent, slot), desk);
            journals.trim_beyond(size_bytes, desk);
        });
    }

    /// Control has recorded an added replica, so it may count as in sync.
    pub(crate) fn confirm_added(&mut self, id: VolumeId, (extent, slot): (u32, usize)) {
        if let Some(&index) = self.by_id.get(&id) {
            self.volumes[index].mirror.confirm_added(extent, slot);
            self.look_at_replicas_again(index, extent);
            self.carry_out(index);
        }
    }

    /// Sets the cost of reads on the volume's drives, which decides which replicas are read.
    pub(crate) fn set_read_costs(&mut self, id: VolumeId, read_costs: &[(DriveId, u32)]) {
        if let Some(&index) = self.by_id.get(&id) {
            self.volumes[index].take_read_costs(read_costs);
        }
    }

    /// A replica was not added, because no metadata that names it could be written. The waiting caller
    /// learns the reason, and may try again.
    pub(crate) fn addition_refused(&mut self, index: VolumeIndex, (extent, slot): (u32, usize)) {
        if self.volumes[index].journals.knows(extent, slot) {
            self.detach_replica(index, extent, slot);
        }
        let volume = &mut self.volumes[index];
        let reason = volume.reasons.take(extent, slot).unwrap_or_default();
        let is_meant = |waiter: &mut ReplicaWaiter| waiter.change.is_refused_by(extent, slot);
        for waiter in volume.replica_waiters.extract_if(.., is_meant) {
            // They may have stopped waiting.
            let _ = waiter.done.send(Err(reason.clone()));
        }
    }

    /// Answers the callers whose change is made. With `None`, no in-sync replica is left, and all callers
    /// of the extent get a negative answer.
    pub(crate) fn answer_changes(
        &mut self,
        index: VolumeIndex,
        extent: u32,
        replica_states: Option<&ReplicaStates>,
    ) {
        let ServedVolume { replica_waiters, journals, mirror, .. } = &mut self.volumes[index];
        let outcome = |waiter: &ReplicaWaiter| {
            let (_, slot) = waiter.change.replica();
            // A journal may still bring something there, or a request reads it.
            let is_file_needed =
                || journals.is_forgetting(extent, slot) || !mirror.has_answered(extent, slot);
            waiter.change.outcome(extent, replica_states, is_file_needed)
        };
        for waiter in std::mem::take(replica_waiters) {
            match outcome(&waiter) {
                Some(has_come_about) => tell(waiter.done, has_come_about),
                None => replica_waiters.push(waiter),
            }
        }
    }
}
