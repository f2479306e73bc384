//! Closing: how a connection drains, closes, and lets go of its requests.

use weir_nbd::NbdError;

use super::connection::Connection;
use super::desk::{ClientEffect, Desk};
use super::door::Door;

impl Connection {
    /// Stops receiving; received requests are answered, then the connection closes.
    pub fn drain(&mut self, desk: &mut Desk<'_>) {
        if self.is_closing || std::mem::replace(&mut self.is_draining, true) {
            return;
        }
        self.door.shut_down_input();
        desk.lists.end(self.index);
    }

    /// Drains the connection, and refuses requests that are not admitted yet.
    pub fn cut_short(&mut self, desk: &mut Desk<'_>) {
        self.drain(desk);
        if self.is_closing {
            return;
        }
        self.drop_incoming(desk);
        for id in self.withdraw_waiting(desk) {
            self.requests[id].error = Some(NbdError::Shutdown);
            self.finish(id, desk);
        }
    }

    /// Ends the connection as soon as the kernel holds nothing of it.
    pub fn close(&mut self, desk: &mut Desk<'_>) {
        if std::mem::replace(&mut self.is_closing, true) {
            return;
        }
        self.door.shut_down();
        if let Door::Fuse(fuse) = &mut self.door {
            fuse.end_watch(desk.io);
        }
        self.starving.clear();
        let queued = self.door.discard();
        self.holdings.unhold(queued, desk.lists);
        self.drop_incoming(desk);
        for id in self.withdraw_waiting(desk) {
            self.finish(id, desk);
        }
        let idle = self.requests.iter().filter(|(_, request)| request.parts_left == 0);
        let idle: Vec<usize> = idle.map(|(id, _)| id).collect();
        for id in idle {
            self.finish(id, desk);
        }
        if !self.is_draining {
            desk.lists.end(self.index);
        }
    }

    /// Withdraws requests that wait for admission from their ceilings.
    fn withdraw_waiting(&mut self, desk: &mut Desk<'_>) -> Vec<usize> {
        self.stalled_on = None;
        let waiting: Vec<usize> =
            self.requests.iter().filter(|(_, request)| !request.is_running).map(|(id, _)| id).collect();
        let mut parked_bytes = 0;
        for &id in &waiting {
            let request = &mut self.requests[id];
            if std::mem::take(&mut request.is_delayed) {
                desk.volume.undelayed(request.limited.is_some());
            }
            let parked = std::mem::take(&mut request.parked);
            parked_bytes += parked.iter().map(|(_, buffer)| buffer.capacity()).sum::<usize>();
        }
        self.holdings.unhold(parked_bytes, desk.lists);
        desk.lists.add(ClientEffect::Withdrawn { connection: self.index, volume: self.volume });
        waiting
    }

    /// Drops a write whose payload will not come any more.
    fn drop_incoming(&mut self, desk: &mut Desk<'_>) {
        let Door::Nbd(nbd) = &mut self.door else { return };
        let Some(dropped) = nbd.inbox.drop_incoming() else { return };
        self.holdings.give_back(dropped.memory, desk.lists);
        // A request that was not admitted may be answered already.
        let request = self.requests.get_mut(dropped.request);
        if let Some(request) = request.filter(|request| request.is_running) {
            request.error = Some(NbdError::Shutdown);
            self.finish_if_done(dropped.request, desk);
        }
    }

    /// Goes on with the end of the connection. True if the kernel and the volume hold nothing of it any
    /// more.
    pub fn settle(&mut self, desk: &mut Desk<'_>) -> bool {
        self.drop_incoming(desk);
        if self.is_draining && self.is_answered() {
            self.close(desk);
        }
        self.is_closing && self.is_quiet()
    }
}
