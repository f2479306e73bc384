//! Reactor: the loop of one reactor thread, and its exchange with the rest of the daemon.
//!
//! Each round takes arrivals (orders, the helper's answers, the ring's completions), releases due requests,
//! sends ready replies, and waits for the next arrival or due time.
//!
//! The modules below it carry out what one component needs of the others: `serving` that of clients,
//! `queueing` that of drive queues, `disk` that of the mirrors, `journaling` that of journals, and so on. The
//! components themselves (`clients`, `ceilings`, `drive_queue`, `journals`, `operations`, …) know no reactor.

mod checksums;
mod disk;
mod drive_answers;
mod journaling;
mod queueing;
mod refusals;
mod replica_metadata;
mod replicas;
mod resync;
mod scrubbing;
mod serving;
mod snapshot;
mod space;
mod stalls;
mod status;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender};

use slab::Slab;
use weir_engine_interface::{NO_HOME, OpenVolume, ScrubEnd, VolumeSpec};
use weir_reactor::{BufferPool, Clock, Completion, Ring};
use weir_types::{BackgroundKind, BackgroundPolicy, VolumeId};
use weir_volume::geometry::extent_count;

use crate::alarms::Alarms;
use crate::background::{Background, EndedStep};
use crate::background_policies::BackgroundPolicies;
use crate::busy_poll::BusyPoll;
use crate::ceilings::Ceilings;
use crate::checksums::HeldChecksums;
use crate::clients::{Clients, NewConnection};
use crate::command::NewJournal;
use crate::command::{Command, PolicyBinding};
use crate::drive_queue::DriveQueues;
use crate::emulation::HeldCompletions;
use crate::helper::{Answer, Helper, MetadataAnswer};
use crate::io::Io;
use crate::life::NewSize;
use crate::policy_path::own_level;
use crate::refusals::Refusals;
use crate::replica_metadata::HeldMetadata;
use crate::resync::ResyncSchedule;
use crate::scrubbing::Scrubs;
use crate::served_volume::ServedVolume;
use crate::sharing::SharedState;
use crate::snapshot::SnapshotTimes;
use crate::space_count::SpaceAtHand;
use crate::status::Statuses;
use crate::token::{ConnectionIndex, Token, VolumeIndex};
use crate::volume_files::NewHome;
use weir_host::line_gate::LineGate;

/// Time that clients have to read outstanding replies when the daemon stops, in nanoseconds.
const STOP_TIMEOUT_NS: u64 = 5_000_000_000;

/// A due time nearer than this is waited for without sleeping, in nanoseconds. Sleeping and waking take
/// longer.
const NEAR_NS: u64 = 5_000;

/// Number of completions taken in one round. While input is ready at once, replies gather and go out
/// together at the end of the round. This bound limits how long they gather.
const ROUND_COMPLETIONS_MAX: usize = 32;
/// Rate limit of log lines about refused connections.
static REFUSALS: LineGate = LineGate::new();

/// Links of a reactor to the rest of the daemon.
pub(crate) struct Surroundings {
    /// Number of the reactor.
    pub index: usize,
    pub commands: Receiver<Command>,
    pub shared_state: Arc<SharedState>,
    pub alarms: Alarms,
}

