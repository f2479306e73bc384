//! Hostile clients: a client that sends nonsense, lies, stalls or vanishes loses only its own connection.
//!
//! Well-behaved clients of the same volume and of another one stay served. The daemon's memory stays within
//! its stated bound.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use crate::common::daemon::{Daemon, State};
use crate::common::load::Load;
use crate::common::nbd::*;
use crate::common::random::Random;
use crate::common::{wait_for, wait_until};
use weir_types::bounds::*;

/// Memory that the daemon may use beyond its named bounds, in bytes.
///
/// It covers the program, threads, the catalogue with its cache, the API's answers, and memory kept by the
/// allocator.
const BASE_BYTES: u64 = 96 << 20;
/// Bytes of one request's state and of the head of its reply.
const REQUEST_STATE_BYTES: u64 = 512;
const REACTORS: u64 = 2;

/// Returns the most memory that the bounds allow a daemon with this many NBD connections.
fn memory_bound(connections: u64) -> u64 {
    let requests = CONNECTION_REQUESTS_MAX as u64 * REQUEST_STATE_BYTES;
    let connection = RECEIVE_BUFFER_BYTES as u64 + requests;
    let handshakes = HANDSHAKES_PER_LISTENER_MAX as u64 * (2 << 16);
    BASE_BYTES + REACTORS * BUFFER_POOL_BYTES as u64 + connections * connection + handshakes
}

/// Daemon with two volumes on different reactors, and a well-behaved client of each.
struct Scene {
    daemon: Daemon,
    loads: [Load; 2],
}

impl Scene {
    fn with_sockets() -> Scene {
        Scene::on(Daemon::fresh())
    }

    fn on(daemon: Daemon) -> Scene {
        daemon.create("target", "1GiB");
        daemon.create("other", "1GiB");
        let socket = daemon.nbd_socket();
        // The hostile clients use other offsets of the target.
        let loads = [Load::start(&socket, "target", 512 << 20), Load::start(&socket, "other", 0)];
        Scene { daemon, loads }
    }

    fn socket(&self) -> PathBuf {
        self.daemon.nbd_socket()
    }

    /// Asserts that the well-behaved clients advance and that memory is within its bound.
    fn all_is_well(&mut self, connections: u64) {
        self.loads.iter().for_each(Load::advances);
        assert!(self.daemon.is_alive(), "the daemon died");
        let (resident, bound) = (self.daemon.resident_bytes(), memory_bound(connections));
        assert!(resident <= bound, "{} MiB are resident, {} are allowed", resident >> 20, bound >> 20);
    }

    /// Asserts that new clients are served too, and that the connections of lost clients are gone.
    fn finish(mut self) {
        let mut client = Client::attach(&self.socket(), "target");
        client.write(0, &[7; 4096]).unwrap();
        assert_eq!(client.read(0, 4096).unwrap(), [7; 4096]);
        client.disconnect();
        self.all_is_well(4);
        self.wait_for_connections(2);
        let served: u64 = self.loads.into_iter().map(Load::finish).sum();
        println!(
            "{served} requests of well-behaved clients, {} MiB resident",
            self.daemon.resident_bytes() >> 20
        );
        self.daemon.stop();
    }

    fn wait_for_connections(&self, count: u64) {
        wait_until("the hostile clients' connections are gone", || {
            self.daemon.json(&["status"])["volumes"]["connections"] == count
        });
    }
}

/// Sends bytes. Errors are ignored, because the server may have hung up already.
fn send(stream: &mut UnixStream, bytes: &[u8]) {
    let _ = stream.write_all(bytes);
}

/// Reads until the server hangs up.
fn read_to_the_end(mut stream: UnixStream) {
    let _ = stream.shutdown(Shutdown::Write);
    let _ = std::io::copy(&mut stream, &mut std::io::sink());
}

