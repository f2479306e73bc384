//! Served volume: a volume on its reactor, with the pure state of its replicas, its open files and its
//! operations.

mod checksum_headers;
mod resync;
mod scrubbing;

use weir_engine_interface::{OpenVolume, VolumeSpec};
use weir_types::{BackgroundPolicy, DriveId, VolumeId};
use weir_volume::mirror::stall::STALL_NS;
use weir_volume::mirror::{Agenda, Effect, MirrorId};
use weir_volume::{Mirror, OperationId};

use crate::checksums::{self, VolumeChecksums};
use crate::disk::Disk;
use crate::emulation::Emulated;
use crate::io::Io;
use crate::journals::VolumeJournals;
use crate::life::{NewSize, VolumeLife};
use crate::operations::{Operations, Owner};
use crate::replica_metadata::{self, VolumeMetadata};
use crate::replicas::ReplicaWaiter;
use crate::resync::Resync;
use crate::scrubbing::Scrubbing;
use crate::snapshot::{self, VolumeSnapshot};
use crate::token::VolumeIndex;
use crate::volume_files::VolumeFiles;

/// What background work of a volume uses that is not the volume's.
pub(super) struct BackgroundDesk<'a> {
    pub io: &'a mut Io,
    /// The policy of the kind of work.
    pub policy: BackgroundPolicy,
}

/// A volume on a reactor.
pub(super) struct ServedVolume {
    pub id: VolumeId,
    pub mirror: Mirror,
    /// Its status and statistics, as they are published.
    pub open: OpenVolume,
    /// Where the volume is, and its open files.
    pub files: VolumeFiles,
    /// What is under way.
    pub operations: Operations,
    /// Replica metadata and epoch records being written.
    pub metadata: VolumeMetadata,
    /// Requests on checksum files under way.
    pub checksums: VolumeChecksums,
    /// Effects that were not begun to be carried out.
    pub effects: Vec<Effect>,
    /// Whether effects are being carried out.
    pub agenda: Agenda,
    /// Orders that wait until the volume is quiet.
    pub life: VolumeLife,
    pub size_bytes: u64,
    /// Why the next replica to fail fails.
    pub fault_message: Option<String>,
    /// The volume's write journals.
    pub journals: VolumeJournals,
    /// The emulated drives of the volume.
    pub emulated: Emulated,
    /// Resync of the volume's replicas.
    pub resync: Resync,
    /// The snapshot in progress, if there is one.
    pub snapshot: VolumeSnapshot,
    /// The scrub that runs, or waits for others.
    pub scrubbing: Option<Scrubbing>,
    /// Changes of replicas that are not durably known yet: control asks for few at a time.
    pub replica_waiters: Vec<ReplicaWaiter>,
}

impl ServedVolume {
    pub fn new(index: VolumeIndex, spec: VolumeSpec, open: OpenVolume) -> ServedVolume {
        let mirror = match spec.recovered_extents.is_empty() {
            true => Mirror::single(spec.size_bytes),
            false => Mirror::new(spec.size_bytes, spec.layout.replicas.len(), spec.recovered_extents),
        };
        let journals = VolumeJournals::new(index, spec.id, open.clone());
        let mut volume = ServedVolume {
            id: spec.id,
            resync: Resync::new(&mirror),
            mirror,
            scrubbing: None,
            open,
            files: VolumeFiles::default(),
            operations: Operations::default(),
            metadata: VolumeMetadata::new(index, spec.epoch_records),
            checksums: VolumeChecksums::new(index, spec.id),
            effects: Vec::new(),
            agenda: Agenda::default(),
            life: VolumeLife::new(spec.is_read_only),
            size_bytes: spec.size_bytes,
            fault_message: None,
            journals,
            emulated: Emulated::new(spec.id),
            snapshot: VolumeSnapshot::new(index, spec.id),
            replica_waiters: Vec::new(),
        };
        volume.set_layout(spec.layout.replicas);
        volume.take_checksum_headers(spec.headers);
        volume
    }

    /// Takes over the layout of the replicas.
    fn set_layout(&mut self, replicas: Vec<Vec<u8>>) {
        self.files.set_layout(replicas);
        self.operations.set_slots(self.files.slots());
    }

    /// Sets the home of an extent replica.
    pub fn set_home(&mut self, extent: u32, slot: usize, home: u8) {
        self.files.set_home((extent, slot), home, self.mirror.extents());
        self.operations.set_slots(self.files.slots());
    }

    /// Ends a mirror operation and takes its state. For a read, `source` is the replica's operation that
    /// has the data.
    pub fn take_owner(&mut self, id: MirrorId, source: Option<(usize, OperationId)>) -> Owner {
        let owner = self.operations.take_owner(id, source);
        self.mirror.forget(id);
        owner
    }

