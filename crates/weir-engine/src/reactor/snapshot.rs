//! Snapshots: what volumes and their snapshots need of each other, and orders of control.

use std::sync::mpsc::SyncSender;

use weir_types::VolumeId;

use crate::reactor::Reactor;
use crate::snapshot::{Desk, NewSnapshot, VolumeSnapshot, tell};
use crate::token::{AskNumber, ReplicaIndex, VolumeIndex};

impl Reactor {
    /// Lets the snapshot of a volume work, and carries out its effects.
    fn with_snapshot<R>(
        &mut self,
        index: VolumeIndex,
        work: impl FnOnce(&mut VolumeSnapshot, &mut Desk<'_>) -> R,
    ) -> R {
        let (snapshot, mut desk) = self.volumes[index].snapshot(&mut self.io);
        let result = work(snapshot, &mut desk);
        self.carry_out(index);
        result
    }

    /// Quiesces the writes of a volume for a moment.
    pub(crate) fn quiesce(&mut self, id: VolumeId, done: SyncSender<bool>) {
        let index = self.by_id.get(&id).copied().filter(|index| self.can_be_in_snapshot(*index));
        if let Some(index) = index {
            self.volumes[index].mirror.snapshots().quiesce();
            self.snapshot_times.quiesce(index, self.io.now_ns);
        }
        // The caller may have stopped waiting. Then the quiesce ends by itself.
        let _ = done.send(index.is_some());
    }

    fn can_be_in_snapshot(&self, index: VolumeIndex) -> bool {
        let volume = &self.volumes[index];
        !volume.is_ending() && !volume.mirror.has_snapshot_in_progress() && !self.io.is_stopping
    }

    pub(crate) fn begin_snapshot(&mut self, new: NewSnapshot) {
        let NewSnapshot { spec, is_quiesced, done } = new;
        let index = self.by_id.get(&spec.volume).copied();
        let was_held = index.is_some_and(|index| self.snapshot_times.forget_quiesce(index));
        let can_begin =
            |index: &VolumeIndex| was_held == is_quiesced && (is_quiesced || self.can_be_in_snapshot(*index));
        let Some(index) = index.filter(can_begin) else {
            return tell(&done, Err("it could not be brought to the same instant".to_owned()));
        };
        let (snapshot, mut desk) = self.volumes[index].snapshot(&mut self.io);
        if snapshot.begin(spec, done, &mut desk) {
            self.snapshot_times.begun(self.io.now_ns);
        }
        self.carry_out(index);
    }

    /// Handles the answer of a drive for a range of an extent.
    pub(crate) fn snapshot_answered(
        &mut self,
        replica: ReplicaIndex,
        number: AskNumber,
        result: Result<u32, String>,
    ) {
        let ReplicaIndex { volume: index, slot } = replica;
        let is_expected =
            self.with_snapshot(index, |snapshot, desk| snapshot.answered(slot, number, result, desk));
        if !is_expected && !self.is_orphaned(replica, number) {
            self.volumes[index].operations.end();
        }
        self.settle_volume(index);
    }

    /// Resumes volumes whose quiesce has lasted too long, and gives up on drives that do not answer to
    /// snapshots.
    pub(crate) fn look_at_snapshots(&mut self) {
        while let Some(index) = self.snapshot_times.due_quiesce(self.io.now_ns) {
            self.end_snapshot(index, "changes were held for too long");
        }
        if !self.snapshot_times.take_look(self.io.now_ns) {
            return;
        }
        let in_snapshot = self.volumes.iter().filter(|(_, volume)| volume.snapshot.is_any());
        for index in in_snapshot.map(|(index, _)| index).collect::<Vec<VolumeIndex>>() {
            self.snapshot_times.begun(self.io.now_ns);
            if self.with_snapshot(index, |snapshot, desk| snapshot.give_up_late(desk)) {
                self.settle_volume(index);
            }
        }
    }

    /// Abandons the snapshot in progress or the quiesce of a volume, if there is one.
    pub(crate) fn end_snapshot(&mut self, index: VolumeIndex, why: &str) {
        self.snapshot_times.forget_quiesce(index);
        self.with_snapshot(index, |snapshot, desk| snapshot.abandon(why, desk));
    }
}
