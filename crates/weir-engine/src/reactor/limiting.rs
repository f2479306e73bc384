//! Limiting: a request runs now, or waits for its ceilings.
//!
//! [`Ceilings`] finds the policy tree above a request. The tree decides, by the rule in `weir-qos/src/tree/mod.rs`.

use weir_qos::{Cost, Kind};
use weir_types::{CgroupBindingId, Scope};

use super::Reactor;
use crate::ceilings::{Asker, Ceilings};
use crate::clients::Clients;
use crate::shared_state::Admitted;
use crate::token::{Ticket, VolumeIndex};

impl Reactor {
    /// Submits a request to the ceilings above it. A flush is charged and never waits, because it makes data
    /// stable that is written already.
    pub(super) fn admit(&mut self, ticket: Ticket, volume: VolumeIndex, cost: Option<Cost>) {
        let now_ns = self.io.now_ns;
        let is_admitted = match cost {
            None => true,
            Some(cost) => {
                let asker = Asker {
                    connection: ticket.0,
                    cgroup: cgroup_of(&self.ceilings, &self.clients, ticket, volume),
                };
                match cost.kind {
                    Kind::Flush => {
                        self.ceilings.charge(now_ns, volume, asker, cost);
                        true
                    }
                    _ => self.ceilings.arrive(now_ns, volume, (asker, ticket), cost),
                }
            }
        };
        match is_admitted {
            true => self.clients.run(&mut self.io, ticket),
            false => self.clients.delay(&mut self.io, ticket),
        }
    }

    /// Runs a request that waited for its ceilings.
    pub(super) fn admitted(&mut self, admitted: Admitted) {
        let Admitted { ticket, waited_ns, bound_by } = admitted;
        let Some(volume) = self.clients.volume_of(ticket.0) else { return };
        // A level that is not above the volume is below it.
        let below = cgroup_of(&self.ceilings, &self.clients, ticket, volume).map(Scope::Cgroup);
        let scope = bound_by.and_then(|bound| self.ceilings.scope_of(volume, bound).or(below.as_ref()));
        let bound_by = scope.zip(bound_by.map(|bound| bound.limit));
        self.clients.admitted(&mut self.io, ticket, (waited_ns, bound_by));
        self.serve_clients();
    }

    /// Releases the requests whose deadline has passed.
    pub(super) fn release_due(&mut self) {
        while let Some(released) = self.ceilings.release_due(self.io.now_ns) {
            released.into_iter().for_each(|admitted| self.admitted(admitted));
        }
    }
}

/// The cgroup with a limit that a request comes from. Few volumes have any.
fn cgroup_of(
    ceilings: &Ceilings,
    clients: &Clients,
    ticket: Ticket,
    volume: VolumeIndex,
) -> Option<CgroupBindingId> {
    if ceilings.has_cgroups(volume) { clients.cgroup_of(ticket) } else { None }
}
