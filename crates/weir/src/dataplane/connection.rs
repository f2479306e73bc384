//! One client's connection in its transmission phase: what is being received, served and sent.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use slab::Slab;
use smallvec::SmallVec;
use weir_nbd::{NbdError, Request, RequestDecoder, Session};
use weir_qos::NodeId;
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
    /// What the handshake settled.
    pub session: Session,
    /// Bytes of the transmission phase that came with the handshake's last ones.
    pub leftover: Vec<u8>,
}

/// A request between its header being read and its answer being queued.
pub(super) struct ActiveRequest {
    pub request: Request,
    /// When the whole request was here, in nanoseconds.
    pub arrived_ns: u64,
    /// Time that a ceiling held it back, in nanoseconds.
    pub waited_ns: u64,
    /// Time in the queue of the media, in nanoseconds; the part of it in which others went first for their floors; and
    /// time at the media.
    pub queue_ns: u64,
    pub floors_ns: u64,
    pub drive_ns: u64,
    /// Up to which instant its time is accounted for.
    pub accounted_ns: u64,
    /// Ceilings hold it back.
    pub is_delayed: bool,
    /// True once it was admitted.
    pub is_running: bool,
    /// Bytes of the request that operations were started for.
    pub position: u64,
    /// Operations that are not done.
    pub parts_left: u32,
    pub error: Option<NbdError>,
    /// The parts of a small write that has not been admitted: most have one, which needs no memory of its own.
    pub parked: SmallVec<[(Part, Buffer); 1]>,
    /// Zeroes are being written because the filesystem cannot zero.
    pub is_zeroing_by_writing: bool,
    /// The head of an unfragmented reply is queued: an error can no longer be told.
    pub has_begun_reply: bool,
    /// A read that had its turn.
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

    /// Replica metadata for the time since the last operation of this request ended, by what the one that has ended now
    /// did in it: operations overlap, and no time counts twice.
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
    /// Payload bytes of the parts that are complete.
    pub position: u64,
    pub part: Option<IncomingPart>,
}

/// The part of a payload that is being received.
pub(super) struct IncomingPart {
    pub part: Part,
    /// `None` while the kernel fills it.
    pub memory: Option<Unfilled>,
    pub filled: usize,
    /// Since when its client owes what is missing, in nanoseconds.
    pub since_ns: u64,
}

/// Replies on their way out, and the bytes of buffers in them.
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
    /// `None` while the kernel fills it.
    pub input: Option<Box<[u8]>>,
    pub input_start: usize,
    pub input_end: usize,
    pub is_receiving: bool,
    /// When to take input again, in nanoseconds, while it is left to gather.
    pub rests_until_ns: Option<u64>,
    pub coalescing: ReceiveCoalescing,
    /// Its place before the ceilings of its volume, if that has any.
    pub shaping_leaf: Option<NodeId>,
    /// Its places in the queue of the drives of its volume, by home.
    pub pool_leaves: Vec<NodeId>,
    /// The kernel tells if the client hangs up.
    pub is_watched: bool,
    pub incoming: Option<IncomingWrite>,
    /// A large write that waits for admission; nothing behind it is read.
    pub stalled_on: Option<usize>,
    pub requests: Slab<ActiveRequest>,
    /// Running requests that need buffers to go on, in order.
    pub starving: VecDeque<usize>,
    /// Admitted reads that wait for their turn, in order.
    pub held_reads: VecDeque<usize>,
    /// Reads that had their turn and are not answered.
    pub reads_under_way: usize,
    /// The read whose answer of several pieces goes out; nothing else may until its end.
    pub streaming_read: Option<usize>,
    /// Answers to others that are kept until then. They hold no pooled buffers.
    pub kept: VecDeque<Outgoing>,
    /// It could not take a buffer because it holds as many as it may.
    pub is_short_of_buffers: bool,
    /// Bytes of pooled buffers that this connection holds in any form.
    pub held_bytes: usize,
    pub outbox: VecDeque<Outgoing>,
    /// Bytes of buffers in the batch that the kernel is sending, while it does.
    pub sending: Option<usize>,
    /// Since when it does, in nanoseconds.
    pub sending_since_ns: u64,
    pub is_listed_outgoing: bool,
    pub is_listed_resuming: bool,
    /// Nothing more is read; it closes once everything is answered.
    pub is_draining: bool,
    /// It ends as soon as the kernel lets go of everything.
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
            shaping_leaf: None,
            pool_leaves: Vec::new(),
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

    /// True if the kernel and the volume hold nothing of this connection any more.
    pub fn is_quiet(&self) -> bool {
        let kernel_has_it = self.is_receiving || self.is_watched || self.sending.is_some();
        !kernel_has_it && self.requests.is_empty()
    }

    /// True if everything that was received is answered and sent.
    pub fn is_answered(&self) -> bool {
        self.requests.is_empty() && self.sending.is_none() && self.outbox.is_empty()
    }
}
