//! What is known of a volume at rest, for everybody to see: damaged blocks, sections with valid checksums, and what scrubs have found.
//! It knows nothing of how that is found.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard, PoisonError};

use weir_types::bounds::SECTION_BYTES;
use weir_volume::mirror::{Damaged, SectionReport};

/// What is known of a volume at rest. One reactor writes it.
#[derive(Debug, Default)]
pub struct ChecksumStatistics {
    extents: Mutex<BTreeMap<u32, ExtentCounters>>,
    checked: AtomicU64,
    found: AtomicU64,
    repaired: AtomicU64,
}

#[derive(Debug, Default)]
struct ExtentCounters {
    damaged: Vec<Damaged>,
    valid_sections: u32,
}

/// What was known at an instant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChecksumCounters {
    /// By extent, the blocks of which no replica is known to be good, in order.
    pub damaged: BTreeMap<u32, Vec<Damaged>>,
    /// Bytes for which checksums are kept that count.
    pub checksummed_bytes: u64,
    /// Blocks of replicas that scrubs have examined since the volume was opened.
    pub blocks_checked: u64,
    /// Blocks of these that were not as they should be.
    pub blocks_found: u64,
    /// Blocks of those that were repaired.
    pub blocks_repaired: u64,
}

impl ChecksumStatistics {
    fn extents(&self) -> MutexGuard<'_, BTreeMap<u32, ExtentCounters>> {
        self.extents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known now.
    pub fn counters(&self) -> ChecksumCounters {
        let extents = self.extents();
        let damaged = extents.iter().filter(|(_, rest)| !rest.damaged.is_empty());
        ChecksumCounters {
            damaged: damaged.map(|(extent, rest)| (*extent, rest.damaged.clone())).collect(),
            checksummed_bytes: extents
                .values()
                .map(|rest| u64::from(rest.valid_sections) * SECTION_BYTES)
                .sum(),
            blocks_checked: self.checked.load(Relaxed),
            blocks_found: self.found.load(Relaxed),
            blocks_repaired: self.repaired.load(Relaxed),
        }
    }

    /// This is known of an extent now.
    pub fn is(&self, extent: u32, damaged: &[Damaged], valid_sections: u32) {
        let mut extents = self.extents();
        match damaged.is_empty() && valid_sections == 0 {
            true => _ = extents.remove(&extent),
            false => {
                _ = extents.insert(extent, ExtentCounters { damaged: damaged.to_vec(), valid_sections });
            }
        }
    }

    /// Nothing is known any more.
    pub fn forget(&self) {
        self.extents().clear();
    }

    /// A section was scrubbed.
    pub fn scrubbed(&self, report: &SectionReport) {
        self.checked.fetch_add(report.checked, Relaxed);
        self.found.fetch_add(report.found.iter().sum::<u64>() + report.damaged, Relaxed);
        self.repaired.fetch_add(report.repaired.iter().sum(), Relaxed);
    }
}
