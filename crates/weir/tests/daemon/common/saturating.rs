//! A client that keeps a number of requests in flight and counts the answers.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use crate::common::daemon::Daemon;
use crate::common::nbd::{Client, READ, WRITE};

/// Bytes of the volume that the client uses.
const REGION_BYTES: u64 = 16 << 20;

/// A client at work. An error or a lost connection makes [`Saturating::finish`] panic.
pub struct Saturating {
    is_over: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    thread: JoinHandle<()>,
}

impl Saturating {
    /// Reads with `depth` requests of `length` bytes in flight.
    pub fn start(daemon: &Daemon, volume: &str, depth: u64, length: u32) -> Saturating {
        Saturating::with(daemon, volume, depth, length, READ)
    }

    /// Writes with `depth` requests of `length` bytes in flight.
    pub fn start_writing(daemon: &Daemon, volume: &str, depth: u64, length: u32) -> Saturating {
        Saturating::with(daemon, volume, depth, length, WRITE)
    }

    fn with(daemon: &Daemon, volume: &str, depth: u64, length: u32, command: u16) -> Saturating {
        let mut client = Client::attach(&daemon.nbd_socket(), volume);
        let (is_over, answered) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let (over, count) = (Arc::clone(&is_over), Arc::clone(&answered));
        let thread = std::thread::spawn(move || {
            let mut data = vec![7; length as usize];
            let mut sent = 0;
            for _ in 0..depth {
                send(&mut client, command, &mut sent, &data);
            }
            while !over.load(Ordering::Relaxed) {
                receive(&mut client, command, &mut data);
                count.fetch_add(1, Ordering::Relaxed);
                send(&mut client, command, &mut sent, &data);
            }
            (0..depth).for_each(|_| receive(&mut client, command, &mut data));
            client.disconnect();
        });
        Saturating { is_over, answered, thread }
    }

    /// Requests answered so far.
    pub fn count(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// Waits for the answers to all requests.
    pub fn finish(self) -> u64 {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
        self.answered.load(Ordering::Relaxed)
    }
}

fn send(client: &mut Client, command: u16, sent: &mut u64, data: &[u8]) {
    let offset = *sent * data.len() as u64 % REGION_BYTES;
    let payload = if command == WRITE { data } else { &[] };
    client.send(command, 0, offset, data.len() as u32, payload).unwrap();
    *sent += 1;
}

fn receive(client: &mut Client, command: u16, data: &mut [u8]) {
    assert_eq!(client.reply().unwrap().1, 0, "a request failed");
    if command == READ {
        client.stream.read_exact(data).unwrap();
    }
}
