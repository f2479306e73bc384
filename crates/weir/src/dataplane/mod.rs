//! The data plane: reactor threads that own volumes and serve their connections.
//!
//! This module is the whole of what control may ask of it. Control tells it what should be served and under
//! which limits; it never asks control anything, so a dead control plane stops no I/O.

mod budget;
mod command;
mod connection;
mod disk;
mod helper;
mod pace;
mod patience;
mod reactor;
mod receive;
mod send;
mod serve;
mod served_volume;
mod token;
mod turns;

use std::collections::BTreeMap;
use std::io;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use weir_qos::Ceiling;
use weir_reactor::{BufferPool, Clock, Ring, RingConfig, Waker};
use weir_types::bounds::BUFFER_POOL_BYTES;
use weir_types::{Limits, Name, PolicyGroupId, Terms, VolumeId};

use crate::statistics::VolumeStatistics;
use budget::SharedCeiling;
use command::{Binding, Command};
pub use connection::NewConnection;
use helper::Helper;
use reactor::{Alarms, Reactor};

/// How the data plane is set up.
#[derive(Clone, Debug)]
pub struct DataPlaneConfig {
    /// Reactor threads, one io_uring each; at least 1.
    pub reactors: usize,
}

/// A volume as the data plane needs to know it.
#[derive(Clone, Debug)]
pub struct VolumeSpec {
    /// Its identity.
    pub id: VolumeId,
    /// The folder that holds its extent files.
    pub directory: PathBuf,
    /// Its size in bytes, a multiple of 4096.
    pub size_bytes: u64,
    /// Whether clients are kept from changing its data.
    pub is_read_only: bool,
}

/// Whose terms they are.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// A tenant's: everything that it owns has them together.
    Tenant(Name),
    /// A shared group's: everything in it has them together.
    Group(PolicyGroupId),
    /// One volume's alone.
    Volume(VolumeId),
}

/// One level of the policies under which a volume is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyLevel {
    /// Whose terms they are.
    pub scope: Scope,
    /// The terms.
    pub terms: Terms,
}

/// Why the data plane could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum DataPlaneError {
    /// A reactor could not be started.
    #[error("cannot start reactor {index}: {source}")]
    Start {
        /// Which reactor.
        index: usize,
        /// The cause.
        source: std::io::Error,
    },
    /// The volume is not open here.
    #[error("volume {0} is not open")]
    UnknownVolume(VolumeId),
    /// The reactor's thread has ended.
    #[error("the reactor of volume {0} has stopped")]
    Stopped(VolumeId),
}

/// A fault that an operator must see, with the volume it concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alarm {
    /// The volume.
    pub volume: VolumeId,
    /// The extent within it.
    pub extent: u64,
    /// What is wrong, in words.
    pub message: String,
}

/// Handle on all reactors. Cheap to share; every call may block until the owning reactor has answered.
pub struct DataPlane {
    reactors: Vec<ReactorHandle>,
    /// Which reactor has which volume.
    placements: Mutex<BTreeMap<VolumeId, usize>>,
    /// The ceilings of shared groups that any volume was ever bound to, until their group is forgotten.
    shared: Mutex<BTreeMap<PolicyGroupId, SharedCeiling>>,
    /// The levels of every volume, top down.
    paths: Mutex<BTreeMap<VolumeId, Vec<PolicyLevel>>>,
    alarms: Alarms,
}

/// One reactor thread.
struct ReactorHandle {
    commands: Sender<Command>,
    waker: Waker,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl ReactorHandle {
    /// Gives an order. The queue has no bound of its own: orders come from control, which waits for each
    /// answer, and from handshakes, whose number is bounded.
    fn order(&self, command: Command) -> bool {
        let is_taken = self.commands.send(command).is_ok();
        self.waker.wake();
        is_taken
    }
}

impl DataPlane {
    /// Starts the reactors.
    ///
    /// # Errors
    /// If io_uring is not available; the source names the cause.
    pub fn start(config: DataPlaneConfig) -> Result<Arc<DataPlane>, DataPlaneError> {
        let alarms = Alarms::default();
        let reactors = (0..config.reactors.max(1))
            .map(|index| start_reactor(index, Arc::clone(&alarms)))
            .collect::<Result<Vec<_>, _>>()?;
        let (placements, shared, paths) = Default::default();
        Ok(Arc::new(DataPlane { reactors, placements, shared, paths, alarms }))
    }

