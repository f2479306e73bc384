//! The simulated daemon: the production code that serves a replicated volume, and the executor of its effects on the
//! machine.
//!
//! The mirror, the writes of metadata, the agenda, the resync queue and the journal decide, as in the data plane. The
//! modules here carry their effects out in order, hand answers back, and check what clients and operators are shown.
//! The daemon does not know what chance does with the machine and its drives next.

mod checksums;
mod clients;
pub mod coalesced_flushes;
mod control;
mod failures;
mod faults;
mod journaling;
mod metadata;
mod serving;
mod snapshots;
mod steps;

use weir_types::bounds::{EXTENT_BYTES, REPLICA_SLOTS_MAX};
use weir_volume::Mirror;
use weir_volume::mirror::{Agenda, Effect, RecoveredExtent, ReplicaStates, ResyncQueue};

use super::machine::Machine;
use super::settings::{Rot, Settings};
use crate::requests::EXTENTS;
use checksums::SeenChecksums;
use clients::Clients;
use control::Control;
pub(super) use control::{Doing, slot_of};
use failures::Failures;
use metadata::MetadataQueue;
use snapshots::VolumeSnapshot;
pub(super) use steps::StepKind;
use steps::Steps;
use weir_types::ExtentIndex;

/// The daemon, on its machine.
pub(super) struct Daemon {
    pub machine: Machine,
    pub mirror: Mirror,
    pub resync: ResyncQueue,
    /// Effects of the mirror that are not carried out yet, in order, as in the data plane.
    asked: Vec<Effect>,
    agenda: Agenda,
    pub metadata: MetadataQueue,
    /// Durable replica states of each extent.
    pub durable_states: Vec<ReplicaStates>,
    pub clients: Clients,
    pub steps: Steps,
    pub snapshot: Option<VolumeSnapshot>,
    pub control: Control,
    pub failures: Failures,
    /// Computed checksums. Only deliberate mistakes need them.
    seen: SeenChecksums,
}

impl Daemon {
    /// The daemon of a volume that was just created on a new machine.
    pub fn new(settings: Settings) -> Daemon {
        let mut daemon = Daemon {
            mirror: Mirror::new(0, REPLICA_SLOTS_MAX, Vec::new()),
            resync: ResyncQueue::default(),
            asked: Vec::new(),
            agenda: Agenda::default(),
            metadata: MetadataQueue::default(),
            durable_states: Vec::new(),
            clients: Clients::default(),
            steps: Steps::default(),
            snapshot: None,
            control: Control::new(settings),
            failures: Failures::default(),
            seen: SeenChecksums::default(),
            machine: Machine::new(settings),
        };
        let begun = daemon.recovered_extents().expect("all is there");
        daemon.serve(begun);
        daemon
    }

    /// Recovers the extents from the drives that can be reached.
    pub fn recovered_extents(&self) -> Result<Vec<RecoveredExtent>, String> {
        let Machine { drives, reachable, records, .. } = &self.machine;
        self.control.recovered_extents(drives, reachable, records.last_read())
    }

    /// Serves the extents that were recovered.
    pub fn serve(&mut self, begun: Vec<RecoveredExtent>) {
        self.durable_states = begun.iter().map(|extent| extent.metadata.replica_states).collect();
        self.mirror = Mirror::new(u64::from(EXTENTS) * EXTENT_BYTES, REPLICA_SLOTS_MAX, begun);
        self.resync = ResyncQueue::new(&self.mirror);
        // Resyncs read the faulty drive only if no other replica has the data. A replica resynced from corrupt data
        // confirms it, and two equal wrong replicas would outvote the correct one.
        let settings = &self.machine.settings;
        if settings.rot == Rot::Always {
            let slot = settings.replicas - 1;
            ExtentIndex::first(EXTENTS).for_each(|extent| self.mirror.set_read_cost(extent, slot, u32::MAX));
        }
    }

    /// Ends the daemon: all that only its memory held is gone.
    pub fn stop(&mut self) {
        self.asked.clear();
        self.agenda = Agenda::default();
        self.metadata = MetadataQueue::default();
        self.clients.disconnect();
        self.steps = Steps::default();
        self.snapshot = None;
        self.control.restart();
        self.failures.restart();
    }
}
