//! Threads in place of io_uring, where it is forbidden: in most containers, for example.
//!
//! Operations on files block a worker of a pool; those on sockets wait together. Drivers of block devices
//! take commands from io_uring alone, so such devices cannot be served.

mod sockets;
mod workers;

use std::collections::VecDeque;
use std::io;

use rustix::io::Errno;

use crate::descriptor::Descriptor;
use crate::request::Request;
use crate::wake::Waker;
use sockets::Sockets;
use workers::Workers;

/// Index and result of an operation that has ended: a count, or an error number below zero.
type End = (u64, i32);

/// Pause before a worker is started again that could not be started, in nanoseconds.
const START_PAUSE_NS: u64 = 100_000_000;

/// The workers and the waiting sockets of one reactor.
pub(crate) struct Threads {
    workers: Workers,
    sockets: Sockets,
    ended: VecDeque<End>,
    /// True if the waker woke a call of [`Threads::look`], after which the next wait must not sleep.
    is_woken: bool,
}

impl Threads {
    pub fn new(waker: Waker) -> io::Result<Threads> {
        let (workers, sockets) = (Workers::new(waker.clone())?, Sockets::new(waker)?);
        Ok(Threads { workers, sockets, ended: VecDeque::new(), is_woken: false })
    }

    /// Issues an operation. The memory that it points to, and the descriptor, must stay until its index has come back.
    pub fn issue(&mut self, index: u64, descriptor: &Descriptor, request: Request) {
        let waiting = match request {
            Request::Block(_) => Err(Errno::NOSYS),
            Request::Receive { .. } | Request::Send { .. } | Request::Watch { .. } => {
                self.sockets.add(index, descriptor, request)
            }
            _ => {
                self.workers.issue(index, descriptor, request);
                Ok(())
            }
        };
        if let Err(error) = waiting {
            self.ended.push_back((index, result_of(Err(error))));
        }
    }

    /// Looks once for ends, and for the waker. It does not busy-poll: that would take a core from the workers.
    pub fn look(&mut self) -> bool {
        // A wait that fails is made again, and reported, by the caller.
        let is_woken = self.go_on(Some(0)).unwrap_or(true);
        self.is_woken |= is_woken;
        self.is_woken || !self.ended.is_empty()
    }

    /// Waits until an operation ends, the waker wakes it, or the time is over.
    pub fn wait(&mut self, timeout_ns: Option<u64>) -> io::Result<()> {
        self.workers.take_ended(&mut self.ended);
        let has_news = std::mem::take(&mut self.is_woken) || !self.ended.is_empty();
        let mut timeout_ns = if has_news { Some(0) } else { timeout_ns };
        if self.workers.start_missing() {
            timeout_ns = Some(timeout_ns.map_or(START_PAUSE_NS, |ns| ns.min(START_PAUSE_NS)));
        }
        self.go_on(timeout_ns).map(drop)
    }

    /// Goes on with what is ready. Returns true if the waker woke it.
    fn go_on(&mut self, timeout_ns: Option<u64>) -> io::Result<bool> {
        let is_woken = self.sockets.wait(timeout_ns, &mut self.ended)?;
        self.workers.take_ended(&mut self.ended);
        Ok(is_woken)
    }

    /// Takes an operation that has ended.
    pub fn next(&mut self) -> Option<End> {
        self.ended.pop_front()
    }

    /// Ends all that waits for a descriptor.
    pub fn cancel_on(&mut self, descriptor: &Descriptor) {
        self.sockets.cancel(|waiting| waiting.raw() == descriptor.raw(), &mut self.ended);
    }

    /// Ends all that waits for sockets. What the workers have is carried out.
    pub fn cancel_all(&mut self) {
        self.sockets.cancel(|_| true, &mut self.ended);
    }
}

/// A result as io_uring gives it.
fn result_of(result: Result<usize, Errno>) -> i32 {
    match result {
        Ok(count) => i32::try_from(count).expect("an operation moves at most 2 GiB"),
        Err(error) => -error.raw_os_error(),
    }
}
