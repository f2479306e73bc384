//! The vocabulary of Weir: names, identities, units, bounds of every queue, and the policy terms that all
//! other crates share.
//!
//! This crate knows no clock, thread, socket or file, and nothing of how a volume is stored or served.

#![forbid(unsafe_code)]

pub mod accepted;
pub mod adaptive;
pub mod background;
pub mod bounds;
pub mod cgroup;
pub mod control_bounds;
pub mod emulation;
pub mod extent_index;
pub mod identity;
pub mod io_profile;
pub mod measurement;
pub mod name;
pub mod policy;
pub mod random;
pub mod units;

pub use accepted::{Direction, Rate, TermsError};
pub use adaptive::{AdaptiveTerms, PeakMode, Space};
pub use background::{BackgroundKind, BackgroundPolicy};
pub use cgroup::Cgroup;
pub use emulation::{Emulation, EmulationKind};
pub use extent_index::ExtentIndex;
pub use identity::{AttachmentId, CgroupBindingId, DriveId, JournalId, PolicyGroupId, VolumeId};
pub use io_profile::{DriveRole, FlushTerms, IoProfile};
pub use measurement::{ClassThreshold, ClassThresholds, MeasuredDirection, Measurement, ThresholdsError};
pub use name::{Name, NameError};
pub use policy::{
    Burst, Charges, Class, ClassPolicy, InitialCredit, Limits, OperationSize, Scope, Terms, Throughput,
    Weight,
};
pub use units::{ByteRate, Size, UnitError};
