//! A reactor's operations before the media that they share.

use std::collections::BTreeMap;

use weir_qos::{Cost, Granted, Kind, NodeId, Verdict};
use weir_types::bounds::BLOCK_BYTES;
use weir_types::{BackgroundKind, Scope, Terms};
use weir_volume::zeroing::Filesystem;
use weir_volume::{Action, OperationId};

use super::shared_state::{Message, SharedState};
use super::{MediaGrant, PolicyLevel, SharedPool, Waiter};
use crate::dataplane::command::NewHome;
use crate::dataplane::locked;
use crate::dataplane::reactor::Reactor;
use crate::dataplane::served_volume::{Home, Purpose};
use crate::dataplane::stalls::Orphan;
use crate::dataplane::token::{AskNumber, ConnectionIndex, ReplicaIndex, VolumeIndex};

/// Where a volume stands in line for its drive.
pub(in crate::dataplane) struct PoolPlace {
    pub pool: SharedPool,
    node: NodeId,
    path: Vec<Scope>,
}

/// An operation that waits for the media.
pub(in crate::dataplane) enum Pending {
    /// Of a copy of a volume.
    Volume { replica: ReplicaIndex, number: AskNumber, action: Action },
    /// The one with this number of the reactor's background work.
    Background(usize),
}

/// An operation that waited, what it costs, and since when.
type Waiting = (weir_qos::pool::Queued<Waiter>, Cost, u64);

/// What an action does to the media, and for which operation; `None` for what is not part of anybody's share.
fn work_of(action: &Action) -> Option<(OperationId, Kind, u32)> {
    match *action {
        Action::Read { operation, length, .. } => Some((operation, Kind::Read, length)),
        Action::Write { operation, length, .. } => Some((operation, Kind::Write, length)),
        Action::ReadEdge { operation, .. } => Some((operation, Kind::Read, BLOCK_BYTES as u32)),
        Action::Release { operation, .. } => Some((operation, Kind::Discard, 0)),
        Action::Zero { operation, .. } => Some((operation, Kind::Zeroes, 0)),
        _ => None,
    }
}

impl PoolPlace {
    /// Enters a volume's path in the pool of its drive.
    pub fn new(pool: SharedPool, path: &[PolicyLevel], now_ns: u64) -> PoolPlace {
        let mut state = locked(&pool);
        let state = &mut *state;
        let named: Vec<(Scope, Terms)> =
            path.iter().map(|level| (level.scope.clone(), without_ceilings(&level.terms))).collect();
        let node = state.paths.plant(&mut state.pool.tree, &named, now_ns, |_| Vec::new());
        let path = named.into_iter().map(|(scope, _)| scope).collect();
        PoolPlace { pool: SharedPool::clone(&pool), node, path }
    }

    fn add_leaf(&self, now_ns: u64) -> NodeId {
        locked(&self.pool).pool.tree.add_leaf(self.node, &Terms::default(), now_ns)
    }

    fn uproot(&self) {
        let mut state = locked(&self.pool);
        let state = &mut *state;
        state.paths.uproot(&mut state.pool.tree, &self.path);
    }
}

/// What of the terms concerns media: ceilings held requests back before.
pub(in crate::dataplane) fn without_ceilings(terms: &Terms) -> Terms {
    Terms { limits: Default::default(), burst: None, ..*terms }
}

/// Takes out what a pool has room for: what is a reactor's own is added to `own`, the rest is left for the others.
fn take_grants(
    pool: &SharedPool,
    now_ns: u64,
    reactor: usize,
    shared_state: &SharedState,
    own: &mut Vec<MediaGrant>,
) {
    let mut others = Vec::new();
    let mut state = locked(pool);
    while let Some(granted) = state.pool.release(now_ns) {
        let Granted { ticket, waited_ns, waited_for_floors_ns, .. } = granted;
        let grant = MediaGrant { pending: ticket.pending, waited_ns, waited_for_floors_ns };
        if ticket.reactor == reactor {
            own.push(grant);
            continue;
        }
        shared_state.post(ticket.reactor, Message::Granted(grant));
        if !others.contains(&ticket.reactor) {
            others.push(ticket.reactor);
        }
    }
    drop(state);
    others.into_iter().for_each(|to| shared_state.wake(to));
}

