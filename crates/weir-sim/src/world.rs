//! One volume in a simulated machine: a client with many requests in flight, and files that answer in any
//! order.
//!
//! Crashes happen at any instant, and drives fill up or fail.

use std::collections::{BTreeMap, BTreeSet};

use weir_types::bounds::{BLOCK_BYTES, EXTENT_BYTES};
use weir_volume::{Action, Content, Fault, Generation, Kind, OperationId, Replica, Request};

use crate::Stamp;
use crate::disk::{File, SyncPoint};
use crate::history::History;
use crate::requests::{EXTENTS, payload, place_of, random_request, sectors};
use crate::transfer;
use weir_types::ExtentIndex;
use weir_types::random::Random;

/// Parameters of a run.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Seed that determines the whole run.
    pub seed: u64,
    /// Number of requests that the client sends.
    pub requests: u32,
    /// Maximum number of requests in flight.
    pub depth: usize,
    /// Disk operations per 1000 that find the drive full.
    pub full_per_mille: u64,
    /// Disk operations per 10 000 that fail for good.
    pub broken_per_ten_thousand: u64,
}

/// Outcome of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Hash of the trace. Equal seeds give equal hashes.
    pub trace_hash: u64,
    /// Number of acknowledged requests.
    pub acknowledged: u64,
    /// Number of crashes survived.
    pub crashes: u64,
    /// Number of failed requests.
    pub failed: u64,
}

/// A disk operation that will be answered.
#[derive(Clone, Debug)]
enum Pending {
    Action(Action),
    /// A sync covers the changes that existed when it began.
    Sync((ExtentIndex, Generation), SyncPoint),
}

/// A request without an answer yet.
#[derive(Clone, Debug)]
struct InFlight {
    request: Request,
    stamp: Stamp,
    began: u64,
    /// Sectors of the blocks that the operation touches.
    buffer: Vec<Stamp>,
}

struct VolumeWorld {
    settings: Settings,
    random: Random,
    now: u64,
    trace_hash: u64,
    volume: Replica,
    files: Vec<File>,
    pending: Vec<Pending>,
    in_flight: BTreeMap<OperationId, InFlight>,
    flushes: BTreeMap<u32, u64>,
    failed_extents: BTreeSet<ExtentIndex>,
    history: History,
    next_stamp: Stamp,
    report: Report,
}

/// Runs one world to its end.
///
/// # Errors
/// Names the promise that was broken.
pub fn run(settings: Settings) -> Result<Report, String> {
    let mut world = VolumeWorld::new(settings);
    for _ in 0..settings.requests {
        world.step()?;
    }
    world.settle()?;
    world.crash()?;
    world.report.trace_hash = world.trace_hash;
    Ok(world.report)
}

impl VolumeWorld {
    fn new(settings: Settings) -> VolumeWorld {
        VolumeWorld {
            settings,
            random: Random::new(settings.seed),
            now: 1,
            trace_hash: 0xcbf2_9ce4_8422_2325,
            volume: Replica::new(u64::from(EXTENTS) * EXTENT_BYTES),
            files: vec![File::default(); EXTENTS as usize],
            pending: Vec::new(),
            in_flight: BTreeMap::new(),
            flushes: BTreeMap::new(),
            failed_extents: BTreeSet::new(),
            history: History::default(),
            next_stamp: 1,
            report: Report { trace_hash: 0, acknowledged: 0, crashes: 0, failed: 0 },
        }
    }

    /// Sends a request or answers a disk operation, by chance. Rarely the power fails instead.
    fn step(&mut self) -> Result<(), String> {
        self.now += 1;
        if self.random.chance(1, 400) {
            return self.crash();
        }
        if self.in_flight.len() + self.flushes.len() < self.settings.depth && self.random.chance(1, 2) {
            return self.send();
        }
        self.answer_one()
    }

    fn settle(&mut self) -> Result<(), String> {
        while !self.pending.is_empty() {
            self.now += 1;
            self.answer_one()?;
        }
        let left = self.in_flight.len() + self.flushes.len();
        if left > 0 { Err(format!("{left} requests were never answered")) } else { Ok(()) }
    }

