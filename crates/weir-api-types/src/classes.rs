//! Conversion between classes, rules of classes, I/O profiles and roles of the API and those of all other crates.

use weir_types::{Class, ClassPolicy, DriveRole, IoProfile};

use super::{DriveUse, IoPriority, VolumeClassPolicy, VolumeIoProfile};

impl From<VolumeClassPolicy> for ClassPolicy {
    fn from(policy: VolumeClassPolicy) -> ClassPolicy {
        match policy {
            VolumeClassPolicy::Strict => ClassPolicy::Strict,
            VolumeClassPolicy::Prefer => ClassPolicy::Prefer,
            VolumeClassPolicy::Any => ClassPolicy::Any,
        }
    }
}

impl From<ClassPolicy> for VolumeClassPolicy {
    fn from(policy: ClassPolicy) -> VolumeClassPolicy {
        match policy {
            ClassPolicy::Strict => VolumeClassPolicy::Strict,
            ClassPolicy::Prefer => VolumeClassPolicy::Prefer,
            ClassPolicy::Any => VolumeClassPolicy::Any,
        }
    }
}

impl From<IoPriority> for Class {
    fn from(priority: IoPriority) -> Class {
        match priority {
            IoPriority::Low => Class::Low,
            IoPriority::Medium => Class::Medium,
            IoPriority::High => Class::High,
        }
    }
}

impl From<Class> for IoPriority {
    fn from(class: Class) -> IoPriority {
        match class {
            Class::Low => IoPriority::Low,
            Class::Medium => IoPriority::Medium,
            Class::High => IoPriority::High,
        }
    }
}

impl From<VolumeIoProfile> for IoProfile {
    fn from(profile: VolumeIoProfile) -> IoProfile {
        match profile {
            VolumeIoProfile::Auto => IoProfile::Auto,
            VolumeIoProfile::None => IoProfile::None,
            VolumeIoProfile::Journal => IoProfile::Journal,
            VolumeIoProfile::DbRemote => IoProfile::DbRemote,
        }
    }
}

impl From<IoProfile> for VolumeIoProfile {
    fn from(profile: IoProfile) -> VolumeIoProfile {
        match profile {
            IoProfile::Auto => VolumeIoProfile::Auto,
            IoProfile::None => VolumeIoProfile::None,
            IoProfile::Journal => VolumeIoProfile::Journal,
            IoProfile::DbRemote => VolumeIoProfile::DbRemote,
        }
    }
}

impl From<DriveUse> for DriveRole {
    fn from(role: DriveUse) -> DriveRole {
        match role {
            DriveUse::Data => DriveRole::Data,
            DriveUse::Journal => DriveRole::Journal,
        }
    }
}

impl From<DriveRole> for DriveUse {
    fn from(role: DriveRole) -> DriveUse {
        match role {
            DriveRole::Data => DriveUse::Data,
            DriveRole::Journal => DriveUse::Journal,
        }
    }
}