/// The state of one reactor.
pub(crate) struct Reactor {
    pub io: Io,
    pub volumes: Slab<ServedVolume>,
    pub clients: Clients,
    /// Volumes whose last orphaned I/O may have ended. They are settled at the end of each round, so no
    /// index becomes invalid within a round.
    pub unsettled: Vec<VolumeIndex>,
    clock: Clock,
    commands: Receiver<Command>,
    pub by_id: BTreeMap<VolumeId, VolumeIndex>,
    pub shared_state: Arc<SharedState>,
    pub ceilings: Ceilings,
    pub drive_queues: DriveQueues,
    /// Policies of background work.
    pub policies: BackgroundPolicies,
    /// Completions that emulated drives hold back.
    pub held: HeldCompletions,
    /// Answers that are passed on in this round, but after the current work.
    pub later: VecDeque<Completion<Token>>,
    /// Background work.
    pub background: Background,
    /// When to look at snapshots and quiesced volumes.
    pub snapshot_times: SnapshotTimes,
    /// Block status queries of clients.
    pub statuses: Statuses,
    /// Answers about replica metadata that emulated drives hold back.
    pub held_metadata: HeldMetadata,
    /// Volumes with several replicas, and when to resync them.
    pub resyncs: ResyncSchedule,
    /// Answers about checksum files that emulated drives hold back.
    pub held_checksums: HeldChecksums,
    /// The scrubs of volumes.
    pub scrubs: Scrubs,
    /// Refused operations that are not answered yet.
    pub refusals: Refusals,
    /// The daemon stops, and the last writes of replica metadata have begun.
    pub is_tidying_up: bool,
    busy_poll: BusyPoll,
    /// When to check the journals, while any holds data.
    pub journals_wake_ns: Option<u64>,
    pub stop_by_ns: Option<u64>,
}

impl Reactor {
    pub fn new(ring: Ring<Token>, pool: BufferPool, helper: Helper, surroundings: Surroundings) -> Reactor {
        let Surroundings { index, commands, shared_state, alarms } = surroundings;
        let space = SpaceAtHand::new(&shared_state.space);
        let (now_ns, reactor) = (Clock.now_ns(), index);
        let io = Io { ring, pool, helper, now_ns, reactor, alarms, space, is_stopping: false };
        let ceilings = Ceilings::new(Arc::clone(&shared_state), reactor);
        let drive_queues = DriveQueues::new(Arc::clone(&shared_state), reactor);
        Reactor {
            io,
            volumes: Slab::new(),
            clients: Clients::default(),
            unsettled: Vec::new(),
            clock: Clock,
            commands,
            by_id: BTreeMap::new(),
            shared_state,
            ceilings,
            drive_queues,
            policies: BackgroundPolicies::default(),
            held: HeldCompletions::default(),
            later: VecDeque::new(),
            background: Background::default(),
            snapshot_times: SnapshotTimes::default(),
            statuses: Statuses::default(),
            held_metadata: HeldMetadata::default(),
            resyncs: ResyncSchedule::default(),
            held_checksums: HeldChecksums::default(),
            scrubs: Scrubs::default(),
            refusals: Refusals::default(),
            is_tidying_up: false,
            busy_poll: BusyPoll::default(),
            journals_wake_ns: None,
            stop_by_ns: None,
        }
    }

    /// Runs until the reactor is told to stop and all requests are answered.
    pub fn run(mut self) {
        loop {
            self.begin_round();
            if self.has_stopped() {
                break;
            }
            self.wait_unless_ended();
        }
        // Some clients have not finished within the stop timeout; their operations end with their sockets.
        self.clients.shut_down();
    }

    /// Does all work that needs no waiting.
    pub(crate) fn begin_round(&mut self) {
        self.io.now_ns = self.clock.now_ns();
        for _ in 0..ROUND_COMPLETIONS_MAX {
            let Some(completion) = self.io.ring.next_completion() else { break };
            self.on_completion(completion);
        }
        // After the completions, because one of them may have been the wake-up for these.
        self.take_commands();
        self.take_answers();
        self.take_messages();
        self.pass_on_refusals();
        self.pass_on_due();
        self.look_at_journals();
        self.look_at_background();
        self.pass_on_due_metadata();
        self.look_at_resync();
        self.look_at_snapshots();
        self.look_at_statuses();
        self.pass_on_due_checksums();
        self.look_at_scrubs();
        self.release_due();
        self.clients.receive_gathered(&mut self.io);
        self.resume_clients();
        self.end_stalled_clients();
        self.clients.send_outgoing(&mut self.io);
        self.settle_ending();
        self.settle_unsettled();
    }

    /// Waits for the next arrival, unless a completion for the next round is there already.
    pub(crate) fn wait_unless_ended(&mut self) {
        if !self.io.ring.has_ended() {
            self.wait();
        }
    }