#[test]
fn nonsense_in_handshake_ends_only_its_connection() {
    let mut scene = Scene::with_sockets();
    let mut random = Random::seeded();
    let lie = |length: u32| {
        let mut bytes = OPTION_MAGIC.to_be_bytes().to_vec();
        bytes.extend(OPTION_GO.to_be_bytes());
        bytes.extend(length.to_be_bytes());
        bytes
    };
    let mut long_name = go("target");
    long_name[16..20].copy_from_slice(&u32::MAX.to_be_bytes());
    let recovered_extents: Vec<Vec<u8>> = vec![
        random.bytes(100_000),
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(),
        vec![0; 70_000],
        lie(u32::MAX),
        lie(1 << 20),
        [lie(40), random.bytes(40)].concat(),
        [lie(65_536), random.bytes(65_536)].concat(),
        long_name,
        go(&"n".repeat(5000)),
        go("../../target"),
        go("target\0"),
        option(OPTION_EXPORT_NAME, b"nothing"),
        option(OPTION_EXPORT_NAME, &[0xff; 100]),
        option(OPTION_ABORT, b""),
        option(OPTION_LIST, b"unexpected"),
        option(12_345, &random.bytes(1000)),
        option(OPTION_LIST, b"").repeat(3000),
    ];
    for bytes in recovered_extents {
        // The bytes come at once, as the client's flags, and as an option.
        for mut stream in [connect(&scene.socket()), greeted(&scene.socket()).unwrap()] {
            send(&mut stream, &bytes);
            read_to_the_end(stream);
        }
        scene.all_is_well(8);
    }
    scene.finish();
}

#[test]
fn clients_that_vanish_at_every_byte() {
    let mut scene = Scene::with_sockets();
    let structured = option(OPTION_STRUCTURED_REPLY, b"");
    let write = [request(WRITE, 0, 1, 0, 8192), vec![1; 8192]].concat();
    let whole =
        [3u32.to_be_bytes().to_vec(), structured, go("target"), request(READ, 0, 2, 0, 300_000), write]
            .concat();
    let steps = (0..140).chain((140..whole.len()).step_by(509));
    for length in steps {
        let mut stream = connect(&scene.socket());
        send(&mut stream, &whole[..length]);
        drop(stream);
        if length % 20 == 0 {
            scene.all_is_well(64);
        }
    }
    scene.finish();
}

#[test]
fn nonsense_among_requests_ends_only_its_connection() {
    let mut scene = Scene::with_sockets();
    let mut random = Random::seeded();
    let mut streams: Vec<Vec<u8>> = (0..20).map(|_| random.bytes(300_000)).collect();
    let mut wrong_magic = request(READ, 0, 1, 0, 4096);
    wrong_magic[0] = 0;
    streams.push(wrong_magic);
    streams.push(request(READ, 0, 1, 0, 4096).repeat(2)[..40].to_vec());
    for command in 0..12 {
        for flags in [0, 1, 2, 4, 8, 16, 32, 0xffff] {
            let lengths = [
                (0, 0),
                (0, u32::MAX),
                (u64::MAX, 1),
                (u64::MAX - 10, u32::MAX),
                (1 << 30, 1),
                (7, 33 << 20),
            ];
            streams.extend(lengths.map(|(offset, length)| request(command, flags, 9, offset, length)));
        }
    }
    for (number, bytes) in streams.iter().enumerate() {
        let mut client = Client::attach(&scene.socket(), "target");
        send(&mut client.stream, bytes);
        read_to_the_end(client.stream);
        if number % 50 == 0 {
            scene.all_is_well(8);
        }
    }
    scene.finish();
}

