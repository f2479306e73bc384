//! Handle on all reactors: the whole interface of the engine to control.
//!
//! Control tells the data plane which volumes to serve and under which limits. The data plane never asks
//! control, so a dead control plane stops no I/O.

mod as_engine;
mod drives;
mod recordings;
mod replicas;
mod scrubs;
mod snapshots;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::mpsc::{Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, Weak};
use std::thread::JoinHandle;

use weir_engine_interface::{
    Alarm, AttachedClient, CgroupLimit, DriveQueueDepth, DriveSpec, EngineError, JournalSpec, OpenVolume,
    PolicyLevel, ReclaimSpec, Recording, VolumeHome, VolumeLayout, VolumeSpec,
};
use weir_qos::{Credits, DriveQueue};
use weir_reactor::{BufferPool, Clock, IoMethod, Ring, RingConfig, Waker};
use weir_types::bounds::{BUFFER_POOL_BYTES, POLICY_DEPTH_MAX};
use weir_types::{BackgroundKind, BackgroundPolicy, DriveId, Emulation, ExtentIndex, Scope, Terms, VolumeId};
use weir_volume::EmulatedDrive;
use weir_volume::mirror::RecoveredExtent;

use crate::alarms::Alarms;
use crate::background::NewReclaim;
use crate::ceilings::PolicyTree;
use crate::clients::NewClient;
use crate::command::{Command, PolicyBinding};
use crate::drive_queue::SharedDriveQueue;
use crate::emulation::SharedEmulation;
use crate::helper::Helper;
use crate::locks::locked;
use crate::policy_path::VolumePolicy;
use crate::reactor::{Reactor, Surroundings};
use crate::shared_state::SharedState;
use crate::volumes::command::VolumeCommand;
use crate::volumes::lifecycle::NewSize;
use crate::volumes::space_permission::IsCounted;
use crate::volumes::volume_files::NewHome;

/// Configuration of the data plane.
#[derive(Clone, Debug)]
pub struct DataPlaneConfig {
    /// Number of reactor threads; at least 1.
    pub reactors: usize,
    /// How they carry out operations.
    pub io_method: IoMethod,
}

/// Handle on all reactors. It is cheap to share. Every call may block until the owning reactor has
/// answered.
pub struct DataPlane {
    pub(crate) reactors: Vec<ReactorHandle>,
    /// The reactor of each volume.
    pub(crate) placements: Mutex<BTreeMap<VolumeId, usize>>,
    /// The policy of each volume.
    pub(crate) policies: Mutex<BTreeMap<VolumeId, VolumePolicy>>,
    /// The policy trees of all volumes with ceilings, by the topmost level that has a ceiling.
    pub(crate) policy_trees: Mutex<BTreeMap<Scope, Weak<PolicyTree>>>,
    /// The drive queues of all drives on which a volume was ever opened, until the drive is forgotten.
    pub(crate) drive_queues: Mutex<BTreeMap<DriveId, SharedDriveQueue>>,
    pub(crate) shared_state: Arc<SharedState>,
    /// The models of all emulated drives on which a volume was ever opened, until the drive is forgotten.
    pub(crate) emulated: Mutex<BTreeMap<DriveId, SharedEmulation>>,
    /// Whether space is counted, by drive, until the drive is forgotten.
    pub(crate) counted: Mutex<BTreeMap<DriveId, Arc<IsCounted>>>,
    /// The running recording, if there is one.
    pub(crate) recording: Mutex<Weak<Recording>>,
    pub(crate) alarms: Alarms,
    pub(crate) io_method: IoMethod,
}

/// One reactor thread.
pub(crate) struct ReactorHandle {
    pub(crate) commands: Sender<Command>,
    pub(crate) waker: Waker,
    pub(crate) thread: Mutex<Option<JoinHandle<()>>>,
}

impl ReactorHandle {
    /// Sends a command. The queue has no bound of its own. Commands come from control, which waits for each
    /// answer, and from handshakes, whose number is bounded.
    pub(crate) fn send(&self, command: Command) -> bool {
        let is_taken = self.commands.send(command).is_ok();
        self.waker.wake();
        is_taken
    }
}

