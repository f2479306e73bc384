//! Failures of replicas: failing those that others can stand in for, and telling an operator.

use weir_engine_interface::Alarm;
use weir_types::ExtentIndex;

use super::ServedVolume;
use crate::volumes::volume_desk::Desk;

impl ServedVolume {
    /// An extent replica has failed. It is not added back before all operations on its file have been
    /// answered.
    pub(super) fn replica_failed(&mut self, slot: usize, extent: ExtentIndex, desk: &mut Desk<'_>) {
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
        desk.io.alarms.raise(Alarm { volume: self.id, drive, extent, message });
        if is_lost {
            self.answer_changes(extent, None);
        }
    }

    /// Fails a replica that control found damaged.
    pub(super) fn fail_replica(&mut self, (extent, slot): (ExtentIndex, usize), reason: &str) {
        if self.mirror.is_there(extent, slot) {
            let first = self.effects.len();
            self.mirror.fail_replica(extent, slot, &mut self.effects);
            self.reasons.note(&self.effects[first..], |_| Some(reason.to_owned()));
        }
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
