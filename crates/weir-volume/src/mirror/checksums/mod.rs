//! Checksums of an extent at rest: which are durably valid, and the scrub of a section.
//!
//! Checksums of a section are *valid* for a replica while the checksums stored beside it match its data. They
//! become invalid durably before any data in the section changes. So a valid checksum always belongs to the
//! correct data, whatever a crash or a power cut leaves. An extent that was never scrubbed has no valid
//! checksums, and costs nothing.
//!
//! This module starts no operation and knows no file. [`scrub`](super::scrub) and
//! [`checksum_headers`](super::checksum_headers) do what it decides.

mod headers;
mod section;
mod verdict;

use weir_types::bounds::REPLICA_SLOTS_MAX;

pub use headers::{ChecksumHeader, ChecksumHeaders, Damaged, Sections};
pub(super) use section::{Computed, Move, NextRepair, PieceOperation, SectionScrub};
pub use section::{SECTION_BLOCKS, SECTIONS, SectionReport};

use super::mirror_id::MirrorId;
use super::slots::Slots;
use crate::action::Request;
use headers::HeaderState;

/// A task on the checksum files for the executor →
/// [`Scrubs::checksum_work_done`](super::Scrubs::checksum_work_done). Each extent has at most one task of each
/// kind at a time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ChecksumWork {
    /// Read the checksums of a section beside these replicas.
    Load {
        /// Section of the extent.
        section: u32,
        /// Replicas to read beside.
        slots: Slots,
    },
    /// Write the checksums of a section beside these replicas, durably. They are not valid yet.
    Store {
        /// Section of the extent.
        section: u32,
        /// Replicas to write beside.
        slots: Slots,
        /// Checksum of each block of the section.
        block_checksums: Vec<u32>,
    },
    /// Write the checksum headers beside these replicas, durably. An empty header creates no file where none
    /// exists.
    WriteHeaders(ChecksumHeaders),
}

/// Answer of the executor to a [`ChecksumWork`].
#[derive(Clone, Debug)]
pub enum ChecksumResult {
    /// By replica, the checksums of the section, if they could be read intact.
    Loaded([Option<Vec<u32>>; REPLICA_SLOTS_MAX]),
    /// The checksums were written, except beside the failed replicas.
    Stored {
        /// Replicas beside which the write failed.
        failed: Slots,
    },
    /// The checksum headers were written.
    HeadersWritten {
        /// Replicas beside which the write failed. They may have the new header all the same.
        failed: Slots,
        /// Replicas beside which the write failed, but whose checksums were durably dropped instead.
        dropped: Slots,
    },
}

/// Step that follows once pieces, checksums or headers of a section are done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextOfSection {
    /// Nothing: something is under way.
    Wait,
    /// The data that was read is made stable.
    Flush,
    /// The new checksums are written, if none that they replace is valid.
    Store,
    /// The scrub ends.
    End,
}

/// Checksum state of one extent: headers, and the scrub of a section in progress.
#[derive(Debug, Default)]
pub(super) struct ExtentChecksums {
    headers: HeaderState,
    scrub: Option<Box<SectionScrub>>,
}

impl ExtentChecksums {
    /// Takes the header that was found beside a replica. It counts only if the replica is in sync.
    pub fn found(&mut self, slot: usize, header: ChecksumHeader, is_in_sync: bool) {
        self.headers.found(slot, header, is_in_sync);
    }

    /// Invalidates the checksums of a replica that is no longer in sync or is replaced.
    pub fn lose(&mut self, slot: usize) {
        self.headers.lose(slot);
        self.scrub.iter_mut().for_each(|scrub| scrub.lose(slot));
    }

    /// Assumes that any header may lie beside a replica, because the replica was out of reach.
    pub fn distrust(&mut self, slot: usize) {
        self.headers.distrust(slot);
        self.scrub.iter_mut().for_each(|scrub| scrub.lose(slot));
    }

    /// Invalidates the range of a change that is about to begin.
    pub fn change(&mut self, request: &Request) {
        self.headers.change(request);
        self.scrub.iter_mut().for_each(|scrub| scrub.change(request.offset, request.length));
    }

    /// Forgets which damaged blocks are durably listed, because the headers are unknown.
    pub fn distrust_damage(&mut self) {
        self.headers.distrust_damage();
    }

    /// True if no header beside these replicas says anything of a range that a change would make untrue.
    pub fn is_free(&self, request: &Request, slots: Slots) -> bool {
        self.headers.is_free(request, slots)
    }

    /// True if the checksums of a section of a replica are valid, durably and with no invalidation pending.
    pub fn is_valid(&self, slot: usize, section: u32) -> bool {
        self.headers.is_valid(slot, section)
    }

