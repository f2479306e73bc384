//! Helper threads: file operations that io_uring does not have, or that would delay others on it.
//!
//! Examples are opening extents, finding data and holes, writing replica metadata, and the steps of
//! background work.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use weir_reactor::{Descriptor, Waker};
use weir_types::DriveId;
use weir_types::bounds::{ALLOCATION_BYTES, EXTENT_BYTES, STATUS_RUNS_MAX};
use weir_volume::mirror::{MetadataFault, ReplicaMetadata};
use weir_volume::{AllocationMap, Fault};

use super::background::{Done, Outcome, Step};
use super::checksums::{ChecksumAnswer, ChecksumJob};
use super::refusals::FileIdentity;
use super::space::{SpaceAnswer, SpaceJob};
use super::token::{AskNumber, ReplicaIndex, VolumeIndex};
use weir_store::extent_file::{check_whole, next_data, next_hole, open_whole};
use weir_store::{PendingDeletion, epoch_record, replica_metadata, snapshot};

/// Number of attempts to write replica metadata while the system is short of a resource, and the pause
/// between them.
const SHORTAGE_TRIES: u32 = 50;
const SHORTAGE_PAUSE: Duration = Duration::from_millis(100);

/// Work for a helper thread. Each job belongs to an extent being opened, a client's request or a step of
/// background work. The number of all three is bounded, so the queue is too.
pub(super) enum Job {
    /// Open an extent's file and map its data.
    Open { replica: ReplicaIndex, number: AskNumber, drive: DriveId, extent: u32, path: PathBuf },
    /// Tell data from holes in a range of an extent.
    Status { number: u64, drive: DriveId, path: PathBuf, offset: u32, length: u32 },
    /// Carry out a step of background work.
    Background { operation: usize, drive: DriveId, pending_deletion: PendingDeletion, step: Step },
    /// Write an epoch to the epoch record of an extent, as allocated or as committed.
    EpochRecord { volume: VolumeIndex, path: PathBuf, extent: u32, epoch: u64, is_committed: bool },
    /// Write to the epoch record of an extent that its last in-sync replica failed.
    Failure { volume: VolumeIndex, path: PathBuf, extent: u32 },
    /// Write the metadata of an extent replica. An emulated drive is done with it at `due_ns`.
    ReplicaMetadata {
        replica: ReplicaIndex,
        extent: u32,
        number: AskNumber,
        drive: DriveId,
        path: PathBuf,
        metadata: Arc<ReplicaMetadata>,
        /// The file is created anew, because an earlier write of it failed.
        is_anew: bool,
        due_ns: u64,
    },
    /// Take an extent replica into a snapshot: from offset `range.0` on, at most `range.1` bytes, by
    /// reflink if `can_share`.
    Snapshot {
        replica: ReplicaIndex,
        number: AskNumber,
        drive: DriveId,
        source: PathBuf,
        target: PathBuf,
        range: (u32, u32),
        can_share: bool,
    },
    /// Read or write the checksum file beside a replica.
    Checksums(Box<ChecksumJob>),
    /// Check whether a drive has space for an action.
    Space(Box<SpaceJob>),
}

/// A run of bytes that are all data or all hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub length: u32,
    pub is_hole: bool,
}

/// Why an extent's file could not be opened.
pub(super) struct OpenError {
    /// The fault, in words.
    pub message: String,
    /// [`Fault::Broken`] if the file is at fault. With any other fault the file may open later: the system
    /// was short of a resource, or the drive is away.
    pub fault: Fault,
}

/// The opened file of an extent.
pub(super) struct OpenedExtent {
    pub file: OwnedFd,
    /// The allocation pieces that hold data.
    pub map: AllocationMap,
    pub identity: FileIdentity,
}

/// Why replica metadata or an epoch record could not be written.
pub(super) struct MetadataError {
    /// Whether a resource is short, for example space, or the drive is broken.
    pub fault: MetadataFault,
    /// The fault, in words.
    pub message: String,
}

impl MetadataError {
    fn new(what: &str, path: &Path, error: &io::Error) -> MetadataError {
        let message = format!("{what} {} cannot be written: {error}", path.display());
        MetadataError { fault: metadata_fault(error), message }
    }
}

