//! Journal actions: carrying out a journal's actions on its log and on slow files, and returning the
//! results to it.
//!
//! An operation larger than a buffer is carried out in parts, and ends when all parts have ended. An
//! emulated drive's answer is held back until its model would have answered.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;

use weir_journal::{
    Action, Block, DestageContent, DestageFault, DestageId, FileId, SlowFault, Source, Ticket,
};
use weir_reactor::{Buffer, BufferPool, Carried, Descriptor, FallocateMode, Payload, Unfilled};
use weir_types::ExtentIndex;
use weir_types::bounds::{BLOCK_BYTES, PIECE_BYTES};

use super::desk::Desk;
use super::faults::{as_fault, whole};
use super::flights::{Fetching, Flight, Slow, Work, slow_due};
use super::{Parts, VolumeJournal, VolumeJournals};
use crate::emulation::Site;
use crate::memory::fresh;
use crate::token::Token;

/// Size in bytes from which a payload is written to the journal directly from its buffer. Moving it to a
/// common buffer would cost more than another operation.
const SHARED_BYTES_MIN: usize = 16 << 10;

impl VolumeJournals {
    /// Carries out a journal's actions and their consequences.
    pub fn carry_out(&mut self, journal_index: usize, mut actions: Vec<Action>, desk: &mut Desk<'_>) {
        while !actions.is_empty() {
            for action in std::mem::take(&mut actions) {
                if !self.all.at(journal_index).is_stopped {
                    self.take_action(journal_index, action, desk);
                }
            }
            let journal = self.all.at_mut(journal_index);
            if !journal.unasked.is_empty() {
                journal.ask_again(&mut actions);
            }
        }
    }

    fn take_action(&mut self, journal_index: usize, action: Action, desk: &mut Desk<'_>) {
        match action {
            Action::WriteRecord { position_bytes, is_durable, .. } => {
                self.all.at_mut(journal_index).write_record(position_bytes, is_durable, desk);
            }
            Action::SyncJournal => self.all.at_mut(journal_index).sync_journal_file(desk),
            Action::WriteSuperblock { position_bytes } => {
                self.all.at_mut(journal_index).write_superblock(position_bytes, desk)
            }
            Action::Destage { file, .. } | Action::SyncSlow { file }
                if self.all.at(journal_index).files[&file].descriptor.is_none() =>
            {
                self.park(journal_index, file, action, desk);
            }
            Action::Destage { operation, file, offset, length, content } => {
                self.all.at_mut(journal_index).destage((operation, file), (offset, length), content, desk);
            }
            Action::SyncSlow { file } => self.all.at_mut(journal_index).sync_slow_file(file, desk),
            Action::PassBy { ticket, file, offset, length, is_durable } => {
                self.all.at_mut(journal_index).pass_by((ticket, file), (offset, length), is_durable, desk);
            }
            Action::Done { ticket, result } => self.journal_done(journal_index, ticket, result, desk),
            Action::Forgotten { file } => self.forgotten(journal_index, file),
            Action::FileFailed { file } => self.file_failed(journal_index, file),
            Action::JournalFailed => self.journal_failed(journal_index),
        }
    }

    /// Defers an action on a slow file that is not open yet. If the file is being forgotten, the action is
    /// refused.
    fn park(&mut self, journal_index: usize, file: FileId, action: Action, desk: &mut Desk<'_>) {
        let journal = self.all.at_mut(journal_index);
        let slow = journal.files.get_mut(&file).expect("a journal acts on files that it knows");
        slow.parked.push(action);
        if slow.is_forgetting {
            self.refuse_parked(journal_index, file, desk);
        }
    }

    /// When an emulated drive answers an operation that the kernel has ended, in nanoseconds; 0 for other
    /// drives.
    pub fn landed(&self, journal_index: usize, flight: u64) -> u64 {
        self.all.at(journal_index).flights.get(&flight).expect("a flight lands once").due_ns
    }

