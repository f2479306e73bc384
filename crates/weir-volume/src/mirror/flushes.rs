//! Flushes of a mirror: which replicas have not answered, and what the flush is for.
//!
//! A flush ends once all replicas have answered and the failure of each replica is recorded. Otherwise a
//! start could count a replica as in sync that lost data. This module does not carry out what follows.

use weir_types::ExtentIndex;

use super::extents::Extents;
use super::slots::Slots;
use crate::action::Fault;

/// Purpose of a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A client asked for the flush.
    Client(u32),
    /// Regions of an extent leave the dirty region log after the flush.
    Tidy(ExtentIndex),
    /// A replica of an extent counts as in sync after the flush, unless its version has changed.
    Promote(ExtentIndex, usize, u64),
    /// Checksums of an examined section of an extent become valid after the flush.
    Scrub(ExtentIndex),
    /// Flushes that were answered before are carried out, or may be answered so once this one has ended.
    Owed,
    /// The extent that the flush was for no longer exists.
    Nothing,
}

impl Purpose {
    /// The one extent to flush; `None` is all.
    pub fn only(&self) -> Option<ExtentIndex> {
        if let Purpose::Scrub(extent) = self { Some(*extent) } else { None }
    }

    /// True if the flush can pay coalesced flushes. The others may wait for metadata that nobody can write.
    pub fn can_pay(&self) -> bool {
        matches!(self, Purpose::Client(_) | Purpose::Owed)
    }

    /// The one extent that the flush is for.
    fn extent(&self) -> Option<ExtentIndex> {
        match self {
            Purpose::Tidy(extent) | Purpose::Promote(extent, ..) | Purpose::Scrub(extent) => Some(*extent),
            Purpose::Client(_) | Purpose::Owed | Purpose::Nothing => None,
        }
    }
}

/// A flush that has not ended.
#[derive(Debug)]
struct PendingFlush {
    number: u32,
    /// Number of replicas that have not answered; `None` until they are asked.
    left: Option<u32>,
    failed: Slots,
    purpose: Purpose,
}

/// A flush that has ended.
#[derive(Debug)]
pub(super) struct EndedFlush {
    pub number: u32,
    pub purpose: Purpose,
    pub result: Result<(), Fault>,
}

/// The flushes that have not ended, and the replicas that failed.
#[derive(Debug, Default)]
pub(super) struct Flushes {
    pending: Vec<PendingFlush>,
    last_number: u32,
    /// Slots and extents of failed replicas.
    failed_replicas: Vec<(usize, ExtentIndex)>,
}

impl Flushes {
    /// Adds a flush, and returns its number.
    pub fn add(&mut self, purpose: Purpose) -> u32 {
        self.last_number = self.last_number.wrapping_add(1);
        let (number, left, failed) = (self.last_number, None, Slots::default());
        self.pending.push(PendingFlush { number, left, failed, purpose });
        number
    }

    /// Begins a flush of this number of replicas, and returns what it is for.
    pub fn begin(&mut self, number: u32, replicas: usize) -> Purpose {
        let pending = self.pending(number);
        pending.left = Some(replicas as u32);
        pending.purpose
    }

    fn pending(&mut self, number: u32) -> &mut PendingFlush {
        let pending = self.pending.iter_mut().find(|pending| pending.number == number);
        pending.expect("a flush waits for all replicas")
    }

    /// Takes the answer of a replica. True if it was the last.
    pub fn replica_answered(&mut self, slot: usize, number: u32, result: Result<(), Fault>) -> bool {
        let pending = self.pending(number);
        if result.is_err() {
            pending.failed.insert(slot);
        }
        let left = pending.left.as_mut().expect("a replica answers a flush that it was asked for");
        *left -= 1;
        *left == 0
    }

    /// Notes that a replica of an extent failed.
    pub fn note_failed_replica(&mut self, slot: usize, extent: ExtentIndex) {
        self.failed_replicas.push((slot, extent));
    }

    /// Forgets that a replica of an extent failed, because another file is in its place.
    pub fn forget_failed_replica(&mut self, slot: usize, extent: ExtentIndex) {
        self.failed_replicas.retain(|failed| *failed != (slot, extent));
    }

    /// Extents with a failed replica whose failure is not recorded, although it can be.
    pub fn unrecorded(&self, extents: &Extents) -> Vec<ExtentIndex> {
        let is_unrecorded =
            |index: &ExtentIndex| !extents[*index].is_recorded() && !extents[*index].in_sync().is_empty();
        self.failed_replicas.iter().map(|(_, extent)| *extent).filter(is_unrecorded).collect()
    }

    /// Takes a flush that all replicas have answered, with its result.
    pub fn take_answered(&mut self, extents: &Extents) -> Option<EndedFlush> {
        let index = self.pending.iter().position(|pending| pending.left == Some(0))?;
        let PendingFlush { number, failed, purpose, .. } = self.pending.swap_remove(index);
        let result = if self.is_stable_elsewhere(failed, extents) { Ok(()) } else { Err(Fault::Broken) };
        Some(EndedFlush { number, purpose, result })
    }

    /// True if data that these replicas could not make stable is stable on another replica.
    fn is_stable_elsewhere(&self, failed: Slots, extents: &Extents) -> bool {
        let of_failed = self.failed_replicas.iter().filter(|(slot, _)| failed.contains(*slot));
        let mut of_failed = of_failed.map(|(_, extent)| &extents[*extent]);
        of_failed.all(|extent| !extent.in_sync().is_empty())
    }

    /// Takes the flushes for clients that wait until the failure of a replica of this extent is recorded, and fails
    /// them.
    pub fn take_unrecorded(&mut self, index: ExtentIndex, extents: &Extents) -> Vec<EndedFlush> {
        let has_failed = self.failed_replicas.iter().any(|(_, extent)| *extent == index);
        if !has_failed || extents[index].is_recorded() {
            return Vec::new();
        }
        let waits = |pending: &mut PendingFlush| pending.left == Some(0) && pending.purpose.can_pay();
        let fail = |pending: PendingFlush| {
            let PendingFlush { number, purpose, .. } = pending;
            EndedFlush { number, purpose, result: Err(Fault::Broken) }
        };
        self.pending.extract_if(.., waits).map(fail).collect()
    }

    /// Forgets extents from `count` on. A flush of theirs may still wait until metadata of a remaining extent
    /// is recorded.
    pub fn truncate_extents(&mut self, count: u32) {
        self.failed_replicas.retain(|(_, extent)| extent.is_within(count));
        let is_gone =
            |flush: &&mut PendingFlush| flush.purpose.extent().is_some_and(|of| !of.is_within(count));
        self.pending.iter_mut().filter(is_gone).for_each(|flush| flush.purpose = Purpose::Nothing);
    }
}
