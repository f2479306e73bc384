//! Snapshots: commands about snapshots of the volume, and the answers of drives.

use super::ServedVolume;
use crate::token::AskNumber;
use crate::volumes::orphans::Orphan;
use crate::volumes::snapshot::NewSnapshot;
use crate::volumes::volume_desk::Desk;

impl ServedVolume {
    /// Quiesces the writes of the volume for a moment. False if no snapshot can be taken now.
    pub(super) fn quiesce(&mut self, desk: &mut Desk<'_>) -> bool {
        let can_begin = self.can_be_in_snapshot(desk);
        if can_begin {
            self.mirror.snapshots().quiesce();
            desk.schedules.snapshot_times.quiesce(self.index, desk.io.now_ns);
        }
        can_begin
    }

    fn can_be_in_snapshot(&self, desk: &Desk<'_>) -> bool {
        !self.is_ending() && !self.mirror.is_busy_with_snapshot() && !desk.io.is_stopping
    }

    pub(super) fn begin_snapshot(&mut self, new: NewSnapshot, desk: &mut Desk<'_>) {
        let was_quiesced = desk.schedules.snapshot_times.forget_quiesce(self.index);
        if was_quiesced != new.is_quiesced || !was_quiesced && !self.can_be_in_snapshot(desk) {
            return new.refuse();
        }
        let NewSnapshot { spec, done, .. } = new;
        let (snapshot, mut snapshot_desk) = self.snapshot(desk.io);
        if snapshot.begin(spec, done, &mut snapshot_desk) {
            desk.schedules.snapshot_times.begun(desk.io.now_ns);
        }
    }

    /// Takes the answer of a drive for a range of an extent.
    pub fn snapshot_answered(
        &mut self,
        (slot, number): (usize, AskNumber),
        result: Result<u32, String>,
        desk: &mut Desk<'_>,
    ) {
        self.end_snapshot_read((slot, number), desk);
        let (snapshot, mut snapshot_desk) = self.snapshot(desk.io);
        let is_expected = snapshot.answered(slot, number, result, &mut snapshot_desk);
        if !is_expected && matches!(self.disk(desk).end_orphan(slot, number), Orphan::Unknown) {
            self.operations.end();
        }
    }

    /// Gives up on drives whose answer to the snapshot is overdue.
    pub fn give_up_late_snapshot(&mut self, desk: &mut Desk<'_>) {
        desk.schedules.snapshot_times.begun(desk.io.now_ns);
        let (snapshot, mut snapshot_desk) = self.snapshot(desk.io);
        let late = snapshot.give_up_late(&mut snapshot_desk);
        // A journal must not wait for a drive that hangs.
        late.into_iter().for_each(|read| self.end_snapshot_read(read, desk));
    }

    fn end_snapshot_read(&mut self, (slot, number): (usize, AskNumber), desk: &mut Desk<'_>) {
        let mut disk = self.disk(desk);
        disk.with_journals(|journals, desk| {
            if let Some((journal, actions)) = journals.snapshot_reads().end(slot, number) {
                journals.carry_out(journal, actions, desk);
            }
        });
    }

    /// Abandons the snapshot in progress or the quiesce, if there is one.
    pub fn end_snapshot(&mut self, why: &str, desk: &mut Desk<'_>) {
        desk.schedules.snapshot_times.forget_quiesce(self.index);
        let (snapshot, mut snapshot_desk) = self.snapshot(desk.io);
        snapshot.abandon(why, &mut snapshot_desk);
    }
}
