//! Attaching: how a volume becomes a file, and a block device, of this host.
//!
//! The crate asks the kernel for mounts and block devices, and finds out what is there. It decides nothing: which
//! attachments should exist is for control to know. It knows neither volumes nor the FUSE protocol.
//!
//! * [`fuse_mount`]: the mount of a filesystem of one file.
//! * [`loop_device`]: a loop device on the file.
//! * [`block_device`]: who uses a block device.
//! * [`nbd_device`]: a block device of a connection, by the kernel's NBD client.
//! * [`filesystem`]: a filesystem on a block device, and its mount.
//! * [`freeze`]: a filesystem that writes nothing for a moment.
//! * [`cgroup_folder`]: which cgroup a folder is.
//! * [`mount_table`]: where a device is mounted.
//! * [`device_users`]: which processes have opened a device or a file.
//! * [`keeper`]: the process that keeps mounts alive while no daemon runs.

#![forbid(unsafe_code)]

pub mod block_device;
mod busy;
pub mod cgroup_folder;
pub mod device_users;
mod error;
pub mod filesystem;
pub mod freeze;
pub mod fuse_mount;
pub mod keeper;
pub mod loop_device;
pub mod mount_table;
pub mod nbd_device;

pub use error::{AttachError, in_words};
