//! Reply order: which reads of a connection may be answered now.
//!
//! Some replies must be one run of bytes, but are longer than one buffer. A long reply of this kind is sent
//! piece by piece, and nothing may come between its pieces. No other read of the connection is served until
//! its end, so no read holds buffers that only the long reply could free. Short replies to other requests
//! wait until its end. This module knows requests by their numbers alone.

use std::collections::VecDeque;

/// The order of a connection's reads.
#[derive(Default)]
pub struct ReplyOrder {
    /// Admitted reads that wait, in order.
    held: VecDeque<usize>,
    /// Reads that run and are not answered.
    under_way: usize,
    /// The read whose reply of several pieces is being sent.
    streaming: Option<usize>,
}

impl ReplyOrder {
    /// A read may run as soon as its turn comes. True if it begins now; otherwise it is held.
    /// `is_long_run`: its reply is one run of bytes that is longer than one buffer.
    pub fn arrive(&mut self, id: usize, is_long_run: bool) -> bool {
        let may_begin = self.held.is_empty() && self.may_begin(is_long_run);
        match may_begin {
            true => self.begin(id, is_long_run),
            false => self.held.push_back(id),
        }
        may_begin
    }

    /// Begins the next held read, if its turn has come.
    pub fn next(&mut self, is_long_run: impl Fn(usize) -> bool) -> Option<usize> {
        let id = *self.held.front()?;
        let is_long_run = is_long_run(id);
        if !self.may_begin(is_long_run) {
            return None;
        }
        self.held.pop_front();
        self.begin(id, is_long_run);
        Some(id)
    }

    fn may_begin(&self, is_long_run: bool) -> bool {
        self.streaming.is_none() && (!is_long_run || self.under_way == 0)
    }

    fn begin(&mut self, id: usize, is_long_run: bool) {
        self.under_way += 1;
        if is_long_run {
            self.streaming = Some(id);
        }
    }

    /// A read has ended. True if other replies had to wait for it.
    pub fn end(&mut self, id: usize) -> bool {
        self.under_way -= 1;
        self.streaming.take_if(|streaming| *streaming == id).is_some()
    }

    /// True while other replies wait for the end of a long one.
    pub fn is_streaming(&self) -> bool {
        self.streaming.is_some()
    }

    pub fn has_held(&self) -> bool {
        !self.held.is_empty()
    }

    /// Forgets held reads, because the connection ends.
    pub fn forget_held(&mut self) {
        self.held.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_run_of_bytes_is_alone() {
        let mut order = ReplyOrder::default();
        assert!(order.arrive(1, false));
        assert!(!order.arrive(2, true), "another read is under way");
        assert!(!order.arrive(3, false), "reads stay in order");
        assert!(!order.end(1));
        assert_eq!(order.next(|id| id == 2), Some(2));
        assert_eq!(order.next(|_| false), None, "the long run is under way");
        assert!(order.is_streaming() && order.end(2));
        assert_eq!(order.next(|_| false), Some(3));
        assert!(!order.has_held());
    }
}