/// Answer to a [`Job`].
pub(super) enum Answer {
    Opened {
        replica: ReplicaIndex,
        number: AskNumber,
        extent: u32,
        result: Result<OpenedExtent, OpenError>,
    },
    Status {
        number: u64,
        result: Result<Vec<Run>, String>,
    },
    Background {
        operation: usize,
        outcome: Outcome,
    },
    EpochRecorded {
        volume: VolumeIndex,
        extent: u32,
        result: Result<(), MetadataError>,
    },
    FailureRecorded {
        volume: VolumeIndex,
        extent: u32,
        result: Result<(), MetadataError>,
    },
    WithMetadata {
        replica: ReplicaIndex,
        extent: u32,
        number: AskNumber,
        due_ns: u64,
        result: Result<(), MetadataError>,
    },
    /// With the offset in the extent up to which the snapshot has come.
    SnapshotEnded {
        replica: ReplicaIndex,
        number: AskNumber,
        result: Result<u32, String>,
    },
    Checksums(Box<ChecksumAnswer>),
    Space(SpaceAnswer),
}

/// The helper threads and their queues.
///
/// Each drive has threads of its own, one per duty, started with the first job: a drive that hangs delays
/// no other drive. Within a drive, opening waits neither for status queries nor for background work, and
/// replica metadata waits for none of the three.
///
/// A common thread takes over if a drive's thread cannot be started. Another common thread writes epoch
/// records.
pub(super) struct Helper {
    teller: Worker,
    epoch_record: Worker,
    of_drives: BTreeMap<(DriveId, Duty), Worker>,
    outbox: Sender<Answer>,
    waker: Waker,
    answers: Receiver<Answer>,
}

/// The duty of a drive's helper thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Duty {
    Open,
    Tell,
    Note,
    WriteHeaders,
    Survey,
    Reclaim,
    Snapshot,
}

impl Duty {
    fn name(self) -> &'static str {
        match self {
            Duty::Open => "opener",
            Duty::Tell => "teller",
            Duty::Note => "scribe",
            Duty::WriteHeaders => "sealer",
            Duty::Survey => "surveyor",
            Duty::Reclaim => "cleaner",
            Duty::Snapshot => "copier",
        }
    }
}

/// One thread and its jobs.
struct Worker {
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Helper {
    pub fn start(index: usize, waker: Waker) -> io::Result<Helper> {
        let (outbox, answers) = channel();
        let teller = Worker::start(format!("weir-teller-{index}"), outbox.clone(), waker.clone())?;
        let epoch_record = Worker::start(format!("weir-epoch-{index}"), outbox.clone(), waker.clone())?;
        Ok(Helper { teller, epoch_record, of_drives: BTreeMap::new(), outbox, waker, answers })
    }

    pub fn submit(&mut self, job: Job) {
        match job {
            Job::Open { drive, .. } => self.of_drive(drive, Duty::Open).submit(job),
            Job::Status { drive, .. } => self.of_drive(drive, Duty::Tell).submit(job),
            Job::Background { drive, .. } => self.of_drive(drive, Duty::Reclaim).submit(job),
            Job::EpochRecord { .. } | Job::Failure { .. } => self.epoch_record.submit(job),
            // In order: a metadata write that was given up ends before the next write of the same file
            // begins.
            Job::ReplicaMetadata { drive, .. } => self.of_drive(drive, Duty::Note).submit(job),
            Job::Snapshot { drive, .. } => self.of_drive(drive, Duty::Snapshot).submit(job),
            // In order, because one write may replace another.
            Job::Checksums(ref block_checksums) => {
                self.of_drive(block_checksums.drive, Duty::WriteHeaders).submit(job)
            }
            Job::Space(ref space) => self.of_drive(space.drive, Duty::Survey).submit(job),
        }
    }

    /// The thread of a drive for a duty. If the system cannot start it, the common thread takes over the
    /// job.
    fn of_drive(&mut self, drive: DriveId, duty: Duty) -> &Worker {
        let name = format!("weir-{}", duty.name());
        let start = || Worker::start(name, self.outbox.clone(), self.waker.clone());
        match self.of_drives.entry((drive, duty)) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => match start() {
                Ok(worker) => place.insert(worker),
                Err(error) => {
                    tracing::warn!(%drive, %error, "no thread for a drive's {}", duty.name());
                    &self.teller
                }
            },
        }
    }

    /// Ends the reclaim thread of a drive that has no background work left.
    pub fn close_worker(&mut self, drive: DriveId) {
        self.of_drives.remove(&(drive, Duty::Reclaim));
    }

    pub fn next_answer(&self) -> Option<Answer> {
        self.answers.try_recv().ok()
    }
}

