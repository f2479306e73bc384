//! Errors that answer an NBD request.

/// The reason why a request failed, as an error of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum NbdError {
    /// The export is read-only, or access was denied.
    #[error("operation not permitted")]
    Perm,
    /// The drive failed.
    #[error("input/output error")]
    Io,
    /// The server is short of memory.
    #[error("cannot allocate memory")]
    NoMem,
    /// The request itself is wrong: its command, flags, offset or length.
    #[error("invalid argument")]
    Inval,
    /// The drive is full, or the request would write past the end of the export.
    #[error("no space left on device")]
    NoSpace,
    /// A read that must not be fragmented is too long for one chunk.
    #[error("value too large")]
    Overflow,
    /// Zeroing would not be faster than writing, and the request allows only a fast way.
    #[error("operation not supported")]
    NotSupported,
    /// The server is shutting down.
    #[error("server is shutting down")]
    Shutdown,
}

impl NbdError {
    /// Every error, in the order of their numbers.
    pub const ALL: [NbdError; 8] = [
        NbdError::Perm,
        NbdError::Io,
        NbdError::NoMem,
        NbdError::Inval,
        NbdError::NoSpace,
        NbdError::Overflow,
        NbdError::NotSupported,
        NbdError::Shutdown,
    ];

    /// Number of the error on the wire.
    pub const fn number(self) -> u32 {
        match self {
            NbdError::Perm => 1,
            NbdError::Io => 5,
            NbdError::NoMem => 12,
            NbdError::Inval => 22,
            NbdError::NoSpace => 28,
            NbdError::Overflow => 75,
            NbdError::NotSupported => 95,
            NbdError::Shutdown => 108,
        }
    }

    /// Returns the protocol's error for a failed system call, by Linux error number.
    ///
    /// An error without a number in the protocol becomes an input/output error. So do numbers that the
    /// protocol reserves for one command (`EOVERFLOW`, `EOPNOTSUPP`), because a client could not make sense
    /// of them.
    pub const fn from_errno(errno: i32) -> NbdError {
        match errno {
            // EPERM, EACCES, EROFS
            1 | 13 | 30 => NbdError::Perm,
            // ENOMEM
            12 => NbdError::NoMem,
            // EINVAL
            22 => NbdError::Inval,
            // EFBIG, ENOSPC, EDQUOT
            27 | 28 | 122 => NbdError::NoSpace,
            _ => NbdError::Io,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_numbers_match_the_protocol() {
        let numbers = NbdError::ALL.map(NbdError::number);
        assert_eq!(numbers, [1, 5, 12, 22, 28, 75, 95, 108]);
    }

    #[test]
    fn errno_maps_to_the_protocol_error() {
        for (errno, error) in [
            (1, NbdError::Perm),
            (5, NbdError::Io),
            (12, NbdError::NoMem),
            (22, NbdError::Inval),
            (27, NbdError::NoSpace),
            (28, NbdError::NoSpace),
            (30, NbdError::Perm),
            (75, NbdError::Io),
            (95, NbdError::Io),
            (122, NbdError::NoSpace),
            (i32::MIN, NbdError::Io),
        ] {
            assert_eq!(NbdError::from_errno(errno), error, "{errno}");
        }
    }
}