    fn has_stopped(&mut self) -> bool {
        let Some(by_ns) = self.stop_by_ns else { return false };
        let is_working = !self.background.is_quiet() || !self.scrubs.are_none();
        let is_quiet = self.clients.count() == 0 && !is_working;
        let is_late = self.io.now_ns >= by_ns;
        if is_late && !is_quiet {
            let connections = self.clients.count();
            tracing::warn!(connections, "the end waits no longer for clients and work that do not go on");
        }
        is_late || is_quiet && self.tidy_up_replicas() && self.stop_journals()
    }

    fn wait(&mut self) {
        let mut timeout_ns = self.timeout_ns();
        let near_ns = timeout_ns.filter(|timeout_ns| (1..=NEAR_NS).contains(timeout_ns));
        let poll_ns = near_ns.unwrap_or_else(|| self.poll_ns().min(timeout_ns.unwrap_or(u64::MAX)));
        if poll_ns > 0 {
            let is_found = self.io.ring.look(poll_ns);
            if near_ns.is_none() {
                self.busy_poll.polled(is_found);
            }
            timeout_ns = if is_found { Some(0) } else { self.timeout_ns() };
        }
        if timeout_ns != Some(0) {
            self.io.space.hand_back();
        }
        if let Err(error) = self.io.ring.wait(timeout_ns) {
            tracing::error!(%error, "a reactor cannot wait for its ring");
            std::process::abort();
        }
    }

    /// How long to busy-poll before sleeping. Busy polling pays only if clients are all that the reactor
    /// waits for. A drive takes longer than a sleep, and sleeping until it answers leaves this core to the
    /// client.
    fn poll_ns(&mut self) -> u64 {
        let waits_for_time =
            self.ceilings.next_ns().is_some() || self.clients.is_gathering() || !self.held.is_empty();
        let waits_for_others = self.io.ring.take_drive_use() || waits_for_time;
        if self.clients.count() == 0 || waits_for_others { 0 } else { self.busy_poll.poll_ns() }
    }

    pub(crate) fn timeout_ns(&self) -> Option<u64> {
        if !self.clients.is_idle(&self.io) || !self.refusals.is_empty() || !self.later.is_empty() {
            return Some(0);
        }
        let instants = [
            self.ceilings.next_ns(),
            self.clients.next_ns(),
            self.snapshot_times.next_ns(),
            self.statuses.next_ns(),
            self.stop_by_ns,
            self.held.next_ns(),
            self.background.next_ns(),
            self.held_metadata.next_ns(),
            self.resyncs.next_ns(),
            self.held_checksums.next_ns(),
            self.scrubs.next_ns(),
            self.journals_wake_ns,
        ];
        let at_ns = instants.into_iter().flatten().min()?;
        Some(at_ns.saturating_sub(self.clock.now_ns()))
    }

    fn on_completion(&mut self, completion: Completion<Token>) {
        let Completion { token, result, carried } = completion;
        match token {
            Token::Receive(connection) => {
                let has_input = self.clients.received(&mut self.io, connection, (result, carried));
                self.socket_answered(connection, has_input);
            }
            Token::ReceivePayload(connection) => {
                let has_input = self.clients.received_payload(&mut self.io, connection, (result, carried));
                self.socket_answered(connection, has_input);
            }
            Token::HangUp(connection) => {
                self.clients.hung_up(&mut self.io, connection);
                self.serve_clients();
            }
            Token::Send(connection) => {
                self.clients.sent(&mut self.io, connection, (result, carried));
                self.serve_clients();
            }
            _ => self.disk_answered(Completion { token, result, carried }),
        }
    }

    fn socket_answered(&mut self, connection: ConnectionIndex, has_input: bool) {
        self.serve_clients();
        if has_input {
            self.parse(connection);
        }
    }

    fn take_commands(&mut self) {
        while let Ok(command) = self.commands.try_recv() {
            self.take_command(command);
        }
    }

