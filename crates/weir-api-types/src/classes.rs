//! Conversion between classes, and rules of classes, of the API and of the engine.

use weir_types::{Class, ClassPolicy};

use super::{IoPriority, VolumeClassPolicy};

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
