//! A well-behaved client that works without pause in its own thread, and counts.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use super::nbd::Client;
use super::random::Random;

/// Bytes of one request.
const REQUEST_BYTES: usize = 8192;
/// Requests in flight.
const DEPTH: usize = 8;
/// Bytes of the volume that the client uses.
const REGION_BYTES: u64 = 16 << 20;

/// A client at work. It writes and reads back, and panics at the first error or wrong byte.
pub struct Load {
    is_over: Arc<AtomicBool>,
    verified: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Load {
    /// Attaches and starts to work in the 16 MiB of the volume from `start` on.
    pub fn start(socket: &Path, export: &str, start: u64) -> Load {
        let (is_over, verified) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let client = Client::attach(socket, export);
        let (over, count) = (Arc::clone(&is_over), Arc::clone(&verified));
        let thread = std::thread::spawn(move || work(client, start, &over, &count));
        Load { is_over, verified, thread: Some(thread) }
    }

    /// Requests that were answered correctly so far.
    pub fn count(&self) -> u64 {
        self.verified.load(Ordering::Relaxed)
    }

    /// Waits until the client has done some more work, which shows that it is served.
    pub fn advances(&self) {
        let target = self.count() + 4 * DEPTH as u64;
        super::wait_until("a well-behaved client is served", || {
            assert!(!self.thread.as_ref().unwrap().is_finished(), "a well-behaved client was harmed");
            self.count() >= target
        });
    }

    /// Ends the client. Panics if a request failed.
    pub fn finish(mut self) -> u64 {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
        self.count()
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

fn work(mut client: Client, start: u64, is_over: &AtomicBool, verified: &AtomicU64) {
    let mut random = Random::new(start);
    while !is_over.load(Ordering::Relaxed) {
        let first = start
            + random.below(REGION_BYTES / (DEPTH * REQUEST_BYTES) as u64) * (DEPTH * REQUEST_BYTES) as u64;
        let data: Vec<Vec<u8>> = (0..DEPTH).map(|_| random.bytes(REQUEST_BYTES)).collect();
        let offset = |index: usize| first + (index * REQUEST_BYTES) as u64;
        for (index, data) in data.iter().enumerate() {
            client.send(super::nbd::WRITE, 0, offset(index), REQUEST_BYTES as u32, data).unwrap();
        }
        for _ in 0..DEPTH {
            assert_eq!(client.reply().unwrap().1, 0, "a write failed");
            verified.fetch_add(1, Ordering::Relaxed);
        }
        for (index, data) in data.iter().enumerate() {
            assert!(
                client.read(offset(index), REQUEST_BYTES as u32).unwrap() == *data,
                "wrong bytes at {}",
                offset(index)
            );
            verified.fetch_add(1, Ordering::Relaxed);
        }
    }
    client.disconnect();
}
