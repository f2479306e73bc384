//! Small filesystem: the state folder shares it with the default drive, whose volumes fill it.

use crate::common::daemon::{Daemon, State};
use crate::common::mounts::Mount;
use crate::common::nbd::{Client, ENOSPC};
use crate::failures::{MIB, attach};

/// Writes until there is no space. Returns the piece at which the space ended.
fn write_until_full(client: &mut Client) -> u64 {
    for piece in 0..client.size / MIB {
        match client.write(piece * MIB, &vec![0xaa; MIB as usize]) {
            Ok(()) => {}
            Err(error) => {
                assert_eq!(error, ENOSPC);
                return piece;
            }
        }
    }
    panic!("the volume ended before there was no space");
}

/// Puts the state folder and the default drive of a daemon on one small filesystem.
pub fn on_one_filesystem(kind: &str) -> (State, Mount) {
    let state = State::new();
    let mount = match kind {
        "tmpfs" => Mount::tmpfs(&state.path(), 64),
        "xfs" => Mount::image(&state, kind, &state.path(), 320),
        kind => Mount::image(&state, kind, &state.path(), 64),
    };
    (state, mount)
}

/// Daemon whose volume has filled the filesystem of its state folder.
pub struct Full {
    pub daemon: Daemon,
    pub mount: Mount,
    pub client: Client,
    /// Number of pieces of the volume that were written.
    pub end: u64,
}

/// Fills the filesystem of the state folder with a volume.
pub fn full(kind: &str) -> Full {
    let (state, mount) = on_one_filesystem(kind);
    let daemon = state.start(&["--reactors", "2"]);
    daemon.create("vol1", "1GiB");
    let mut client = attach(&daemon);
    let end = write_until_full(&mut client);
    Full { daemon, mount, client, end }
}

impl Full {
    /// Trims the last pieces of the volume.
    pub fn give_back(mut self, pieces: u64) -> Full {
        self.end -= pieces;
        self.client.trim(self.end * MIB, (pieces * MIB) as u32).unwrap();
        self.client.flush().unwrap();
        self
    }
}

/// Asserts that the volumes left the reserve of the state folder free, and that the state folder accepts
/// changes.
pub fn assert_set_aside(daemon: &Daemon, mount: &Mount, kind: &str) {
    let size_bytes = rustix::fs::statvfs(mount.point()).map(|space| space.f_blocks * space.f_frsize).unwrap();
    let free_bytes = mount.free_bytes();
    assert!(free_bytes > size_bytes / 64, "{kind}: {free_bytes} bytes are left of {size_bytes}");
    daemon.ok(&["tenant", "create", "acme"]);
}
