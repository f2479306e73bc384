//! Request: one request of a client from the reading of its header until its reply is queued.

use smallvec::SmallVec;
use weir_engine_interface::statistics::Served;
use weir_nbd::reply::{self, ReplyHeader};
use weir_nbd::{Command, Cookie, NbdError, Request};
use weir_qos::{Cost, Kind};
use weir_reactor::Buffer;
use weir_types::CgroupBindingId;
use weir_volume::Fault;
use weir_volume::geometry::{Part, next_piece};

use super::held_payload::HeldPayload;
use crate::operation_time::OperationTime;

/// A request of a process in a cgroup with a limit.
pub struct LimitedRequest {
    pub cgroup: CgroupBindingId,
    /// The payload of a write, until it is admitted and has buffers.
    pub held: Option<HeldPayload>,
}

/// A request that is not answered yet.
pub struct ActiveRequest {
    pub request: Request,
    /// Length of its range in bytes. The request's own length is smaller if it does not fit.
    length: u64,
    /// Time at which the whole request had arrived, in nanoseconds.
    pub arrived_ns: u64,
    /// Time that a ceiling delayed the request, in nanoseconds.
    pub waited_ns: u64,
    /// Time of the request's operations.
    pub spent: OperationTime,
    /// Time up to which the request's time is attributed to a cause, in nanoseconds.
    accounted_ns: u64,
    /// What is particular to a process in a cgroup with a limit. Other requests stay small.
    pub limited: Option<Box<LimitedRequest>>,
    /// A ceiling delays the request.
    pub is_delayed: bool,
    /// The request was admitted.
    pub is_running: bool,
    /// Bytes of the request for which operations were started.
    pub position: u64,
    /// Operations that have not ended.
    pub parts_left: u32,
    pub error: Option<NbdError>,
    /// Parts that wait: those of a small write for its admission, and those of a read through a mounted
    /// filesystem for each other. Most requests have one part, which needs no allocation.
    pub parked: SmallVec<[(Part, Buffer); 1]>,
    /// Zeroes are written as data, because the filesystem cannot zero a range.
    pub is_zeroing_by_writing: bool,
    /// The head of an unfragmented reply is queued, so an error can no longer be reported.
    pub has_begun_reply: bool,
    /// The request is a read that the reply order has let run.
    pub is_reading: bool,
    /// A flush makes the data of the write stable, which was to be durable by itself.
    pub is_flushed_after: bool,
}

impl ActiveRequest {
    pub fn new(request: Request, now_ns: u64) -> ActiveRequest {
        ActiveRequest {
            length: request.length.into(),
            request,
            arrived_ns: now_ns,
            waited_ns: 0,
            spent: OperationTime::default(),
            accounted_ns: now_ns,
            limited: None,
            is_delayed: false,
            is_running: false,
            position: 0,
            parts_left: 0,
            error: None,
            parked: SmallVec::new(),
            is_zeroing_by_writing: false,
            has_begun_reply: false,
            is_reading: false,
            is_flushed_after: false,
        }
    }

    /// A request of a mounted filesystem. Its number is the cookie.
    pub fn of_message(asked: &weir_fuse::Request, now_ns: u64) -> ActiveRequest {
        let zeroes = |no_hole| Command::WriteZeroes { fua: false, no_hole, fast_zero: false };
        let command = match asked.command {
            weir_fuse::Command::Read => Command::Read { dont_fragment: false },
            weir_fuse::Command::Write => Command::Write { fua: false },
            weir_fuse::Command::Flush => Command::Flush,
            // Whoever punches a hole relies on zeroes there, unlike one who trims.
            weir_fuse::Command::Punch => zeroes(false),
            weir_fuse::Command::Zero => zeroes(true),
        };
        let length = u32::try_from(asked.length).unwrap_or(u32::MAX);
        let request = Request { cookie: Cookie(asked.unique.0), command, offset: asked.offset, length };
        ActiveRequest { length: asked.length, ..ActiveRequest::new(request, now_ns) }
    }

    /// The cgroup with a limit that the process is in.
    pub fn cgroup(&self) -> Option<CgroupBindingId> {
        self.limited.as_ref().map(|limited| limited.cgroup)
    }

    pub fn length(&self) -> u64 {
        self.length
    }

    /// The request was admitted and runs from now on.
    pub fn run(&mut self, now_ns: u64) {
        self.is_running = true;
        self.accounted_ns = now_ns;
    }

    /// Attributes the time since the request's previous operation ended, by the time that the ended
    /// operation spent on each cause. Operations overlap, and no time counts twice.
    pub fn attribute(&mut self, now_ns: u64, operation: OperationTime) {
        let open_ns = now_ns.saturating_sub(self.accounted_ns);
        let drive_ns = operation.drive_ns.min(open_ns);
        let queue_ns = operation.queue_ns.min(open_ns - drive_ns);
        self.spent.drive_ns += drive_ns;
        self.spent.queue_ns += queue_ns;
        if operation.floors_ns > 0 {
            let for_floors = u128::from(queue_ns) * u128::from(operation.floors_ns);
            self.spent.floors_ns += (for_floors / u128::from(operation.queue_ns.max(1))) as u64;
        }
        self.accounted_ns = now_ns;
    }

