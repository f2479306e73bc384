//! The loop of one reactor thread, and its dealings with the rest of the daemon.
//!
//! Each round takes what has arrived (orders, the helper's answers, the ring's completions), lets due
//! requests go, sends what is ready, and waits for the next thing or the next exact instant.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{Receiver, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};

use slab::Slab;
use weir_qos::Ceiling;
use weir_reactor::{BufferPool, Clock, Completion, Ring};
use weir_types::VolumeId;
use weir_types::bounds::CONNECTIONS_PER_REACTOR_MAX;
use weir_volume::geometry::extent_count;

use super::Alarm;
use super::budget::{Budget, Source};
use super::command::{Binding, Command};
use super::connection::{Connection, NewConnection, Outgoing};
use super::emulation::{Emulated, HeldCompletions};
use super::helper::{Answer, Helper};
use super::patience::Patience;
use super::served_volume::{ServedVolume, Ticket};
use super::token::{ConnectionIndex, Token, VolumeIndex};

/// How long clients may take to read the answers that they are owed when the daemon stops.
const STOP_PATIENCE_NS: u64 = 5_000_000_000;

/// Completions taken in one round. As long as input is there at once, answers gather and go out together at
/// the round's end; this bounds how long that may go on.
const ROUND_COMPLETIONS_MAX: usize = 32;

/// Faults that stand, seen by all threads.
pub(super) type Alarms = Arc<Mutex<Vec<Alarm>>>;

/// The state of one reactor.
pub(super) struct Reactor {
    pub ring: Ring<Token>,
    pub pool: BufferPool,
    pub helper: Helper,
    pub volumes: Slab<ServedVolume>,
    pub connections: Slab<Connection>,
    /// The instant that this round counts as now, in nanoseconds.
    pub now_ns: u64,
    /// Connections with replies to send.
    pub outgoing: Vec<ConnectionIndex>,
    /// Connections that could not go on and may be able to now.
    pub resuming: Vec<ConnectionIndex>,
    /// Connections that found the pool exhausted; all are tried again when a buffer comes back.
    pub starved: Vec<ConnectionIndex>,
    /// Connections that drain or close; looked after at the end of each round, so that no index becomes
    /// invalid within one.
    pub ending: Vec<ConnectionIndex>,
    /// Empty batches for reuse.
    pub spare_batches: Vec<Outgoing>,
    clock: Clock,
    commands: Receiver<Command>,
    alarms: Alarms,
    by_id: BTreeMap<VolumeId, VolumeIndex>,
    deadlines: BTreeSet<(u64, VolumeIndex)>,
    /// Connections whose input is left to gather, by the instant at which it is taken.
    pub rests: BTreeSet<(u64, ConnectionIndex)>,
    /// What emulated drives have not answered yet.
    pub held: HeldCompletions,
    patience: Patience,
    spare_actions: Vec<weir_volume::Action>,
    pub stop_by_ns: Option<u64>,
}

impl Reactor {
    pub fn new(
        ring: Ring<Token>,
        pool: BufferPool,
        helper: Helper,
        commands: Receiver<Command>,
        alarms: Alarms,
    ) -> Reactor {
        Reactor {
            ring,
            pool,
            helper,
            volumes: Slab::new(),
            connections: Slab::new(),
            now_ns: Clock.now_ns(),
            outgoing: Vec::new(),
            resuming: Vec::new(),
            starved: Vec::new(),
            ending: Vec::new(),
            spare_batches: Vec::new(),
            clock: Clock,
            commands,
            alarms,
            by_id: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            rests: BTreeSet::new(),
            held: HeldCompletions::default(),
            patience: Patience::default(),
            spare_actions: Vec::new(),
            stop_by_ns: None,
        }
    }

    /// Runs until told to stop and everything is answered.
    pub fn run(mut self) {
        loop {
            self.now_ns = self.clock.now_ns();
            for _ in 0..ROUND_COMPLETIONS_MAX {
                let Some(completion) = self.ring.next_completion() else { break };
                self.on_completion(completion);
            }
            // After the completions, one of which may have been the wake for these.
            self.take_commands();
            self.take_answers();
            self.pass_on_due();
            self.release_due();
            self.end_due_rests();
            self.resume_listed();
            self.send_outgoing();
            self.settle_ending();
            if self.has_stopped() {
                break;
            }
            if self.ring.has_ended() {
                continue;
            }
            self.wait();
        }
        // Clients that outlasted the daemon's patience: their operations end with their sockets.
        self.connections.iter().for_each(|(_, connection)| connection.socket.shutdown());
    }

