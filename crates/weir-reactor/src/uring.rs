//! io_uring: the kernel's queue of operations.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd};
use std::ptr::NonNull;

use io_uring::types::{CancelBuilder, Fd, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode, squeue};

use crate::buffer::BufferPool;
use crate::clock::Clock;
use crate::descriptor::Descriptor;
use crate::request::Request;
use crate::wake::Waker;

/// User data of the completion that a [`Waker`] causes.
const WAKE: u64 = u64::MAX;
/// Largest number of kernel threads for operations that would block, for example allocation and flush. The
/// kernel keeps as many threads as are blocked, and one that looks for more work. The number therefore bounds
/// the threads that one hanging drive can hold. Once all threads wait for this drive, the other drives stop.
const WORKERS_MAX: u32 = 256;

/// Pauses of the processor between two checks of the clock and the completion queue, about half a
/// microsecond.
const LOOK_PAUSES: u32 = 16;

/// Smallest size that is worth registering, in bytes.
const REGISTERED_BYTES_MIN: usize = 1 << 20;

/// `IORING_RECVSEND_POLL_FIRST`: wait for readiness before the first attempt (kernels from 5.19 on; older
/// ones ignore a priority here).
const POLL_FIRST: u16 = 1;
/// Longest wait for operations to be cancelled.
const CANCEL_SECONDS: u64 = 1;
/// How long nothing must come from block devices until nothing is expected to come, and the longest wait for that.
const QUIET_NS: u64 = 20_000_000;
const QUIET_TIME_MAX_NS: u64 = 1_000_000_000;

/// The reason why there is no ring.
#[derive(Debug, thiserror::Error)]
pub enum RingError {
    /// The kernel or a sandbox forbids io_uring.
    #[error(
        "io_uring is forbidden here ({source}): {hint}. Allow the io_uring_setup, io_uring_enter and \
         io_uring_register system calls"
    )]
    Forbidden {
        /// Error of the system.
        source: io::Error,
        /// Most likely cause.
        hint: &'static str,
    },
    /// The kernel is older than 5.11.
    #[error("the kernel's io_uring lacks timed waits; Linux 5.11 or later is needed")]
    TooOld,
    /// Another error occurred.
    #[error("cannot set up io_uring: {0}")]
    Other(#[from] io::Error),
}

/// An io_uring, for the thread that set it up.
pub(crate) struct Uring {
    uring: IoUring,
    /// Start of the registered memory, and its length in bytes.
    registered: (NonNull<u8>, usize),
    waker: Waker,
    wake_count: Box<[u8; 8]>,
    is_waker_armed: bool,
    /// The waker has woken it since the last question about that.
    is_woken: bool,
    /// True once all operations were cancelled: nothing wakes it any more.
    is_ending: bool,
}

impl Uring {
    /// Sets up an io_uring, and registers the start of a pool's arena. The pool must stay until it is dropped.
    pub fn new(
        entries: u32,
        pool: &BufferPool,
        registered_bytes: usize,
        waker: Waker,
    ) -> Result<Uring, RingError> {
        let uring = build(entries)?;
        if !uring.params().is_feature_ext_arg() {
            return Err(RingError::TooOld);
        }
        // Older kernels cannot set this bound; their bound is the number of processes.
        let _ = uring.submitter().register_iowq_max_workers(&mut [WORKERS_MAX, WORKERS_MAX]);
        let registered = (pool.arena().0, register(&uring, pool, registered_bytes));
        let wake_count = Box::new([0; 8]);
        Ok(Uring {
            uring,
            registered,
            waker,
            wake_count,
            is_waker_armed: false,
            is_woken: false,
            is_ending: false,
        })
    }

    /// Registered part of the arena, in bytes.
    pub fn registered_bytes(&self) -> usize {
        self.registered.1
    }

    /// Returns true if all of a range is registered. Operations may also have memory of other pools, which
    /// may lie on either side.
    fn is_registered(&self, start: *const u8, length: u32) -> bool {
        let (base, registered_bytes) = (self.registered.0.as_ptr() as usize, self.registered.1);
        let start = start as usize;
        base <= start && start + length as usize <= base + registered_bytes
    }

    /// Issues an operation. The memory that it points to must stay until its index has come back.
    pub fn issue(&mut self, index: u64, descriptor: &Descriptor, request: Request) {
        let entry = self.entry(Fd(descriptor.raw()), request);
        self.push(entry.user_data(index));
    }

