//! Holdings: the pooled buffers that a connection holds, and the lists that it is on.

use weir_reactor::Unfilled;
use weir_types::bounds::{
    CONNECTION_BUFFER_BYTES_MAX, CONNECTION_BUFFER_BYTES_MIN, CONNECTION_WAITING_BYTES_MAX,
};

use super::desk::{Desk, Lists};
use crate::io::Io;
use crate::memory::Memory;
use crate::token::ConnectionIndex;

/// What a connection holds of what connections share.
pub struct Holdings {
    index: ConnectionIndex,
    /// Bytes of pooled buffers that the connection holds in any form.
    held_bytes: usize,
    /// The connection holds as many buffers as it may, so it did not get another one.
    is_short_of_buffers: bool,
    is_listed_outgoing: bool,
    is_listed_resuming: bool,
}

impl Holdings {
    pub fn new(index: ConnectionIndex) -> Holdings {
        Holdings {
            index,
            held_bytes: 0,
            is_short_of_buffers: false,
            is_listed_outgoing: false,
            is_listed_resuming: false,
        }
    }

    /// True if the connection holds no pooled buffer.
    pub fn is_nothing(&self) -> bool {
        self.held_bytes == 0
    }

    /// Takes a buffer, within the connection's bounds. Without one, the connection is listed to be resumed.
    pub fn take_buffer(
        &mut self,
        bytes: usize,
        is_for_running: bool,
        desk: &mut Desk<'_>,
    ) -> Option<Unfilled> {
        let footprint = weir_reactor::buffer::footprint(bytes);
        if self.held_bytes > 0 && self.held_bytes + footprint > allowed_bytes(desk.io, is_for_running) {
            self.is_short_of_buffers = true;
            return None;
        }
        let taken = desk.io.pool.take(bytes);
        match &taken {
            Some(_) => self.held_bytes += footprint,
            None => desk.lists.starve(self.index, desk.io.pool.returns()),
        }
        taken
    }

    /// Returns memory.
    pub fn give_back(&mut self, memory: Option<impl Into<Memory>>, lists: &mut Lists) {
        if let Some(memory) = memory {
            self.unhold(memory.into().capacity(), lists);
        }
    }

    /// Returns buffers that were taken just now. No connection waits for them, so none is woken.
    pub fn return_untouched(&mut self, buffers: Vec<Unfilled>) {
        self.held_bytes -= buffers.iter().map(Unfilled::capacity).sum::<usize>();
    }

    /// Counts buffers as returned.
    pub fn unhold(&mut self, bytes: usize, lists: &mut Lists) {
        self.held_bytes -= bytes;
        if bytes > 0 && std::mem::take(&mut self.is_short_of_buffers) {
            self.list_resuming(lists);
        }
    }

    /// Lists the connection to be resumed at the end of this round.
    pub fn list_resuming(&mut self, lists: &mut Lists) {
        if !std::mem::replace(&mut self.is_listed_resuming, true) {
            lists.resume(self.index);
        }
    }

    /// The connection was taken from the list, and is resumed now.
    pub fn unlist_resuming(&mut self) {
        self.is_listed_resuming = false;
    }

    /// Lists the connection as having replies to send.
    pub fn list_outgoing(&mut self, lists: &mut Lists) {
        if !std::mem::replace(&mut self.is_listed_outgoing, true) {
            lists.send(self.index);
        }
    }

    /// The connection was taken from the list, and sends now.
    pub fn unlist_outgoing(&mut self) {
        self.is_listed_outgoing = false;
    }
}

/// Buffer bytes that a connection may hold at present. Requests that wait for admission get less, so that
/// clients of a delayed volume do not use up the buffers of others.
fn allowed_bytes(io: &Io, is_for_running: bool) -> usize {
    match (io.pool.free_bytes() > io.pool.total_bytes() / 2, is_for_running) {
        (true, true) => CONNECTION_BUFFER_BYTES_MAX,
        (true, false) => CONNECTION_WAITING_BYTES_MAX,
        (false, _) => CONNECTION_BUFFER_BYTES_MIN,
    }
}
