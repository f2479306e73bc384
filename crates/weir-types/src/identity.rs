//! Identities that never change, unlike names.

use serde::{Deserialize, Serialize};

macro_rules! identity {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub uuid::Uuid);

        impl $name {
            /// The identity that these bytes are, as [`Self::bytes`] gave them.
            pub const fn from_bytes(bytes: [u8; 16]) -> $name {
                $name(uuid::Uuid::from_bytes(bytes))
            }

            /// Its bytes, in the order in which it is written.
            pub const fn bytes(&self) -> [u8; 16] {
                *self.0.as_bytes()
            }
        }

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
identity! {
    /// Identity of a write journal: each one that is made has another.
    JournalId
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
