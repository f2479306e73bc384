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
