//! Reactor: the loop of one reactor thread, and its exchange with the rest of the daemon.
//!
//! Each round takes arrivals (commands, the helper's answers, the ring's completions), releases due requests,
//! sends ready replies, and waits for the next arrival or due time.
//!
//! The components (`clients`, `ceilings`, `volumes`, `background`, `statuses`) know no reactor. The modules
//! below carry out what they answer: [`serving`] the effects of clients, [`volume_work`] those of volumes and the
//! work that is due, [`drive_grants`] the grants of drive queues, and [`commands`] the commands of control.

mod commands;
mod drive_grants;
mod limiting;
mod serving;
mod volume_work;

use std::sync::Arc;
use std::sync::mpsc::Receiver;

use weir_reactor::{BufferPool, Clock, Completion, Ring};

use crate::alarms::Alarms;
use crate::background::Background;
use crate::block_status::Statuses;
use crate::busy_poll::BusyPoll;
use crate::ceilings::Ceilings;
use crate::clients::Clients;
use crate::command::Command;
use crate::drive_queue::DriveQueues;
use crate::helper::{Answer, Helper, MetadataAnswer};
use crate::io::Io;
use crate::shared_state::SharedState;
use crate::space_count::SpaceAtHand;
use crate::token::{ConnectionIndex, Token};
use crate::volumes::Volumes;

/// A due time nearer than this is waited for without sleeping, in nanoseconds. Sleeping and waking take
/// longer.
const NEAR_NS: u64 = 5_000;

/// Number of rounds that may follow each other without a wait. Only a wait lets the kernel tell what else has ended, who
/// has woken the reactor, and when work becomes due.
const UNWAITED_ROUNDS_MAX: u32 = 4;

/// Number of completions taken in one round. While input is ready at once, replies gather and go out
/// together at the end of the round. This bound limits how long they gather.
const ROUND_COMPLETIONS_MAX: usize = 32;

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
    pub clients: Clients,
    pub volumes: Volumes,
    ceilings: Ceilings,
    /// Background work on drives.
    background: Background,
    /// Block status queries of clients.
    statuses: Statuses,
    pub shared_state: Arc<SharedState>,
    commands: Receiver<Command>,
    clock: Clock,
    busy_poll: BusyPoll,
    /// Work that only time makes due is not looked for before this time, in nanoseconds.
    due_ns: u64,
    /// Number of rounds since the last wait.
    unwaited_rounds: u32,
    stop_by_ns: Option<u64>,
    /// The daemon stops, and the last writes of replica metadata have begun.
    is_tidying_up: bool,
}

