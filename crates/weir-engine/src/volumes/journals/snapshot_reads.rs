//! Snapshot reads: what a journal holds of a range, for the helper thread that takes the range into a snapshot.
//!
//! The helper thread reads the log itself. A pin keeps the data in its place until the helper thread has
//! answered, even if the snapshot does not wait for the answer any more.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use weir_journal::Part;
use weir_store::snapshot::{Held, HeldPiece};
use weir_types::ExtentIndex;

use super::VolumeJournals;
use super::desk::Desk;
use super::faults::as_error;
use crate::token::AskNumber;

impl VolumeJournals {
    /// The offset of the first data that the journal of a replica holds in a range, in bytes.
    pub fn next_held(
        &self,
        (extent, slot): (ExtentIndex, usize),
        (offset, length): (u32, u32),
    ) -> Option<u32> {
        let binding = self.binding(extent, slot)?;
        self.all.at(binding.journal).core.next_held(binding.file, offset, length)
    }

    /// What the journal of a replica holds in a range, and keeps in its place until
    /// [`VolumeJournals::snapshot_read_ended`]. `None` if it holds nothing.
    ///
    /// # Errors
    /// If the journal has failed, or no file descriptor is free.
    pub fn begin_snapshot_read(
        &mut self,
        (extent, slot): (ExtentIndex, usize),
        (offset, length): (u32, u32),
        number: AskNumber,
    ) -> io::Result<Option<Held>> {
        let Some(binding) = self.binding(extent, slot) else { return Ok(None) };
        let journal = self.all.at_mut(binding.journal);
        // The clone comes first, so that no pin is left behind if there is none.
        let log = File::from(journal.file.as_fd().try_clone_to_owned()?);
        let mut parts = Vec::new();
        let pin = journal.core.read(binding.file, offset, length, &mut parts).map_err(as_error)?;
        self.snapshot_reads.insert((slot, number), (binding.journal, pin));
        let pieces = pieces_of(offset, &parts);
        Ok((!pieces.is_empty()).then_some(Held { log, pieces }))
    }

    /// A helper thread has answered, and does not read the log any more.
    pub fn snapshot_read_ended(&mut self, slot: usize, number: AskNumber, desk: &mut Desk<'_>) {
        let Some((journal_index, pin)) = self.snapshot_reads.remove(&(slot, number)) else { return };
        // A journal that was removed in between has no space to free.
        let Some(journal) = self.all.get_mut(journal_index) else { return };
        let mut actions = Vec::new();
        journal.core.read_ended(pin, &mut actions);
        self.carry_out(journal_index, actions, desk);
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
