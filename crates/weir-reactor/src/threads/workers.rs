//! Workers: threads that carry out operations on files, each of which blocks one of them.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, IoSlice};
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use rustix::fs::FallocateFlags;
use rustix::io::{Errno, ReadWriteFlags, retry_on_intr};

use super::{End, result_of};
use crate::descriptor::Descriptor;
use crate::request::Request;
use crate::wake::Waker;

/// Largest number of workers.
const WORKERS_MAX: usize = 1024;
/// Largest number of workers that wait for one filesystem, so that a drive that hangs leaves some to the others.
const WORKERS_PER_FILESYSTEM_MAX: usize = 256;
/// How long a worker waits for work before it ends. One always stays.
const IDLE_TIME: Duration = Duration::from_secs(10);
/// Stack of a worker, in bytes.
const STACK_BYTES: usize = 128 << 10;

/// The workers of one reactor.
pub(super) struct Workers {
    shared: Arc<Shared>,
}

/// What a reactor shares with its workers.
struct Shared {
    queue: Mutex<Queue>,
    has_jobs: Condvar,
    ended: Mutex<VecDeque<End>>,
    waker: Waker,
}

/// Operations that no worker has yet, and what the workers do.
#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// Number of workers, and of those that wait for work.
    workers: usize,
    idle: usize,
    /// Number of workers that wait for each filesystem.
    busy: BTreeMap<u64, usize>,
    is_over: bool,
}

/// An operation on a file.
struct Job {
    index: u64,
    file: RawFd,
    filesystem: u64,
    request: Request,
}

// SAFETY: the pointers of a request lead to memory that the table of operations in flight owns until the worker has
// answered, and that nothing else changes meanwhile; a write's source is only read. The memory is not bound to a thread.
unsafe impl Send for Job {}

impl Workers {
    /// Starts the worker that always stays.
    pub fn new(waker: Waker) -> io::Result<Workers> {
        let queue = Mutex::new(Queue { workers: 1, ..Queue::default() });
        let shared = Arc::new(Shared { queue, has_jobs: Condvar::new(), ended: Mutex::default(), waker });
        start(&shared)?;
        Ok(Workers { shared })
    }

    /// Gives an operation to a worker.
    pub fn issue(&mut self, index: u64, file: &Descriptor, request: Request) {
        let job = Job { index, file: file.raw(), filesystem: file.filesystem(), request };
        self.shared.queue().jobs.push_back(job);
        self.start_missing();
        self.shared.has_jobs.notify_one();
    }

    /// Starts a worker if there are operations for more of them. Returns true if one is missing and cannot be started.
    pub fn start_missing(&mut self) -> bool {
        let mut queue = self.shared.queue();
        if queue.workers >= WORKERS_MAX || queue.eligible() <= queue.idle {
            return false;
        }
        let is_started = start(&self.shared).is_ok();
        queue.workers += usize::from(is_started);
        !is_started
    }

    /// Moves the operations that have ended to the end of a list.
    pub fn take_ended(&mut self, ended: &mut VecDeque<End>) {
        ended.append(&mut lock(&self.shared.ended));
    }
}

impl Drop for Workers {
    /// Lets the workers end. The ring waits for their answers before, so that none has a job.
    fn drop(&mut self) {
        self.shared.queue().is_over = true;
        self.shared.has_jobs.notify_all();
    }
}

impl Queue {
    fn is_eligible(&self, job: &Job) -> bool {
        self.busy.get(&job.filesystem).is_none_or(|busy| *busy < WORKERS_PER_FILESYSTEM_MAX)
    }

    /// Number of operations that a worker may begin.
    fn eligible(&self) -> usize {
        self.jobs.iter().filter(|job| self.is_eligible(job)).count()
    }

    /// Takes the oldest operation that a worker may begin.
    fn take(&mut self) -> Option<Job> {
        let place = self.jobs.iter().position(|job| self.is_eligible(job))?;
        let job = self.jobs.remove(place)?;
        *self.busy.entry(job.filesystem).or_default() += 1;
        Some(job)
    }

