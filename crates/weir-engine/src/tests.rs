//! Tests of one reactor with little memory. The test's thread runs each round, on files of a real filesystem.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::rc::Rc;

use tempfile::TempDir;
use weir_engine_interface::{AttachedClient, ServedSocket, VolumeLayout, VolumeSpec};
use weir_nbd::{ExportInfo, Session};
use weir_qos::{Cost, DriveModel, DriveQueue, Granted, Kind, Verdict};
use weir_reactor::{BufferPool, Clock, Ring, RingConfig, Unfilled, Waker};
use weir_types::bounds::EXTENT_BYTES;
use weir_types::{BackgroundKind, BackgroundPolicy, DriveId, ExtentIndex, VolumeId};
use weir_volume::mirror::{RecoveredExtent, ReplicaMetadata, ReplicaState};
use weir_volume::zeroing::Step;
use weir_volume::{Action, Fault, Generation, OperationId};

use super::*;
use crate::alarms::Alarms;
use crate::command::Command;
use crate::drive_queue::{Pending, SharedDriveQueue};
use crate::helper::Helper;
use crate::helper::SpaceAnswer;
use crate::reactor::{Reactor, Surroundings};
use crate::shared_state::{DriveGrant, Message, SharedState};
use crate::token::{AskNumber, ReplicaIndex, VolumeIndex};
use crate::volumes::Volumes;
use crate::volumes::command::VolumeCommand;
use crate::volumes::orphans::Orphan;
use crate::volumes::orphans::OrphanedIo;
use crate::volumes::replicas::NewChange;
use crate::volumes::volume_files::NewHome;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel, sync_channel};
use weir_store::extent_file_name;
use weir_store::replica_metadata::metadata_file_name;
use weir_volume::mirror::stall::STALL_NS;

mod allocations;
mod busy_clients;

/// Enough memory for a ring to register it.
const POOL_BYTES: usize = 1 << 20;
/// Far more rounds than any test needs.
const TURNS_MAX: usize = 10_000;
const VOLUME: VolumeId = VolumeId::from_bytes([1; 16]);
/// The only extent of the volume.
const EXTENT: ExtentIndex = ExtentIndex(0);
const READ: u16 = 0;
const WRITE: u16 = 1;
const WRITE_ZEROES: u16 = 6;
/// Flag of a client that wants no hole for its zeroes.
const NO_HOLE: u8 = 2;

/// A reactor with a volume of one extent.
struct World {
    reactor: Reactor,
    commands: Sender<Command>,
    waker: Waker,
    alarms: Alarms,
    folder: TempDir,
    /// Number of operations in flight that the drive queue aims at, if it is fixed.
    queue_target: Option<u32>,
}

impl World {
    /// Each replica is in a folder of its own, on the drive of the sources.
    fn new(replicas: usize) -> World {
        World::with_queue_target(replicas, None)
    }

    fn with_queue_target(replicas: usize, queue_target: Option<u32>) -> World {
        let pool = BufferPool::new(POOL_BYTES).unwrap();
        let ring = Ring::new(RingConfig::default(), pool.clone()).unwrap();
        assert!(ring.registered_bytes() > 0, "without registered memory there is nothing to confuse");
        let waker = ring.waker();
        let helper = Helper::start(0, waker.clone()).unwrap();
        let (sender, commands) = channel();
        let (alarms, shared_state) = (Alarms::default(), Arc::new(SharedState::new(1)));
        shared_state.introduce(0, waker.clone());
        let surroundings = Surroundings { index: 0, commands, shared_state, alarms: alarms.clone() };
        let reactor = Reactor::new(ring, pool, helper, surroundings);
        let folder = tempfile::tempdir_in(".").unwrap();
        let mut world = World { reactor, commands: sender, waker, alarms, folder, queue_target };
        world.open(replicas);
        world
    }

