//! Tokens: the owner of each completion of a reactor's ring.

use weir_types::ExtentIndex;
use weir_volume::zeroing::Step;
use weir_volume::{Generation, OperationId};

/// Index of a connection in its reactor.
pub type ConnectionIndex = usize;
/// A client's request: the connection's index and the request's index in the connection.
pub type Ticket = (ConnectionIndex, usize);
/// Index of a volume in its reactor.
pub type VolumeIndex = usize;

/// A replica of a volume in its reactor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReplicaIndex {
    pub volume: VolumeIndex,
    pub slot: usize,
}

/// Number that distinguishes one request to a replica from all others. A late answer to a given-up request is
/// thus never taken for the answer to another request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct AskNumber(pub u64);

/// Names one operation of the ring.
#[derive(Clone, Copy, Debug)]
pub enum Token {
    /// Bytes into a connection's receive buffer.
    Receive(ConnectionIndex),
    /// Bytes straight into the buffer of a large write.
    ReceivePayload(ConnectionIndex),
    /// The client's hang-up, while the reactor reads nothing from the client.
    HangUp(ConnectionIndex),
    /// A batch of replies.
    Send(ConnectionIndex),
    /// Messages of a mounted filesystem.
    Messages(ConnectionIndex),
    /// The next request of a tag of a block device.
    Block(ConnectionIndex, u16),
    /// A read, write or fallocate of a replica's operation.
    Operation(ReplicaIndex, OperationId, AskNumber),
    /// A partial block of an unaligned write.
    Edge(ReplicaIndex, OperationId, AskNumber, weir_volume::EdgeRead),
    /// A step of zeroing.
    Zero(ReplicaIndex, OperationId, AskNumber, Step),
    /// Space allocated ahead of writes.
    Allocate { replica: ReplicaIndex, number: AskNumber, file: (ExtentIndex, Generation), piece: u32 },
    /// A sync of an extent's file.
    Sync { replica: ReplicaIndex, number: AskNumber, file: (ExtentIndex, Generation) },
    /// An operation of one of a volume's journals.
    Journal { volume: VolumeIndex, journal: usize, flight: u64 },
}

impl Token {
    /// The volume of an operation on a volume's files.
    pub fn volume(&self) -> Option<VolumeIndex> {
        match self {
            Token::Operation(replica, ..) | Token::Edge(replica, ..) | Token::Zero(replica, ..) => {
                Some(replica.volume)
            }
            Token::Allocate { replica, .. } | Token::Sync { replica, .. } => Some(replica.volume),
            Token::Receive(_)
            | Token::ReceivePayload(_)
            | Token::HangUp(_)
            | Token::Send(_)
            | Token::Messages(_)
            | Token::Block(..)
            | Token::Journal { .. } => None,
        }
    }
}