    /// Returns the result of an operation to a journal.
    pub fn answered(
        &mut self,
        (journal_index, flight): (usize, u64),
        result: io::Result<u32>,
        carried: Carried,
        desk: &mut Desk<'_>,
    ) {
        let journal = self.all.at_mut(journal_index);
        let Flight { work, .. } = journal.flights.remove(&flight).expect("a flight is answered once");
        let mut actions = Vec::new();
        if let Err(error) = &result {
            tracing::warn!(drive = %journal.drive, %error, "an operation of a write journal failed");
        }
        match work {
            Work::Record(length) => {
                let ended = journal.record.end_one(whole(result, length).map_err(drop));
                ended.into_iter().for_each(|result| journal.core.record_written(result, &mut actions));
            }
            Work::SyncJournal => journal.core.journal_synced(result.map(drop), &mut actions),
            Work::Superblock => {
                journal.core.superblock_written(whole(result, BLOCK_BYTES as u32), &mut actions);
            }
            Work::Fetch(fetching) => return self.fetched(journal_index, fetching, result, carried, desk),
            Work::Destage(operation, _, length) => {
                let result = length
                    .map_or(result.as_ref().map(drop).map_err(as_fault), |length| whole(result, length));
                journal.end_part(operation, result.map_err(DestageFault::Slow), &mut actions);
            }
            Work::PassBy(ticket, _, length) => {
                // A write that failed as a whole was answered already.
                if let Some(asked) = journal.asked.get_mut(&ticket) {
                    asked.payload = carried.into_payload();
                }
                journal.core.passed_by(ticket, whole(result, length), &mut actions);
            }
            Work::SyncSlow(file) => journal.core.slow_synced(file, result.map(drop), &mut actions),
            Work::Read(gathering) => return self.gathered(journal_index, gathering, result, carried, desk),
        }
        self.end_flight(journal_index, actions, desk);
    }

    /// Carries out the consequences of an ended operation.
    pub fn end_flight(&mut self, journal_index: usize, actions: Vec<Action>, desk: &mut Desk<'_>) {
        self.all.at_mut(journal_index).remove_forgotten();
        self.carry_out(journal_index, actions, desk);
    }

    fn fetched(
        &mut self,
        journal_index: usize,
        mut fetching: Fetching,
        result: io::Result<u32>,
        carried: Carried,
        desk: &mut Desk<'_>,
    ) {
        let Source { length, .. } = fetching.sources.pop_front().expect("it was read");
        let memory = carried.into_unfilled().expect("it was read into memory");
        if whole(result, length).is_err() {
            let mut actions = Vec::new();
            let journal = self.all.at_mut(journal_index);
            journal.end_part(fetching.operation, Err(DestageFault::Journal), &mut actions);
            return self.end_flight(journal_index, actions, desk);
        }
        fetching.gathered += length;
        let journal = self.all.at_mut(journal_index);
        if journal.is_stopped {
            // The journal is stopped, so the destage ends here.
            return;
        }
        if journal.has_failed || journal.files.get(&fetching.file).is_none_or(|file| file.is_forgetting) {
            let mut actions = Vec::new();
            let given_up = Err(DestageFault::Slow(SlowFault::Broken));
            journal.end_part(fetching.operation, given_up, &mut actions);
            return self.end_flight(journal_index, actions, desk);
        }
        match fetching.sources.is_empty() {
            false => self.all.at_mut(journal_index).fetch(fetching, memory, desk),
            true => self.all.at_mut(journal_index).write_slow(&fetching, memory.completed(), desk),
        }
    }
}

impl VolumeJournal {
    /// Begins an operation. Answers its token and the journal's file.
    pub fn fly(&mut self, due_ns: u64, work: Work) -> (Token, Descriptor) {
        self.last_flight += 1;
        let (flight, (volume, journal)) = (self.last_flight, self.place);
        self.flights.insert(flight, Flight { due_ns, work });
        (Token::Journal { volume, journal, flight }, self.file.clone())
    }