    fn open(&mut self, replicas: usize) {
        let homes = (0..replicas).map(|slot| self.home(slot)).collect();
        let replica_state = |slot| if slot < replicas { ReplicaState::InSync } else { ReplicaState::Absent };
        let metadata = ReplicaMetadata {
            replica_states: std::array::from_fn(replica_state),
            ..ReplicaMetadata::default()
        };
        let is_there = std::array::from_fn(|slot| slot < replicas);
        let is_confirmed = true;
        let recovered_extent =
            RecoveredExtent { metadata, is_there, is_confirmed, ..RecoveredExtent::default() };
        let spec = VolumeSpec {
            id: VOLUME,
            size_bytes: EXTENT_BYTES,
            is_read_only: false,
            layout: VolumeLayout {
                homes: Vec::new(),
                replicas: (0..replicas).map(|slot| vec![slot as u8]).collect(),
            },
            recovered_extents: if replicas > 1 { vec![recovered_extent] } else { Vec::new() },
            epoch_records: self.folder.path().join("epochs"),
            headers: Vec::new(),
            flush_window: None,
        };
        let (done, _answer) = sync_channel(1);
        let (journals, open) = Default::default();
        self.send(Command::Open { spec, homes, journals, open, done });
    }

    fn home(&self, slot: usize) -> NewHome {
        let directory = self.folder.path().join(slot.to_string());
        std::fs::create_dir(&directory).unwrap();
        let file = std::fs::File::create(directory.join(extent_file_name(EXTENT))).unwrap();
        file.set_len(EXTENT_BYTES).unwrap();
        let queue = DriveQueue::new(DriveModel::UNKNOWN, self.queue_target, Clock.now_ns());
        let drive_queue = SharedDriveQueue::new(queue);
        let (drive, is_counted) = (DriveId::from_bytes([slot as u8; 16]), Arc::default());
        NewHome { drive, directory, read_cost: 1, is_counted, emulated: None, drive_queue }
    }

    fn send(&mut self, command: Command) {
        self.reactor.take_command(command);
        self.reactor.begin_round();
    }

    /// Passes a command on as other threads do. The reactor takes it in a later round.
    fn post(&mut self, command: Command) {
        self.commands.send(command).unwrap();
        self.waker.wake();
    }

    /// The kernel of this host as a client.
    fn attach_kernel(&mut self) -> UnixStream {
        let (ours, theirs) = UnixStream::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        let served = ServedSocket { socket: ours.into(), size_bytes: EXTENT_BYTES / 2, is_read_only: false };
        let (done, answer) = sync_channel(1);
        let client = Box::new(AttachedClient::Socket(served));
        self.send(Command::ServeAttached { volume: VOLUME, client, done });
        assert_eq!(answer.try_recv(), Ok(true));
        theirs
    }

    fn attach(&mut self) -> UnixStream {
        let (ours, theirs) = UnixStream::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        let export = ExportInfo {
            name: "vol1".to_owned(),
            description: String::new(),
            size_bytes: EXTENT_BYTES,
            read_only: false,
            block_size_minimum: 1,
            block_size_preferred: 4096,
            block_size_maximum: 1 << 20,
        };
        let session = Session { export, structured_replies: false, allocation_context: None };
        let new = NewConnection { socket: ours.into(), session, leftover: Vec::new(), is_attached: false };
        self.send(Command::Serve { volume: VOLUME, client: Box::new(NewClient::Nbd(new)) });
        theirs
    }

    fn volume(&self) -> VolumeIndex {
        self.reactor.volumes.index_of(VOLUME).unwrap()
    }

    /// Runs rounds until a condition holds.
    fn turn_until(&mut self, what: &str, mut holds: impl FnMut(&mut Reactor) -> bool) {
        for _ in 0..TURNS_MAX {
            self.reactor.begin_round();
            if holds(&mut self.reactor) {
                return;
            }
            self.reactor.wait_unless_ended();
        }
        panic!("gave up waiting until {what}");
    }

    /// Runs rounds until a successful reply has arrived. Returns its payload.
    fn answer(&mut self, client: &mut UnixStream, payload_bytes: usize) -> Vec<u8> {
        let mut answer = Vec::new();
        self.turn_until("the answer is here", |_| {
            // Nothing else ends the next wait once all has arrived.
            if let Err(error) = client.read_to_end(&mut answer) {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
            }
            answer.len() >= 16 + payload_bytes
        });
        assert_eq!(answer[4..8], [0; 4], "the request failed");
        answer.split_off(16)
    }

