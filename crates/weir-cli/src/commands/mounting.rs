//! Mounts of attached volumes: on this host, in the mount namespace of whoever asks.

use std::path::{Path, PathBuf};

use weir_api_types::{AttachMethod, Attachment};
use weir_attach::filesystem::{self, MountOptions};
use weir_attach::{AttachError, in_words};

use super::super::arguments::MountArguments;
use super::super::client::Client;
use super::super::errors::CommandError;

/// The answer while another command attaches or detaches the volume.
const NOT_MADE: &str = "another command attaches or detaches the volume now; try again";

/// The answer about an attachment that has no block device.
const NO_DEVICE: &str =
    "the volume is attached as a file, which cannot be mounted; '--method fuse' makes a block device";

/// A place for a mount, and the filesystem to make.
pub struct Mounting {
    folder: PathBuf,
    kind: Option<filesystem::FilesystemKind>,
}

impl Mounting {
    /// What the options ask for, if they ask for a mount. The place is checked before anything is made.
    pub fn of(client: &Client, arguments: &MountArguments) -> Result<Option<Mounting>, CommandError> {
        let Some(folder) = &arguments.mount else { return Ok(None) };
        client.refuse_remote()?;
        let folder = std::path::absolute(folder)?;
        filesystem::check_folder(&folder).map_err(failed)?;
        Ok(Some(Mounting { folder, kind: arguments.fs }))
    }

    /// Mounts an attached volume, and makes a filesystem if it was asked for and there is nothing. Returns the
    /// place.
    pub fn mount(&self, attachment: &Attachment) -> Result<&Path, CommandError> {
        if attachment.method == AttachMethod::FuseFile {
            return Err(CommandError::Failed(NO_DEVICE.to_owned()));
        }
        let device = attachment.device.as_deref().map(Path::new);
        let device = device.ok_or_else(|| CommandError::Failed(NOT_MADE.to_owned()))?;
        // A read-only device cannot get a filesystem.
        let kind = self.kind.filter(|_| !attachment.read_only);
        let found = filesystem::prepare(device, kind).map_err(|error| match error {
            AttachError::NoFilesystem { .. } => {
                CommandError::Failed(format!("{error}; '--fs ext4' or '--fs xfs' makes one"))
            }
            error => failed(error),
        })?;
        let options = MountOptions { is_read_only: attachment.read_only };
        filesystem::mount(device, &self.folder, &found, options).map_err(failed)?;
        Ok(&self.folder)
    }
}

/// Unmounts an attached volume from every place.
pub fn unmount(client: &Client, attachment: &Attachment) -> Result<(), CommandError> {
    client.refuse_remote()?;
    // A device that is not made, or is going, is not the volume's.
    let Some(device) = &attachment.device else { return Ok(()) };
    let places = filesystem::places_of(Path::new(device)).map_err(failed)?;
    // A later mount may hide an earlier one.
    places.iter().rev().try_for_each(|place| filesystem::unmount(place)).map_err(failed)
}

/// An error with all its causes.
fn failed(error: AttachError) -> CommandError {
    CommandError::Failed(in_words(&error))
}
