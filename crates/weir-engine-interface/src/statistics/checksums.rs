//! Checksum statistics: damaged blocks, sections with valid checksums, and the results of scrubs of a volume.
//!
//! Every thread may read them. They know nothing of how a scrub works.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard, PoisonError};

use weir_types::ExtentIndex;
use weir_types::bounds::SECTION_BYTES;
use weir_volume::Mirror;
use weir_volume::mirror::{Damaged, SectionReport};

/// Known state of a volume's data at rest. One reactor writes it.
#[derive(Debug, Default)]
pub struct ChecksumStatistics {
    extents: Mutex<BTreeMap<ExtentIndex, ExtentCounters>>,
    checked: AtomicU64,
    found: AtomicU64,
    repaired: AtomicU64,
}

#[derive(Debug, Default)]
struct ExtentCounters {
    damaged: Vec<Damaged>,
    valid_sections: u32,
}

/// Known state at one instant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChecksumCounters {
    /// By extent, the blocks of which no replica is known to be good, in order.
    pub damaged: BTreeMap<ExtentIndex, Vec<Damaged>>,
    /// Bytes that have valid checksums.
    pub checksummed_bytes: u64,
    /// Blocks of replicas that scrubs have examined since the volume was opened.
    pub blocks_checked: u64,
    /// Examined blocks that were bad.
    pub blocks_found: u64,
    /// Bad blocks that were repaired.
    pub blocks_repaired: u64,
}

impl ChecksumStatistics {
    fn extents(&self) -> MutexGuard<'_, BTreeMap<ExtentIndex, ExtentCounters>> {
        self.extents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Current counters.
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

    /// Publishes the damaged ranges and valid checksum sections of an extent.
    pub fn publish(&self, extent: ExtentIndex, mirror: &Mirror) {
        let (damaged, valid_sections) = (mirror.damaged(extent), mirror.valid_sections(extent));
        let mut extents = self.extents();
        match damaged.is_empty() && valid_sections == 0 {
            true => _ = extents.remove(&extent),
            false => {
                _ = extents.insert(extent, ExtentCounters { damaged: damaged.to_vec(), valid_sections });
            }
        }
    }

    /// Publishes the damaged ranges and valid checksum sections of all extents.
    pub fn publish_all(&self, mirror: &Mirror) {
        self.extents().clear();
        ExtentIndex::first(mirror.extents()).for_each(|extent| self.publish(extent, mirror));
    }

    /// Adds the result of a scrubbed section.
    pub fn scrubbed(&self, report: &SectionReport) {
        self.checked.fetch_add(report.checked, Relaxed);
        self.found.fetch_add(report.found.iter().sum::<u64>() + report.damaged, Relaxed);
        self.repaired.fetch_add(report.repaired.iter().sum(), Relaxed);
    }
}
