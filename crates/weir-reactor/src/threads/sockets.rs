//! Operations on sockets and devices, which wait for them together (`epoll(7)`).

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{OwnedFd, RawFd};

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::{End, result_of};
use crate::descriptor::Descriptor;
use crate::request::Request;
use crate::send::{after, send_message};
use crate::wake::Waker;

/// Most events that are taken at once; the others are taken by the next call.
const EVENTS_MAX: usize = 256;
/// Mark of the waker's events. Others have the number of their descriptor.
const WAKE: u64 = u64::MAX;
/// Events that end or move every operation: they are reported unasked.
const FAULTS: EventFlags = EventFlags::ERR.union(EventFlags::HUP);

/// The operations of one reactor that wait.
pub(super) struct Sockets {
    epoll: OwnedFd,
    waiting: HashMap<RawFd, Waited>,
    waker: Waker,
    events: Vec<Event>,
}

/// A descriptor for which operations wait, at least one.
struct Waited {
    /// Held so that its number is not reused while the kernel watches it.
    descriptor: Descriptor,
    operations: Vec<Waiting>,
    is_watched: bool,
}

/// An operation that waits until its descriptor is ready.
struct Waiting {
    index: u64,
    request: Request,
    /// Bytes moved so far.
    moved: usize,
}

impl Sockets {
    pub fn new(waker: Waker) -> io::Result<Sockets> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &waker.0, EventData::new_u64(WAKE), EventFlags::IN)?;
        Ok(Sockets { epoll, waiting: HashMap::new(), waker, events: Vec::with_capacity(EVENTS_MAX) })
    }

    /// Lets an operation wait. An error means that the kernel has no memory to watch its descriptor.
    pub fn add(&mut self, index: u64, descriptor: &Descriptor, request: Request) -> Result<(), Errno> {
        let new = || Waited { descriptor: descriptor.clone(), operations: Vec::new(), is_watched: false };
        let waited = self.waiting.entry(descriptor.raw()).or_insert_with(new);
        waited.operations.push(Waiting { index, request, moved: 0 });
        let watched = waited.watch(&self.epoll);
        if watched.is_err() {
            waited.operations.pop();
            self.forget_if_unused(descriptor.raw());
        }
        watched
    }

    /// Waits until a descriptor is ready, the waker wakes it, or the time is over; then goes on with what is ready.
    /// Returns true if the waker woke it.
    pub fn wait(&mut self, timeout_ns: Option<u64>, ended: &mut VecDeque<End>) -> io::Result<bool> {
        match self.sleep(timeout_ns).and_then(|()| self.take_events()) {
            Err(Errno::INTR) => return Ok(false),
            taken => taken?,
        }
        let mut is_woken = false;
        let mut events = std::mem::take(&mut self.events);
        for event in events.drain(..) {
            let (flags, mark) = (event.flags, event.data.u64());
            if mark == WAKE {
                // It is ready, so this does not block.
                rustix::io::read(&self.waker.0, &mut [0_u8; 8])?;
                is_woken = true;
            } else {
                self.go_on(mark as RawFd, flags, ended);
            }
        }
        self.events = events;
        Ok(is_woken)
    }

    /// Waits for any event. The time-out of `epoll_wait` counts milliseconds, which is too coarse.
    fn sleep(&self, timeout_ns: Option<u64>) -> Result<(), Errno> {
        if timeout_ns == Some(0) {
            return Ok(());
        }
        let time = timeout_ns
            .map(|ns| Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 });
        poll(&mut [PollFd::new(&self.epoll, PollFlags::IN)], time.as_ref()).map(drop)
    }

    fn take_events(&mut self) -> Result<(), Errno> {
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        epoll::wait(&self.epoll, spare_capacity(&mut self.events), Some(&at_once)).map(drop)
    }

    /// Goes on with the operations of a descriptor that its events concern.
    fn go_on(&mut self, number: RawFd, flags: EventFlags, ended: &mut VecDeque<End>) {
        let Some(waited) = self.waiting.get_mut(&number) else { return };
        waited.go_on(flags, ended);
        if !waited.operations.is_empty()
            && let Err(error) = waited.watch(&self.epoll)
        {
            waited.end(error, ended);
        }
        self.forget_if_unused(number);
    }

    fn forget_if_unused(&mut self, number: RawFd) {
        if let Some(unused) = self.waiting.remove(&number) {
            if !unused.operations.is_empty() {
                self.waiting.insert(number, unused);
            } else if unused.is_watched {
                // It fails only if the descriptor is not watched.
                let _ = epoll::delete(&self.epoll, &unused.descriptor);
            }
        }
    }

    /// Ends the operations of descriptors as cancelled.
    pub fn cancel(&mut self, is_meant: impl Fn(&Descriptor) -> bool, ended: &mut VecDeque<End>) {
        let meant = self.waiting.values_mut().filter(|waited| is_meant(&waited.descriptor));
        let numbers: Vec<RawFd> = meant
            .map(|waited| {
                waited.end(Errno::CANCELED, ended);
                waited.descriptor.raw()
            })
            .collect();
        numbers.into_iter().for_each(|number| self.forget_if_unused(number));
    }
}

