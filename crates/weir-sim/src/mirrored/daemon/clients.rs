//! Clients of the simulated volume: they send random requests and flushes, and remember what they were told. They know
//! neither the mirror nor the drives.

use std::collections::{BTreeMap, VecDeque};

use weir_types::random::Random;
use weir_volume::mirror::MirrorId;
use weir_volume::{Fault, Kind, Request};

use super::Daemon;
use crate::Stamp;
use crate::history::History;
use crate::requests::{random_request, sectors};

/// A request without an answer yet.
#[derive(Clone, Debug)]
pub(in crate::mirrored) struct InFlight {
    pub request: Request,
    pub stamp: Stamp,
    pub began: u64,
    /// Instant at which an authoritative replica last failed the request.
    pub failed_at: u64,
}

/// The clients of the volume.
#[derive(Debug, Default)]
pub(in crate::mirrored) struct Clients {
    in_flight: BTreeMap<MirrorId, InFlight>,
    /// Flushes without an answer, and when they began.
    flushes: BTreeMap<u32, u64>,
    /// When the flushes began that are owed, in order.
    owed: VecDeque<u64>,
    pub history: History,
    last_stamp: Stamp,
}

impl Clients {
    /// Number of requests and flushes without an answer.
    pub fn unanswered(&self) -> usize {
        self.in_flight.len() + self.flushes.len()
    }

    pub fn in_flight(&self, id: MirrorId) -> Option<&InFlight> {
        self.in_flight.get(&id)
    }

    /// The daemon ended, and nobody waits for an answer any more.
    pub fn disconnect(&mut self) {
        self.in_flight.clear();
        self.flushes.clear();
        self.owed.clear();
    }

    fn begin_flush(&mut self, now: u64) -> u32 {
        let flush = (0..).find(|number| !self.flushes.contains_key(number)).expect("numbers do not end");
        self.flushes.insert(flush, now);
        flush
    }

    /// A random request.
    fn begin_request(&mut self, random: &mut Random, now: u64) -> InFlight {
        let request = random_request(random);
        self.last_stamp += 1;
        let stamp = if matches!(request.kind, Kind::Write { .. }) { self.last_stamp } else { 0 };
        if request.kind != Kind::Read {
            sectors(&request).for_each(|sector| self.history.write_began(sector, stamp, now));
        }
        InFlight { request, stamp, began: now, failed_at: 0 }
    }

    /// An authoritative replica failed a request.
    pub fn replica_failed(&mut self, id: MirrorId, now: u64) {
        if let Some(in_flight) = self.in_flight.get_mut(&id) {
            in_flight.failed_at = now;
        }
    }

    pub fn answered(&mut self, id: MirrorId) -> Result<InFlight, String> {
        self.in_flight.remove(&id).ok_or_else(|| format!("{id:?} ended, which nobody waits for"))
    }

    /// A change was acknowledged.
    pub fn changed(&mut self, in_flight: &InFlight, now: u64) {
        let InFlight { request, stamp, began, .. } = in_flight;
        let is_durable = request.kind == Kind::Write { is_durable: true };
        for sector in sectors(request) {
            self.history.write_ended(sector, *stamp, *began, now, is_durable);
        }
    }

    /// A flush was answered. An owed one counts as stable once it is paid.
    pub fn flushed(&mut self, flush: u32, result: Result<(), Fault>, is_owed: bool) {
        let began = self.flushes.remove(&flush).unwrap_or(0);
        match result {
            Ok(()) if is_owed => {
                self.history.held(began);
                self.owed.push_back(began);
            }
            Ok(()) => self.history.flushed(began),
            Err(_) => {}
        }
    }

    /// Number of coalesced flushes.
    pub fn coalesced_flushes(&self) -> usize {
        self.owed.len()
    }

    /// The first coalesced flushes were paid.
    pub fn paid(&mut self, count: u32) -> Result<(), String> {
        for _ in 0..count {
            let began = self.owed.pop_front().ok_or("flushes were paid that nobody is owed")?;
            self.history.flushed(began);
        }
        Ok(())
    }
}

impl Daemon {
    /// Takes a random request or a flush of a client.
    pub fn accept_request(&mut self) -> Result<(), String> {
        let (random, now) = (&mut self.machine.random, self.machine.now);
        let mut effects = Vec::new();
        if random.chance(1, 12) {
            let flush = self.clients.begin_flush(now);
            self.mirror.flush(flush, true, &mut effects);
            return self.take(effects);
        }
        let in_flight = self.clients.begin_request(random, now);
        let id = self.mirror.start(in_flight.request, &mut effects);
        self.clients.in_flight.insert(id, in_flight);
        self.take(effects)
    }
}
