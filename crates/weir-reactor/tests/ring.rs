//! Tests of the ring on real sockets and files.

#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use weir_reactor::{
    BufferPool, Carried, Clock, Descriptor, FallocateMode, IoMethod, Ring, RingConfig, SendBatch,
};

const METHODS: [IoMethod; 2] = [IoMethod::Uring, IoMethod::Threads];

fn ring(method: IoMethod, registered_bytes: usize) -> (Ring<u32>, BufferPool) {
    let pool = BufferPool::new(1 << 20).unwrap();
    let config = RingConfig { method, registered_bytes, ..RingConfig::default() };
    (Ring::new(config, pool.clone()).unwrap(), pool)
}

fn next(ring: &mut Ring<u32>) -> (u32, Result<u32, std::io::Error>, Carried) {
    loop {
        if let Some(done) = ring.next_completion() {
            return (done.token, done.result, done.carried);
        }
        ring.wait(None).unwrap();
    }
}

#[test]
fn files_are_written_synced_and_read_back_on_disk_and_in_memory() {
    for method in METHODS {
        for folder in ["/dev/shm", "."] {
            for registered_bytes in [0, 1 << 20] {
                let (mut ring, pool) = ring(method, registered_bytes);
                let path = tempfile::NamedTempFile::new_in(folder).unwrap();
                let file = Descriptor::file(Descriptor::open_direct(path.path()).unwrap());
                let buffer = pool.take(8192).unwrap().filled_from(&[7; 8192]);
                ring.write(1, &file, 4096, buffer, 0..8192, true);
                assert!(matches!(next(&mut ring), (1, Ok(8192), Carried::Buffer(_))));
                ring.sync(2, &file);
                assert!(matches!(next(&mut ring), (2, Ok(0), _)));
                ring.fallocate(3, &file, 4096, 4096, FallocateMode::Release);
                assert!(matches!(next(&mut ring), (3, Ok(0), _)));
                ring.read(4, &file, 4096, pool.take(8192).unwrap(), 0..8192);
                let (4, Ok(8192), Carried::Unfilled(memory)) = next(&mut ring) else {
                    panic!("the read failed")
                };
                let buffer = memory.completed();
                assert!(buffer[..4096].iter().all(|&b| b == 0) && buffer[4096..8192].iter().all(|&b| b == 7));
            }
        }
    }
}

#[test]
fn batches_arrive_whole_and_in_order() {
    for method in METHODS {
        let (mut ring, pool) = ring(method, 0);
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let socket = Descriptor::socket(ours.into());
        let mut batch = Box::<SendBatch>::default();
        let mut expected = Vec::new();
        for n in 0..100u8 {
            let buffer = pool.take(4096).unwrap().filled_from(&[n; 4096]);
            batch.push_data(&[n; 16], buffer, 10..4000);
            batch.push_zeroes(&[1], 3);
            expected.extend([n; 16 + 3990]);
            expected.extend([1, 0, 0, 0]);
        }
        let length = batch.len();
        let reader = std::thread::spawn(move || {
            let mut all = vec![0; length];
            theirs.read_exact(&mut all).map(|()| all)
        });
        ring.send(9, &socket, batch);
        let (9, Ok(count), Carried::Batch(_)) = next(&mut ring) else { panic!("the send failed") };
        assert_eq!(count as usize, length);
        assert!(reader.join().unwrap().unwrap() == expected);
    }
}

#[test]
fn oversized_batch_is_sent_completely() {
    for method in METHODS {
        let (mut ring, _pool) = ring(method, 0);
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let socket = Descriptor::socket(ours.into());
        let mut batch = Box::<SendBatch>::default();
        (0..200u8).for_each(|n| batch.push_bytes(vec![n; 30_001]));
        let length = batch.len();
        ring.send(5, &socket, batch);
        assert!(!ring.has_ended(), "six megabytes fit a socket at once");
        let reader = std::thread::spawn(move || {
            let mut all = vec![0; length];
            theirs.read_exact(&mut all).map(|()| all)
        });
        assert!(matches!(next(&mut ring), (5, Ok(count), Carried::Batch(_)) if count as usize == length));
        let all = reader.join().unwrap().unwrap();
        assert!(all.iter().enumerate().all(|(at, &byte)| byte == (at / 30_001) as u8));
    }
}

