//! The ring: one io_uring and the operations on it.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;

use io_uring::types::{Fd, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode, squeue};

use crate::buffer::{BufferPool, Unfilled};
use crate::clock::Clock;
use crate::descriptor::{Descriptor, FallocateMode};
use crate::in_flight::{Carried, InFlight, Operation, Payload, Target};
use crate::send::SendBatch;
use crate::ublk::BlockQueue;
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

/// The configuration of a ring.
#[derive(Clone, Copy, Debug)]
pub struct RingConfig {
    /// Entries of the submission queue, a power of two; the completion queue has four times as many.
    pub entries: u32,
    /// Part of the pool's arena to register with the kernel, in bytes. Registered memory is locked, and saves
    /// the kernel from pinning a buffer's pages for each access. Buffers from the rest are used without
    /// registration. Where locked memory is short, less is registered, or nothing.
    pub registered_bytes: usize,
}

impl Default for RingConfig {
    fn default() -> Self {
        RingConfig { entries: 1024, registered_bytes: 16 << 20 }
    }
}

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

/// The end of an operation.
pub struct Completion<T> {
    /// Token that the caller gave the operation.
    pub token: T,
    /// Bytes moved, or the system's error.
    pub result: Result<u32, io::Error>,
    /// Memory that the operation carried.
    pub carried: Carried,
}

/// An io_uring, its buffers, and the operations in flight, each named by a token of the caller.
pub struct Ring<T> {
    uring: IoUring,
    in_flight: InFlight<T>,
    /// Operations that ended as soon as they were issued.
    ended: VecDeque<Completion<T>>,
    pool: BufferPool,
    /// Registered part of the arena, from its start, in bytes.
    registered_bytes: usize,
    waker: Waker,
    wake_count: Box<[u8; 8]>,
    is_waker_armed: bool,
}

impl<T> Ring<T> {
    /// Sets up a ring for the calling thread, which must be the only one to use it.
    ///
    /// # Errors
    /// If io_uring is forbidden, too old, or out of resources.
    pub fn new(config: RingConfig, pool: BufferPool) -> Result<Ring<T>, RingError> {
        let uring = build(config.entries)?;
        if !uring.params().is_feature_ext_arg() {
            return Err(RingError::TooOld);
        }
        // Older kernels cannot set this bound; their bound is the number of processes.
        let _ = uring.submitter().register_iowq_max_workers(&mut [WORKERS_MAX, WORKERS_MAX]);
        let registered_bytes = register(&uring, &pool, config.registered_bytes);
        let waker = Waker::new()?;
        let wake_count = Box::new([0; 8]);
        let (in_flight, ended) = (InFlight::new(), VecDeque::new());
        Ok(Ring { uring, in_flight, ended, pool, registered_bytes, waker, wake_count, is_waker_armed: false })
    }

    /// Returns a handle with which other threads wake this ring.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Registered part of the arena, in bytes.
    pub fn registered_bytes(&self) -> usize {
        self.registered_bytes
    }

    /// Returns true if all of a range is registered. Operations may also have memory of other pools, which
    /// may lie on either side.
    fn is_registered(&self, start: *const u8, length: u32) -> bool {
        let base = self.pool.arena().0.as_ptr() as usize;
        let start = start as usize;
        base <= start && start + length as usize <= base + self.registered_bytes
    }

    /// Number of operations in flight.
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Returns true if an operation waits for a drive or has done so since the last call.
    pub fn take_drive_use(&mut self) -> bool {
        self.in_flight.take_drive_use()
    }

    /// Reads from a file at `offset` into `range` of a buffer, or of memory that is filled up to the range.
    pub fn read(
        &mut self,
        token: T,
        file: &Descriptor,
        offset: u64,
        target: impl Into<Target>,
        range: Range<usize>,
    ) {
        let mut target = target.into();
        let memory = target.range(range);
        let (start, length) = (memory.as_mut_ptr(), memory.len() as u32);
        check_alignment(offset, start, length);
        if file.is_in_memory() {
            let result = retrying(|| rustix::io::pread(file, &mut *memory, offset));
            return self.end_now(token, target.into(), result);
        }
        let fd = Fd(file.raw());
        let entry = if self.is_registered(start, length) {
            opcode::ReadFixed::new(fd, start, length, 0).offset(offset).build()
        } else {
            opcode::Read::new(fd, start, length).offset(offset).build()
        };
        self.push(token, target.into(), Some(file.clone()), entry);
    }

