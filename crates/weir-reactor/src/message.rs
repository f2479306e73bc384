//! Messages of a device like `/dev/fuse`: each call moves one whole message, and none waits.

use std::io::{self, IoSlice};

use rustix::io::Errno;

use crate::descriptor::Descriptor;

/// Reads one message into the beginning of `memory`. Returns its length, or `None` if there is no message.
///
/// # Errors
/// The errors of `read(2)`; from `/dev/fuse` `ENODEV` if the filesystem is unmounted. A message that was
/// withdrawn meanwhile is passed over.
pub fn read_message(device: &Descriptor, memory: &mut [u8]) -> io::Result<Option<usize>> {
    loop {
        match rustix::io::read(device, &mut *memory) {
            Ok(length) => return Ok(Some(length)),
            Err(Errno::AGAIN) => return Ok(None),
            Err(Errno::INTR | Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Writes one message, whose parts lie in several places.
///
/// # Errors
/// The errors of `writev(2)`; from `/dev/fuse` `ENOENT` if nobody waits for the answer.
pub fn write_message(device: &Descriptor, parts: &[IoSlice<'_>]) -> io::Result<()> {
    loop {
        match rustix::io::writev(device, parts) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