    /// Sections whose checksums may be durably valid beside a replica now, or become so by the write in
    /// progress.
    pub fn may_be_valid(&self, slot: usize) -> Sections {
        self.headers.may_be_valid(slot)
    }

    /// Damaged blocks, in order.
    pub fn damaged(&self) -> &[Damaged] {
        self.headers.damaged()
    }

    /// Headers to write beside replicas in sync and stale ones, unless a write is in progress.
    pub fn next_header_write(&mut self, in_sync: Slots, stale: Slots) -> Option<ChecksumHeaders> {
        self.headers.next_header_write(in_sync, stale)
    }

    /// Handles the end of a header write.
    pub fn header_written(&mut self, failed: Slots, dropped: Slots) {
        self.headers.header_written(failed, dropped);
        let scrub = &mut self.scrub;
        failed.iter().for_each(|slot| scrub.iter_mut().for_each(|scrub| scrub.header_failed(slot)));
    }

    /// The scrub of a section, if one is in progress.
    pub fn scrub(&self) -> Option<&SectionScrub> {
        self.scrub.as_deref()
    }

    /// The scrub of a section in progress.
    pub fn section_mut(&mut self) -> &mut SectionScrub {
        self.scrub.as_mut().expect("a section is known until it is scrubbed")
    }

    /// Begins the scrub of a section of these replicas, unless one is in progress. Returns the replicas whose
    /// stored checksums are loaded first.
    pub fn begin_section(&mut self, section: u32, slots: Slots, zero_checksum: u32) -> Option<Slots> {
        if self.scrub.is_some() {
            return None;
        }
        let valid = slots.filter(|slot| self.headers.is_valid(slot, section));
        self.scrub = Some(Box::new(SectionScrub::new(section, slots, zero_checksum, !valid.is_empty())));
        Some(valid)
    }

    /// Decides which blocks of a piece are good, once all readable replicas were read.
    pub fn decide(&mut self, id: MirrorId, readable: Slots) {
        let ExtentChecksums { headers, scrub } = self;
        scrub.as_mut().expect("a section is known until it is scrubbed").decide(id, readable, headers);
    }

    /// Step that follows now.
    pub fn next_of_section(&self) -> NextOfSection {
        let Some(scrub) = &self.scrub else { return NextOfSection::Wait };
        let is_valid = |slot: usize| self.headers.is_valid(slot, scrub.section());
        if scrub.is_examined() {
            return if scrub.can_validate() { NextOfSection::Flush } else { NextOfSection::End };
        }
        if scrub.is_invalidating() {
            return NextOfSection::Store;
        }
        let is_over = || !scrub.can_validate() || scrub.storing().iter().all(is_valid);
        if scrub.is_validating() && is_over() { NextOfSection::End } else { NextOfSection::Wait }
    }

    /// Continues after the flush: checksums that will be replaced are no longer wanted. False if no flush was
    /// waited for.
    pub fn section_flushed(&mut self) -> bool {
        let Some(scrub) = &mut self.scrub else { return false };
        let Some(storing) = scrub.flushed() else { return false };
        storing.iter().for_each(|slot| self.headers.want(slot, scrub.section(), false));
        true
    }

    /// Checksums to write beside replicas, once none of those that they replace is valid.
    ///
    /// # Errors
    /// With the step that follows instead: the end, or waiting for headers.
    pub fn begin_storing(&mut self) -> Result<ChecksumWork, NextOfSection> {
        let Some(scrub) = &mut self.scrub else { return Err(NextOfSection::Wait) };
        let (section, slots) = (scrub.section(), scrub.to_store());
        if !scrub.can_validate() || slots.is_empty() {
            return Err(NextOfSection::End);
        }
        let is_replaced = |slot: usize| self.headers.may_be_valid(slot).meets(Sections::one(section));
        if slots.iter().any(is_replaced) {
            return Err(NextOfSection::Wait);
        }
        Ok(ChecksumWork::Store { section, slots, block_checksums: scrub.begin_storing(slots) })
    }

    /// Takes the end of the write of checksums: they may become valid beside the other replicas.
    pub fn stored(&mut self, failed: Slots) {
        let scrub = self.scrub.as_mut().expect("a section is known until it is scrubbed");
        let valid = scrub.stored_beside(failed);
        valid.iter().for_each(|slot| self.headers.want(slot, scrub.section(), true));
    }

    /// Ends the scrub of the section.
    pub fn end_section(&mut self) -> Option<SectionReport> {
        let scrub = self.scrub.take()?;
        let is_valid = (0..REPLICA_SLOTS_MAX).any(|slot| self.headers.is_valid(slot, scrub.section()));
        Some(scrub.end(is_valid))
    }
}
