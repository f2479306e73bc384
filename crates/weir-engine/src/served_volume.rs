//! Served volume: a volume on its reactor, with the pure state of its replicas, its open files and its
//! operations.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use weir_qos::Cost;
use weir_reactor::{Buffer, BufferPool, Descriptor, Payload, Target};
use weir_types::{DriveId, VolumeId};
use weir_volume::geometry::Part;
use weir_volume::mirror::stall::{STALL_NS, Waiting};
use weir_volume::mirror::{Agenda, Effect, MetadataFault, MetadataWrites, MirrorId, RecoveredExtent};
use weir_volume::zeroing::Filesystem;
use weir_volume::{Generation, Mirror, OperationId};

use super::drive_queue::{HomeQueue, SharedDriveQueue};
use super::emulation::{Emulated, SharedEmulation};
use super::helper::MetadataError;
use super::journals::VolumeJournals;
use super::memory::{Memory, fresh};
use super::open_file::FileIdentity;
use super::operation_time::OperationTime;
use super::replicas::ReplicaWaiter;
use super::resync::Resync;
use super::scrubbing::Scrubbing;
use super::snapshot::VolumeSnapshot;
use super::space::IsCounted;
use super::space_count::TakenSpace;
use super::stalls::{OrphanedIo, OrphanedIos};
use super::token::{AskNumber, Ticket, VolumeIndex};
use super::{NO_HOME, VolumeSpec, home_beyond_list};
use crate::statistics::VolumeStatistics;

/// Purpose of a mirror operation, which spans all replicas.
#[derive(Clone, Copy, Debug)]
pub(super) enum Purpose {
    /// The operation serves a part of a client's request.
    Client(Ticket),
    /// The operation resyncs an extent replica.
    Resync { extent: u32, slot: usize },
    /// The operation examines a piece of an extent.
    Scrubbing { extent: u32 },
}

/// A mirror operation.
pub(super) struct Owner {
    pub purpose: Purpose,
    /// The part of the request that the operation serves.
    pub part: Part,
    /// The operation's memory, unless a replica's operation has it.
    pub memory: Option<Memory>,
    /// Size of the memory in bytes.
    memory_bytes: usize,
    /// Range of the payload with its checksum, once a replica needed it.
    checksum: Option<(Range<usize>, u32)>,
    /// Time of the slowest of its replicas' operations.
    pub spent: OperationTime,
}

impl Owner {
    pub fn new(purpose: Purpose, part: Part, memory: Option<Memory>) -> Owner {
        let memory_bytes = memory.as_ref().map_or(0, Memory::capacity);
        Owner { purpose, part, memory, memory_bytes, checksum: None, spent: OperationTime::default() }
    }

    /// Takes over the results of a replica's operation that has ended.
    fn gather(&mut self, context: &mut Context) {
        if context.spent.total_ns() >= self.spent.total_ns() {
            self.spent = context.spent;
        }
        // A private duplicate, which a replica had to change, is not the requested memory.
        if self.memory.is_none() {
            self.memory = context.memory.take();
        }
    }

    /// True if the payload is for one replica alone, and is not shared by all.
    fn is_for_one(&self, has_others: bool) -> bool {
        !has_others || !matches!(self.purpose, Purpose::Client(_))
    }

    /// A shared payload for the write of one of several replicas.
    fn share_payload(&mut self) -> Option<Payload> {
        let (one, other) = self.memory.take()?.into_filled().share();
        self.memory = Some(one.into());
        Some(other)
    }
}

/// An operation on one replica.
pub(super) struct Context {
    /// Unique number, unlike the operation's index, which is reused.
    pub number: AskNumber,
    pub owner: MirrorId,
    pub extent: u32,
    /// When the drive was asked for the current action, in nanoseconds; 0 before.
    pub asked_ns: u64,
    /// The home whose drive queue the operation uses.
    pub home: usize,
    /// The operation's own memory, while the kernel does not have it.
    pub memory: Option<Memory>,
    /// Cost in the drive queue, once the operation arrived there.
    pub cost: Option<Cost>,
    /// Counted space that the operation takes.
    pub space: Option<TakenSpace>,
    /// When the operation arrived at the drive, or in the drive queue, in nanoseconds.
    pub at_drive_since_ns: u64,
    pub spent: OperationTime,
}

