//! Look at the filesystem of the state folder, from its beginning to its end.

/// A look at the filesystem that has begun.
#[derive(Clone, Copy, Debug, Default)]
pub struct SpaceLook {
    /// Granted space of operations that were done at the beginning of the look, in bytes.
    pub done_bytes: u64,
}
