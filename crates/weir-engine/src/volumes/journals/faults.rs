//! Faults: errors of the system as a journal's faults, and back.

use std::io;

use weir_journal::{Fault, SlowFault};

/// A journal's fault as an error of a drive.
pub fn as_error(fault: Fault) -> io::Error {
    match fault {
        Fault::Slow(SlowFault::NoSpace) => io::Error::from(rustix::io::Errno::NOSPC),
        Fault::Slow(SlowFault::Short) => io::Error::from(rustix::io::Errno::NOMEM),
        other => io::Error::other(other),
    }
}

/// An error of the system as a journal's fault.
pub fn as_fault(error: &io::Error) -> SlowFault {
    use rustix::io::Errno;
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOSPC | Errno::DQUOT) => SlowFault::NoSpace,
        Some(Errno::NOMEM | Errno::AGAIN | Errno::INTR) => SlowFault::Short,
        Some(Errno::OPNOTSUPP | Errno::NOSYS) => SlowFault::Unsupported,
        _ => SlowFault::Broken,
    }
}

/// Result of an operation that succeeds only if it was carried out in full.
pub fn whole(result: io::Result<u32>, length: u32) -> Result<(), SlowFault> {
    match result {
        Ok(done) if done == length => Ok(()),
        Ok(_) => Err(SlowFault::Broken),
        Err(error) => Err(as_fault(&error)),
    }
}
