//! Commands: carrying out what control tells an open volume to do.

use super::ServedVolume;
use crate::volumes::command::{NewJournal, Reply, VolumeCommand};
use crate::volumes::volume_desk::Desk;
use weir_engine_interface::ScrubEnd;

impl ServedVolume {
    /// Carries out a command. The caller sends the reply once the effects of the volume are carried out.
    pub fn take_command(&mut self, command: VolumeCommand, desk: &mut Desk<'_>) -> Reply {
        match command {
            VolumeCommand::ChangeReplica { replica, change, done } => {
                self.change_replica(replica, change, done, desk);
            }
            VolumeCommand::ConfirmAdded { replica } => self.confirm_added(replica, desk),
            VolumeCommand::AddJournal { journal, done } => {
                return Reply::Whether(done, self.add_journal(*journal, desk));
            }
            VolumeCommand::DropJournal { drive, done } => {
                return Reply::Whether(done, self.journals.remove(drive));
            }
            VolumeCommand::GiveUpJournal { drive } => {
                self.disk(desk).with_journals(|journals, desk| journals.give_up(drive, desk));
            }
            VolumeCommand::SetReadCosts { read_costs, done } => {
                self.disk(desk).take_read_costs(&read_costs);
                return Reply::Done(done);
            }
            VolumeCommand::SetFlushWindow { window, done } => {
                self.flush_window.set(
                    window.map(|window| window.length),
                    &mut self.mirror,
                    &mut self.effects,
                );
                return Reply::Done(done);
            }
            VolumeCommand::Quiesce { done } => return Reply::Whether(done, self.quiesce(desk)),
            VolumeCommand::Snapshot(new) => self.begin_snapshot(*new, desk),
            VolumeCommand::AbandonSnapshot => self.end_snapshot("it was given up", desk),
            VolumeCommand::Scrub { progress, done } => {
                let can_begin = !self.is_ending() && !desk.io.is_stopping;
                let (scrub, mut desk) = self.scrub(desk);
                return Reply::Whether(done, can_begin && scrub.begin(progress, &mut desk));
            }
            VolumeCommand::EndScrub { done } => {
                self.end_scrub(ScrubEnd::Cancelled, desk);
                return Reply::Done(done);
            }
            VolumeCommand::FailReplica { replica, message } => self.fail_replica(replica, &message),
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
