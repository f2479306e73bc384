//! Shortage: whether the system is short of a resource, and waiting until it is not.

use std::io;
use std::time::Duration;

use rustix::io::Errno;

/// Number of attempts while the system is short of a resource, and the pause between them.
const TRIES: u32 = 50;
const PAUSE: Duration = Duration::from_millis(100);

/// Retries an operation for some seconds while the system is short of a resource. A shortage must not fail
/// a replica.
pub fn patiently<T>(mut act: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    for _ in 0..TRIES {
        match act() {
            Err(error) if is_shortage(&error) => std::thread::sleep(PAUSE),
            result => return result,
        }
    }
    act()
}

/// True if an operation failed only because a resource of the system is used up.
pub fn is_shortage(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(errno, Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM))
}