    fn has_stopped(&self) -> bool {
        let is_late = self.stop_by_ns.is_some_and(|by_ns| self.now_ns >= by_ns);
        self.stop_by_ns.is_some() && (self.connections.is_empty() || is_late)
    }

    fn wait(&mut self) {
        let mut timeout_ns = self.timeout_ns();
        let look_ns = self.look_ns().min(timeout_ns.unwrap_or(u64::MAX));
        if look_ns > 0 {
            let is_found = self.ring.look(look_ns);
            self.patience.looked(is_found);
            timeout_ns = if is_found { Some(0) } else { self.timeout_ns() };
        }
        if let Err(error) = self.ring.wait(timeout_ns) {
            tracing::error!(%error, "a reactor cannot wait for its ring");
            std::process::abort();
        }
    }

    /// How long to look for the next thing before going to sleep. It is worth it only where clients are all
    /// that is waited for: media take longer than a sleep, and where each request waits for them, letting the
    /// client run on this core in the meantime serves it better.
    fn look_ns(&mut self) -> u64 {
        let waits_for_time = !(self.deadlines.is_empty() && self.rests.is_empty() && self.held.is_empty());
        let waits_for_others = self.ring.take_media_use() || waits_for_time;
        if self.connections.is_empty() || waits_for_others { 0 } else { self.patience.look_ns() }
    }

    fn timeout_ns(&self) -> Option<u64> {
        if !(self.resuming.is_empty() && self.outgoing.is_empty()) {
            return Some(0);
        }
        let deadline_ns = self.deadlines.first().map(|&(at_ns, _)| at_ns);
        let rest_ends_ns = self.rests.first().map(|&(at_ns, _)| at_ns);
        let at_ns =
            [deadline_ns, rest_ends_ns, self.held.next_ns(), self.stop_by_ns].into_iter().flatten().min()?;
        Some(at_ns.saturating_sub(self.clock.now_ns()))
    }

    fn on_completion(&mut self, completion: Completion<Token>) {
        let Completion { token, result, carried } = completion;
        match token {
            Token::Receive(connection) => self.received(connection, result, carried),
            Token::ReceivePayload(connection) => self.received_payload(connection, result, carried),
            Token::HangUp(connection) => self.hung_up(connection),
            Token::Send(connection) => self.sent(connection, result, carried),
            _ => self.disk_answered(Completion { token, result, carried }),
        }
    }

    fn take_commands(&mut self) {
        while let Ok(command) = self.commands.try_recv() {
            match command {
                Command::Open { spec, media, statistics, done } => {
                    let id = spec.id;
                    let index = self.volumes.insert(ServedVolume::new(spec, statistics));
                    self.volumes[index].emulated = media.map(Emulated::new);
                    self.by_id.insert(id, index);
                    answer(done);
                }
                Command::Close { volume, done } => self.close_volume(volume, done),
                Command::Resize { volume, size_bytes, done } => self.resize(volume, size_bytes, done),
                Command::SetReadOnly { volume, is_read_only, done } => {
                    self.set_read_only(volume, is_read_only, done);
                }
                Command::Bind { volume, binding, done } => self.bind(volume, binding, done),
                Command::ChangeLimits { group, limits, done } => {
                    self.change_limits(group, limits);
                    answer(done);
                }
                Command::Retire { volume, extent, message } => self.retire(volume, extent, &message),
                Command::Serve { volume, connection } => self.serve(volume, *connection),
                Command::Stop => self.stop(),
            }
        }
    }

    fn take_answers(&mut self) {
        while let Some(answer) = self.helper.next_answer() {
            match answer {
                Answer::Opened { volume, extent, result } => self.extent_opened(volume, extent, result),
                Answer::Status { volume, connection, request, result } => {
                    self.volumes[volume].outstanding -= 1;
                    self.status_found(connection, request, result);
                    self.settle_volume(volume);
                }
            }
        }
    }

