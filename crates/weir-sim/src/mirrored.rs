//! A volume with several replicas in an imagined machine: drives that fail, fill up, go and come back, power cuts at any
//! instant, replicas that are resynced, added and given up meanwhile; scrubs, and blocks that rot.
//!
//! The modules lie in layers. Above are those that choose by chance what happens next (crashes, absences, moves, resizes,
//! scrubs, background work); `settling` lets all of it come to rest; `serving` carries out what the mirror asks for, with
//! `metadata` and `journaling`; below are the drives, the operations in flight and the records, which take no
//! effects. No module calls one of a higher layer.

mod absence;
mod background;
mod checksums;
mod clients;
mod comparing;
mod control;
mod crash;
mod doubting;
mod drive;
mod failures;
mod faults;
mod journal;
mod journaling;
mod metadata;
mod moving;
mod orphans;
mod record;
mod resizing;
mod rotting;
mod scrubbing;
mod serving;
mod settings;
mod settling;
mod snapshots;
mod stalling;
mod swapping;
mod work;

use std::collections::{BTreeMap, BTreeSet};

use weir_types::bounds::{EXTENT_BYTES, PIECE_BYTES, REPLICA_SLOTS_MAX};
use weir_types::random::Random;
use weir_volume::mirror::{
    Agenda, Effect, EpochRecord, MetadataWrites, MirrorId, ReplicaMetadata, ReplicaState, ReplicaStates,
    ResyncQueue, Slots, epoch_record,
};
use weir_volume::{Mirror, OperationId};

use crate::history::History;
use crate::requests::{EXTENTS, FOREIGN};
use crate::{SECTOR_BYTES, Stamp};
use absence::Originals;
use checksums::Scrubs;
use control::Control;
use drive::Drive;
use failures::Failures;
use journal::Journaling;
use record::Record;
pub use settings::{Abilities, Report, Rot, Sabotage, Settings};
use snapshots::VolumeSnapshot;
use swapping::OlderState;
use work::{InFlight, Orphan, Pending};

struct MirrorWorld {
    settings: Settings,
    random: Random,
    now: u64,
    mirror: Mirror,
    drives: Vec<Drive>,
    /// Epoch record of each extent, as last read from the file.
    epoch_record: Vec<EpochRecord>,
    metadata: MetadataWrites,
    /// The file of the epoch records.
    record: Record,
    /// Extents and epochs whose recording as committed failed and is retried.
    record_failed: BTreeSet<(u32, u64)>,
    /// Step up to which power is likely to fail, because of a doubtful answer (see `doubting`).
    doubtful_until: u64,
    /// Replicas in sync, by extent, that must take the metadata in flight.
    relied_on: BTreeMap<u32, Slots>,
    /// Durable replica states of each extent.
    stands: Vec<ReplicaStates>,
    failures: Failures,
    pending: Vec<Pending>,
    /// Effects of the mirror that are not carried out yet, in order, as in the data plane.
    asked: Vec<Effect>,
    agenda: Agenda,
    /// Request or step that each replica operation belongs to, from the first action of the operation to its
    /// end.
    contexts: BTreeMap<(usize, OperationId), MirrorId>,
    /// Orphaned I/O: operations that were given up and that drives may still carry out.
    orphans: Vec<Orphan>,
    /// Operations from before the last start that drives may still carry out, if the start did not wait for
    /// them.
    unfenced: Vec<Orphan>,
    /// Backups of extent replicas, each complete, by slot and extent.
    older: BTreeMap<(usize, u32), OlderState>,
    /// Extent replicas in an older state that the metadata still counts as in sync.
    older_in_sync: BTreeSet<(usize, u32)>,
    /// Files that were open before others were put in their places.
    originals: Originals,
    in_flight: BTreeMap<MirrorId, InFlight>,
    steps: BTreeMap<MirrorId, Vec<Stamp>>,
    buffers: BTreeMap<(usize, OperationId), Vec<Stamp>>,
    /// Drives that were reachable at the start of the volume.
    reachable: [bool; REPLICA_SLOTS_MAX],
    flushes: BTreeMap<u32, u64>,
    snapshot: Option<VolumeSnapshot>,
    journaling: Option<Journaling>,
    control: Control,
    resync: ResyncQueue,
    history: History,
    next_stamp: Stamp,
    scrubs: Scrubs,
    /// True once no more faults are injected.
    is_resting: bool,
    /// True while no new work begins, until the volume is resized.
    is_resizing: bool,
    report: Report,
}

/// Runs one world to its end: all replicas that can be resynced are, and then they are alike.
///
/// # Errors
/// Names the promise that was broken.
pub fn run(settings: Settings) -> Result<Report, String> {
    let mut world = MirrorWorld::new(settings);
    for _ in 0..settings.steps {
        world.step()?;
    }
    world.settle()?;
    world.rot_some()?;
    world.crash()?;
    world.make_up()?;
    if settings.is_moved {
        world.finish_moves()?;
    }
    if settings.scrubs_per_mille > 0 {
        world.scrub_all()?;
    }
    world.compare()?;
    Ok(world.report)
}

