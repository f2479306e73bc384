//! A volume as its reactor holds it: the pure state of its replicas, the open files, and what each operation belongs to.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::SyncSender;

use weir_qos::{Cost, NodeId};
use weir_reactor::{Buffer, BufferPool, Descriptor, Payload, Target, Unfilled};
use weir_types::bounds::{BLOCK_BYTES, PIECE_BYTES};
use weir_types::{BackgroundKind, DriveId, VolumeId};
use weir_volume::geometry::Part;
use weir_volume::mirror::stall::{STALL_NS, Waiting};
use weir_volume::mirror::{Agenda, Effect, MetadataFault, MetadataWrites, MirrorId};
use weir_volume::zeroing::Filesystem;
use weir_volume::{Generation, Mirror, OperationId};

use super::command::NewSize;
use super::emulation::Emulated;
use super::helper::MetadataError;
use super::journals::VolumeJournals;
use super::memory::Memory;
use super::recording::Tap;
use super::refusals::FileIdentity;
use super::replicas::ReplicaWaiter;
use super::resync::Resync;
use super::scrubbing::Scrubbing;
use super::sharing::{DriveQueueEntry, Shaping};
use super::snapshot::VolumeSnapshot;
use super::space::{IsCounted, TakenSpace};
use super::stalls::{OrphanedIo, OrphanedIos};
use super::token::{AskNumber, ConnectionIndex};
use super::{NO_HOME, VolumeSpec, home_beyond_list, locked};
use crate::statistics::VolumeStatistics;

/// A request of a connection: the connection's index and the request's index there.
pub(super) type Ticket = (ConnectionIndex, usize);

/// Where an operation's time went, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Spent {
    /// In line for the media; and the part of it in which others went first for their floors.
    pub queue_ns: u64,
    pub floors_ns: u64,
    /// At the media.
    pub drive_ns: u64,
}

impl Spent {
    fn total_ns(self) -> u64 {
        self.queue_ns + self.drive_ns
    }
}

/// What an operation of all replicas is for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Purpose {
    /// It serves a part of a client's request.
    Client(Ticket),
    /// It brings a replica of an extent up to date.
    Resync { extent: u32, slot: usize },
    /// It examines a piece of an extent.
    Scrubbing { extent: u32 },
}

/// An operation of all replicas.
pub(super) struct Owner {
    pub purpose: Purpose,
    /// The part of the request that it serves.
    pub part: Part,
    /// Its memory, as far as no operation of a replica has it.
    pub memory: Option<Memory>,
    /// Bytes of that.
    memory_bytes: usize,
    /// The checksum of a part of what all replicas write, once one of them needed it.
    checksum: Option<(Range<usize>, u32)>,
    /// That of its operations which took longest.
    pub spent: Spent,
}

impl Owner {
    pub fn new(purpose: Purpose, part: Part, memory: Option<Memory>) -> Owner {
        let memory_bytes = memory.as_ref().map_or(0, Memory::capacity);
        Owner { purpose, part, memory, memory_bytes, checksum: None, spent: Spent::default() }
    }

    /// Takes note of the end of an operation of a replica.
    fn gather(&mut self, context: &mut Context) {
        if context.spent.total_ns() >= self.spent.total_ns() {
            self.spent = context.spent;
        }
        // What it made for itself, because it had to change it, is not what was asked for.
        if self.memory.is_none() {
            self.memory = context.memory.take();
        }
    }

    /// True if what is written is for one replica alone, and not the same for all.
    fn is_for_one(&self, has_others: bool) -> bool {
        !has_others || !matches!(self.purpose, Purpose::Client(_))
    }

    /// What a write of one of several replicas is made from.
    fn share_payload(&mut self) -> Option<Payload> {
        let (one, other) = self.memory.take()?.into_filled().share();
        self.memory = Some(one.into());
        Some(other)
    }
}

/// An operation of one replica.
pub(super) struct Context {
    /// Tells it from any other that the operation's number named before, or will.
    pub number: AskNumber,
    pub owner: MirrorId,
    pub extent: u32,
    /// When a drive was asked for what it is at; 0 before.
    pub asked_ns: u64,
    /// The home of its replica.
    pub home: usize,
    /// Its memory, while the kernel does not have it.
    pub memory: Option<Memory>,
    /// What it costs the media, once it stood in the queue of them.
    pub cost: Option<Cost>,
    /// What it takes of the space that is counted.
    pub space: Option<TakenSpace>,
    /// When it came to the media, or in the queue of them.
    pub at_drive_since_ns: u64,
    pub spent: Spent,
}