    fn take_command(&mut self, command: Command) {
        match command {
            Command::Open { spec, homes, journals, open, done } => {
                self.open_volume(spec, (homes, journals), open);
                answer(done);
            }
            Command::Close { volume, done } => self.close_volume(volume, done),
            Command::Resize { volume, resizing, done } => self.resize(volume, resizing, done),
            Command::SetReadOnly { volume, is_read_only, done } => {
                self.set_read_only(volume, is_read_only, done);
            }
            Command::Bind { volume, binding, done } => self.bind(volume, &binding, done),
            Command::LookAtPolicyTrees { done } => {
                self.release_all();
                answer(done);
            }
            Command::Tap { volume, tap, done } => {
                if let Some(&index) = self.by_id.get(&volume) {
                    self.clients.set_tap(index, tap);
                }
                answer(done);
            }
            Command::Reclaim(new) => {
                let policy = self.policies.of(BackgroundKind::Reclaim);
                self.background.begin_reclaim(&mut self.io, &mut self.drive_queues, *new, policy);
            }
            Command::ChangeBackground { kind, policy, done } => {
                self.change_background(kind, policy);
                answer(done);
            }
            Command::ChangeReplica { volume, replica, change, done } => {
                self.change_replica(volume, replica, change, done);
            }
            Command::ConfirmAdded { volume, replica } => self.confirm_added(volume, replica),
            Command::AddJournal { volume, journal, done } => {
                // The caller may have stopped waiting; the same holds below.
                let _ = done.send(self.add_journal_to(volume, *journal));
            }
            Command::DropJournal { volume, drive, done } => {
                let _ = done.send(self.drop_journal(volume, drive));
            }
            Command::SetReadCosts { volume, read_costs, done } => {
                self.set_read_costs(volume, &read_costs);
                answer(done);
            }
            Command::Quiesce { volume, done } => self.quiesce(volume, done),
            Command::Snapshot(new) => self.begin_snapshot(*new),
            Command::AbandonSnapshot { volume } => {
                if let Some(&index) = self.by_id.get(&volume) {
                    self.end_snapshot(index, "it was given up");
                }
            }
            Command::Scrub { volume, progress, done } => self.begin_scrub(volume, progress, done),
            Command::EndScrub { volume, done } => {
                let index = self.by_id.get(&volume).copied();
                index.into_iter().for_each(|index| self.end_scrub(index, ScrubEnd::Cancelled));
                answer(done);
            }
            Command::SetAway { drive, is_away } => self.set_away(drive, is_away),
            Command::OpenFiles { drive, done } => {
                let _ = done.send(self.open_files(drive));
            }
            Command::FailReplica { volume, replica, message } => self.fail_replica(volume, replica, &message),
            Command::GiveUpJournal { volume, drive } => self.give_up_journal(volume, drive),
            Command::Serve { volume, connection } => self.serve(volume, *connection),
            Command::Stop => self.stop(),
        }
    }

    fn open_volume(
        &mut self,
        spec: VolumeSpec,
        (homes, journals): (Vec<NewHome>, Vec<NewJournal>),
        open: OpenVolume,
    ) {
        let (id, volume) = (spec.id, self.volumes.vacant_key());
        self.volumes.insert(ServedVolume::new(volume, spec, open.clone()));
        self.clients.open_volume(volume, open);
        self.add_homes(volume, homes, &[own_level(id)]);
        journals.into_iter().for_each(|journal| self.add_journal(volume, journal));
        self.by_id.insert(id, volume);
        if self.volumes[volume].mirror.has_replicas() {
            self.begin_resync(volume);
        }
    }

    fn take_answers(&mut self) {
        while let Some(answer) = self.io.helper.next_answer() {
            match answer {
                Answer::Opened { replica, number, extent, result } => {
                    self.extent_opened((replica, number), extent, result);
                }
                Answer::Background { operation, outcome } => {
                    let answered = self.background.step_answered(&self.io, operation, outcome);
                    answered.into_iter().for_each(|step| self.end_step(step));
                }
                Answer::EpochRecorded { volume, extent, result } => {
                    self.with_metadata(volume, |metadata, desk| {
                        metadata.epoch_recorded(extent, result, desk)
                    });
                }
                Answer::FailureRecorded { volume, extent, result } => {
                    self.failure_recorded(volume, extent, result);
                }
                Answer::Metadata(answer) => {
                    let MetadataAnswer { replica, extent, number, due_ns, result } = answer;
                    self.metadata_answered(due_ns, (replica, extent, number, result));
                }
                Answer::SnapshotEnded { replica, number, result } => {
                    self.snapshot_answered(replica, number, result)
                }
                Answer::Checksums(answer) => self.checksums_answered(*answer),
                Answer::Space(answer) => self.space_seen(answer),
                Answer::Status { number, result } => self.status_answered(number, result),
            }
        }
    }