#[test]
fn refused_requests_do_not_end_the_connection() {
    let scene = Scene::with_sockets();
    let mut client = Client::attach(&scene.socket(), "target");
    let size = client.size;
    assert_eq!(client.try_read(size, 4096).unwrap(), Err(EINVAL));
    assert_eq!(client.try_read(size - 1, 2).unwrap(), Err(EINVAL));
    assert_eq!(client.try_read(u64::MAX - 5, 4096).unwrap(), Err(EINVAL));
    // The server must read past the payload of a refused write of any length.
    for length in [1, 4096, 1 << 20, 32 << 20] {
        assert_eq!(client.write(size, &vec![5; length]), Err(ENOSPC), "{length} bytes beyond the end");
    }
    assert_eq!(client.call(99, 0, 0, 0, &[]).unwrap(), Err(EINVAL));
    assert_eq!(client.call(BLOCK_STATUS, 0, 0, 4096, &[]).unwrap(), Err(EINVAL));
    client.write(size - 4096, &[6; 4096]).unwrap();
    assert_eq!(client.read(size - 4096, 4096).unwrap(), [6; 4096]);
    client.disconnect();
    scene.finish();
}

#[test]
fn clients_that_never_read_leave_others_served() {
    let mut scene = Scene::with_sockets();
    let mut writer = Client::attach(&scene.socket(), "target");
    for piece in 0..32 {
        writer.write(piece << 20, &Random::new(piece).bytes(1 << 20)).unwrap();
    }
    // Each client requests far more data than all buffers together hold.
    let stalled: Vec<Client> = (0..24)
        .map(|number| {
            let mut client = Client::attach(&scene.socket(), "target");
            client.stream.set_nonblocking(true).unwrap();
            let (count, length) = [(2000, 32 << 20), (5000, 1 << 20), (20_000, 4096)][number % 3];
            for _ in 0..count {
                if client.send(READ, 0, 0, length, &[]).is_err() {
                    break;
                }
            }
            client
        })
        .collect();
    for _ in 0..5 {
        scene.all_is_well(stalled.len() as u64 + 4);
    }
    // The writer has a fair share of the buffers, too.
    writer.write(100 << 20, &vec![3; 8 << 20]).unwrap();
    assert!(writer.read(100 << 20, 8 << 20).unwrap().iter().all(|&byte| byte == 3));
    drop(stalled);
    writer.disconnect();
    scene.finish();
}

#[test]
fn clients_stalled_in_payload_leave_others_served() {
    let mut scene = Scene::with_sockets();
    let stalled: Vec<Client> = (0..60)
        .map(|number| {
            let mut client = Client::attach(&scene.socket(), "target");
            let length = [32 << 20, 1 << 20, 65_536, 5000][number % 4];
            let sent = [0, 1, 4096, 200_000][number / 4 % 4].min(length as usize - 1);
            client.send(WRITE, 0, (number as u64) << 12, length, &vec![9; sent]).unwrap();
            client
        })
        .collect();
    for _ in 0..3 {
        scene.all_is_well(64);
    }
    // Some clients send the rest of their payload, and their requests are answered normally.
    for (number, mut client) in stalled.into_iter().enumerate().skip(40) {
        let length = [32usize << 20, 1 << 20, 65_536, 5000][number % 4];
        let sent = [0, 1, 4096, 200_000][number / 4 % 4].min(length - 1);
        client.stream.write_all(&vec![9; length - sent]).unwrap();
        assert_eq!(client.reply().unwrap().1, 0);
    }
    scene.finish();
}

#[test]
fn clients_that_reset_leave_others_served() {
    let daemon = State::new().start(&["--reactors", "2", "--nbd-listen", "tcp:127.0.0.1:0"]);
    let address = daemon.tcp_address();
    let mut scene = Scene::on(daemon);
    for number in 0..60 {
        let mut stream = TcpStream::connect(&address).unwrap();
        stream.write_all(&3u32.to_be_bytes()).unwrap();
        stream.write_all(&go("target")).unwrap();
        (0..number % 7).for_each(|_| stream.write_all(&request(READ, 0, 1, 0, 1 << 20)).unwrap());
        stream.write_all(&request(WRITE, 0, 1, 0, 1 << 20)).unwrap();
        // Some input stays unread, so that the kernel resets the connection.
        let _ = stream.read(&mut [0; 5]);
        drop(stream);
        if number % 10 == 0 {
            scene.all_is_well(64);
        }
    }
    scene.finish();
}