    /// Attributes all time since then to the drive, as for a flush.
    pub fn attribute_to_drive(&mut self, now_ns: u64) {
        self.spent.drive_ns += now_ns.saturating_sub(self.accounted_ns);
        self.accounted_ns = now_ns;
    }

    /// The request fails, unless it has failed before.
    pub fn fail(&mut self, error: NbdError) {
        self.error = self.error.or(Some(error));
    }

    /// The next piece for which no operation was started.
    pub fn next_piece(&self) -> Option<Part> {
        next_piece(self.request.offset, self.length(), self.position)
    }

    /// True if the piece that was just read is the last of the reply.
    pub fn is_last_piece(&self) -> bool {
        self.parts_left == 0 && self.position >= self.length() && self.error.is_none()
    }

    /// A part of a write begins. True if the part has to be stable when it has ended. With `is_flushed_after`, a flush
    /// makes the data of such a request stable instead.
    pub fn begin_write(&mut self, is_flushed_after: bool) -> bool {
        let is_durable = self.request.command == Command::Write { fua: true };
        self.is_flushed_after |= is_durable && is_flushed_after;
        is_durable && !self.is_flushed_after
    }

    /// True if a read's reply must be sent in order, in one chunk or without chunks.
    pub fn is_unfragmented(&self, has_structured_replies: bool) -> bool {
        let is_asked_for = self.request.command == Command::Read { dont_fragment: true };
        is_asked_for || !has_structured_replies
    }

    /// True if a read's reply is one run of bytes that is longer than one buffer.
    pub fn is_long_run(&self, has_structured_replies: bool) -> bool {
        let has_one_piece = || {
            let first = next_piece(self.request.offset, self.length(), 0);
            first.is_none_or(|part| u64::from(part.length) == self.length())
        };
        self.is_unfragmented(has_structured_replies) && !has_one_piece()
    }

    /// The head of a piece of an unfragmented reply; only the first piece has one.
    pub fn head_of_run(&mut self, has_structured_replies: bool) -> Option<ReplyHeader> {
        if std::mem::replace(&mut self.has_begun_reply, true) {
            return None;
        }
        let wire = self.request;
        Some(match has_structured_replies {
            true => reply::data_chunk(wire.cookie, wire.offset, wire.length, true),
            false => reply::simple_reply(wire.cookie, Ok(())),
        })
    }

    /// Cost of the request under ceilings; `None` for requests that no ceiling counts.
    pub fn cost(&self) -> Option<Cost> {
        match self.request.command {
            Command::Read { .. } => Some(Cost::of(Kind::Read, self.request.length)),
            Command::Write { .. } => Some(Cost::of(Kind::Write, self.request.length)),
            Command::Trim { .. } => Some(Cost::of(Kind::Discard, 0)),
            Command::WriteZeroes { .. } => Some(Cost::of(Kind::Zeroes, 0)),
            Command::Flush => Some(Cost::of(Kind::Flush, 0)),
            Command::BlockStatus { .. } | Command::Cache => None,
        }
    }

    /// True if the client asked for stable data and the operations of the command do not provide it.
    pub fn needs_flush(&self) -> bool {
        self.is_flushed_after
            || matches!(
                self.request.command,
                Command::Trim { fua: true } | Command::WriteZeroes { fua: true, .. }
            )
    }

    /// What the request counts for in the statistics, if it is answered now.
    pub fn served(&self, now_ns: u64) -> Served {
        Served {
            bytes: self.length(),
            latency_ns: now_ns.saturating_sub(self.arrived_ns),
            delayed_ns: self.waited_ns,
            queue_ns: self.spent.queue_ns,
            floors_ns: self.spent.floors_ns,
            drive_ns: self.spent.drive_ns,
            failed: self.error.is_some(),
        }
    }
}

/// The NBD error for a fault.
pub fn nbd_error(fault: Fault) -> NbdError {
    match fault {
        Fault::NoSpace => NbdError::NoSpace,
        Fault::NoMemory => NbdError::NoMem,
        Fault::Unsupported => NbdError::NotSupported,
        Fault::OutOfRange => NbdError::Inval,
        Fault::Away | Fault::Broken => NbdError::Io,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn durable_write() -> ActiveRequest {
        let command = Command::Write { fua: true };
        ActiveRequest::new(Request { command, cookie: Cookie(1), offset: 0, length: 8192 }, 0)
    }

    #[test]
    fn durable_write_is_flushed_after_if_any_part_was_not_durable() {
        let mut request = durable_write();
        assert!(request.begin_write(false) && !request.needs_flush());
        assert!(!request.begin_write(true) && request.needs_flush());
        let mut request = durable_write();
        assert!(!request.begin_write(true) && !request.begin_write(false));
        assert!(request.needs_flush(), "the first part is not durable yet");
        let mut request = durable_write();
        request.request.command = Command::Write { fua: false };
        assert!(!request.begin_write(true) && !request.needs_flush());
    }
}
