//! Reply order: which reads of a connection may be answered now.
//!
//! Some replies must be one run of bytes, but are longer than one buffer. A long reply of this kind is sent
//! piece by piece, and nothing may come between its pieces. No other read of the connection is served until
//! its end, so no read holds buffers that only the long reply could free. Short replies to other requests
//! wait until its end.

use super::connection::{ActiveRequest, Connection};
use super::reactor::Reactor;
use super::serve::is_unfragmented;
use super::token::ConnectionIndex;
use weir_volume::geometry::next_piece;

impl Connection {
    /// True if the read may begin now.
    fn may_answer(&self, request: &ActiveRequest) -> bool {
        let is_alone = !is_unfragmented(request, self.has_structured_replies) || has_one_piece(request);
        self.streaming_read.is_none() && (is_alone || self.reads_under_way == 0)
    }
}

fn has_one_piece(request: &ActiveRequest) -> bool {
    let first = next_piece(request.request.offset, request.length(), 0);
    first.is_none_or(|part| u64::from(part.length) == request.length())
}

impl Reactor {
    /// Begins a read, or lets it wait.
    pub(super) fn start_reading(&mut self, index: ConnectionIndex, id: usize) {
        let connection = &mut self.connections[index];
        if connection.held_reads.is_empty() && connection.may_answer(&connection.requests[id]) {
            return self.begin_reading(index, id);
        }
        connection.held_reads.push_back(id);
    }

    fn begin_reading(&mut self, index: ConnectionIndex, id: usize) {
        let connection = &mut self.connections[index];
        let request = &mut connection.requests[id];
        request.is_reading = true;
        connection.reads_under_way += 1;
        if is_unfragmented(request, connection.has_structured_replies) && !has_one_piece(request) {
            connection.streaming_read = Some(id);
        }
        self.continue_reading(index, id);
    }

    /// Begins waiting reads, in order.
    pub(super) fn start_held_reads(&mut self, index: ConnectionIndex) {
        loop {
            let connection = &mut self.connections[index];
            let Some(&id) = connection.held_reads.front() else { return };
            if !connection.may_answer(&connection.requests[id]) {
                return;
            }
            connection.held_reads.pop_front();
            self.begin_reading(index, id);
        }
    }

    /// A read has ended: replies that waited for it are sent, and waiting reads may begin.
    pub(super) fn end_reading(&mut self, index: ConnectionIndex, id: usize) {
        let connection = &mut self.connections[index];
        connection.reads_under_way -= 1;
        if connection.streaming_read == Some(id) {
            connection.streaming_read = None;
            let mut kept = std::mem::take(&mut connection.kept);
            connection.outbox.append(&mut kept);
            self.list_outgoing(index);
        }
        if !self.connections[index].held_reads.is_empty() {
            self.list_resuming(index);
        }
    }
}
