//! Capability: how a volume is to be used, and whether it can be.

use tonic::Status;
use weir_attach::filesystem::FilesystemKind;

use crate::failure::missing;
use crate::wire::{AccessType, Mode, VolumeCapability};

/// How a volume is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// The filesystem; `None` for a block device.
    pub filesystem: Option<FilesystemKind>,
    /// Whether nobody writes.
    pub is_read_only: bool,
    /// Whether one consumer alone has it.
    pub is_of_one: bool,
}

/// What a capability says.
///
/// # Errors
/// Invalid if it says nothing, names an unknown filesystem, or asks for something that no volume can do.
pub fn usage(capability: &VolumeCapability) -> Result<Usage, Status> {
    let mode = capability.access_mode.ok_or_else(|| missing("access mode"))?.mode;
    let mode = Mode::try_from(mode).unwrap_or(Mode::Unknown);
    let is_read_only = matches!(mode, Mode::SingleNodeReaderOnly | Mode::MultiNodeReaderOnly);
    match mode {
        Mode::Unknown => return Err(missing("access mode")),
        Mode::MultiNodeSingleWriter | Mode::MultiNodeMultiWriter => {
            return Err(Status::invalid_argument("a volume can be written on one node only"));
        }
        _ => {}
    }
    let filesystem = match &capability.access_type {
        None => return Err(missing("access type")),
        Some(AccessType::Block(_)) => None,
        Some(AccessType::Mount(mount)) if mount.fs_type.is_empty() => Some(FilesystemKind::Ext4),
        Some(AccessType::Mount(mount)) => {
            Some(mount.fs_type.parse().map_err(|why: String| Status::invalid_argument(why))?)
        }
    };
    let is_of_one = mode == Mode::SingleNodeSingleWriter;
    Ok(Usage { filesystem, is_read_only, is_of_one })
}

/// What the capability of a call says.
///
/// # Errors
/// Invalid if there is none, or as [`usage`].
pub fn usage_of(capability: Option<&VolumeCapability>) -> Result<Usage, Status> {
    usage(capability.ok_or_else(|| missing("volume capability"))?)
}

/// Checks all capabilities of a call.
///
/// # Errors
/// Invalid if there is none, or as [`usage`] for the first that is not accepted.
pub fn check_all(capabilities: &[VolumeCapability]) -> Result<(), Status> {
    if capabilities.is_empty() {
        return Err(missing("volume capabilities"));
    }
    capabilities.iter().try_for_each(|capability| usage(capability).map(drop))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{AccessMode, Empty, MountVolume};

    fn capability(mode: Mode, access_type: Option<AccessType>) -> VolumeCapability {
        VolumeCapability { access_type, access_mode: Some(AccessMode { mode: mode.into() }) }
    }

    fn filesystem(fs_type: &str) -> Option<AccessType> {
        Some(AccessType::Mount(MountVolume { fs_type: fs_type.to_owned(), mount_flags: Vec::new() }))
    }

    #[test]
    fn use_is_what_the_capability_says() {
        let found = usage(&capability(Mode::SingleNodeWriter, filesystem(""))).unwrap();
        let expected =
            Usage { filesystem: Some(FilesystemKind::Ext4), is_read_only: false, is_of_one: false };
        assert_eq!(found, expected);
        let block = Some(AccessType::Block(Empty {}));
        let found = usage(&capability(Mode::MultiNodeReaderOnly, block)).unwrap();
        assert_eq!(found, Usage { filesystem: None, is_read_only: true, is_of_one: false });
        assert!(usage(&capability(Mode::SingleNodeSingleWriter, filesystem(""))).unwrap().is_of_one);
    }

    #[test]
    fn what_no_volume_can_do_is_refused() {
        for (mode, access_type) in [
            (Mode::Unknown, filesystem("")),
            (Mode::MultiNodeMultiWriter, filesystem("")),
            (Mode::SingleNodeWriter, filesystem("vfat")),
            (Mode::SingleNodeWriter, None),
        ] {
            let refused = usage(&capability(mode, access_type)).unwrap_err();
            assert_eq!(refused.code(), tonic::Code::InvalidArgument, "{refused}");
        }
        assert!(check_all(&[]).is_err());
    }
}
