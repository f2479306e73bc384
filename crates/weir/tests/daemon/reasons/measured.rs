//! Measuring client: it measures the latency of its own requests.

use std::collections::BTreeMap;
use std::thread::JoinHandle;

use crate::common::daemon::Daemon;
use crate::common::nbd::{Client, WRITE};
use weir_testkit::wait::Stopwatch;

/// Bytes of one request.
const REQUEST_BYTES: u64 = 4096;

/// Returns the least total latency of `count` requests at `iops` answers per second, in nanoseconds. Each
/// request is sent when an earlier one is answered, `depth` of them at a time.
pub fn least_ns(depth: u64, count: u64, iops: u64) -> f64 {
    let first = depth.min(count);
    let turns = first * (first - 1) / 2 + (count - first) * depth;
    turns as f64 * 1e9 / iops as f64
}

/// Writes `count` times with `depth` requests in flight, and returns their total latency in nanoseconds.
pub fn measure(daemon: &Daemon, export: &str, depth: u64, count: u64) -> JoinHandle<u64> {
    let mut client = Client::attach(&daemon.nbd_socket(), export);
    std::thread::spawn(move || {
        let data = [5; REQUEST_BYTES as usize];
        let (mut sent, mut sum_ns, mut under_way) = (0, 0, BTreeMap::new());
        while sent < count || !under_way.is_empty() {
            if sent < count && (under_way.len() as u64) < depth {
                let at = Stopwatch::start();
                let cookie =
                    client.send(WRITE, 0, sent * REQUEST_BYTES, REQUEST_BYTES as u32, &data).unwrap();
                under_way.insert(cookie, at);
                sent += 1;
                continue;
            }
            let (cookie, error) = client.reply().unwrap();
            assert_eq!(error, 0, "a request failed");
            let at: Stopwatch = under_way.remove(&cookie).unwrap();
            sum_ns += at.nanoseconds();
        }
        client.disconnect();
        sum_ns
    })
}
