//! Snapshots: carrying out the steps of the snapshots in progress, and their ends.

use crate::helper::Job;
use crate::orphans::OrphanedIo;
use crate::reactor::Reactor;
use crate::snapshot::{NewSnapshot, QUIESCE_NS_MAX, Step, VolumeSnapshot, tell};
use crate::stalls::{LOOK_INTERVAL_NS, NO_ANSWER};
use crate::token::{AskNumber, ReplicaIndex, VolumeIndex};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::SyncSender;
use weir_store::extent_file_name;
use weir_store::snapshot::Target;
use weir_types::VolumeId;
use weir_volume::mirror::Slots;
use weir_volume::mirror::stall::Waiting;

impl Reactor {
    /// Quiesces the writes of a volume for a moment.
    pub(crate) fn quiesce(&mut self, id: VolumeId, done: SyncSender<bool>) {
        let index = self.by_id.get(&id).copied().filter(|index| self.can_be_in_snapshot(*index));
        if let Some(index) = index {
            self.volumes[index].mirror.snapshots().quiesce();
            self.quiesces.insert((self.io.now_ns + QUIESCE_NS_MAX, index));
        }
        // The caller may have stopped waiting. Then the quiesce ends by itself.
        let _ = done.send(index.is_some());
    }

    fn can_be_in_snapshot(&self, index: VolumeIndex) -> bool {
        let volume = &self.volumes[index];
        !volume.is_ending() && !volume.mirror.has_snapshot_in_progress() && !self.io.is_stopping
    }

    /// Resumes volumes whose quiesce has lasted too long.
    pub(crate) fn end_due_quiesces(&mut self) {
        while let Some((_, index)) =
            self.quiesces.first().copied().filter(|(until, _)| *until <= self.io.now_ns)
        {
            self.end_snapshot(index, "changes were held for too long");
        }
    }

    pub(crate) fn begin_snapshot(&mut self, new: NewSnapshot) {
        let NewSnapshot { spec, is_quiesced, done } = new;
        let index = self.by_id.get(&spec.volume).copied();
        let was_held = index.is_some_and(|index| self.forget_quiesce(index));
        let can_begin =
            |index: &VolumeIndex| was_held == is_quiesced && (is_quiesced || self.can_be_in_snapshot(*index));
        let Some(index) = index.filter(can_begin) else {
            return tell(&done, Err("it could not be brought to the same instant".to_owned()));
        };
        let volume = &mut self.volumes[index];
        if let Err(error) = volume.mirror.snapshots().begin(&mut volume.effects) {
            tell(&done, Err(error.to_string()));
        } else {
            volume.snapshot = Some(VolumeSnapshot { spec, done, step: Step::default(), fault: None });
            self.snapshot_look_ns.get_or_insert(self.io.now_ns + LOOK_INTERVAL_NS);
        }
        self.carry_out(index);
    }

    fn forget_quiesce(&mut self, index: VolumeIndex) -> bool {
        let count = self.quiesces.len();
        self.quiesces.retain(|(_, held)| *held != index);
        self.quiesces.len() < count
    }

    /// Submits a range of an extent to the helper threads of its drives.
    pub(crate) fn snapshot(
        &mut self,
        index: VolumeIndex,
        extent: u32,
        slots: Slots,
        (offset, length): (u32, u32),
    ) {
        let now_ns = self.io.now_ns;
        let volume = &mut self.volumes[index];
        let mut step = Step { extent, end: offset + length, ..Step::default() };
        let snapshot = volume.snapshot.take().expect("the mirror has ranges for a snapshot in progress");
        for slot in slots.iter() {
            let home = volume.files.home_of(slot, extent).expect("the mirror knows only replicas that exist");
            let drive = volume.files.homes[home].drive;
            // A journal holds data that the extent file lacks. The snapshot does not read the journal,
            // because other replicas have all of the data in one file.
            let is_journaled = volume.journals.binding(extent, slot).is_some();
            let target = snapshot.spec.targets.get(&drive).filter(|_| !is_journaled);
            let Some(Target { folder, can_share }) = target else {
                step.failed.insert(slot);
                continue;
            };
            let (source, target) =
                (volume.files.extent_path(slot, extent), folder.join(extent_file_name(extent.into())));
            let (replica, number) = (ReplicaIndex { volume: index, slot }, volume.operations.next_number());
            step.waiting.insert(slot, (number, now_ns));
            volume.operations.begin();
            let (range, can_share) = ((offset, length), *can_share);
            self.io.helper.submit(Job::Snapshot { replica, number, drive, source, target, range, can_share });
        }
        volume.snapshot = Some(VolumeSnapshot { step, ..snapshot });
        self.go_on_with_step(index);
    }