#[test]
fn receive_ends_with_its_peer() {
    for method in METHODS {
        let (mut ring, pool) = ring(method, 0);
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let socket = Descriptor::socket(ours.into());
        theirs.write_all(b"hello").unwrap();
        ring.receive(1, &socket, vec![0; 64].into(), 10..64);
        let (1, Ok(5), Carried::Bytes(bytes)) = next(&mut ring) else { panic!("nothing came") };
        assert_eq!(&bytes[10..15], b"hello");
        ring.receive_payload(2, &socket, pool.take(4096).unwrap(), 4096);
        theirs.write_all(&[3; 100]).unwrap();
        drop(theirs);
        let (2, Ok(100), Carried::Unfilled(memory)) = next(&mut ring) else { panic!("nothing came") };
        assert_eq!(memory.completed()[..], [3; 100], "what did not come is out of view");
    }
}

#[test]
fn waker_and_timeout_end_a_wait() {
    for method in METHODS {
        let (mut ring, _pool) = ring(method, 0);
        let waker = ring.waker();
        let thread = std::thread::spawn(move || waker.wake());
        ring.wait(None).unwrap();
        thread.join().unwrap();
        assert!(ring.next_completion().is_none());
        let before_ns = Clock.now_ns();
        ring.wait(Some(1_000_000)).unwrap();
        assert!(Clock.now_ns() - before_ns >= 1_000_000 || ring.next_completion().is_none());
    }
}

#[test]
fn operations_that_end_at_once_do_not_keep_others_from_ending() {
    const BUSY: u32 = 40;
    const WAITING: u32 = 1_000;
    for method in METHODS {
        let (mut ring, _pool) = ring(method, 0);
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (waiting, mut waited_for) = UnixStream::pair().unwrap();
        let socket = Descriptor::socket(ours.into());
        let waiting = Descriptor::socket(waiting.into());
        drop(theirs);
        ring.receive(WAITING, &waiting, vec![0; 16].into(), 0..16);
        let end_at_once =
            |ring: &mut Ring<u32>, token| ring.receive(token, &socket, vec![0; 16].into(), 0..16);
        (0..BUSY).for_each(|token| end_at_once(&mut ring, token));
        waited_for.write_all(&[7; 16]).unwrap();
        let is_found = (0..1_000).any(|_| {
            ring.wait(Some(0)).unwrap();
            let token = ring.next_completion().expect("many have ended").token;
            end_at_once(&mut ring, token);
            token == WAITING
        });
        assert!(is_found, "{method:?}: only operations that ended at once were taken");
    }
}

#[test]
fn wake_up_is_told_until_it_is_asked_for() {
    for method in METHODS {
        let (mut ring, _pool) = ring(method, 0);
        let _ = ring.take_wake_up();
        // The second wakes the ring before anybody waits for it.
        for is_early in [false, true] {
            let waker = ring.waker();
            let thread = std::thread::spawn(move || waker.wake());
            let thread = if is_early {
                thread.join().unwrap();
                None
            } else {
                Some(thread)
            };
            while !ring.take_wake_up() {
                ring.wait(None).unwrap();
                assert!(ring.next_completion().is_none(), "{method:?}");
            }
            thread.into_iter().for_each(|thread| thread.join().unwrap());
        }
        assert_eq!(ring.take_wake_up(), method == IoMethod::Threads, "{method:?}: each is told once");
    }
}

#[test]
fn look_finds_ready_completions_or_times_out() {
    for method in METHODS {
        let (mut ring, _pool) = ring(method, 0);
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let socket = Descriptor::socket(ours.into());
        ring.receive(1, &socket, vec![0; 16].into(), 0..16);
        assert!(!ring.look(1_000_000), "nothing was sent");
        theirs.write_all(b"now").unwrap();
        assert!(ring.look(u64::MAX));
        ring.wait(Some(0)).unwrap();
        let done = ring.next_completion().expect("a look that finds something is right");
        assert_eq!((done.token, done.result.unwrap()), (1, 3));
    }
}