impl DataPlane {
    /// Starts the reactors.
    ///
    /// # Errors
    /// If io_uring is asked for and not available; the source names the cause.
    pub fn start(config: DataPlaneConfig) -> Result<Arc<DataPlane>, EngineError> {
        let alarms = Alarms::default();
        let count = config.reactors.max(1);
        let shared_state = Arc::new(SharedState::new(count));
        let reactors = (0..count)
            .map(|index| start_reactor(index, config.io_method, alarms.clone(), &shared_state))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Arc::new(DataPlane {
            reactors,
            placements: Mutex::default(),
            policies: Mutex::default(),
            policy_trees: Mutex::default(),
            drive_queues: Mutex::default(),
            shared_state,
            emulated: Mutex::default(),
            counted: Mutex::default(),
            recording: Mutex::default(),
            alarms,
            io_method: config.io_method,
        }))
    }

    /// Opens a volume with its journals; connections can be served as soon as this call returns. The caller
    /// must not open a volume twice.
    ///
    /// # Errors
    /// If the reactor has stopped.
    pub fn open(&self, spec: VolumeSpec, journals: Vec<JournalSpec>) -> Result<OpenVolume, EngineError> {
        let (id, opened) = (spec.id, OpenVolume::default());
        let index = self.place(id);
        let open = opened.clone();
        let homes = self.new_homes(&spec.layout.homes);
        let journals = journals.into_iter().map(|journal| self.new_journal(journal)).collect();
        self.ask(index, id, |done| Command::Open { spec, homes, journals, open, done })?;
        Ok(opened)
    }

    /// Homes of a volume with the state that volumes share on each drive.
    pub(crate) fn new_homes(&self, homes: &[VolumeHome]) -> Vec<NewHome> {
        let new = |home: &VolumeHome| NewHome {
            drive: home.drive.id,
            directory: home.directory.clone(),
            read_cost: home.read_cost,
            is_counted: self.is_counted(home.drive.id),
            emulated: home.drive.emulation.map(|emulation| self.drive_of(home.drive.id, emulation)),
            drive_queue: self.drive_queue_of(home.drive),
        };
        homes.iter().map(new).collect()
    }

    /// The one model of an emulated drive, shared by all uses of the drive.
    pub(crate) fn drive_of(&self, drive: DriveId, emulation: Emulation) -> SharedEmulation {
        let new = || Arc::new(Mutex::new(EmulatedDrive::new(emulation)));
        Arc::clone(locked(&self.emulated).entry(drive).or_insert_with(new))
    }

    /// The one drive queue of a drive.
    pub(crate) fn drive_queue_of(&self, drive: DriveSpec) -> SharedDriveQueue {
        let new = || {
            let queue = DriveQueue::new(drive.model, drive.queue_target, Clock.now_ns());
            SharedDriveQueue::new(queue)
        };
        locked(&self.drive_queues).entry(drive.id).or_insert_with(new).clone()
    }

    /// Sets the number of operations that a drive keeps in flight; with `None` the drive queue finds it by
    /// trial. In effect when this call returns.
    pub fn set_queue_target(&self, drive: DriveId, queue_target: Option<u32>) {
        if let Some(drive_queue) = locked(&self.drive_queues).get(&drive) {
            drive_queue.set_queue_target(queue_target, Clock.now_ns());
        }
    }

    /// Number of operations that a drive keeps in flight, if any volume was ever opened there.
    pub fn depth(&self, drive: DriveId) -> Option<DriveQueueDepth> {
        locked(&self.drive_queues).get(&drive).map(SharedDriveQueue::depth)
    }

    /// Reclaims the space of a pending deletion, under the policy of reclaims. The end shows in
    /// [`JobProgress::is_finished`](crate::JobProgress::is_finished). A daemon that ends leaves the rest to the next daemon.
    pub fn start_reclaim(&self, spec: ReclaimSpec) {
        let ReclaimSpec { id, drive, pending_deletion, age_ns, progress } = spec;
        let signed = |ns: u64| i64::try_from(ns).unwrap_or(i64::MAX);
        let new = NewReclaim {
            id,
            drive: drive.id,
            pending_deletion,
            begun_ns: signed(Clock.now_ns()).saturating_sub(signed(age_ns)),
            drive_queue: self.drive_queue_of(drive),
            emulated: drive.emulation.map(|emulation| self.drive_of(drive.id, emulation)),
            progress,
        };
        // All background work of a drive is on one reactor. Drive identities are random, so drives spread
        // over reactors.
        let reactor = (drive.id.0.as_u128() % self.reactors.len() as u128) as usize;
        self.reactors[reactor].send(Command::Reclaim(Box::new(new)));
    }

    /// Changes the policy of a kind of background work on every drive. In effect when this call returns.
    ///
    /// # Errors
    /// If a reactor has stopped.
    pub fn change_background(
        &self,
        kind: BackgroundKind,
        policy: BackgroundPolicy,
    ) -> Result<(), EngineError> {
        for reactor in 0..self.reactors.len() {
            self.ask(reactor, VolumeId(uuid::Uuid::nil()), |done| Command::ChangeBackground {
                kind,
                policy,
                done,
            })?;
        }
        Ok(())
    }

    /// Forgets a drive that holds no volume any more.
    pub fn forget_drive(&self, drive: DriveId) {
        locked(&self.drive_queues).remove(&drive);
        locked(&self.emulated).remove(&drive);
        locked(&self.counted).remove(&drive);
    }

    /// Chooses the reactor with the fewest volumes.
    pub(crate) fn place(&self, id: VolumeId) -> usize {
        let mut placements = locked(&self.placements);
        let load = |index: usize| placements.values().filter(|&&placed| placed == index).count();
        let index = (0..self.reactors.len()).min_by_key(|&index| load(index)).unwrap_or(0);
        placements.insert(id, index);
        index
    }

    pub(crate) fn reactor_of(&self, volume: VolumeId) -> Result<usize, EngineError> {
        locked(&self.placements).get(&volume).copied().ok_or(EngineError::UnknownVolume(volume))
    }

    /// Sends a command to a volume.
    pub(crate) fn send(&self, volume: VolumeId, command: VolumeCommand) -> Result<(), EngineError> {
        let reactor = self.reactor_of(volume)?;
        self.reactors[reactor].send(Command::Volume { volume, command });
        Ok(())
    }

    /// Sends a command to a volume, and waits for the answer.
    pub(crate) fn ask_volume<T>(
        &self,
        volume: VolumeId,
        command: impl FnOnce(SyncSender<T>) -> VolumeCommand,
    ) -> Result<T, EngineError> {
        let (done, answer) = sync_channel(1);
        self.send(volume, command(done))?;
        answer.recv().map_err(|_| EngineError::Stopped(volume))
    }

    /// Sends a command and waits until it is in effect.
    pub(crate) fn ask(
        &self,
        reactor: usize,
        volume: VolumeId,
        command: impl FnOnce(SyncSender<()>) -> Command,
    ) -> Result<(), EngineError> {
        let (done, answer) = sync_channel(1);
        self.reactors[reactor].send(command(done));
        answer.recv().map_err(|_| EngineError::Stopped(volume))
    }

    /// Ends all connections of a volume, waits for its I/O to end, and closes its files.
    ///
    /// # Errors
    /// If the volume is not open or the reactor has stopped.
    pub fn close(&self, volume: VolumeId) -> Result<(), EngineError> {
        let reactor = self.reactor_of(volume)?;
        self.ask(reactor, volume, |done| Command::Close { volume, done })?;
        locked(&self.placements).remove(&volume);
        let policy = locked(&self.policies).remove(&volume).unwrap_or_default();
        policy.cgroups.iter().for_each(|cgroup| self.forget(&Scope::Cgroup(cgroup.binding)));
        self.forget(&Scope::Volume(volume));
        Ok(())
    }

    /// Changes a volume's size and layout. New connections see the new size.
    ///
    /// When the volume grows, the new extent files must exist, and `recovered_extents` has the state of the
    /// new extents if the volume has replicas. When it shrinks, the old extent files must still exist, and
    /// open connections are ended. New replicas in `bindings` are attached to the journals on the given
    /// drives, which the volume must have.
    ///
    /// # Errors
    /// If the volume is not open or the reactor has stopped.
    pub fn resize(
        &self,
        volume: VolumeId,
        size_bytes: u64,
        layout: VolumeLayout,
        recovered_extents: Vec<RecoveredExtent>,
        bindings: Vec<((ExtentIndex, usize), DriveId)>,
    ) -> Result<(), EngineError> {
        let reactor = self.reactor_of(volume)?;
        let is_spread = layout.homes.len() > 1;
        let homes = self.new_homes(&layout.homes);
        let resizing = NewSize { size_bytes, homes, replicas: layout.replicas, recovered_extents, bindings };
        self.ask(reactor, volume, |done| Command::Resize { volume, resizing, done })?;
        // In the queue of a new drive, the volume does not have its policies yet.
        if is_spread { self.bind_again(volume) } else { Ok(()) }
    }

    /// Makes a volume writable, or read-only, which ends its open connections. In effect when this call
    /// returns: no write is under way then.
    ///
    /// # Errors
    /// If the volume is not open or the reactor has stopped.
    pub fn set_read_only(&self, volume: VolumeId, is_read_only: bool) -> Result<(), EngineError> {
        let reactor = self.reactor_of(volume)?;
        self.ask(reactor, volume, |done| Command::SetReadOnly { volume, is_read_only, done })
    }

    /// Serves the kernel of this host as a client of the volume. Requests that an earlier daemon left unanswered
    /// are served too. The service ends with the mount or the connection.
    ///
    /// # Errors
    /// If the volume is not open, or takes no further client.
    pub fn serve_attached(&self, volume: VolumeId, client: AttachedClient) -> Result<(), EngineError> {
        let reactor = self.reactor_of(volume)?;
        let (done, is_served) = sync_channel(1);
        self.reactors[reactor].send(Command::ServeAttached { volume, client: Box::new(client), done });
        match is_served.recv() {
            Ok(true) => Ok(()),
            Ok(false) => Err(EngineError::ClientRefused(volume)),
            Err(_) => Err(EngineError::Stopped(volume)),
        }
    }

    /// Ends the service of the kernel of this host for a volume. Requests that are not answered are left to whoever
    /// serves it next.
    ///
    /// # Errors
    /// If the volume is not open or the reactor has stopped.
    pub fn end_attached(&self, volume: VolumeId) -> Result<(), EngineError> {
        let reactor = self.reactor_of(volume)?;
        self.ask(reactor, volume, |done| Command::EndAttached { volume, done })
    }

    /// Puts a volume under the terms of its policy levels, from the top; the volume's own level is the
    /// last. In effect when this call returns, also for waiting requests. A level with burst credit keeps
    /// the credit.
    ///
    /// # Errors
    /// If the volume is not open or the reactor has stopped.
    pub fn bind(&self, volume: VolumeId, path: Vec<PolicyLevel>) -> Result<(), EngineError> {
        assert!(path.len() < POLICY_DEPTH_MAX, "control bounds how deep policies are nested");
        self.change_policy(volume, |policy| policy.path = path)
    }

    /// Sets the limits of cgroups on a volume. In effect when this call returns.
    ///
    /// # Errors
    /// If the volume is not open or the reactor has stopped.
    pub fn limit_cgroups(&self, volume: VolumeId, limits: Vec<CgroupLimit>) -> Result<(), EngineError> {
        self.change_policy(volume, |policy| policy.cgroups = limits)
    }

    /// Changes a volume's policy, and puts the volume under it.
    pub(crate) fn change_policy(
        &self,
        volume: VolumeId,
        change: impl FnOnce(&mut VolumePolicy),
    ) -> Result<(), EngineError> {
        let reactor = self.reactor_of(volume)?;
        let (done, answer) = sync_channel(1);
        {
            // Two changes arrive in the order in which they were made.
            let mut policies = locked(&self.policies);
            let policy = policies.entry(volume).or_default();
            change(policy);
            let policy_tree = policy.tree_scope().map(|scope| self.policy_tree_of(scope));
            let binding = PolicyBinding { policy: policy.clone(), policy_tree };
            self.reactors[reactor].send(Command::Bind { volume, binding, done });
        }
        answer.recv().map_err(|_| EngineError::Stopped(volume))
    }

    /// The one policy tree below a level.
    pub(crate) fn policy_tree_of(&self, scope: Scope) -> Arc<PolicyTree> {
        let mut policy_trees = locked(&self.policy_trees);
        policy_trees.retain(|_, policy_tree| policy_tree.strong_count() > 0);
        let known = policy_trees.get(&scope).and_then(Weak::upgrade);
        known.unwrap_or_else(|| {
            let policy_tree = Arc::new(PolicyTree::new(Arc::clone(&self.shared_state), Clock.now_ns()));
            policy_trees.insert(scope, Arc::downgrade(&policy_tree));
            policy_tree
        })
    }

    /// Changes the terms of levels for all volumes below them. In effect when this call returns.
    ///
    /// # Errors
    /// If a reactor has stopped.
    pub fn change_terms(&self, changes: &[(Scope, Terms)]) -> Result<(), EngineError> {
        let mut moved = BTreeSet::new();
        for (scope, terms) in changes {
            moved.extend(self.change_paths(scope, *terms));
            self.change_where_it_stands(scope, terms);
        }
        for volume in moved {
            self.bind_again(volume)?;
        }
        for reactor in 0..self.reactors.len() {
            self.ask(reactor, VolumeId(uuid::Uuid::nil()), |done| Command::LookAtPolicyTrees { done })?;
        }
        Ok(())
    }

    fn change_where_it_stands(&self, scope: &Scope, terms: &Terms) {
        let now_ns = Clock.now_ns();
        for policy_tree in locked(&self.policy_trees).values().filter_map(Weak::upgrade) {
            policy_tree.change(scope, terms, now_ns);
        }
        for drive_queue in locked(&self.drive_queues).values() {
            drive_queue.change(scope, terms, now_ns);
        }
    }

    /// Records changed terms. Answers the volumes whose topmost level with a ceiling has changed.
    fn change_paths(&self, scope: &Scope, terms: Terms) -> Vec<VolumeId> {
        let mut moved = Vec::new();
        for (volume, policy) in locked(&self.policies).iter_mut() {
            let before = policy.tree_scope();
            let Some(level) = policy.path.iter_mut().find(|level| level.scope == *scope) else { continue };
            level.terms = terms;
            if policy.tree_scope() != before {
                moved.push(*volume);
            }
        }
        moved
    }

    /// The burst credit of every level that has one, with the age of the credit in nanoseconds (0 while the
    /// level is in use). Credit is counted in nanoseconds at the burst rate, for each of the level's limits.
    pub fn credits(&self) -> Vec<(Scope, Credits, u64)> {
        let now_ns = Clock.now_ns();
        let policy_trees: Vec<_> = locked(&self.policy_trees).values().filter_map(Weak::upgrade).collect();
        let saved = self.shared_state.all_saved_credits(now_ns);
        let saved = saved.into_iter().map(|(scope, credits, ago_ns)| (scope, (credits, ago_ns)));
        let mut all: BTreeMap<Scope, (Credits, u64)> = saved.collect();
        let in_use = policy_trees.iter().flat_map(|policy_tree| policy_tree.credits(now_ns));
        all.extend(in_use.map(|(scope, credits)| (scope, (credits, 0))));
        all.into_iter().map(|(scope, (credits, ago_ns))| (scope, credits, ago_ns)).collect()
    }

    /// Restores the saved credit of levels, with its age, before any volume is bound to them.
    pub fn restore_credits(&self, credits: Vec<(Scope, Credits, u64)>) {
        let now_ns = i64::try_from(Clock.now_ns()).unwrap_or(i64::MAX);
        for (scope, credits, ago_ns) in credits {
            let ago_ns = i64::try_from(ago_ns).unwrap_or(i64::MAX);
            self.shared_state.save_credits(vec![(scope, credits)], now_ns.saturating_sub(ago_ns));
        }
    }

    /// Forgets the credit of a level that no longer exists.
    pub fn forget(&self, scope: &Scope) {
        self.shared_state.forget_credits(scope);
    }

    /// Fails a replica of an extent because its file was found damaged. If it was the only replica, all
    /// requests on the extent fail. The fault appears in [`DataPlane::alarms`]. A second call changes
    /// nothing.
    pub fn fail_replica(&self, volume: VolumeId, replica: (ExtentIndex, usize), message: String) {
        // A volume that is not open has no replica in service.
        let _ = self.send(volume, VolumeCommand::FailReplica { replica, message });
    }

    /// Invalidates a volume's write journal on a drive, because its log no longer exists: the replicas
    /// behind it fail for good. Does nothing if there is no journal, or if it has failed already.
    pub fn give_up_journal(&self, volume: VolumeId, drive: DriveId) {
        // A volume that is not open has no journal in service.
        let _ = self.send(volume, VolumeCommand::GiveUpJournal { drive });
    }

    /// Hands a client to the volume's reactor. If the volume no longer exists, the client is dropped.
    pub fn serve(&self, volume: VolumeId, client: NewClient) {
        if let Ok(reactor) = self.reactor_of(volume) {
            self.reactors[reactor].send(Command::Serve { volume, client: Box::new(client) });
        }
    }

    /// The current faults.
    pub fn alarms(&self) -> Vec<Alarm> {
        self.alarms.current()
    }

    /// Answers all received requests, then ends all connections and the threads.
    pub fn shutdown(&self) {
        for reactor in &self.reactors {
            reactor.send(Command::Stop);
        }
        for reactor in &self.reactors {
            if let Some(thread) = locked(&reactor.thread).take() {
                // A panic of the thread was reported when it happened.
                let _ = thread.join();
            }
        }
    }
}

