//! Identities that never change, unlike names.

use serde::{Deserialize, Serialize};

macro_rules! identity {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub uuid::Uuid);

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

identity! {
    /// Identity of a volume: the name of its folder on every drive.
    VolumeId
}
identity! {
    /// Identity of a policy group; it survives a rename.
    PolicyGroupId
}
identity! {
    /// Identity of a drive; it survives the loss of the catalogue, because it lies on the drive too.
    DriveId
}

impl DriveId {
    /// The drive in the state folder, which every daemon has.
    pub const DEFAULT: DriveId = DriveId(uuid::Uuid::nil());
}

/// The drive of volumes that name none, as all did when there was only one.
impl Default for DriveId {
    fn default() -> DriveId {
        DriveId::DEFAULT
    }
}
