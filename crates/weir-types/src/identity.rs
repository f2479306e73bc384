//! Identities, which never change, unlike names.

use serde::{Deserialize, Serialize};

macro_rules! identity {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub uuid::Uuid);

        impl $name {
            /// The identity with these bytes, as [`Self::bytes`] returned them.
            pub const fn from_bytes(bytes: [u8; 16]) -> $name {
                $name(uuid::Uuid::from_bytes(bytes))
            }

            /// Bytes of the identity, in the order in which it is written.
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
    /// Identity of a write journal. Each new journal has another one.
    JournalId
}

identity! {
    /// Identity of an attachment. Each new attachment has another one.
    AttachmentId
}

identity! {
    /// Identity of the binding of a cgroup to a policy group. Each new binding has another one.
    CgroupBindingId
}

impl DriveId {
    /// The drive in the state folder. Every daemon has it.
    pub const DEFAULT: DriveId = DriveId(uuid::Uuid::nil());
}

/// The drive of volumes whose records name none. Old records come from a time with only one drive.
impl Default for DriveId {
    fn default() -> DriveId {
        DriveId::DEFAULT
    }
}
