//! Desk: what all connections of a reactor share: lists of connections with something to do, and the effects
//! that the reactor has to carry out for them.

use std::collections::{BTreeSet, VecDeque};

use weir_qos::Cost;
use weir_volume::Kind;
use weir_volume::geometry::Part;

use super::held_payload::HeldBytes;
use super::outbox::SpareBatches;
use super::volume::VolumeClients;
use crate::io::Io;
use crate::memory::Memory;
use crate::token::{ConnectionIndex, Ticket, VolumeIndex};

/// What the reactor has to do for a client.
pub enum ClientEffect {
    /// A request has arrived. It runs once the ceilings above it admit it; without a cost at once.
    Arrived { ticket: Ticket, volume: VolumeIndex, cost: Option<Cost> },
    /// Start an operation for a part of a request.
    Start { ticket: Ticket, volume: VolumeIndex, part: Part, kind: Kind, memory: Option<Memory> },
    /// Flush the volume. A flush that belongs to a durable request (FUA) must not be owed.
    Flush { ticket: Ticket, volume: VolumeIndex, may_be_owed: bool },
    /// Find out which parts of a range hold data.
    BlockStatus { ticket: Ticket, volume: VolumeIndex, offset: u64, length: u32 },
    /// The requests of a connection that wait for their ceilings were given up.
    Withdrawn { connection: ConnectionIndex, volume: VolumeIndex },
    /// A connection has ended, and its index is free.
    Gone { connection: ConnectionIndex, volume: VolumeIndex },
}

/// What connections share.
#[derive(Default)]
pub struct Lists {
    /// Connections with replies to send.
    outgoing: Vec<ConnectionIndex>,
    /// Connections that had to pause and may be able to continue now.
    resuming: VecDeque<ConnectionIndex>,
    /// Connections that found the buffer pool exhausted; all retry when a buffer is returned.
    starved: Vec<ConnectionIndex>,
    /// The pool's count of returned buffers when the last connection found it exhausted.
    returns_seen: u64,
    /// Connections that drain or close. They are settled at the end of each round, so no index becomes
    /// invalid within a round.
    ending: Vec<ConnectionIndex>,
    /// Connections whose requests gather in the socket, with the time at which they are received.
    gathering: BTreeSet<(u64, ConnectionIndex)>,
    pub spare_batches: SpareBatches,
    pub held_payloads: HeldBytes,
    effects: VecDeque<ClientEffect>,
}

impl Lists {
    pub fn add(&mut self, effect: ClientEffect) {
        self.effects.push_back(effect);
    }

    pub fn next_effect(&mut self) -> Option<ClientEffect> {
        self.effects.pop_front()
    }

    pub fn has_effects(&self) -> bool {
        !self.effects.is_empty()
    }

    /// Lists a connection with replies to send. The connection knows that it is listed.
    pub fn send(&mut self, index: ConnectionIndex) {
        self.outgoing.push(index);
    }

    /// Takes the connections with replies to send. The list keeps its room.
    pub fn drain_outgoing(&mut self) -> impl Iterator<Item = ConnectionIndex> {
        self.outgoing.drain(..)
    }

    /// Lists a connection to be resumed at the end of this round. The connection knows that it is listed.
    pub fn resume(&mut self, index: ConnectionIndex) {
        self.resuming.push_back(index);
    }

    pub fn resuming_count(&self) -> usize {
        self.resuming.len()
    }

    pub fn next_resuming(&mut self) -> Option<ConnectionIndex> {
        self.resuming.pop_front()
    }

    /// True if no connection has replies to send or can be resumed.
    pub fn is_idle(&self) -> bool {
        self.resuming.is_empty() && self.outgoing.is_empty()
    }

    /// Lists a connection that found the pool exhausted.
    pub fn starve(&mut self, index: ConnectionIndex, returns: u64) {
        self.starved.push(index);
        self.returns_seen = returns;
    }

    /// True if a connection found no buffer and one was returned since, by any holder.
    pub fn can_feed_starved(&self, returns: u64) -> bool {
        !self.starved.is_empty() && returns != self.returns_seen
    }

    pub fn starved(&self) -> &[ConnectionIndex] {
        &self.starved
    }

    pub fn take_starved(&mut self) -> Vec<ConnectionIndex> {
        std::mem::take(&mut self.starved)
    }

    /// Lists a connection that drains or closes, once.
    pub fn end(&mut self, index: ConnectionIndex) {
        self.ending.push(index);
    }

    pub fn take_ending(&mut self) -> Vec<ConnectionIndex> {
        std::mem::take(&mut self.ending)
    }

    /// Lets the requests of a connection gather.
    pub fn gather(&mut self, until_ns: u64, index: ConnectionIndex) {
        self.gathering.insert((until_ns, index));
    }

    pub fn end_gathering(&mut self, until_ns: u64, index: ConnectionIndex) {
        self.gathering.remove(&(until_ns, index));
    }

    /// The connection that receives next, if its time has come.
    pub fn next_gathered(&mut self, now_ns: u64) -> Option<ConnectionIndex> {
        let due = *self.gathering.first().filter(|gathering| gathering.0 <= now_ns)?;
        self.gathering.remove(&due);
        Some(due.1)
    }

    /// When the next connection receives, in nanoseconds.
    pub fn gathers_until_ns(&self) -> Option<u64> {
        self.gathering.first().map(|&(until_ns, _)| until_ns)
    }
}

/// All that one connection may use while it works.
pub struct Desk<'a> {
    pub io: &'a mut Io,
    pub lists: &'a mut Lists,
    pub volume: &'a mut VolumeClients,
}