    fn serve(&mut self, volume: VolumeId, new: NewConnection) {
        let Some(&volume) = self.by_id.get(&volume).filter(|&&v| self.volumes[v].closing.is_none()) else {
            tracing::info!(%volume, "a client chose a volume that has just been closed");
            return;
        };
        if self.connections.len() >= CONNECTIONS_PER_REACTOR_MAX || self.stop_by_ns.is_some() {
            tracing::warn!("a connection was refused: {CONNECTIONS_PER_REACTOR_MAX} are served already");
            return;
        }
        let (served, export) = (&self.volumes[volume], &new.session.export);
        if served.resizing_to.is_some() || export.size_bytes > served.size_bytes {
            tracing::info!("a client that was told a size from before a shrink has to come again");
            return;
        }
        if served.is_read_only && !export.read_only {
            tracing::info!("a client that came before its volume was made read-only has to come again");
            return;
        }
        let index = self.connections.insert(Connection::new(new, volume));
        self.volumes[volume].connections += 1;
        self.volumes[volume].publish();
        self.parse(index);
    }

    fn close_volume(&mut self, id: VolumeId, done: SyncSender<()>) {
        let Some(volume) = self.by_id.remove(&id) else { return answer(done) };
        self.volumes[volume].closing = Some(done);
        self.end_connections(volume);
        self.settle_volume(volume);
    }

    fn connections_of(&self, volume: VolumeIndex) -> Vec<ConnectionIndex> {
        self.connections.iter().filter(|(_, c)| c.volume == volume).map(|(index, _)| index).collect()
    }

    fn end_connections(&mut self, volume: VolumeIndex) {
        for connection in self.connections_of(volume) {
            self.close_connection(connection);
        }
        self.expedite(volume);
    }

    /// Growing changes nothing for open connections. Shrinking ends them, so that none writes beyond the
    /// new end, and is answered once they are gone.
    fn resize(&mut self, id: VolumeId, size_bytes: u64, done: SyncSender<()>) {
        let Some(&index) = self.by_id.get(&id) else { return answer(done) };
        let volume = &mut self.volumes[index];
        volume.resizing_to = Some((size_bytes, done));
        if extent_count(size_bytes) < volume.volume.extents() || size_bytes < volume.size_bytes {
            self.end_connections(index);
        }
        self.settle_volume(index);
    }

    fn set_read_only(&mut self, id: VolumeId, is_read_only: bool, done: SyncSender<()>) {
        let Some(&index) = self.by_id.get(&id) else { return answer(done) };
        let was_read_only = std::mem::replace(&mut self.volumes[index].is_read_only, is_read_only);
        if was_read_only || !is_read_only {
            return answer(done);
        }
        self.volumes[index].becoming_read_only = Some(done);
        self.end_connections(index);
        self.settle_volume(index);
    }

    fn bind(&mut self, id: VolumeId, binding: Option<Binding>, done: SyncSender<()>) {
        if let Some(&index) = self.by_id.get(&id) {
            self.rebind(index, binding);
            self.update_deadline(index);
        }
        answer(done);
    }

    fn rebind(&mut self, index: VolumeIndex, binding: Option<Binding>) {
        let now_ns = self.now_ns;
        let volume = &mut self.volumes[index];
        let Some(binding) = binding else {
            let released = volume.budget.take().map(|budget| budget.dissolve(now_ns));
            released.into_iter().flatten().for_each(|r| self.admitted(r.ticket, r.waited_ns));
            return;
        };
        let source = || match &binding.shared {
            Some(shared) => Source::Shared(Arc::clone(shared)),
            None => Source::Own(Box::new(Ceiling::new(binding.limits, now_ns))),
        };
        match &mut volume.budget {
            Some(budget) if budget.group == binding.group => {
                if budget.limits != binding.limits {
                    budget.change(now_ns, binding.limits);
                }
            }
            Some(budget) => budget.replace(now_ns, binding.group, binding.limits, source()),
            None => volume.budget = Some(Budget::new(binding.group, binding.limits, source())),
        }
    }

    fn change_limits(&mut self, group: weir_types::PolicyGroupId, limits: weir_types::Limits) {
        let is_member = |v: &ServedVolume| v.budget.as_ref().is_some_and(|b| b.group == group);
        let members: Vec<_> = self.volumes.iter().filter(|(_, v)| is_member(v)).map(|(i, _)| i).collect();
        for index in members {
            if let Some(budget) = &mut self.volumes[index].budget {
                budget.change(self.now_ns, limits);
            }
            self.update_deadline(index);
        }
    }

