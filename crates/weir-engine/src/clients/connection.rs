//! Connection: one client of a volume. It consists of its door, its requests and what it holds.

use std::collections::VecDeque;

use slab::Slab;

use super::desk::{ClientEffect, Desk};
use super::door::{Door, NewClient};
use super::fuse::FuseDoor;
use super::holdings::Holdings;
use super::nbd::NbdDoor;
use super::request::ActiveRequest;
use super::ublk::UblkDoor;
use crate::token::{ConnectionIndex, VolumeIndex};

/// A connection.
pub struct Connection {
    pub index: ConnectionIndex,
    pub volume: VolumeIndex,
    pub door: Door,
    /// A large write that waits for admission; requests behind it are not read.
    pub stalled_on: Option<usize>,
    pub requests: Slab<ActiveRequest>,
    /// Running requests that need buffers to continue, in order.
    pub starving: VecDeque<usize>,
    pub holdings: Holdings,
    /// Nothing more is received; the connection closes once all requests are answered.
    pub is_draining: bool,
    /// The connection ends as soon as the kernel holds nothing of it.
    pub is_closing: bool,
}

impl Connection {
    pub fn new(new: NewClient, index: ConnectionIndex, volume: VolumeIndex) -> Connection {
        let door = match new {
            NewClient::Nbd(new) => Door::Nbd(NbdDoor::new(new)),
            NewClient::Fuse(new) => Door::Fuse(FuseDoor::new(new)),
            NewClient::Ublk(new) => Door::Ublk(UblkDoor::new(new)),
        };
        Connection {
            index,
            volume,
            door,
            stalled_on: None,
            requests: Slab::new(),
            starving: VecDeque::new(),
            holdings: Holdings::new(index),
            is_draining: false,
            is_closing: false,
        }
    }

    /// Parses requests until the reactor has to do something for one, and answers true: parsing then goes
    /// on afterwards.
    pub fn parse(&mut self, desk: &mut Desk<'_>) -> bool {
        match self.door {
            Door::Nbd(_) => self.parse_input(desk),
            Door::Fuse(_) => self.take_messages(desk),
            Door::Ublk(_) => unreachable!("its requests are taken by their tags"),
        }
    }

    /// Lets the reactor ask the ceilings above a request.
    pub fn ask_for_admission(&mut self, id: usize, desk: &mut Desk<'_>) {
        let cost = self.requests[id].cost();
        desk.lists.add(ClientEffect::Arrived { ticket: (self.index, id), volume: self.volume, cost });
    }

    /// True if neither the kernel nor the volume holds anything of the connection.
    pub fn is_quiet(&self) -> bool {
        self.door.is_quiet() && self.requests.is_empty()
    }

    /// True if all received requests are answered and sent.
    pub fn is_answered(&self) -> bool {
        self.requests.is_empty() && self.door.is_sent()
    }

    /// True if requests may be parsed from the input.
    pub fn may_parse(&self) -> bool {
        let may_parse = self.door.may_parse() && self.stalled_on.is_none();
        may_parse && !self.is_draining && !self.is_closing
    }

    /// Time since which the client has held buffers and done nothing, in nanoseconds. `None` if it is the
    /// daemon's turn.
    pub fn stalled_since_ns(&self) -> Option<u64> {
        if self.is_closing { None } else { self.door.stalled_since_ns(!self.holdings.is_nothing()) }
    }
}
