//! Types of request and answer bodies for policies: JSON in base units.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::{BackgroundPolicyEntry, PolicyLimits, Rates};

/// Burst credit that a workload starts with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum InitialCredit {
    /// None: the workload first earns credit below the ceiling.
    #[default]
    Empty,
    /// Full credit.
    Full,
}

/// Number of operations that a read or write counts as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OperationSize {
    /// One operation, whatever the size.
    #[default]
    Any,
    /// By the cost curve of Element.
    Curve,
    /// Its bytes divided by this number, but at least one operation.
    Bytes(u32),
}

/// Burst: rates above the ceilings, paid with credit that is earned below them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BurstTerms {
    /// Burst rates.
    pub rates: PolicyLimits,
    /// Duration of a full credit at the burst rates, in seconds.
    #[schema(minimum = 1, maximum = 3600)]
    pub seconds: u32,
    /// Credit that a workload starts with.
    pub initial_credit: InitialCredit,
}

/// Number of write operations that requests without data count as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Charges {
    /// Charge of a discard.
    pub discard: u32,
    /// Charge of a write of zeroes.
    pub zeroes: u32,
    /// Charge of a flush, which is never delayed.
    pub flush: u32,
}

/// Terms of a policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PolicyTerms {
    /// Ceilings.
    pub limits: PolicyLimits,
    /// Burst above the ceilings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<BurstTerms>,
    /// Floor: rates that are served before capacity is shared. Only one of them can be set.
    pub floor: Rates,
    /// Weight: the remaining capacity is shared in proportion to the weights of all that compete.
    #[schema(minimum = 1, maximum = 10_000)]
    pub weight: u32,
    /// Number of operations that reads and writes count as.
    pub operation_size: OperationSize,
    /// Number of operations that other requests count as.
    pub charges: Charges,
}

/// A policy group: named terms that volumes can be bound to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PolicyGroup {
    /// ID of the policy group, which survives a rename.
    pub id: Uuid,
    /// Number of the policy group, unique on this daemon.
    pub number: u64,
    /// Tenant that owns the policy group.
    pub tenant: String,
    /// Name of the policy group, unique within the tenant.
    pub name: String,
    /// Origin of the policy group: always 'user-defined'.
    pub class: String,
    /// Terms of the policy group.
    #[serde(flatten)]
    pub terms: PolicyTerms,
    /// Parent: a shared policy group of the same tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// True if all volumes of the group share one budget, false if each volume has its own.
    pub is_shared: bool,
    /// Number of volumes that are bound to the group.
    pub workloads: u64,
    /// Version of the policy group, which grows with each change; 0 if it is built in.
    pub version: u64,
    /// Time of creation.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
}

/// All policy groups.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct PolicyGroupList {
    /// Policy groups, ordered by tenant and name.
    pub items: Vec<PolicyGroup>,
    /// Token of the next page, if this page is not the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_page_token: Option<String>,
}

/// A policy group to create.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicyGroupCreate {
    /// Name of the policy group: 1 to 128 letters, digits, '.', '_' and '-', beginning with a letter or
    /// digit.
    #[schema(example = "policy1")]
    pub name: String,
    /// Tenant that owns the policy group; 'default' if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Ceilings; none if absent.
    #[serde(default, skip_serializing_if = "is_default")]
    pub limits: LimitsModify,
    /// Burst; none if absent.
    #[serde(default, skip_serializing_if = "is_default")]
    pub burst: BurstModify,
    /// Floor; none if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor: Option<Rates>,
    /// Weight; 100 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
    /// Number of operations that reads and writes count as; one each if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation_size: Option<OperationSize>,
    /// Number of operations that other requests count as.
    #[serde(default, skip_serializing_if = "is_default")]
    pub charges: ChargesModify,
    /// Parent: a shared policy group of the same tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// True if all volumes of the group share one budget, false if each volume has its own. True if absent.
    /// It cannot be changed later.
    #[serde(default = "shared_by_default")]
    #[schema(default = true)]
    pub is_shared: bool,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// As in ONTAP's command line, a policy group is shared unless stated otherwise.
fn shared_by_default() -> bool {
    true
}

/// A change of a policy group; absent fields stay as they are.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicyGroupModify {
    /// New name; volumes stay bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// New ceilings.
    #[serde(default, skip_serializing_if = "is_default")]
    pub limits: LimitsModify,
    /// New values of the burst.
    #[serde(default, skip_serializing_if = "is_default")]
    pub burst: BurstModify,
    /// New floor; an empty one removes the floor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor: Option<Rates>,
    /// New weight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
    /// Number of operations that reads and writes count as.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation_size: Option<OperationSize>,
    /// Number of operations that other requests count as.
    #[serde(default, skip_serializing_if = "is_default")]
    pub charges: ChargesModify,
    /// New parent, or 'none'.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// Sharing, which may be repeated but not changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_shared: Option<bool>,
    /// True to bind the floor even if pools of the volumes do not have it; an alarm reports the shortage.
    #[serde(default, skip_serializing_if = "is_default")]
    pub force: bool,
}

