//! The host as attachments see it: mounts, devices and links. The kernel's host is [`KernelHost`].

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use weir_attach::freeze::{self, Frozen};
use weir_attach::keeper::Keeper;
use weir_attach::{block_device, fuse_mount, loop_device, nbd_device};
use weir_engine_interface::{AttachedClient, ServedSocket};
use weir_reactor::{kernel_version, ublk_device};
use weir_types::AttachmentId;

use super::offer::{DeviceTerms, HostError, Offer};
use super::ublk;
use crate::records::AttachMethod;

/// Name of the folder of mounts in the state folder.
const FOLDER: &str = "attachments";
/// Name of the keeper's socket in the state folder.
const KEEPER_SOCKET: &str = "keeper.sock";

/// The first kernel that sends FUSE requests again which a server left unanswered.
const RESEND_SINCE: (u32, u32) = (6, 9);

/// Filesystems that are frozen, until this is dropped at the latest.
pub trait Hold {
    /// Thaws them. False if they were thawed before, because it took too long.
    fn thaw(self: Box<Self>) -> bool;
}

impl Hold for Frozen {
    fn thaw(self: Box<Self>) -> bool {
        Frozen::thaw(*self)
    }
}

/// Makes files and devices on the host. Each call can be repeated.
pub trait Host: Send + Sync {
    /// Identity of the boot of the host.
    fn boot(&self) -> Result<String, HostError>;

    /// The best way to make a block device here, and why it is.
    fn best_method(&self) -> (AttachMethod, String);

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

    /// Makes the block device, which is on the file with this identity, as large as its volume. The file is served, and
    /// is so large already.
    fn resize_device(&self, device: &Path, file: &str, size_bytes: u64) -> Result<(), HostError>;

    /// Begins to make a block device that the kernel hands to a server. From then on it is found by the attachment.
    fn offer(
        &self,
        attachment: AttachmentId,
        method: AttachMethod,
        terms: DeviceTerms,
    ) -> Result<Offer, HostError>;

    /// Begins to hand such a block device to another server, after an earlier daemon has gone. `None` if it was never
    /// completed.
    fn offer_again(
        &self,
        attachment: AttachmentId,
        device: &Path,
        terms: DeviceTerms,
    ) -> Result<Option<Offer>, HostError>;

    /// Makes a link to a block device, instead of an earlier one.
    fn link(&self, link: &Path, device: &Path) -> Result<(), HostError>;

    /// Removes a link, if it leads to the device.
    fn unlink(&self, link: &Path, device: &Path);

    /// Freezes the filesystems that are mounted from these block devices; `None` if there are none.
    fn freeze(&self, devices: &[PathBuf]) -> Result<Option<Box<dyn Hold>>, HostError>;

    /// Gives a block device back that nobody uses, and that is on the file with this identity. A file without a block
    /// device is unmounted, if nobody uses it.
    fn remove_device(&self, device: &Path, file: &str) -> Result<(), HostError>;

    /// Lets go of the mount, whose block device is gone.
    fn let_go(&self, attachment: AttachmentId) -> Result<(), HostError>;

    /// Ends whatever is left of an attachment, as far as its users permit. `device` is its block device, if it had
    /// one, with the identity of the file.
    fn clear(&self, attachment: AttachmentId, device: Option<(&Path, &str)>);
}

/// Why there are no devices of ublk without io_uring.
const WITHOUT_IO_URING: &str = "ublk needs io_uring, which the daemon does not use ('weir status' says why)";

/// The kernel of this host.
pub struct KernelHost {
    folder: PathBuf,
    keeper: Keeper,
    has_io_uring: bool,
}

impl KernelHost {
    /// The host of a daemon with this state folder. `program` can be started as `program keeper`. Without io_uring, the
    /// engine serves no device of ublk.
    pub fn new(state: &Path, program: PathBuf, has_io_uring: bool) -> KernelHost {
        let keeper = Keeper::new(state.join(KEEPER_SOCKET), program);
        KernelHost { folder: state.join(FOLDER), keeper, has_io_uring }
    }

    /// Why there are no devices of ublk; `None` if there are.
    fn without_ublk(&self) -> Option<String> {
        match self.has_io_uring {
            true => ublk_device::unavailable(),
            false => Some(WITHOUT_IO_URING.to_owned()),
        }
    }
}

/// What a volume has become on this host.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DeviceKind {
    /// A file without a block device.
    File,
    Loop,
    Nbd,
    Ublk(u32),
}

impl DeviceKind {
    /// The kind of a device. The state folder, where files are, may have got another name.
    fn of(device: &Path) -> DeviceKind {
        if device.parent() != Some(Path::new("/dev")) {
            DeviceKind::File
        } else if let Some(number) = ublk_device::number_of(device) {
            DeviceKind::Ublk(number)
        } else if nbd_device::is_nbd(device) {
            DeviceKind::Nbd
        } else {
            DeviceKind::Loop
        }
    }
}

/// A device of the kernel's NBD client on a new connection.
fn offer_connection(attachment: AttachmentId, terms: DeviceTerms) -> Result<Offer, HostError> {
    let (server, client) = nbd_device::connection()?;
    let DeviceTerms { size_bytes, is_read_only } = terms;
    let connect = move || Ok(nbd_device::connect(&attachment.to_string(), client, size_bytes, is_read_only)?);
    Ok(Offer { client: served(server, terms), complete: Box::new(connect) })
}