#[test]
fn idle_handshakes_leave_others_served() {
    let mut scene = Scene::with_sockets();
    let idle: Vec<UnixStream> = (0..HANDSHAKES_PER_LISTENER_MAX + 50)
        .map_while(|_| {
            // The kernel's accept queue may be full: the test is about this bound.
            let stream = UnixStream::connect(scene.socket()).ok()?;
            stream.set_nonblocking(true).ok()?;
            Some(stream)
        })
        .collect();
    assert!(idle.len() >= HANDSHAKES_PER_LISTENER_MAX);
    scene.all_is_well(8);
    drop(idle);
    scene.finish();
}

#[test]
fn connections_beyond_the_limit_are_refused() {
    let daemon = State::new().start(&["--reactors", "1"]);
    daemon.create("target", "1GiB");
    let socket = daemon.nbd_socket();
    let attach = |_| Client::attach(&socket, "target");
    let mut clients: Vec<Client> = (0..CONNECTIONS_PER_VOLUME_MAX).map(attach).collect();
    clients.iter_mut().for_each(|client| assert_eq!(client.read(0, 512).unwrap().len(), 512));
    for _ in 0..20 {
        let mut surplus = Client::attach(&socket, "target");
        assert!(surplus.is_ended(), "a connection beyond the limit was served");
    }
    clients.iter_mut().for_each(|client| assert_eq!(client.read(4096, 512).unwrap().len(), 512));
    let (resident, bound) = (daemon.resident_bytes(), memory_bound(CONNECTIONS_PER_VOLUME_MAX as u64));
    assert!(resident <= bound, "{} MiB are resident, {} are allowed", resident >> 20, bound >> 20);
    clients.truncate(CONNECTIONS_PER_VOLUME_MAX - 1);
    let mut next = wait_for("a place is free again", || {
        let mut client = Client::attach(&socket, "target");
        client.try_read(0, 512).is_ok_and(|answer| answer.is_ok()).then_some(client)
    });
    next.write(0, &[1; 512]).unwrap();
    drop(clients);
    daemon.stop();
}

#[test]
fn idle_connections_do_not_block_attaching() {
    let daemon = State::new().start(&["--reactors", "1"]);
    daemon.create("last", "1GiB");
    let socket = daemon.nbd_socket();
    let mut idle = Vec::new();
    for number in 0..8 {
        let name = format!("greedy-{number}");
        daemon.create(&name, "1GiB");
        let mut clients: Vec<Client> = (0..70).map(|_| Client::attach(&socket, &name)).collect();
        assert_eq!(clients[0].try_read(0, 512).unwrap(), Ok(vec![0; 512]), "the first client of {name}");
        idle.extend(clients);
    }
    let mut client = Client::attach(&socket, "last");
    client.write(0, &[7; 4096]).unwrap();
    assert_eq!(client.read(0, 4096).unwrap(), [7; 4096]);
    let (resident, bound) = (daemon.resident_bytes(), memory_bound(idle.len() as u64));
    assert!(resident <= bound, "{} MiB are resident, {} are allowed", resident >> 20, bound >> 20);
    drop(idle);
    daemon.stop();
}

