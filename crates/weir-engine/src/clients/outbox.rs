//! Outbox: the replies of a connection until the kernel has sent them.

use std::collections::VecDeque;

use weir_nbd::reply::ReplyHeader;
use weir_reactor::{Buffer, SendBatch};
use weir_types::bounds::OUTBOX_BATCHES_MAX;

/// Number of empty batches kept for reuse.
const SPARE_BATCHES_MAX: usize = 64;

/// Queued replies and the number of buffer bytes in them.
#[derive(Default)]
pub struct Outgoing {
    pub batch: Box<SendBatch>,
    held_bytes: usize,
}

impl Outgoing {
    /// Adds a buffer's range, behind a head.
    pub fn push_data(&mut self, head: Option<&ReplyHeader>, buffer: Buffer, range: std::ops::Range<usize>) {
        self.held_bytes += buffer.capacity();
        self.batch.push_data(head.map_or(&[], ReplyHeader::as_bytes), buffer, range);
    }
}

/// Empty batches for reuse by all connections.
#[derive(Default)]
pub struct SpareBatches(Vec<Outgoing>);

impl SpareBatches {
    /// Keeps a batch that was sent.
    fn keep(&mut self, mut batch: Box<SendBatch>) {
        batch.clear();
        if self.0.len() < SPARE_BATCHES_MAX {
            self.0.push(Outgoing { batch, held_bytes: 0 });
        }
    }
}

/// The replies of a connection.
#[derive(Default)]
pub struct Outbox {
    ready: VecDeque<Outgoing>,
    /// Replies that wait for the end of a long one. They hold no pooled buffers.
    kept: VecDeque<Outgoing>,
    /// The batch that the kernel is sending.
    sending: Option<Sending>,
}

/// A batch that the kernel is sending.
struct Sending {
    /// Buffer bytes in it.
    held_bytes: usize,
    since_ns: u64,
}

impl Outbox {
    /// The batch for the next reply, or for one that waits for the end of a long reply.
    pub fn batch(&mut self, waits: bool, spare: &mut SpareBatches) -> &mut Outgoing {
        let batches = if waits { &mut self.kept } else { &mut self.ready };
        if batches.back().is_none_or(|outgoing| outgoing.batch.is_full()) {
            batches.push_back(spare.0.pop().unwrap_or_default());
        }
        batches.back_mut().expect("a batch was just added if there was none")
    }

    /// The long reply has ended, so the replies that waited for it may go.
    pub fn release_kept(&mut self) {
        self.ready.append(&mut self.kept);
    }

    /// The next batch to send, unless one is being sent.
    pub fn next(&mut self, now_ns: u64) -> Option<Box<SendBatch>> {
        if self.sending.is_some() {
            return None;
        }
        let Outgoing { batch, held_bytes } = self.ready.pop_front()?;
        self.sending = Some(Sending { held_bytes, since_ns: now_ns });
        Some(batch)
    }

    /// The kernel has returned a batch. Answers the buffer bytes that were in it.
    pub fn sent(&mut self, batch: Box<SendBatch>, spare: &mut SpareBatches) -> usize {
        spare.keep(batch);
        self.sending.take().expect("a batch was being sent").held_bytes
    }

    /// Discards all replies that were not given to the kernel. Answers the buffer bytes in them.
    pub fn discard(&mut self) -> usize {
        self.kept.clear();
        self.ready.drain(..).map(|outgoing| outgoing.held_bytes).sum()
    }

    /// True if as many batches wait for the kernel as may.
    pub fn is_full(&self) -> bool {
        self.ready.len() + self.kept.len() >= OUTBOX_BATCHES_MAX
    }

    /// True if the kernel has nothing of it.
    pub fn is_quiet(&self) -> bool {
        self.sending.is_none()
    }

    /// True if all replies that may go were sent.
    pub fn is_sent(&self) -> bool {
        self.sending.is_none() && self.ready.is_empty()
    }

    /// Since when the client has left a batch unread, in nanoseconds.
    pub fn unread_since_ns(&self) -> Option<u64> {
        self.sending.as_ref().map(|sending| sending.since_ns)
    }
}
