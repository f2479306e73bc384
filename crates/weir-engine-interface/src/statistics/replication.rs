//! Replication statistics: how much resync has done and has left, and which flushes were owed; readable by every
//! thread.
//!
//! It knows nothing of how resync or owing works.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;

/// Resync of the replicas of a volume. One reactor writes it.
#[derive(Debug, Default)]
pub struct ReplicationStatistics {
    bytes_resynced: AtomicU64,
    bytes_left: AtomicU64,
    flushes_coalesced: AtomicU64,
    coalesced_flush_rounds: AtomicU64,
    /// Begin of the current resync, and the bytes resynced before it.
    episode: Mutex<Option<(Timestamp, u64)>>,
}

/// Resync at one instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplicationCounters {
    /// Bytes that resync has written since the volume was opened.
    pub bytes_resynced: u64,
    /// Bytes that reachable replicas lack.
    pub bytes_left: u64,
    /// Flushes that were answered before they were carried out.
    pub flushes_coalesced: u64,
    /// Flushes that carried these out.
    pub coalesced_flush_rounds: u64,
}

impl ReplicationStatistics {
    /// Current counters.
    pub fn counters(&self) -> ReplicationCounters {
        ReplicationCounters {
            bytes_resynced: self.bytes_resynced.load(Relaxed),
            bytes_left: self.bytes_left.load(Relaxed),
            flushes_coalesced: self.flushes_coalesced.load(Relaxed),
            coalesced_flush_rounds: self.coalesced_flush_rounds.load(Relaxed),
        }
    }

    /// Adds resynced bytes.
    pub fn add_resynced(&self, bytes: u64) {
        self.bytes_resynced.fetch_add(bytes, Relaxed);
    }

    /// Counts a flush that is answered before it is carried out.
    pub fn add_coalesced_flush(&self) {
        self.flushes_coalesced.fetch_add(1, Relaxed);
    }

    /// Counts a flush that has carried out owed ones.
    pub fn add_coalesced_flush_round(&self) {
        self.coalesced_flush_rounds.fetch_add(1, Relaxed);
    }

    /// Stores the bytes that are left to resync.
    pub fn publish_left(&self, bytes: u64) {
        self.bytes_left.store(bytes, Relaxed);
        let mut episode = self.episode.lock().unwrap_or_else(PoisonError::into_inner);
        match (bytes, &*episode) {
            (0, _) => *episode = None,
            (_, None) => *episode = Some((Timestamp::now(), self.bytes_resynced.load(Relaxed))),
            _ => {}
        }
    }

    /// Begin of the current resync, and bytes resynced since then. `None` if no bytes are left.
    pub fn episode(&self) -> Option<(Timestamp, u64)> {
        let episode = *self.episode.lock().unwrap_or_else(PoisonError::into_inner);
        episode.map(|(since, before)| (since, self.bytes_resynced.load(Relaxed) - before))
    }
}
