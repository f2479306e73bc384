//! The host as attachments see it: mounts, devices and links. The kernel's host is [`KernelHost`].

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use weir_attach::keeper::Keeper;
use weir_attach::{fuse_mount, loop_device};
use weir_types::AttachmentId;

/// Name of the folder of mounts in the state folder.
const FOLDER: &str = "attachments";
/// Name of the keeper's socket in the state folder.
const KEEPER_SOCKET: &str = "keeper.sock";

/// Why the host did not do what was asked.
pub type HostError = Box<dyn std::error::Error + Send + Sync>;

/// Makes files and devices on the host. Each call can be repeated.
pub trait Host: Send + Sync {
    /// Identity of the boot of the host.
    fn boot(&self) -> Result<String, HostError>;

    /// True if a block device goes with its last user, who came while it was removed.
    fn is_leaving(&self, device: &Path) -> bool;

    /// Mounts the file of an attachment, in a way that outlives the daemon. `name` is shown in the mount table.
    fn mount(&self, attachment: AttachmentId, name: &str) -> Result<OwnedFd, HostError>;

    /// The device of a mount that an earlier daemon made; `None` if it is gone.
    fn take_over(&self, attachment: AttachmentId) -> Result<Option<OwnedFd>, HostError>;

    /// Where the file of an attachment is while its mount is in sight.
    fn place(&self, attachment: AttachmentId) -> PathBuf;

    /// Identity of the file, which is served by now.
    fn identity(&self, attachment: AttachmentId) -> Result<String, HostError>;

    /// A block device that nobody has yet. Another program may get it first.
    fn free_device(&self) -> Result<PathBuf, HostError>;

    /// Puts a block device on the file. False if another program has got the device.
    fn make_device(
        &self,
        attachment: AttachmentId,
        device: &Path,
        is_read_only: bool,
    ) -> Result<bool, HostError>;

    /// Takes the mount out of sight; its block device keeps it.
    fn hide(&self, attachment: AttachmentId) -> Result<(), HostError>;

    /// Identity of the file that a block device is on, or that is mounted at a place; `None` if there is none. The file must be served: the
    /// kernel may ask it.
    fn file_of(&self, device: &Path) -> Result<Option<String>, HostError>;

    /// Makes the block device as large as the file, which is served. A file is so large already.
    fn resize_device(&self, device: &Path) -> Result<(), HostError>;

    /// Makes a link to a block device, instead of an earlier one.
    fn link(&self, link: &Path, device: &Path) -> Result<(), HostError>;

    /// Removes a link, if it leads to the device.
    fn unlink(&self, link: &Path, device: &Path);

    /// Gives a block device back that nobody uses, and that is on the file with this identity. A file without a block
    /// device is unmounted, if nobody uses it.
    fn remove_device(&self, device: &Path, file: &str) -> Result<(), HostError>;

    /// Lets go of the mount, whose block device is gone.
    fn let_go(&self, attachment: AttachmentId) -> Result<(), HostError>;

    /// Ends whatever is left of an attachment, as far as its users permit. `device` is its block device, if it had
    /// one, with the identity of the file.
    fn clear(&self, attachment: AttachmentId, device: Option<(&Path, &str)>);
}

/// The kernel of this host.
pub struct KernelHost {
    folder: PathBuf,
    keeper: Keeper,
}

impl KernelHost {
    /// The host of a daemon with this state folder. `program` can be started as `program keeper`.
    pub fn new(state: &Path, program: PathBuf) -> KernelHost {
        KernelHost { folder: state.join(FOLDER), keeper: Keeper::new(state.join(KEEPER_SOCKET), program) }
    }
}

/// True if this is the file of an attachment that has no block device. The state folder may have got another name.
fn is_file(device: &Path) -> bool {
    device.parent() != Some(Path::new("/dev"))
}

impl Host for KernelHost {
    fn boot(&self) -> Result<String, HostError> {
        Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim_end().to_owned())
    }

    fn is_leaving(&self, device: &Path) -> bool {
        loop_device::is_leaving(device)
    }

    fn mount(&self, attachment: AttachmentId, name: &str) -> Result<OwnedFd, HostError> {
        let place = self.place(attachment);
        let device = fuse_mount::mount(&place, name)?;
        if let Err(error) = self.keeper.keep(&attachment.to_string(), &device) {
            fuse_mount::hide(&place)?;
            return Err(error.into());
        }
        Ok(device)
    }

    fn take_over(&self, attachment: AttachmentId) -> Result<Option<OwnedFd>, HostError> {
        Ok(self.keeper.give(&attachment.to_string())?)
    }

    fn place(&self, attachment: AttachmentId) -> PathBuf {
        self.folder.join(attachment.to_string())
    }

    fn identity(&self, attachment: AttachmentId) -> Result<String, HostError> {
        Ok(fuse_mount::identity(&self.place(attachment))?)
    }

    fn free_device(&self) -> Result<PathBuf, HostError> {
        Ok(loop_device::free()?)
    }

    fn make_device(
        &self,
        attachment: AttachmentId,
        device: &Path,
        is_read_only: bool,
    ) -> Result<bool, HostError> {
        Ok(loop_device::attach(device, &self.place(attachment), is_read_only)?)
    }

    fn hide(&self, attachment: AttachmentId) -> Result<(), HostError> {
        Ok(fuse_mount::hide(&self.place(attachment))?)
    }

    fn file_of(&self, device: &Path) -> Result<Option<String>, HostError> {
        match is_file(device) {
            true => Ok(fuse_mount::identity_of_mounted(device)?),
            false => Ok(loop_device::file_of(device)?),
        }
    }

    fn resize_device(&self, device: &Path) -> Result<(), HostError> {
        // A file has the size that its server tells.
        if !is_file(device) {
            loop_device::resize(device)?;
        }
        Ok(())
    }

    fn link(&self, link: &Path, device: &Path) -> Result<(), HostError> {
        link.parent().map_or(Ok(()), fs::create_dir_all)?;
        match symlink(device, link) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && fs::read_link(link).is_ok() => {
                fs::remove_file(link)?;
                Ok(symlink(device, link)?)
            }
            made => Ok(made?),
        }
    }

    fn unlink(&self, link: &Path, device: &Path) {
        if fs::read_link(link).is_ok_and(|target| target == device)
            && let Err(error) = fs::remove_file(link)
        {
            tracing::warn!(link = %link.display(), %error, "the link to a detached device stays");
        }
        // The tenant's folder goes with its last link.
        let _ = link.parent().map(fs::remove_dir);
    }

    fn remove_device(&self, device: &Path, file: &str) -> Result<(), HostError> {
        match is_file(device) {
            true => Ok(fuse_mount::unmount(device)?),
            false => Ok(loop_device::detach(device, file)?),
        }
    }

    fn let_go(&self, attachment: AttachmentId) -> Result<(), HostError> {
        Ok(self.keeper.let_go(&attachment.to_string())?)
    }

    fn clear(&self, attachment: AttachmentId, device: Option<(&Path, &str)>) {
        let report = |error: &dyn std::fmt::Display| {
            tracing::warn!(%attachment, %error, "a part of an attachment that is no more stays on the host");
        };
        // The kernel ends a mount that nobody holds. Otherwise the device would wait for an answer below.
        self.let_go(attachment).unwrap_or_else(|error| report(&error));
        if let Some((device, file)) = device.filter(|(device, _)| !is_file(device)) {
            loop_device::detach_later(device, file).unwrap_or_else(|error| report(&error));
        }
        self.hide(attachment).unwrap_or_else(|error| report(&error));
    }
}