impl Context {
    /// A drive is asked for it, which takes space if that counts.
    pub fn ask(&mut self, asked_ns: u64, space: Option<TakenSpace>) -> AskNumber {
        self.asked_ns = asked_ns;
        // What it took before, for a part that is done, may go with it all.
        if space.is_some() {
            self.space = space;
        }
        self.number
    }
}

/// A drive that a volume is on.
pub(super) struct Home {
    pub drive: DriveId,
    /// The folder of its extent files.
    pub directory: PathBuf,
    /// How long a read takes here, beside the other homes.
    pub read_cost: u32,
    /// Its folder is not where it should be: nothing is asked of it.
    pub is_away: bool,
    /// Whether what is taken here counts.
    pub is_counted: Arc<IsCounted>,
    /// What is known of its filesystem.
    pub filesystem: Filesystem,
    /// Where it stands in line.
    pub queue_entry: DriveQueueEntry,
    /// Where each kind of work for the volume stands in line, once there was any.
    pub background_leaves: BTreeMap<BackgroundKind, NodeId>,
}

/// Something that was asked of a file for no operation.
struct Asked {
    extent: u32,
    generation: Generation,
    since_ns: u64,
    /// What it takes of the space that is counted.
    space: Option<TakenSpace>,
}

/// What is kept of one replica.
#[derive(Default)]
struct ReplicaSlot {
    /// For each extent the index of its home.
    homes: Vec<u8>,
    files: Vec<Option<Descriptor>>,
    /// Which files these are.
    identities: BTreeMap<u32, FileIdentity>,
    contexts: Vec<Option<Context>>,
    /// Opening, allocating in and making stable of files, by number.
    asked: BTreeMap<AskNumber, Asked>,
}

/// One volume of a reactor.
pub(super) struct ServedVolume {
    pub id: VolumeId,
    pub mirror: Mirror,
    pub statistics: Arc<VolumeStatistics>,
    /// Where it stands before ceilings, if it is under any.
    pub shaping: Option<Shaping>,
    /// The drives that it is on.
    pub homes: Vec<Home>,
    /// The file in which the epoch records of its replica metadata are kept.
    pub epoch_records: PathBuf,
    /// The replica metadata that are being written.
    pub metadata: MetadataWrites,
    /// Extents whose replica metadata could not be written, which an operator was told.
    pub metadata_alarms: BTreeSet<u32>,
    /// Extents of which it is raised that their checksums can be neither written nor removed.
    pub checksum_alarms: BTreeSet<u32>,
    /// Requests that ceilings hold back.
    pub delayed_requests: usize,
    /// What it asked for and nobody has begun to carry out.
    pub effects: Vec<Effect>,
    /// Whether anything is carried out.
    pub agenda: Agenda,
    /// Flushes under way by number; `None` marks a free number.
    pub flushes: Vec<Option<Ticket>>,
    /// Operations of the ring and the helper that still have to come back.
    pub outstanding: usize,
    pub connections: usize,
    pub open_requests: u64,
    /// Whoever asked to close the volume, to be answered once it is quiet.
    pub closing: Option<SyncSender<()>>,
    /// A new size, and whoever asked for it; put off until the volume is quiet if it is smaller.
    pub resizing_to: Option<(NewSize, SyncSender<()>)>,
    /// Its journals are giving up what it is to lose.
    pub is_cutting: bool,
    pub size_bytes: u64,
    /// No client may change its data.
    pub is_read_only: bool,
    /// Whoever made it read-only, to be answered once nothing is written any more.
    pub becoming_read_only: Option<SyncSender<()>>,
    /// Why the replica of an extent that is about to be retired is.
    pub fault_message: Option<String>,
    /// The journals that replicas of it are behind.
    pub journals: VolumeJournals,
    /// What it knows of the emulated drives that it is on.
    pub emulated: Emulated,
    /// Its part in a recording, while there is one.
    pub tap: Option<Tap>,
    /// What brings its replicas up to date.
    pub resync: Resync,
    /// What is captured of it.
    pub snapshot: Option<VolumeSnapshot>,
    /// The scrub of it that goes on, or waits for others.
    pub scrubbing: Option<Scrubbing>,
    /// What was given up and has not come back.
    pub orphans: OrphanedIos,
    last_number: u64,
    /// How often a replica's file was given up or replaced: what was found out about it before says nothing any more.
    pub renewals: u64,
    /// Changes of replicas that are not durably known yet: control asks for few at a time.
    pub replica_waiters: Vec<ReplicaWaiter>,
    replicas: Vec<ReplicaSlot>,
    owners: Vec<Option<Owner>>,
}