impl Waited {
    /// Lets the kernel report the next event that any of the operations waits for.
    fn watch(&mut self, epoll: &OwnedFd) -> Result<(), Errno> {
        let wanted = self.operations.iter().map(Waiting::events).fold(EventFlags::ONESHOT, EventFlags::union);
        let mark = EventData::new_u64(self.descriptor.raw() as u64);
        match self.is_watched {
            true => epoll::modify(epoll, &self.descriptor, mark, wanted),
            false => epoll::add(epoll, &self.descriptor, mark, wanted).map(|()| self.is_watched = true),
        }
    }

    fn go_on(&mut self, flags: EventFlags, ended: &mut VecDeque<End>) {
        let descriptor = &self.descriptor;
        self.operations.retain_mut(|operation| {
            let is_ready = flags.intersects(operation.events() | FAULTS);
            let result = if is_ready { operation.go_on(descriptor) } else { None };
            ended.extend(result.map(|result| (operation.index, result_of(result))));
            result.is_none()
        });
    }

    fn end(&mut self, error: Errno, ended: &mut VecDeque<End>) {
        ended.extend(self.operations.drain(..).map(|operation| (operation.index, result_of(Err(error)))));
    }
}

impl Waiting {
    /// What to wait for. The numbers are those of `poll(2)`.
    fn events(&self) -> EventFlags {
        match self.request {
            Request::Receive { .. } => EventFlags::IN,
            Request::Send { .. } => EventFlags::OUT,
            Request::Watch { events } => EventFlags::from_bits_retain(events as u32),
            _ => unreachable!("only operations on sockets wait for them"),
        }
    }

    /// Goes on with an operation whose descriptor is ready. Returns its result if it has ended.
    fn go_on(&mut self, descriptor: &Descriptor) -> Option<Result<usize, Errno>> {
        loop {
            let (result, wanted) = match self.request {
                Request::Receive { start, length, is_whole } => {
                    let wanted = if is_whole { length as usize } else { 1 };
                    (self.receive(descriptor, start, length as usize), wanted)
                }
                Request::Send { message } => self.send(descriptor, message),
                _ => return Some(Ok(1)),
            };
            match result {
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return None,
                // The next operation meets the same fault.
                Err(_) if self.moved > 0 => return Some(Ok(self.moved)),
                Err(error) => return Some(Err(error)),
                Ok(count) => {
                    self.moved += count;
                    if count == 0 || self.moved >= wanted {
                        return Some(Ok(self.moved));
                    }
                }
            }
        }
    }

    /// Receives what has arrived of the bytes that are missing.
    fn receive(&self, descriptor: &Descriptor, start: *mut u8, length: usize) -> Result<usize, Errno> {
        // SAFETY: the table of operations in flight owns the memory, of so many bytes, until this operation has ended.
        // Nothing else uses it meanwhile. It is initialised.
        let target = unsafe { std::slice::from_raw_parts_mut(start, length) };
        let flags = rustix::net::RecvFlags::DONTWAIT;
        rustix::net::recv(descriptor, &mut target[self.moved..], flags).map(|(_, count)| count)
    }

    /// Sends what there is room for of the bytes that are missing. Returns the number of all bytes too.
    fn send(&self, descriptor: &Descriptor, message: *const libc::msghdr) -> (Result<usize, Errno>, usize) {
        // SAFETY: the table of operations in flight owns the message and its vectors until this operation has ended.
        let (message, vectors) = unsafe {
            (&*message, std::slice::from_raw_parts((*message).msg_iov.cast_const(), (*message).msg_iovlen))
        };
        let length = vectors.iter().map(|vector| vector.iov_len).sum();
        let mut rest = after(vectors, self.moved);
        let message = libc::msghdr { msg_iov: rest.as_mut_ptr(), msg_iovlen: rest.len(), ..*message };
        // SAFETY: as above; the vectors of the rest outlive the call.
        let result = unsafe { send_message(descriptor, &raw const message) };
        (result, length)
    }
}