/// Sectors of a piece.
const PIECE_SECTORS: usize = PIECE_BYTES as usize / SECTOR_BYTES as usize;

/// Memory fresh from a pool: it holds bytes of another tenant.
fn foreign_piece() -> Vec<Stamp> {
    vec![FOREIGN; PIECE_SECTORS]
}

impl MirrorWorld {
    fn new(settings: Settings) -> MirrorWorld {
        let replica_state =
            |slot| if slot < settings.replicas { ReplicaState::InSync } else { ReplicaState::Absent };
        let metadata =
            ReplicaMetadata::first(epoch_record::first_epoch(&[]), std::array::from_fn(replica_state));
        // The only replica of an extent has no metadata.
        let has_metadata = !settings.is_moved || settings.replicas > 1;
        let drive = |slot: usize| Drive::new(settings, slot, has_metadata.then_some(&metadata));
        let drives: Vec<Drive> = (0..REPLICA_SLOTS_MAX).map(drive).collect();
        let mut record = if has_metadata { Record::new(metadata.epoch) } else { Record::default() };
        let epoch_record = record.found();
        let control = Control::new(settings);
        let begun = control
            .recovered_extents(&drives, &[true; REPLICA_SLOTS_MAX], &epoch_record)
            .expect("all is there");
        let mut world = MirrorWorld {
            settings,
            random: Random::new(settings.seed),
            now: 1,
            mirror: Mirror::new(u64::from(EXTENTS) * EXTENT_BYTES, REPLICA_SLOTS_MAX, begun),
            drives,
            epoch_record,
            metadata: MetadataWrites::default(),
            record,
            record_failed: BTreeSet::new(),
            doubtful_until: 0,
            relied_on: BTreeMap::new(),
            stands: vec![metadata.replica_states; EXTENTS as usize],
            failures: Failures::default(),
            pending: Vec::new(),
            asked: Vec::new(),
            agenda: Agenda::default(),
            contexts: BTreeMap::new(),
            orphans: Vec::new(),
            unfenced: Vec::new(),
            older: BTreeMap::new(),
            older_in_sync: BTreeSet::new(),
            originals: Originals::new(),
            in_flight: BTreeMap::new(),
            steps: BTreeMap::new(),
            buffers: BTreeMap::new(),
            reachable: [true; REPLICA_SLOTS_MAX],
            flushes: BTreeMap::new(),
            snapshot: None,
            journaling: Journaling::new(settings),
            control,
            resync: ResyncQueue::default(),
            history: History::default(),
            next_stamp: 1,
            scrubs: Scrubs::default(),
            is_resting: false,
            is_resizing: false,
            report: Report::default(),
        };
        world.resync = ResyncQueue::new(&world.mirror);
        world.leave_rot_alone();
        world
    }

    /// Takes one random step.
    fn step(&mut self) -> Result<(), String> {
        self.now += 1;
        let Settings { breaks_per_ten_thousand, moves_per_mille, .. } = self.settings;
        if self.is_power_failing() {
            return self.crash();
        }
        if self.random.chance(breaks_per_ten_thousand, 10_000) {
            let slot = self.random.below(REPLICA_SLOTS_MAX as u64) as usize;
            self.drives[slot].is_broken = true;
            self.drives[slot].has_failed = true;
        }
        self.change_metadata_faults();
        self.keep_older_states()?;
        if self.random.chance(1, 40) {
            self.retry_metadata()?;
        }
        if self.random.chance(10 * breaks_per_ten_thousand, 10_000) || self.is_looked_at_again() {
            return self.bring_back();
        }
        if self.random.chance(moves_per_mille, 1000) {
            return self.change_replicas();
        }
        self.carry_out_unfenced();
        self.go_and_return()?;
        self.look_at_journal()?;
        if self.settings.stalls_per_ten_thousand > 0 && self.stall()? || self.resize_sometimes()? {
            return Ok(());
        }
        if self.settings.is_moved && self.random.chance(1, 15) {
            return self.move_replicas();
        }
        let snapshots = self.settings.snapshots_per_mille;
        if snapshots > 0 && self.random.chance(snapshots, 1000) {
            self.quiesce_for_snapshot();
        }
        if self.settings.scrubs_per_mille > 0 && self.random.chance(self.settings.scrubs_per_mille, 1000) {
            return self.scrub_some();
        }
        if self.settings.rot == Rot::Always && self.random.chance(1, 300) {
            self.rot_a_block(self.now as u32 % EXTENTS);
        }
        if self.random.chance(1, self.settings.steps_between_background) {
            return self.work_in_the_background();
        }
        let has_room = self.in_flight.len() + self.flushes.len() < self.settings.depth;
        if has_room && !self.is_journal_left_alone() && self.random.chance(1, 2) {
            return self.send();
        }
        self.answer_one()
    }
}