    fn send(&mut self) -> Result<(), String> {
        let mut actions = Vec::new();
        if self.random.chance(1, 12) {
            let flush = (0..).find(|number| !self.flushes.contains_key(number)).expect("numbers do not end");
            self.flushes.insert(flush, self.now);
            self.volume.flush(flush, &mut actions);
        } else {
            self.send_operation(&mut actions);
        }
        self.take(actions)
    }

    fn send_operation(&mut self, actions: &mut Vec<Action>) {
        let request = random_request(&mut self.random);
        let stamp = match request.kind {
            Kind::Read | Kind::Release | Kind::Zero => 0,
            Kind::Write { .. } => self.next_stamp,
        };
        self.next_stamp += 1;
        if request.kind != Kind::Read {
            for sector in sectors(&request) {
                self.history.write_began(sector, stamp, self.now);
            }
        }
        let buffer = payload(&request, stamp);
        let id = self.volume.start(request, actions);
        self.in_flight.insert(id, InFlight { request, stamp, began: self.now, buffer });
    }

    /// Carries out the volume's actions.
    fn take(&mut self, mut actions: Vec<Action>) -> Result<(), String> {
        for action in actions.drain(..) {
            self.note(&action);
            match action {
                Action::Done { operation, result } => self.done(operation, result)?,
                Action::Flushed { flush, result } => self.flushed(flush, result),
                Action::FailReplica { extent, .. } => {
                    self.failed_extents.insert(extent);
                }
                Action::Sync { extent, generation } => {
                    let point = self.files[extent.index()].sync_point();
                    self.pending.push(Pending::Sync((extent, generation), point));
                }
                other => self.pending.push(Pending::Action(other)),
            }
        }
        Ok(())
    }

