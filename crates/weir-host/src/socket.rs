//! Unix sockets that the daemon listens on. Each has a stated mode and group, independent of the umask.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Who may connect to a Unix socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketAccess {
    /// Mode of the socket, for example 0o660.
    pub mode: u32,
    /// Group of the socket, unless it is the daemon's.
    pub group: Option<u32>,
}

impl SocketAccess {
    /// Access for the daemon's own user and root only.
    pub const OWNER: SocketAccess = SocketAccess { mode: 0o600, group: None };
}

/// Binds a Unix socket. A dead daemon's socket, on which no program answers, is replaced.
///
/// # Errors
/// `AddrInUse` if a program answers there, `AlreadyExists` if the path is not a socket, or the system's
/// error.
pub fn bind(path: &Path, access: SocketAccess) -> io::Result<UnixListener> {
    refuse_what_is_used(path)?;
    // The socket is bound under another name and moved once its mode is set, so that no other user ever
    // connects. A program that watches the folder for sockets, as a kubelet does, passes over names with a dot at the front.
    let new = name_meanwhile(path);
    remove_if_there(&new)?;
    let listener = UnixListener::bind(&new)?;
    if let Some(group) = access.group {
        std::os::unix::fs::lchown(&new, None, Some(group))?;
    }
    fs::set_permissions(&new, Permissions::from_mode(access.mode))?;
    fs::rename(&new, path)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn name_meanwhile(path: &Path) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{stem}.new"))
}

fn refuse_what_is_used(path: &Path) -> io::Result<()> {
    let Ok(metadata) = fs::symlink_metadata(path) else { return Ok(()) };
    if !metadata.file_type().is_socket() {
        let message = "something that is not a socket has this name; remove it or choose another path";
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, message));
    }
    match UnixStream::connect(path) {
        Ok(_) => Err(io::Error::new(io::ErrorKind::AddrInUse, "another program answers there")),
        Err(_) => Ok(()),
    }
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn name_meanwhile_is_hidden_and_no_longer() {
        assert_eq!(name_meanwhile(Path::new("/run/weir/csi.sock")), Path::new("/run/weir/.csi.new"));
    }

    #[test]
    fn socket_has_stated_mode_and_replaces_only_dead_socket() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.sock");
        let group = rustix::process::getegid().as_raw();
        let access = SocketAccess { mode: 0o620, group: Some(group) };
        let listener = bind(&path, access).unwrap();
        let metadata = fs::metadata(&path).unwrap();
        assert_eq!((metadata.mode() & 0o7777, metadata.gid()), (0o620, group));
        assert_eq!(bind(&path, access).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(listener);
        bind(&path, SocketAccess::OWNER).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
        let file = folder.path().join("b.sock");
        fs::write(&file, "mine").unwrap();
        assert_eq!(bind(&file, access).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&file).unwrap(), b"mine");
    }
}