    fn serve(&mut self, volume: VolumeId, new: NewConnection) {
        let Some(&volume) = self.by_id.get(&volume).filter(|&&v| !self.volumes[v].life.is_closing()) else {
            if let Some(left_out) = REFUSALS.pass() {
                tracing::info!(%volume, left_out, "a client chose a volume that has just been closed");
            }
            return;
        };
        if !self.has_place_for(volume) || self.io.is_stopping {
            return;
        }
        let (served, export) = (&self.volumes[volume], &new.session.export);
        if served.life.is_resizing() || export.size_bytes > served.size_bytes {
            if let Some(left_out) = REFUSALS.pass() {
                tracing::info!(
                    left_out,
                    "a client that was told a size from before a shrink has to come again"
                );
            }
            return;
        }
        if served.life.is_read_only() && !export.read_only {
            if let Some(left_out) = REFUSALS.pass() {
                tracing::info!(
                    left_out,
                    "a client that came before its volume was made read-only has to come again"
                );
            }
            return;
        }
        let index = self.clients.add(new, volume);
        let homes = self.volumes[volume].files.homes.iter().map(|home| &home.queue);
        self.drive_queues.join(self.io.now_ns, index, homes);
        self.ceilings.join(self.io.now_ns, volume, index);
        self.parse(index);
    }

    fn has_place_for(&self, volume: VolumeIndex) -> bool {
        let (has_place, of_volume) = (self.clients.has_place_for(volume), self.clients.count_of(volume));
        if !has_place && let Some(left_out) = REFUSALS.pass() {
            let volume = self.volumes[volume].id;
            tracing::warn!(%volume, left_out, "a connection was refused: the volume has {of_volume} already");
        }
        has_place
    }

    fn close_volume(&mut self, id: VolumeId, done: SyncSender<()>) {
        let Some(volume) = self.by_id.remove(&id) else { return answer(done) };
        self.volumes[volume].life.close(done);
        self.end_snapshot(volume, "the volume was closed");
        self.end_connections(volume);
        self.end_scrub(volume, ScrubEnd::Interrupted);
        self.settle_volume(volume);
    }

    fn end_connections(&mut self, volume: VolumeIndex) {
        for connection in self.clients.of_volume(volume) {
            self.close_connection(connection);
        }
        self.expedite(volume);
    }

    /// Resizes a volume. Growing changes nothing for open connections. Shrinking ends them, so that none
    /// writes beyond the new end, and is answered once they are gone.
    fn resize(&mut self, id: VolumeId, resizing: NewSize, done: SyncSender<()>) {
        let Some(&index) = self.by_id.get(&id) else { return answer(done) };
        self.end_snapshot(index, "the volume was resized");
        let volume = &mut self.volumes[index];
        let size_bytes = resizing.size_bytes;
        volume.life.resize(resizing, done);
        if extent_count(size_bytes) < volume.mirror.extents() || size_bytes < volume.size_bytes {
            self.end_connections(index);
            self.end_scrub(index, ScrubEnd::Interrupted);
        }
        self.settle_volume(index);
    }

    fn set_read_only(&mut self, id: VolumeId, is_read_only: bool, done: SyncSender<()>) {
        let Some(&index) = self.by_id.get(&id) else { return answer(done) };
        if let Some(done) = self.volumes[index].life.set_read_only(is_read_only, done) {
            return answer(done);
        }
        self.end_connections(index);
        self.settle_volume(index);
    }

