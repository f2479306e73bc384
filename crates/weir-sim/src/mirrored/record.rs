//! The file of the epoch records in the simulated machine, behind a page cache. It knows no drive and no replica.

use std::collections::{BTreeMap, BTreeSet};

use weir_volume::mirror::epoch_record::{RecordBlock, RecordBlocks};
use weir_volume::mirror::{EpochRecord, MetadataFault, epoch_record};

use crate::requests::EXTENTS;

/// The file of the epoch records behind a page cache. The cache takes pages for clean once a sync of them has
/// failed.
#[derive(Debug, Default)]
pub(super) struct Record {
    pages: BTreeMap<u64, RecordBlock>,
    dirty: BTreeSet<u64>,
    durable: BTreeMap<u64, RecordBlock>,
    /// Fault of writes to the file, while they fail.
    pub fault: Option<MetadataFault>,
    /// True if a failing sync writes the pages all the same.
    pub is_kept: bool,
}

impl RecordBlocks for Record {
    type Error = MetadataFault;

    fn read(&mut self, block: u64) -> Result<RecordBlock, MetadataFault> {
        Ok(self.pages.get(&block).copied().unwrap_or_default())
    }

    fn write(&mut self, block: u64, content: &RecordBlock) -> Result<(), MetadataFault> {
        if self.fault == Some(MetadataFault::Shortage) {
            return Err(MetadataFault::Shortage);
        }
        self.pages.insert(block, *content);
        self.dirty.insert(block);
        Ok(())
    }

    fn sync(&mut self) -> Result<(), MetadataFault> {
        let written = std::mem::take(&mut self.dirty);
        if self.fault.is_none() || self.is_kept {
            written.into_iter().for_each(|block| _ = self.durable.insert(block, self.pages[&block]));
        }
        self.fault.map_or(Ok(()), Err)
    }
}

impl Record {
    /// The file of a volume whose extents all begin with this epoch.
    pub fn new(epoch: u64) -> Record {
        let mut record = Record::default();
        let new = EpochRecord { allocated: epoch, committed: epoch, is_failed: false };
        epoch_record::begin(&mut record, 0..EXTENTS, new).expect("it is well");
        record
    }

    pub fn found(&mut self) -> Vec<EpochRecord> {
        epoch_record::read_all(self, EXTENTS.into()).expect("reading does not fail")
    }

    /// True if the file can be written.
    pub fn is_well(&self) -> bool {
        self.fault.is_none()
    }

    /// Ends the daemon. The kernel writes dirty pages, and the next start reads past the cache.
    pub fn lose_cache(&mut self) -> Vec<EpochRecord> {
        for block in std::mem::take(&mut self.dirty) {
            self.durable.insert(block, self.pages[&block]);
        }
        self.lose_power()
    }

    /// Loses power: all pages without a successful sync are lost.
    pub fn lose_power(&mut self) -> Vec<EpochRecord> {
        (self.pages, self.dirty) = (self.durable.clone(), BTreeSet::new());
        self.found()
    }
}
