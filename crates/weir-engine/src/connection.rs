//! Connection: one client in its transmission phase, with the requests being received, served and answered.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use slab::Slab;
use smallvec::SmallVec;
use weir_nbd::{NbdError, Request, RequestDecoder, Session};
use weir_reactor::{Buffer, Descriptor, SendBatch, Unfilled};
use weir_types::bounds::RECEIVE_BUFFER_BYTES;
use weir_volume::geometry::Part;

use super::receive_coalescing::ReceiveCoalescing;
use super::served_volume::Spent;
use super::token::VolumeIndex;

/// A connection that has finished its handshake.
pub struct NewConnection {
    /// The socket, in blocking mode.
    pub socket: OwnedFd,
    /// Result of the handshake.
    pub session: Session,
    /// Bytes of the transmission phase that arrived with the last bytes of the handshake.
    pub leftover: Vec<u8>,
}

/// A request from the reading of its header until its reply is queued.
pub(super) struct ActiveRequest {
    pub request: Request,
    /// Time at which the whole request had arrived, in nanoseconds.
    pub arrived_ns: u64,
    /// Time that a ceiling delayed the request, in nanoseconds.
    pub waited_ns: u64,
    /// Time in the drive queue, the part of it in which others went first for their floors, and time at the
    /// drive; all in nanoseconds.
    pub queue_ns: u64,
    pub floors_ns: u64,
    pub drive_ns: u64,
    /// Time up to which the request's time is attributed to a cause, in nanoseconds.
    pub accounted_ns: u64,
    /// A ceiling delays the request.
    pub is_delayed: bool,
    /// The request was admitted.
    pub is_running: bool,
    /// Bytes of the request for which operations were started.
    pub position: u64,
    /// Operations that have not ended.
    pub parts_left: u32,
    pub error: Option<NbdError>,
    /// Parts of a small write that was not admitted yet. Most writes have one part, which needs no
    /// allocation.
    pub parked: SmallVec<[(Part, Buffer); 1]>,
    /// Zeroes are written as data, because the filesystem cannot zero a range.
    pub is_zeroing_by_writing: bool,
    /// The head of an unfragmented reply is queued, so an error can no longer be reported.
    pub has_begun_reply: bool,
    /// The request is a read that the reply order has let run.
    pub is_reading: bool,
}

impl ActiveRequest {
    pub fn new(request: Request, now_ns: u64) -> ActiveRequest {
        ActiveRequest {
            request,
            arrived_ns: now_ns,
            waited_ns: 0,
            queue_ns: 0,
            floors_ns: 0,
            drive_ns: 0,
            accounted_ns: now_ns,
            is_delayed: false,
            is_running: false,
            position: 0,
            parts_left: 0,
            error: None,
            parked: SmallVec::new(),
            is_zeroing_by_writing: false,
            has_begun_reply: false,
            is_reading: false,
        }
    }

    pub fn length(&self) -> u64 {
        u64::from(self.request.length)
    }

    /// Attributes the time since the request's previous operation ended, by the time that the ended
    /// operation spent on each cause. Operations overlap, and no time counts twice.
    pub fn metadata(&mut self, now_ns: u64, operation: Spent) {
        let open_ns = now_ns.saturating_sub(self.accounted_ns);
        let drive_ns = operation.drive_ns.min(open_ns);
        let queue_ns = operation.queue_ns.min(open_ns - drive_ns);
        self.drive_ns += drive_ns;
        self.queue_ns += queue_ns;
        let for_floors = u128::from(queue_ns) * u128::from(operation.floors_ns);
        self.floors_ns += (for_floors / u128::from(operation.queue_ns.max(1))) as u64;
        self.accounted_ns = now_ns;
    }
}

/// A write whose payload is being received.
pub(super) struct IncomingWrite {
    pub request: usize,
    /// Payload bytes of the complete parts.
    pub position: u64,
    pub part: Option<IncomingPart>,
}

/// The part of a payload that is being received.
pub(super) struct IncomingPart {
    pub part: Part,
    /// `None` while the kernel fills the memory.
    pub memory: Option<Unfilled>,
    pub filled: usize,
    /// Since when the client owes the missing bytes, in nanoseconds.
    pub since_ns: u64,
}