impl Context {
    /// Records that the drive is asked for the operation, which may take counted space.
    pub fn ask(&mut self, asked_ns: u64, space: Option<TakenSpace>) -> AskNumber {
        self.asked_ns = asked_ns;
        // Space that an earlier, finished part took stays counted until the whole operation ends.
        if space.is_some() {
            self.space = space;
        }
        self.number
    }
}

/// A drive that holds extents of a volume, with the state that volumes share on that drive.
pub(super) struct NewHome {
    pub drive: DriveId,
    pub directory: PathBuf,
    pub read_cost: u32,
    pub is_counted: Arc<IsCounted>,
    /// The drive's model, if the drive is emulated.
    pub emulated: Option<SharedEmulation>,
    pub drive_queue: SharedDriveQueue,
}

/// New size and layout of a volume.
pub(super) struct NewSize {
    pub size_bytes: u64,
    /// The present homes in their order, followed by new homes.
    pub homes: Vec<NewHome>,
    pub replicas: Vec<Vec<u8>>,
    /// Recovered state of the new extents.
    pub recovered_extents: Vec<RecoveredExtent>,
    /// The new extent replicas that are behind a journal, with the drive of the journal.
    pub bindings: Vec<((u32, usize), DriveId)>,
}

/// A drive that holds extents of a volume.
pub(super) struct Home {
    pub drive: DriveId,
    /// The folder with the volume's extent files.
    pub directory: PathBuf,
    /// Cost of a read, relative to the other homes.
    pub read_cost: u32,
    /// The drive is away, so nothing is asked of it except syncs.
    pub is_away: bool,
    /// Whether space taken on this drive is counted.
    pub is_counted: Arc<IsCounted>,
    /// Capabilities of the filesystem, as far as they are known.
    pub filesystem: Filesystem,
    /// The volume's place in the drive queue.
    pub queue: HomeQueue,
}

/// A request to a file that belongs to no operation.
struct Asked {
    extent: u32,
    generation: Generation,
    since_ns: u64,
    /// Counted space that the request takes.
    space: Option<TakenSpace>,
}

/// State of one replica of the volume.
#[derive(Default)]
struct ReplicaSlot {
    /// Index of the home, by extent.
    homes: Vec<u8>,
    files: Vec<Option<Descriptor>>,
    /// Identities of the open files, by extent.
    identities: BTreeMap<u32, FileIdentity>,
    contexts: Vec<Option<Context>>,
    /// Requests to open, allocate in or sync a file, by number.
    asked: BTreeMap<AskNumber, Asked>,
}

