//! Faults of the data plane that were found by reading it: each is played again here as a client would.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::daemon::{Daemon, State};
use common::nbd::*;
use common::rates::Counted;
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};

/// Where the second extent of a volume begins.
const SECOND_EXTENT: u64 = weir_types::bounds::EXTENT_BYTES;
/// Bytes of a simple reply, and of one with a block.
const REPLY_BYTES: usize = 16;
const BLOCK_REPLY_BYTES: usize = REPLY_BYTES + 4096;

/// A daemon with one reactor and one volume of two extents.
fn scene() -> Daemon {
    let daemon = State::new().start(&["--reactors", "1"]);
    daemon.create("v", "2GiB");
    daemon
}

/// Shortens the second extent of the volume behind the daemon's back.
fn damage(daemon: &Daemon) {
    File::options().write(true).open(daemon.extent_file("v", 1)).unwrap().set_len(4096).unwrap();
}

/// Makes a group with this rate.
fn group(daemon: &Daemon, name: &str, rate: &str, is_shared: &str) {
    let create = ["qos", "policy-group", "create", name, "--max-throughput", rate, "--is-shared", is_shared];
    daemon.ok(&create);
}

/// Binds the volume to a group, or to none.
fn bind(daemon: &Daemon, group: &str) {
    daemon.ok(&["volume", "modify", "v", "--qos-policy-group", group]);
}

/// Changes the rate of a group.
fn limit(daemon: &Daemon, group: &str, rate: &str) {
    daemon.ok(&["qos", "policy-group", "modify", group, "--max-throughput", rate]);
}

/// The daemon serves new clients and ends cleanly.
fn serves_and_ends(daemon: Daemon) {
    let mut client = Client::attach(&daemon.nbd_socket(), "v");
    client.write(8192, &[7; 4096]).unwrap();
    assert_eq!(client.read(8192, 4096).unwrap(), [7; 4096]);
    client.disconnect();
    daemon.stop();
}

/// Broken if the first of two parts, which fails at once, is taken for the last: the reactor fell.
#[test]
fn a_write_over_two_pieces_of_a_lost_extent_fails_once() {
    let daemon = scene();
    damage(&daemon);
    let mut client = Client::attach(&daemon.nbd_socket(), "v");
    assert_eq!(client.read(SECOND_EXTENT, 4096), Err(EIO));
    for flags in [0, FUA] {
        let answer = client.call(WRITE, flags, SECOND_EXTENT + (96 << 10), 65_536, &[1; 65_536]).unwrap();
        assert_eq!(answer, Err(EIO));
    }
    client.write(0, &[2; 65_536]).unwrap();
    client.disconnect();
    serves_and_ends(daemon);
}

/// Broken if the end of the daemon drains a connection that is closing already: the reactor fell.
#[test]
fn the_daemon_ends_while_a_connection_with_work_under_way_closes() {
    let state = State::new();
    for round in 0..6 {
        let daemon = state.start(&["--reactors", "1"]);
        if round == 0 {
            daemon.create("v", "2GiB");
        }
        let mut epoch_record = Client::attach(&daemon.nbd_socket(), "v");
        let mut client = Client::attach(&daemon.nbd_socket(), "v");
        // All change the same block, so that they wait for each other.
        for _ in 0..1000 {
            client.send(WRITE, 0, 1, 10, &[3; 10]).unwrap();
        }
        (0..round).for_each(|_| assert_eq!(client.reply().unwrap().1, 0));
        drop(client);
        // The reactor has seen the close before it answers this.
        (0..=round % 3).for_each(|_| assert_eq!(epoch_record.read(4096, 4096).unwrap().len(), 4096));
        daemon.stop();
    }
}

/// Broken if a shared group keeps the rate from before a change that nobody was bound for.
#[test]
fn a_shared_group_that_changed_while_nobody_was_bound_has_its_new_rate() {
    let daemon = scene();
    group(&daemon, "g", "1IOPS", "true");
    bind(&daemon, "g");
    bind(&daemon, "none");
    limit(&daemon, "g", "100000IOPS");
    bind(&daemon, "g");
    let mut client = Client::attach(&daemon.nbd_socket(), "v");
    (0..100).for_each(|_| assert_eq!(client.read(0, 4096).unwrap().len(), 4096));
    let delayed_ns = &daemon.json(&["volume", "inspect", "v"])["statistics"]["read"]["delayed_ns"];
    // With the rate from before they are held back for 99 s.
    assert!(delayed_ns.as_u64().unwrap() < 50_000_000_000, "{delayed_ns}");
    client.disconnect();
    serves_and_ends(daemon);
}

