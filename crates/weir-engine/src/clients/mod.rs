//! Clients: the connections of a reactor, from the bytes of their sockets to requests, and from results to
//! replies.
//!
//! This module knows volumes by their numbers alone: neither files nor replicas nor policies. It answers
//! with [`ClientEffect`]s what has to be done for its requests. The reactor carries them out, and reports
//! what came of them.

mod block_requests;
mod bound_cgroups;
mod closing;
mod connection;
mod desk;
mod door;
mod fuse;
mod held_payload;
mod holdings;
mod inbox;
mod messages;
mod nbd;
mod outbox;
mod part_buffer;
mod receive_coalescing;
mod receiving;
mod recording;
mod reply_order;
mod request;
mod serving;
mod ublk;
mod volume;

use std::io;

use slab::Slab;
use weir_engine_interface::{CgroupLimit, FlushWindow, OpenVolume};
use weir_nbd::NbdError;
use weir_qos::Limit;
use weir_reactor::Carried;
use weir_types::bounds::{
    CLIENT_STALL_NS_MAX, CONNECTIONS_PER_VOLUME_MAX, CONNECTIONS_SHARED_PER_REACTOR_MAX,
};
use weir_types::{CgroupBindingId, Scope};
use weir_volume::{Content, Fault};

use crate::helper::Run;
use crate::io::Io;
use crate::token::{ConnectionIndex, Ticket, VolumeIndex};
use connection::Connection;
pub use desk::ClientEffect;
use desk::{Desk, Lists};
use door::Door;
pub use door::NewClient;
pub use nbd::NewConnection;
pub use recording::Tap;
pub use serving::EndedOperation;
use volume::VolumeClients;
use weir_host::line_gate::LineGate;

/// Rate limit of log lines about disconnected stalled clients.
static STALLED: LineGate = LineGate::new();
/// Nanoseconds between two searches for stalled clients while a connection finds no buffer.
const LOOK_INTERVAL_NS: u64 = CLIENT_STALL_NS_MAX / 20;

/// The connections of a reactor.
#[derive(Default)]
pub struct Clients {
    connections: Slab<Connection>,
    /// What clients do on each volume of the reactor.
    volumes: Vec<Option<VolumeClients>>,
    lists: Lists,
    /// When to check again for stalled clients that hold buffers while connections find none, in
    /// nanoseconds.
    stalled_look_ns: Option<u64>,
}

impl Clients {
    /// Takes a volume that clients may use.
    pub fn open_volume(&mut self, volume: VolumeIndex, open: OpenVolume) {
        if self.volumes.len() <= volume {
            self.volumes.resize_with(volume + 1, || None);
        }
        self.volumes[volume] = Some(VolumeClients::new(open));
    }

    /// Forgets a volume without connections.
    pub fn close_volume(&mut self, volume: VolumeIndex) {
        self.volumes[volume] = None;
    }

    /// Begins or ends recording a volume.
    pub fn set_tap(&mut self, volume: VolumeIndex, tap: Option<Tap>) {
        self.volume(volume).set_tap(tap);
    }

    fn volume(&mut self, volume: VolumeIndex) -> &mut VolumeClients {
        self.volumes[volume].as_mut().expect("a volume is open while it has clients")
    }

