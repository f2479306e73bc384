//! Arguments of the commands about attachments.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use weir_api_types::AttachMethod;
use weir_attach::filesystem::FilesystemKind;

use super::{OptionalVolumeName, ReadArguments, TenantFilter, TenantOfShown, TenantOption, VolumeName};

/// A volume to attach.
#[derive(Debug, Args)]
pub struct AttachArguments {
    #[command(flatten)]
    pub name: VolumeName,
    #[command(flatten)]
    pub tenant: TenantOption,
    /// How to attach it: 'ublk', 'fuse' and 'nbd' make a block device, 'fuse-file' a file whose users can have limits of their own [default: the best way that the host has to make a block device]
    #[arg(long, value_name = "METHOD", value_enum, hide_possible_values = true)]
    pub method: Option<AttachMethod>,
    /// Refuse writes
    #[arg(long)]
    pub read_only: bool,
    /// Consumer of the attachment, as 'attachment list' shows it
    #[arg(long, value_name = "TEXT", default_value = "weir attach")]
    pub consumer: String,
    #[command(flatten)]
    pub mount: MountArguments,
    /// Attach nothing: print how this program opens the volume by NBD
    #[arg(long, value_name = "PROGRAM", value_enum, conflicts_with_all = ["mount", "fs", "read_only"])]
    pub print_command: Option<NbdProgram>,
}

/// A program that speaks NBD.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum NbdProgram {
    /// A virtual machine.
    Qemu,
    /// A disk of a virtual machine under libvirt, as XML.
    Libvirt,
    /// The kernel's NBD client.
    NbdClient,
    /// A file, by libnbd and FUSE.
    Nbdfuse,
    /// A disk image that is read or written as a whole.
    Nbdcopy,
    /// The tool for disk images.
    QemuImg,
}

/// Where to mount an attached volume.
#[derive(Debug, Args)]
pub struct MountArguments {
    /// Mount the filesystem of the volume at this folder, which is created or must be empty
    #[arg(long, value_name = "DIR")]
    pub mount: Option<PathBuf>,
    /// Make a filesystem first, if the volume has nothing: 'ext4' or 'xfs'
    #[arg(long, value_name = "FILESYSTEM", requires = "mount")]
    pub fs: Option<FilesystemKind>,
}

/// A volume to detach.
#[derive(Debug, Args)]
pub struct DetachArguments {
    #[command(flatten)]
    pub name: VolumeName,
    #[command(flatten)]
    pub tenant: TenantOption,
    /// Unmount the volume on this host first
    #[arg(long)]
    pub unmount: bool,
}

/// Commands about attachments.
#[derive(Debug, Subcommand)]
pub enum AttachmentCommand {
    /// List attachments
    #[command(after_help = "Example:\n  weir attachment list\n  weir attachment list -o wide")]
    List {
        #[command(flatten)]
        tenant: TenantFilter,
        #[command(flatten)]
        read: ReadArguments,
    },
    /// Show the attachments of a volume with all their fields, or list the attachments
    #[command(visible_alias = "inspect", after_help = "Example:\n  weir attachment show vol1")]
    Show {
        #[command(flatten)]
        name: OptionalVolumeName,
        #[command(flatten)]
        tenant: TenantOfShown,
        #[command(flatten)]
        read: ReadArguments,
    },
}