    fn write_record(&mut self, position_bytes: u64, is_durable: bool, desk: &mut Desk<'_>) {
        let parts = compose_record(self, &desk.io.pool);
        self.record = Parts { left: parts.len(), fault: None };
        let mut position = position_bytes;
        for (payload, range) in parts {
            let length = range.len() as u32;
            let due_ns = self.log_due((position, length), is_durable, desk);
            let (token, file) = self.fly(due_ns, Work::Record(length));
            desk.io.ring.write(token, &file, position, payload, range, is_durable);
            position += u64::from(length);
        }
    }

    fn sync_journal_file(&mut self, desk: &mut Desk<'_>) {
        let due_ns = desk.emulated.flush(desk.io.now_ns, self.home);
        let (token, file) = self.fly(due_ns, Work::SyncJournal);
        desk.io.ring.sync(token, &file);
    }

    fn write_superblock(&mut self, position_bytes: u64, desk: &mut Desk<'_>) {
        let mut memory = fresh(BLOCK_BYTES as usize, &desk.io.pool);
        self.core.encode_superblock(first_block(&mut memory));
        let buffer = memory.completed();
        let length = BLOCK_BYTES as u32;
        let due_ns = self.log_due((position_bytes, length), true, desk);
        let (token, file) = self.fly(due_ns, Work::Superblock);
        desk.io.ring.write(token, &file, position_bytes, Payload::Own(buffer), 0..length as usize, true);
    }

    fn destage(
        &mut self,
        (operation, file): (DestageId, FileId),
        (offset, length): (u32, u32),
        content: DestageContent,
        desk: &mut Desk<'_>,
    ) {
        let zeroes = |length: u32| Source { position_bytes: 0, length };
        let (sources, is_data) = match content {
            DestageContent::Data(sources) => (sources, true),
            DestageContent::Zeroes => (vec![zeroes(length)], false),
            DestageContent::Zero => {
                return self.fallocate_slow((operation, file), (offset, length), FallocateMode::Zero, desk);
            }
            DestageContent::Release => {
                return self.fallocate_slow(
                    (operation, file),
                    (offset, length),
                    FallocateMode::Release,
                    desk,
                );
            }
        };
        let parts = split(offset, sources);
        let left = parts.len();
        self.destages.insert(operation, Parts { left, fault: None });
        let slow = self.slow(file);
        for (offset, sources) in parts {
            let length: u32 = sources.iter().map(|source| source.length).sum();
            let mut memory = fresh(length as usize, &desk.io.pool);
            let fetching = Fetching { operation, file, slow: slow.clone(), offset, sources, gathered: 0 };
            if is_data {
                self.fetch(fetching, memory, desk);
            } else {
                memory.append_zeroes(length as usize);
                self.write_slow(&fetching, memory.completed(), desk);
            }
        }
    }

    fn fallocate_slow(
        &mut self,
        (operation, file): (DestageId, FileId),
        (offset, length): (u32, u32),
        placement: FallocateMode,
        desk: &mut Desk<'_>,
    ) {
        self.destages.insert(operation, Parts { left: 1, fault: None });
        let slow = self.slow(file);
        let due_ns = slow_due(&slow, (offset, 0), false, desk);
        let (token, _) = self.fly(due_ns, Work::Destage(operation, file, None));
        desk.io.ring.fallocate(token, &slow.descriptor, offset.into(), length.into(), placement);
    }

    /// Reads the next source of a destage.
    fn fetch(&mut self, fetching: Fetching, memory: Unfilled, desk: &mut Desk<'_>) {
        let Source { position_bytes, length } =
            *fetching.sources.front().expect("there is something to read");
        let range = fetching.gathered as usize..(fetching.gathered + length) as usize;
        let due_ns = self.log_due((position_bytes, length), false, desk);
        let (token, file) = self.fly(due_ns, Work::Fetch(fetching));
        desk.io.ring.read(token, &file, position_bytes, memory, range);
    }