    fn write(&mut self, client: &mut UnixStream, offset: u64, data: &[u8]) {
        client.write_all(&[request(WRITE, offset, data.len()), data.to_vec()].concat()).unwrap();
        self.answer(client, 0);
    }

    fn read(&mut self, client: &mut UnixStream, offset: u64, length: usize) -> Vec<u8> {
        client.write_all(&request(READ, offset, length)).unwrap();
        self.answer(client, length)
    }

    /// Takes all free buffers of a size.
    fn exhaust(&self, bytes: usize) -> Vec<Unfilled> {
        std::iter::from_fn(|| self.reactor.io.pool.take(bytes)).collect()
    }
}

fn request(command: u16, offset: u64, length: usize) -> Vec<u8> {
    let mut bytes = 0x2560_9513_u32.to_be_bytes().to_vec();
    bytes.extend([0; 2]);
    bytes.extend(command.to_be_bytes());
    bytes.extend([7; 8]);
    bytes.extend(offset.to_be_bytes());
    bytes.extend((length as u32).to_be_bytes());
    bytes
}

#[test]
fn freed_buffer_wakes_starved_requests() {
    let mut world = World::new(1);
    let mut client = world.attach();
    world.write(&mut client, 0, &[5; 4096]);
    let held = world.exhaust(4096);
    client.write_all(&request(READ, 0, 4096)).unwrap();
    world.turn_until("the read finds no buffer", |reactor| reactor.clients.has_starved());
    assert_ne!(world.reactor.next_due_ns(), Some(0), "nothing can be done before a buffer comes back");
    // As when a journal has written a record: only the buffer pool knows.
    drop(held);
    assert_eq!(world.reactor.next_due_ns(), Some(0), "the reactor must not go to sleep");
    assert_eq!(world.answer(&mut client, 4096), [5; 4096]);
}

/// Fails if work has no time in `next_due_ns`: then rounds with other arrivals would pass it by, and a wait would last for
/// ever.
#[test]
fn work_that_is_due_by_time_ends_the_wait_and_is_done_once() {
    /// A time in the past.
    const DUE_NS: u64 = 1;
    type MakeDue = fn(&mut Volumes, VolumeIndex);
    let kinds: [(&str, MakeDue); 5] = [
        ("journals", |volumes, _| volumes.schedules.look_at_journals(DUE_NS)),
        ("resync", |volumes, _| volumes.schedules.resyncs.wake_at(DUE_NS)),
        ("scrub", |volumes, _| volumes.schedules.scrubs.wake_at(DUE_NS)),
        ("coalesced flushes", |volumes, volume| volumes.schedules.coalesced_flushes.owe(volume, DUE_NS)),
        ("snapshot", |volumes, _| volumes.schedules.snapshot_times.begun(0)),
    ];
    for (what, make_due) in kinds {
        let mut world = World::new(1);
        world.reactor.begin_round();
        let idle_until_ns = world.reactor.next_due_ns();
        let volume = world.volume();
        make_due(&mut world.reactor.volumes, volume);
        let due_ns = world.reactor.next_due_ns();
        assert!(due_ns.is_some_and(|due_ns| due_ns < Clock.now_ns()), "{what}: {due_ns:?}");
        world.reactor.wait_unless_ended();
        world.reactor.begin_round();
        assert_eq!(world.reactor.next_due_ns(), idle_until_ns, "{what}");
    }
}