    /// Writes `range` of a payload to a file at `offset`; `is_durable` demands stability before the end.
    pub fn write(
        &mut self,
        token: T,
        file: &Descriptor,
        offset: u64,
        payload: impl Into<Payload>,
        range: Range<usize>,
        is_durable: bool,
    ) {
        let payload = payload.into();
        let source = &payload[range];
        let (start, length) = (source.as_ptr(), source.len() as u32);
        check_alignment(offset, start, length);
        if file.is_in_memory() {
            let result = retrying(|| rustix::io::pwrite(file, source, offset));
            return self.end_now(token, payload.into(), result);
        }
        let (fd, flags) = (Fd(file.raw()), if is_durable { libc::RWF_DSYNC } else { 0 });
        let entry = if self.is_registered(start, length) {
            opcode::WriteFixed::new(fd, start, length, 0).offset(offset).rw_flags(flags).build()
        } else {
            opcode::Write::new(fd, start, length).offset(offset).rw_flags(flags).build()
        };
        self.push(token, payload.into(), Some(file.clone()), entry);
    }

    /// Makes all completed writes of a file stable.
    pub fn sync(&mut self, token: T, file: &Descriptor) {
        let entry = opcode::Fsync::new(Fd(file.raw())).flags(FsyncFlags::DATASYNC).build();
        self.push(token, Carried::Nothing, Some(file.clone()), entry);
    }

    /// Reserves, releases or zeroes a range of a file.
    pub fn fallocate(
        &mut self,
        token: T,
        file: &Descriptor,
        offset: u64,
        length: u64,
        placement: FallocateMode,
    ) {
        let entry =
            opcode::Fallocate::new(Fd(file.raw()), length).offset(offset).mode(placement.mode()).build();
        self.push(token, Carried::Nothing, Some(file.clone()), entry);
    }

    /// Receives the bytes that a socket has, at least one, into `range`. Zero bytes mean that the peer has
    /// ended. Bytes that have already arrived are taken at once.
    pub fn receive(&mut self, token: T, socket: &Descriptor, mut bytes: Box<[u8]>, range: Range<usize>) {
        let target = &mut bytes[range];
        let result = retrying(|| receive_now(socket, target));
        if result != Err(rustix::io::Errno::AGAIN) {
            return self.end_now(token, Carried::Bytes(bytes), result);
        }
        // No bytes have arrived: the kernel need not try before it waits.
        let entry = opcode::Recv::new(Fd(socket.raw()), target.as_mut_ptr(), target.len() as u32)
            .ioprio(POLL_FIRST)
            .build();
        self.push(token, Carried::Bytes(bytes), Some(socket.clone()), entry);
    }

    /// Receives `count` bytes after the filled part of a piece of memory, or fewer if the peer has ended.
    pub fn receive_payload(&mut self, token: T, socket: &Descriptor, mut memory: Unfilled, count: usize) {
        let start = memory.filled().len();
        let target = memory.refill(start..start + count);
        let entry = opcode::Recv::new(Fd(socket.raw()), target.as_mut_ptr(), target.len() as u32)
            .flags(libc::MSG_WAITALL)
            .build();
        self.push(token, Carried::Unfilled(memory), Some(socket.clone()), entry);
    }

    /// Ends when the peer of a socket hangs up, even if unread input comes before that.
    pub fn watch_hang_up(&mut self, token: T, socket: &Descriptor) {
        let entry = opcode::PollAdd::new(Fd(socket.raw()), libc::POLLRDHUP as u32).build();
        self.push(token, Carried::Nothing, Some(socket.clone()), entry);
    }

    /// Ends when a device has something to read, or is gone.
    pub fn watch_input(&mut self, token: T, device: &Descriptor) {
        let entry = opcode::PollAdd::new(Fd(device.raw()), libc::POLLIN as u32).build();
        self.push(token, Carried::Nothing, Some(device.clone()), entry);
    }