    /// A connection, and what it may use.
    fn at<'a>(&'a mut self, io: &'a mut Io, index: ConnectionIndex) -> (&'a mut Connection, Desk<'a>) {
        let connection = &mut self.connections[index];
        let volume = self.volumes[connection.volume].as_mut().expect("a volume is open while it has clients");
        (connection, Desk { io, lists: &mut self.lists, volume })
    }

    /// True if there is an effect to carry out.
    pub fn has_effects(&self) -> bool {
        self.lists.has_effects()
    }

    /// The next effect to carry out.
    pub fn next_effect(&mut self) -> Option<ClientEffect> {
        self.lists.next_effect()
    }

    /// True if a volume may have another connection. The first connection of a volume always has a place;
    /// further connections share the remaining places.
    pub fn has_place_for(&self, volume: VolumeIndex) -> bool {
        let of_volume = self.count_of(volume);
        let firsts = self.volumes.iter().flatten().filter(|volume| volume.connections() > 0).count();
        let shared = self.connections.len().saturating_sub(firsts);
        let free = CONNECTIONS_SHARED_PER_REACTOR_MAX.saturating_sub(shared);
        of_volume == 0 || (of_volume < CONNECTIONS_PER_VOLUME_MAX && of_volume <= free)
    }

    /// Number of connections of a volume.
    pub fn count_of(&self, volume: VolumeIndex) -> usize {
        self.volumes.get(volume).and_then(Option::as_ref).map_or(0, VolumeClients::connections)
    }

    /// Adds a connection.
    pub fn add(&mut self, new: NewClient, volume: VolumeIndex) -> ConnectionIndex {
        let entry = self.connections.vacant_entry();
        let index = entry.key();
        entry.insert(Connection::new(new, index, volume));
        self.volume(volume).connected();
        index
    }

    /// Number of connections.
    pub fn count(&self) -> usize {
        self.connections.len()
    }

    /// Number of connections of which something has to end before the daemon does.
    pub fn count_working(&self) -> usize {
        self.connections
            .iter()
            .filter(|(_, connection)| !block_requests::is_left_to_its_driver(connection))
            .count()
    }

    /// All connections.
    pub fn connections(&self) -> Vec<ConnectionIndex> {
        self.connections.iter().map(|(index, _)| index).collect()
    }

    /// The connections of a volume.
    pub fn of_volume(&self, volume: VolumeIndex) -> Vec<ConnectionIndex> {
        let of_volume = self.connections.iter().filter(|(_, connection)| connection.volume == volume);
        of_volume.map(|(index, _)| index).collect()
    }

    /// The connections by which the kernel of this host has a volume.
    pub fn attached_to(&self, volume: VolumeIndex) -> Vec<ConnectionIndex> {
        let of_volume = self.connections.iter().filter(|(_, connection)| connection.volume == volume);
        let attached = of_volume.filter(|(_, connection)| connection.door.is_attached());
        attached.map(|(index, _)| index).collect()
    }

    /// The volume of a connection that is there.
    pub fn volume_of(&self, index: ConnectionIndex) -> Option<VolumeIndex> {
        self.connections.get(index).map(|connection| connection.volume)
    }

    /// Ends the sockets of all connections, because the daemon ends.
    pub fn shut_down(&self) {
        self.connections.iter().for_each(|(_, connection)| connection.door.shut_down());
    }

    /// Follows what flushes a volume may answer early.
    pub fn set_flush_window(&mut self, volume: VolumeIndex, window: Option<FlushWindow>) {
        self.volume(volume).set_flush_window(window);
    }

    /// The cgroups of a volume that have limits from now on.
    pub fn set_cgroups(&mut self, volume: VolumeIndex, limits: &[CgroupLimit]) {
        self.volume(volume).set_cgroups(limits);
    }

    /// The cgroup with a limit that a request, which is not answered, comes from.
    pub fn cgroup_of(&self, ticket: Ticket) -> Option<CgroupBindingId> {
        self.connections.get(ticket.0)?.requests.get(ticket.1)?.cgroup()
    }

    /// Parses a connection's input until there is an effect to carry out, and answers true: parsing then
    /// goes on afterwards. Once there is no more to parse, asks for more input.
    pub fn parse(&mut self, io: &mut Io, index: ConnectionIndex) -> bool {
        let (connection, mut desk) = self.at(io, index);
        match connection.door {
            Door::Ublk(_) => block_requests::take_block_requests(connection, &mut desk),
            Door::Nbd(_) | Door::Fuse(_) => connection.parse(&mut desk),
        }
    }

    /// The kernel has received input. True if it can be parsed.
    pub fn received(
        &mut self,
        io: &mut Io,
        index: ConnectionIndex,
        (result, carried): (io::Result<u32>, Carried),
    ) -> bool {
        let (connection, mut desk) = self.at(io, index);
        connection.received(result, carried, &mut desk)
    }

    /// The kernel has received a part of a payload. True if more input can be parsed.
    pub fn received_payload(
        &mut self,
        io: &mut Io,
        index: ConnectionIndex,
        (result, carried): (io::Result<u32>, Carried),
    ) -> bool {
        let (connection, mut desk) = self.at(io, index);
        connection.received_payload(result, carried, &mut desk)
    }

    /// A mounted filesystem has messages. True if its connection is there, and they can be taken.
    pub fn has_messages(&mut self, index: ConnectionIndex) -> bool {
        let connection = self.connections.get_mut(index).filter(|connection| !connection.is_closing);
        connection.is_some_and(|connection| {
            connection.door.reported();
            matches!(connection.door, Door::Fuse(_))
        })
    }

    /// The driver of a block device has answered for a tag. True if its connection is there, and there is a request.
    pub fn fetched(
        &mut self,
        io: &mut Io,
        (index, tag): (ConnectionIndex, u16),
        result: &io::Result<u32>,
    ) -> bool {
        let (connection, mut desk) = self.at(io, index);
        block_requests::fetched(connection, tag, result, &mut desk)
    }

    /// The size of a volume has changed, in bytes. Clients that ask for it get to know.
    pub fn resized(&mut self, volume: VolumeIndex, size_bytes: u64) {
        let of_volume = self.connections.iter_mut().filter(|(_, connection)| connection.volume == volume);
        of_volume.for_each(|(_, connection)| connection.door.resized(size_bytes));
    }

    /// The client has hung up.
    pub fn hung_up(&mut self, io: &mut Io, index: ConnectionIndex) {
        let (connection, mut desk) = self.at(io, index);
        connection.hung_up(&mut desk);
    }

    /// The kernel has sent a batch of replies, or failed to.
    pub fn sent(
        &mut self,
        io: &mut Io,
        index: ConnectionIndex,
        (result, carried): (io::Result<u32>, Carried),
    ) {
        let (connection, mut desk) = self.at(io, index);
        connection.sent(result, carried, &mut desk);
    }

    /// Runs an admitted request.
    pub fn run(&mut self, io: &mut Io, ticket: Ticket) {
        let (connection, mut desk) = self.at(io, ticket.0);
        connection.run(ticket.1, &mut desk);
    }

    /// A ceiling delays a request.
    pub fn delay(&mut self, io: &mut Io, ticket: Ticket) {
        let (connection, mut desk) = self.at(io, ticket.0);
        connection.delay(ticket.1, &mut desk);
    }

    /// Runs a request that waited for its ceilings. The end of another request may have ended its
    /// connection, and this request with it.
    pub fn admitted(
        &mut self,
        io: &mut Io,
        ticket: Ticket,
        (waited_ns, bound_by): (u64, Option<(&Scope, Limit)>),
    ) {
        if self.connections.contains(ticket.0) {
            let (connection, mut desk) = self.at(io, ticket.0);
            connection.admitted(ticket.1, waited_ns, bound_by, &mut desk);
        }
    }

    /// An operation of a request has ended.
    pub fn operation_ended(
        &mut self,
        io: &mut Io,
        ticket: Ticket,
        ended: EndedOperation,
        result: Result<Content, Fault>,
    ) {
        let (connection, mut desk) = self.at(io, ticket.0);
        connection.operation_ended(ticket.1, ended, result, &mut desk);
    }

    /// A flush has ended.
    pub fn flushed(&mut self, io: &mut Io, ticket: Ticket, result: Result<(), Fault>) {
        let (connection, mut desk) = self.at(io, ticket.0);
        connection.flushed(ticket.1, result, &mut desk);
    }

    /// The status of a range was found.
    pub fn status_found(&mut self, io: &mut Io, ticket: Ticket, result: Result<Vec<Run>, NbdError>) {
        let (connection, mut desk) = self.at(io, ticket.0);
        connection.status_found(ticket.1, result, &mut desk);
    }

    /// True if no connection has replies to send, or can be resumed.
    pub fn is_idle(&self, io: &Io) -> bool {
        self.lists.is_idle() && !self.lists.can_feed_starved(io.pool.returns())
    }

    /// The next instant at which there is something to do, in nanoseconds.
    pub fn next_ns(&self) -> Option<u64> {
        self.lists.gathers_until_ns().into_iter().chain(self.stalled_look_ns).min()
    }

    /// True if requests gather in sockets.
    pub fn is_gathering(&self) -> bool {
        self.lists.gathers_until_ns().is_some()
    }

    /// Receives the input of connections whose gathering time is over.
    pub fn receive_gathered(&mut self, io: &mut Io) {
        while let Some(index) = self.lists.next_gathered(io.now_ns) {
            let (connection, mut desk) = self.at(io, index);
            connection.receive_gathered(&mut desk);
        }
    }

    /// Lists connections that found no buffer to be resumed, once a buffer was returned.
    pub fn resume_starved(&mut self, io: &Io) {
        if !self.lists.can_feed_starved(io.pool.returns()) {
            return;
        }
        for index in self.lists.take_starved() {
            if let Some(connection) = self.connections.get_mut(index) {
                connection.holdings.list_resuming(&mut self.lists);
            }
        }
    }

    /// The number of connections to resume in this round. Those that are listed meanwhile wait for the next one.
    pub fn resuming_count(&self) -> usize {
        self.lists.resuming_count()
    }

    /// The next connection to resume.
    pub fn next_resuming(&mut self) -> Option<ConnectionIndex> {
        self.lists.next_resuming()
    }

    /// Resumes the requests of a listed connection. True if more of its input may be parsed afterwards.
    pub fn resume(&mut self, io: &mut Io, index: ConnectionIndex) -> bool {
        if !self.connections.contains(index) {
            return false;
        }
        let (connection, mut desk) = self.at(io, index);
        connection.holdings.unlist_resuming();
        connection.start_held_reads(&mut desk);
        connection.feed_starving(&mut desk);
        true
    }

    /// Hands one batch of each listed connection to the kernel.
    pub fn send_outgoing(&mut self, io: &mut Io) {
        for index in self.lists.drain_outgoing() {
            if let Some(connection) = self.connections.get_mut(index) {
                connection.holdings.unlist_outgoing();
                connection.send_next(io);
            }
        }
    }

    /// Closes a connection.
    pub fn close(&mut self, io: &mut Io, index: ConnectionIndex) {
        let (connection, mut desk) = self.at(io, index);
        connection.close(&mut desk);
    }

    /// Drains a connection, and refuses its requests that are not admitted yet.
    pub fn cut_short(&mut self, io: &mut Io, index: ConnectionIndex) {
        let (connection, mut desk) = self.at(io, index);
        connection.cut_short(&mut desk);
    }

    /// The connections that drain or close.
    pub fn take_ending(&mut self) -> Vec<ConnectionIndex> {
        self.lists.take_ending()
    }

    /// Goes on with the end of a connection: closes it once it is drained, and removes it once it is quiet.
    pub fn settle(&mut self, io: &mut Io, index: ConnectionIndex) {
        let (connection, mut desk) = self.at(io, index);
        if !connection.settle(&mut desk) {
            return self.lists.end(index);
        }
        let connection = self.connections.remove(index);
        debug_assert!(connection.holdings.is_nothing(), "a connection took buffers with it");
        if let Some(until_ns) = connection.door.gathers_until_ns() {
            self.lists.end_gathering(until_ns, index);
        }
        let volume = connection.volume;
        self.volume(volume).disconnected();
        self.lists.add(ClientEffect::Gone { connection: index, volume });
    }

    /// Clients that hold buffers and do nothing, because they leave replies unread or owe the rest of a
    /// payload, if other connections find no buffer. However many they are, they keep the buffers of a
    /// reactor only while no other connection needs buffers.
    pub fn stalled(&mut self, now_ns: u64) -> Vec<ConnectionIndex> {
        if self.lists.starved().is_empty() {
            self.stalled_look_ns = None;
            return Vec::new();
        }
        if self.stalled_look_ns.is_some_and(|look_ns| look_ns > now_ns) {
            return Vec::new();
        }
        self.stalled_look_ns = Some(now_ns + LOOK_INTERVAL_NS);
        let waits_for_buffer = |index: &ConnectionIndex| {
            self.connections.get(*index).is_some_and(|one| one.stalled_since_ns().is_none())
        };
        if !self.lists.starved().iter().any(waits_for_buffer) {
            return Vec::new();
        }
        let is_over = |since_ns: u64| since_ns.saturating_add(CLIENT_STALL_NS_MAX) <= now_ns;
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
        stalled
    }

    /// True if a connection found no buffer.
    #[cfg(test)]
    pub fn has_starved(&self) -> bool {
        !self.lists.starved().is_empty()
    }
}
