//! Changes of replicas: beginning them for control, and telling control and the parts of the volume when the
//! states of replicas have changed.

use std::sync::mpsc::SyncSender;

use weir_types::ExtentIndex;
use weir_volume::mirror::{AwaitedChange, ReplicaChange, ReplicaState, ReplicaStates};

use super::ServedVolume;
use crate::volumes::replicas::{ChangeAnswer, NewChange, tell};
use crate::volumes::volume_desk::Desk;

impl ServedVolume {
    /// Changes an extent replica.
    pub(super) fn change_replica(
        &mut self,
        replica: (ExtentIndex, usize),
        change: NewChange,
        done: SyncSender<ChangeAnswer>,
        desk: &mut Desk<'_>,
    ) {
        if self.is_ending() || desk.io.is_stopping {
            return tell(done, false);
        }
        if !desk.schedules.resyncs.has(self.index) {
            self.open.status.publish_replicas(&self.mirror);
        }
        let Some(change) = self.begin_change(replica, change, desk) else { return tell(done, false) };
        self.waiters.add(change, done);
        desk.schedules.resyncs.add(self.index);
        self.go_on_with_resync(desk);
    }

    /// Begins a change; `None` if it cannot begin now.
    fn begin_change(
        &mut self,
        replica: (ExtentIndex, usize),
        change: NewChange,
        desk: &mut Desk<'_>,
    ) -> Option<AwaitedChange> {
        let files = self.disk(desk).file_state(replica, &change);
        let begun = match &change {
            NewChange::Add { .. } => ReplicaChange::Add,
            NewChange::Remove => ReplicaChange::Remove,
            NewChange::Rejoin { found, .. } => ReplicaChange::Rejoin(found),
        };
        let is_foreign = matches!(begun, ReplicaChange::Rejoin(found)
            if self.mirror.is_foreign(replica.0, replica.1, found));
        if !self.mirror.change_replica(replica, begun, files, &mut self.effects) {
            return None;
        }
        if is_foreign {
            let (volume, (extent, slot)) = (self.id, replica);
            tracing::warn!(
                %volume, extent = extent.0, slot,
                "replica metadata is not what was last written there: the replica is resynced in full"
            );
        }
        let awaited = AwaitedChange::new(replica, begun);
        let (is_back, size_bytes) = (matches!(change, NewChange::Rejoin { .. }), self.size_bytes);
        self.disk(desk).take_changed(replica, change, size_bytes);
        if is_back {
            self.open.status.publish_away(replica.0, &self.mirror);
        }
        Some(awaited)
    }

    /// Control has recorded an added replica, so it may count as in sync.
    pub(super) fn confirm_added(&mut self, (extent, slot): (ExtentIndex, usize), desk: &mut Desk<'_>) {
        self.mirror.confirm_added(extent, slot);
        self.look_at_replicas_again(extent, desk);
    }

    /// A replica was not added, because no metadata that names it could be written. The waiting caller
    /// learns the reason, and may try again.
    pub(super) fn addition_refused(&mut self, (extent, slot): (ExtentIndex, usize), desk: &mut Desk<'_>) {
        self.disk(desk).detach(extent, slot);
        let reason = self.reasons.take(extent, slot).unwrap_or_default();
        self.waiters.refuse(extent, slot, &reason);
    }

    /// The replica states of an extent have changed durably.
    pub(super) fn states_changed(
        &mut self,
        extent: ExtentIndex,
        replica_states: ReplicaStates,
        desk: &mut Desk<'_>,
    ) {
        let is_absent = |slot: &usize| replica_states[*slot] == ReplicaState::Absent;
        let mut disk = self.disk(desk);
        (0..replica_states.len()).filter(is_absent).for_each(|slot| disk.detach(extent, slot));
        self.resync.look_at(extent);
        self.open.status.set_replica_states_of(extent, replica_states);
        self.open.status.publish_away(extent, &self.mirror);
        if !replica_states.contains(&ReplicaState::Stale) {
            desk.io.alarms.clear_extent(self.id, extent);
        }
        self.answer_changes(extent, Some(&replica_states));
        self.publish_resync();
        self.go_on_with_resync(desk);
    }

    /// Answers the callers whose change is made. Without replica states, no in-sync replica is left, and all
    /// callers of the extent get a negative answer.
    pub fn answer_changes(&mut self, extent: ExtentIndex, replica_states: Option<&ReplicaStates>) {
        let ServedVolume { waiters, journals, mirror, .. } = self;
        // A journal may still destage something there, or a request reads it.
        let is_file_needed =
            |slot| journals.is_forgetting(extent, slot) || !mirror.has_answered(extent, slot);
        waiters.answer(extent, replica_states, is_file_needed);
    }
}
