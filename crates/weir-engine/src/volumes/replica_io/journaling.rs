//! Journaling: passing a replica's actions to its write journal, and doing what journals ask for.

use weir_journal::Kind;
use weir_types::bounds::BLOCK_BYTES;
use weir_volume::{Action, Fault};

use super::Disk;
use crate::memory::scratch_start;
use crate::token::{AskNumber, ReplicaIndex, Token};
use crate::volumes::journals::{
    Asked, Binding, Desk, JournalEffect, LOOK_INTERVAL_NS, VolumeJournals, Wanted,
};

impl Disk<'_> {
    /// Lets the journals of the volume work, and carries out their effects.
    pub fn with_journals<R>(&mut self, work: impl FnOnce(&mut VolumeJournals, &mut Desk<'_>) -> R) -> R {
        let result = work(self.journals, &mut Desk { io: self.desk.io, emulated: self.emulated });
        for effect in self.journals.effects() {
            match effect {
                JournalEffect::Answer(completion) => self.desk.answers.pass_on_later(completion),
                JournalEffect::Invalidated { extent, slot } => {
                    if self.mirror.is_there(extent, slot) {
                        self.mirror.fail_replica(extent, slot, self.effects);
                    }
                }
                JournalEffect::Wake => {
                    let at_ns = self.desk.io.now_ns + LOOK_INTERVAL_NS;
                    self.desk.schedules.look_at_journals(at_ns);
                }
            }
        }
        result
    }

    /// Passes an action on a replica to the replica's journal. `home` is that of the slow file.
    pub(super) fn ask_journal(
        &mut self,
        (replica, number): (ReplicaIndex, AskNumber),
        home: usize,
        action: &Action,
    ) {
        let binding = action.extent().and_then(|extent| self.journals.binding(extent, replica.slot));
        let binding = binding.expect("it was looked whether the replica is behind a journal");
        if matches!(action, Action::Write { .. } | Action::Zero { .. } | Action::Release { .. }) {
            // First, because the change of draining may decide whether a write bypasses the journal.
            self.with_journals(|journals, desk| journals.note_change(binding.journal, desk));
        }
        match *action {
            Action::Read { .. } | Action::ReadEdge { .. } => {
                self.read_behind((replica, number), binding, action);
            }
            Action::Write { operation, offset, buffer_offset, length, is_durable, .. } => {
                let range = buffer_offset as usize..(buffer_offset + length) as usize;
                let is_needed = self.journals.needs_checksum(binding, offset, length);
                if !is_needed && self.files.homes[home].is_away {
                    // A write that goes through the log is stable there first. One that bypasses it is stable nowhere else.
                    return self.refuse(replica.slot, number, action, Fault::Away);
                }
                let checksum = match is_needed {
                    true => self.operations.checksum_of(replica.slot, operation, &range),
                    false => 0,
                };
                let payload = self.operations.lend_payload(replica.slot, operation);
                let asked = Asked::of_write(Token::Operation(replica, operation, number), payload, range);
                let kind = Kind::Write { is_durable, checksum };
                self.with_journals(|journals, desk| {
                    journals.change(binding, (offset, length), (asked, kind), desk);
                });
            }
            Action::Release { operation, offset, length, .. }
            | Action::Zero { operation, offset, length, .. } => {
                let is_release = matches!(action, Action::Release { .. });
                let kind = if is_release { Kind::Release } else { Kind::Zero };
                let asked = Asked::of_replica(Token::Operation(replica, operation, number), 0);
                self.with_journals(|journals, desk| {
                    journals.change(binding, (offset, length), (asked, kind), desk);
                });
            }
            Action::Sync { extent, generation } => {
                let token = Token::Sync { replica, number, file: (extent, generation) };
                self.with_journals(|journals, desk| journals.sync(binding, token, desk));
            }
            _ => unreachable!("it was looked whether it is a journal's work"),
        }
    }

    /// Reads data that may be partly in the journal and partly in the slow file.
    fn read_behind(
        &mut self,
        (replica, number): (ReplicaIndex, AskNumber),
        binding: Binding,
        action: &Action,
    ) {
        let (slot, pool) = (replica.slot, &self.desk.io.pool);
        let (wanted, target) = match *action {
            Action::Read { operation, offset, buffer_offset, length, .. } => {
                let target = self.operations.lend_target(slot, operation, false, pool);
                let token = Token::Operation(replica, operation, number);
                (Wanted { token, offset, length, buffer_offset }, target)
            }
            Action::ReadEdge { operation, edge, .. } => {
                let target = self.operations.lend_target(slot, operation, true, pool);
                let scratch = scratch_start(self.operations.context_and_owner(slot, operation).1.part);
                let token = Token::Edge(replica, operation, number, edge);
                let (offset, length) = (edge.block_offset, BLOCK_BYTES as u32);
                (Wanted { token, offset, length, buffer_offset: scratch as u32 }, target)
            }
            _ => unreachable!("only reads read"),
        };
        self.with_journals(|journals, desk| journals.read(binding, wanted, target, desk));
    }
}