    fn bind(&mut self, id: VolumeId, binding: &PolicyBinding, done: SyncSender<()>) {
        if let Some(&index) = self.by_id.get(&id) {
            let (now_ns, PolicyBinding { path, policy_tree }) = (self.io.now_ns, binding);
            let connections = self.clients.of_volume(index);
            let homes = self.volumes[index].files.homes.iter_mut().map(|home| &mut home.queue).collect();
            self.drive_queues.bind(now_ns, &connections, homes, path);
            self.release_homes(index);
            let ceilings = (policy_tree.as_ref(), path.as_slice());
            let admitted = self.ceilings.bind(now_ns, index, ceilings, &connections);
            admitted.into_iter().for_each(|admitted| self.admitted(admitted));
        }
        answer(done);
    }

    /// Releases the requests whose deadline has passed.
    fn release_due(&mut self) {
        while let Some(released) = self.ceilings.release_due(self.io.now_ns) {
            released.into_iter().for_each(|admitted| self.admitted(admitted));
        }
    }

    /// Releases requests of all policy trees, as after another thread changed their terms.
    fn release_all(&mut self) {
        let released = self.ceilings.release_all(self.io.now_ns);
        released.into_iter().for_each(|admitted| self.admitted(admitted));
    }

    /// Ends a step of background work, lets others use the drive, and takes the next steps.
    fn end_step(&mut self, step: usize) {
        let Some(EndedStep { key, waited_for }) = self.background.end_step(&self.io, step) else { return };
        waited_for.into_iter().for_each(|drive_queue| self.release_drive_queue(&drive_queue));
        self.background.go_on(&mut self.io, &mut self.drive_queues, key);
    }

    /// Does all background work that is due.
    fn look_at_background(&mut self) {
        while let Some(step) = self.background.next_due(self.io.now_ns) {
            self.end_step(step);
        }
        self.background.look(&mut self.io, &mut self.drive_queues);
    }

    /// Changes the policy of a kind of background work.
    fn change_background(&mut self, kind: BackgroundKind, policy: BackgroundPolicy) {
        self.policies.set(kind, policy);
        if kind == BackgroundKind::Reclaim {
            return self.background.change(&mut self.io, &mut self.drive_queues, (kind, policy));
        }
        for (_, volume) in &self.volumes {
            volume.files.homes.iter().for_each(|home| home.queue.change_policy(kind, policy, self.io.now_ns));
        }
        self.resyncs.wake_at(self.io.now_ns);
        self.scrubs.wake_at(self.io.now_ns);
    }

    fn fail_replica(&mut self, id: VolumeId, (extent, slot): (u32, usize), message: &str) {
        if let Some(&index) = self.by_id.get(&id) {
            let volume = &mut self.volumes[index];
            if volume.mirror.is_there(extent, slot) {
                volume.fault_message = Some(message.to_owned());
                volume.mirror.fail_replica(extent, slot, &mut volume.effects);
                self.carry_out(index);
            }
        }
    }

    fn settle_unsettled(&mut self) {
        while let Some(index) = self.unsettled.pop() {
            // The volume may have been settled, and closed, in between.
            if self.volumes.contains(index) {
                self.settle_volume(index);
            }
        }
    }

    /// Does the work that was deferred until a volume is quiet.
    pub fn settle_volume(&mut self, index: VolumeIndex) {
        let has_clients = self.clients.count_of(index) > 0;
        let volume = &mut self.volumes[index];
        if let Some((resizing, done)) = volume.life.take_resize() {
            let is_growing = resizing.size_bytes >= volume.size_bytes;
            if !is_growing && (has_clients || !volume.is_quiet()) {
                volume.life.resize(resizing, done);
                return;
            }
            if !self.are_journals_cut(index, &resizing) {
                self.volumes[index].life.resize(resizing, done);
                return;
            }
            self.take_size(index, resizing);
            answer(done);
        }
        let volume = &mut self.volumes[index];
        if has_clients || !volume.is_quiet() {
            return;
        }
        volume.life.take_read_only().into_iter().for_each(answer);
        if volume.life.is_closing() && volume.journals.stop() {
            self.remove_volume(index);
        }
    }

