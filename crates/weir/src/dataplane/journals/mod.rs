//! The write journals of volumes: to whoever serves a replica on a slow drive, a journal and the slow file are one drive.
//!
//! A volume has one journal on each fast drive that needs one, and owns it: no other volume can fill it, and it comes and
//! goes with the volume. What is written where and when is decided in `weir-journal`; here is where its state is kept
//! ([`VolumeJournal`]), and which replicas are behind it ([`Binding`]). [`asking`] hands over what a replica is asked for and gives
//! the answers back, [`doing`] carries out what a journal wants done, [`reading`] gathers what lies in several places,
//! [`bindings`] follows replicas that come and go, [`draining`] empties journals that nobody writes to.

mod asking;
mod bindings;
mod doing;
mod draining;
mod reading;

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use weir_journal::{Action, DestageFault, DestageId, FileId, FileKey, Journal, Ticket};
use weir_reactor::Descriptor;
use weir_types::DriveId;

use super::command::NewHome;
use super::{FileIdentity, VolumeHome};
use asking::{Asked, Unasked};
use doing::Flight;
pub(super) use doing::Site;

/// A journal that was recovered and is to serve a volume, as control gives it.
pub struct JournalSpec {
    /// The drive that it lies on, as a home of the volume.
    pub home: VolumeHome,
    /// Its folder.
    pub directory: PathBuf,
    /// Its state.
    pub core: Journal,
    /// Its file.
    pub file: OwnedFd,
    /// How long that is, in bytes.
    pub size_bytes: u64,
    /// The replicas that are behind it, by extent and number, with their files, where it holds something of them.
    pub bindings: Vec<((u32, usize), Option<OwnedFd>)>,
    /// Replicas of which nobody can tell at present whether they are behind it, because their drives are missing: what it
    /// holds of them stays. What it holds of any others is forgotten.
    pub keeps: Vec<(u32, usize)>,
}

/// A [`JournalSpec`] on its way to a reactor.
pub(super) struct NewJournal {
    pub spec: JournalSpec,
    pub home: NewHome,
}

/// Where a replica that is behind a journal stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Binding {
    /// Which journal of the volume.
    pub journal: usize,
    /// Its name there.
    pub file: FileId,
}

/// The journals of one volume.
#[derive(Default)]
pub(super) struct VolumeJournals {
    /// A journal keeps its place as long as the volume is open.
    all: Vec<Option<VolumeJournal>>,
    bindings: BTreeMap<(u32, usize), Binding>,
    /// What journals had of replicas when these began to be opened.
    opening: BTreeMap<(u32, usize), Vec<u32>>,
}

/// One journal.
pub(super) struct VolumeJournal {
    drive: DriveId,
    /// The home of the volume that it lies on.
    home: usize,
    directory: PathBuf,
    file: Descriptor,
    size_bytes: u64,
    core: Journal,
    /// What was asked for and is not answered.
    asked: BTreeMap<Ticket, Asked>,
    last_ticket: u64,
    /// What could not be asked for yet, because too much waits.
    unasked: VecDeque<Unasked>,
    /// What the kernel is doing for it.
    flights: BTreeMap<u64, Flight>,
    last_flight: u64,
    /// Parts of the record that is being written which are under way, and whether one failed.
    record: Parts<()>,
    destages: BTreeMap<DestageId, Parts<DestageFault>>,
    files: BTreeMap<FileId, SlowFile>,
    /// Nothing new is begun for it any more.
    is_stopped: bool,
    has_failed: bool,
    /// When something was written to it last, in nanoseconds.
    changed_ns: u64,
    is_draining: bool,
    /// What everybody sees says that it holds nothing.
    is_told_empty: bool,
}

/// Something that is done in parts.
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
    /// One has ended; the end of all, if it was the last.
    fn end_one(&mut self, result: Result<(), F>) -> Option<Result<(), F>> {
        self.left -= 1;
        self.fault = self.fault.take().or(result.err());
        (self.left == 0).then(|| self.fault.take().map_or(Ok(()), Err))
    }
}

/// A file behind a journal.
struct SlowFile {
    key: FileKey,
    /// The home of the volume that it lies on, if it is known.
    home: Option<usize>,
    /// Open, once the replica was opened.
    descriptor: Option<Descriptor>,
    /// What is to be done with it once it is open.
    parked: Vec<Action>,
    is_forgetting: bool,
    /// It is forgotten, and something is still being done with it.
    is_forgotten: bool,
}