/// A volume on a reactor.
pub(super) struct ServedVolume {
    pub id: VolumeId,
    pub mirror: Mirror,
    pub statistics: Arc<VolumeStatistics>,
    /// The drives that hold extents of the volume.
    pub homes: Vec<Home>,
    /// The file with the volume's epoch records.
    pub epoch_records: PathBuf,
    /// Replica metadata being written.
    pub metadata: MetadataWrites,
    /// Extents with an alarm that their replica metadata cannot be written.
    pub metadata_alarms: BTreeSet<u32>,
    /// Extents with an alarm that their checksums can be neither written nor removed.
    pub checksum_alarms: BTreeSet<u32>,
    /// Effects that were not begun to be carried out.
    pub effects: Vec<Effect>,
    /// Whether effects are being carried out.
    pub agenda: Agenda,
    /// Flushes under way by number; `None` marks a free number.
    flushes: Vec<Option<Ticket>>,
    /// Number of operations of the ring and the helper that have not returned.
    pub outstanding: usize,
    /// The caller that closes the volume; it is answered once the volume is quiet.
    pub closing: Option<SyncSender<()>>,
    /// A new size and its caller. A shrink is deferred until the volume is quiet.
    pub resizing_to: Option<(NewSize, SyncSender<()>)>,
    /// The journals are forgetting the data that the volume loses.
    pub is_cutting: bool,
    pub size_bytes: u64,
    /// Clients may only read.
    pub is_read_only: bool,
    /// The caller that makes the volume read-only; it is answered once no write is under way.
    pub becoming_read_only: Option<SyncSender<()>>,
    /// Why the next replica to fail fails.
    pub fault_message: Option<String>,
    /// The volume's write journals.
    pub journals: VolumeJournals,
    /// The emulated drives of the volume.
    pub emulated: Emulated,
    /// Resync of the volume's replicas.
    pub resync: Resync,
    /// The snapshot in progress.
    pub snapshot: Option<VolumeSnapshot>,
    /// The scrub that runs, or waits for others.
    pub scrubbing: Option<Scrubbing>,
    /// Orphaned I/O that has not returned.
    pub orphans: OrphanedIos,
    last_number: u64,
    /// Number of times that a replica's file was given up or replaced. Findings about the file from before
    /// are invalid.
    pub renewals: u64,
    /// Changes of replicas that are not durably known yet: control asks for few at a time.
    pub replica_waiters: Vec<ReplicaWaiter>,
    replicas: Vec<ReplicaSlot>,
    owners: Vec<Option<Owner>>,
}

impl ServedVolume {
    pub fn new(index: VolumeIndex, spec: VolumeSpec, statistics: Arc<VolumeStatistics>) -> ServedVolume {
        let mirror = match spec.recovered_extents.is_empty() {
            true => Mirror::single(spec.size_bytes),
            false => Mirror::new(spec.size_bytes, spec.layout.replicas.len(), spec.recovered_extents),
        };
        let journals = VolumeJournals::new(index, spec.id, Arc::clone(&statistics));
        let mut volume = ServedVolume {
            id: spec.id,
            resync: Resync::new(&mirror),
            mirror,
            scrubbing: None,
            statistics,
            homes: Vec::new(),
            epoch_records: spec.epoch_records,
            metadata: MetadataWrites::default(),
            metadata_alarms: BTreeSet::new(),
            checksum_alarms: BTreeSet::new(),
            effects: Vec::new(),
            agenda: Agenda::default(),
            flushes: Vec::new(),
            outstanding: 0,
            closing: None,
            resizing_to: None,
            is_cutting: false,
            size_bytes: spec.size_bytes,
            is_read_only: spec.is_read_only,
            becoming_read_only: None,
            fault_message: None,
            journals,
            emulated: Emulated::new(spec.id),
            snapshot: None,
            orphans: OrphanedIos::default(),
            last_number: 0,
            renewals: 0,
            replica_waiters: Vec::new(),
            replicas: Vec::new(),
            owners: Vec::new(),
        };
        volume.set_layout(spec.layout.replicas);
        volume.take_checksum_headers(spec.headers);
        volume
    }

