//! A state folder on a small filesystem that it shares with the default drive, which volumes fill.

use crate::common::daemon::{Daemon, State};
use crate::common::mounts::Mount;
use crate::common::nbd::{Client, ENOSPC};
use crate::{MIB, attach};

/// Writes until there is no space; where that was.
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

/// A daemon whose state folder and default drive are on one small filesystem.
pub fn on_one_filesystem(kind: &str) -> (State, Mount) {
    let state = State::new();
    let mount = match kind {
        "tmpfs" => Mount::tmpfs(&state.path(), 64),
        "xfs" => Mount::image(&state, kind, &state.path(), 320),
        kind => Mount::image(&state, kind, &state.path(), 64),
    };
    (state, mount)
}

/// A daemon whose volume has filled the filesystem of its state folder.
pub struct Full {
    pub daemon: Daemon,
    pub mount: Mount,
    pub client: Client,
    /// Pieces of the volume that were written.
    pub end: u64,
}

/// A volume that has filled a filesystem.
pub fn full(kind: &str) -> Full {
    let (state, mount) = on_one_filesystem(kind);
    let daemon = state.start(&["--reactors", "2"]);
    daemon.create("vol1", "1GiB");
    let mut client = attach(&daemon);
    let end = write_until_full(&mut client);
    Full { daemon, mount, client, end }
}

impl Full {
    /// Gives back the last pieces.
    pub fn give_back(mut self, pieces: u64) -> Full {
        self.end -= pieces;
        self.client.trim(self.end * MIB, (pieces * MIB) as u32).unwrap();
        self.client.flush().unwrap();
        self
    }
}

/// Asserts that volumes left alone what the state folder may need, and that it can be changed.
pub fn assert_set_aside(daemon: &Daemon, mount: &Mount, kind: &str) {
    let size_bytes = rustix::fs::statvfs(mount.point()).map(|space| space.f_blocks * space.f_frsize).unwrap();
    let free_bytes = mount.free_bytes();
    assert!(free_bytes > size_bytes / 64, "{kind}: {free_bytes} bytes are left of {size_bytes}");
    daemon.ok(&["tenant", "create", "acme"]);
}
