//! A small filesystem for a state folder, or for the drive in it.

use std::path::PathBuf;

use crate::common::daemon::State;
use crate::common::program::tool;

/// A state folder that lies on a small filesystem, or whose drive does. The filesystem goes with the folder.
pub struct Mounted {
    pub state: State,
}

impl Mounted {
    /// Only the drive is small.
    pub fn drive(mebibytes: u64) -> Mounted {
        let state = State::new();
        let point = state.path().join("drive");
        Mounted::at(state, point, mebibytes)
    }

    /// The drive and the rest of the state folder share a small filesystem.
    pub fn state(mebibytes: u64) -> Mounted {
        let state = State::new();
        let point = state.path();
        Mounted::at(state, point, mebibytes)
    }

    fn at(state: State, point: PathBuf, mebibytes: u64) -> Mounted {
        let image = state.beside("image");
        std::fs::File::create_new(&image).unwrap().set_len(mebibytes << 20).unwrap();
        tool("mkfs.ext4", &["-q".as_ref(), image.as_os_str()]);
        std::fs::create_dir_all(&point).unwrap();
        tool("mount", &["-o".as_ref(), "loop".as_ref(), image.as_os_str(), point.as_os_str()]);
        Mounted { state }
    }
}
