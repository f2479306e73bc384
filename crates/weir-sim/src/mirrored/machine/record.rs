//! The epoch records of the simulated machine, in a file behind a page cache. They know no drive and no replica.

use std::collections::{BTreeMap, BTreeSet};

use weir_types::ExtentIndex;
use weir_volume::mirror::epoch_record::{RecordBlock, RecordBlocks};
use weir_volume::mirror::{EpochRecord, MetadataFault, epoch_record};

use crate::requests::EXTENTS;

/// The file of the epoch records behind a page cache. The cache takes pages for clean once a sync of them has
/// failed.
#[derive(Debug, Default)]
struct Record {
    pages: BTreeMap<u64, RecordBlock>,
    dirty: BTreeSet<u64>,
    durable: BTreeMap<u64, RecordBlock>,
    /// Fault of writes to the file, while they fail.
    fault: Option<MetadataFault>,
    /// True if a failing sync writes the pages all the same.
    is_kept: bool,
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
    fn found(&mut self) -> Vec<EpochRecord> {
        epoch_record::read_all(self, EXTENTS.into()).expect("reading does not fail")
    }

    /// Ends the daemon. The kernel writes dirty pages, and the next start reads past the cache.
    fn lose_cache(&mut self) {
        for block in std::mem::take(&mut self.dirty) {
            self.durable.insert(block, self.pages[&block]);
        }
        self.lose_power();
    }

    /// Loses power: all pages without a successful sync are lost.
    fn lose_power(&mut self) {
        (self.pages, self.dirty) = (self.durable.clone(), BTreeSet::new());
    }
}

/// The epoch records of all extents.
#[derive(Debug)]
pub(in crate::mirrored) struct EpochRecords {
    file: Record,
    /// Epoch record of each extent, as last read from the file.
    last_read: Vec<EpochRecord>,
    /// Extents and epochs whose recording as committed failed and is retried.
    retried: BTreeSet<(ExtentIndex, u64)>,
}

impl EpochRecords {
    /// The records of a volume whose extents all begin with this epoch, if they have one.
    pub fn new(epoch: Option<u64>) -> EpochRecords {
        let mut file = Record::default();
        if let Some(epoch) = epoch {
            epoch_record::begin(&mut file, ExtentIndex(0)..ExtentIndex(EXTENTS), new_record(epoch))
                .expect("it is well");
        }
        let last_read = file.found();
        EpochRecords { file, last_read, retried: BTreeSet::new() }
    }

    /// Epoch record of each extent, as last read from the file.
    pub fn last_read(&self) -> &[EpochRecord] {
        &self.last_read
    }

    /// True if the file can be written.
    pub fn is_well(&self) -> bool {
        self.file.fault.is_none()
    }

    pub fn set_fault(&mut self, fault: Option<MetadataFault>) {
        self.file.fault = fault;
    }

    /// Says whether the next sync, if it fails, writes the pages all the same.
    pub fn keep_pages(&mut self, is_kept: bool) {
        self.file.is_kept = is_kept;
    }

    /// Raises the epoch of an extent in the file. `error` is the fault of this write alone.
    pub fn raise(
        &mut self,
        (extent, epoch, is_committed): (ExtentIndex, u64, bool),
        error: Option<MetadataFault>,
    ) -> Result<(), MetadataFault> {
        let fault = self.file.fault;
        self.file.fault = fault.or(error);
        let result = epoch_record::raise(&mut self.file, extent, epoch, is_committed);
        self.file.fault = fault;
        self.last_read = self.file.found();
        result
    }

    /// Notes whether an epoch was recorded as committed. True for a success after a failure, which is doubtful.
    pub fn note_committed(&mut self, extent: ExtentIndex, epoch: u64, has_failed: bool) -> bool {
        if has_failed {
            self.retried.insert((extent, epoch));
            return false;
        }
        self.retried.remove(&(extent, epoch))
    }

    /// Records that the last replica of an extent failed.
    pub fn fail(&mut self, extent: ExtentIndex) -> Result<(), MetadataFault> {
        epoch_record::fail(&mut self.file, extent)
    }

    /// Accepts all recorded failures, as an operator would. True if there were any.
    pub fn accept_failures(&mut self) -> bool {
        let records = ExtentIndex::first(EXTENTS).zip(self.file.found());
        let failed: Vec<ExtentIndex> =
            records.filter(|(_, one)| one.is_failed).map(|(extent, _)| extent).collect();
        for extent in &failed {
            epoch_record::accept(&mut self.file, *extent).expect("nothing fails after a start");
        }
        !failed.is_empty()
    }

    /// Begins the records of extents that are created again from this one on, and returns their first epoch. It
    /// is above earlier ones, unless those are to be ignored by a deliberate mistake.
    pub fn begin_again(&mut self, first: ExtentIndex, are_earlier_ignored: bool) -> u64 {
        let mut earlier = self.file.found().split_off(first.index());
        if are_earlier_ignored {
            earlier.clear();
        }
        let new = new_record(epoch_record::first_epoch(&earlier));
        epoch_record::begin(&mut self.file, first..ExtentIndex(EXTENTS), new).expect("it is well");
        self.last_read[first.index()..].fill(new);
        new.allocated
    }

    /// Ends the daemon, or the power of the machine, and reads the file again.
    pub fn restart(&mut self, is_kill: bool) {
        match is_kill {
            true => self.file.lose_cache(),
            false => self.file.lose_power(),
        }
        self.last_read = self.file.found();
        self.retried.clear();
    }
}

fn new_record(epoch: u64) -> EpochRecord {
    EpochRecord { allocated: epoch, committed: epoch, is_failed: false }
}