impl Reactor {
    /// Gives a volume further homes, with places in line for those drives, for its connections too.
    pub(in crate::dataplane) fn add_homes(
        &mut self,
        index: VolumeIndex,
        homes: Vec<NewHome>,
        path: &[PolicyLevel],
    ) {
        for NewHome { drive, directory, read_cost, is_counted, media, pool } in homes {
            let place = PoolPlace::new(pool, path, self.now_ns);
            for connection in self.connections_of(index) {
                let leaf = place.add_leaf(self.now_ns);
                self.connections[connection].pool_leaves.push(leaf);
            }
            let volume = &mut self.volumes[index];
            volume.emulated.add_home(media);
            volume.homes.push(Home {
                drive,
                directory,
                read_cost,
                is_away: false,
                is_counted,
                filesystem: Filesystem::default(),
                place,
                background_leaves: BTreeMap::new(),
            });
        }
    }

    /// Hands an action on the files of a copy to the kernel, or has it wait until the media can use it.
    pub(in crate::dataplane) fn queue_for_media(&mut self, replica: ReplicaIndex, action: Action) {
        let Some((operation, kind, bytes)) = work_of(&action) else { return self.submit(replica, action) };
        let (now_ns, reactor, ReplicaIndex { volume: index, slot }) = (self.now_ns, self.index, replica);
        let (context, owner) = self.volumes[index].context_and_owner(slot, operation);
        let is_first = owner.part.position == 0 && context.cost.is_none();
        let (home, purpose) = (context.home, owner.purpose);
        let leaf = match purpose {
            Purpose::Client((connection, _)) => {
                let leaf = self.connections[connection].pool_leaves.get(home).copied();
                leaf.expect("a connection stands in line while it has requests")
            }
            Purpose::Resync { .. } => self.background_leaf(index, home, BackgroundKind::Resync),
            Purpose::Scrubbing { .. } => self.background_leaf(index, home, BackgroundKind::Scrub),
        };
        let pending = self.pending.vacant_key();
        let volume = &mut self.volumes[index];
        let mut state = locked(&volume.homes[home].place.pool);
        let cost = state.pool.cost(kind, bytes, is_first);
        let verdict = state.pool.arrive(now_ns, leaf, Waiter { reactor, pending }, cost);
        drop(state);
        let context = volume.context(slot, operation);
        context.cost = Some(cost);
        context.at_media_since_ns = now_ns;
        context.asked_ns = 0;
        let number = context.number;
        match verdict {
            Verdict::Run => self.submit(replica, action),
            Verdict::Wait => {
                self.pending.insert(Pending::Volume { replica, number, action });
            }
        }
    }

    /// An operation that waited may go. Orphaned I/O leaves its room at once; answers with the pool if others wait for that room.
    fn granted(&mut self, grant: MediaGrant) -> Option<SharedPool> {
        match self.pending.remove(grant.pending) {
            Pending::Background(index) => self.carry_out_step(index),
            Pending::Volume { replica, number, action } => match self.end_orphan(replica, number) {
                Orphan::Unknown => self.go_to_media(replica, action, &grant),
                Orphan::Ended => {}
                Orphan::LeftRoom(pool) => return Some(pool),
            },
        }
        None
    }

    fn go_to_media(&mut self, replica: ReplicaIndex, action: Action, grant: &MediaGrant) {
        let now_ns = self.now_ns;
        if let Some((operation, ..)) = work_of(&action) {
            let context = self.volumes[replica.volume].context(replica.slot, operation);
            context.spent.queue_ns += grant.waited_ns;
            context.spent.floors_ns += grant.waited_for_floors_ns;
            context.at_media_since_ns = now_ns;
        }
        self.submit(replica, action);
    }

    /// The media are done with an operation; its home, if others wait there that may go now.
    pub(in crate::dataplane) fn left_media(
        &mut self,
        replica: ReplicaIndex,
        operation: OperationId,
    ) -> Option<usize> {
        let now_ns = self.now_ns;
        let volume = &mut self.volumes[replica.volume];
        let context = volume.context(replica.slot, operation);
        context.spent.media_ns += now_ns.saturating_sub(context.at_media_since_ns);
        let home = context.home;
        let cost = context.cost.expect("what comes from the media had gone there");
        let place = &volume.homes[home].place;
        let is_waited_for = locked(&place.pool).pool.completed(now_ns, cost);
        is_waited_for.then_some(home)
    }

    /// Lets operations go that the pools of a volume's drives have room for.
    fn release_media(&mut self, index: VolumeIndex) {
        for home in 0..self.volumes[index].homes.len() {
            self.release_home(index, home);
        }
    }

    /// Lets operations go that the pool of one of a volume's drives has room for.
    pub(in crate::dataplane) fn release_home(&mut self, index: VolumeIndex, home: usize) {
        let pool = SharedPool::clone(&self.volumes[index].homes[home].place.pool);
        self.release_pool(&pool);
    }

