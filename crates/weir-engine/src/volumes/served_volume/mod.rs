//! Served volume: a volume on its reactor, with the pure state of its replicas and the parts that carry out
//! what the mirror decides.
//!
//! Each part has its own fields and knows none of the others. This type takes the effects of the mirror and
//! gives each to its part ([`effects`]); the other modules below it do what one part needs of the others. What
//! concerns clients is answered as a [`VolumeEffect`]. It knows neither clients nor other volumes.

mod changes;
mod checksum_files;
mod commands;
mod effects;
mod failures;
mod flush_window;
mod metadata;
mod snapshots;
mod stalls;
mod upkeep;

use weir_engine_interface::{OpenVolume, VolumeSpec};
use weir_types::{BackgroundKind, VolumeId};
use weir_volume::Mirror;
use weir_volume::mirror::{Agenda, Effect};

use flush_window::FlushWindow;

use crate::emulation::Emulated;
use crate::io::Io;
use crate::token::VolumeIndex;
use crate::volumes::checksums::{self, VolumeChecksums};
use crate::volumes::failure_reasons::FailureReasons;
use crate::volumes::journals::VolumeJournals;
use crate::volumes::lifecycle::VolumeLife;
use crate::volumes::operations::Operations;
use crate::volumes::replica_io::Disk;
use crate::volumes::replica_metadata::{self, VolumeMetadata};
use crate::volumes::replicas::ReplicaWaiters;
use crate::volumes::resync::{self, VolumeResync};
use crate::volumes::scrubbing::{self, VolumeScrub};
use crate::volumes::snapshot::{self, VolumeSnapshot};
use crate::volumes::volume_desk::Desk;
use crate::volumes::volume_files::VolumeFiles;
pub use effects::VolumeEffect;

/// A volume on a reactor.
pub struct ServedVolume {
    index: VolumeIndex,
    pub id: VolumeId,
    pub mirror: Mirror,
    /// Where its status and statistics are published.
    open: OpenVolume,
    /// Where the volume is, and its open files.
    pub files: VolumeFiles,
    /// What is under way.
    pub operations: Operations,
    /// Replica metadata and epoch records being written.
    metadata: VolumeMetadata,
    /// Requests on checksum files under way.
    checksums: VolumeChecksums,
    /// Effects that were not begun to be carried out.
    pub effects: Vec<Effect>,
    /// Whether effects are being carried out.
    pub agenda: Agenda,
    /// Commands that wait until the volume is quiet.
    pub life: VolumeLife,
    pub size_bytes: u64,
    /// How long its flushes may be owed.
    pub flush_window: FlushWindow,
    /// Why replicas fail whose failure is not carried out yet.
    reasons: FailureReasons,
    /// The volume's write journals.
    pub journals: VolumeJournals,
    /// The emulated drives of the volume.
    pub emulated: Emulated,
    /// Resync of the volume's replicas.
    resync: VolumeResync,
    /// The snapshot in progress, if there is one.
    pub snapshot: VolumeSnapshot,
    /// The scrub that runs, or waits for others.
    scrub: VolumeScrub,
    /// Changes of replicas that are not durable yet.
    waiters: ReplicaWaiters,
}

impl ServedVolume {
    pub fn new(index: VolumeIndex, spec: VolumeSpec, open: OpenVolume) -> ServedVolume {
        let mut mirror = match spec.recovered_extents.is_empty() {
            true => Mirror::single(spec.size_bytes),
            false => Mirror::new(spec.size_bytes, spec.layout.replicas.len(), spec.recovered_extents),
        };
        for (extent, slot, header) in spec.headers {
            mirror.set_checksum_header(extent, slot, header);
        }
        open.publish_all_checksums(&mirror);
        let mut volume = ServedVolume {
            index,
            id: spec.id,
            resync: VolumeResync::new(index, &mirror),
            mirror,
            journals: VolumeJournals::new(index, spec.id, open.clone()),
            open,
            files: VolumeFiles::default(),
            operations: Operations::default(),
            metadata: VolumeMetadata::new(index, spec.epoch_records),
            checksums: VolumeChecksums::new(index, spec.id),
            effects: Vec::new(),
            agenda: Agenda::default(),
            life: VolumeLife::new(spec.is_read_only),
            size_bytes: spec.size_bytes,
            flush_window: FlushWindow::default(),
            reasons: FailureReasons::default(),
            emulated: Emulated::new(spec.id),
            snapshot: VolumeSnapshot::new(index, spec.id),
            scrub: VolumeScrub::new(index, spec.id),
            waiters: ReplicaWaiters::default(),
        };
        volume.set_layout(spec.layout.replicas);
        volume
    }