    /// Writes the gathered data to the slow file.
    fn write_slow(&mut self, fetching: &Fetching, buffer: Buffer, desk: &mut Desk<'_>) {
        let length = buffer.len() as u32;
        let Fetching { operation, file, offset, ref slow, .. } = *fetching;
        let due_ns = slow_due(slow, (offset, length), false, desk);
        let (token, _) = self.fly(due_ns, Work::Destage(operation, file, Some(length)));
        let range = 0..length as usize;
        desk.io.ring.write(token, &slow.descriptor, offset.into(), Payload::Own(buffer), range, false);
    }

    fn sync_slow_file(&mut self, file: FileId, desk: &mut Desk<'_>) {
        let slow = self.slow(file);
        let due_ns = desk.emulated.flush(desk.io.now_ns, slow.home);
        let (token, _) = self.fly(due_ns, Work::SyncSlow(file));
        desk.io.ring.sync(token, &slow.descriptor);
    }

    fn pass_by(
        &mut self,
        (ticket, file): (Ticket, FileId),
        (offset, length): (u32, u32),
        is_durable: bool,
        desk: &mut Desk<'_>,
    ) {
        let slow = self.slow(file);
        let due_ns = slow_due(&slow, (offset, length), is_durable, desk);
        let asked = self.asked.get_mut(&ticket);
        let asked = asked.expect("a write that passes by was asked for");
        let payload = asked.payload.take().expect("a write has its payload until it is carried out");
        let range = asked.range.clone();
        let (token, _) = self.fly(due_ns, Work::PassBy(ticket, file, length));
        desk.io.ring.write(token, &slow.descriptor, offset.into(), payload, range, is_durable);
    }

    /// When the drive of a journal answers an operation on the journal's log, in nanoseconds; 0 if the
    /// drive is not emulated.
    pub fn log_due(&self, (offset, length): (u64, u32), is_durable: bool, desk: &mut Desk<'_>) -> u64 {
        let site = Site { home: self.home, extent: ExtentIndex(u32::MAX), offset };
        desk.emulated.act(desk.io.now_ns, site, length, is_durable)
    }

    /// The slow file of an open replica behind a journal.
    pub fn slow(&self, file: FileId) -> Slow {
        let slow = &self.files[&file];
        Slow {
            home: slow.home.expect("a file that is open lies somewhere"),
            extent: slow.key.extent,
            descriptor: slow.descriptor.clone().expect("it was looked whether the file is open"),
        }
    }

    /// A part of a destage has ended.
    pub fn end_part(
        &mut self,
        operation: DestageId,
        result: Result<(), DestageFault>,
        actions: &mut Vec<Action>,
    ) {
        let parts = self.destages.get_mut(&operation).expect("a part is one of something");
        if let Some(result) = parts.end_one(result) {
            self.destages.remove(&operation);
            self.core.destaged(operation, result, actions);
        }
    }
}

/// The parts of the next record, in order, each with its range of a buffer. Large payloads are written from
/// their own buffers; small ones are gathered in common buffers.
fn compose_record(journal: &mut VolumeJournal, pool: &BufferPool) -> Vec<(Payload, Range<usize>)> {
    let payloads: Vec<(Ticket, u32)> = journal.core.record_payloads().collect();
    let mut header = fresh(gathered_bytes(&payloads, BLOCK_BYTES as usize), pool);
    journal.core.encode_record(first_block(&mut header));
    let mut parts = Vec::new();
    let mut gathered = Some(header);
    for (at, (ticket, length)) in payloads.iter().enumerate() {
        let asked = journal.asked.get_mut(ticket).expect("what is in a record was asked for");
        let range = asked.range.clone();
        let length = *length as usize;
        if length >= SHARED_BYTES_MIN {
            parts.extend(gathered.take().map(whole_of));
            let payload = asked.payload.take().expect("a write has its payload until it is answered");
            let (one, other) = payload.share();
            asked.payload = Some(one);
            parts.push((other, range));
            continue;
        }
        let has_room = |memory: &Unfilled| memory.filled().len() + length <= PIECE_BYTES as usize;
        if !gathered.as_ref().is_some_and(has_room) {
            parts.extend(gathered.take().map(whole_of));
            gathered = Some(fresh(gathered_bytes(&payloads[at..], 0), pool));
        }
        let payload = asked.payload.as_ref().expect("a write has its payload until it is answered");
        gathered.as_mut().expect("there is one with room").append(&payload[range]);
    }
    parts.extend(gathered.map(whole_of));
    parts
}

