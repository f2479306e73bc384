//! The ring: the operations of one thread on files, sockets and devices, by io_uring or by threads.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;

use crate::buffer::{BufferPool, Unfilled};
use crate::descriptor::{Descriptor, FallocateMode};
use crate::in_flight::{Carried, InFlight, Operation, Payload, Target};
use crate::request::Request;
use crate::send::{SendBatch, send_message};
use crate::threads::Threads;
use crate::ublk::BlockQueue;
use crate::uring::{RingError, Uring};
use crate::wake::Waker;

/// How operations are carried out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IoMethod {
    /// By the kernel, through an io_uring.
    #[default]
    Uring,
    /// By threads, one for each operation on a file that is in flight.
    Threads,
}

impl IoMethod {
    /// Returns the best method that this host allows, and why it is not io_uring.
    pub fn best() -> (IoMethod, Option<RingError>) {
        match crate::uring::unavailable() {
            None => (IoMethod::Uring, None),
            // A shortage of resources is an error of the start, which is made again.
            Some(RingError::Other(_)) => (IoMethod::Uring, None),
            reason => (IoMethod::Threads, reason),
        }
    }
}

/// The configuration of a ring.
#[derive(Clone, Copy, Debug)]
pub struct RingConfig {
    /// How operations are carried out. The other fields matter to io_uring alone.
    pub method: IoMethod,
    /// Entries of the submission queue, a power of two; the completion queue has four times as many.
    pub entries: u32,
    /// Part of the pool's arena to register with the kernel, in bytes. Registered memory is locked, and saves
    /// the kernel from pinning a buffer's pages for each access. Buffers from the rest are used without
    /// registration. Where locked memory is short, less is registered, or nothing.
    pub registered_bytes: usize,
}

impl Default for RingConfig {
    fn default() -> Self {
        RingConfig { method: IoMethod::Uring, entries: 1024, registered_bytes: 16 << 20 }
    }
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

/// How many operations that ended as soon as they were issued are taken before the kernel's completions have their
/// turn. Each may be followed by another, so without this bound busy sockets would keep all else from ending.
const ENDED_IN_A_ROW_MAX: u32 = 16;

/// The way to the kernel.
enum Backend {
    Uring(Uring),
    Threads(Threads),
}

/// Operations in flight, each named by a token of the caller, and the buffers for them.
pub struct Ring<T> {
    /// Declared before what it uses: the operations' memory and the pool.
    backend: Backend,
    in_flight: InFlight<T>,
    /// Operations that ended as soon as they were issued.
    ended: VecDeque<Completion<T>>,
    /// Number of these that were taken since the kernel's completions were looked at.
    ended_in_a_row: u32,
    pool: BufferPool,
    waker: Waker,
}

impl<T> Ring<T> {
    /// Sets up a ring for the calling thread, which must be the only one to use it.
    ///
    /// # Errors
    /// If io_uring is asked for and is forbidden, too old, or out of resources.
    pub fn new(config: RingConfig, pool: BufferPool) -> Result<Ring<T>, RingError> {
        let waker = Waker::new()?;
        let backend = match config.method {
            IoMethod::Uring => {
                let uring = Uring::new(config.entries, &pool, config.registered_bytes, waker.clone());
                Backend::Uring(uring?)
            }
            IoMethod::Threads => Backend::Threads(Threads::new(waker.clone())?),
        };
        Ok(Ring {
            backend,
            in_flight: InFlight::new(),
            ended: VecDeque::new(),
            ended_in_a_row: 0,
            pool,
            waker,
        })
    }

    /// Returns a handle with which other threads wake this ring.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Registered part of the arena, in bytes.
    pub fn registered_bytes(&self) -> usize {
        match &self.backend {
            Backend::Uring(uring) => uring.registered_bytes(),
            Backend::Threads(_) => 0,
        }
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
        self.push(token, target.into(), file, Request::Read { start, length, offset });
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
        self.push(token, payload.into(), file, Request::Write { start, length, offset, is_durable });
    }

    /// Makes all completed writes of a file stable.
    pub fn sync(&mut self, token: T, file: &Descriptor) {
        self.push(token, Carried::Nothing, file, Request::Sync);
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
        let mode = placement.mode();
        self.push(token, Carried::Nothing, file, Request::Fallocate { offset, length, mode });
    }

