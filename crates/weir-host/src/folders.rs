//! Where the daemon keeps its state and its sockets unless told otherwise.

use std::path::{Path, PathBuf};

/// Default state folder: the system's folder for root, else the user's own, if it is known.
pub fn default_state() -> Option<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Some(PathBuf::from("/var/lib/weir"));
    }
    let folder = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = folder("XDG_STATE_HOME").or_else(|| folder("HOME").map(|home| home.join(".local/state")));
    state.map(|state| state.join("weir"))
}

/// Folder of the sockets of the daemon of a state folder. The sockets of the default state folder lie in
/// memory, if the system has a folder for that, so listening needs no disk space. The sockets of any other
/// state folder lie in it.
pub fn sockets_folder(state: &Path) -> PathBuf {
    let runtime = match rustix::process::geteuid().is_root() {
        true => Some(PathBuf::from("/run")),
        false => std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute()),
    };
    let runtime = runtime.filter(|folder| Some(state) == default_state().as_deref() && folder.is_dir());
    runtime.map_or_else(|| state.to_owned(), |folder| folder.join("weir"))
}

/// Folder of the links to the devices of attached volumes: beside the system's devices for the daemon of the
/// default state folder, else in the state folder.
pub fn devices_folder(state: &Path) -> PathBuf {
    let is_system = rustix::process::geteuid().is_root() && Some(state) == default_state().as_deref();
    if is_system { PathBuf::from("/dev/weir") } else { state.join("devices") }
}