/// A change of rates: each given pair replaces the whole old pair, and an empty pair removes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LimitsModify {
    /// Rates of reads and writes together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<Rates>,
    /// Rates of reads alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read: Option<Rates>,
    /// Rates of writes alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write: Option<Rates>,
}

/// A change of a burst; a burst without any rate means no burst.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BurstModify {
    /// New burst rates.
    #[serde(default, skip_serializing_if = "is_default")]
    pub rates: LimitsModify,
    /// Duration of a full credit, in seconds; 60 if it was never set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 3600)]
    pub seconds: Option<u32>,
    /// Credit that a workload starts with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initial_credit: Option<InitialCredit>,
}

/// A change of charges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChargesModify {
    /// Charge of a discard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub discard: Option<u32>,
    /// Charge of a write of zeroes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zeroes: Option<u32>,
    /// Charge of a flush.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flush: Option<u32>,
}

/// Size of a volume that a rate follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum Space {
    /// The provisioned size of the volume.
    AllocatedSpace,
    /// The space that the volume occupies.
    UsedSpace,
}

/// Meaning of the peak of an adaptive policy group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum PeakMode {
    /// The peak is a ceiling: the greatest of expected rate, peak rate and absolute minimum.
    Ceiling,
    /// The peak is a burst rate, paid with credit; the sustained rate is the expected rate.
    Credits,
}

/// Parameters that the terms of an adaptive policy group are computed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AdaptiveTerms {
    /// Expected operations per second for each TB (10^12 bytes).
    pub expected_iops_per_tb: u64,
    /// Maximum operations per second for each TB.
    pub peak_iops_per_tb: u64,
    /// Size that the expected rate follows.
    pub expected_space: Space,
    /// Size that the peak rate follows.
    pub peak_space: Space,
    /// Lower bound of the expected rate, in operations per second; 0 for none.
    pub absolute_iops_min: u64,
    /// Bytes for each operation: the ceiling in bytes is this value times the ceiling in operations. Absent
    /// if there is no ceiling in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_size_bytes: Option<u32>,
    /// Lower bound of the ceiling, in operations per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling_iops_min: Option<u64>,
    /// Upper bound of the ceiling, in operations per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling_iops_max: Option<u64>,
    /// Meaning of the peak.
    pub peak_mode: PeakMode,
    /// Duration of a full credit at the peak rate, in seconds.
    pub burst_seconds: u32,
}

/// An adaptive policy group: terms that follow the size of each volume that is bound to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AdaptivePolicyGroup {
    /// ID of the policy group, which survives a rename.
    pub id: Uuid,
    /// Number of the policy group, unique on this daemon; 0 for a built-in one.
    pub number: u64,
    /// Tenant that owns the policy group; every tenant can use a built-in one.
    pub tenant: String,
    /// Name of the policy group, unique within the tenant.
    pub name: String,
    /// Origin of the policy group: 'user-defined', or 'preset' for a built-in one, which cannot be changed.
    pub class: String,
    /// Terms of the policy group.
    #[serde(flatten)]
    pub terms: AdaptiveTerms,
    /// Number of volumes that are bound to the group.
    pub workloads: u64,
    /// Version of the policy group, which grows with each change; 0 if it is built in.
    pub version: u64,
    /// Time of creation.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
}

/// All adaptive policy groups.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct AdaptivePolicyGroupList {
    /// Adaptive policy groups, ordered by tenant and name.
    pub items: Vec<AdaptivePolicyGroup>,
    /// Token of the next page, if this page is not the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_page_token: Option<String>,
}

/// An adaptive policy group to create.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AdaptivePolicyGroupCreate {
    /// Name of the policy group: 1 to 128 letters, digits, '.', '_' and '-', beginning with a letter or
    /// digit.
    #[schema(example = "adaptive-policy2")]
    pub name: String,
    /// Tenant that owns the policy group; 'default' if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Terms, in which the expected rate and the peak rate are required.
    pub terms: AdaptiveModify,
}

/// Change of an adaptive policy group; absent fields stay as they are.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AdaptivePolicyGroupModify {
    /// New name; volumes stay bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Changed terms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terms: Option<AdaptiveModify>,
}