/// Bytes that a socket has for its reader, read without waiting for more.
fn read_what_is_there(stream: &mut UnixStream) -> usize {
    let mut buffer = vec![0; 1 << 20];
    let mut count = 0;
    stream.set_nonblocking(true).unwrap();
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => panic!("the connection was ended"),
            Ok(bytes) => count += bytes,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return count,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Broken if each change of a rate lets a waiting request through that nobody paid for.
#[test]
fn changing_a_rate_admits_nothing() {
    for is_shared in ["true", "false"] {
        let daemon = scene();
        group(&daemon, "g", "1IOPS", is_shared);
        bind(&daemon, "g");
        let mut client = Client::attach(&daemon.nbd_socket(), "v");
        let mut answered = 0;
        let span = Counted::all(&daemon, &["v"]).during(|| {
            client.stream.write_all(&request(READ, 0, 1, 0, 4096).repeat(64)).unwrap();
            for _ in 0..20 {
                limit(&daemon, "g", "1IOPS");
                limit(&daemon, "g", "2IOPS");
                // Changes nothing.
                limit(&daemon, "g", "2IOPS");
            }
            answered = read_what_is_there(&mut client.stream) / BLOCK_REPLY_BYTES;
        });
        let paid_for = span.most(2.0);
        assert!(answered as f64 <= paid_for, "{answered} of at most {paid_for:.1} were admitted");
        drop(client);
        serves_and_ends(daemon);
    }
}

/// Sends the same request until the server takes no more; answers how many bytes it took.
fn send_until_pushed_back(stream: &mut UnixStream, request: &[u8], most: usize) -> usize {
    let burst = request.repeat(1000);
    let mut sent = 0;
    stream.set_write_timeout(Some(Duration::from_secs(2))).unwrap();
    while sent < most * request.len() {
        match stream.write(&burst[sent % request.len()..]) {
            Ok(bytes) => sent += bytes,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return sent,
            Err(error) => panic!("{error}"),
        }
    }
    panic!("{most} requests were taken of a client that reads no answer")
}

/// Broken if answers that nobody reads pile up in memory, or if such a client is not served once it reads.
#[test]
fn a_client_that_reads_no_answer_is_not_read_either() {
    let daemon = scene();
    let mut client = Client::attach(&daemon.nbd_socket(), "v");
    client.read(0, 4096).unwrap();
    let before = daemon.resident_bytes();
    let zero = request(WRITE_ZEROES, 0, 1, 0, 4096);
    let sent = send_until_pushed_back(&mut client.stream, &zero, 400_000);
    let grown = daemon.resident_bytes().saturating_sub(before);
    assert!(grown < 16 << 20, "{} KiB more are resident", grown >> 10);
    let count = sent / zero.len();
    (0..count).for_each(|_| assert_eq!(client.reply().unwrap().1, 0));
    if !sent.is_multiple_of(zero.len()) {
        client.stream.write_all(&zero[sent % zero.len()..]).unwrap();
        assert_eq!(client.reply().unwrap().1, 0);
    }
    client.disconnect();
    serves_and_ends(daemon);
}

/// Broken if a payload that does not come any more holds the end of the daemon up for all its timeout.
#[test]
fn the_daemon_does_not_wait_for_the_rest_of_a_payload() {
    let daemon = scene();
    let mut client = Client::attach(&daemon.nbd_socket(), "v");
    client.send(WRITE, 0, 0, 1 << 20, &[5; 300_000]).unwrap();
    let log = daemon.state().beside("log");
    let _state = daemon.stop();
    let log = std::fs::read_to_string(log).unwrap();
    assert!(!log.contains("waits no longer for clients"), "{log}");
}

/// A connection whose server takes block status requests.
fn attach_with_status(daemon: &Daemon, export: &str) -> UnixStream {
    let mut stream = greeted(&daemon.nbd_socket()).unwrap();
    let sized = |text: &str| [&(text.len() as u32).to_be_bytes(), text.as_bytes()].concat();
    let context = [sized(export), 1u32.to_be_bytes().to_vec(), sized("base:allocation")].concat();
    for bytes in [option(OPTION_STRUCTURED_REPLY, b""), option(10, &context), go(export)] {
        stream.write_all(&bytes).unwrap();
        while read_option_reply(&mut stream).unwrap().0 != 1 {}
    }
    stream
}

/// Asks for the block status of a range; answers the type of the reply and its data.
fn block_status(stream: &mut UnixStream, offset: u64, length: u32) -> (u16, Vec<u8>) {
    stream.write_all(&request(BLOCK_STATUS, 0, 1, offset, length)).unwrap();
    let mut head = [0; 20];
    stream.read_exact(&mut head).unwrap();
    let mut data = vec![0; u32::from_be_bytes(head[16..].try_into().unwrap()) as usize];
    stream.read_exact(&mut data).unwrap();
    (u16::from_be_bytes([head[6], head[7]]), data)
}

/// Broken if data that is lost with the end of its file is called a hole, which a replica would leave out.
#[test]
fn the_status_of_lost_data_is_an_error() {
    const STATUS: u16 = 5;
    const ERROR: u16 = 1 << 15 | 1;
    let daemon = scene();
    damage(&daemon);
    let mut stream = attach_with_status(&daemon, "v");
    assert_eq!(block_status(&mut stream, 0, 1 << 20).0, STATUS);
    // Before and after something else has found the damage.
    for _ in 0..2 {
        let (kind, data) = block_status(&mut stream, SECOND_EXTENT, 1 << 20);
        assert_eq!((kind, &data[..4]), (ERROR, &EIO.to_be_bytes()[..]));
        let mut client = Client::attach(&daemon.nbd_socket(), "v");
        assert_eq!(client.read(SECOND_EXTENT, 4096), Err(EIO));
        client.disconnect();
    }
    drop(stream);
    serves_and_ends(daemon);
}

/// Processor time of the threads that serve clients, in ticks of 10 ms.
fn ticks(daemon: &Daemon) -> u64 {
    let threads = std::fs::read_dir(format!("/proc/{}/task", daemon.process_id())).unwrap();
    // A thread may end meanwhile.
    let stats =
        threads.filter_map(|thread| std::fs::read_to_string(thread.unwrap().path().join("stat")).ok());
    let ticks_of = |stat: String| {
        let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    };
    let reactors: Vec<u64> = stats.filter(|stat| stat.contains("(weir-reactor-")).map(ticks_of).collect();
    assert!(!reactors.is_empty());
    reactors.iter().sum()
}

/// A client that has so many unread blocks that only one of two buffers is left for unaligned zeroes.
fn short_of_a_buffer(daemon: &Daemon, epoch_record: &mut Client) -> Client {
    let mut client = Client::attach(&daemon.nbd_socket(), "v");
    client.stream.set_nonblocking(true).unwrap();
    let read = request(READ, 0, 1, 0, 4096);
    for count in 0..1200 {
        // The server may take no more.
        let _ = client.stream.write(&read);
        if count > 950 {
            let _ = client.stream.write(&request(WRITE_ZEROES, 0, 1, 4196, 8000));
        }
        // What came before is under way once another client was served.
        epoch_record.read(0, 4096).unwrap();
    }
    client
}

/// Broken if a request that finds one of two buffers is woken by giving that one back, for ever.
#[test]
fn unaligned_zeroes_that_find_no_buffer_wait_quietly() {
    let daemon = scene();
    let mut writer = Client::attach(&daemon.nbd_socket(), "v");
    writer.write(0, &[1; 16_384]).unwrap();
    let starving: Vec<Client> = (0..3).map(|_| short_of_a_buffer(&daemon, &mut writer)).collect();
    let before = ticks(&daemon);
    // The command looks twice, with a second in between.
    daemon.ok(&[
        "qos",
        "statistics",
        "volume",
        "performance",
        "show",
        "--interval",
        "1",
        "--iterations",
        "1",
    ]);
    let used = ticks(&daemon) - before;
    assert!(used < 40, "{used} ticks of 100 were used while nothing could be done");
    drop(starving);
    writer.disconnect();
    serves_and_ends(daemon);
}

/// Broken if the release admits requests of a connection that the first of them has just ended.
#[test]
fn a_release_survives_a_connection_that_dies_of_it() {
    let daemon = scene();
    damage(&daemon);
    let mut client = Client::attach(&daemon.nbd_socket(), "v");
    assert_eq!(client.read(SECOND_EXTENT, 4096), Err(EIO));
    group(&daemon, "g", "1IOPS", "false");
    bind(&daemon, "g");
    client.read(0, 4096).unwrap();
    // Half of the first is lost, which a simple reply cannot say once it has begun.
    client.send(READ, 0, SECOND_EXTENT - 4096, 8192, &[]).unwrap();
    client.stream.write_all(&request(READ, 0, 9, 0, 4096).repeat(3)).unwrap();
    bind(&daemon, "none");
    drop(client);
    serves_and_ends(daemon);
}

/// Broken if an extent is lost because the daemon was out of descriptors when it was first needed.
#[test]
fn a_shortage_of_descriptors_costs_no_extent() {
    let daemon = scene();
    let mut client = Client::attach(&daemon.nbd_socket(), "v");
    client.write(0, &[1; 4096]).unwrap();
    let process = Pid::from_raw(daemon.process_id() as i32);
    let limit =
        |current| prlimit(process, Resource::Nofile, Rlimit { current, ..getrlimit(Resource::Nofile) });
    let before = limit(Some(3)).unwrap();
    assert_eq!(client.write(SECOND_EXTENT, &[2; 4096]), Err(ENOMEM));
    client.write(0, &[3; 4096]).expect("what is open stays");
    limit(before.current).unwrap();
    client.write(SECOND_EXTENT, &[2; 4096]).expect("the next attempt opens it");
    assert_eq!(daemon.json(&["status"])["alarms"], serde_json::json!([]));
    serves_and_ends(daemon);
}

/// Broken if a goodbye refuses what was asked for before it and waits for its ceiling.
#[test]
fn a_goodbye_waits_for_what_was_asked_before() {
    let daemon = scene();
    group(&daemon, "g", "5IOPS", "false");
    bind(&daemon, "g");
    let mut client = Client::attach(&daemon.nbd_socket(), "v");
    let mut asked: Vec<u64> =
        (0..6).map(|n| client.send(WRITE, 0, n * 4096, 4096, &[9; 4096]).unwrap()).collect();
    client.send(DISCONNECT, 0, 0, 0, &[]).unwrap();
    while let Ok((cookie, error)) = client.reply() {
        assert_eq!(error, 0, "request {cookie} was refused");
        asked.retain(|&other| other != cookie);
    }
    assert!(asked.is_empty(), "{asked:?} were not answered");
    serves_and_ends(daemon);
}

/// Attaches again and again until told to stop; answers all clients.
fn keep_attaching(daemon: &Daemon, is_over: &AtomicBool) -> Vec<Client> {
    let mut clients = Vec::new();
    while !is_over.load(Ordering::Relaxed) && clients.len() < 100 {
        clients.extend(Client::try_attach(&daemon.nbd_socket(), "v"));
    }
    clients
}

/// Broken if a client that comes during a shrink works with the size from before it.
#[test]
fn no_client_keeps_a_size_from_before_a_shrink() {
    const SMALL: u64 = 50 << 20;
    let daemon = scene();
    for _ in 0..8 {
        let is_over = AtomicBool::new(false);
        let clients = std::thread::scope(|scope| {
            let attaching: Vec<_> =
                (0..2).map(|_| scope.spawn(|| keep_attaching(&daemon, &is_over))).collect();
            daemon.ok(&["volume", "resize", "v", "--size", "50MiB", "--force"]);
            is_over.store(true, Ordering::Relaxed);
            attaching.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        for mut client in clients {
            let is_served = client.try_read(0, 4096).is_ok();
            assert!(!is_served || client.size == SMALL, "a client was told {} bytes", client.size);
        }
        let mut after = Client::attach(&daemon.nbd_socket(), "v");
        assert_eq!((after.size, after.read(0, 4096).unwrap().len()), (SMALL, 4096));
        after.disconnect();
        daemon.ok(&["volume", "resize", "v", "--size", "2GiB"]);
    }
    serves_and_ends(daemon);
}

/// Broken if the size that a client asked for before a shrink is still told it when it takes the export.
#[test]
fn a_client_that_tarries_in_its_handshake_over_a_shrink_is_told_anew() {
    let daemon = scene();
    let mut stream = greeted(&daemon.nbd_socket()).unwrap();
    // The information without taking the export, then the shrink, then the export itself.
    let mut inform = go("v");
    inform[8..12].copy_from_slice(&6u32.to_be_bytes());
    stream.write_all(&inform).unwrap();
    while read_option_reply(&mut stream).unwrap().0 != 1 {}
    daemon.ok(&["volume", "resize", "v", "--size", "50MiB", "--force"]);
    stream.write_all(&go("v")).unwrap();
    let (kind, data) = read_option_reply(&mut stream).unwrap();
    assert_eq!((kind, &data[..2]), (3, &[0, 0][..]));
    assert_eq!(data[2..10], (50u64 << 20).to_be_bytes());
    drop(stream);
    serves_and_ends(daemon);
}