impl Reactor {
    pub fn new(ring: Ring<Token>, pool: BufferPool, helper: Helper, surroundings: Surroundings) -> Reactor {
        let Surroundings { index, commands, shared_state, alarms } = surroundings;
        let space = SpaceAtHand::new(&shared_state.space);
        let (now_ns, reactor) = (Clock.now_ns(), index);
        let io = Io { ring, pool, helper, now_ns, reactor, alarms, space, is_stopping: false };
        Reactor {
            io,
            clients: Clients::default(),
            volumes: Volumes::new(DriveQueues::new(Arc::clone(&shared_state), reactor)),
            ceilings: Ceilings::new(Arc::clone(&shared_state), reactor),
            background: Background::default(),
            statuses: Statuses::default(),
            shared_state,
            commands,
            clock: Clock,
            busy_poll: BusyPoll::default(),
            due_ns: 0,
            unwaited_rounds: 0,
            stop_by_ns: None,
            is_tidying_up: false,
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
        // After the completions, because one of them may have been the wake-up, which follows each of these.
        if self.io.ring.take_wake_up() {
            while let Ok(command) = self.commands.try_recv() {
                self.take_command(command);
            }
            while let Some(answer) = self.io.helper.next_answer() {
                self.take_answer(answer);
            }
            self.take_messages();
        }
        self.pass_on_refused();
        self.pass_on_due();
        self.look_at_background();
        self.look_at_statuses();
        self.do_due_work();
        self.clients.receive_gathered(&mut self.io);
        self.resume_clients();
        self.end_stalled_clients();
        self.clients.send_outgoing(&mut self.io);
        self.settle_ending();
        self.settle_unsettled();
    }

    /// Does the work that only time makes due. A round without such work costs one comparison. Work that becomes due within
    /// the round is done after the next wait, which is at most [`UNWAITED_ROUNDS_MAX`] rounds away.
    fn do_due_work(&mut self) {
        if self.io.now_ns < self.due_ns && !self.io.is_stopping {
            return;
        }
        self.due_ns = u64::MAX;
        self.look_at_journals();
        self.pay_due_flushes();
        self.pass_on_due_helper_answers();
        self.look_at_resync();
        self.look_at_snapshots();
        self.look_at_scrubs();
        self.release_due();
    }

    /// Waits for the next arrival, unless a completion for the next round is there already.
    pub(crate) fn wait_unless_ended(&mut self) {
        if self.io.ring.has_ended() && self.unwaited_rounds < UNWAITED_ROUNDS_MAX {
            self.unwaited_rounds += 1;
            return;
        }
        self.unwaited_rounds = 0;
        self.wait();
    }

    fn has_stopped(&mut self) -> bool {
        let Some(by_ns) = self.stop_by_ns else { return false };
        let is_working = !self.background.is_quiet() || !self.volumes.schedules.scrubs.are_none();
        let connections = self.clients.count_working();
        let is_quiet = connections == 0 && !is_working;
        let is_late = self.io.now_ns >= by_ns;
        if is_late && !is_quiet {
            tracing::warn!(connections, "the end waits no longer for clients and work that do not go on");
        }
        is_late
            || is_quiet
                && self.volumes.are_flushes_paid()
                && self.tidy_up_replicas()
                && self.volumes.stop_journals()
    }

    fn wait(&mut self) {
        let due_ns = self.next_due_ns();
        self.due_ns = due_ns.unwrap_or(u64::MAX);
        let clock = self.clock;
        let until_due_ns = || due_ns.map(|due_ns| due_ns.saturating_sub(clock.now_ns()));
        let mut timeout_ns = if self.io.ring.has_ended() { Some(0) } else { until_due_ns() };
        let near_ns = timeout_ns.filter(|timeout_ns| (1..=NEAR_NS).contains(timeout_ns));
        let poll_ns = match timeout_ns {
            Some(0) => 0,
            _ => near_ns.unwrap_or_else(|| self.poll_ns().min(timeout_ns.unwrap_or(u64::MAX))),
        };
        if poll_ns > 0 {
            let is_found = self.io.ring.look(poll_ns);
            if near_ns.is_none() {
                self.busy_poll.polled(is_found);
            }
            timeout_ns = if is_found { Some(0) } else { until_due_ns() };
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
        let waits_for_time = self.ceilings.next_ns().is_some()
            || self.clients.is_gathering()
            || self.volumes.answers.is_holding();
        let waits_for_others = self.io.ring.take_drive_use() || waits_for_time;
        if self.clients.count() == 0 || waits_for_others { 0 } else { self.busy_poll.poll_ns() }
    }

    /// When there is work to do although nothing arrives, in nanoseconds: 0 if there is some already.
    pub(crate) fn next_due_ns(&self) -> Option<u64> {
        if !self.clients.is_idle(&self.io) || !self.volumes.answers.is_idle() {
            return Some(0);
        }
        let instants = [
            self.ceilings.next_ns(),
            self.clients.next_ns(),
            self.volumes.schedules.next_ns(),
            self.volumes.answers.next_ns(),
            self.statuses.next_ns(),
            self.background.next_ns(),
            self.stop_by_ns,
        ];
        instants.into_iter().flatten().min()
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
            Token::Messages(connection) => {
                if self.clients.has_messages(connection) {
                    self.parse(connection);
                }
            }
            Token::Block(connection, tag) => {
                let has_request = self.clients.fetched(&mut self.io, (connection, tag), &result);
                self.socket_answered(connection, has_request);
            }
            Token::HangUp(connection) => {
                self.clients.hung_up(&mut self.io, connection);
                self.serve_clients();
            }
            Token::Send(connection) => {
                self.clients.sent(&mut self.io, connection, (result, carried));
                self.serve_clients();
            }
            _ => self.drive_answered(Completion { token, result, carried }),
        }
    }

    fn socket_answered(&mut self, connection: ConnectionIndex, has_input: bool) {
        self.serve_clients();
        if has_input {
            self.parse(connection);
        }
    }

    /// Gives the answer of a helper thread to its component.
    fn take_answer(&mut self, answer: Answer) {
        match answer {
            Answer::Opened { replica, number, extent, result } => {
                self.go_on(replica.volume, |volume, desk| {
                    volume.disk(desk).opened((replica.slot, number), extent, result);
                });
            }
            Answer::Space(answer) => {
                self.go_on_from_drive(answer.replica.volume, |volume, desk| {
                    volume.disk(desk).space_seen(answer)
                });
            }
            Answer::EpochRecorded { volume, extent, result } => {
                self.go_on(volume, |volume, desk| volume.epoch_recorded(extent, result, desk));
            }
            Answer::FailureRecorded { volume, extent, result } => {
                self.go_on(volume, |volume, desk| volume.failure_recorded(extent, result, desk));
            }
            Answer::Metadata(MetadataAnswer { replica, extent, number, due_ns, result }) => {
                let answered = (replica, extent, number, result);
                match self.volumes.is_held_back(&self.io, replica.volume, due_ns) {
                    true => self.volumes.answers.metadata.hold(due_ns, answered),
                    false => {
                        self.go_on(replica.volume, |volume, desk| volume.metadata_written(answered, desk));
                    }
                }
            }
            Answer::Checksums(answer) => {
                match self.volumes.is_held_back(&self.io, answer.replica.volume, answer.due_ns) {
                    true => self.volumes.answers.checksums.hold(answer.due_ns, *answer),
                    false => {
                        let volume = answer.replica.volume;
                        self.go_on(volume, |volume, desk| volume.checksums_answered(*answer, desk));
                    }
                }
            }
            Answer::SnapshotEnded { replica, number, result } => {
                self.go_on(replica.volume, |volume, desk| {
                    volume.snapshot_answered((replica.slot, number), result, desk);
                });
            }
            Answer::Background { operation, outcome } => {
                let answered = self.background.step_answered(&self.io, operation, outcome);
                answered.into_iter().for_each(|step| self.end_step(step));
            }
            Answer::Status { number, result } => {
                let found = self.statuses.answered(number, result, &mut self.volumes, &mut self.io);
                found.into_iter().for_each(|found| self.status_found(found));
            }
        }
    }
}