#[test]
fn drive_use_is_reported_for_drives_only() {
    for method in METHODS {
        let (mut ring, pool) = ring(method, 0);
        for (folder, is_drive) in [("/dev/shm", false), (".", true)] {
            let path = tempfile::NamedTempFile::new_in(folder).unwrap();
            let file = Descriptor::file(Descriptor::open_direct(path.path()).unwrap());
            ring.write(1, &file, 0, pool.take(4096).unwrap().zeroed(), 0..4096, false);
            assert_eq!(ring.take_drive_use(), is_drive, "while it runs, in {folder}");
            let _ = next(&mut ring);
            assert_eq!(ring.take_drive_use(), is_drive, "once it has ended, in {folder}");
            assert!(!ring.take_drive_use(), "asked again, in {folder}");
        }
    }
}

#[test]
fn dropped_ring_returns_all_buffers() {
    for method in METHODS {
        let (mut ring, pool) = ring(method, 0);
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let socket = Descriptor::socket(ours.into());
        ring.receive_payload(1, &socket, pool.take(4096).unwrap(), 4096);
        ring.wait(Some(0)).unwrap();
        drop(ring);
        assert_eq!(pool.free_bytes(), pool.total_bytes());
    }
}

#[test]
fn memory_outside_the_pool_is_never_submitted_as_registered() {
    let mut pools: Vec<BufferPool> = (0..3).map(|_| BufferPool::new(1 << 20).unwrap()).collect();
    pools.sort_by_key(|pool| pool.take(4096).unwrap().zeroed().as_ptr() as usize);
    let [below, own, above] = <[BufferPool; 3]>::try_from(pools).ok().unwrap();
    let config = RingConfig { registered_bytes: 1 << 20, ..RingConfig::default() };
    let mut ring: Ring<u32> = Ring::new(config, own.clone()).unwrap();
    assert!(ring.registered_bytes() > 0, "without registered memory there is nothing to confuse");
    let path = tempfile::NamedTempFile::new_in(".").unwrap();
    let file = Descriptor::file(Descriptor::open_direct(path.path()).unwrap());
    for (token, pool) in (0..).zip([own, below, above]) {
        let buffer = pool.take(8192).unwrap().filled_from(&[9; 8192]);
        ring.write(token, &file, 0, buffer, 0..8192, false);
        let (_, result, _) = next(&mut ring);
        assert_eq!(result.map_err(|error| error.to_string()), Ok(8192), "a write from pool {token}");
        ring.read(token, &file, 0, pool.take(8192).unwrap(), 0..8192);
        let (_, result, carried) = next(&mut ring);
        assert_eq!(result.map_err(|error| error.to_string()), Ok(8192), "a read into pool {token}");
        assert_eq!(carried.into_unfilled().unwrap().completed()[..], [9; 8192]);
    }
}

#[test]
fn short_read_shows_only_what_was_read() {
    for method in METHODS {
        for folder in ["/dev/shm", "."] {
            let (mut ring, pool) = ring(method, 1 << 20);
            drop(pool.take(16384).unwrap().filled_from(&[1; 16384]));
            let path = tempfile::NamedTempFile::new_in(folder).unwrap();
            let file = Descriptor::file(Descriptor::open_direct(path.path()).unwrap());
            ring.write(1, &file, 0, pool.take(4096).unwrap().filled_from(&[2; 4096]), 0..4096, false);
            assert!(matches!(next(&mut ring), (1, Ok(4096), _)));
            ring.read(2, &file, 0, pool.take(16384).unwrap(), 0..8192);
            let (2, Ok(4096), Carried::Unfilled(memory)) = next(&mut ring) else { panic!("the read failed") };
            assert_eq!(memory.filled(), [2; 4096], "in {folder}");
            ring.read(3, &file, 0, memory, 4096..8192);
            let (3, Ok(4096), Carried::Unfilled(memory)) = next(&mut ring) else { panic!("the read failed") };
            assert_eq!(memory.completed()[..], [2; 8192], "the rest of a short read follows it, in {folder}");
        }
    }
}