    /// Handles the answer of a drive for a range of an extent.
    pub(crate) fn snapshot_answered(
        &mut self,
        replica: ReplicaIndex,
        number: AskNumber,
        result: Result<u32, String>,
    ) {
        let volume = &mut self.volumes[replica.volume];
        let snapshot = volume.snapshot.as_mut();
        let is_asked = |snapshot: &&mut VolumeSnapshot| {
            snapshot.step.waiting.get(&replica.slot).is_some_and(|(asked, _)| *asked == number)
        };
        if let Some(VolumeSnapshot { step, fault, .. }) = snapshot.filter(is_asked) {
            step.waiting.remove(&replica.slot);
            volume.operations.end();
            match result {
                Ok(end) => step.end = step.end.min(end),
                Err(message) => {
                    tracing::warn!(volume = %volume.id, extent = step.extent, "{message}");
                    step.failed.insert(replica.slot);
                    *fault = Some(message);
                }
            }
            self.go_on_with_step(replica.volume);
        } else if !self.is_orphaned(replica, number) {
            self.volumes[replica.volume].operations.end();
        }
        self.settle_volume(replica.volume);
    }

    fn go_on_with_step(&mut self, index: VolumeIndex) {
        let volume = &mut self.volumes[index];
        let Some(VolumeSnapshot { step, spec, .. }) = &volume.snapshot else { return };
        if step.waiting.is_empty() {
            let (end, failed, progress) = (step.end, step.failed, Arc::clone(&spec.progress));
            volume.mirror.snapshots().step_done(end, failed, &mut volume.effects);
            progress.bytes_left.store(volume.mirror.snapshot_bytes_left(), Relaxed);
            self.carry_out(index);
        }
    }

    /// Gives up on drives whose answer is overdue, and asks them nothing more for this snapshot.
    pub(crate) fn look_at_snapshots(&mut self) {
        if self.snapshot_look_ns.is_none_or(|look_ns| look_ns > self.io.now_ns) {
            return;
        }
        let in_snapshot = self.volumes.iter().filter(|(_, volume)| volume.snapshot.is_some());
        let in_snapshot: Vec<VolumeIndex> = in_snapshot.map(|(index, _)| index).collect();
        self.snapshot_look_ns = (!in_snapshot.is_empty()).then_some(self.io.now_ns + LOOK_INTERVAL_NS);
        in_snapshot.into_iter().for_each(|index| self.give_up_late(index));
    }

    fn give_up_late(&mut self, index: VolumeIndex) {
        let now_ns = self.io.now_ns;
        let volume = &mut self.volumes[index];
        let Some(mut snapshot) = volume.snapshot.take() else { return };
        let VolumeSnapshot { step, fault, spec, .. } = &mut snapshot;
        let is_late =
            |_: &usize, (_, since_ns): &mut (AskNumber, u64)| Waiting::Asked(*since_ns).is_late(now_ns);
        let late: Vec<_> = step.waiting.extract_if(.., is_late).collect();
        for (slot, (number, _)) in &late {
            step.failed.insert(*slot);
            volume.operations.orphan(
                *slot,
                *number,
                OrphanedIo { extent: step.extent, queued: None, space: None },
            );
            let home = volume.files.home_of(*slot, step.extent).map(|home| volume.files.homes[home].drive);
            home.into_iter().for_each(|drive| _ = spec.targets.remove(&drive));
            *fault = Some(NO_ANSWER.to_owned());
        }
        volume.snapshot = Some(snapshot);
        if !late.is_empty() {
            self.go_on_with_step(index);
            self.settle_volume(index);
        }
    }

    /// Handles the end of a snapshot.
    pub(crate) fn snapshot_ended(&mut self, index: VolumeIndex, replicas: Option<Vec<Slots>>) {
        let Some(VolumeSnapshot { done, fault, .. }) = self.volumes[index].snapshot.take() else { return };
        let fault = || fault.unwrap_or_else(|| "no replica of an extent is left".to_owned());
        tell(&done, replicas.ok_or_else(fault));
    }

    /// Abandons the snapshot in progress or the quiesce of a volume, if there is one.
    pub(crate) fn end_snapshot(&mut self, index: VolumeIndex, why: &str) {
        self.forget_quiesce(index);
        let volume = &mut self.volumes[index];
        if !volume.mirror.has_snapshot_in_progress() {
            return;
        }
        if let Some(snapshot) = &mut volume.snapshot {
            snapshot.fault = Some(why.to_owned());
        }
        volume.mirror.snapshots().abandon(&mut volume.effects);
        self.carry_out(index);
    }

    pub(crate) fn abandon_snapshot(&mut self, id: VolumeId) {
        if let Some(index) = self.by_id.get(&id).copied() {
            self.end_snapshot(index, "it was given up");
        }
    }

    /// Abandons all snapshots, because the daemon stops.
    pub(crate) fn end_snapshots(&mut self) {
        let all: Vec<VolumeIndex> = self.volumes.iter().map(|(index, _)| index).collect();
        all.into_iter().for_each(|index| self.end_snapshot(index, "the daemon stops"));
    }
}