/// All filled memory, as a part of a record.
fn whole_of(memory: Unfilled) -> (Payload, Range<usize>) {
    let buffer = memory.completed();
    let range = 0..buffer.len();
    (Payload::Own(buffer), range)
}

/// Size in bytes of a buffer that takes `before` bytes and the small payloads at the front of the list, at
/// most [`PIECE_BYTES`].
fn gathered_bytes(payloads: &[(Ticket, u32)], before: usize) -> usize {
    let small =
        payloads.iter().map(|(_, length)| *length as usize).take_while(|length| *length < SHARED_BYTES_MIN);
    (before + small.sum::<usize>()).min(PIECE_BYTES as usize)
}

/// The first block of empty memory, filled with zeroes.
fn first_block(memory: &mut Unfilled) -> &mut Block {
    memory.append_zeroes(BLOCK_BYTES as usize);
    memory.filled_mut().first_chunk_mut().expect("a block was just filled")
}

/// Splits a destage that begins at an offset into parts that each fit into a buffer. Answers each part with
/// its offset.
fn split(offset: u32, sources: Vec<Source>) -> Vec<(u32, VecDeque<Source>)> {
    let largest = PIECE_BYTES as u32;
    let mut parts: Vec<(u32, VecDeque<Source>)> = Vec::new();
    let (mut at, mut room) = (offset, 0);
    for mut source in sources {
        while source.length > 0 {
            if room == 0 {
                parts.push((at, VecDeque::new()));
                room = largest;
            }
            let length = source.length.min(room);
            let (_, part) = parts.last_mut().expect("there is a part with room");
            part.push_back(Source { length, ..source });
            source.position_bytes += u64::from(length);
            source.length -= length;
            room -= length;
            at += length;
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(block: u64, blocks: u32) -> Source {
        Source { position_bytes: block * BLOCK_BYTES, length: blocks * BLOCK_BYTES as u32 }
    }

    #[test]
    fn destage_is_split_into_parts_without_loss() {
        let parts = split(8192, vec![source(10, 1), source(100, 40), source(7, 3)]);
        let offsets: Vec<u32> = parts.iter().map(|(offset, _)| *offset).collect();
        assert_eq!(offsets, [8192, 8192 + 32 * 4096]);
        assert_eq!(parts[0].1, [source(10, 1), source(100, 31)]);
        assert_eq!(parts[1].1, [source(131, 9), source(7, 3)]);
        assert!(split(0, Vec::new()).is_empty());
    }

    #[test]
    fn parts_end_together_and_succeed_only_if_all_did() {
        let mut parts = Parts { left: 3, fault: None };
        assert_eq!(parts.end_one(Ok(())), None);
        assert_eq!(parts.end_one(Err(1)), None);
        assert_eq!(parts.end_one(Err(2)), Some(Err(1)), "the first fault is told");
        let mut parts: Parts<i32> = Parts { left: 1, fault: None };
        assert_eq!(parts.end_one(Ok(())), Some(Ok(())));
    }

    #[test]
    fn short_write_is_a_fault() {
        assert_eq!(whole(Ok(4096), 4096), Ok(()));
        assert_eq!(whole(Ok(512), 4096), Err(SlowFault::Broken));
        let full = io::Error::from(rustix::io::Errno::NOSPC);
        assert_eq!(whole(Err(full), 4096), Err(SlowFault::NoSpace));
    }
}