    /// Lets operations go that a pool has room for.
    pub(in crate::dataplane) fn release_pool(&mut self, pool: &SharedPool) {
        let mut own = std::mem::take(&mut self.spare_grants);
        // Thousands of orphaned operations may stand in line, each of which makes room for the next.
        let mut is_waited_for = true;
        while std::mem::take(&mut is_waited_for) {
            take_grants(pool, self.now_ns, self.index, &self.shared_state, &mut own);
            for grant in own.drain(..) {
                is_waited_for |= self.granted(grant).is_some();
            }
        }
        self.spare_grants = own;
    }

    /// Takes what other reactors found may go.
    pub(in crate::dataplane) fn take_messages(&mut self) {
        for messages in self.shared_state.collect(self.index) {
            match messages {
                Message::Admitted(admitted) => self.admitted(admitted),
                Message::Granted(grant) => {
                    if let Some(pool) = self.granted(grant) {
                        self.release_pool(&pool);
                    }
                }
            }
        }
    }

    /// Gives a connection its places in line.
    pub(in crate::dataplane) fn join_pools(&mut self, index: ConnectionIndex) {
        let connection = &mut self.connections[index];
        let homes = &self.volumes[connection.volume].homes;
        connection.pool_leaves = homes.iter().map(|home| home.place.add_leaf(self.now_ns)).collect();
    }

    /// Takes a connection's places away; what waited there, by home.
    fn leave_pools(&mut self, index: ConnectionIndex) -> Vec<Vec<Waiting>> {
        let connection = &mut self.connections[index];
        let homes = &self.volumes[connection.volume].homes;
        let leaves = std::mem::take(&mut connection.pool_leaves);
        let leave = |(home, leaf): (&Home, NodeId)| {
            let mut state = locked(&home.place.pool);
            let waiting = state.pool.tree.drain(self.now_ns, leaf);
            state.pool.tree.remove(leaf);
            waiting
        };
        homes.iter().zip(leaves).map(leave).collect()
    }

    /// A connection that is quiet leaves the lines.
    pub(in crate::dataplane) fn quit_pools(&mut self, index: ConnectionIndex) {
        // What still waits was given up: a quiet connection has nothing else.
        for (queued, ..) in self.leave_pools(index).into_iter().flatten() {
            if let Pending::Volume { replica, number, .. } = self.pending.remove(queued.ticket().pending) {
                self.is_orphaned_in_line(replica, number);
            }
        }
    }

    /// Puts a volume elsewhere among those that share its drives. What waits goes on waiting there.
    pub(in crate::dataplane) fn replace_in_pools(&mut self, index: VolumeIndex, path: &[PolicyLevel]) {
        let connections = self.connections_of(index);
        let waiting: Vec<_> = connections.iter().map(|&c| (c, self.leave_pools(c))).collect();
        let now_ns = self.now_ns;
        for home in &mut self.volumes[index].homes {
            home.place.uproot();
            home.place = PoolPlace::new(SharedPool::clone(&home.place.pool), path, now_ns);
        }
        for (connection, waiting) in waiting {
            self.join_pools(connection);
            let leaves = &self.connections[connection].pool_leaves;
            let homes = &self.volumes[index].homes;
            for ((home, leaf), waiting) in homes.iter().zip(leaves).zip(waiting) {
                let mut state = locked(&home.place.pool);
                for (queued, cost, arrived_ns) in waiting {
                    state.pool.tree.move_in(now_ns, *leaf, queued, cost, arrived_ns);
                }
            }
        }
        self.release_media(index);
    }

    /// Takes over changed terms of a volume that stays where it is.
    pub(in crate::dataplane) fn replant_in_pools(&mut self, index: VolumeIndex, path: &[PolicyLevel]) {
        for home in &self.volumes[index].homes {
            PoolPlace::new(SharedPool::clone(&home.place.pool), path, self.now_ns);
        }
        self.release_media(index);
    }

    /// Takes a volume that is closed out of its pools.
    pub(in crate::dataplane) fn leave_drives(&mut self, index: VolumeIndex) {
        for mut home in self.volumes[index].homes.drain(..) {
            home.leave_background();
            home.place.uproot();
        }
    }

    /// True if a volume stands in its pools under this path.
    pub(in crate::dataplane) fn is_placed_by(&self, index: VolumeIndex, path: &[PolicyLevel]) -> bool {
        let stands = |home: &Home| home.place.path.iter().eq(path.iter().map(|level| &level.scope));
        self.volumes[index].homes.iter().all(stands)
    }
}
