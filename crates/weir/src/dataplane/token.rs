//! What the completions of a reactor's ring belong to.

use weir_volume::zeroing::Step;
use weir_volume::{Generation, OperationId};

/// Index of a connection in its reactor.
pub(super) type ConnectionIndex = usize;
/// Index of a volume in its reactor.
pub(super) type VolumeIndex = usize;

/// A replica of a volume in its reactor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ReplicaIndex {
    pub volume: VolumeIndex,
    pub slot: usize,
}

/// Tells one time that something was asked of a replica from any other, so that an answer which comes after it was given up
/// is not taken for that to another question.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct AskNumber(pub u64);

/// Names one operation of the ring.
#[derive(Clone, Copy, Debug)]
pub(super) enum Token {
    /// Bytes into a connection's receive buffer.
    Receive(ConnectionIndex),
    /// Bytes straight into the buffer of a large write.
    ReceivePayload(ConnectionIndex),
    /// The client's hanging up, while nothing is read from it.
    HangUp(ConnectionIndex),
    /// A batch of replies.
    Send(ConnectionIndex),
    /// A read, write or placement of a replica's operation.
    Operation(ReplicaIndex, OperationId, AskNumber),
    /// A partial block of an unaligned write.
    Edge(ReplicaIndex, OperationId, AskNumber, weir_volume::EdgeRead),
    /// A step of zeroing.
    Zero(ReplicaIndex, OperationId, AskNumber, Step),
    /// Space reserved ahead of writes.
    Allocate { replica: ReplicaIndex, number: AskNumber, file: (u32, Generation), piece: u32 },
    /// Stability of what was written to the file of an extent.
    Sync { replica: ReplicaIndex, number: AskNumber, file: (u32, Generation) },
    /// Something that one of a volume's journals wants done.
    Journal { volume: VolumeIndex, journal: usize, flight: u64 },
}