#[test]
fn threads_carry_out_more_operations_than_there_are_workers() {
    let pool = BufferPool::new(8 << 20).unwrap();
    let config = RingConfig { method: IoMethod::Threads, ..RingConfig::default() };
    let mut ring: Ring<u32> = Ring::new(config, pool.clone()).unwrap();
    let path = tempfile::NamedTempFile::new_in(".").unwrap();
    let file = Descriptor::file(Descriptor::open_direct(path.path()).unwrap());
    for block in 0..1000u32 {
        let buffer = pool.take(4096).unwrap().filled_from(&[block as u8; 4096]);
        ring.write(block, &file, u64::from(block) * 4096, buffer, 0..4096, block % 100 == 0);
    }
    let mut ended: Vec<u32> = (0..1000)
        .map(|_| next(&mut ring))
        .map(|(token, result, _)| {
            assert_eq!(result.unwrap(), 4096, "block {token}");
            token
        })
        .collect();
    ended.sort_unstable();
    assert!(ended.into_iter().eq(0..1000), "each operation ends once");
    let content = std::fs::read(path.path()).unwrap();
    assert!(content.chunks(4096).zip(0..1000u32).all(|(block, number)| block == [number as u8; 4096]));
    (0..300).for_each(|token| ring.read(token, &file, 0, pool.take(4096).unwrap(), 0..4096));
    drop(ring);
    assert_eq!(pool.free_bytes(), pool.total_bytes(), "workers have let go of all memory");
}

#[test]
fn watch_that_is_ended_lets_go_of_its_descriptor() {
    for method in METHODS {
        let (mut ring, _pool) = ring(method, 0);
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let socket = Descriptor::device(ours.into());
        ring.watch_input(1, &socket);
        ring.wait(Some(0)).unwrap();
        ring.end_watch(&socket);
        let (1, Err(error), _) = next(&mut ring) else { panic!("it has not ended") };
        assert_eq!(error.raw_os_error(), Some(libc::ECANCELED), "{method:?}");
        drop(socket);
        assert_eq!(theirs.read(&mut [0; 1]).unwrap(), 0, "{method:?}: the socket is closed");
    }
}

#[test]
fn payload_that_comes_in_parts_is_received_whole() {
    for method in METHODS {
        let (mut ring, pool) = ring(method, 0);
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let socket = Descriptor::socket(ours.into());
        ring.receive_payload(1, &socket, pool.take(4096).unwrap(), 4096);
        for part in 0..4 {
            assert!(ring.next_completion().is_none(), "{method:?}");
            theirs.write_all(&[part; 1024]).unwrap();
            ring.wait(Some(0)).unwrap();
        }
        let (1, Ok(4096), Carried::Unfilled(memory)) = next(&mut ring) else { panic!("{method:?}") };
        let parts = memory.completed().chunks(1024).map(|part| part[0]).collect::<Vec<_>>();
        assert_eq!(parts, [0, 1, 2, 3], "{method:?}");
    }
}

#[test]
fn wake_that_a_look_finds_ends_the_next_wait() {
    for method in METHODS {
        let (mut ring, _pool) = ring(method, 0);
        assert!(!ring.look(0), "{method:?}: nobody woke it");
        ring.waker().wake();
        assert!(ring.look(1_000_000_000), "{method:?}: a wake is found");
        // Only a wait that sleeps takes this long.
        let (begun_ns, minute_ns) = (Clock.now_ns(), 60_000_000_000);
        ring.wait(Some(minute_ns)).unwrap();
        assert!(Clock.now_ns() - begun_ns < minute_ns, "{method:?}: it slept");
        assert!(ring.next_completion().is_none());
    }
}

#[test]
fn operations_of_one_socket_end_each_for_itself() {
    for method in METHODS {
        let (mut ring, _pool) = ring(method, 0);
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let socket = Descriptor::socket(ours.into());
        ring.watch_hang_up(1, &socket);
        ring.receive(2, &socket, vec![0; 16].into(), 0..16);
        let mut batch = Box::<SendBatch>::default();
        (0..100u8).for_each(|n| batch.push_bytes(vec![n; 30_001]));
        let length = batch.len();
        ring.send(3, &socket, batch);
        theirs.write_all(b"now").unwrap();
        assert!(matches!(next(&mut ring), (2, Ok(3), _)), "{method:?}");
        let reader = std::thread::spawn(move || {
            let mut all = vec![0; length];
            theirs.read_exact(&mut all).map(|()| theirs)
        });
        assert!(matches!(next(&mut ring), (3, Ok(count), _) if count as usize == length), "{method:?}");
        drop(reader.join().unwrap().unwrap());
        assert!(matches!(next(&mut ring), (1, Ok(_), _)), "{method:?}: the peer has hung up");
        assert_eq!(ring.in_flight(), 0);
    }
}