#[test]
fn kernel_gets_whole_replies_and_learns_of_another_size() {
    const LENGTH: usize = 128 << 10;
    let mut world = World::new(1);
    let mut kernel = world.attach_kernel();
    // One block in the middle of the second of two pieces; nothing around it was ever written.
    let at = (LENGTH + 8192) as u64;
    world.write(&mut kernel, at, &[5; 4096]);
    let start = (LENGTH / 2) as u64;
    let read = world.read(&mut kernel, start, LENGTH);
    let mut expected = vec![0; LENGTH];
    expected[(at - start) as usize..][..4096].fill(5);
    assert!(read == expected, "the pieces are in their places");
    // A client is refused what is beyond the size that it knows.
    kernel.write_all(&request(READ, EXTENT_BYTES / 2, 4096)).unwrap();
    let mut refused = [0; 16];
    world.turn_until("it is refused", |_| kernel.read(&mut refused).is_ok());
    assert_ne!(refused[4..8], [0; 4]);
    let index = world.volume();
    world.reactor.clients.resized(index, EXTENT_BYTES);
    assert_eq!(world.read(&mut kernel, EXTENT_BYTES / 2, 4096), [0; 4096]);
}

#[test]
fn exhausted_buffer_pool_fails_neither_replicas_nor_clients() {
    let mut world = World::new(2);
    let mut client = world.attach();
    world.write(&mut client, 0, &[1; 4096]);
    // The request itself takes the remaining buffer. Its replicas need more memory to change partial blocks.
    let mut held = world.exhaust(8192);
    held.pop();
    for sector in 0..8_u8 {
        world.write(&mut client, u64::from(sector) * 512, &[sector + 10; 512]);
    }
    let expected: Vec<u8> = (0..8_u8).flat_map(|sector| [sector + 10; 512]).collect();
    assert_eq!(world.read(&mut client, 0, 4096), expected);
    assert!(world.alarms.current().is_empty(), "{:?}", world.alarms.current());
    let volume = &world.reactor.volumes[world.volume()];
    assert_eq!(volume.mirror.readable(EXTENT, 0, 4096).iter().count(), 2, "both replicas are in sync");
    drop(held);
    assert_eq!(world.read(&mut client, 0, 4096), expected);
}

#[test]
fn each_failed_replica_is_told_its_own_reason() {
    let mut world = World::new(3);
    let metadata = |slot: usize| world.folder.path().join(slot.to_string()).join(metadata_file_name(EXTENT));
    let paths: Vec<_> = (0..3).map(metadata).collect();
    paths[1..].iter().for_each(|path| std::fs::create_dir(path).unwrap());
    let mut client = world.attach();
    world.write(&mut client, 0, &[5; 4096]);
    let alarms = world.alarms.current();
    assert_eq!(alarms.len(), 2, "{alarms:?}");
    for (slot, path) in paths.iter().enumerate().skip(1) {
        let alarm = alarms.iter().find(|alarm| alarm.drive == Some(DriveId::from_bytes([slot as u8; 16])));
        let reason = format!("replica metadata {} cannot be written", path.display());
        assert!(alarm.is_some_and(|alarm| alarm.message.contains(&reason)), "{reason}: {alarm:?}");
    }
}

#[test]
fn replica_removal_waits_for_its_reads() {
    let mut world = World::new(2);
    let mut client = world.attach();
    world.write(&mut client, 0, &[5; 4096]);
    client.write_all(&request(READ, 0, 4096)).unwrap();
    let index = world.volume();
    let read_of =
        |reactor: &Reactor| (0..2).find(|slot| !reactor.volumes[index].mirror.has_answered(EXTENT, *slot));
    world.turn_until("a replica is read", |reactor| read_of(reactor).is_some());
    let slot = read_of(&world.reactor).unwrap();
    let (done, answer) = sync_channel(1);
    let (volume, mut desk) = world.reactor.volumes.at(&mut world.reactor.io, index);
    let change = NewChange::Remove;
    volume.take_command(VolumeCommand::ChangeReplica { replica: (EXTENT, slot), change, done }, &mut desk);
    let mut without = volume.mirror.replica_states(EXTENT);
    without[slot] = ReplicaState::Absent;
    volume.answer_changes(EXTENT, Some(&without));
    assert_eq!(answer.try_recv(), Ok(Ok(false)), "the file of the replica must stay");
    assert_eq!(world.answer(&mut client, 4096), [5; 4096]);
    let (done, answer) = sync_channel(1);
    let command = VolumeCommand::ChangeReplica { replica: (EXTENT, slot), change: NewChange::Remove, done };
    world.send(Command::Volume { volume: VOLUME, command });
    let mut is_gone = false;
    world.turn_until("the removal is answered", |_| {
        let answer = answer.try_recv();
        is_gone = answer == Ok(Ok(true));
        answer.is_ok()
    });
    assert!(is_gone, "the file of the replica may go");
}