/// Creates a volume without a process for the command.
fn create_quickly(daemon: &Daemon, name: &str, size_bytes: u64) {
    let mut stream = UnixStream::connect(daemon.state().path().join("api.sock")).unwrap();
    let body = format!("{{\"name\": \"{name}\", \"size_bytes\": {size_bytes}}}");
    let head =
        "POST /v1/tenants/default/volumes HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/json";
    write!(stream, "{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.contains(" 201 "), "{answer}");
}

#[test]
fn deaf_clients_of_many_volumes_leave_others_served() {
    const SIZE_BYTES: u32 = 512 << 10;
    // Every connection may always hold a minimum of buffers. With so many volumes, the first connections use
    // up the shared rest of a reactor's buffers.
    const VOLUMES: usize =
        (BUFFER_POOL_BYTES / CONNECTION_BUFFER_BYTES_MIN - CONNECTIONS_SHARED_PER_REACTOR_MAX) + 44;
    let daemon = State::new().start(&["--reactors", "1"]);
    let socket = daemon.nbd_socket();
    let volumes: Vec<String> = (0..VOLUMES).map(|number| format!("v{number}")).collect();
    for name in &volumes {
        create_quickly(&daemon, name, SIZE_BYTES.into());
        let mut writer = Client::attach(&socket, name);
        writer.write(0, &Random::new(1).bytes(SIZE_BYTES as usize)).unwrap();
        writer.disconnect();
    }
    create_quickly(&daemon, "last", SIZE_BYTES.into());
    let mut client = Client::attach(&socket, "last");
    let deaf: Vec<Client> = volumes
        .iter()
        .chain(&volumes)
        .filter_map(|name| {
            let mut client = Client::try_attach(&socket, name).ok()?;
            client.stream.set_nonblocking(true).unwrap();
            while client.send(READ, 0, 0, SIZE_BYTES, &[]).is_ok() {}
            Some(client)
        })
        .collect();
    // The buffers run out during these rounds.
    for _ in 0..50 {
        client.write(0, &[7; 256 << 10]).unwrap();
        assert_eq!(client.read(0, 256 << 10).unwrap(), vec![7; 256 << 10]);
    }
    let connections = daemon.json(&["status"])["volumes"]["connections"].as_u64().unwrap();
    assert!(
        connections < deaf.len() as u64,
        "{connections} of {} clients that read nothing are left",
        deaf.len()
    );
    drop(deaf);
    daemon.stop();
}

/// Returns true if a handshake was greeted and is still open.
fn is_under_way(mut stream: &UnixStream) -> bool {
    let is_greeted = stream.read_exact(&mut [0; 18]).is_ok();
    stream.set_nonblocking(true).unwrap();
    is_greeted && stream.read(&mut [0; 1]).is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
}

#[test]
fn idle_handshakes_do_not_delay_new_clients() {
    let daemon = Daemon::fresh();
    daemon.create("target", "1GiB");
    // A round proves nothing if handshakes timed out because the machine was busy. It is repeated then.
    wait_until("a client is served while half of the idle handshakes are under way", || {
        let idle: Vec<UnixStream> = (0..200).map(|_| connect(&daemon.nbd_socket())).collect();
        let mut client = Client::attach(&daemon.nbd_socket(), "target");
        assert_eq!(client.read(0, 512).unwrap().len(), 512);
        idle[100..].iter().all(is_under_way)
    });
    daemon.stop();
}

#[test]
fn stalled_handshake_is_closed() {
    let daemon = Daemon::fresh();
    let mut silent = connect(&daemon.nbd_socket());
    let mut greeted = greeted(&daemon.nbd_socket()).unwrap();
    let mut received = Vec::new();
    silent.read_to_end(&mut received).unwrap();
    assert_eq!(received.len(), 18, "the greeting and the end");
    assert_eq!(greeted.read(&mut [0; 1]).unwrap(), 0);
    daemon.stop();
}

#[test]
fn limited_volume_pushes_back_and_memory_is_bounded() {
    let mut scene = Scene::with_sockets();
    scene.daemon.ok(&["qos", "policy-group", "create", "slow", "--max-throughput", "1MB/s"]);
    scene.daemon.create("limited", "1GiB");
    scene.daemon.ok(&["volume", "modify", "limited", "--qos-policy-group", "slow"]);
    let mut payload = request(WRITE, 0, 1, 0, 1 << 20);
    payload.resize(payload.len() + (1 << 20), 1);
    let pushing: Vec<UnixStream> = (0..16)
        .map(|_| {
            let client = Client::attach(&scene.socket(), "limited");
            client.stream.set_nonblocking(true).unwrap();
            let mut stream = client.stream;
            // The loop ends when the server takes no more.
            while stream.write_all(&payload).is_ok() {}
            stream
        })
        .collect();
    for _ in 0..5 {
        scene.all_is_well(20);
    }
    println!("{} MiB resident under 16 pushing connections", scene.daemon.resident_bytes() >> 20);
    drop(pushing);
    scene.finish();
}

/// Attaches clients of a volume that send requests of all kinds and never read a reply.
fn deaf_clients(daemon: &Daemon, volume: &str) -> Vec<Client> {
    let begin = |number: u64| {
        let mut client = Client::attach(&daemon.nbd_socket(), volume);
        client.stream.set_nonblocking(true).unwrap();
        for step in 0..400u64 {
            let offset = ((step * 37 + number) % 100) << 20;
            let _ = match (step + number) % 4 {
                0 => client.send(WRITE, FUA, offset + number, 5000, &[1; 5000]),
                1 => client.send(WRITE_ZEROES, NO_HOLE, offset, 1 << 20, &[]),
                2 => client.send(FLUSH, 0, 0, 0, &[]),
                _ => client.send(READ, 0, offset, 1 << 20, &[]),
            };
        }
        client
    };
    (0..8).map(begin).collect()
}

#[test]
fn force_deletes_and_shrinks_busy_volumes() {
    let mut scene = Scene::with_sockets();
    for round in 0..10 {
        scene.daemon.create("brief", "2GiB");
        let mut deaf = deaf_clients(&scene.daemon, "brief");
        if round % 2 == 0 {
            scene.daemon.ok(&["volume", "resize", "brief", "--size", "50MiB", "--force"]);
            let mut client = Client::attach(&scene.socket(), "brief");
            assert_eq!(client.size, 50 << 20);
            assert_eq!(client.read(0, 4096).unwrap().len(), 4096);
            deaf.push(client);
        }
        scene.daemon.ok(&["volume", "delete", "brief", "--force"]);
        for client in &mut deaf {
            client.stream.set_nonblocking(false).unwrap();
            let _ = std::io::copy(&mut client.stream, &mut std::io::sink());
        }
        scene.all_is_well(16);
    }
    // Space is reclaimed in the background.
    let count = || std::fs::read_dir(scene.daemon.state().volumes()).unwrap().count();
    crate::common::wait_until("no files are left", || count() == 2);
    scene.finish();
}

#[test]
fn daemon_with_deaf_clients_stops_on_sigterm() {
    let daemon = Daemon::fresh();
    daemon.create("deaf", "1GiB");
    let clients = deaf_clients(&daemon, "deaf");
    daemon.terminate();
    assert!(daemon.wait().success());
    drop(clients);
}

#[test]
fn lost_client_with_delayed_requests_is_removed() {
    let daemon = Daemon::fresh();
    daemon.ok(&["qos", "policy-group", "create", "crawl", "--max-throughput", "10kB/s"]);
    daemon.ok(&["volume", "create", "held", "--size", "1", "--qos-policy-group", "crawl"]);
    let mut client = Client::attach(&daemon.nbd_socket(), "held");
    client.write(0, &[1; 4096]).unwrap();
    // The first write runs at once and uses the rate of several minutes. The second waits with its payload in
    // the socket.
    client.write(0, &vec![1; 4 << 20]).unwrap();
    client.send(WRITE, 0, 0, 4 << 20, &[1; 100_000]).unwrap();
    drop(client);
    wait_until("the connection is gone", || daemon.json(&["volume", "inspect", "held"])["connections"] == 0);
}
