//! Replica metadata I/O: the thin shell of [`MetadataWrites`], which decides when to write replica metadata
//! and epoch records.
//!
//! This module does not know the meaning of replica metadata. One helper thread per drive writes the files,
//! so that a drive that hangs delays no other. Answers of an emulated drive are held back until its model
//! would have answered.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;

use weir_store::replica_metadata::metadata_file_name;
use weir_types::ExtentIndex;
use weir_volume::Mirror;
use weir_volume::mirror::{MetadataAction, MetadataFault, MetadataRequest, MetadataWrites, Slots};
use weir_volume::mirror::{ReplicaMetadata, Written};

use crate::emulation::Emulated;
use crate::helper::{Job, MetadataError};
use crate::io::Io;
use crate::token::{AskNumber, ReplicaIndex, VolumeIndex};
use crate::volumes::failure_reasons::PartReasons;
use crate::volumes::journals::VolumeJournals;
use crate::volumes::missing_answers::NO_ANSWER;
use crate::volumes::operations::Operations;
use crate::volumes::orphans::OrphanedIo;
use crate::volumes::volume_files::VolumeFiles;

/// Result of writing the metadata of an extent replica.
pub type Answered = (ReplicaIndex, ExtentIndex, AskNumber, Result<(), MetadataError>);

/// What the metadata of a volume may use of the volume while it works.
pub struct Desk<'a> {
    pub io: &'a mut Io,
    pub files: &'a VolumeFiles,
    pub journals: &'a VolumeJournals,
    pub emulated: &'a mut Emulated,
    pub operations: &'a mut Operations,
    pub mirror: &'a Mirror,
}

/// A write has ended, and the mirror has to be told.
pub struct EndedWrite {
    pub extent: ExtentIndex,
    pub written: Written,
    /// Why it failed, or why replicas did not take it.
    pub reasons: PartReasons,
}

/// The writes of replica metadata and epoch records of one volume.
pub struct VolumeMetadata {
    volume: VolumeIndex,
    /// The file with the volume's epoch records.
    epoch_records: PathBuf,
    writes: MetadataWrites,
    /// What the writes decided and is not carried out yet, in order.
    decided: VecDeque<MetadataAction>,
    /// The number of the expected answer, by slot and extent.
    asked: BTreeMap<(usize, ExtentIndex), AskNumber>,
    /// Why parts of a write failed, by extent, until the write has ended.
    reasons: BTreeMap<ExtentIndex, PartReasons>,
    /// Extents with an alarm that their replica metadata cannot be written.
    alarms: BTreeSet<ExtentIndex>,
}

impl VolumeMetadata {
    pub fn new(volume: VolumeIndex, epoch_records: PathBuf) -> VolumeMetadata {
        VolumeMetadata {
            volume,
            epoch_records,
            writes: MetadataWrites::default(),
            decided: VecDeque::new(),
            asked: BTreeMap::new(),
            reasons: BTreeMap::new(),
            alarms: BTreeSet::new(),
        }
    }

    /// Forgets extents beyond the end of a volume.
    pub fn truncate(&mut self, extents: u32) {
        self.writes.truncate(extents);
    }

    /// Begins writing the metadata of an extent's replicas.
    pub fn begin(&mut self, request: MetadataRequest, desk: &mut Desk<'_>) -> Vec<MetadataAction> {
        let mut actions = Vec::new();
        desk.operations.begin();
        self.writes.ask(request, &mut actions);
        actions
    }

    /// The next action to carry out that answers decided.
    pub fn next_decided(&mut self) -> Option<MetadataAction> {
        self.decided.pop_front()
    }

    /// Takes the result of writing the epoch record.
    pub fn epoch_recorded(
        &mut self,
        extent: ExtentIndex,
        result: Result<(), MetadataError>,
        desk: &mut Desk<'_>,
    ) {
        let mut actions = Vec::new();
        let result = self.note_reason(extent, None, result);
        self.writes.recorded(desk.io.now_ns, extent, desk.mirror.in_service(extent), result, &mut actions);
        self.decided.extend(actions);
    }

    /// Takes a drive's answer to a write of replica metadata. False if the answer was given up before.
    pub fn written(&mut self, (replica, extent, number, result): Answered) -> bool {
        let (key, mut actions) = ((replica.slot, extent), Vec::new());
        if self.asked.get(&key) != Some(&number) {
            return false;
        }
        self.asked.remove(&key);
        let result = self.note_reason(extent, Some(replica.slot), result);
        self.writes.written(extent, replica.slot, result, &mut actions);
        self.decided.extend(actions);
        true
    }

