//! Regression tests for faults of the data plane that a review found: each test replays one fault as a
//! client.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::daemon::{Daemon, State};
use crate::common::nbd::*;
use crate::common::rates::Counted;
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};

/// Offset at which the second extent of a volume begins, in bytes.
const SECOND_EXTENT: u64 = weir_types::bounds::EXTENT_BYTES;
/// Bytes of a simple reply, and of one with a block.
const REPLY_BYTES: usize = 16;
const BLOCK_REPLY_BYTES: usize = REPLY_BYTES + 4096;

/// Starts a daemon with one reactor and one volume of two extents.
fn scene() -> Daemon {
    let daemon = State::new().start(&["--reactors", "1"]);
    daemon.create("v", "2GiB");
    daemon
}

/// Shortens the file of the volume's second extent behind the daemon's back.
fn damage(daemon: &Daemon) {
    File::options().write(true).open(daemon.extent_file("v", 1)).unwrap().set_len(4096).unwrap();
}

/// Creates a group with this rate.
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

/// Asserts that the daemon serves new clients and ends cleanly.
fn serves_and_ends(daemon: Daemon) {
    let mut client = Client::attach(&daemon.nbd_socket(), "v");
    client.write(8192, &[7; 4096]).unwrap();
    assert_eq!(client.read(8192, 4096).unwrap(), [7; 4096]);
    client.disconnect();
    daemon.stop();
}