fn start_reactor(
    index: usize,
    io_method: IoMethod,
    alarms: Alarms,
    shared_state: &Arc<SharedState>,
) -> Result<ReactorHandle, EngineError> {
    let start_error = |source| EngineError::Start { index, source };
    let (commands, inbox) = channel();
    let (ready, is_ready) = sync_channel(1);
    let surroundings =
        Surroundings { index, commands: inbox, shared_state: Arc::clone(shared_state), alarms };
    let work = move || match set_up(surroundings, io_method) {
        Ok(reactor) => {
            // The caller that starts the reactor waits for this.
            let _ = ready.send(Ok(reactor.io.ring.waker()));
            drop(ready);
            // A reactor that panicked would leave its volumes dead under a daemon that looks alive. A
            // restart loses nothing that was promised.
            if std::panic::catch_unwind(AssertUnwindSafe(|| reactor.run())).is_err() {
                std::process::abort();
            }
        }
        Err(error) => {
            let _ = ready.send(Err(error));
        }
    };
    let thread = std::thread::Builder::new().name(format!("weir-reactor-{index}")).spawn(work);
    let thread = thread.map_err(start_error)?;
    let waker =
        is_ready.recv().unwrap_or_else(|_| Err(io::Error::other("the thread ended"))).map_err(start_error)?;
    shared_state.introduce(index, waker.clone());
    Ok(ReactorHandle { commands, waker, thread: Mutex::new(Some(thread)) })
}

/// Creates a reactor on the thread that will run it.
fn set_up(surroundings: Surroundings, method: IoMethod) -> io::Result<Reactor> {
    weir_reactor::clock::sharpen_timers();
    let pool = BufferPool::new(BUFFER_POOL_BYTES)?;
    let ring =
        Ring::new(RingConfig { method, ..RingConfig::default() }, pool.clone()).map_err(io::Error::other)?;
    let helper = Helper::start(surroundings.index, ring.waker())?;
    Ok(Reactor::new(ring, pool, helper, surroundings))
}