/// Queued replies and the number of buffer bytes in them.
#[derive(Default)]
pub(super) struct Outgoing {
    pub batch: Box<SendBatch>,
    pub held_bytes: usize,
}

/// A connection.
pub(super) struct Connection {
    pub socket: Descriptor,
    pub volume: VolumeIndex,
    pub decoder: RequestDecoder,
    pub has_structured_replies: bool,
    pub allocation_context: Option<u32>,
    /// `None` while the kernel fills the buffer.
    pub input: Option<Box<[u8]>>,
    pub input_start: usize,
    pub input_end: usize,
    pub is_receiving: bool,
    /// When to receive again, in nanoseconds, while requests gather in the socket.
    pub rests_until_ns: Option<u64>,
    pub coalescing: ReceiveCoalescing,
    /// The kernel reports when the client hangs up.
    pub is_watched: bool,
    pub incoming: Option<IncomingWrite>,
    /// A large write that waits for admission; requests behind it are not read.
    pub stalled_on: Option<usize>,
    pub requests: Slab<ActiveRequest>,
    /// Running requests that need buffers to continue, in order.
    pub starving: VecDeque<usize>,
    /// Admitted reads that wait for the reply order, in order.
    pub held_reads: VecDeque<usize>,
    /// Reads that run and are not answered.
    pub reads_under_way: usize,
    /// The read whose reply of several pieces is being sent; other replies wait for its end.
    pub streaming_read: Option<usize>,
    /// Replies that wait for the end of that read. They hold no pooled buffers.
    pub kept: VecDeque<Outgoing>,
    /// The connection holds as many buffers as it may, so it did not get another one.
    pub is_short_of_buffers: bool,
    /// Bytes of pooled buffers that the connection holds in any form.
    pub held_bytes: usize,
    pub outbox: VecDeque<Outgoing>,
    /// Buffer bytes in the batch that the kernel is sending; `None` if it sends none.
    pub sending: Option<usize>,
    /// Since when the kernel sends this batch, in nanoseconds.
    pub sending_since_ns: u64,
    pub is_listed_outgoing: bool,
    pub is_listed_resuming: bool,
    /// Nothing more is received; the connection closes once all requests are answered.
    pub is_draining: bool,
    /// The connection ends as soon as the kernel holds nothing of it.
    pub is_closing: bool,
}

impl Connection {
    pub fn new(new: NewConnection, volume: VolumeIndex) -> Connection {
        let mut input = vec![0; RECEIVE_BUFFER_BYTES.max(new.leftover.len())].into_boxed_slice();
        input[..new.leftover.len()].copy_from_slice(&new.leftover);
        Connection {
            socket: Descriptor::socket(new.socket),
            volume,
            decoder: RequestDecoder::new(&new.session),
            has_structured_replies: new.session.structured_replies,
            allocation_context: new.session.allocation_context,
            input: Some(input),
            input_start: 0,
            input_end: new.leftover.len(),
            is_receiving: false,
            rests_until_ns: None,
            coalescing: ReceiveCoalescing::default(),
            is_watched: false,
            incoming: None,
            stalled_on: None,
            requests: Slab::new(),
            starving: VecDeque::new(),
            held_reads: VecDeque::new(),
            reads_under_way: 0,
            streaming_read: None,
            kept: VecDeque::new(),
            is_short_of_buffers: false,
            held_bytes: 0,
            outbox: VecDeque::new(),
            sending: None,
            sending_since_ns: 0,
            is_listed_outgoing: false,
            is_listed_resuming: false,
            is_draining: false,
            is_closing: false,
        }
    }

    /// True if neither the kernel nor the volume holds anything of the connection.
    pub fn is_quiet(&self) -> bool {
        let kernel_has_it = self.is_receiving || self.is_watched || self.sending.is_some();
        !kernel_has_it && self.requests.is_empty()
    }

    /// True if all received requests are answered and sent.
    pub fn is_answered(&self) -> bool {
        self.requests.is_empty() && self.sending.is_none() && self.outbox.is_empty()
    }
}