    /// Ends when a block device that this process serves has a request of a tag. Without one, the driver has let go of
    /// the tag. All commands of a queue must come from one thread.
    pub fn fetch_request(&mut self, token: T, queue: &BlockQueue, tag: u16) {
        self.push(token, Carried::Nothing, Some(queue.device().clone()), queue.fetch(tag));
    }

    /// Answers the request of a tag, and ends when there is the next one. A negative result is an error number.
    pub fn answer_request(&mut self, token: T, queue: &BlockQueue, tag: u16, result: i32) {
        self.push(token, Carried::Nothing, Some(queue.device().clone()), queue.commit(tag, result));
    }

    /// Ends the watch of a device at once: until its end it would keep the device open.
    pub fn end_watch(&mut self, device: &Descriptor) {
        // An operation that was not submitted could not be cancelled.
        let _ = self.uring.submit();
        let cancel = io_uring::types::CancelBuilder::fd(Fd(device.raw())).all();
        let _ = self.uring.submitter().register_sync_cancel(Some(Timespec::new().sec(1)), cancel);
    }

    /// Sends a whole batch: at once as far as the socket has room, and the rest, if any, once it has.
    pub fn send(&mut self, token: T, socket: &Descriptor, mut batch: Box<SendBatch>) {
        match send_now(socket, &mut batch) {
            Ok(sent_bytes) => batch.sent_bytes = sent_bytes,
            // A fault of the socket occurs again below, and is reported there.
            Err(_) => batch.sent_bytes = 0,
        }
        if batch.sent_bytes == batch.len() {
            let bytes = batch.len();
            return self.end_now(token, Carried::Batch(batch), Ok(bytes));
        }
        let carried = Carried::Batch(batch);
        let operation = Operation { token, carried, descriptor: Some(socket.clone()) };
        let index = self.in_flight.insert(operation);
        let Carried::Batch(batch) = self.in_flight.carried_mut(index) else {
            unreachable!("a send carries its batch");
        };
        let entry = opcode::SendMsg::new(Fd(socket.raw()), batch.message())
            .flags((libc::MSG_WAITALL | libc::MSG_NOSIGNAL) as u32)
            .build();
        self.submit_entry(entry.user_data(index));
    }

    fn end_now(&mut self, token: T, mut carried: Carried, result: rustix::io::Result<usize>) {
        let result = result.map(|count| count as u32).map_err(io::Error::from);
        carried.moved(*result.as_ref().unwrap_or(&0));
        self.ended.push_back(Completion { token, result, carried });
    }

    fn push(&mut self, token: T, carried: Carried, descriptor: Option<Descriptor>, entry: squeue::Entry) {
        let index = self.in_flight.insert(Operation { token, carried, descriptor });
        self.submit_entry(entry.user_data(index));
    }

    fn submit_entry(&mut self, entry: squeue::Entry) {
        loop {
            // SAFETY: the table of operations in flight owns the memory that the entry points to until the
            // kernel has answered. It is heap or arena memory, which does not move with its owner. Other
            // holders of a write's source can only read it.
            if unsafe { self.uring.submission().push(&entry) }.is_ok() {
                return;
            }
            // The queue is full: the kernel takes it over. Errors are transient, and the next wait sees them.
            let _ = self.uring.submit();
        }
    }