    /// Opens a volume: from the answer on, connections can be served. Opening one twice is an error of the caller.
    ///
    /// # Errors
    /// If the reactor has stopped.
    pub fn open(&self, spec: VolumeSpec) -> Result<Arc<VolumeStatistics>, DataPlaneError> {
        let (id, statistics) = (spec.id, Arc::<VolumeStatistics>::default());
        let index = self.place(id);
        let given = Arc::clone(&statistics);
        self.ask(index, id, |done| Command::Open { spec, statistics: given, done })?;
        Ok(statistics)
    }

    /// Chooses the reactor with the fewest volumes.
    fn place(&self, id: VolumeId) -> usize {
        let mut placements = locked(&self.placements);
        let load = |index: usize| placements.values().filter(|&&placed| placed == index).count();
        let index = (0..self.reactors.len()).min_by_key(|&index| load(index)).unwrap_or(0);
        placements.insert(id, index);
        index
    }

    fn reactor_of(&self, volume: VolumeId) -> Result<usize, DataPlaneError> {
        locked(&self.placements).get(&volume).copied().ok_or(DataPlaneError::UnknownVolume(volume))
    }

    /// Gives an order and waits until it holds.
    fn ask(
        &self,
        reactor: usize,
        volume: VolumeId,
        command: impl FnOnce(SyncSender<()>) -> Command,
    ) -> Result<(), DataPlaneError> {
        let (done, answer) = sync_channel(1);
        self.reactors[reactor].order(command(done));
        answer.recv().map_err(|_| DataPlaneError::Stopped(volume))
    }

    /// Ends all connections of a volume, waits for its I/O to end, and closes its files.
    ///
    /// # Errors
    /// If the volume is not open or the reactor has stopped.
    pub fn close(&self, volume: VolumeId) -> Result<(), DataPlaneError> {
        let reactor = self.reactor_of(volume)?;
        self.ask(reactor, volume, |done| Command::Close { volume, done })?;
        locked(&self.placements).remove(&volume);
        locked(&self.paths).remove(&volume);
        Ok(())
    }

    /// Changes a volume's size. When growing, the new extent files must exist; when shrinking, they must
    /// still exist, and open connections are ended. New connections see the new size.
    ///
    /// # Errors
    /// If the volume is not open or the reactor has stopped.
    pub fn resize(&self, volume: VolumeId, size_bytes: u64) -> Result<(), DataPlaneError> {
        let reactor = self.reactor_of(volume)?;
        self.ask(reactor, volume, |done| Command::Resize { volume, size_bytes, done })
    }

    /// Makes a volume read-only, which ends its open connections, or writable. Holds from the answer on: nothing
    /// is being written then.
    ///
    /// # Errors
    /// If the volume is not open or the reactor has stopped.
    pub fn set_read_only(&self, volume: VolumeId, is_read_only: bool) -> Result<(), DataPlaneError> {
        let reactor = self.reactor_of(volume)?;
        self.ask(reactor, volume, |done| Command::SetReadOnly { volume, is_read_only, done })
    }

    /// Puts a volume under policies: the levels from the top down, the volume's own last. Holds from the answer
    /// on. The budgets of levels that it stands under already go on, with the terms that are given here.
    ///
    /// # Errors
    /// If the volume is not open or the reactor has stopped.
    pub fn bind(&self, volume: VolumeId, path: Vec<PolicyLevel>) -> Result<(), DataPlaneError> {
        let reactor = self.reactor_of(volume)?;
        let binding = path.iter().rfind(|level| !level.terms.limits.is_unlimited()).map(|level| {
            let (group, limits) = (budget_of(&level.scope), level.terms.limits);
            let is_shared = !matches!(level.scope, Scope::Volume(_));
            Binding { group, limits, shared: is_shared.then(|| self.shared_ceiling(group, limits)) }
        });
        locked(&self.paths).insert(volume, path);
        self.ask(reactor, volume, |done| Command::Bind { volume, binding, done })
    }

    fn shared_ceiling(&self, group: PolicyGroupId, limits: Limits) -> SharedCeiling {
        let new = || Arc::new(Mutex::new(Ceiling::new(limits, Clock.now_ns())));
        let shared = Arc::clone(locked(&self.shared).entry(group).or_insert_with(new));
        // The group may have been changed while nobody was bound to it.
        let mut ceiling = budget::lock(&shared);
        if *ceiling.limits() != limits {
            ceiling.change(limits, Clock.now_ns());
        }
        drop(ceiling);
        shared
    }