    /// Receives the bytes that a socket has, at least one, into `range`. Zero bytes mean that the peer has
    /// ended. Bytes that have already arrived are taken at once.
    pub fn receive(&mut self, token: T, socket: &Descriptor, mut bytes: Box<[u8]>, range: Range<usize>) {
        let target = &mut bytes[range.clone()];
        let result = retrying(|| receive_now(socket, target));
        if result != Err(rustix::io::Errno::AGAIN) {
            return self.end_now(token, Carried::Bytes(bytes), result);
        }
        let carried = Carried::Bytes(bytes);
        let index = self.in_flight.insert(Operation { token, carried, descriptor: Some(socket.clone()) });
        let Carried::Bytes(bytes) = self.in_flight.carried_mut(index) else {
            unreachable!("a receive carries its bytes");
        };
        let target = &mut bytes[range];
        let (start, length) = (target.as_mut_ptr(), target.len() as u32);
        self.issue(index, socket, Request::Receive { start, length, is_whole: false });
    }

    /// Receives `count` bytes after the filled part of a piece of memory, or fewer if the peer has ended.
    pub fn receive_payload(&mut self, token: T, socket: &Descriptor, mut memory: Unfilled, count: usize) {
        let start = memory.filled().len();
        let target = memory.refill(start..start + count);
        let (start, length) = (target.as_mut_ptr(), target.len() as u32);
        let request = Request::Receive { start, length, is_whole: true };
        self.push(token, Carried::Unfilled(memory), socket, request);
    }

    /// Ends when the peer of a socket hangs up, even if unread input comes before that.
    pub fn watch_hang_up(&mut self, token: T, socket: &Descriptor) {
        self.push(token, Carried::Nothing, socket, Request::Watch { events: libc::POLLRDHUP });
    }

    /// Ends when a device has something to read, or is gone.
    pub fn watch_input(&mut self, token: T, device: &Descriptor) {
        self.push(token, Carried::Nothing, device, Request::Watch { events: libc::POLLIN });
    }

    /// Ends when a block device that this process serves has a request of a tag. Without one, the driver has let go of
    /// the tag. All commands of a queue must come from one thread. Threads cannot carry out these commands.
    pub fn fetch_request(&mut self, token: T, queue: &BlockQueue, tag: u16) {
        self.push(token, Carried::Nothing, queue.device(), Request::Block(queue.fetch(tag)));
    }

    /// Answers the request of a tag, and ends when there is the next one. A negative result is an error number.
    pub fn answer_request(&mut self, token: T, queue: &BlockQueue, tag: u16, result: i32) {
        self.push(token, Carried::Nothing, queue.device(), Request::Block(queue.commit(tag, result)));
    }

    /// Ends the watch of a device at once: until its end it would keep the device open.
    pub fn end_watch(&mut self, device: &Descriptor) {
        match &mut self.backend {
            Backend::Uring(uring) => uring.cancel_on(device),
            Backend::Threads(threads) => threads.cancel_on(device),
        }
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
        let request = Request::Send { message: batch.message() };
        self.issue(index, socket, request);
    }

    fn end_now(&mut self, token: T, mut carried: Carried, result: rustix::io::Result<usize>) {
        let result = result.map(|count| count as u32).map_err(io::Error::from);
        carried.moved(*result.as_ref().unwrap_or(&0));
        self.ended.push_back(Completion { token, result, carried });
    }

    fn push(&mut self, token: T, carried: Carried, descriptor: &Descriptor, request: Request) {
        let index = self.in_flight.insert(Operation { token, carried, descriptor: Some(descriptor.clone()) });
        self.issue(index, descriptor, request);
    }

    /// Issues an operation whose memory the table of operations in flight owns.
    fn issue(&mut self, index: u64, descriptor: &Descriptor, request: Request) {
        match &mut self.backend {
            Backend::Uring(uring) => uring.issue(index, descriptor, request),
            Backend::Threads(threads) => threads.issue(index, descriptor, request),
        }
    }

    /// Submits all issued operations and busy-polls up to `limit_ns` for an end, without going to sleep. True
    /// if an operation has ended; [`Ring::wait`] then takes the end over without waiting. With threads it looks once.
    pub fn look(&mut self, limit_ns: u64) -> bool {
        if self.has_ended() {
            return true;
        }
        match &mut self.backend {
            Backend::Uring(uring) => uring.look(limit_ns),
            Backend::Threads(threads) => threads.look(),
        }
    }