/// Such a device, whose connection has ended, on another one.
fn offer_another_connection(
    attachment: AttachmentId,
    device: &Path,
    terms: DeviceTerms,
) -> Result<Offer, HostError> {
    let server = nbd_device::reconnect(device, &attachment.to_string())?;
    let device = device.to_owned();
    let resize = move || {
        // The volume may have grown without its device.
        if let Err(error) = nbd_device::resize(&device, &attachment.to_string(), terms.size_bytes) {
            tracing::warn!(%error, %attachment, "a device keeps its old size");
        }
        Ok(device)
    };
    Ok(Offer { client: served(server, terms), complete: Box::new(resize) })
}

fn served(socket: OwnedFd, DeviceTerms { size_bytes, is_read_only }: DeviceTerms) -> AttachedClient {
    AttachedClient::Socket(ServedSocket { socket, size_bytes, is_read_only })
}

impl Host for KernelHost {
    fn boot(&self) -> Result<String, HostError> {
        Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim_end().to_owned())
    }

    fn best_method(&self) -> (AttachMethod, String) {
        let Some(without_ublk) = self.without_ublk() else {
            return (AttachMethod::Ublk, "the best way that this kernel has".to_owned());
        };
        if fuse_mount::is_available() && kernel_version() >= RESEND_SINCE {
            return (AttachMethod::Fuse, without_ublk);
        }
        let without_resend =
            format!("{without_ublk}; FUSE loses requests of a daemon that ends before Linux 6.9");
        match nbd_device::is_available() {
            true => (AttachMethod::Nbd, without_resend),
            false => (AttachMethod::Fuse, "the only way that this kernel has".to_owned()),
        }
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
        Ok(match DeviceKind::of(device) {
            DeviceKind::File => fuse_mount::identity_of_mounted(device)?,
            DeviceKind::Loop => loop_device::file_of(device)?,
            DeviceKind::Nbd => nbd_device::name_of(device),
            DeviceKind::Ublk(number) => match ublk::mark_of(number) {
                Err(_) if !self.has_io_uring => return Err(WITHOUT_IO_URING.into()),
                found => found?,
            },
        })
    }

    fn resize_device(&self, device: &Path, file: &str, size_bytes: u64) -> Result<(), HostError> {
        match DeviceKind::of(device) {
            // A file has the size that its server tells.
            DeviceKind::File => Ok(()),
            DeviceKind::Loop => Ok(loop_device::resize(device)?),
            DeviceKind::Nbd => Ok(nbd_device::resize(device, file, size_bytes)?),
            DeviceKind::Ublk(number) => ublk::resize(number, size_bytes),
        }
    }

    fn offer(
        &self,
        attachment: AttachmentId,
        method: AttachMethod,
        terms: DeviceTerms,
    ) -> Result<Offer, HostError> {
        match method {
            AttachMethod::Ublk => match self.without_ublk() {
                Some(why) => Err(why.into()),
                None => ublk::offer(attachment, terms),
            },
            _ => offer_connection(attachment, terms),
        }
    }

    fn offer_again(
        &self,
        attachment: AttachmentId,
        device: &Path,
        terms: DeviceTerms,
    ) -> Result<Option<Offer>, HostError> {
        match DeviceKind::of(device) {
            DeviceKind::Ublk(_) if !self.has_io_uring => Err(WITHOUT_IO_URING.into()),
            DeviceKind::Ublk(number) => ublk::offer_again(number, terms),
            _ => offer_another_connection(attachment, device, terms).map(Some),
        }
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

    fn freeze(&self, devices: &[PathBuf]) -> Result<Option<Box<dyn Hold>>, HostError> {
        let mut places = Vec::new();
        for device in devices.iter().filter(|device| DeviceKind::of(device) != DeviceKind::File) {
            // All places of a device show the same filesystem.
            places.extend(block_device::mounts_of(device)?.into_iter().next());
        }
        if places.is_empty() {
            return Ok(None);
        }
        Ok(Some(Box::new(freeze::freeze(&places)?)))
    }

    fn remove_device(&self, device: &Path, file: &str) -> Result<(), HostError> {
        match DeviceKind::of(device) {
            DeviceKind::File => Ok(fuse_mount::unmount(device)?),
            DeviceKind::Loop => Ok(loop_device::detach(device, file)?),
            DeviceKind::Nbd => Ok(nbd_device::detach(device, file)?),
            DeviceKind::Ublk(number) => ublk::detach(number, file),
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
        if let Some((device, file)) = device.filter(|(device, _)| DeviceKind::of(device) == DeviceKind::Loop)
        {
            loop_device::detach_later(device, file).unwrap_or_else(|error| report(&error));
        }
        // The device may be there without a record: the kernel chose it.
        nbd_device::end(&attachment.to_string()).unwrap_or_else(|error| report(&error));
        ublk::end(attachment).unwrap_or_else(|error| report(&error));
        self.hide(attachment).unwrap_or_else(|error| report(&error));
    }
}