    /// Submits all issued operations and busy-polls up to `limit_ns` for an end, without going to sleep. True
    /// if an operation has ended; [`Ring::wait`] then takes the end over without waiting.
    pub fn look(&mut self, limit_ns: u64) -> bool {
        self.arm_waker();
        if self.has_ended() || self.uring.submit().is_err() {
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

    /// Submits all issued operations and waits until one ends, a [`Waker`] wakes the ring, or `timeout_ns` is
    /// over. With `Some(0)` it does not wait.
    ///
    /// # Errors
    /// The errors of `io_uring_enter(2)` other than interruption, time-out and a full completion queue.
    pub fn wait(&mut self, timeout_ns: Option<u64>) -> io::Result<()> {
        self.arm_waker();
        let timeout_ns = if self.ended.is_empty() { timeout_ns } else { Some(0) };
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

    /// Returns true if an operation has ended that [`Ring::next_completion`] returns without waiting.
    pub fn has_ended(&self) -> bool {
        !self.ended.is_empty()
    }

    fn arm_waker(&mut self) {
        if !std::mem::replace(&mut self.is_waker_armed, true) {
            use std::os::fd::AsRawFd;
            let fd = Fd(self.waker.0.as_raw_fd());
            let entry = opcode::Read::new(fd, self.wake_count.as_mut_ptr(), 8).build();
            self.submit_entry(entry.user_data(WAKE));
        }
    }

    /// Takes one operation that has ended, if any.
    pub fn next_completion(&mut self) -> Option<Completion<T>> {
        if let Some(ended) = self.ended.pop_front() {
            return Some(ended);
        }
        loop {
            let entry = self.uring.completion().next()?;
            if entry.user_data() == WAKE {
                self.is_waker_armed = false;
                continue;
            }
            let operation = self.in_flight.remove(entry.user_data());
            let result = u32::try_from(entry.result())
                .map(|bytes| bytes + operation.carried.bytes_before())
                .map_err(|_| io::Error::from_raw_os_error(-entry.result()));
            let Operation { token, mut carried, .. } = operation;
            carried.moved(*result.as_ref().unwrap_or(&0));
            return Some(Completion { token, result, carried });
        }
    }
}

impl<T> Drop for Ring<T> {
    /// Waits until the kernel has let go of all memory.
    fn drop(&mut self) {
        // Operations that were not submitted could not be cancelled.
        let _ = self.uring.submit();
        self.waker.wake();
        // Operations that cannot be cancelled in this time end by themselves below. Without a bound this call
        // could wait for them without taking the completions that they need.
        let (cancel, timeout) = (io_uring::types::CancelBuilder::any(), Timespec::new().sec(1));
        let _ = self.uring.submitter().register_sync_cancel(Some(timeout), cancel);
        while self.in_flight.ending() > 0 || self.is_waker_armed {
            if self.uring.submit_and_wait(1).is_err_and(|error| !is_transient(&error)) {
                // The kernel no longer answers: leaking the memory is safer than freeing memory that the
                // kernel may still touch.
                std::mem::forget(std::mem::replace(&mut self.in_flight, InFlight::new()));
                std::mem::forget(self.pool.clone());
                return;
            }
            while self.next_completion().is_some() {}
        }
    }
}

/// Receives the bytes that the socket has.
fn receive_now(socket: &Descriptor, target: &mut [u8]) -> rustix::io::Result<usize> {
    let (_, count) = rustix::net::recv(socket, target, rustix::net::RecvFlags::DONTWAIT)?;
    Ok(count)
}

/// Sends the bytes that the socket has room for.
fn send_now(socket: &Descriptor, batch: &mut SendBatch) -> rustix::io::Result<usize> {
    let message = batch.message();
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the message and all that it points to are owned by the batch, which outlives this call.
    let count = unsafe { libc::sendmsg(socket.raw(), message, flags) };
    usize::try_from(count).map_err(|_| {
        rustix::io::Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(rustix::io::Errno::IO)
    })
}

fn retrying(mut transfer: impl FnMut() -> rustix::io::Result<usize>) -> rustix::io::Result<usize> {
    loop {
        match transfer() {
            Err(rustix::io::Errno::INTR) => {}
            result => return result,
        }
    }
}

fn is_transient(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::ETIME | libc::EBUSY | libc::EAGAIN))
}

/// Checks alignment, because the kernel does not reliably refuse direct I/O with misaligned memory.
fn check_alignment(offset: u64, start: *const u8, length: u32) {
    let all = offset | start as u64 | u64::from(length);
    assert!(all.is_multiple_of(512), "misaligned file access: {start:?}+{length} at {offset}");
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
        // SAFETY: the arena stays mapped as long as the ring, which holds the pool. The ring is torn down
        // before the pool because it is declared first.
        if unsafe { uring.submitter().register_buffers(&[vector]) }.is_ok() {
            return bytes;
        }
        bytes /= 2;
    }
    0
}
