//! Scrub: its progress, readable from any thread, and how it ended.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, PoisonError};

use weir_reactor::Clock;
use weir_volume::mirror::SectionReport;

/// How a scrub ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScrubEnd {
    /// All sections were examined.
    Completed,
    /// An operator cancelled the scrub.
    Cancelled,
    /// The volume was closed or became smaller, or the daemon ended.
    Interrupted,
}

/// Progress of a scrub, readable from any thread. One thread writes it.
#[derive(Debug, Default)]
pub struct ScrubProgress {
    sections_done: AtomicU64,
    sections_left: AtomicU64,
    /// When the scrub began, in nanoseconds; 0 while it waits for others.
    started_ns: AtomicU64,
    blocks_checked: AtomicU64,
    blocks_found: AtomicU64,
    blocks_repaired: AtomicU64,
    blocks_damaged: AtomicU64,
    extents_passed_over: AtomicU64,
    end: Mutex<Option<ScrubEnd>>,
}

/// The counters at one point in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubSnapshot {
    /// Sections that were examined, or skipped because they were never written.
    pub sections_done: u64,
    /// Sections left.
    pub sections_left: u64,
    /// Blocks that were examined, counted per replica.
    pub blocks_checked: u64,
    /// Bad blocks, counted per replica.
    pub blocks_found: u64,
    /// Bad blocks that were rewritten from a correct replica.
    pub blocks_repaired: u64,
    /// Blocks without any replica that is known to be correct.
    pub blocks_damaged: u64,
    /// Extents without any replica that could be read.
    pub extents_passed_over: u64,
    /// Time since the scrub began, in nanoseconds; `None` if it waits for others.
    pub elapsed_ns: Option<u64>,
}

impl ScrubProgress {
    /// The current counters.
    pub fn counters(&self) -> ScrubSnapshot {
        let started_ns = self.started_ns.load(Relaxed);
        let (repaired, damaged) = (self.blocks_repaired.load(Relaxed), self.blocks_damaged.load(Relaxed));
        ScrubSnapshot {
            sections_done: self.sections_done.load(Relaxed),
            sections_left: self.sections_left.load(Relaxed),
            blocks_checked: self.blocks_checked.load(Relaxed),
            blocks_found: self.blocks_found.load(Relaxed) + damaged,
            blocks_repaired: repaired,
            blocks_damaged: damaged,
            extents_passed_over: self.extents_passed_over.load(Relaxed),
            elapsed_ns: (started_ns > 0).then(|| Clock.now_ns().saturating_sub(started_ns)),
        }
    }

    /// How the scrub ended; `None` while it runs or waits.
    pub fn end(&self) -> Option<ScrubEnd> {
        *self.end.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The scrub has this number of sections to examine.
    pub fn expects(&self, sections: u64) {
        self.sections_left.store(sections, Relaxed);
    }

    /// The scrub began at this time.
    pub fn started(&self, now_ns: u64) {
        self.started_ns.store(now_ns.max(1), Relaxed);
    }

    /// A section was examined, or skipped.
    pub fn section_done(&self) {
        self.sections_done.fetch_add(1, Relaxed);
        let left = self.sections_left.load(Relaxed);
        // Only one thread writes, so no update is lost between load and store.
        self.sections_left.store(left.saturating_sub(1), Relaxed);
    }

    /// No replica of an extent could be read.
    pub fn extent_passed_over(&self) {
        self.extents_passed_over.fetch_add(1, Relaxed);
    }

    /// The scrub ended in this way.
    pub fn ended(&self, end: ScrubEnd) {
        *self.end.lock().unwrap_or_else(PoisonError::into_inner) = Some(end);
    }

    /// Counts what a section's examination found.
    pub fn take(&self, report: &SectionReport) {
        self.blocks_checked.fetch_add(report.checked, Relaxed);
        self.blocks_found.fetch_add(report.found.iter().sum(), Relaxed);
        self.blocks_repaired.fetch_add(report.repaired.iter().sum(), Relaxed);
        self.blocks_damaged.fetch_add(report.damaged, Relaxed);
    }
}
