//! Numbers of the operations of a mirror.

/// Number of a request to a mirror, of a resync step or of a piece of a scrub, from its start until it is
/// forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MirrorId(pub u32);
