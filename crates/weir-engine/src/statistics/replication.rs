//! Replication statistics: the state of a volume's replicas, readable by every thread.
//!
//! It knows nothing of how resync works.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use weir_types::bounds::REPLICA_SLOTS_MAX;
use weir_volume::Mirror;
use weir_volume::mirror::{ReplicaState, ReplicaStates, Slots};

/// State of the replicas of a volume. One reactor writes it.
#[derive(Debug, Default)]
pub struct ReplicationStatistics {
    replica_states: Mutex<Vec<ReplicaStates>>,
    /// Extents with replicas that cannot be reached.
    away: Mutex<BTreeMap<u32, Slots>>,
    bytes_resynced: AtomicU64,
    bytes_left: AtomicU64,
    /// Begin of the current resync, and the bytes resynced before it.
    episode: Mutex<Option<(Timestamp, u64)>>,
}

/// State of the replicas at one instant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplicationCounters {
    /// By extent, the durable states of its replicas. Empty if no extent ever had more than one replica. For
    /// an extent that never had several while others did, all states may be absent.
    pub replica_states: Vec<ReplicaStates>,
    /// Bytes that resync has written since the volume was opened.
    pub bytes_resynced: u64,
    /// Bytes that reachable replicas lack.
    pub bytes_left: u64,
}

impl ReplicationCounters {
    /// Number of extent replicas in this state.
    pub fn count(&self, replica_state: ReplicaState) -> u64 {
        self.replica_states.iter().flatten().filter(|other| **other == replica_state).count() as u64
    }
}

impl ReplicationStatistics {
    /// Current counters.
    pub fn counters(&self) -> ReplicationCounters {
        ReplicationCounters {
            replica_states: self.replica_states.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            bytes_resynced: self.bytes_resynced.load(Relaxed),
            bytes_left: self.bytes_left.load(Relaxed),
        }
    }

    /// Stores the states of all extents.
    pub fn begin(&self, replica_states: Vec<ReplicaStates>) {
        *self.replica_states.lock().unwrap_or_else(PoisonError::into_inner) = replica_states;
    }

    /// Publishes the states of all replicas.
    pub fn publish_all(&self, mirror: &Mirror) {
        let replica_states = (0..mirror.extents()).map(|extent| mirror.reliable_replica_states(extent));
        self.begin(replica_states.collect());
        (0..mirror.extents()).for_each(|extent| self.publish_away(extent, mirror));
    }

    /// Stores the states of one extent, which [`ReplicationStatistics::begin`] must have stored before.
    pub fn stands(&self, extent: u32, replica_states: ReplicaStates) {
        let mut all = self.replica_states.lock().unwrap_or_else(PoisonError::into_inner);
        let known = all.get_mut(extent as usize).expect("all extents are told of before one changes");
        *known = replica_states;
    }

    /// Publishes which replicas of an extent cannot be reached.
    pub fn publish_away(&self, extent: u32, mirror: &Mirror) {
        let replica_states = mirror.replica_states(extent);
        let is_away =
            |slot: &usize| replica_states[*slot] != ReplicaState::Absent && !mirror.is_there(extent, *slot);
        let slots: Slots = (0..REPLICA_SLOTS_MAX).filter(is_away).collect();
        let mut away = self.away.lock().unwrap_or_else(PoisonError::into_inner);
        match slots.is_empty() {
            true => _ = away.remove(&extent),
            false => _ = away.insert(extent, slots),
        }
    }

    /// The replicas that cannot be reached, by extent.
    pub fn away(&self) -> BTreeMap<u32, Slots> {
        self.away.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The extents of which replicas cannot be reached.
    pub fn extents_away(&self) -> Vec<u32> {
        self.away.lock().unwrap_or_else(PoisonError::into_inner).keys().copied().collect()
    }

    /// True if a replica of an extent cannot be reached.
    pub fn is_away(&self, extent: u32, slot: usize) -> bool {
        let away = self.away.lock().unwrap_or_else(PoisonError::into_inner);
        away.get(&extent).is_some_and(|slots| slots.contains(slot))
    }

    /// Adds resynced bytes.
    pub fn add_resynced(&self, bytes: u64) {
        self.bytes_resynced.fetch_add(bytes, Relaxed);
    }

    /// Publishes the bytes that are left to resync.
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
