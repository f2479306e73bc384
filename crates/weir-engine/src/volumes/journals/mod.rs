//! Write journals of volumes: a journal and the slow file behind it look like one drive.
//!
//! A volume owns one journal on each fast drive that needs one. No other volume can fill the journal, and
//! it is created and deleted with the volume. `weir-journal` decides which data is written where and when.
//! This module holds the state of a journal ([`VolumeJournal`]) and its replicas ([`Binding`]).
//!
//! * [`asking`] passes a replica's requests to its journal and returns the answers.
//! * [`doing`] carries out the actions of a journal.
//! * [`reading`] reads data that is partly in the journal and partly in the slow file.
//! * [`bindings`] follows replicas that come and go.
//! * [`snapshot_reads`] gives what a journal holds to snapshots.
//! * [`draining`] empties journals that receive no writes.
//!
//! It knows the volume by its number alone, and answers with [`JournalEffect`]s what the volume has to do.

mod asking;
mod bindings;
mod desk;
mod doing;
mod draining;
mod faults;
mod flights;
mod reading;
mod set;
mod snapshot_reads;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;

use weir_engine_interface::{Content, FileIdentity, OpenFile, OpenVolume};
use weir_journal::{Action, DestageFault, DestageId, FileId, FileKey, Journal, Ticket};
use weir_reactor::Descriptor;
use weir_types::{DriveId, ExtentIndex, VolumeId};

use crate::token::VolumeIndex;
pub use asking::Asked;
use asking::Unasked;
pub use desk::{Desk, JournalEffect};
pub use draining::LOOK_INTERVAL_NS;
use flights::Flight;
pub use flights::Wanted;
use set::JournalSet;

/// The journal binding of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding {
    /// Index of the journal in the volume.
    pub journal: usize,
    /// The replica's file in the journal.
    pub file: FileId,
}

/// The journals of one volume.
pub struct VolumeJournals {
    volume: VolumeIndex,
    id: VolumeId,
    /// Where the state of the journals is published.
    open: OpenVolume,
    /// Replicas that lost the data in their journal. They never come back.
    invalidated: BTreeSet<(ExtentIndex, usize)>,
    effects: Vec<JournalEffect>,
    all: JournalSet,
    bindings: BTreeMap<(ExtentIndex, usize), Binding>,
    /// Pieces that journals had of replicas when the opening of these replicas began.
    opening: BTreeMap<(ExtentIndex, usize), Vec<u32>>,
    /// What helper threads read for snapshots.
    snapshot_pins: snapshot_reads::Pins,
}

/// One journal.
pub struct VolumeJournal {
    /// The volume and the journal's index in it.
    place: (VolumeIndex, usize),
    drive: DriveId,
    /// The journal's home in the volume.
    home: usize,
    directory: PathBuf,
    file: Descriptor,
    size_bytes: u64,
    core: Journal,
    /// Requests that are not answered.
    asked: BTreeMap<Ticket, Asked>,
    last_ticket: u64,
    /// Requests that the journal could not accept yet, because its queue is full.
    unasked: VecDeque<Unasked>,
    /// Operations that the kernel carries out for the journal.
    flights: BTreeMap<u64, Flight>,
    last_flight: u64,
    /// Parts of the current record that are under way, and whether one failed.
    record: Parts<()>,
    destages: BTreeMap<DestageId, Parts<DestageFault>>,
    files: BTreeMap<FileId, SlowFile>,
    /// No new operation is begun for the journal.
    is_stopped: bool,
    has_failed: bool,
    /// Time of the last write to the journal, in nanoseconds.
    changed_ns: u64,
    is_draining: bool,
    /// The published state says that the journal is empty.
    is_told_empty: bool,
    /// Requests for stability that were answered, and the time that they took in all, in nanoseconds.
    commits: u64,
    commit_ns: u64,
}

/// Progress of an operation that is done in parts.
#[derive(Clone, Copy, Debug)]
struct Parts<F> {
    left: usize,
    fault: Option<F>,
}

impl<F> Default for Parts<F> {
    fn default() -> Parts<F> {
        Parts { left: 0, fault: None }
    }
}

impl<F> Parts<F> {
    /// A part has ended. Answers the result of the whole operation if it was the last part.
    fn end_one(&mut self, result: Result<(), F>) -> Option<Result<(), F>> {
        self.left -= 1;
        self.fault = self.fault.take().or(result.err());
        (self.left == 0).then(|| self.fault.take().map_or(Ok(()), Err))
    }
}

/// A file behind a journal.
pub struct SlowFile {
    key: FileKey,
    /// The file's home in the volume, if it is known.
    home: Option<usize>,
    /// The open file, once the replica was opened.
    descriptor: Option<Descriptor>,
    /// Actions that wait for the file to be opened.
    parked: Vec<Action>,
    is_forgetting: bool,
    /// The journal has forgotten the file, but an operation on it is still under way.
    is_forgotten: bool,
}

