//! Records: what goes into the next record, when its entries take effect, and when they are stable. The
//! module knows nothing of slow files.

use weir_types::bounds::{BLOCK_BYTES, JOURNAL_RECORD_ENTRIES_MAX};

use super::Journal;
use crate::Block;
use crate::action::{Action, Fault, FileId, Kind, Request, Span, Ticket};
use crate::files::FileState;
use crate::index::Data;
use crate::record::{self, Entry, EntryKind, Header};

/// The record that is being written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flying {
    sequence: u64,
    position: u32,
    /// Blocks of the record, with its header.
    blocks: u32,
    is_durable: bool,
}

impl Journal {
    /// Begins a record with as many waiting requests as fit.
    pub(super) fn write_record(&mut self, actions: &mut Vec<Action>) {
        if self.flying.is_some() {
            return;
        }
        if self.waiting.is_empty() && !self.forgets.wants_record() {
            self.is_starved = false;
            return;
        }
        let blocks_max = self.geometry.record_blocks_max();
        if self.unstable_blocks + blocks_max > self.geometry.unstable_blocks_max() {
            // The journal requested a sync at half this amount; the end of that sync resumes here.
            return;
        }
        let Some(blocks) = self.gather(blocks_max) else {
            self.is_starved = true;
            return;
        };
        self.is_starved = false;
        let entries = self.forgets.flying().len() + self.flying_requests.len();
        self.allowance.took(blocks.max(entries as u32));
        self.work.records += 1;
        self.work.changes += self.flying_requests.len() as u64;
        let (sequence, position) = (self.log.next(), self.log.head());
        let forgotten = |file: &FileId| Span { file: *file, block: 0, blocks: 0 };
        let spans = self.forgets.flying().iter().map(forgotten);
        self.log.push(blocks, spans.chain(self.flying_requests.iter().map(Request::span)));
        // A record that is durable by itself helps only if every record before it is stable.
        let is_durable = self.stable + 1 == sequence && self.flying_requests.iter().any(Request::is_durable);
        self.flying = Some(Flying { sequence, position, blocks, is_durable });
        actions.push(Action::WriteRecord {
            position_bytes: self.geometry.position_bytes(position),
            length: blocks * BLOCK_BYTES as u32,
            is_durable,
        });
    }

    /// Moves waiting requests into the next record. Returns the number of its blocks, or `None` if nothing
    /// fits.
    fn gather(&mut self, blocks_max: u32) -> Option<u32> {
        let entries_max = self.log.entries_left().min(JOURNAL_RECORD_ENTRIES_MAX);
        let mut blocks = 1;
        if !self.log.fits(blocks) {
            return None;
        }
        // Forgets come first, because they free space.
        let forgets = self.forgets.fly(entries_max);
        let allowed = self.allowance.left(self.log.fullness_per_mille());
        let (blocks_max, entries_max) = (blocks_max.min(allowed), entries_max.min(allowed as usize));
        while forgets + self.flying_requests.len() < entries_max {
            let Some(request) = self.waiting.front() else { break };
            let grown = blocks + request.payload_blocks();
            if grown > blocks_max || !self.log.fits(grown) {
                break;
            }
            blocks = grown;
            self.flying_requests.extend(self.waiting.pop_front());
        }
        (forgets + self.flying_requests.len() > 0).then_some(blocks)
    }

    /// Encodes the header of the record that is being written.
    pub fn encode_record(&self, block: &mut Block) {
        let flying = self.flying.expect("a record is asked for while it is to be written");
        let header = Header {
            journal: self.superblock.journal,
            position: flying.position,
            sequence: flying.sequence,
            stable: self.stable,
            life: self.superblock.life,
            generation: self.destage.durable_generation(),
        };
        let forget = |file: &FileId| Entry {
            file: self.files.get(*file).key,
            offset: 0,
            length: 0,
            kind: EntryKind::Forget,
        };
        let change = |request: &Request| Entry {
            file: self.files.get(request.file).key,
            offset: request.offset,
            length: request.length,
            kind: match request.kind {
                Kind::Write { checksum, .. } => EntryKind::Write { checksum },
                Kind::Zero => EntryKind::Zero,
                Kind::Release => EntryKind::Release,
            },
        };
        let entries = self.forgets.flying().iter().map(forget).chain(self.flying_requests.iter().map(change));
        record::encode(&header, entries, block);
    }

    /// Returns the tickets whose payload follows the header, in order, with the length of each in bytes.
    pub fn record_payloads(&self) -> impl Iterator<Item = (Ticket, u32)> + '_ {
        let writes = self.flying_requests.iter().filter(|request| request.payload_blocks() > 0);
        writes.map(|request| (request.ticket, request.length))
    }

    /// Completes the record that was written.
    pub(super) fn complete_record(&mut self, flying: Flying, actions: &mut Vec<Action>) {
        self.applied = flying.sequence;
        if self.forgets.recorded(flying.sequence, &mut self.files) {
            self.wanted = flying.sequence;
        }
        self.apply(flying, actions);
        self.unstable_blocks += self.log.blocks_between(flying.sequence - 1, flying.sequence);
        if flying.is_durable {
            self.became_stable(flying.sequence, actions);
        }
        if self.unstable_blocks > self.geometry.unstable_blocks() {
            self.wanted = self.applied;
        }
    }

    /// Makes the entries of a record take effect: the record is complete, and reads see it.
    fn apply(&mut self, flying: Flying, actions: &mut Vec<Action>) {
        let mut payload = flying.position + 1;
        let mut requests = std::mem::take(&mut self.flying_requests);
        for request in requests.drain(..) {
            let data = match request.kind {
                Kind::Write { .. } => Data::At(payload),
                Kind::Zero => Data::Zero,
                Kind::Release => Data::Release,
            };
            payload += request.payload_blocks();
            let file = self.files.get_mut(request.file);
            file.last_sequence = flying.sequence;
            if file.state() != FileState::Open {
                actions.push(Action::Done { ticket: request.ticket, result: Err(Fault::File) });
                continue;
            }
            self.index.insert(request.span(), data, flying.sequence);
            if request.is_durable() {
                self.wanted = flying.sequence;
                self.durable.push_back((flying.sequence, request.ticket));
            } else {
                actions.push(Action::Done { ticket: request.ticket, result: Ok(()) });
            }
        }
        self.flying_requests = requests;
        debug_assert!(payload <= flying.position + flying.blocks, "payload lies within its record");
    }

    /// Begins a sync of the journal if a request waits for one and the sync would help now.
    pub(super) fn sync_journal(&mut self, actions: &mut Vec<Action>) {
        if self.syncing.is_none() && self.wanted.min(self.applied) > self.stable {
            self.syncing = Some(self.applied);
            actions.push(Action::SyncJournal);
        }
    }

    /// Acknowledges the durable writes up to a record that has become stable.
    pub(super) fn became_stable(&mut self, sequence: u64, actions: &mut Vec<Action>) {
        if sequence <= self.stable {
            return;
        }
        self.unstable_blocks -= self.log.blocks_between(self.stable, sequence);
        self.stable = sequence;
        while let Some((_, ticket)) = self.durable.pop_front_if(|(sequence, _)| *sequence <= self.stable) {
            actions.push(Action::Done { ticket, result: Ok(()) });
        }
    }
}
