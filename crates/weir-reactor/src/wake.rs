//! Waking a reactor from another thread.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};

/// Wakes the reactor that it belongs to. Cheap to clone, usable from any thread.
#[derive(Clone, Debug)]
pub struct Waker(pub(crate) Arc<OwnedFd>);

impl Waker {
    pub(crate) fn new() -> std::io::Result<Waker> {
        Ok(Waker(Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?)))
    }

    /// Makes the reactor's wait return soon. Several wakes before the reactor runs count as one.
    pub fn wake(&self) {
        // A write fails only if the counter is full, and then a wake is pending already.
        let _ = rustix::io::write(&*self.0, &1u64.to_ne_bytes());
    }
}