    /// Takes over the layout of the replicas.
    fn set_layout(&mut self, replicas: Vec<Vec<u8>>) {
        self.files.set_layout(replicas);
        self.operations.set_slots(self.files.slots());
    }

    /// The work on the volume's files.
    pub fn disk<'a>(&'a mut self, desk: &'a mut Desk<'_>) -> Disk<'a> {
        Disk {
            volume: self.index,
            id: self.id,
            desk: desk.lend(),
            files: &mut self.files,
            operations: &mut self.operations,
            journals: &mut self.journals,
            emulated: &mut self.emulated,
            mirror: &mut self.mirror,
            effects: &mut self.effects,
            reasons: &mut self.reasons,
            reason: None,
        }
    }

    /// The checksums of the volume, and what they may use.
    fn checksums<'a>(&'a mut self, io: &'a mut Io) -> (&'a mut VolumeChecksums, checksums::Desk<'a>) {
        let desk = checksums::Desk {
            io,
            files: &self.files,
            emulated: &mut self.emulated,
            operations: &mut self.operations,
            mirror: &self.mirror,
        };
        (&mut self.checksums, desk)
    }

    /// The snapshot of the volume, and what it may use.
    fn snapshot<'a>(&'a mut self, io: &'a mut Io) -> (&'a mut VolumeSnapshot, snapshot::Desk<'a>) {
        let desk = snapshot::Desk {
            io,
            files: &self.files,
            journals: &mut self.journals,
            operations: &mut self.operations,
            mirror: &mut self.mirror,
            effects: &mut self.effects,
        };
        (&mut self.snapshot, desk)
    }

    /// The metadata of the volume's replicas, and what it may use.
    fn metadata<'a>(&'a mut self, io: &'a mut Io) -> (&'a mut VolumeMetadata, replica_metadata::Desk<'a>) {
        let desk = replica_metadata::Desk {
            io,
            files: &self.files,
            journals: &self.journals,
            emulated: &mut self.emulated,
            operations: &mut self.operations,
            mirror: &self.mirror,
        };
        (&mut self.metadata, desk)
    }

    /// The resync of the volume's replicas, and what it may use.
    pub fn resync<'a>(&'a mut self, desk: &'a mut Desk<'_>) -> (&'a mut VolumeResync, resync::Desk<'a>) {
        let desk = resync::Desk {
            is_ending: self.is_ending(),
            io: desk.io,
            policy: desk.schedules.policies.of(BackgroundKind::Resync),
            schedule: &mut desk.schedules.resyncs,
            files: &self.files,
            operations: &mut self.operations,
            statistics: &self.open.statistics,
            mirror: &mut self.mirror,
            effects: &mut self.effects,
        };
        (&mut self.resync, desk)
    }

    /// The scrub of the volume, and what it may use.
    pub fn scrub<'a>(&'a mut self, desk: &'a mut Desk<'_>) -> (&'a mut VolumeScrub, scrubbing::Desk<'a>) {
        let desk = scrubbing::Desk {
            is_ending: self.is_ending(),
            io: desk.io,
            policy: desk.schedules.policies.of(BackgroundKind::Scrub),
            scrubs: &mut desk.schedules.scrubs,
            files: &self.files,
            operations: &mut self.operations,
            open: &self.open,
            mirror: &mut self.mirror,
            effects: &mut self.effects,
        };
        (&mut self.scrub, desk)
    }

    /// The next effects to carry out, unless that has begun already.
    pub fn begin_effects(&mut self) -> Option<Vec<Effect>> {
        self.agenda.begin(&mut self.effects)
    }

    /// True if nothing is under way, except for clients.
    fn is_quiet(&self) -> bool {
        self.operations.is_quiet() && self.mirror.operations() == 0 && !self.mirror.is_paying_flushes()
    }

    /// True if a command waits for this volume to become quiet.
    pub fn is_ending(&self) -> bool {
        self.life.is_ending()
    }
}