#[test]
fn look_for_given_up_file_allocates_nothing() {
    let mut world = World::new(1);
    let index = world.volume();
    let volume = &mut world.reactor.volumes[index];
    let (replica, outstanding) = (ReplicaIndex { volume: index, slot: 0 }, volume.operations.outstanding());
    // No file is open, so no generation is current.
    let generation = Generation::default();
    assert!(!volume.mirror.is_current(0, ExtentIndex(7), generation));
    let number = volume.operations.ask(0, (ExtentIndex(7), generation), (0, None));
    volume.operations.begin();
    let action = Action::Allocate { extent: ExtentIndex(7), generation, piece: 0 };
    let (volume, mut desk) = world.reactor.volumes.at(&mut world.reactor.io, index);
    let answer = SpaceAnswer { replica, number, action, needed_bytes: Ok(0) };
    assert!(volume.disk(&mut desk).space_seen(answer).is_none());
    let volume = &mut world.reactor.volumes[index];
    assert_eq!(
        (volume.operations.outstanding(), volume.operations.is_asked(0, number)),
        (outstanding, false)
    );
}

#[test]
fn orphaned_io_keeps_its_space_until_it_ends() {
    const LEFT_BYTES: u64 = 1 << 20;
    let mut world = World::new(1);
    let space = Rc::clone(&world.reactor.io.space);
    let look = || {
        space.hand_back();
        space.count().end_look(space.count().begin_look(), LEFT_BYTES);
    };
    look();
    let index = world.volume();
    let volume = &mut world.reactor.volumes[index];
    let generation = Generation::default();
    let taken = space.take(LEFT_BYTES).unwrap();
    let number = volume.operations.ask(0, (EXTENT, generation), (0, Some(taken)));
    volume.operations.begin();
    volume.operations.give_up_asked(0, EXTENT);
    look();
    assert!(space.take(1).is_none(), "it may still be done");
    let (volume, mut desk) = world.reactor.volumes.at(&mut world.reactor.io, index);
    assert!(matches!(volume.disk(&mut desk).end_orphan(0, number), Orphan::Ended));
    look();
    assert!(space.take(1).is_some());
}

/// Queues `count` reads of a volume's second replica behind one at the drive, and gives the queued reads up.
/// Returns the read at the drive and its cost.
fn give_up_in_queue(world: &mut World, count: usize) -> (ReplicaIndex, AskNumber, Cost) {
    let index = world.volume();
    let reactor = &mut world.reactor;
    let replica = ReplicaIndex { volume: index, slot: 1 };
    let (kind, policy, now_ns) = (BackgroundKind::Scrub, BackgroundPolicy::default(), reactor.io.now_ns);
    let leaf = reactor.volumes[index].files.homes[1].queue.background_leaf(kind, policy, now_ns);
    let mut at_drive = Vec::new();
    for operation in (0..=count).map(|count| OperationId(count as u32)) {
        let (volume, desk) = reactor.volumes.at(&mut reactor.io, index);
        let number = volume.operations.next_number();
        volume.operations.begin();
        let place = (volume.files.homes[1].queue.shared(), leaf);
        let action = Action::Read { operation, extent: EXTENT, offset: 0, buffer_offset: 0, length: 4096 };
        let pending = || Pending::Volume { replica, number, action };
        let (cost, verdict) = desk.queues.arrive(now_ns, place, (Kind::Read, 4096, true), pending);
        if verdict == Verdict::Run {
            at_drive.push((replica, number, cost));
            continue;
        }
        volume.operations.orphan(
            1,
            number,
            OrphanedIo { extent: EXTENT, queued: Some((1, cost)), space: None },
        );
    }
    assert_eq!(at_drive.len(), 1, "all others wait");
    at_drive[0]
}

