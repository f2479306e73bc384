//! Helper threads: file operations that io_uring does not have, or that would delay others on it.
//!
//! Examples are opening extents, finding data and holes, writing replica metadata, and the steps of
//! background work.

mod checksum_files;
mod jobs;
mod perform;
mod shortage;
mod space_look;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use weir_reactor::Waker;
use weir_types::DriveId;

pub use checksum_files::{ChecksumAnswer, ChecksumJob, ChecksumOperation, ChecksumOutcome};
pub use jobs::{
    Answer, Job, MetadataAnswer, MetadataError, OpenError, OpenedExtent, ReclaimDone, ReclaimOutcome,
    ReclaimStep, Run,
};
use perform::perform;
pub use space_look::{SpaceAnswer, SpaceJob};

/// The helper threads and their queues.
///
/// Each drive has threads of its own, one per duty, started with the first job: a drive that hangs delays
/// no other drive. Within a drive, opening waits neither for status queries nor for background work, and
/// replica metadata waits for none of the three.
///
/// A common thread takes over if a drive's thread cannot be started. Another common thread writes epoch
/// records.
pub struct Helper {
    common: Worker,
    epoch_record: Worker,
    drive_workers: BTreeMap<(DriveId, Duty), Worker>,
    outbox: Sender<Answer>,
    waker: Waker,
    answers: Receiver<Answer>,
}

/// The duty of a drive's helper thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Duty {
    Open,
    Status,
    Metadata,
    Checksums,
    Space,
    Reclaim,
    Snapshot,
}

impl Duty {
    fn name(self) -> &'static str {
        match self {
            Duty::Open => "open",
            Duty::Status => "status",
            Duty::Metadata => "metadata",
            Duty::Checksums => "checksums",
            Duty::Space => "space",
            Duty::Reclaim => "reclaim",
            Duty::Snapshot => "snapshot",
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
        let common = Worker::start(format!("weir-common-{index}"), outbox.clone(), waker.clone())?;
        let epoch_record = Worker::start(format!("weir-epoch-{index}"), outbox.clone(), waker.clone())?;
        Ok(Helper { common, epoch_record, drive_workers: BTreeMap::new(), outbox, waker, answers })
    }

    pub fn submit(&mut self, job: Job) {
        match job {
            Job::Open { drive, .. } => self.drive_worker(drive, Duty::Open).submit(job),
            Job::Status { drive, .. } => self.drive_worker(drive, Duty::Status).submit(job),
            Job::Background { drive, .. } => self.drive_worker(drive, Duty::Reclaim).submit(job),
            Job::EpochRecord { .. } | Job::Failure { .. } => self.epoch_record.submit(job),
            // In order: a metadata write that was given up ends before the next write of the same file
            // begins.
            Job::ReplicaMetadata { drive, .. } => self.drive_worker(drive, Duty::Metadata).submit(job),
            Job::Snapshot { drive, .. } => self.drive_worker(drive, Duty::Snapshot).submit(job),
            // In order, because one write may replace another.
            Job::Checksums(ref checksums) => self.drive_worker(checksums.drive, Duty::Checksums).submit(job),
            Job::Space(ref space) => self.drive_worker(space.drive, Duty::Space).submit(job),
        }
    }

    /// The thread of a drive for a duty. If the system cannot start it, the common thread takes over the
    /// job.
    fn drive_worker(&mut self, drive: DriveId, duty: Duty) -> &Worker {
        let name = format!("weir-{}", duty.name());
        let start = || Worker::start(name, self.outbox.clone(), self.waker.clone());
        match self.drive_workers.entry((drive, duty)) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => match start() {
                Ok(worker) => place.insert(worker),
                Err(error) => {
                    tracing::warn!(%drive, %error, "no thread for a drive's {}", duty.name());
                    &self.common
                }
            },
        }
    }

    /// Ends the reclaim thread of a drive that has no background work left.
    pub fn close_worker(&mut self, drive: DriveId) {
        self.drive_workers.remove(&(drive, Duty::Reclaim));
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
