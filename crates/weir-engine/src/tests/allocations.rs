//! Tests that requests allocate no memory, or one count of replicas that share a payload. Any other allocation in each
//! round is a cost that no other test sees.

use allocation_counter::measure;

use super::*;

/// Requests until all lists have their room.
const WARM_UP_REQUESTS: usize = 200;
const REQUESTS: usize = 100;
/// Work that is due from time to time may allocate. What each request allocates is ten times as much.
const ALLOCATIONS_MAX: u64 = REQUESTS as u64 / 10;
/// Replicas share the payload of a write, and each write allocates the count of those who have it.
const SHARED_MAX: u64 = REQUESTS as u64;
const BLOCK_BYTES: usize = 4096;

/// Serves one request, and counts the reactor's allocations meanwhile.
fn count_allocations(world: &mut World, client: &mut UnixStream, asked: &[u8], answer_bytes: usize) -> u64 {
    client.write_all(asked).unwrap();
    let (mut answer, mut here, mut allocations) = ([0; 16 + BLOCK_BYTES], 0, 0);
    for _ in 0..TURNS_MAX {
        allocations += measure(|| world.reactor.begin_round()).count_total;
        match client.read(&mut answer[here..answer_bytes]) {
            Ok(count) => here += count,
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        if here == answer_bytes {
            assert_eq!(answer[4..8], [0; 4], "the request failed");
            return allocations;
        }
        allocations += measure(|| world.reactor.wait_unless_ended()).count_total;
    }
    panic!("gave up waiting for an answer");
}

#[test]
fn requests_allocate_no_memory() {
    check_allocations(1, ALLOCATIONS_MAX);
}

#[test]
fn replicas_share_one_allocation_of_each_write() {
    check_allocations(2, ALLOCATIONS_MAX + SHARED_MAX);
}

/// Fails if writes to so many replicas allocate more often than `of_writes_max`, or reads at all.
fn check_allocations(replicas: usize, of_writes_max: u64) {
    let mut world = World::new(replicas);
    let mut client = world.attach();
    let write = [request(WRITE, 0, BLOCK_BYTES), vec![7; BLOCK_BYTES]].concat();
    let read = request(READ, 0, BLOCK_BYTES);
    let kinds = [("write", write, 16, of_writes_max), ("read", read, 16 + BLOCK_BYTES, ALLOCATIONS_MAX)];
    for (_, asked, answer_bytes, _) in &kinds {
        for _ in 0..WARM_UP_REQUESTS {
            count_allocations(&mut world, &mut client, asked, *answer_bytes);
        }
    }
    for (kind, asked, answer_bytes, allocations_max) in &kinds {
        let count = |_| count_allocations(&mut world, &mut client, asked, *answer_bytes);
        let allocations: u64 = (0..REQUESTS).map(count).sum();
        assert!(
            allocations <= *allocations_max,
            "{allocations} in {REQUESTS} requests to {kind} a block of {replicas} replicas"
        );
    }
}