    /// Changes the terms of one level for all volumes that stand under it. Holds from the answer on.
    ///
    /// # Errors
    /// If a reactor has stopped.
    pub fn change_terms(&self, scope: Scope, terms: Terms) -> Result<(), DataPlaneError> {
        let (group, limits) = (budget_of(&scope), terms.limits);
        if let Some(shared) = locked(&self.shared).get(&group) {
            budget::lock(shared).change(limits, Clock.now_ns());
        }
        for index in 0..self.reactors.len() {
            self.ask(index, VolumeId(group.0), |done| Command::ChangeLimits { group, limits, done })?;
        }
        // The level may have become, or may no longer be, the one that binds.
        let mut below = Vec::new();
        for (volume, path) in locked(&self.paths).iter_mut() {
            if let Some(level) = path.iter_mut().find(|level| level.scope == scope) {
                level.terms = terms;
                below.push((*volume, path.clone()));
            }
        }
        below.into_iter().try_for_each(|(volume, path)| self.bind(volume, path))
    }

    /// Forgets a level that no volume stands under any more.
    pub fn forget(&self, scope: &Scope) {
        locked(&self.shared).remove(&budget_of(scope));
    }

    /// Takes an extent out of service because its file was found damaged: everything on it fails, and the
    /// fault stands in [`DataPlane::alarms`]. Doing so twice changes nothing.
    pub fn retire(&self, volume: VolumeId, extent: u32, message: String) {
        if let Ok(reactor) = self.reactor_of(volume) {
            self.reactors[reactor].order(Command::Retire { volume, extent, message });
        }
    }

    /// Hands a connection whose handshake is done to the volume's reactor. If the volume is gone by now, the
    /// connection is closed.
    pub fn serve(&self, volume: VolumeId, connection: NewConnection) {
        if let Ok(reactor) = self.reactor_of(volume) {
            self.reactors[reactor].order(Command::Serve { volume, connection: Box::new(connection) });
        }
    }

    /// Faults that stand now.
    pub fn alarms(&self) -> Vec<Alarm> {
        locked(&self.alarms).clone()
    }

    /// Ends all connections after the requests that were received are answered, then the threads.
    pub fn shutdown(&self) {
        for reactor in &self.reactors {
            reactor.order(Command::Stop);
        }
        for reactor in &self.reactors {
            if let Some(thread) = locked(&reactor.thread).take() {
                // A panic there was reported when it happened.
                let _ = thread.join();
            }
        }
    }
}

/// The identity of the budget of a level.
fn budget_of(scope: &Scope) -> PolicyGroupId {
    match scope {
        Scope::Group(group) => *group,
        Scope::Volume(volume) => PolicyGroupId(volume.0),
        Scope::Tenant(name) => {
            let mut hasher = std::hash::DefaultHasher::new();
            std::hash::Hash::hash(name, &mut hasher);
            PolicyGroupId(uuid::Uuid::from_u128(u128::from(std::hash::Hasher::finish(&hasher))))
        }
    }
}

/// Locks a map that no panic can leave half changed.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn start_reactor(index: usize, alarms: Alarms) -> Result<ReactorHandle, DataPlaneError> {
    let start_error = |source| DataPlaneError::Start { index, source };
    let (commands, inbox) = channel();
    let (ready, is_ready) = sync_channel(1);
    let work = move || match set_up(index, inbox, alarms) {
        Ok(reactor) => {
            // Whoever starts the reactor waits for this.
            let _ = ready.send(Ok(reactor.ring.waker()));
            drop(ready);
            // A reactor that fell would leave its volumes dead under a daemon that looks alive. Starting anew
            // loses nothing that was promised.
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
    Ok(ReactorHandle { commands, waker, thread: Mutex::new(Some(thread)) })
}

/// Makes a reactor on the thread that will run it.
fn set_up(index: usize, inbox: Receiver<Command>, alarms: Alarms) -> io::Result<Reactor> {
    weir_reactor::clock::sharpen_timers();
    let pool = BufferPool::new(BUFFER_POOL_BYTES)?;
    let ring = Ring::new(RingConfig::default(), pool.clone()).map_err(io::Error::other)?;
    let helper = Helper::start(index, ring.waker())?;
    Ok(Reactor::new(ring, pool, helper, inbox, alarms))
}