    /// Replicas of extents that owe an answer for too long.
    pub fn stalled(&self, now_ns: u64) -> Vec<(usize, u32)> {
        let before_ns = now_ns.saturating_sub(STALL_NS);
        let silent: Vec<bool> =
            self.files.homes.iter().map(|home| home.queue.shared().is_silent_since(before_ns)).collect();
        self.operations.stalled(now_ns, |home| silent[home])
    }

    /// Makes reads use the fastest replicas.
    pub fn set_read_costs(&mut self) {
        if !self.mirror.has_replicas() {
            return;
        }
        (0..self.mirror.extents()).for_each(|extent| self.set_read_costs_of(extent));
    }

    /// Takes over the costs of reads on the volume's drives.
    pub fn take_read_costs(&mut self, read_costs: &[(DriveId, u32)]) {
        for (drive, cost) in read_costs {
            let home = self.files.homes.iter_mut().find(|home| home.drive == *drive);
            home.into_iter().for_each(|home| home.read_cost = *cost);
        }
        self.set_read_costs();
    }

    /// Makes reads of an extent use its fastest replicas.
    pub fn set_read_costs_of(&mut self, extent: u32) {
        for slot in 0..self.files.slots() {
            let home = self.files.home_of(slot, extent).and_then(|home| self.files.homes.get(home));
            let cost = home.map_or(u32::MAX, |home| home.read_cost);
            self.mirror.set_read_cost(extent, slot, cost);
        }
    }

    /// The home whose drive queue an extent replica uses: its journal's home if it is behind a journal.
    pub fn line_of(&self, slot: usize, extent: u32) -> Option<usize> {
        self.journals.home_of(extent, slot).or_else(|| self.files.home_of(slot, extent))
    }

    /// The extent replicas on a home, or behind a journal on it, as pairs of slot and extent.
    pub fn replicas_relying_on(&self, home: usize) -> Vec<(usize, u32)> {
        let all = (0..self.files.slots())
            .flat_map(|slot| (0..self.mirror.extents()).map(move |extent| (slot, extent)));
        all.filter(|(slot, extent)| self.homes_of(*slot, *extent).any(|other| other == home)).collect()
    }

    /// The homes of an extent replica and of its journal.
    fn homes_of(&self, slot: usize, extent: u32) -> impl Iterator<Item = usize> {
        self.files.home_of(slot, extent).into_iter().chain(self.journals.home_of(extent, slot))
    }

    /// True if the drive of an extent replica, or of its journal, is away.
    pub fn is_away(&self, slot: usize, extent: u32) -> bool {
        self.homes_of(slot, extent).any(|home| self.files.homes[home].is_away)
    }

    /// The work on the volume's files.
    pub fn disk<'a>(&'a mut self, io: &'a mut Io) -> Disk<'a> {
        Disk {
            io,
            files: &mut self.files,
            operations: &mut self.operations,
            journals: &mut self.journals,
            mirror: &mut self.mirror,
            effects: &mut self.effects,
            fault_message: &mut self.fault_message,
        }
    }

    /// The checksums of the volume, and what they may use.
    pub fn checksums<'a>(&'a mut self, io: &'a mut Io) -> (&'a mut VolumeChecksums, checksums::Desk<'a>) {
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
    pub fn snapshot<'a>(&'a mut self, io: &'a mut Io) -> (&'a mut VolumeSnapshot, snapshot::Desk<'a>) {
        let desk = snapshot::Desk {
            io,
            files: &self.files,
            journals: &self.journals,
            operations: &mut self.operations,
            mirror: &mut self.mirror,
            effects: &mut self.effects,
        };
        (&mut self.snapshot, desk)
    }

    /// The metadata of the volume's replicas, and what it may use.
    pub fn metadata<'a>(
        &'a mut self,
        io: &'a mut Io,
    ) -> (&'a mut VolumeMetadata, replica_metadata::Desk<'a>) {
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

    /// Takes over a new size. Files beyond the end are closed.
    pub fn set_size(&mut self, resizing: NewSize) {
        let NewSize { size_bytes, replicas, recovered_extents, .. } = resizing;
        self.invalidate_checksum_tail(size_bytes);
        self.size_bytes = size_bytes;
        self.set_layout(replicas);
        self.mirror.resize(size_bytes, recovered_extents);
        self.metadata.truncate(self.mirror.extents());
        self.files.truncate(self.mirror.extents());
        self.resync.queue.look_at_all(&self.mirror);
        self.publish_all_checksums();
    }

    /// The next effects to carry out, unless that has begun already.
    pub fn begin_effects(&mut self) -> Option<Vec<Effect>> {
        self.agenda.begin(&mut self.effects)
    }

    /// True if nothing is under way, except for clients.
    pub fn is_quiet(&self) -> bool {
        self.operations.is_quiet() && self.mirror.operations() == 0
    }

    /// True if an order waits for this volume to become quiet.
    pub fn is_ending(&self) -> bool {
        self.life.is_ending()
    }
}
