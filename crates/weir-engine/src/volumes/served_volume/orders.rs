//! Orders: what control orders of a volume that is open.

use super::ServedVolume;
use crate::volumes::order::{NewJournal, Reply, VolumeOrder};
use crate::volumes::volume_desk::Desk;
use weir_engine_interface::ScrubEnd;

impl ServedVolume {
    /// Carries out an order. The caller sends the reply once the effects of the volume are carried out.
    pub fn take_order(&mut self, order: VolumeOrder, desk: &mut Desk<'_>) -> Reply {
        match order {
            VolumeOrder::ChangeReplica { replica, change, done } => {
                self.change_replica(replica, change, done, desk);
            }
            VolumeOrder::ConfirmAdded { replica } => self.confirm_added(replica, desk),
            VolumeOrder::AddJournal { journal, done } => {
                return Reply::Whether(done, self.add_journal(*journal, desk));
            }
            VolumeOrder::DropJournal { drive, done } => {
                return Reply::Whether(done, self.journals.remove(drive));
            }
            VolumeOrder::GiveUpJournal { drive } => {
                self.disk(desk).with_journals(|journals, desk| journals.give_up(drive, desk));
            }
            VolumeOrder::SetReadCosts { read_costs, done } => {
                self.disk(desk).take_read_costs(&read_costs);
                return Reply::Done(done);
            }
            VolumeOrder::Quiesce { done } => return Reply::Whether(done, self.quiesce(desk)),
            VolumeOrder::Snapshot(new) => self.begin_snapshot(*new, desk),
            VolumeOrder::AbandonSnapshot => self.end_snapshot("it was given up", desk),
            VolumeOrder::Scrub { progress, done } => {
                let can_begin = !self.is_ending() && !desk.io.is_stopping;
                let (scrub, mut desk) = self.scrub(desk);
                return Reply::Whether(done, can_begin && scrub.begin(progress, &mut desk));
            }
            VolumeOrder::EndScrub { done } => {
                self.end_scrub(ScrubEnd::Cancelled, desk);
                return Reply::Done(done);
            }
            VolumeOrder::FailReplica { replica, message } => self.fail_replica(replica, &message),
        }
        Reply::Nothing
    }

    /// Adds a journal that control has recovered. True if the volume has the journal now.
    fn add_journal(&mut self, new: NewJournal, desk: &mut Desk<'_>) -> bool {
        if self.is_ending() || self.journals.has_on(new.home.drive) {
            return false;
        }
        let size_bytes = self.size_bytes;
        self.disk(desk).add_journal(new, size_bytes);
        true
    }

    /// Ends the scrub, if there is one.
    pub fn end_scrub(&mut self, end: ScrubEnd, desk: &mut Desk<'_>) {
        let (scrub, mut desk) = self.scrub(desk);
        scrub.end(end, &mut desk);
    }
}