    /// Retries failed writes.
    pub fn retry(&mut self, now_ns: u64) {
        let mut actions = Vec::new();
        self.writes.retry(now_ns, &mut actions);
        self.decided.extend(actions);
    }

    /// Gives up writes of replica metadata that were due before `before_ns`, if in-sync replicas have the
    /// metadata. The replicas that have not answered fail.
    pub fn give_up_stalled(&mut self, before_ns: u64, mirror: &Mirror) {
        let mut actions = Vec::new();
        self.writes.give_up_stalled(before_ns, |extent| mirror.in_sync(extent), &mut actions);
        self.decided.extend(actions);
    }

    /// Carries out an action. Answers the end of a write, whose consequences are for the volume.
    pub fn act(&mut self, action: MetadataAction, desk: &mut Desk<'_>) -> Option<EndedWrite> {
        match action {
            MetadataAction::Record { extent, epoch, is_committed } => {
                let (volume, path) = (self.volume, self.epoch_records.clone());
                desk.io.helper.submit(Job::EpochRecord { volume, path, extent, epoch, is_committed });
            }
            MetadataAction::Write { extent, slots, metadata, anew } => {
                self.write(extent, (slots, anew), &metadata, desk);
            }
            MetadataAction::GiveUp { extent, slots } => self.give_up(extent, slots, desk.operations),
            MetadataAction::Ended { extent, written } => {
                desk.operations.end();
                let reasons = self.reasons.remove(&extent).unwrap_or_default();
                return Some(EndedWrite { extent, written, reasons });
            }
        }
        None
    }

    fn write(
        &mut self,
        extent: ExtentIndex,
        (slots, anew): (Slots, Slots),
        metadata: &Arc<ReplicaMetadata>,
        desk: &mut Desk<'_>,
    ) {
        let now_ns = desk.io.now_ns;
        for slot in slots.iter() {
            let home = desk.journals.home_or(extent, slot, desk.files.home_of(slot, extent));
            let home = home.expect("the mirror writes beside replicas that there are");
            let due_ns = desk.emulated.note(now_ns, home, extent);
            self.writes.expect(extent, now_ns.max(due_ns));
            let number = desk.operations.next_number();
            self.asked.insert((slot, extent), number);
            let (drive, directory) = (desk.files.homes[home].drive, &desk.files.homes[home].directory);
            let journaled = desk.journals.metadata_path(extent, slot);
            let path = journaled.unwrap_or_else(|| directory.join(metadata_file_name(extent)));
            let (replica, metadata) = (ReplicaIndex { volume: self.volume, slot }, Arc::clone(metadata));
            let is_anew = anew.contains(slot);
            let job =
                Job::ReplicaMetadata { replica, extent, number, drive, path, metadata, is_anew, due_ns };
            desk.io.helper.submit(job);
        }
    }

    fn give_up(&mut self, extent: ExtentIndex, slots: Slots, operations: &mut Operations) {
        for slot in slots.iter() {
            let number = self.asked.remove(&(slot, extent));
            let number = number.expect("only what a drive was asked for is given up");
            operations.begin();
            operations.orphan(slot, number, OrphanedIo { extent, queued: None, space: None });
            self.reasons.entry(extent).or_default().note(Some(slot), NO_ANSWER.to_owned());
        }
    }

    /// Records in the epoch record that the last in-sync replica of an extent failed.
    pub fn record_failure(&self, extent: ExtentIndex, desk: &mut Desk<'_>) {
        desk.operations.begin();
        let path = self.epoch_records.clone();
        desk.io.helper.submit(Job::Failure { volume: self.volume, path, extent });
    }

    /// Notes why the metadata of a replica, or an epoch record, could not be written.
    fn note_reason(
        &mut self,
        extent: ExtentIndex,
        slot: Option<usize>,
        result: Result<(), MetadataError>,
    ) -> Result<(), MetadataFault> {
        result.map_err(|error| {
            self.reasons.entry(extent).or_default().note(slot, error.message);
            error.fault
        })
    }

    /// Metadata of an extent cannot be written, which raises an alarm.
    pub fn alarm(&mut self, extent: ExtentIndex) {
        self.alarms.insert(extent);
    }

    /// Metadata of an extent was written. True if an alarm was raised that it cannot be.
    pub fn clear_alarm(&mut self, extent: ExtentIndex) -> bool {
        self.alarms.remove(&extent)
    }
}