/// Fails if the first of two parts, which fails at once, is taken for the last one. The reactor panicked.
#[test]
fn write_across_two_pieces_of_lost_extent_fails_once() {
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

/// Fails if the shutdown drains a connection that is already closing. The reactor panicked.
#[test]
fn daemon_stops_while_busy_connection_closes() {
    let state = State::new();
    for round in 0..6 {
        let daemon = state.start(&["--reactors", "1"]);
        if round == 0 {
            daemon.create("v", "2GiB");
        }
        let mut epoch_record = Client::attach(&daemon.nbd_socket(), "v");
        let mut client = Client::attach(&daemon.nbd_socket(), "v");
        // All writes change the same block, so that they wait for each other.
        for _ in 0..1000 {
            client.send(WRITE, 0, 1, 10, &[3; 10]).unwrap();
        }
        (0..round).for_each(|_| assert_eq!(client.reply().unwrap().1, 0));
        drop(client);
        // The reactor has seen the close before it answers this read.
        (0..=round % 3).for_each(|_| assert_eq!(epoch_record.read(4096, 4096).unwrap().len(), 4096));
        daemon.stop();
    }
}

/// Fails if a shared group without bound volumes keeps its old rate after a change.
#[test]
fn shared_group_changed_while_unbound_has_its_new_rate() {
    let daemon = scene();
    group(&daemon, "g", "1IOPS", "true");
    bind(&daemon, "g");
    bind(&daemon, "none");
    limit(&daemon, "g", "100000IOPS");
    bind(&daemon, "g");
    let mut client = Client::attach(&daemon.nbd_socket(), "v");
    (0..100).for_each(|_| assert_eq!(client.read(0, 4096).unwrap().len(), 4096));
    let delayed_ns = &daemon.json(&["volume", "inspect", "v"])["statistics"]["read"]["delayed_ns"];
    // With the old rate, the reads would be held back for 99 s.
    assert!(delayed_ns.as_u64().unwrap() < 50_000_000_000, "{delayed_ns}");
    client.disconnect();
    serves_and_ends(daemon);
}

/// Reads the bytes that a socket holds without waiting for more, and returns their number.
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

/// Fails if a change of a rate admits a waiting request without budget.
#[test]
fn rate_change_admits_no_unpaid_request() {
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
                // The same rate again changes nothing.
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

/// Sends the same request until the server takes no more. Returns the number of bytes that the server took.
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

/// Fails if unread replies pile up in memory, or if the client is not served once it reads.
#[test]
fn client_that_reads_no_reply_is_not_read() {
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

/// Fails if a payload that never arrives delays the shutdown until its timeout.
#[test]
fn shutdown_does_not_wait_for_partial_payload() {
    let daemon = scene();
    let mut client = Client::attach(&daemon.nbd_socket(), "v");
    client.send(WRITE, 0, 0, 1 << 20, &[5; 300_000]).unwrap();
    let log = daemon.state().beside("log");
    let _state = daemon.stop();
    let log = std::fs::read_to_string(log).unwrap();
    assert!(!log.contains("waits no longer for clients"), "{log}");
}

/// Opens a connection whose server accepts block status requests.
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

/// Requests the block status of a range, and returns the type of the reply and its data.
fn block_status(stream: &mut UnixStream, offset: u64, length: u32) -> (u16, Vec<u8>) {
    stream.write_all(&request(BLOCK_STATUS, 0, 1, offset, length)).unwrap();
    let mut head = [0; 20];
    stream.read_exact(&mut head).unwrap();
    let mut data = vec![0; u32::from_be_bytes(head[16..].try_into().unwrap()) as usize];
    stream.read_exact(&mut data).unwrap();
    (u16::from_be_bytes([head[6], head[7]]), data)
}

/// Fails if data lost with the end of its file is reported as a hole, which a client that duplicates the
/// volume would skip.
#[test]
fn block_status_of_lost_data_is_an_error() {
    const STATUS: u16 = 5;
    const ERROR: u16 = 1 << 15 | 1;
    let daemon = scene();
    damage(&daemon);
    let mut stream = attach_with_status(&daemon, "v");
    assert_eq!(block_status(&mut stream, 0, 1 << 20).0, STATUS);
    // The status is requested before and after a read has found the damage.
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

/// Returns the processor time of the reactor threads, in ticks of 10 ms.
fn ticks(daemon: &Daemon) -> u64 {
    let threads = std::fs::read_dir(format!("/proc/{}/task", daemon.process_id())).unwrap();
    // A thread may end in between.
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

/// Attaches a client with many unread blocks, so that only one of two buffers is left for unaligned zeroes.
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
        // The requests before are in flight once another client was served.
        epoch_record.read(0, 4096).unwrap();
    }
    client
}

/// Fails if a request that gets only one of two buffers wakes itself for ever by releasing it.
#[test]
fn unaligned_zeroes_without_buffer_use_no_processor() {
    let daemon = scene();
    let mut writer = Client::attach(&daemon.nbd_socket(), "v");
    writer.write(0, &[1; 16_384]).unwrap();
    let starving: Vec<Client> = (0..3).map(|_| short_of_a_buffer(&daemon, &mut writer)).collect();
    let before = ticks(&daemon);
    // The command takes two samples, one second apart.
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

/// Fails if a removed ceiling admits requests of a connection that the first admitted request has just ended.
#[test]
fn ceiling_removal_survives_connection_that_it_ends() {
    let daemon = scene();
    damage(&daemon);
    let mut client = Client::attach(&daemon.nbd_socket(), "v");
    assert_eq!(client.read(SECOND_EXTENT, 4096), Err(EIO));
    group(&daemon, "g", "1IOPS", "false");
    bind(&daemon, "g");
    client.read(0, 4096).unwrap();
    // Half of the data of the first read is lost, which a simple reply cannot report once it has begun.
    client.send(READ, 0, SECOND_EXTENT - 4096, 8192, &[]).unwrap();
    client.stream.write_all(&request(READ, 0, 9, 0, 4096).repeat(3)).unwrap();
    bind(&daemon, "none");
    drop(client);
    serves_and_ends(daemon);
}

/// Fails if an extent is marked lost because the daemon had no free descriptors when it first opened the
/// extent.
#[test]
fn descriptor_shortage_loses_no_extent() {
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

/// Fails if a disconnect refuses earlier requests that wait for their ceiling.
#[test]
fn disconnect_waits_for_earlier_requests() {
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

/// Attaches clients until told to stop, and returns them.
fn keep_attaching(daemon: &Daemon, is_over: &AtomicBool) -> Vec<Client> {
    let mut clients = Vec::new();
    while !is_over.load(Ordering::Relaxed) && clients.len() < 100 {
        clients.extend(Client::try_attach(&daemon.nbd_socket(), "v"));
    }
    clients
}

/// Fails if a client that attaches during a shrink works with the old size.
#[test]
fn no_client_keeps_old_size_after_shrink() {
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

/// Fails if a client that asked for the size before a shrink still gets the old size when it opens the
/// export.
#[test]
fn slow_handshake_gets_size_after_shrink() {
    let daemon = scene();
    let mut stream = greeted(&daemon.nbd_socket()).unwrap();
    // The client requests the information, then the volume shrinks, and then the client opens the export.
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
