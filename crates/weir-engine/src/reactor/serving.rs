//! Serving: carrying out what clients need of ceilings, drive queues and volumes.

use weir_volume::Request;

use super::Reactor;
use crate::block_status::Found;
use crate::clients::ClientEffect;
use crate::token::{ConnectionIndex, VolumeIndex};
use crate::volumes::operations::{Owner, Purpose};

impl Reactor {
    /// Carries out all effects of clients and their consequences. Most answers of drives and sockets leave none.
    #[inline]
    pub(super) fn serve_clients(&mut self) {
        if self.clients.has_effects() {
            self.carry_out_for_clients();
        }
    }

    /// Carries out all effects of clients, in the order in which they arose, and then the effects of the
    /// volume whose operations were started. All of them are started before any is carried out: an operation
    /// that fails at once must not count as the last of its request.
    #[inline(never)]
    fn carry_out_for_clients(&mut self) {
        let mut started: Option<VolumeIndex> = None;
        while let Some(effect) = self.clients.next_effect() {
            let Some(index) = self.carry_out_for_client(effect) else { continue };
            // Operations of another volume, if there are any, are carried out first.
            let earlier = started.replace(index).filter(|earlier| *earlier != index);
            earlier.into_iter().for_each(|earlier| self.carry_out(earlier));
        }
        started.into_iter().for_each(|volume| self.carry_out(volume));
    }

    /// Carries out an effect of a client. Answers the volume on which it has started an operation, if it has.
    #[inline(always)]
    fn carry_out_for_client(&mut self, effect: ClientEffect) -> Option<VolumeIndex> {
        match effect {
            ClientEffect::Arrived { ticket, volume, cost } => self.admit(ticket, volume, cost),
            ClientEffect::Start { ticket, volume: index, part, kind, memory } => {
                self.volumes.schedules.resyncs.throttle.client_asked(self.io.now_ns);
                let volume = &mut self.volumes[index];
                let wanted = Request { kind, extent: part.extent, offset: part.offset, length: part.length };
                let operation = volume.mirror.start(wanted, &mut volume.effects);
                volume.operations.set_owner(operation, Owner::new(Purpose::Client(ticket), part, memory));
                return Some(index);
            }
            ClientEffect::Flush { ticket, volume: index, may_be_owed } => {
                let volume = &mut self.volumes[index];
                let flush = volume.operations.add_flush(ticket);
                volume.mirror.flush(flush, may_be_owed, &mut volume.effects);
                return Some(index);
            }
            ClientEffect::BlockStatus { ticket, volume, offset, length } => {
                let Reactor { statuses, volumes, io, clients, .. } = self;
                let result = statuses.begin((ticket, volume), (offset, length), volumes, io);
                result.into_iter().for_each(|result| clients.status_found(io, ticket, result));
            }
            ClientEffect::Withdrawn { connection, volume } => {
                self.ceilings.forget(self.io.now_ns, volume, connection);
            }
            ClientEffect::Gone { connection, volume } => {
                self.ceilings.leave(self.io.now_ns, volume, connection);
                self.volumes.quit(&self.io, connection, volume);
                self.settle_volume(volume);
            }
        }
        None
    }

    /// The status of a range was found after a while.
    pub(super) fn status_found(&mut self, found: Found) {
        let Found { volume, ticket, result } = found;
        self.clients.status_found(&mut self.io, ticket, result);
        self.serve_clients();
        self.settle_volume(volume);
    }

    /// Parses as many requests as a connection's input holds and the bounds allow.
    pub(super) fn parse(&mut self, index: ConnectionIndex) {
        while self.clients.parse(&mut self.io, index) {
            self.serve_clients();
        }
        self.serve_clients();
    }

    /// Resumes listed connections.
    pub(super) fn resume_clients(&mut self) {
        self.clients.resume_starved(&self.io);
        for _ in 0..self.clients.resuming_count() {
            let Some(index) = self.clients.next_resuming() else { return };
            if self.clients.resume(&mut self.io, index) {
                self.serve_clients();
                self.parse(index);
            }
        }
    }

    /// Closes connections whose clients were idle for longer than permitted, if others need their buffers.
    pub(super) fn end_stalled_clients(&mut self) {
        for index in self.clients.stalled(self.io.now_ns) {
            self.close_connection(index);
        }
    }

    /// Closes a connection.
    pub(super) fn close_connection(&mut self, index: ConnectionIndex) {
        self.clients.close(&mut self.io, index);
        self.serve_clients();
    }

    /// Settles connections that drain or close.
    pub(super) fn settle_ending(&mut self) {
        for index in self.clients.take_ending() {
            self.clients.settle(&mut self.io, index);
            self.serve_clients();
        }
    }
}
