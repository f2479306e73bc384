//! Control: the desired state of drives, volumes and policies, and the operations that reach it.
//!
//! Every operation is validated first. Then files, catalogue (durable), data plane, exports and the record
//! backups beside the extents follow in this order, and then the operation is answered. It is done once the
//! catalogue has it: a record backup that cannot be written is an alarm (`core/record_backups`). The data plane
//! needs nothing of control to keep serving.
//!
//! Rules for concurrent operations:
//! * **A read waits for nothing.** It uses a snapshot of the model (`core/shared`), touches no file of a drive,
//!   and shows the latest figures (`figures`).
//! * **Decisions are made one after the other**, under the decision lock (`core/locks`), from the model and the
//!   catalogue alone. The holder of the lock touches no drive and waits for no other thread.
//! * **Only the holder of a volume changes its files and its record.** The holder may work on the volume's
//!   drives while other changes are decided. A new volume is in the model, with the state `creating`, from
//!   its decision on: its name and its space are taken.
//! * **A drive is removed only while no change has a slot at it.**
//! * **Every wait is bounded**: a change that another change or a drive blocks is refused after some seconds.

#![forbid(unsafe_code)]

mod absences;
pub mod alarm_list;
pub mod alarms;
mod apply;
mod attachments;
mod background;
mod background_job;
mod bindings;
pub mod catalogue;
mod cgroups;
mod clones;
mod coalesced_flushes;
mod configuration;
mod control;
mod core;
mod credits;
mod devices;
mod drains;
mod drive_records;
mod drive_view;
mod drives;
mod dry_run;
pub mod engine;
mod error;
mod extents;
mod figures;
mod floor_admission;
pub mod health;
mod journal_views;
mod journals;
mod ledger;
mod measurements;
mod model;
mod moves;
mod operations;
mod placing;
mod policies;
mod policy_changes;
mod pools;
pub mod reasons;
mod rebuild;
mod reclaims;
mod recording;
pub mod records;
mod replica_alarms;
mod returns;
mod scrubs;
mod serving;
mod snapshots;
mod space;
mod startup;
mod statistics;
mod templates;
mod tenants;
pub mod totals;
mod volume_requests;
mod volume_views;
mod volumes;

#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;

pub use apply::{
    ApplyPolicies, BackgroundEntry, GroupEntry, Place, PoliciesDifference, PolicySet, TenantEntry,
    VolumeEntry,
};
pub use attachments::{AttachVolume, AttachmentView};
pub use background::{BackgroundPolicyChange, BackgroundPolicyView};
pub use background_job::BackgroundJob;
pub use cgroups::{BindCgroup, CgroupBindingView, Cgroups};
pub use clones::CloneVolume;
pub use configuration::{ConfiguredDrive, ControlConfig};
pub use control::Control;
pub use credits::SavedCredits;
pub use devices::tables as system_tables;
pub use drive_records::DriveListBackup;
pub use drive_view::{DrainView, DriveView};
pub use drives::{AddDrive, ModifyDrive};
pub use dry_run::put_under;
pub use error::{ControlError, ErrorKind, Outcome};
pub use figures::DatedUsage;
pub use health::{ReplicaCounts, VolumeCondition, VolumeHealth};
pub use journal_views::JournalView;
pub use ledger::{Amount, Claim, Ledger};
pub use measurements::ClassChange;
pub use model::{EffectiveField, Level};
pub use moves::{MoveState, MoveView};
pub use operations::{OperationEnd, OperationKey, OperationProgress, Operations, RunningOperation};
pub use policies::{CreateAdaptivePolicyGroup, CreatePolicyGroup, ModifyPolicyGroup, PolicyGroupView};
pub use policy_changes::{AdaptiveChange, LimitsChange, TermsChange};
pub use pools::{ModifyPool, PoolView};
pub use recording::{RecordVolumes, RunningRecording};
pub use records::{AttachMethod, AttachmentRecord, GroupKind};
pub use scrubs::{ScrubState, ScrubView, offset_of};
pub use snapshots::{CreateSnapshots, SnapshotView};
pub use statistics::{PolicyGroupSample, VolumeSample};
pub use templates::{CreateTemplate, ModifyTemplate, TemplateView};
pub use tenants::{ModifyTenant, TenantView};
pub use volume_requests::{CreateVolume, DeleteVolume, FlushTermsChange, ModifyVolume, PolicyChange};
pub use volume_views::VolumeView;
