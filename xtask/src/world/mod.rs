//! Outside world as the demo and the benches need it: programs, processes, folders, the daemon, its peers,
//! and fio.

use std::time::{SystemTime, UNIX_EPOCH};

pub mod attach_cost;
pub mod daemon;
pub mod document;
pub mod fio;
pub mod folder;
pub mod http;
pub mod interrupt;
pub mod peers;
pub mod process;
pub mod processor;
pub mod shared_disk;
pub mod side_by_side;
pub mod tools;
pub mod weighted;

/// Returns the milliseconds since 1970, as fio logs them.
pub fn now_ms() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX)
}
