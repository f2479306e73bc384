//! Recording of requests: each reactor records the requests of its volumes as it answers them.
//!
//! A recording is bounded by time and by number of records. Reactors never wait for each other or for
//! control. Each has a buffer of its own, which control takes when the recording is over.

use std::sync::Arc;

use weir_engine_interface::Recording;
use weir_nbd::Command as NbdCommand;
use weir_qos::Kind;

use super::request::ActiveRequest;
use crate::token::ConnectionIndex;
use weir_replay::trace::Record;

/// A volume's part of a recording.
pub struct Tap {
    recording: Arc<Recording>,
    /// Number of the volume in the recording.
    volume: u16,
}

impl Tap {
    /// The part of a recording for the volume with this number in it.
    pub fn new(recording: &Arc<Recording>, volume: u16) -> Tap {
        Tap { recording: Arc::clone(recording), volume }
    }

    /// Records a request that is answered now, if the recording has begun and is not over. Of a request
    /// that arrived before the start, only the time since the start counts.
    pub fn note(
        &self,
        (reactor, connection): (usize, ConnectionIndex),
        now_ns: u64,
        request: &ActiveRequest,
    ) {
        let Some(kind) = kind_of(request.request.command) else { return };
        let started_ns = self.recording.started_ns();
        let Some(answered_ns) = now_ns.checked_sub(started_ns) else { return };
        if answered_ns > self.recording.duration_ns() {
            return;
        }
        let arrived_ns = request.arrived_ns.saturating_sub(started_ns);
        let latency_ns = answered_ns.saturating_sub(arrived_ns);
        let queue_ns = request.spent.queue_ns.min(latency_ns);
        let record = Record {
            arrived_ns,
            offset: request.request.offset,
            latency_ns,
            ceilings_ns: request.waited_ns.min(latency_ns),
            queue_ns,
            floors_ns: request.spent.floors_ns.min(queue_ns),
            drive_ns: request.spent.drive_ns.min(latency_ns),
            bytes: request.request.length,
            connection: ((reactor as u32) << 16) | (connection as u32 & 0xffff),
            volume: self.volume,
            kind,
            is_failed: request.error.is_some(),
        };
        self.recording.note(reactor, record);
    }
}

/// The kind of a command; `None` for commands that are not recorded.
fn kind_of(command: NbdCommand) -> Option<Kind> {
    match command {
        NbdCommand::Read { .. } => Some(Kind::Read),
        NbdCommand::Write { .. } => Some(Kind::Write),
        NbdCommand::Trim { .. } => Some(Kind::Discard),
        NbdCommand::WriteZeroes { .. } => Some(Kind::Zeroes),
        NbdCommand::Flush => Some(Kind::Flush),
        NbdCommand::BlockStatus { .. } | NbdCommand::Cache => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_nbd::{Cookie, Request};

    fn request(arrived_ns: u64) -> ActiveRequest {
        let command = NbdCommand::Read { dont_fragment: false };
        ActiveRequest::new(Request { cookie: Cookie(7), command, offset: 4096, length: 8192 }, arrived_ns)
    }

    #[test]
    fn requests_answered_during_recording_are_recorded() {
        let recording = Arc::new(Recording::new(2, 1000, 10));
        let tap = Tap { recording: Arc::clone(&recording), volume: 3 };
        tap.note((0, 0), 50, &request(40));
        recording.start(100);
        for (arrived_ns, now_ns) in [(40, 99), (80, 120), (100, 120), (1000, 1100), (1000, 1101)] {
            tap.note((1, 5), now_ns, &request(arrived_ns));
        }
        let mut flush = request(200);
        flush.request.command = NbdCommand::Flush;
        tap.note((0, 5), 300, &flush);
        flush.request.command = NbdCommand::Cache;
        tap.note((0, 5), 300, &flush);
        let records = recording.take();
        let found: Vec<_> =
            records.iter().map(|r| (r.kind, r.connection, r.arrived_ns, r.latency_ns)).collect();
        let read = |arrived_ns, latency_ns| (Kind::Read, 0x10005, arrived_ns, latency_ns);
        assert_eq!(found, [(Kind::Flush, 5, 100, 100), read(0, 20), read(0, 20), read(900, 100)]);
        assert!(records.iter().all(|record| record.volume == 3) && recording.take().is_empty());
    }

    #[test]
    fn records_are_bounded_by_number() {
        let recording = Arc::new(Recording::new(1, u64::MAX, 3000));
        let tap = Tap { recording: Arc::clone(&recording), volume: 0 };
        recording.start(0);
        (0..3000).for_each(|at_ns| tap.note((0, 0), at_ns, &request(at_ns)));
        assert!(!recording.is_full());
        tap.note((0, 0), 9999, &request(1));
        assert!(recording.is_full());
        assert_eq!(recording.take().len(), 3000);
    }
}
