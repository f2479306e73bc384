//! Capability: how a volume is to be used, and whether it can be.

use tonic::Status;
use weir_attach::filesystem::FilesystemKind;

use crate::failure::missing;
use crate::wire::{AccessType, Mode, VolumeCapability};

/// What consumers get of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Its block device.
    Block,
    /// A filesystem; of this kind, if one was named.
    Filesystem(Option<FilesystemKind>),
}

/// How a volume is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// What consumers get.
    pub access: Access,
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
    let access = match &capability.access_type {
        None => return Err(missing("access type")),
        Some(AccessType::Block(_)) => Access::Block,
        Some(AccessType::Mount(mount)) if !mount.mount_flags.is_empty() => {
            let flags = mount.mount_flags.join(",");
            return Err(Status::invalid_argument(format!("mount options are not supported: {flags}")));
        }
        Some(AccessType::Mount(mount)) if mount.fs_type.is_empty() => Access::Filesystem(None),
        Some(AccessType::Mount(mount)) => {
            let kind = mount.fs_type.parse().map_err(|why: String| Status::invalid_argument(why))?;
            Access::Filesystem(Some(kind))
        }
    };
    let is_of_one = mode == Mode::SingleNodeSingleWriter;
    Ok(Usage { access, is_read_only, is_of_one })
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
        let access = Access::Filesystem(None);
        assert_eq!(found, Usage { access, is_read_only: false, is_of_one: false });
        let found = usage(&capability(Mode::SingleNodeSingleWriter, filesystem("xfs"))).unwrap();
        assert_eq!((found.access, found.is_of_one), (Access::Filesystem(Some(FilesystemKind::Xfs)), true));
        let block = Some(AccessType::Block(Empty {}));
        let found = usage(&capability(Mode::MultiNodeReaderOnly, block)).unwrap();
        assert_eq!(found, Usage { access: Access::Block, is_read_only: true, is_of_one: false });
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
