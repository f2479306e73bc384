//! Reads behind a journal: data that is partly in the journal and partly in the slow file is read part by
//! part into one buffer.

use std::io;

use weir_journal::{Part, SlowFault};
use weir_reactor::{Carried, Target};

use super::desk::Desk;
use super::faults::{as_error, as_fault};
use super::flights::{Gathering, Wanted, Work, slow_due};
use super::{Binding, VolumeJournals};

impl VolumeJournals {
    /// Reads a range of a replica that is behind a journal.
    pub fn read(&mut self, binding: Binding, wanted: Wanted, target: Target, desk: &mut Desk<'_>) {
        let mut parts = Vec::new();
        let journal = self.all.at_mut(binding.journal);
        match journal.core.read(binding.file, wanted.offset, wanted.length, &mut parts) {
            Ok(pin) => {
                let slow = self.is_open(binding).then(|| self.all.at_mut(binding.journal).slow(binding.file));
                let gathering = Gathering { wanted, binding, slow, parts: parts.into(), done: 0, pin };
                self.gather(gathering, target, desk);
            }
            Err(fault) => self.answer_replica(wanted.token, Err(as_error(fault)), target.into()),
        }
    }

    /// Reads the next part, or answers if no part is left.
    fn gather(&mut self, mut gathering: Gathering, mut target: Target, desk: &mut Desk<'_>) {
        let journal_index = gathering.binding.journal;
        let start = gathering.wanted.buffer_offset + gathering.done;
        let range = |length: u32| start as usize..(start + length) as usize;
        match gathering.parts.front().copied() {
            None => self.end_gathering(gathering, Ok(()), target, desk),
            Some(Part::Zero { length }) => {
                target.zero(range(length));
                gathering.parts.pop_front();
                gathering.done += length;
                self.gather(gathering, target, desk);
            }
            Some(Part::Journal { position_bytes, length }) => {
                let due_ns = self.all.at_mut(journal_index).log_due((position_bytes, length), false, desk);
                let (token, file) = self.all.at_mut(journal_index).fly(due_ns, Work::Read(gathering));
                desk.io.ring.read(token, &file, position_bytes, target, range(length));
            }
            Some(Part::Slow { offset, length }) => {
                let slow = gathering.slow.clone().expect("a replica is read once its file is open");
                let due_ns = slow_due(&slow, (offset, length), false, desk);
                let (token, _) = self.all.at_mut(journal_index).fly(due_ns, Work::Read(gathering));
                desk.io.ring.read(token, &slow.descriptor, offset.into(), target, range(length));
            }
        }
    }

    /// The read of a part has ended.
    pub fn gathered(
        &mut self,
        journal_index: usize,
        mut gathering: Gathering,
        result: io::Result<u32>,
        carried: Carried,
        desk: &mut Desk<'_>,
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
            Ok(()) => self.gather(gathering, target, desk),
            Err(error) => {
                let mut actions = Vec::new();
                if is_in_journal && as_fault(&error) != SlowFault::Short {
                    self.all.at_mut(journal_index).core.journal_unreadable(&mut actions);
                }
                self.end_gathering(gathering, Err(error), target, desk);
                self.carry_out(journal_index, actions, desk);
            }
        }
    }

    fn end_gathering(
        &mut self,
        gathering: Gathering,
        result: io::Result<()>,
        target: Target,
        desk: &mut Desk<'_>,
    ) {
        let Gathering { wanted, binding, pin, .. } = gathering;
        let mut actions = Vec::new();
        self.all.at_mut(binding.journal).core.read_ended(pin, &mut actions);
        self.answer_replica(wanted.token, result.map(|()| wanted.length), target.into());
        self.carry_out(binding.journal, actions, desk);
    }
}