    /// Lets go the requests whose instant has come.
    fn release_due(&mut self) {
        while let Some(&(at_ns, volume)) = self.deadlines.first().filter(|d| d.0 <= self.now_ns) {
            debug_assert_eq!(self.volumes[volume].deadline_ns, Some(at_ns));
            while let Some(released) = self.next_released(volume) {
                self.admitted(released.ticket, released.waited_ns);
            }
            self.update_deadline(volume);
        }
    }

    fn next_released(&mut self, volume: VolumeIndex) -> Option<weir_qos::Released<Ticket>> {
        self.volumes[volume].budget.as_mut()?.release(self.now_ns)
    }

    /// Enters the instant at which a volume's budget wants to be asked again.
    pub fn update_deadline(&mut self, index: VolumeIndex) {
        let volume = &mut self.volumes[index];
        let next_ns = volume.budget.as_ref().and_then(Budget::next_ns);
        if next_ns == volume.deadline_ns {
            return;
        }
        if let Some(old_ns) = std::mem::replace(&mut volume.deadline_ns, next_ns) {
            self.deadlines.remove(&(old_ns, index));
        }
        if let Some(next_ns) = next_ns {
            self.deadlines.insert((next_ns, index));
        }
    }

    fn retire(&mut self, id: VolumeId, extent: u32, message: &str) {
        if let Some(&index) = self.by_id.get(&id) {
            let volume = &mut self.volumes[index];
            if !volume.volume.is_retired(extent) {
                volume.fault_message = Some(message.to_owned());
                volume.volume.retire(extent, &mut volume.actions);
                self.carry_out(index);
            }
        }
    }

    pub fn raise_alarm(&self, alarm: Alarm) {
        tracing::error!(volume = %alarm.volume, extent = alarm.extent, "{}", alarm.message);
        self.alarms.lock().unwrap_or_else(PoisonError::into_inner).push(alarm);
    }

    /// Does what was put off until a volume is quiet.
    pub fn settle_volume(&mut self, index: VolumeIndex) {
        let volume = &mut self.volumes[index];
        if let Some((size_bytes, done)) = volume.resizing_to.take() {
            let is_growing = size_bytes >= volume.size_bytes;
            if !is_growing && !volume.is_quiet() {
                volume.resizing_to = Some((size_bytes, done));
                return;
            }
            volume.set_size(size_bytes);
            answer(done);
        }
        if volume.becoming_read_only.is_some() && volume.is_quiet() {
            volume.becoming_read_only.take().into_iter().for_each(answer);
        }
        if volume.closing.is_some() && volume.is_quiet() {
            self.remove_volume(index);
        }
    }

    fn remove_volume(&mut self, index: VolumeIndex) {
        let volume = self.volumes.remove(index);
        volume.publish();
        if let Some(at_ns) = volume.deadline_ns {
            self.deadlines.remove(&(at_ns, index));
        }
        let mut alarms = self.alarms.lock().unwrap_or_else(PoisonError::into_inner);
        alarms.retain(|alarm| alarm.volume != volume.id);
        volume.closing.into_iter().for_each(answer);
    }

    /// Answers what was received, refuses what waits, and ends.
    fn stop(&mut self) {
        self.stop_by_ns = Some(self.now_ns + STOP_PATIENCE_NS);
        let all: Vec<_> = self.connections.iter().map(|(index, _)| index).collect();
        for connection in all {
            self.cut_short(connection);
        }
    }

    /// The list of actions that a volume has asked for, emptied; give it back with [`Reactor::spare`].
    pub fn take_actions(&mut self, index: VolumeIndex) -> Vec<weir_volume::Action> {
        let spare = std::mem::take(&mut self.spare_actions);
        std::mem::replace(&mut self.volumes[index].actions, spare)
    }

    pub fn spare(&mut self, actions: Vec<weir_volume::Action>) {
        self.spare_actions = actions;
    }
}

/// Tells whoever gave an order that it holds. They may have stopped waiting.
fn answer(done: SyncSender<()>) {
    let _ = done.send(());
}