impl SlowFile {
    fn new(key: FileKey, home: Option<usize>, descriptor: Option<Descriptor>) -> SlowFile {
        SlowFile { key, home, descriptor, parked: Vec::new(), is_forgetting: false, is_forgotten: false }
    }
}

/// The name of a replica in a journal.
fn key_of((extent, slot): (u32, usize)) -> FileKey {
    FileKey { extent, replica: u8::try_from(slot).expect("replicas have small numbers") }
}

/// The replica that has a name in a journal.
fn replica_of(key: FileKey) -> (u32, usize) {
    (key.extent, key.replica.into())
}

impl VolumeJournals {
    /// Where a replica of an extent stands, if it is behind a journal.
    pub fn binding(&self, extent: u32, slot: usize) -> Option<Binding> {
        self.bindings.get(&(extent, slot)).copied()
    }

    /// The home where the journal of a replica lies, if it is behind one.
    pub fn home_of(&self, extent: u32, slot: usize) -> Option<usize> {
        if self.bindings.is_empty() {
            return None;
        }
        self.binding(extent, slot).map(|binding| self.at(binding.journal).home)
    }

    /// The log that a replica's writes go to first, if it is behind a journal.
    pub fn log_of(&self, extent: u32, slot: usize) -> Option<&Descriptor> {
        self.binding(extent, slot).map(|binding| &self.at(binding.journal).file)
    }

    /// Where the log of the journal on a drive was opened, which file that was, and how long, in bytes. `None` if there is
    /// none, or if it has failed.
    pub fn log_on(&self, drive: DriveId) -> Option<(PathBuf, FileIdentity, u64)> {
        let journal = self.at(self.on(drive)?);
        let stat = rustix::fs::fstat(&journal.file).ok().filter(|_| !journal.has_failed)?;
        let identity = FileIdentity { device: stat.st_dev, inode: stat.st_ino };
        Some((weir_store::journal::log_path(&journal.directory), identity, journal.size_bytes))
    }

    /// Path of the metadata of a replica, if it is behind a journal.
    pub fn metadata_path(&self, extent: u32, slot: usize) -> Option<PathBuf> {
        let binding = self.binding(extent, slot)?;
        let folder = &self.at(binding.journal).directory;
        Some(weir_store::journal::journaled_metadata_path(folder, extent, slot))
    }

    /// The place of the journal on a drive.
    fn on(&self, drive: DriveId) -> Option<usize> {
        self.all.iter().position(|journal| journal.as_ref().is_some_and(|journal| journal.drive == drive))
    }

    fn at(&self, journal: usize) -> &VolumeJournal {
        self.all[journal].as_ref().expect("a journal is asked for while it is there")
    }

    fn at_mut(&mut self, journal: usize) -> &mut VolumeJournal {
        self.all[journal].as_mut().expect("a journal is asked for while it is there")
    }

    fn journal_indices(&self) -> Vec<usize> {
        (0..self.all.len()).filter(|journal_index| self.all[*journal_index].is_some()).collect()
    }

    /// True if any journal has, or had, something of a replica.
    pub fn knows(&self, extent: u32, slot: usize) -> bool {
        let key = key_of((extent, slot));
        self.files().any(|file| file.key == key)
    }

    /// True if any journal still has something of a replica that it was told to forget.
    pub fn is_forgetting(&self, extent: u32, slot: usize) -> bool {
        let key = key_of((extent, slot));
        self.files().any(|file| file.is_forgetting && file.key == key)
    }

    /// True if any journal still has something of extents from this one on that it was told to forget, or is giving up
    /// what lies beyond the volume's end.
    pub fn is_cutting(&self, first: u32) -> bool {
        let is_trimming = |journal: &VolumeJournal| journal.asked.values().any(Asked::is_trim);
        self.files().any(|file| file.is_forgetting && file.key.extent >= first)
            || self.all.iter().flatten().any(is_trimming)
    }

    /// True if the file of a replica is open.
    fn is_open(&self, binding: Binding) -> bool {
        self.at(binding.journal).files.get(&binding.file).is_some_and(|file| file.descriptor.is_some())
    }

    fn files(&self) -> impl Iterator<Item = &SlowFile> {
        self.all.iter().flatten().flat_map(|journal| journal.files.values())
    }

    /// Begins nothing more for any journal; true if nothing is under way.
    pub fn stop(&mut self) -> bool {
        let mut is_quiet = true;
        for journal in self.all.iter_mut().flatten() {
            journal.is_stopped = true;
            is_quiet &= journal.flights.is_empty();
        }
        is_quiet
    }
}