    fn note(&mut self, action: &Action) {
        for byte in format!("{}{action:?}", self.now).bytes() {
            self.trace_hash = (self.trace_hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
    }

    /// Answers one random pending disk operation.
    fn answer_one(&mut self) -> Result<(), String> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let index = self.random.below(self.pending.len() as u64) as usize;
        let pending = self.pending.swap_remove(index);
        let fault = self.random_fault();
        let mut actions = Vec::new();
        match pending {
            Pending::Sync(file, point) => self.answer_sync(file, point, fault, &mut actions),
            Pending::Action(action) => self.answer_action(action, fault, &mut actions),
        }
        self.take(actions)
    }

    fn random_fault(&mut self) -> Option<Fault> {
        let is_full = self.random.chance(self.settings.full_per_mille, 1000);
        let is_broken = self.random.chance(self.settings.broken_per_ten_thousand, 10_000);
        is_broken.then_some(Fault::Broken).or(is_full.then_some(Fault::NoSpace))
    }

    fn answer_sync(
        &mut self,
        (extent, generation): (ExtentIndex, Generation),
        point: SyncPoint,
        fault: Option<Fault>,
        actions: &mut Vec<Action>,
    ) {
        let result = if fault == Some(Fault::Broken) { Err(Fault::Broken) } else { Ok(()) };
        if result.is_ok() {
            self.files[extent.index()].sync(point);
        }
        self.volume.synced((extent, generation), result, actions);
    }

    fn answer_action(&mut self, action: Action, fault: Option<Fault>, actions: &mut Vec<Action>) {
        match action {
            Action::Open { extent, generation } => {
                let failure = |fault| if fault == Fault::Broken { fault } else { Fault::NoMemory };
                let result = fault.map_or_else(
                    || Ok(transfer::allocation_map(&self.files[extent.index()], true)),
                    |fault| Err(failure(fault)),
                );
                self.volume.opened((extent, generation), result, actions);
            }
            // A full drive has no space for the piece, or the remaining space is reserved by the daemon.
            Action::Allocate { extent, generation, piece } if fault == Some(Fault::NoSpace) => {
                self.volume.refused((extent, generation), piece, Fault::NoSpace, actions);
            }
            Action::Allocate { extent, generation, piece } => {
                self.volume.allocated((extent, generation), piece, actions);
            }
            Action::Read { operation, extent, offset, buffer_offset, length } => {
                let result = transfer::broken_only(fault)
                    .map_or_else(|| Ok(transfer::part_of(&mut self.random, length)), Err);
                let length = result.unwrap_or(0);
                if let Some(flying) = self.in_flight.get_mut(&operation) {
                    let range = (offset, buffer_offset, length);
                    transfer::read_into(&mut flying.buffer, &self.files[extent.index()], range);
                }
                self.volume.completed(operation, result, actions);
            }
            Action::ReadEdge { operation, extent, edge } => {
                if let Some(flying) = self.in_flight.get_mut(&operation) {
                    let file = &self.files[extent.index()];
                    transfer::merge_edge(&mut flying.buffer, file, &flying.request, edge);
                }
                let result = transfer::broken_only(fault).map_or(Ok(BLOCK_BYTES as u32), Err);
                self.volume.completed(operation, result, actions);
            }
            Action::Write { operation, extent, offset, buffer_offset, length, is_durable } => {
                let result = fault.map_or_else(|| Ok(transfer::part_of(&mut self.random, length)), Err);
                // A failed write may have written some blocks.
                let length = result.unwrap_or_else(|_| transfer::part_of(&mut self.random, length));
                if let Some(flying) = self.in_flight.get(&operation) {
                    let (range, is_durable) = ((offset, buffer_offset, length), is_durable && result.is_ok());
                    transfer::write_from(&flying.buffer, &mut self.files[extent.index()], range, is_durable);
                }
                self.volume.completed(operation, result, actions);
            }
            Action::Release { operation, extent, offset, length }
            | Action::Zero { operation, extent, offset, length } => {
                let result = fault.map_or(Ok(0), Err);
                if result.is_ok() {
                    transfer::zero(&mut self.files[extent.index()], offset, length);
                }
                self.volume.completed(operation, result, actions);
            }
            Action::Sync { .. }
            | Action::Done { .. }
            | Action::Flushed { .. }
            | Action::FailReplica { .. } => {
                unreachable!("these are taken at once")
            }
        }
    }

    /// Handles the answer to a request of the client.
    fn done(&mut self, id: OperationId, result: Result<Content, Fault>) -> Result<(), String> {
        let Some(flying) = self.in_flight.remove(&id) else {
            return Err(format!("{id:?} ended, which nobody waits for"));
        };
        self.volume.forget(id);
        let Ok(content) = result else {
            self.report.failed += 1;
            return self.check_fault(&flying, result);
        };
        self.report.acknowledged += 1;
        match flying.request.kind {
            Kind::Read => {
                let (found, time) = ((content, &flying.buffer[..]), (flying.began, self.now));
                transfer::check_read(&self.history, &flying.request, found, time)
            }
            kind => {
                let is_durable = kind == Kind::Write { is_durable: true };
                for sector in sectors(&flying.request) {
                    self.history.write_ended(sector, flying.stamp, flying.began, self.now, is_durable);
                }
                Ok(())
            }
        }
    }

    fn check_fault(&self, flying: &InFlight, result: Result<Content, Fault>) -> Result<(), String> {
        let is_explained = self.settings.full_per_mille + self.settings.broken_per_ten_thousand > 0;
        if is_explained { Ok(()) } else { Err(format!("{flying:?} failed without a fault: {result:?}")) }
    }

    fn flushed(&mut self, flush: u32, result: Result<(), Fault>) {
        let began = self.flushes.remove(&flush).unwrap_or(0);
        if result.is_ok() {
            self.history.flushed(began);
        }
    }

    /// Fails the power: data that was not stable may be lost, the volume starts again, and all data is read
    /// and checked.
    fn crash(&mut self) -> Result<(), String> {
        self.report.crashes += 1;
        self.pending.clear();
        self.in_flight.clear();
        self.flushes.clear();
        self.failed_extents.clear();
        self.files.iter_mut().for_each(|file| file.crash(&mut self.random));
        self.volume = Replica::new(u64::from(EXTENTS) * EXTENT_BYTES);
        for sector in self.history.sectors() {
            let (extent, block, index) = place_of(sector);
            let stamp = self.files[extent.index()].read(block)[index];
            self.history.check_after_crash(sector, stamp, self.now)?;
        }
        Ok(())
    }
}