impl ServedVolume {
    pub fn new(spec: VolumeSpec, statistics: Arc<VolumeStatistics>) -> ServedVolume {
        let mirror = match spec.recovered_extents.is_empty() {
            true => Mirror::single(spec.size_bytes),
            false => Mirror::new(spec.size_bytes, spec.layout.replicas.len(), spec.recovered_extents),
        };
        let mut volume = ServedVolume {
            id: spec.id,
            resync: Resync::new(&mirror),
            mirror,
            scrubbing: None,
            statistics,
            shaping: None,
            homes: Vec::new(),
            epoch_records: spec.epoch_records,
            metadata: MetadataWrites::default(),
            metadata_alarms: BTreeSet::new(),
            checksum_alarms: BTreeSet::new(),
            delayed_requests: 0,
            effects: Vec::new(),
            agenda: Agenda::default(),
            flushes: Vec::new(),
            outstanding: 0,
            connections: 0,
            open_requests: 0,
            closing: None,
            resizing_to: None,
            is_cutting: false,
            size_bytes: spec.size_bytes,
            is_read_only: spec.is_read_only,
            becoming_read_only: None,
            fault_message: None,
            journals: VolumeJournals::default(),
            emulated: Emulated::new(spec.id),
            tap: None,
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

    /// Takes over where replicas lie.
    pub fn set_layout(&mut self, replicas: Vec<Vec<u8>>) {
        self.replicas.resize_with(replicas.len().max(self.replicas.len()), ReplicaSlot::default);
        for (replica, homes) in self.replicas.iter_mut().zip(replicas) {
            replica.homes = homes;
        }
    }

    /// Has the fastest replicas read.
    pub fn set_read_costs(&mut self) {
        if !self.mirror.has_replicas() {
            return;
        }
        (0..self.mirror.extents()).for_each(|extent| self.set_read_costs_of(extent));
    }

    /// Takes over how long reads take on its drives.
    pub fn take_read_costs(&mut self, read_costs: &[(DriveId, u32)]) {
        for (drive, cost) in read_costs {
            let home = self.homes.iter_mut().find(|home| home.drive == *drive);
            home.into_iter().for_each(|home| home.read_cost = *cost);
        }
        self.set_read_costs();
    }

    /// Has the fastest replicas of an extent read.
    pub fn set_read_costs_of(&mut self, extent: u32) {
        for slot in 0..self.replicas.len() {
            let home = self.home_of(slot, extent).and_then(|home| self.homes.get(home));
            let cost = home.map_or(u32::MAX, |home| home.read_cost);
            self.mirror.set_read_cost(extent, slot, cost);
        }
    }

    /// Sets where one replica of one extent lies from now on.
    pub fn set_home(&mut self, extent: u32, slot: usize, home: u8) {
        self.replicas.resize_with(self.replicas.len().max(slot + 1), ReplicaSlot::default);
        let count = self.mirror.extents() as usize;
        let replica = &mut self.replicas[slot];
        replica.homes.resize(count.max(replica.homes.len()), home_beyond_list(slot));
        replica.homes[extent as usize] = home;
        self.set_file(slot, extent, None);
    }

    /// The home of a replica of an extent, if there is such a replica.
    pub fn home_of(&self, slot: usize, extent: u32) -> Option<usize> {
        let home = self.replicas.get(slot)?.homes.get(extent as usize).copied();
        let home = home.unwrap_or(home_beyond_list(slot));
        (home != NO_HOME).then_some(home.into())
    }

    /// The home in whose line a replica of an extent stands: that of its journal, if it is behind one.
    pub fn line_of(&self, slot: usize, extent: u32) -> Option<usize> {
        self.journals.home_of(extent, slot).or_else(|| self.home_of(slot, extent))
    }

    /// The file of a replica of an extent.
    pub fn extent_path(&self, slot: usize, extent: u32) -> PathBuf {
        let home = self.home_of(slot, extent).expect("the mirror knows only replicas that exist");
        self.homes[home].directory.join(format!("{extent:08}"))
    }

    /// The open file of a replica of an extent that its state calls ready.
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

    /// Takes note of which file an extent was opened in.
    pub fn set_file_identity(&mut self, slot: usize, extent: u32, identity: FileIdentity) {
        self.replicas[slot].identities.insert(extent, identity);
    }

    /// Which file an extent was opened in, if it was.
    pub fn file_identity(&self, slot: usize, extent: u32) -> Option<FileIdentity> {
        self.replicas.get(slot)?.identities.get(&extent).copied()
    }

    /// The replicas of extents at a home, as pairs of replica and extent.
    pub fn replicas_at(&self, home: usize) -> Vec<(usize, u32)> {
        let all = (0..self.replicas.len())
            .flat_map(|slot| (0..self.mirror.extents()).map(move |extent| (slot, extent)));
        all.filter(|(slot, extent)| self.home_of(*slot, *extent) == Some(home)).collect()
    }

    /// The replicas of extents that are at a home, or behind a journal there, as pairs of replica and extent.
    pub fn replicas_relying_on(&self, home: usize) -> Vec<(usize, u32)> {
        let all = (0..self.replicas.len())
            .flat_map(|slot| (0..self.mirror.extents()).map(move |extent| (slot, extent)));
        all.filter(|(slot, extent)| self.homes_of(*slot, *extent).any(|other| other == home)).collect()
    }

    /// The homes of a replica of an extent and of the journal that it is behind.
    fn homes_of(&self, slot: usize, extent: u32) -> impl Iterator<Item = usize> {
        self.home_of(slot, extent).into_iter().chain(self.journals.home_of(extent, slot))
    }

    /// True if the drive of a replica of an extent, or of the journal that it is behind, is away.
    pub fn is_away(&self, slot: usize, extent: u32) -> bool {
        self.homes_of(slot, extent).any(|home| self.homes[home].is_away)
    }

    /// Keeps in words why replica metadata or an epoch record could not be written.
    pub fn metadata_result(&mut self, result: Result<(), MetadataError>) -> Result<(), MetadataFault> {
        result.map_err(|error| {
            self.fault_message = Some(error.message);
            error.fault
        })
    }

    /// Takes over a new size; files beyond the end are closed.
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

    /// What is to be carried out next, if that has not begun already.
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

    /// What was kept for an operation of all replicas that is done; what was read is in the buffer of one of them.
    pub fn take_owner(&mut self, id: MirrorId, source: Option<(usize, OperationId)>) -> Owner {
        if let Some((slot, operation)) = source {
            self.end_operation(slot, operation);
        }
        self.mirror.forget(id);
        self.owners[id.0 as usize].take().expect("an operation is done once")
    }

    /// Sees to it that an operation of a replica has a context.
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
            spent: Spent::default(),
        });
    }

    pub fn next_number(&mut self) -> AskNumber {
        self.last_number += 1;
        AskNumber(self.last_number)
    }

    /// Takes note that the file of an extent of a replica is opened, allocated in, or made stable, since when, and of the
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

    /// Such a question is answered: that of which file; `None` if it was given up before.
    pub fn answered(&mut self, slot: usize, number: AskNumber) -> Option<Generation> {
        self.replicas[slot].asked.remove(&number).map(|asked| asked.generation)
    }

    /// Such a question has taken space, until it is answered.
    pub fn set_space(&mut self, slot: usize, number: AskNumber, space: Option<TakenSpace>) {
        if let Some(asked) = self.replicas[slot].asked.get_mut(&number) {
            asked.space = space;
        }
    }

    /// True if such a question is neither answered nor given up.
    pub fn is_asked(&self, slot: usize, number: AskNumber) -> bool {
        self.replicas[slot].asked.contains_key(&number)
    }

    /// Gives up whatever was asked of the file of an extent of a replica for no operation.
    pub fn give_up_asked(&mut self, slot: usize, extent: u32) {
        let given_up = self.replicas[slot].asked.extract_if(.., |_, asked| asked.extent == extent);
        let orphaned = |asked: Asked| OrphanedIo { extent, emulated: None, space: asked.space };
        given_up.for_each(|(number, asked)| self.orphans.add(slot, number, orphaned(asked)));
    }

    /// True if what an operation of a replica was asked for under a number is still wanted.
    pub fn is_wanted(&self, slot: usize, operation: OperationId, number: AskNumber) -> bool {
        let context = self.replicas[slot].contexts.get(operation.0 as usize).and_then(Option::as_ref);
        context.is_some_and(|context| context.number == number)
    }

    /// Replicas of extents that owe an answer for too long.
    pub fn stalled(&self, now_ns: u64) -> Vec<(usize, u32)> {
        let mut stalled = Vec::new();
        let before_ns = now_ns.saturating_sub(STALL_NS);
        let is_silent = |home: &Home| locked(&home.queue_entry.drive_queue).queue.is_silent_since(before_ns);
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

    /// Gives up whatever is under way on a replica of an extent; answers which operations that were, each of which has to
    /// be told to have failed. What comes back of it later is orphaned I/O.
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
            // Its memory is not coming back: who is asked instead needs other memory.
            let bytes = owner.memory_bytes;
            if owner.memory.is_none() && bytes > 0 {
                owner.memory = Some(fresh(bytes, pool).into());
            }
        }
        operations
    }

    /// An operation of a replica has ended, if it ever began: its owner gets what it had.
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

    /// The context of an operation of a replica, and what both belong to.
    pub fn context_and_owner(&mut self, slot: usize, operation: OperationId) -> (&mut Context, &mut Owner) {
        let context = self.replicas[slot].contexts[operation.0 as usize].as_mut();
        let context = context.expect("an operation has a context until it is done");
        let owner = self.owners[context.owner.0 as usize].as_mut();
        (context, owner.expect("an operation has an owner until it is done"))
    }

    /// What an operation reads into, on its way to the kernel. An edge is read over a part of a buffer that the replica
    /// may change: where there are others, one of its own with the same content.
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

    /// The checksum of a part of what an operation is to write. Replicas that write the same compute it once.
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

    /// What an operation writes, on its way to the kernel.
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

    /// Has zeroes in the memory of an operation that has read a hole.
    pub fn zero_memory(&mut self, id: MirrorId) {
        let owner = self.owner(id);
        let memory = owner.memory.take().and_then(Memory::into_unfilled);
        let memory = memory.expect("nobody else has the memory of what read a hole");
        owner.memory = Some(memory.zeroed().into());
    }

    /// Enters a flush and returns its number.
    pub fn add_flush(&mut self, ticket: Ticket) -> u32 {
        let free = self.flushes.iter().position(Option::is_none);
        let number = free.unwrap_or(self.flushes.len());
        if number == self.flushes.len() {
            self.flushes.push(None);
        }
        self.flushes[number] = Some(ticket);
        number as u32
    }

    pub fn is_quiet(&self) -> bool {
        self.connections == 0 && self.outstanding == 0 && self.mirror.operations() == 0
    }

    /// Somebody waits for this volume to become quiet.
    pub fn is_ending(&self) -> bool {
        self.closing.is_some() || self.resizing_to.is_some() || self.becoming_read_only.is_some()
    }

    /// Publishes the gauges.
    pub fn publish(&self) {
        self.statistics.queue_depth.store(self.open_requests, Relaxed);
        self.statistics.queue_depth_delayed.store(self.delayed_requests as u64, Relaxed);
        self.statistics.connections.store(self.connections as u64, Relaxed);
    }
}

/// A buffer with the same content.
fn duplicate(payload: &[u8], pool: &BufferPool) -> Buffer {
    fresh(payload.len(), pool).filled_from(payload)
}

/// Memory for one more buffer. Where the pool is exhausted it has memory of its own: an operation of one replica must not fail because
/// another one works, or the replicas would differ.
pub(super) fn fresh(bytes: usize, pool: &BufferPool) -> Unfilled {
    let own = || BufferPool::new(PIECE_BYTES as usize).ok()?.take(bytes);
    let memory = pool.take(bytes.max(BLOCK_BYTES as usize)).or_else(own);
    memory.expect("the system has memory for one more buffer")
}
