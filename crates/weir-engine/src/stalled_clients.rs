//! Stalled clients: clients that hold buffers and do nothing, because they leave replies unread or owe the
//! rest of a payload.
//!
//! However many they are, they keep the buffers of a reactor only while no other connection needs buffers.

use weir_types::bounds::CLIENT_STALL_NS_MAX;

use super::connection::Connection;
use super::reactor::Reactor;
use super::token::ConnectionIndex;
use weir_host::line_gate::LineGate;

/// Rate limit of log lines about disconnected stalled clients.
static STALLED: LineGate = LineGate::new();
/// Nanoseconds between two searches for stalled clients while a connection finds no buffer.
const LOOK_INTERVAL_NS: u64 = CLIENT_STALL_NS_MAX / 20;

impl Reactor {
    /// Closes connections whose clients were idle for longer than permitted, if other connections find no
    /// buffer.
    pub(super) fn end_stalled_clients(&mut self) {
        if self.starved.is_empty() {
            self.stalled_clients_look_ns = None;
            return;
        }
        if self.stalled_clients_look_ns.is_some_and(|look_ns| look_ns > self.io.now_ns) {
            return;
        }
        self.stalled_clients_look_ns = Some(self.io.now_ns + LOOK_INTERVAL_NS);
        let waits_for_buffer = |index: &ConnectionIndex| {
            self.connections.get(*index).is_some_and(|one| one.stalled_since_ns().is_none())
        };
        if !self.starved.iter().any(waits_for_buffer) {
            return;
        }
        let is_over = |since_ns: u64| since_ns.saturating_add(CLIENT_STALL_NS_MAX) <= self.io.now_ns;
        let stalled = self.connections.iter().filter(|(_, one)| one.stalled_since_ns().is_some_and(is_over));
        let stalled: Vec<ConnectionIndex> = stalled.map(|(index, _)| index).collect();
        if !stalled.is_empty()
            && let Some(left_out) = STALLED.pass()
        {
            let (clients, seconds) = (stalled.len(), CLIENT_STALL_NS_MAX / 1_000_000_000);
            tracing::warn!(
                clients,
                left_out,
                "clients that held buffers and read or sent nothing for {seconds} s are disconnected: others need them"
            );
        }
        stalled.into_iter().for_each(|index| self.close_connection(index));
    }
}

impl Connection {
    /// Time since which the client has held buffers and done nothing, in nanoseconds. `None` if it is the
    /// daemon's turn.
    fn stalled_since_ns(&self) -> Option<u64> {
        if self.is_closing {
            return None;
        }
        let unread = self.sending.filter(|_| self.held_bytes > 0).map(|_| self.sending_since_ns);
        let owed =
            self.incoming.as_ref().and_then(|incoming| incoming.part.as_ref()).map(|part| part.since_ns);
        unread.into_iter().chain(owed).min()
    }
}