impl SlowFile {
    fn new(key: FileKey, home: Option<usize>, descriptor: Option<Descriptor>) -> SlowFile {
        SlowFile { key, home, descriptor, parked: Vec::new(), is_forgetting: false, is_forgotten: false }
    }
}

/// The key of a replica in a journal.
fn key_of(volume: VolumeId, (extent, slot): (ExtentIndex, usize)) -> FileKey {
    FileKey { volume, extent, replica: u8::try_from(slot).expect("replicas have small numbers") }
}

/// The replica with this key in a journal.
fn replica_of(key: FileKey) -> (ExtentIndex, usize) {
    (key.extent, key.replica.into())
}

impl VolumeJournals {
    pub fn new(volume: VolumeIndex, id: VolumeId, open: OpenVolume) -> VolumeJournals {
        VolumeJournals {
            volume,
            id,
            open,
            invalidated: BTreeSet::new(),
            effects: Vec::new(),
            all: JournalSet::default(),
            bindings: BTreeMap::new(),
            opening: BTreeMap::new(),
            snapshot_pins: snapshot_reads::Pins::new(),
        }
    }

    /// The effects to carry out, in order.
    pub fn effects(&mut self) -> std::vec::Drain<'_, JournalEffect> {
        self.effects.drain(..)
    }

    /// The binding of an extent replica, if it is behind a journal.
    pub fn binding(&self, extent: ExtentIndex, slot: usize) -> Option<Binding> {
        self.bindings.get(&(extent, slot)).copied()
    }

    /// The home of a replica's journal, if the replica is behind one.
    pub fn home_of(&self, extent: ExtentIndex, slot: usize) -> Option<usize> {
        if self.bindings.is_empty() {
            return None;
        }
        self.binding(extent, slot).map(|binding| self.all.at(binding.journal).home)
    }

    /// The home whose drive queue a replica uses: its journal's home if it is behind one, its own otherwise.
    pub fn home_or(&self, extent: ExtentIndex, slot: usize, own: Option<usize>) -> Option<usize> {
        self.home_of(extent, slot).or(own)
    }

    /// The log that takes a replica's writes first, if the replica is behind a journal.
    pub fn log_of(&self, extent: ExtentIndex, slot: usize) -> Option<&Descriptor> {
        self.binding(extent, slot).map(|binding| &self.all.at(binding.journal).file)
    }

    /// The open log of the journal on a drive. `None` without a journal, or if the journal has failed.
    pub fn log_on(&self, drive: DriveId) -> Option<OpenFile> {
        let journal = self.all.at(self.all.on(drive)?);
        let stat = rustix::fs::fstat(&journal.file).ok().filter(|_| !journal.has_failed)?;
        let identity = FileIdentity { device: stat.st_dev, inode: stat.st_ino };
        let (path, size_bytes) = (weir_store::journal::log_path(&journal.directory), journal.size_bytes);
        Some(OpenFile { volume: self.id, content: Content::Journal, path, identity, size_bytes })
    }

    /// Path of a replica's metadata, if the replica is behind a journal.
    pub fn metadata_path(&self, extent: ExtentIndex, slot: usize) -> Option<PathBuf> {
        let binding = self.binding(extent, slot)?;
        let folder = &self.all.at(binding.journal).directory;
        Some(weir_store::journal::journaled_metadata_path(folder, extent, slot))
    }

    /// True if any journal has a file of the replica.
    pub fn knows(&self, extent: ExtentIndex, slot: usize) -> bool {
        let key = key_of(self.id, (extent, slot));
        self.all.files().any(|file| file.key == key)
    }

    /// True if any journal still holds data of a replica that it was told to forget.
    pub fn is_forgetting(&self, extent: ExtentIndex, slot: usize) -> bool {
        let key = key_of(self.id, (extent, slot));
        self.all.files().any(|file| file.is_forgetting && file.key == key)
    }

    /// True while any journal forgets replicas from this extent on, or trims data beyond the volume's end.
    pub fn is_cutting(&self, first: u32) -> bool {
        let is_trimming = |journal: &VolumeJournal| journal.asked.values().any(Asked::is_trim);
        self.all.files().any(|file| file.is_forgetting && !file.key.extent.is_within(first))
            || self.all.iter().any(is_trimming)
    }

    /// True if the file of a replica is open.
    fn is_open(&self, binding: Binding) -> bool {
        self.all.at(binding.journal).files.get(&binding.file).is_some_and(|file| file.descriptor.is_some())
    }

    /// Begins no further operation of any journal. True if no operation is under way.
    pub fn stop(&mut self) -> bool {
        let mut is_quiet = true;
        for journal in self.all.iter_mut() {
            journal.is_stopped = true;
            is_quiet &= journal.flights.is_empty();
        }
        is_quiet
    }
}
