//! Reads behind a journal: data that is partly in the journal and partly in the slow file is read part by
//! part into one buffer.

use std::collections::VecDeque;
use std::io;

use weir_journal::{Part, Pin, SlowFault};
use weir_reactor::{Carried, Target};

use super::super::reactor::Reactor;
use super::super::token::{Token, VolumeIndex};
use super::Binding;
use super::asking::{as_error, as_fault};
use super::doing::{Slow, Work};

/// The range to read in bytes, and its offset in the buffer.
pub(super) struct Wanted {
    pub token: Token,
    pub offset: u32,
    pub length: u32,
    pub buffer_offset: u32,
}

/// A read that takes several steps.
pub(super) struct Gathering {
    wanted: Wanted,
    binding: Binding,
    slow: Option<Slow>,
    /// Parts still to be read; the first is being read.
    parts: VecDeque<Part>,
    /// Bytes read so far.
    done: u32,
    pin: Pin,
}

impl Reactor {
    /// Reads a range of a replica that is behind a journal.
    pub(super) fn read_journaled(
        &mut self,
        index: VolumeIndex,
        binding: Binding,
        wanted: Wanted,
        target: Target,
    ) {
        let mut parts = Vec::new();
        let journal = self.volumes[index].journals.at_mut(binding.journal);
        match journal.core.read(binding.file, wanted.offset, wanted.length, &mut parts) {
            Ok(pin) => {
                let slow = self.volumes[index]
                    .journals
                    .is_open(binding)
                    .then(|| self.volumes[index].slow(binding.journal, binding.file));
                let gathering = Gathering { wanted, binding, slow, parts: parts.into(), done: 0, pin };
                self.gather(index, gathering, target);
            }
            Err(fault) => self.answer_replica(wanted.token, Err(as_error(fault)), target.into()),
        }
    }

    /// Reads the next part, or answers if no part is left.
    fn gather(&mut self, index: VolumeIndex, mut gathering: Gathering, mut target: Target) {
        let journal_index = gathering.binding.journal;
        let start = gathering.wanted.buffer_offset + gathering.done;
        let range = |length: u32| start as usize..(start + length) as usize;
        match gathering.parts.front().copied() {
            None => self.end_gathering(index, gathering, Ok(()), target),
            Some(Part::Zero { length }) => {
                target.zero(range(length));
                gathering.parts.pop_front();
                gathering.done += length;
                self.gather(index, gathering, target);
            }
            Some(Part::Journal { position_bytes, length }) => {
                let due_ns =
                    self.volumes[index].log_due(journal_index, self.io.now_ns, position_bytes, length, false);
                let (token, file) = self.fly(index, journal_index, due_ns, Work::Read(gathering));
                self.io.ring.read(token, &file, position_bytes, target, range(length));
            }
            Some(Part::Slow { offset, length }) => {
                let slow = gathering.slow.clone().expect("a replica is read once its file is open");
                let due_ns = self.volumes[index].slow_due(&slow, self.io.now_ns, (offset, length), false);
                let (token, _) = self.fly(index, journal_index, due_ns, Work::Read(gathering));
                self.io.ring.read(token, &slow.descriptor, offset.into(), target, range(length));
            }
        }
    }

    /// The read of a part has ended.
    pub(super) fn gathered(
        &mut self,
        index: VolumeIndex,
        journal_index: usize,
        mut gathering: Gathering,
        result: io::Result<u32>,
        carried: Carried,
    ) {
        let target = carried.into_target().expect("it was read into memory");
        let part = gathering.parts.pop_front().expect("a part was read");
        let (length, is_in_journal) = match part {
            Part::Journal { length, .. } => (length, true),
            Part::Slow { length, .. } | Part::Zero { length } => (length, false),
        };
        gathering.done += length;
        let outcome = match result {
            Err(error) => Err(error),
            Ok(read) if read != length => Err(io::Error::other("its file was shortened")),
            Ok(_) => Ok(()),
        };
        match outcome {
            Ok(()) => self.gather(index, gathering, target),
            Err(error) => {
                let mut actions = Vec::new();
                if is_in_journal && as_fault(&error) != SlowFault::Short {
                    self.volumes[index].journals.at_mut(journal_index).core.journal_unreadable(&mut actions);
                }
                self.end_gathering(index, gathering, Err(error), target);
                self.carry_out_journal(index, journal_index, actions);
            }
        }
        self.end_flight(index, journal_index, Vec::new());
    }

    fn end_gathering(
        &mut self,
        index: VolumeIndex,
        gathering: Gathering,
        result: io::Result<()>,
        target: Target,
    ) {
        let Gathering { wanted, binding, pin, .. } = gathering;
        let mut actions = Vec::new();
        self.volumes[index].journals.at_mut(binding.journal).core.read_ended(pin, &mut actions);
        self.answer_replica(wanted.token, result.map(|()| wanted.length), target.into());
        self.carry_out_journal(index, binding.journal, actions);
    }
}
