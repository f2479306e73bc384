//! Journaling: what a volume, its drives and its journals need of each other.

use weir_journal::Kind;
use weir_reactor::Completion;
use weir_types::bounds::BLOCK_BYTES;
use weir_types::{DriveId, VolumeId};
use weir_volume::Action;

use crate::command::NewJournal;
use crate::journals::{Asked, Desk, JournalEffect, LOOK_INTERVAL_NS, VolumeJournals, Wanted};
use crate::memory::scratch_start;
use crate::reactor::Reactor;
use crate::token::{AskNumber, ReplicaIndex, Token, VolumeIndex};

impl Reactor {
    /// Lets the journals of a volume work, and carries out their effects. The caller has to carry out the
    /// volume's effects.
    pub(crate) fn with_journals<R>(
        &mut self,
        index: VolumeIndex,
        work: impl FnOnce(&mut VolumeJournals, &mut Desk<'_>) -> R,
    ) -> R {
        let volume = &mut self.volumes[index];
        let result =
            work(&mut volume.journals, &mut Desk { io: &mut self.io, emulated: &mut volume.emulated });
        for effect in volume.journals.effects() {
            match effect {
                JournalEffect::Answer(completion) => self.later.push_back(completion),
                JournalEffect::Invalidated { extent, slot } => {
                    if volume.mirror.is_there(extent, slot) {
                        volume.mirror.fail_replica(extent, slot, &mut volume.effects);
                    }
                }
                JournalEffect::Wake => {
                    self.journals_wake_ns.get_or_insert(self.io.now_ns + LOOK_INTERVAL_NS);
                }
            }
        }
        result
    }

    /// Adds a journal to a volume.
    pub(crate) fn add_journal(&mut self, index: VolumeIndex, new: NewJournal) {
        let home = usize::from(self.add_new_homes(index, vec![new.home])[0]);
        let volume = &self.volumes[index];
        let (size_bytes, bindings) = (volume.size_bytes, &new.spec.bindings);
        let homes: Vec<_> = bindings
            .iter()
            .map(|((extent, slot), _)| ((*extent, *slot), volume.files.home_of(*slot, *extent)))
            .collect();
        let home_of = |replica| homes.iter().find(|(of, _)| *of == replica).and_then(|(_, home)| *home);
        self.with_journals(index, |journals, desk| {
            journals.add(new.spec, home, home_of, desk);
            // A shrink may have been interrupted before it reached the journal.
            journals.trim_beyond(size_bytes, desk);
            journals.begin_last();
        });
    }

    /// Adds a journal that control has recovered to a volume; true if the volume has the journal now.
    pub(crate) fn add_journal_to(&mut self, volume: VolumeId, new: NewJournal) -> bool {
        let Some(&index) = self.by_id.get(&volume) else { return false };
        if self.volumes[index].is_ending() || self.volumes[index].journals.has_on(new.home.drive) {
            return false;
        }
        self.add_journal(index, new);
        self.carry_out(index);
        true
    }

    /// Removes a volume's journal on a drive. False if replicas are behind the journal or operations are
    /// under way; the caller may ask again.
    pub(crate) fn drop_journal(&mut self, volume: VolumeId, drive: DriveId) -> bool {
        self.by_id.get(&volume).is_none_or(|&index| self.volumes[index].journals.remove(drive))
    }

    /// Invalidates a volume's journal on a drive and all replicas behind it.
    pub(crate) fn give_up_journal(&mut self, volume: VolumeId, drive: DriveId) {
        if let Some(&index) = self.by_id.get(&volume) {
            self.with_journals(index, |journals, desk| journals.give_up(drive, desk));
            self.carry_out(index);
        }
    }

    /// Detaches a removed extent replica; its journal forgets its data.
    pub(crate) fn detach_replica(&mut self, index: VolumeIndex, extent: u32, slot: usize) {
        self.with_journals(index, |journals, desk| journals.detach(extent, slot, desk));
    }

    /// Passes an action on a replica to the replica's journal.
    pub(crate) fn ask_journal(&mut self, replica: ReplicaIndex, number: AskNumber, action: &Action) {
        let ReplicaIndex { volume: index, slot } = replica;
        let binding = action.extent().and_then(|extent| self.volumes[index].journals.binding(extent, slot));
        let binding = binding.expect("it was looked whether the replica is behind a journal");
        if matches!(action, Action::Write { .. } | Action::Zero { .. } | Action::Release { .. }) {
            // First, because the change of draining may decide whether a write bypasses the journal.
            self.with_journals(index, |journals, desk| journals.note_change(binding.journal, desk));
        }
        let volume = &mut self.volumes[index];
        match *action {
            Action::Read { operation, offset, buffer_offset, length, .. } => {
                let target = volume.operations.lend_target(slot, operation, false, &self.io.pool);
                let token = Token::Operation(replica, operation, number);
                let wanted = Wanted { token, offset, length, buffer_offset };
                self.with_journals(index, |journals, desk| journals.read(binding, wanted, target, desk));
            }
            Action::ReadEdge { operation, edge, .. } => {
                let target = volume.operations.lend_target(slot, operation, true, &self.io.pool);
                let scratch = scratch_start(volume.operations.context_and_owner(slot, operation).1.part);
                let token = Token::Edge(replica, operation, number, edge);
                let (offset, length) = (edge.block_offset, BLOCK_BYTES as u32);
                let wanted = Wanted { token, offset, length, buffer_offset: scratch as u32 };
                self.with_journals(index, |journals, desk| journals.read(binding, wanted, target, desk));
            }
            Action::Write { operation, offset, buffer_offset, length, is_durable, .. } => {
                let range = buffer_offset as usize..(buffer_offset + length) as usize;
                let is_needed = volume.journals.needs_checksum(binding, offset, length);
                let checksum =
                    if is_needed { volume.operations.checksum_of(slot, operation, &range) } else { 0 };
                let payload = volume.operations.lend_payload(slot, operation);
                let token = Token::Operation(replica, operation, number);
                let asked = Asked::of_write(token, payload, range);
                let kind = Kind::Write { is_durable, checksum };
                self.with_journals(index, |journals, desk| {
                    journals.change(binding, (offset, length), (asked, kind), desk);
                });
            }
            Action::Release { operation, offset, length, .. }
            | Action::Zero { operation, offset, length, .. } => {
                let is_release = matches!(action, Action::Release { .. });
                let kind = if is_release { Kind::Release } else { Kind::Zero };
                let asked = Asked::of_replica(Token::Operation(replica, operation, number), 0);
                self.with_journals(index, |journals, desk| {
                    journals.change(binding, (offset, length), (asked, kind), desk);
                });
            }
            Action::Sync { extent, generation } => {
                let token = Token::Sync { replica, number, file: (extent, generation) };
                self.with_journals(index, |journals, desk| journals.sync(binding, token, desk));
            }
            _ => unreachable!("it was looked whether it is a journal's work"),
        }
    }

    /// The kernel has ended an operation of a journal. An emulated drive may still hold back the answer.
    pub(crate) fn journal_landed(
        &mut self,
        (volume, journal, flight): (VolumeIndex, usize, u64),
        completion: Completion<Token>,
    ) {
        let due_ns = self.volumes[volume].journals.landed(journal, flight);
        match due_ns > self.io.now_ns && !self.io.is_stopping {
            true => self.held.hold(due_ns, completion),
            false => self.later.push_back(completion),
        }
    }

    /// Returns the result of an operation to a journal.
    pub(crate) fn journal_answered(
        &mut self,
        (index, journal, flight): (VolumeIndex, usize, u64),
        completion: Completion<Token>,
    ) {
        let Completion { result, carried, .. } = completion;
        self.with_journals(index, |journals, desk| {
            journals.answered((journal, flight), result, carried, desk);
        });
        self.carry_out(index);
        self.settle_volume(index);
    }

    /// Empties journals that receive no writes. A replica that is in the way of a full journal fails if
    /// another replica has the data, so that the journal need not wait for ever.
    pub(crate) fn look_at_journals(&mut self) {
        if self.journals_wake_ns.is_none_or(|wake_ns| wake_ns > self.io.now_ns) {
            return;
        }
        self.journals_wake_ns = None;
        let all: Vec<VolumeIndex> = self.volumes.iter().map(|(index, _)| index).collect();
        for index in all {
            let in_the_way = self.with_journals(index, |journals, desk| journals.look(desk));
            let mirror = &self.volumes[index].mirror;
            let served: Vec<_> =
                in_the_way.into_iter().filter(|(extent, slot)| mirror.has_other(*extent, *slot)).collect();
            self.with_journals(index, |journals, _| {
                served.into_iter().for_each(|(extent, slot)| journals.invalidate(extent, slot));
            });
            self.carry_out(index);
        }
    }

    /// Begins no further operation of any journal, because the daemon stops. True if no operation is under
    /// way.
    pub(crate) fn stop_journals(&mut self) -> bool {
        self.volumes.iter_mut().fold(true, |is_quiet, (_, volume)| volume.journals.stop() && is_quiet)
    }
}