/// How the turn of orphaned I/O in the drive queue comes.
#[derive(Clone, Copy, Debug)]
enum Turn {
    /// Orphaned I/O ends at the drive.
    Orphan,
    /// The drive answers an operation of the same volume that is still wanted.
    Answer,
    /// Another reactor makes room in the drive queue, and reports it in a message.
    Message,
}

fn take_turn(world: &mut World, turn: Turn, (replica, number, cost): (ReplicaIndex, AskNumber, Cost)) {
    let reactor = &mut world.reactor;
    let queue = reactor.volumes[replica.volume].files.homes[1].queue.shared().clone();
    let complete = |now_ns| assert!(queue.completed(now_ns, cost));
    match turn {
        Turn::Orphan => {
            let given_up = OrphanedIo { extent: EXTENT, queued: Some((1, cost)), space: None };
            reactor.go_on_from_drive(replica.volume, |volume, desk| {
                volume.operations.orphan(1, number, given_up);
                volume.disk(desk).end_orphan(1, number).room()
            });
        }
        Turn::Answer => {
            complete(reactor.io.now_ns);
            reactor.go_on_from_drive(replica.volume, |volume, _| {
                volume.operations.end();
                Some(queue.clone())
            });
        }
        Turn::Message => {
            complete(reactor.io.now_ns);
            reactor.volumes[replica.volume].operations.end();
            queue.release(reactor.io.now_ns, |granted| {
                let Granted { ticket, waited_ns, waited_for_floors_ns, .. } = granted;
                let grant = DriveGrant { pending: ticket.pending, waited_ns, waited_for_floors_ns };
                reactor.shared_state.post(0, Message::Granted(grant));
            });
            reactor.shared_state.wake(0);
        }
    }
}

#[test]
fn volume_closes_after_its_orphaned_io() {
    let turns = [Turn::Orphan, Turn::Answer, Turn::Message];
    for (turn, count) in turns.into_iter().flat_map(|turn| [(turn, 1), (turn, 100_000)]) {
        let mut world = World::with_queue_target(2, Some(1));
        let at_drive = give_up_in_queue(&mut world, count);
        let (done, answer) = sync_channel(1);
        world.send(Command::Close { volume: VOLUME, done });
        assert!(answer.try_recv().is_err(), "the drive may still carry out what it was asked for");
        take_turn(&mut world, turn, at_drive);
        world.turn_until("the volume is closed", |_| answer.try_recv().is_ok());
        assert!(world.reactor.volumes.queues.is_empty(), "{turn:?} with {count} in line");
    }
}

#[test]
fn drive_answering_zeroing_steps_is_not_failed() {
    let mut world = World::new(2);
    let mut client = world.attach();
    world.write(&mut client, 0, &[5; 4096]);
    let mut zeroes = request(WRITE_ZEROES, 0, 4096);
    zeroes[5] = NO_HOLE;
    client.write_all(&zeroes).unwrap();
    let index = world.volume();
    world.turn_until("zeroing begins", |reactor| reactor.volumes[index].mirror.operations() > 0);
    let (operation, replica) = (OperationId(0), ReplicaIndex { volume: index, slot: 0 });
    assert!(world.reactor.volumes[index].mirror.zeroing(0, operation).is_some());
    let is_late = |reactor: &Reactor| {
        let stalled = reactor.volumes[index].stalled(reactor.io.now_ns);
        stalled.contains(&(0, EXTENT))
    };
    world.reactor.io.now_ns += STALL_NS + 1;
    assert!(is_late(&world.reactor));
    world.reactor.volumes[index].operations.end();
    let (volume, mut desk) = world.reactor.volumes.at(&mut world.reactor.io, index);
    let mut disk = volume.disk(&mut desk);
    disk.zeroing_step_ended(replica, operation, Step::Zero, Err(Fault::Unsupported));
    assert!(!is_late(&world.reactor), "it has just been asked for the next step");
}