/// A change of adaptive terms; absent fields stay as they are.
///
/// A new group has these defaults: the expected rate follows allocated space and the peak rate follows used
/// space. There is no minimum, no block size and no bound of the ceiling, and the peak is a ceiling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AdaptiveModify {
    /// Expected operations per second for each TB (10^12 bytes).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = 1000)]
    pub expected_iops_per_tb: Option<u64>,
    /// Maximum operations per second for each TB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = 1500)]
    pub peak_iops_per_tb: Option<u64>,
    /// Size that the expected rate follows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_space: Option<Space>,
    /// Size that the peak rate follows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_space: Option<Space>,
    /// Lower bound of the expected rate, in operations per second; 0 for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub absolute_iops_min: Option<u64>,
    /// Bytes for each operation, from which the ceiling in bytes follows; 0 for no ceiling in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_size_bytes: Option<u32>,
    /// Lower bound of the ceiling, in operations per second; 0 for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling_iops_min: Option<u64>,
    /// Upper bound of the ceiling, in operations per second; 0 for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling_iops_max: Option<u64>,
    /// Meaning of the peak.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_mode: Option<PeakMode>,
    /// Duration of a full credit at the peak rate, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst_seconds: Option<u32>,
}

/// Owner of the terms of a policy level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum LevelScope {
    /// A tenant: all its volumes share the terms.
    Tenant,
    /// A shared policy group: all volumes below it share the terms.
    PolicyGroup,
    /// The volume alone.
    Volume,
    /// The processes of a cgroup, on the volume alone.
    Cgroup,
}

/// One level of the policy tree above a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PolicyLevel {
    /// Owner of the terms.
    pub scope: LevelScope,
    /// Name of the tenant, policy group or volume.
    pub name: String,
    /// Origin of the terms, in words; absent if no policy applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// Terms of the level.
    pub terms: PolicyTerms,
}

/// A field of the terms in effect.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct EffectiveField {
    /// Value in base units; null if there is none.
    pub value: serde_json::Value,
    /// Origin of the value, in words.
    pub origin: String,
}

/// Policies that apply to a volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct VolumePolicy {
    /// Levels from the top down; the volume's own is the last.
    pub levels: Vec<PolicyLevel>,
    /// Terms in effect, by field: the lowest of all ceilings, and every other field from the policy that the
    /// volume is bound to.
    pub effective: BTreeMap<String, EffectiveField>,
}

/// Policies of a tenant in a set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TenantPolicies {
    /// Name of the tenant.
    pub name: String,
    /// Shared policy group of the tenant: all its volumes share the terms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qos_policy_group: Option<String>,
    /// Default policy group, fixed or adaptive, of new volumes that name none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_policy_group: Option<String>,
}

/// Binding of a volume in a set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VolumeBinding {
    /// Name of the volume.
    pub name: String,
    /// Tenant that owns the volume; `default` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Fixed policy group that the volume is bound to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qos_policy_group: Option<String>,
    /// Adaptive policy group that the volume is bound to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qos_adaptive_policy_group: Option<String>,
}

/// A set of all policies and bindings.
///
/// An absent section changes nothing. Objects that a given section does not name stay as they are, unless the
/// set is applied with pruning. Pruning removes unnamed policy groups and the policies of unnamed tenants and
/// volumes. It resets unnamed background work to its built-in policies.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicySet {
    /// Version of the daemon's policies at the time of the export: later changes are not reverted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// Policy groups and default policy groups of tenants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenants: Option<Vec<TenantPolicies>>,
    /// Fixed policy groups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_groups: Option<Vec<PolicyGroupCreate>>,
    /// Adaptive policy groups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adaptive_policy_groups: Option<Vec<AdaptivePolicyGroupCreate>>,
    /// Bindings of volumes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volumes: Option<Vec<VolumeBinding>>,
    /// Policies of background work that differ from the built-in ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub background_policies: Option<Vec<BackgroundPolicyEntry>>,
}

/// Line numbers in the source file of a set's entries, by section and in order; error messages name them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PolicySetLines {
    /// Lines of the tenants.
    pub tenants: Vec<u32>,
    /// Lines of the fixed policy groups.
    pub policy_groups: Vec<u32>,
    /// Lines of the adaptive policy groups.
    pub adaptive_policy_groups: Vec<u32>,
    /// Lines of the volumes.
    pub volumes: Vec<u32>,
    /// Lines of the policies of background work.
    pub background_policies: Vec<u32>,
}

/// A set of policies to apply.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PoliciesApply {
    /// Policies and bindings to apply.
    pub policies: PolicySet,
    /// Lines that the entries came from.
    #[serde(default)]
    pub lines: PolicySetLines,
    /// Dry run: true to return the changes without making them.
    #[serde(default)]
    pub dry_run: bool,
    /// True to bind floors even if pools do not have them (an alarm reports the shortage), and to overwrite
    /// changes made since the export.
    #[serde(default)]
    pub force: bool,
    /// True to remove objects that the given sections do not name; otherwise the objects stay.
    #[serde(default)]
    pub prune: bool,
}

/// Changes that a set makes.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct PoliciesDifference {
    /// One line for each change: `+` created, `-` removed, `~` changed.
    pub changes: Vec<String>,
    /// One line for each object that no section names and that stays because pruning is off.
    #[serde(default)]
    pub left: Vec<String>,
}