    /// Makes journals forget the data that a shrinking volume loses. The range may grow again, and old data
    /// must not be destaged there. True once the journals have forgotten it for good.
    fn are_journals_cut(&mut self, index: VolumeIndex, resizing: &NewSize) -> bool {
        let volume = &mut self.volumes[index];
        let (old_bytes, size_bytes) = (volume.size_bytes, resizing.size_bytes);
        let first = extent_count(size_bytes.min(old_bytes));
        if size_bytes < old_bytes && volume.life.begin_cutting() {
            self.with_journals(index, |journals, desk| {
                journals.detach_from(first, desk);
                journals.trim_beyond(size_bytes, desk);
            });
        }
        !self.volumes[index].journals.is_cutting(first)
    }

    fn take_size(&mut self, index: VolumeIndex, mut resizing: NewSize) {
        let places = self.add_new_homes(index, std::mem::take(&mut resizing.homes));
        for home in resizing.replicas.iter_mut().flatten().filter(|home| **home != NO_HOME) {
            *home = places[usize::from(*home)];
        }
        let volume = &mut self.volumes[index];
        let bindings = std::mem::take(&mut resizing.bindings);
        volume.set_size(resizing);
        for (replica, drive) in bindings {
            let place = (replica, volume.files.home_of(replica.1, replica.0));
            match volume.journals.can_attach(replica, Some(drive)) {
                true => volume.journals.attach(place, drive, None),
                // The journal has failed since it was chosen.
                false => volume.journals.invalidate(replica.0, replica.1),
            }
        }
        volume.life.end_cutting();
        self.with_journals(index, |_, _| {});
        let volume = &mut self.volumes[index];
        if volume.mirror.has_replicas() {
            volume.set_read_costs();
            volume.publish_replica_states();
            self.resyncs.add(index);
            self.resyncs.wake_at(self.io.now_ns);
        }
    }

    /// Adds the homes that a volume does not have yet. Answers the index of each given home. The volume may
    /// have other homes, left by a change that was begun and not recorded.
    pub fn add_new_homes(&mut self, index: VolumeIndex, homes: Vec<NewHome>) -> Vec<u8> {
        let own = own_level(self.volumes[index].id);
        let mut places = Vec::with_capacity(homes.len());
        for home in homes {
            let known = self.volumes[index].files.home_on(home.drive);
            let place = known.unwrap_or(self.volumes[index].files.homes.len());
            match known {
                None => self.add_homes(index, vec![home], std::slice::from_ref(&own)),
                // The drive may have been removed, and added at another path.
                Some(known) => self.volumes[index].files.homes[known].directory = home.directory,
            }
            places.push(u8::try_from(place).expect("there are no more drives than bytes can count"));
        }
        places
    }

    fn remove_volume(&mut self, index: VolumeIndex) {
        self.ceilings.remove_volume(self.io.now_ns, index);
        self.resyncs.remove(index);
        self.volumes[index].files.homes.drain(..).for_each(|mut home| home.queue.leave());
        self.scrubs.forget(index);
        self.volumes[index].drop_scrub();
        // A caller that still waits for a change of replicas learns that the volume was closed.
        let mut volume = self.volumes.remove(index);
        self.clients.close_volume(index);
        self.io.alarms.clear_volume(volume.id);
        volume.life.take_closing().into_iter().for_each(answer);
    }

    /// Answers received requests, refuses waiting ones, and stops.
    fn stop(&mut self) {
        self.stop_by_ns = Some(self.io.now_ns + STOP_TIMEOUT_NS);
        self.io.is_stopping = true;
        for step in self.background.stop(&self.io, &mut self.drive_queues) {
            self.end_step(step);
        }
        let all: Vec<VolumeIndex> = self.volumes.iter().map(|(index, _)| index).collect();
        all.into_iter().for_each(|index| self.end_snapshot(index, "the daemon stops"));
        let scrubbed = self.scrubs.all();
        scrubbed.into_iter().for_each(|index| self.end_scrub(index, ScrubEnd::Interrupted));
        for connection in self.clients.connections() {
            self.clients.cut_short(&mut self.io, connection);
            self.serve_clients();
        }
    }
}

/// Tells the caller of an order that it is in effect. The caller may have stopped waiting.
fn answer(done: SyncSender<()>) {
    let _ = done.send(());
}