    fn entry(&self, fd: Fd, request: Request) -> squeue::Entry {
        match request {
            Request::Read { start, length, offset } if self.is_registered(start, length) => {
                opcode::ReadFixed::new(fd, start, length, 0).offset(offset).build()
            }
            Request::Read { start, length, offset } => {
                opcode::Read::new(fd, start, length).offset(offset).build()
            }
            Request::Write { start, length, offset, is_durable } => {
                let flags = if is_durable { libc::RWF_DSYNC } else { 0 };
                if self.is_registered(start, length) {
                    opcode::WriteFixed::new(fd, start, length, 0).offset(offset).rw_flags(flags).build()
                } else {
                    opcode::Write::new(fd, start, length).offset(offset).rw_flags(flags).build()
                }
            }
            Request::Sync => opcode::Fsync::new(fd).flags(FsyncFlags::DATASYNC).build(),
            Request::Fallocate { offset, length, mode } => {
                opcode::Fallocate::new(fd, length).offset(offset).mode(mode).build()
            }
            Request::Receive { start, length, is_whole: true } => {
                opcode::Recv::new(fd, start, length).flags(libc::MSG_WAITALL).build()
            }
            // No bytes have arrived: the kernel need not try before it waits.
            Request::Receive { start, length, is_whole: false } => {
                opcode::Recv::new(fd, start, length).ioprio(POLL_FIRST).build()
            }
            Request::Send { message } => {
                let flags = (libc::MSG_WAITALL | libc::MSG_NOSIGNAL) as u32;
                opcode::SendMsg::new(fd, message).flags(flags).build()
            }
            Request::Watch { events } => opcode::PollAdd::new(fd, events as u32).build(),
            Request::Block(entry) => entry,
        }
    }

    fn push(&mut self, entry: squeue::Entry) {
        loop {
            // SAFETY: the table of operations in flight owns the memory that the entry points to until the
            // kernel has answered. It is heap or arena memory, which does not move with its owner. Other
            // holders of a write's source can only read it. The memory of the waker's read is this one's own.
            if unsafe { self.uring.submission().push(&entry) }.is_ok() {
                return;
            }
            // The queue is full: the kernel takes it over. Errors are transient, and the next wait sees them.
            let _ = self.uring.submit();
        }
    }

    /// Submits all issued operations and busy-polls up to `limit_ns` for an end, without going to sleep.
    pub fn look(&mut self, limit_ns: u64) -> bool {
        self.arm_waker();
        if self.uring.submit().is_err() {
            return true;
        }
        let until_ns = Clock.now_ns().saturating_add(limit_ns);
        loop {
            if self.uring.submission().taskrun() || !self.uring.completion().is_empty() {
                return true;
            }
            if Clock.now_ns() >= until_ns {
                return false;
            }
            (0..LOOK_PAUSES).for_each(|_| std::hint::spin_loop());
        }
    }

    /// Submits all issued operations and waits until one ends, the waker wakes it, or the time is over.
    pub fn wait(&mut self, timeout_ns: Option<u64>) -> io::Result<()> {
        self.arm_waker();
        let result = match timeout_ns {
            None => self.uring.submit_and_wait(1),
            Some(ns) => {
                let time = Timespec::new().sec(ns / 1_000_000_000).nsec((ns % 1_000_000_000) as u32);
                self.uring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&time))
            }
        };
        match result {
            Err(error) if is_transient(&error) => Ok(()),
            other => other.map(drop),
        }
    }

    fn arm_waker(&mut self) {
        if !self.is_ending && !std::mem::replace(&mut self.is_waker_armed, true) {
            let fd = Fd(self.waker.0.as_raw_fd());
            let entry = opcode::Read::new(fd, self.wake_count.as_mut_ptr(), 8).build();
            self.push(entry.user_data(WAKE));
        }
    }

    /// Takes the index and the result of an operation that has ended.
    pub fn next(&mut self) -> Option<(u64, i32)> {
        loop {
            let entry = self.uring.completion().next()?;
            if entry.user_data() != WAKE {
                return Some((entry.user_data(), entry.result()));
            }
            self.is_waker_armed = false;
            self.is_woken = true;
        }
    }

    /// True if the waker woke it since the last call.
    pub fn take_wake_up(&mut self) -> bool {
        std::mem::take(&mut self.is_woken)
    }

    /// Cancels all operations on a descriptor.
    pub fn cancel_on(&mut self, descriptor: &Descriptor) {
        self.cancel(CancelBuilder::fd(Fd(descriptor.raw())).all());
    }

    /// Cancels all operations for good. Those that cannot be cancelled in a second end by themselves: without a bound this
    /// call could wait for them without taking the completions that they need.
    pub fn cancel_all(&mut self) {
        self.is_ending = true;
        self.waker.wake();
        self.cancel(CancelBuilder::any());
    }

    fn cancel(&mut self, which: CancelBuilder) {
        // An operation that was not submitted could not be cancelled.
        let _ = self.uring.submit();
        let time = Timespec::new().sec(CANCEL_SECONDS);
        let _ = self.uring.submitter().register_sync_cancel(Some(time), which);
    }

    /// Leaves block devices to their next server: the driver keeps their requests.
    ///
    /// The drivers of Linux before 6.16 have no moment at which a server ends. What they hand over while the kernel cancels
    /// this thread's operations waits for an answer for ever, even from the next server. So this waits until their
    /// users have nothing more to ask, because nothing was answered; and it leaves the io_uring open: when it is
    /// closed, a thread of the kernel cancels while requests still wait for this thread to take them over, and when this
    /// thread ends, it takes them over before it cancels.
    pub fn leave_block_devices(&mut self) {
        self.keep_open();
        let until_ns = Clock.now_ns().saturating_add(QUIET_TIME_MAX_NS);
        while self.wait(Some(QUIET_NS)).is_ok() && self.next().is_some() && Clock.now_ns() < until_ns {
            while self.next().is_some() {}
        }
    }

    /// Keeps the io_uring open until the process ends. Without a free descriptor it is closed, as any other.
    fn keep_open(&self) {
        // SAFETY: the io_uring has its descriptor until it is dropped.
        let uring = unsafe { BorrowedFd::borrow_raw(self.uring.as_raw_fd()) };
        if let Ok(kept) = rustix::io::fcntl_dupfd_cloexec(uring, 0) {
            let _ = kept.into_raw_fd();
        }
    }

    /// Returns true while the kernel may still touch memory of this object.
    pub fn is_held(&self) -> bool {
        self.is_waker_armed
    }
}

