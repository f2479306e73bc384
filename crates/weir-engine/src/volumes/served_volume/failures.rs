//! Failures of replicas: failing those that do not answer or that others can stand in for, and telling an
//! operator.

use weir_engine_interface::Alarm;
use weir_volume::mirror::stall::STALL_NS;

use super::ServedVolume;
use crate::volumes::stalls::NO_ANSWER;
use crate::volumes::volume_desk::Desk;

impl ServedVolume {
    /// An extent replica has failed. It is not added back before all operations on its file have been
    /// answered.
    pub(super) fn replica_failed(&mut self, slot: usize, extent: u32, desk: &mut Desk<'_>) {
        self.operations.give_up_asked(slot, extent);
        if self.mirror.has_other(extent, slot) {
            self.disk(desk).with_journals(|journals, desk| journals.suspend((extent, slot), desk));
        }
        let reason = self.reasons.take(extent, slot).or_else(|| self.journals.fault_of(extent, slot));
        let reason = reason.unwrap_or_else(|| "ends early: its file was shortened".to_owned());
        let (path, is_lost) = (self.files.extent_path(slot, extent), self.mirror.is_lost(extent));
        let message = match is_lost {
            true => reason,
            false => format!("has a replica that {reason}: {}; another one serves", path.display()),
        };
        self.open.status.publish_away(extent, &self.mirror);
        if self.disk(desk).is_away(slot, extent) && !is_lost {
            // The missing drive has raised an alarm already.
            return;
        }
        let home = self.journals.home_or(extent, slot, self.files.home_of(slot, extent));
        let drive = home.map(|home| self.files.homes[home].drive);
        desk.io.alarms.raise(Alarm { volume: self.id, drive, extent: extent.into(), message });
        if is_lost {
            self.answer_changes(extent, None);
        }
    }

    /// Fails a replica that control found damaged.
    pub(super) fn fail_replica(&mut self, (extent, slot): (u32, usize), reason: &str) {
        if self.mirror.is_there(extent, slot) {
            let first = self.effects.len();
            self.mirror.fail_replica(extent, slot, &mut self.effects);
            self.reasons.note(&self.effects[first..], |_| Some(reason.to_owned()));
        }
    }

    /// Replicas of extents that owe an answer for too long, as pairs of slot and extent.
    pub fn stalled(&self, now_ns: u64) -> Vec<(usize, u32)> {
        let before_ns = now_ns.saturating_sub(STALL_NS);
        let silent: Vec<bool> =
            self.files.homes.iter().map(|home| home.queue.shared().is_silent_since(before_ns)).collect();
        self.operations.stalled(now_ns, |home| silent[home])
    }

    /// Fails a replica that owes an answer for too long, if another one can do without it.
    pub fn give_up_late(&mut self, (slot, extent): (usize, u32), desk: &mut Desk<'_>) {
        if !self.mirror.is_failed_when_late(extent, slot) {
            return;
        }
        let operations = self.operations.give_up(slot, extent, &desk.io.pool);
        let first = self.effects.len();
        self.mirror.give_up_replica((extent, slot), &operations, &mut self.effects);
        self.reasons.note(&self.effects[first..], |_| Some(NO_ANSWER.to_owned()));
    }

    /// Gives up writes of replica metadata whose answers are overdue and that can do without them.
    pub fn give_up_late_metadata(&mut self, now_ns: u64) {
        self.metadata.give_up_stalled(now_ns.saturating_sub(STALL_NS), &self.mirror);
    }

    /// Marks a drive of the volume as away, or as back with its data. Replicas on a drive that is away fail if
    /// other replicas serve.
    pub fn set_away(&mut self, home: usize, is_away: bool, desk: &mut Desk<'_>) {
        self.files.homes[home].is_away = is_away;
        if !is_away && desk.schedules.resyncs.has(self.index) {
            desk.schedules.resyncs.wake_at(desk.io.now_ns);
        }
        if is_away && self.mirror.has_replicas() {
            let replicas = self.disk(desk).replicas_relying_on(home);
            self.mirror.leave_to_others(replicas, &mut self.effects);
        }
    }
}
