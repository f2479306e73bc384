//! Clients of the simulated volume: they send random requests and flushes.

use weir_volume::Kind;

use super::MirrorWorld;
use super::work::InFlight;
use crate::requests::{random_request, sectors};

impl MirrorWorld {
    pub(super) fn send(&mut self) -> Result<(), String> {
        let mut effects = Vec::new();
        if self.random.chance(1, 12) {
            let flush = (0..).find(|number| !self.flushes.contains_key(number)).expect("numbers do not end");
            self.flushes.insert(flush, self.now);
            self.mirror.flush(flush, &mut effects);
            return self.take(effects);
        }
        let request = random_request(&mut self.random);
        let is_write = matches!(request.kind, Kind::Write { .. });
        let stamp = if is_write { self.next_stamp } else { 0 };
        self.next_stamp += 1;
        if request.kind != Kind::Read {
            sectors(&request).for_each(|sector| self.history.write_began(sector, stamp, self.now));
        }
        let id = self.mirror.start(request, &mut effects);
        self.in_flight.insert(id, InFlight { request, stamp, began: self.now, failed_at: 0 });
        self.take(effects)
    }
}