    /// Takes over the layout of the replicas.
    pub fn set_layout(&mut self, replicas: Vec<Vec<u8>>) {
        self.replicas.resize_with(replicas.len().max(self.replicas.len()), ReplicaSlot::default);
        for (replica, homes) in self.replicas.iter_mut().zip(replicas) {
            replica.homes = homes;
        }
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
            let home = self.homes.iter_mut().find(|home| home.drive == *drive);
            home.into_iter().for_each(|home| home.read_cost = *cost);
        }
        self.set_read_costs();
    }

    /// Makes reads of an extent use its fastest replicas.
    pub fn set_read_costs_of(&mut self, extent: u32) {
        for slot in 0..self.replicas.len() {
            let home = self.home_of(slot, extent).and_then(|home| self.homes.get(home));
            let cost = home.map_or(u32::MAX, |home| home.read_cost);
            self.mirror.set_read_cost(extent, slot, cost);
        }
    }

    /// Sets the home of an extent replica.
    pub fn set_home(&mut self, extent: u32, slot: usize, home: u8) {
        self.replicas.resize_with(self.replicas.len().max(slot + 1), ReplicaSlot::default);
        let count = self.mirror.extents() as usize;
        let replica = &mut self.replicas[slot];
        replica.homes.resize(count.max(replica.homes.len()), home_beyond_list(slot));
        replica.homes[extent as usize] = home;
        self.set_file(slot, extent, None);
    }

    /// The home of an extent replica, if the replica exists.
    pub fn home_of(&self, slot: usize, extent: u32) -> Option<usize> {
        let home = self.replicas.get(slot)?.homes.get(extent as usize).copied();
        let home = home.unwrap_or(home_beyond_list(slot));
        (home != NO_HOME).then_some(home.into())
    }

    /// The home whose drive queue an extent replica uses: its journal's home if it is behind a journal.
    pub fn line_of(&self, slot: usize, extent: u32) -> Option<usize> {
        self.journals.home_of(extent, slot).or_else(|| self.home_of(slot, extent))
    }

    /// Path of an extent replica's file.
    pub fn extent_path(&self, slot: usize, extent: u32) -> PathBuf {
        let home = self.home_of(slot, extent).expect("the mirror knows only replicas that exist");
        self.homes[home].directory.join(format!("{extent:08}"))
    }

    /// The open file of an extent replica in state ready.
    pub fn file(&self, slot: usize, extent: u32) -> Descriptor {
        let file = self.replicas[slot].files.get(extent as usize).and_then(Option::as_ref);
        file.expect("a volume acts only on extents that were opened").clone()
    }

    pub fn set_file(&mut self, slot: usize, extent: u32, file: Option<Descriptor>) {
        if file.is_none() {
            self.renewals += 1;
        }
        let (files, index) = (&mut self.replicas[slot].files, extent as usize);
        if files.len() <= index {
            files.resize(index + 1, None);
        }
        files[index] = file;
        self.replicas[slot].identities.remove(&extent);
    }

    /// Records the identity of an extent replica's open file.
    pub fn set_file_identity(&mut self, slot: usize, extent: u32, identity: FileIdentity) {
        self.replicas[slot].identities.insert(extent, identity);
    }

    /// The identity of an extent replica's open file, if it is open.
    pub fn file_identity(&self, slot: usize, extent: u32) -> Option<FileIdentity> {
        self.replicas.get(slot)?.identities.get(&extent).copied()
    }

    /// The extent replicas on a home, as pairs of slot and extent.
    pub fn replicas_at(&self, home: usize) -> Vec<(usize, u32)> {
        let all = (0..self.replicas.len())
            .flat_map(|slot| (0..self.mirror.extents()).map(move |extent| (slot, extent)));
        all.filter(|(slot, extent)| self.home_of(*slot, *extent) == Some(home)).collect()
    }

    /// The extent replicas on a home, or behind a journal on it, as pairs of slot and extent.
    pub fn replicas_relying_on(&self, home: usize) -> Vec<(usize, u32)> {
        let all = (0..self.replicas.len())
            .flat_map(|slot| (0..self.mirror.extents()).map(move |extent| (slot, extent)));
        all.filter(|(slot, extent)| self.homes_of(*slot, *extent).any(|other| other == home)).collect()
    }

    /// The homes of an extent replica and of its journal.
    fn homes_of(&self, slot: usize, extent: u32) -> impl Iterator<Item = usize> {
        self.home_of(slot, extent).into_iter().chain(self.journals.home_of(extent, slot))
    }

    /// True if the drive of an extent replica, or of its journal, is away.
    pub fn is_away(&self, slot: usize, extent: u32) -> bool {
        self.homes_of(slot, extent).any(|home| self.homes[home].is_away)
    }

    /// Keeps the reason why replica metadata or an epoch record could not be written.
    pub fn metadata_result(&mut self, result: Result<(), MetadataError>) -> Result<(), MetadataFault> {
        result.map_err(|error| {
            self.fault_message = Some(error.message);
            error.fault
        })
    }

    /// Takes over a new size. Files beyond the end are closed.
    pub fn set_size(&mut self, resizing: NewSize) {
        let NewSize { size_bytes, replicas, recovered_extents, .. } = resizing;
        self.invalidate_checksum_tail(size_bytes);
        self.size_bytes = size_bytes;
        self.set_layout(replicas);
        self.mirror.resize(size_bytes, recovered_extents);
        let count = self.mirror.extents() as usize;
        self.metadata.truncate(self.mirror.extents());
        for replica in &mut self.replicas {
            replica.files.truncate(count);
            replica.identities.retain(|extent, _| (*extent as usize) < count);
        }
        self.resync.queue.look_at_all(&self.mirror);
        self.publish_all_checksums();
    }

    /// The next effects to carry out, unless that has begun already.
    pub fn begin_effects(&mut self) -> Option<Vec<Effect>> {
        self.agenda.begin(&mut self.effects)
    }

    pub fn set_owner(&mut self, id: MirrorId, owner: Owner) {
        let index = id.0 as usize;
        if self.owners.len() <= index {
            self.owners.resize_with(index + 1, || None);
        }
        self.owners[index] = Some(owner);
    }

    pub fn owner(&mut self, id: MirrorId) -> &mut Owner {
        self.owners[id.0 as usize].as_mut().expect("an operation has an owner until it is done")
    }

    /// Ends a mirror operation and takes its state. For a read, `source` is the replica's operation that
    /// has the data.
    pub fn take_owner(&mut self, id: MirrorId, source: Option<(usize, OperationId)>) -> Owner {
        if let Some((slot, operation)) = source {
            self.end_operation(slot, operation);
        }
        self.mirror.forget(id);
        self.owners[id.0 as usize].take().expect("an operation is done once")
    }

    /// Creates the context of a replica's operation, if it has none yet.
    pub fn begin_operation(
        &mut self,
        (slot, extent): (usize, u32),
        operation: OperationId,
        owner: MirrorId,
        home: usize,
    ) {
        let number = self.next_number();
        let (contexts, index) = (&mut self.replicas[slot].contexts, operation.0 as usize);
        if contexts.len() <= index {
            contexts.resize_with(index + 1, || None);
        }
        contexts[index].get_or_insert_with(|| Context {
            number,
            owner,
            extent,
            asked_ns: 0,
            home,
            memory: None,
            cost: None,
            space: None,
            at_drive_since_ns: 0,
            spent: OperationTime::default(),
        });
    }

    pub fn next_number(&mut self) -> AskNumber {
        self.last_number += 1;
        AskNumber(self.last_number)
    }

    /// Records a request to open, allocate in or sync the file of an extent replica, with its time and the
    /// space that it takes.
    pub fn ask(
        &mut self,
        slot: usize,
        (extent, generation): (u32, Generation),
        (since_ns, space): (u64, Option<TakenSpace>),
    ) -> AskNumber {
        let number = self.next_number();
        let asked = Asked { extent, generation, since_ns, space };
        self.replicas[slot].asked.insert(number, asked);
        number
    }

    /// A file's request was answered. Answers the file's generation; `None` if the request was given up
    /// before.
    pub fn answered(&mut self, slot: usize, number: AskNumber) -> Option<Generation> {
        self.replicas[slot].asked.remove(&number).map(|asked| asked.generation)
    }

    /// Sets the space that a file's request takes until it is answered.
    pub fn set_space(&mut self, slot: usize, number: AskNumber, space: Option<TakenSpace>) {
        if let Some(asked) = self.replicas[slot].asked.get_mut(&number) {
            asked.space = space;
        }
    }

    /// True if a file's request is neither answered nor given up.
    pub fn is_asked(&self, slot: usize, number: AskNumber) -> bool {
        self.replicas[slot].asked.contains_key(&number)
    }

    /// Gives up all requests to the file of an extent replica that belong to no operation.
    pub fn give_up_asked(&mut self, slot: usize, extent: u32) {
        let given_up = self.replicas[slot].asked.extract_if(.., |_, asked| asked.extent == extent);
        let orphaned = |asked: Asked| OrphanedIo { extent, emulated: None, space: asked.space };
        given_up.for_each(|(number, asked)| self.orphans.add(slot, number, orphaned(asked)));
    }

    /// True if the answer with this number to a replica's operation is still wanted.
    pub fn is_wanted(&self, slot: usize, operation: OperationId, number: AskNumber) -> bool {
        let context = self.replicas[slot].contexts.get(operation.0 as usize).and_then(Option::as_ref);
        context.is_some_and(|context| context.number == number)
    }

    /// Replicas of extents that owe an answer for too long.
    pub fn stalled(&self, now_ns: u64) -> Vec<(usize, u32)> {
        let mut stalled = Vec::new();
        let before_ns = now_ns.saturating_sub(STALL_NS);
        let is_silent = |home: &Home| home.queue.shared().is_silent_since(before_ns);
        let silent: Vec<bool> = self.homes.iter().map(is_silent).collect();
        let waiting = |context: &Context| match context.asked_ns {
            0 => {
                Waiting::Queued { since_ns: context.at_drive_since_ns, is_drive_silent: silent[context.home] }
            }
            asked_ns => Waiting::Asked(asked_ns),
        };
        for (slot, replica) in self.replicas.iter().enumerate() {
            let operations = replica.contexts.iter().flatten();
            let operations = operations.map(|context| (context.extent, waiting(context)));
            let others = replica.asked.values().map(|asked| (asked.extent, Waiting::Asked(asked.since_ns)));
            let late = operations.chain(others).filter(|(_, waiting)| waiting.is_late(now_ns));
            stalled.extend(late.map(|(extent, _)| (slot, extent)));
        }
        stalled.sort_unstable();
        stalled.dedup();
        stalled
    }

    /// Gives up all operations under way on an extent replica. Answers these operations, each of which has
    /// to fail. Their later completions are orphaned I/O.
    pub fn give_up(&mut self, slot: usize, extent: u32, pool: &BufferPool) -> Vec<OperationId> {
        self.give_up_asked(slot, extent);
        let replica = &mut self.replicas[slot];
        let mut operations = Vec::new();
        for (index, context) in (0..).zip(&mut replica.contexts) {
            let Some(context) = context.take_if(|context| context.extent == extent) else { continue };
            operations.push(OperationId(index));
            let emulated = context.cost.map(|cost| (context.home, cost));
            self.orphans.add(slot, context.number, OrphanedIo { extent, emulated, space: context.space });
            let owner = self.owners[context.owner.0 as usize].as_mut();
            let owner = owner.expect("an operation has an owner until it is done");
            // The memory does not come back, so another replica's operation needs new memory.
            let bytes = owner.memory_bytes;
            if owner.memory.is_none() && bytes > 0 {
                owner.memory = Some(fresh(bytes, pool).into());
            }
        }
        operations
    }

    /// A replica's operation has ended, if it ever began; its owner takes over the results.
    pub fn end_operation(&mut self, slot: usize, operation: OperationId) {
        let Some(ended) = self.replicas[slot].contexts.get_mut(operation.0 as usize) else { return };
        let Some(context) = ended else { return };
        let owner = self.owners[context.owner.0 as usize].as_mut();
        owner.expect("an operation has an owner until it is done").gather(context);
        *ended = None;
    }

    pub fn context(&mut self, slot: usize, operation: OperationId) -> &mut Context {
        let context = self.replicas[slot].contexts[operation.0 as usize].as_mut();
        context.expect("an operation has a context until it is done")
    }

    /// The context of a replica's operation, and its owner.
    pub fn context_and_owner(&mut self, slot: usize, operation: OperationId) -> (&mut Context, &mut Owner) {
        let context = self.replicas[slot].contexts[operation.0 as usize].as_mut();
        let context = context.expect("an operation has a context until it is done");
        let owner = self.owners[context.owner.0 as usize].as_mut();
        (context, owner.expect("an operation has an owner until it is done"))
    }

    /// The target of a read, on its way to the kernel. An edge is read over a part of a buffer, which
    /// changes the buffer. With other replicas, the replica therefore gets a private duplicate of it.
    pub fn lend_target(
        &mut self,
        slot: usize,
        operation: OperationId,
        is_edge: bool,
        pool: &BufferPool,
    ) -> Target {
        let is_shared = is_edge && self.replicas.len() > 1;
        let (context, owner) = self.context_and_owner(slot, operation);
        let memory = match (context.memory.take(), is_shared) {
            (Some(memory), _) => Some(memory),
            (None, false) => owner.memory.take(),
            (None, true) => owner.memory.as_ref().map(|memory| duplicate(memory.filled(), pool).into()),
        };
        let target = memory.and_then(|memory| memory.into_target(is_edge));
        target.expect("memory is lent once at a time, and nobody else holds what is read into")
    }

    /// The checksum of a range of an operation's payload. Replicas that share the payload compute it once.
    pub fn checksum_of(&mut self, slot: usize, operation: OperationId, range: &Range<usize>) -> u32 {
        let has_others = self.replicas.len() > 1;
        let (context, owner) = self.context_and_owner(slot, operation);
        let known = owner.checksum.as_ref().filter(|(of, _)| of == range && context.memory.is_none());
        if let Some((_, checksum)) = known {
            return *checksum;
        }
        let memory = context.memory.as_ref().or(owner.memory.as_ref());
        let memory = memory.expect("a write has memory until it is done");
        let checksum = weir_journal::checksum(&memory.filled()[range.clone()]);
        if context.memory.is_none() && !owner.is_for_one(has_others) {
            owner.checksum = Some((range.clone(), checksum));
        }
        checksum
    }

    /// The payload of a write, on its way to the kernel.
    pub fn lend_payload(&mut self, slot: usize, operation: OperationId) -> Payload {
        let has_others = self.replicas.len() > 1;
        let (context, owner) = self.context_and_owner(slot, operation);
        let is_for_one = owner.is_for_one(has_others);
        let payload = match context.memory.take() {
            Some(memory) => Some(memory.into_filled()),
            None if is_for_one => owner.memory.take().map(Memory::into_filled),
            None => owner.share_payload(),
        };
        payload.expect("a write has memory until it is done")
    }

    /// Fills the memory of an operation that has read a hole with zeroes.
    pub fn zero_memory(&mut self, id: MirrorId) {
        let owner = self.owner(id);
        let memory = owner.memory.take().and_then(Memory::into_unfilled);
        let memory = memory.expect("nobody else has the memory of what read a hole");
        owner.memory = Some(memory.zeroed().into());
    }

    /// Adds a flush and answers its number.
    pub fn add_flush(&mut self, ticket: Ticket) -> u32 {
        let free = self.flushes.iter().position(Option::is_none);
        let number = free.unwrap_or(self.flushes.len());
        if number == self.flushes.len() {
            self.flushes.push(None);
        }
        self.flushes[number] = Some(ticket);
        number as u32
    }

    /// A flush has ended. Answers its request.
    pub fn end_flush(&mut self, flush: u32) -> Ticket {
        self.flushes[flush as usize].take().expect("a flush ends once")
    }

    /// True if nothing is under way, except for clients.
    pub fn is_quiet(&self) -> bool {
        self.outstanding == 0 && self.mirror.operations() == 0
    }

    /// True if an order waits for this volume to become quiet.
    pub fn is_ending(&self) -> bool {
        self.closing.is_some() || self.resizing_to.is_some() || self.becoming_read_only.is_some()
    }
}

/// A new buffer with the same content.
fn duplicate(payload: &[u8], pool: &BufferPool) -> Buffer {
    fresh(payload.len(), pool).filled_from(payload)
}
