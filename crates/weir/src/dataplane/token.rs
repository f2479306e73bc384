//! What the completions of a reactor's ring belong to.

use weir_volume::OperationId;

/// Index of a connection in its reactor.
pub(super) type ConnectionIndex = usize;
/// Index of a volume in its reactor.
pub(super) type VolumeIndex = usize;

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
    /// A read, write or placement of a volume's operation.
    Operation(VolumeIndex, OperationId),
    /// A partial block of an unaligned write.
    Edge(VolumeIndex, OperationId, weir_volume::EdgeRead),
    /// The first half of zeroing where the filesystem cannot do it in one step.
    ZeroRelease { volume: VolumeIndex, operation: OperationId, extent: u32, offset: u32, length: u32 },
    /// The second half.
    ZeroReserve(VolumeIndex, OperationId),
    /// Space reserved ahead of writes.
    Allocate { volume: VolumeIndex, extent: u32, piece: u32 },
    /// Stability of an extent's writes.
    Sync { volume: VolumeIndex, extent: u32 },
}
