//! Snapshot reads: what a journal holds of a range, for the helper thread that takes the range into a snapshot.
//!
//! The helper thread reads the log itself. A pin keeps the data in its place until the helper thread has answered, or the
//! snapshot does not wait for the answer any more.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use weir_journal::{Action, Part, Pin};
use weir_store::snapshot::{Held, HeldPiece};
use weir_types::ExtentIndex;

use super::faults::as_error;
use super::set::JournalSet;
use super::{Binding, VolumeJournals};
use crate::token::AskNumber;

/// By slot and number of the request, the journal that a helper thread reads, and what keeps the data there.
pub type Pins = BTreeMap<(usize, AskNumber), (usize, Pin)>;

/// What the journals of a volume hold for its snapshots.
pub struct SnapshotReads<'a> {
    journals: &'a mut JournalSet,
    bindings: &'a BTreeMap<(ExtentIndex, usize), Binding>,
    pins: &'a mut Pins,
}

impl VolumeJournals {
    /// What the journals hold for the volume's snapshots.
    pub fn snapshot_reads(&mut self) -> SnapshotReads<'_> {
        SnapshotReads { journals: &mut self.all, bindings: &self.bindings, pins: &mut self.snapshot_pins }
    }
}

impl SnapshotReads<'_> {
    /// The offset of the first data that the journal of a replica holds in a range, in bytes.
    pub fn next_held(&self, replica: (ExtentIndex, usize), (offset, length): (u32, u32)) -> Option<u32> {
        let binding = self.bindings.get(&replica)?;
        self.journals.at(binding.journal).core.next_held(binding.file, offset, length)
    }

    /// What the journal of a replica holds in a range, and keeps in its place until [`SnapshotReads::end`]. `None` if it
    /// holds nothing.
    ///
    /// # Errors
    /// If the journal has failed, or no file descriptor is free.
    pub fn begin(
        &mut self,
        replica: (ExtentIndex, usize),
        range: (u32, u32),
        number: AskNumber,
    ) -> io::Result<Option<Held>> {
        let Some(binding) = self.bindings.get(&replica) else { return Ok(None) };
        if self.next_held(replica, range).is_none() {
            return Ok(None);
        }
        let journal = self.journals.at_mut(binding.journal);
        // The clone comes first, so that no pin is left behind if there is none.
        let log = File::from(journal.file.as_fd().try_clone_to_owned()?);
        let mut parts = Vec::new();
        let pin = journal.core.read(binding.file, range.0, range.1, &mut parts).map_err(as_error)?;
        self.pins.insert((replica.1, number), (binding.journal, pin));
        Ok(Some(Held { log, pieces: pieces_of(range.0, &parts) }))
    }

    /// A helper thread does not read the log any more, or nobody waits for what it reads. Returns the journal, and the
    /// actions that follow; `None` if it read no journal.
    pub fn end(&mut self, slot: usize, number: AskNumber) -> Option<(usize, Vec<Action>)> {
        let (journal_index, pin) = self.pins.remove(&(slot, number))?;
        let mut actions = Vec::new();
        // A journal that was removed in between has no space to free.
        self.journals.get_mut(journal_index)?.core.read_ended(pin, &mut actions);
        Some((journal_index, actions))
    }
}

/// The parts from an offset on that are in the journal.
fn pieces_of(mut offset: u32, parts: &[Part]) -> Vec<HeldPiece> {
    let mut pieces = Vec::new();
    for part in parts {
        let (length, position_bytes) = match *part {
            Part::Slow { length, .. } => {
                offset += length;
                continue;
            }
            Part::Zero { length } => (length, None),
            Part::Journal { position_bytes, length } => (length, Some(position_bytes)),
        };
        pieces.push(HeldPiece { offset, length, position_bytes });
        offset += length;
    }
    pieces
}