fn is_transient(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::ETIME | libc::EBUSY | libc::EAGAIN))
}

/// Why io_uring cannot be used here; `None` if it can.
pub(crate) fn unavailable() -> Option<RingError> {
    let mut uring = match build(2) {
        Ok(uring) if uring.params().is_feature_ext_arg() => uring,
        Ok(_) => return Some(RingError::TooOld),
        Err(error) => return Some(error),
    };
    // SAFETY: the operation has no memory.
    let pushed = unsafe { uring.submission().push(&opcode::Nop::new().build()) };
    pushed.expect("a new ring has room");
    uring.submit_and_wait(1).err().map(explain)
}

/// Builds the best ring that the kernel supports: each step gives up features that older kernels lack.
fn build(entries: u32) -> Result<IoUring, RingError> {
    let mut builder = IoUring::builder();
    builder.setup_cqsize(entries * 4).setup_submit_all();
    let mut newest = builder.clone();
    newest.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag();
    let mut cooperative = builder.clone();
    cooperative.setup_coop_taskrun().setup_taskrun_flag();
    let mut oldest = IoUring::builder();
    oldest.setup_cqsize(entries * 4);
    let mut last = None;
    for step in [newest.clone().setup_no_sqarray(), &mut newest, &mut cooperative, &mut oldest] {
        match step.build(entries) {
            Ok(uring) => return Ok(uring),
            Err(error) => last = Some(error),
        }
    }
    Err(explain(last.expect("at least one step was tried")))
}

fn explain(source: io::Error) -> RingError {
    let is_disabled =
        std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled").is_ok_and(|value| value.trim() != "0");
    match source.raw_os_error() {
        Some(libc::EPERM) if is_disabled => {
            RingError::Forbidden { source, hint: "the sysctl kernel.io_uring_disabled is set" }
        }
        Some(libc::EPERM | libc::EACCES) => {
            RingError::Forbidden { source, hint: "a container's seccomp profile blocks it" }
        }
        Some(libc::ENOSYS) => {
            RingError::Forbidden { source, hint: "the kernel has no io_uring, or a seccomp profile hides it" }
        }
        _ => RingError::Other(source),
    }
}

/// Registers the start of the pool's arena as fixed buffer 0. Where locked memory is short, it tries half, a
/// quarter and so on. Returns the number of registered bytes.
fn register(uring: &IoUring, pool: &BufferPool, wanted_bytes: usize) -> usize {
    let (base, arena_bytes) = pool.arena();
    let mut bytes = wanted_bytes.min(arena_bytes);
    while bytes >= REGISTERED_BYTES_MIN {
        let vector = libc::iovec { iov_base: base.as_ptr().cast(), iov_len: bytes };
        // SAFETY: the arena stays mapped as long as operations use it: the ring has both, and drops the io_uring first. One
        // that is kept open has only commands without memory left; the kernel keeps the registered pages itself.
        if unsafe { uring.submitter().register_buffers(&[vector]) }.is_ok() {
            return bytes;
        }
        bytes /= 2;
    }
    0
}