    fn ended(&mut self, filesystem: u64) {
        let busy = self.busy.get_mut(&filesystem).expect("the operation was taken");
        *busy -= 1;
        if *busy == 0 {
            self.busy.remove(&filesystem);
        }
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        lock(&self.queue)
    }

    /// Waits for an operation; `None` once the worker is not needed any more.
    fn next_job(&self) -> Option<Job> {
        let mut queue = self.queue();
        queue.idle += 1;
        let mut is_late = false;
        loop {
            let job = queue.take();
            if job.is_some() || queue.is_over || is_late && queue.workers > 1 {
                queue.idle -= 1;
                queue.workers -= usize::from(job.is_none());
                return job;
            }
            let waited =
                self.has_jobs.wait_timeout(queue, IDLE_TIME).expect("no worker panics with the queue");
            (queue, is_late) = (waited.0, waited.1.timed_out());
        }
    }

    fn work(&self) {
        while let Some(job) = self.next_job() {
            let end = (job.index, result_of(job.carry_out()));
            self.queue().ended(job.filesystem);
            let mut ended = lock(&self.ended);
            ended.push_back(end);
            let is_first = ended.len() == 1;
            drop(ended);
            // Who finds one end takes all of them.
            if is_first {
                self.waker.wake();
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no worker panics with a lock")
}

fn start(shared: &Arc<Shared>) -> io::Result<()> {
    let shared = Arc::clone(shared);
    let thread = std::thread::Builder::new().name("weir-io".to_owned()).stack_size(STACK_BYTES);
    thread.spawn(move || shared.work()).map(drop)
}

impl Job {
    fn carry_out(&self) -> Result<usize, Errno> {
        // SAFETY: the table of operations in flight keeps the file open until the worker has answered.
        let file = unsafe { BorrowedFd::borrow_raw(self.file) };
        match self.request {
            Request::Read { start, length, offset } => {
                // SAFETY: as for sending a job; nothing else reads or changes the memory meanwhile. It is initialised.
                let target = unsafe { std::slice::from_raw_parts_mut(start, length as usize) };
                retry_on_intr(|| rustix::io::pread(file, &mut *target, offset))
            }
            Request::Write { start, length, offset, is_durable } => {
                // SAFETY: as for sending a job; nothing changes the memory meanwhile. It is initialised.
                let source = unsafe { std::slice::from_raw_parts(start, length as usize) };
                let flags = if is_durable { ReadWriteFlags::DSYNC } else { ReadWriteFlags::empty() };
                let source = [IoSlice::new(source)];
                retry_on_intr(|| rustix::io::pwritev2(file, &source, offset, flags))
            }
            Request::Sync => retry_on_intr(|| rustix::fs::fdatasync(file)).map(|()| 0),
            Request::Fallocate { offset, length, mode } => {
                let flags = FallocateFlags::from_bits_retain(mode as u32);
                retry_on_intr(|| rustix::fs::fallocate(file, flags, offset, length)).map(|()| 0)
            }
            _ => unreachable!("workers get operations on files alone"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(filesystem: u64) -> Job {
        Job { index: 0, file: 0, filesystem, request: Request::Sync }
    }

    #[test]
    fn filesystem_that_hangs_leaves_workers_to_the_others() {
        let mut queue = Queue::default();
        queue.jobs.extend((0..WORKERS_PER_FILESYSTEM_MAX + 1).map(|_| job(1)));
        queue.jobs.push_back(job(2));
        assert_eq!(queue.eligible(), WORKERS_PER_FILESYSTEM_MAX + 2);
        assert!((0..WORKERS_PER_FILESYSTEM_MAX).all(|_| queue.take().is_some_and(|job| job.filesystem == 1)));
        assert_eq!(queue.eligible(), 1);
        assert_eq!(queue.take().map(|job| job.filesystem), Some(2));
        assert!(queue.take().is_none(), "the filesystem has all the workers that it may have");
        queue.ended(1);
        assert_eq!(queue.take().map(|job| job.filesystem), Some(1));
        assert!(queue.jobs.is_empty());
    }
}