    /// Submits all issued operations and waits until one ends, a [`Waker`] wakes the ring, or `timeout_ns` is
    /// over. With `Some(0)` it does not wait.
    ///
    /// # Errors
    /// The errors of `io_uring_enter(2)` other than interruption, time-out and a full completion queue, or those of
    /// `poll(2)`.
    pub fn wait(&mut self, timeout_ns: Option<u64>) -> io::Result<()> {
        let timeout_ns = if self.ended.is_empty() { timeout_ns } else { Some(0) };
        match &mut self.backend {
            Backend::Uring(uring) => uring.wait(timeout_ns),
            Backend::Threads(threads) => threads.wait(timeout_ns),
        }
    }

    /// Returns true if an operation has ended that [`Ring::next_completion`] returns without waiting.
    pub fn has_ended(&self) -> bool {
        !self.ended.is_empty()
    }

    /// Takes one operation that has ended, if any.
    pub fn next_completion(&mut self) -> Option<Completion<T>> {
        if self.ended_in_a_row < ENDED_IN_A_ROW_MAX
            && let Some(ended) = self.ended.pop_front()
        {
            self.ended_in_a_row += 1;
            return Some(ended);
        }
        self.ended_in_a_row = 0;
        self.next_of_backend().or_else(|| self.ended.pop_front())
    }

    fn next_of_backend(&mut self) -> Option<Completion<T>> {
        let (index, result) = match &mut self.backend {
            Backend::Uring(uring) => uring.next()?,
            Backend::Threads(threads) => threads.next()?,
        };
        let Operation { token, mut carried, .. } = self.in_flight.remove(index);
        let result = u32::try_from(result)
            .map(|bytes| bytes + carried.bytes_before())
            .map_err(|_| io::Error::from_raw_os_error(-result));
        carried.moved(*result.as_ref().unwrap_or(&0));
        Some(Completion { token, result, carried })
    }

    /// True if a [`Waker`] may have woken the ring since the last call: only then can there be something that
    /// other threads passed on before they woke it. To be asked after all ended operations were taken.
    pub fn take_wake_up(&mut self) -> bool {
        match &mut self.backend {
            Backend::Uring(uring) => uring.take_wake_up(),
            // Threads wake the ring for each operation that has ended.
            Backend::Threads(_) => true,
        }
    }

    fn cancel_all(&mut self) {
        match &mut self.backend {
            Backend::Uring(uring) => uring.cancel_all(),
            Backend::Threads(threads) => threads.cancel_all(),
        }
    }

    /// Returns true while memory of this ring may still be touched.
    fn is_held(&self) -> bool {
        let is_held = match &self.backend {
            Backend::Uring(uring) => uring.is_held(),
            Backend::Threads(_) => false,
        };
        is_held || self.in_flight.ending() > 0
    }
}

impl<T> Drop for Ring<T> {
    /// Waits until the kernel and the workers have let go of all memory.
    fn drop(&mut self) {
        self.cancel_all();
        while self.is_held() {
            if self.wait(None).is_err() {
                // Nothing answers any more: leaking the memory is safer than freeing memory that may still be touched.
                std::mem::forget(std::mem::replace(&mut self.in_flight, InFlight::new()));
                std::mem::forget(self.pool.clone());
                return;
            }
            while self.next_completion().is_some() {}
        }
        if let (Backend::Uring(uring), 1..) = (&mut self.backend, self.in_flight.with_driver()) {
            uring.leave_block_devices();
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
    // SAFETY: the message and all that it points to are owned by the batch, which outlives this call.
    unsafe { send_message(socket, message) }
}

fn retrying(mut transfer: impl FnMut() -> rustix::io::Result<usize>) -> rustix::io::Result<usize> {
    loop {
        match transfer() {
            Err(rustix::io::Errno::INTR) => {}
            result => return result,
        }
    }
}

/// Checks alignment, because the kernel does not reliably refuse direct I/O with misaligned memory.
fn check_alignment(offset: u64, start: *const u8, length: u32) {
    let all = offset | start as u64 | u64::from(length);
    assert!(all.is_multiple_of(512), "misaligned file access: {start:?}+{length} at {offset}");
}