impl Worker {
    fn start(name: String, outbox: Sender<Answer>, waker: Waker) -> io::Result<Worker> {
        let (jobs, inbox) = channel::<Job>();
        let work = move || {
            for job in inbox {
                if outbox.send(perform(job)).is_err() {
                    return;
                }
                waker.wake();
            }
        };
        let thread = std::thread::Builder::new().name(name).spawn(work)?;
        Ok(Worker { jobs: Some(jobs), thread: Some(thread) })
    }

    fn submit(&self, job: Job) {
        let jobs = self.jobs.as_ref().expect("jobs are taken until the worker is dropped");
        jobs.send(job).expect("the worker's thread lives as long as its queue");
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported when it happened.
            let _ = thread.join();
        }
    }
}

fn perform(job: Job) -> Answer {
    match job {
        Job::Open { replica, number, extent, path, .. } => {
            let result = unless_away(&path, || open_extent(&path)).map_err(|error| OpenError {
                message: describe(&path, &error),
                fault: open_fault(&path, &error),
            });
            Answer::Opened { replica, number, extent, result }
        }
        Job::Status { number, path, offset, length, .. } => {
            let result = open_whole(&path)
                .and_then(|file| runs(&file, u64::from(offset), u64::from(length)))
                .map_err(|error| describe(&path, &error));
            Answer::Status { number, result }
        }
        Job::Background { operation, pending_deletion, step, .. } => {
            let outcome = match step {
                Step::Survey => pending_deletion.survey().map(Done::Surveyed),
                Step::GiveBack(extent) => pending_deletion.give_back(extent).map(Done::Given),
                Step::Conclude => pending_deletion.conclude().map(|()| Done::Concluded),
            };
            Answer::Background { operation, outcome: outcome.map_err(|error| error.to_string()) }
        }
        Job::EpochRecord { volume, path, extent, epoch, is_committed } => {
            let result = match is_committed {
                false => epoch_record::reserve(&path, extent, epoch),
                true => epoch_record::know(&path, extent, epoch),
            };
            let result = result.map_err(|error| MetadataError::new("epoch record", &path, &error));
            Answer::EpochRecorded { volume, extent, result }
        }
        Job::Failure { volume, path, extent } => {
            let result = epoch_record::fail(&path, extent);
            let result = result.map_err(|error| MetadataError::new("epoch record", &path, &error));
            Answer::FailureRecorded { volume, extent, result }
        }
        Job::ReplicaMetadata { replica, extent, number, path, metadata, is_anew, due_ns, .. } => {
            let write = if is_anew { replica_metadata::write_anew } else { replica_metadata::write };
            let result = patiently(|| unless_away(&path, || write(&path, &metadata)));
            let result = result.map_err(|error| MetadataError::new("replica metadata", &path, &error));
            Answer::WithMetadata { replica, extent, number, due_ns, result }
        }
        Job::Snapshot { replica, number, source, target, range, can_share, .. } => {
            let result = patiently(|| snapshot::snapshot(&source, &target, range, can_share));
            let result = result.map_err(|error| format!("snapshot {}: {error}", source.display()));
            Answer::SnapshotEnded { replica, number, result }
        }
        Job::Checksums(job) => Answer::Checksums(Box::new(job.perform())),
        Job::Space(job) => Answer::Space(job.perform()),
    }
}

/// Retries an operation for some seconds while the system is short of a resource. A shortage must not fail
/// a replica.
pub(super) fn patiently<T>(mut act: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    for _ in 0..SHORTAGE_TRIES {
        match act() {
            Err(error) if is_shortage(&error) => std::thread::sleep(SHORTAGE_PAUSE),
            result => return result,
        }
    }
    act()
}

fn is_shortage(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(errno, Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM))
}

/// Whether the error means that a resource is short, for example space, or that the drive is broken.
fn metadata_fault(error: &io::Error) -> MetadataFault {
    use rustix::io::Errno;
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOSPC | Errno::DQUOT | Errno::ROFS) => MetadataFault::Shortage,
        _ if is_shortage(error) => MetadataFault::Shortage,
        _ => MetadataFault::Broken,
    }
}

/// The fault behind a failed open of an extent's file. If the folder is missing too, the drive is away.
/// Control finds out whether the same drive comes back.
fn open_fault(path: &Path, error: &io::Error) -> Fault {
    match error.kind() {
        _ if is_shortage(error) => Fault::NoMemory,
        _ if is_missing(error) && !is_folder_there(path) => Fault::Away,
        _ => Fault::Broken,
    }
}

/// Retries an operation that found no file although the folder exists now. The drive may have been away and
/// come back in between. A file that is then still missing is lost.
fn unless_away<T>(path: &Path, mut act: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    match act() {
        Err(error) if is_missing(&error) && is_folder_there(path) => act(),
        result => result,
    }
}

fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn is_folder_there(path: &Path) -> bool {
    path.parent().is_some_and(|folder| folder.symlink_metadata().is_ok())
}

fn describe(path: &Path, error: &io::Error) -> String {
    format!("extent file {}: {error}", path.display())
}

fn open_extent(path: &Path) -> io::Result<OpenedExtent> {
    check_whole(&std::fs::symlink_metadata(path)?)?;
    let file = File::from(Descriptor::open_direct(path)?);
    let identity = FileIdentity::of(&file.metadata()?);
    let file = OwnedFd::from(file);
    let map = map_data(&file)?;
    Ok(OpenedExtent { file, map, identity })
}

/// Marks every allocation piece in which the file holds data.
fn map_data(file: &OwnedFd) -> io::Result<AllocationMap> {
    let mut map = AllocationMap::default();
    let mut position = 0;
    while let Some(data) = next_data(file, position)?.filter(|&data| data < EXTENT_BYTES) {
        let piece = data / ALLOCATION_BYTES;
        map.set(piece as u32);
        position = (piece + 1) * ALLOCATION_BYTES;
    }
    Ok(map)
}

/// Data and holes from `offset` on, at most [`STATUS_RUNS_MAX`] runs and `length` bytes. The client asks
/// again for the rest.
fn runs(file: &File, offset: u64, length: u64) -> io::Result<Vec<Run>> {
    let (mut position, end) = (offset, offset + length);
    let mut found = Vec::new();
    while position < end && found.len() < STATUS_RUNS_MAX {
        let data = next_data(file, position)?.unwrap_or(end).min(end);
        let (run_end, is_hole) = if data > position {
            (data, true)
        } else {
            (next_hole(file, position)?.clamp(position + 1, end), false)
        };
        found.push(Run { length: (run_end - position) as u32, is_hole });
        position = run_end;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn data_and_holes_are_distinguished() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("extent");
        let file = File::create(&path).unwrap();
        file.set_len(EXTENT_BYTES).unwrap();
        file.write_all_at(&[1; 4096], 5 * ALLOCATION_BYTES + 8192).unwrap();
        file.sync_all().unwrap();
        let OpenedExtent { map, .. } = open_extent(&path).unwrap();
        let held: Vec<u32> = (0..1024).filter(|&piece| map.may_hold_data(piece)).collect();
        assert_eq!(held, [5]);
        let file = File::open(&path).unwrap();
        let all = runs(&file, 5 * ALLOCATION_BYTES, 16384).unwrap();
        let expected = [(8192, true), (4096, false), (4096, true)];
        assert_eq!(all.iter().map(|r| (r.length, r.is_hole)).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn returned_drive_is_not_reported_as_missing_file() {
        let state = tempfile::tempdir().unwrap();
        let (here, away) = (state.path().join("here"), state.path().join("away"));
        std::fs::create_dir(&away).unwrap();
        std::fs::write(away.join("file"), b"content").unwrap();
        let path = here.join("file");
        let read = || std::fs::read(&path);
        // The drive comes back between the first attempt and the check of its folder.
        let mut tries = 0;
        let found = unless_away(&path, || {
            tries += 1;
            let found = read();
            if tries == 1 {
                std::fs::rename(&away, &here).unwrap();
            }
            found
        });
        assert_eq!((found.unwrap(), tries), (b"content".to_vec(), 2));
        std::fs::remove_file(&path).unwrap();
        let lost = unless_away(&path, read).unwrap_err();
        assert_eq!(open_fault(&path, &lost), Fault::Broken);
        std::fs::rename(&here, &away).unwrap();
        let gone = unless_away(&path, read).unwrap_err();
        assert_eq!(open_fault(&path, &gone), Fault::Away);
    }

    #[test]
    fn full_drive_is_not_a_broken_drive() {
        use rustix::io::Errno;
        let fault = |errno: Errno| metadata_fault(&io::Error::from(errno));
        for errno in [Errno::NOSPC, Errno::DQUOT, Errno::ROFS, Errno::NOMEM, Errno::NFILE] {
            assert_eq!(fault(errno), MetadataFault::Shortage, "{errno}");
        }
        for errno in [Errno::IO, Errno::NODEV, Errno::STALE, Errno::NOENT] {
            assert_eq!(fault(errno), MetadataFault::Broken, "{errno}");
        }
    }

    #[test]
    fn truncated_extent_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("extent");
        File::create(&path).unwrap().set_len(4096).unwrap();
        assert!(open_extent(&path).err().unwrap().to_string().contains("shortened"));
    }
}
