//! Volume clients: what clients do on one volume, as counts and statistics. It knows nothing of the volume.

use std::sync::atomic::Ordering::Relaxed;

use weir_engine_interface::{CgroupLimit, FlushWindow, OpenVolume};
use weir_nbd::Command;
use weir_qos::Limit;
use weir_types::{CgroupBindingId, Scope};

use super::bound_cgroups::BoundCgroups;
use super::recording::Tap;
use super::request::ActiveRequest;
use crate::token::ConnectionIndex;

/// The clients of one volume.
pub struct VolumeClients {
    open: OpenVolume,
    connections: usize,
    /// Requests that are not answered.
    open_requests: u64,
    /// Requests that ceilings delay.
    delayed_requests: usize,
    /// Those of them that are of no cgroup with a limit: they hold pooled buffers.
    delayed_of_others: usize,
    /// The volume's part of a recording, while there is one.
    tap: Option<Tap>,
    cgroups: BoundCgroups,
    /// A request that is to be durable by itself is one without and a flush.
    coalesces_fua: bool,
}

impl VolumeClients {
    pub fn new(open: OpenVolume) -> VolumeClients {
        let cgroups = BoundCgroups::default();
        VolumeClients {
            open,
            connections: 0,
            open_requests: 0,
            delayed_requests: 0,
            delayed_of_others: 0,
            tap: None,
            cgroups,
            coalesces_fua: false,
        }
    }

    pub fn connections(&self) -> usize {
        self.connections
    }

    /// True if requests that hold pooled buffers are delayed.
    pub fn has_delayed(&self) -> bool {
        self.delayed_of_others > 0
    }

    pub fn set_tap(&mut self, tap: Option<Tap>) {
        self.tap = tap;
    }

    pub fn set_flush_window(&mut self, window: Option<FlushWindow>) {
        self.coalesces_fua = window.is_some_and(|window| window.covers_fua);
    }

    /// True if a request that is to be durable by itself is one without and a flush, which may be owed.
    pub fn coalesces_fua(&self) -> bool {
        self.coalesces_fua
    }

    pub fn set_cgroups(&mut self, limits: &[CgroupLimit]) {
        self.cgroups = BoundCgroups::of(limits);
        let bindings: Vec<_> = limits.iter().map(|limit| limit.binding).collect();
        self.open.statistics.cgroups.keep(&bindings);
    }

    /// The binding of a cgroup that a process is under.
    pub fn cgroup_of(&mut self, process: u32, now_ns: u64) -> Option<CgroupBindingId> {
        self.cgroups.binding_of(process, now_ns)
    }

    pub fn connected(&mut self) {
        self.connections += 1;
        self.publish_connections();
    }

    pub fn disconnected(&mut self) {
        self.connections -= 1;
        self.publish_connections();
    }

    pub fn arrived(&mut self) {
        self.open_requests += 1;
        self.publish();
    }

    /// A request is delayed. `is_limited`: it comes from a cgroup with a limit.
    pub fn delayed(&mut self, is_limited: bool) {
        self.delayed_requests += 1;
        self.delayed_of_others += usize::from(!is_limited);
        self.publish();
    }

    /// A delayed request was admitted, because of the limit of a scope.
    pub fn admitted(&mut self, now_ns: u64, waited_ns: u64, bound_by: Option<(&Scope, Limit)>) {
        if let Some((scope, limit)) = bound_by {
            self.open.statistics.bounds.record(scope, limit, waited_ns, now_ns);
        }
    }

    /// A request is not delayed any more.
    pub fn undelayed(&mut self, is_limited: bool) {
        self.delayed_requests -= 1;
        self.delayed_of_others -= usize::from(!is_limited);
        self.publish();
    }

    /// Counts a request that is answered now.
    pub fn answered(
        &mut self,
        (reactor, connection): (usize, ConnectionIndex),
        now_ns: u64,
        request: &ActiveRequest,
    ) {
        self.open_requests -= 1;
        let served = request.served(now_ns);
        match request.request.command {
            Command::Read { .. } => self.open.statistics.read.record(served),
            Command::Write { .. } => self.open.statistics.write.record(served),
            _ => self.open.statistics.other.record(served),
        }
        if let Some(binding) = request.cgroup() {
            self.open.statistics.cgroups.record(binding, |totals| match request.request.command {
                Command::Read { .. } => totals.read.record(served),
                Command::Write { .. } => totals.write.record(served),
                _ => totals.other.record(served),
            });
        }
        if let Some(tap) = &self.tap {
            tap.note((reactor, connection), now_ns, request);
        }
        self.publish();
    }

    fn publish_connections(&self) {
        self.open.statistics.connections.store(self.connections as u64, Relaxed);
        self.open.status.set_connections(self.connections as u64);
    }

    fn publish(&self) {
        self.open.statistics.queue_depth.store(self.open_requests, Relaxed);
        self.open.statistics.queue_depth_delayed.store(self.delayed_requests as u64, Relaxed);
    }
}
