//! The process at the other end of a Unix socket, as reported by the kernel.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Expected number of groups; more cost a second call.
const GROUPS: usize = 64;

/// Returns the supplementary groups that the peer of a connected Unix socket had when it connected.
///
/// # Errors
/// The error of the system, for example for a socket without a peer.
pub fn peer_groups(socket: BorrowedFd<'_>) -> io::Result<Vec<u32>> {
    let mut groups = vec![0_u32; GROUPS];
    loop {
        let mut bytes = size_of_val(groups.as_slice()) as libc::socklen_t;
        // SAFETY: the descriptor is open for as long as it is borrowed. The kernel writes at most `bytes`
        // bytes to `groups`, which has as many, and the length to `bytes`. Both outlive the call.
        let result = unsafe {
            let target = groups.as_mut_ptr().cast::<libc::c_void>();
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                target,
                &raw mut bytes,
            )
        };
        let count = bytes as usize / size_of::<u32>();
        if result == 0 {
            groups.truncate(count);
            return Ok(groups);
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::ERANGE) || count <= groups.len() {
            return Err(error);
        }
        groups.resize(count, 0);
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn groups_of_a_peer_in_this_process_are_its_own() {
        let (one, _other) = UnixStream::pair().unwrap();
        let own: Vec<u32> =
            rustix::process::getgroups().unwrap().iter().map(|group| group.as_raw()).collect();
        assert_eq!(peer_groups(one.as_fd()).unwrap(), own);
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(peer_groups(file.as_fd()).is_err());
    }
}
