//! The bodies that concern policies: JSON in base units.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::types::{BackgroundPolicyEntry, PolicyLimits, Rates};

/// How much credit for a burst a workload starts with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum InitialCredit {
    /// None: it is earned below the ceiling first.
    #[default]
    Empty,
    /// All of it.
    Full,
}

/// As how many operations a read or write counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OperationSize {
    /// As one, however large.
    #[default]
    Any,
    /// By Element's cost curve.
    Curve,
    /// As its bytes divided by this many, and at least as one.
    Bytes(u32),
}

/// Rates above the ceilings, reached on credit that is earned below them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BurstTerms {
    /// The rates.
    pub rates: PolicyLimits,
    /// How long a full credit lasts at them, in seconds.
    #[schema(minimum = 1, maximum = 3600)]
    pub seconds: u32,
    /// What a workload starts with.
    pub initial_credit: InitialCredit,
}

/// As how many operations, as writes, the requests count that move no data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Charges {
    /// A discard.
    pub discard: u32,
    /// A write of zeroes.
    pub zeroes: u32,
    /// A flush, which is never held back.
    pub flush: u32,
}

/// Everything that a policy says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PolicyTerms {
    /// Ceilings.
    pub limits: PolicyLimits,
    /// What may be done above them on credit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<BurstTerms>,
    /// What is had before others share; in one dimension at most.
    pub floor: Rates,
    /// The part of what is left, in proportion to the weights of all that want it.
    #[schema(minimum = 1, maximum = 10_000)]
    pub weight: u32,
    /// How reads and writes count.
    pub operation_size: OperationSize,
    /// How other requests count.
    pub charges: Charges,
}

/// A policy group: named terms that volumes can be bound to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PolicyGroup {
    /// Its identity, which survives a rename.
    pub id: Uuid,
    /// Its number, unique on this daemon.
    pub number: u64,
    /// The tenant that owns it.
    pub tenant: String,
    /// Its name, unique within the tenant.
    pub name: String,
    /// Who made it: always 'user-defined'.
    pub class: String,
    /// Its terms.
    #[serde(flatten)]
    pub terms: PolicyTerms,
    /// The shared group of the same tenant under which it stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// True if all its volumes share one budget, false if each has its own.
    pub is_shared: bool,
    /// Number of volumes that are bound to it.
    pub workloads: u64,
    /// Its version, which grows with each change of it; 0 if it is built in.
    #[serde(default)]
    pub version: u64,
    /// When it was made.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
}

/// All policy groups.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct PolicyGroupList {
    /// The policy groups in the order of their tenants and names.
    pub policy_groups: Vec<PolicyGroup>,
}

/// What a new policy group should be.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicyGroupCreate {
    /// Its name: 1 to 128 letters, digits, '.', '_' and '-', beginning with a letter or digit.
    #[schema(example = "policy1")]
    pub name: String,
    /// The tenant that owns it; 'default' if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Its ceilings; none if absent.
    #[serde(default, skip_serializing_if = "is_default")]
    pub limits: LimitsModify,
    /// Its burst; none if absent.
    #[serde(default, skip_serializing_if = "is_default")]
    pub burst: BurstModify,
    /// Its floor; none if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor: Option<Rates>,
    /// Its weight; 100 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
    /// How reads and writes count; as one each if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation_size: Option<OperationSize>,
    /// How other requests count.
    #[serde(default, skip_serializing_if = "is_default")]
    pub charges: ChargesModify,
    /// The shared group of the same tenant under which it should stand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// True (also if absent) if all its volumes share one budget, false if each has its own. Never changes.
    #[serde(default = "shared_by_default")]
    #[schema(default = true)]
    pub is_shared: bool,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// As in ONTAP's command line, a policy group is shared unless it says otherwise.
fn shared_by_default() -> bool {
    true
}

/// What should become different about a policy group; what is absent stays.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicyGroupModify {
    /// Ceilings to replace.
    #[serde(default)]
    pub limits: LimitsModify,
    /// What of its burst to replace.
    #[serde(default)]
    pub burst: BurstModify,
    /// Another floor; an empty one removes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor: Option<Rates>,
    /// Another weight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
    /// How reads and writes count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation_size: Option<OperationSize>,
    /// How other requests count.
    #[serde(default)]
    pub charges: ChargesModify,
    /// Another parent, or 'none'.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// Sharing, which can be said again but not changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_shared: Option<bool>,
    /// Have a floor although pools of its volumes do not have it; an alarm shows it.
    #[serde(default)]
    pub force: bool,
}

/// Rates to replace; each that is given replaces the whole pair, and an empty one removes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LimitsModify {
    /// For reads and writes together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<Rates>,
    /// For reads alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read: Option<Rates>,
    /// For writes alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write: Option<Rates>,
}

/// What of a burst to replace; a burst without any rate is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BurstModify {
    /// Rates to replace.
    #[serde(default)]
    pub rates: LimitsModify,
    /// How long a full credit lasts, in seconds; 60 if never given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 3600)]
    pub seconds: Option<u32>,
    /// What a workload starts with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initial_credit: Option<InitialCredit>,
}

/// Charges to replace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChargesModify {
    /// For a discard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub discard: Option<u32>,
    /// For a write of zeroes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zeroes: Option<u32>,
    /// For a flush.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flush: Option<u32>,
}

/// Which of a volume's sizes a rate follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Space {
    /// The size that was asked for.
    AllocatedSpace,
    /// What it occupies.
    UsedSpace,
}

/// What the peak of an adaptive policy group is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum PeakMode {
    /// The ceiling: the greatest of expected, peak and absolute minimum.
    Ceiling,
    /// A burst rate, reached on credit; what is sustained is the expected rate.
    Credits,
}

/// What the terms of an adaptive policy group are computed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AdaptiveTerms {
    /// Expected operations per second for each TB (10^12 bytes).
    pub expected_iops_per_tb: u64,
    /// Most operations per second for each TB.
    pub peak_iops_per_tb: u64,
    /// The size that the expected rate follows.
    pub expected_space: Space,
    /// The size that the peak follows.
    pub peak_space: Space,
    /// What the expected rate never falls below, in operations per second; 0 for nothing.
    pub absolute_iops_min: u64,
    /// The ceiling in bytes is this many bytes for each operation of the other; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_size_bytes: Option<u32>,
    /// Below this no ceiling falls, in operations per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling_iops_min: Option<u64>,
    /// Above this no ceiling rises, in operations per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling_iops_max: Option<u64>,
    /// What the peak is.
    pub peak_mode: PeakMode,
    /// How long a full credit lasts at the peak, in seconds.
    pub burst_seconds: u32,
}

/// An adaptive policy group: terms that follow the size of each volume that is bound to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AdaptivePolicyGroup {
    /// Its identity, which survives a rename.
    pub id: Uuid,
    /// Its number, unique on this daemon; 0 for a built-in one.
    pub number: u64,
    /// The tenant that owns it; every tenant can use a built-in one.
    pub tenant: String,
    /// Its name, unique within the tenant.
    pub name: String,
    /// Who made it: 'user-defined', or 'preset' for a built-in one, which cannot be changed.
    pub class: String,
    /// Its terms.
    #[serde(flatten)]
    pub terms: AdaptiveTerms,
    /// Number of volumes that are bound to it.
    pub workloads: u64,
    /// Its version, which grows with each change of it; 0 if it is built in.
    #[serde(default)]
    pub version: u64,
    /// When it was made.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
}

/// All adaptive policy groups.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct AdaptivePolicyGroupList {
    /// The adaptive policy groups in the order of their tenants and names.
    pub adaptive_policy_groups: Vec<AdaptivePolicyGroup>,
}

/// What a new adaptive policy group should be.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AdaptivePolicyGroupCreate {
    /// Its name: 1 to 128 letters, digits, '.', '_' and '-', beginning with a letter or digit.
    #[schema(example = "adaptive-policy2")]
    pub name: String,
    /// The tenant that owns it; 'default' if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Its terms, of which the expected and the peak rate must be given.
    pub terms: AdaptiveModify,
}

/// What should become different about adaptive terms; what is absent stays. For a new group that is: allocated
/// space for the expected rate, used space for the peak, no minimum, no block size, no clamps, the peak as ceiling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AdaptiveModify {
    /// Expected operations per second for each TB (10^12 bytes).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = 1000)]
    pub expected_iops_per_tb: Option<u64>,
    /// Most operations per second for each TB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = 1500)]
    pub peak_iops_per_tb: Option<u64>,
    /// The size that the expected rate follows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_space: Option<Space>,
    /// The size that the peak follows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_space: Option<Space>,
    /// What the expected rate never falls below, in operations per second; 0 for nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub absolute_iops_min: Option<u64>,
    /// Bytes for each operation that the ceiling in bytes allows; 0 for no such ceiling.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_size_bytes: Option<u32>,
    /// Below this no ceiling falls, in operations per second; 0 for nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling_iops_min: Option<u64>,
    /// Above this no ceiling rises, in operations per second; 0 for nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling_iops_max: Option<u64>,
    /// What the peak is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_mode: Option<PeakMode>,
    /// How long a full credit lasts at the peak, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst_seconds: Option<u32>,
}

/// Whose terms a level of policies has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum LevelScope {
    /// A tenant's: everything that it owns has them together.
    Tenant,
    /// A shared policy group's: everything under it has them together.
    PolicyGroup,
    /// The volume's alone.
    Volume,
}

/// One level of the policies that a volume stands under.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PolicyLevel {
    /// Whose terms it has.
    pub scope: LevelScope,
    /// The name of the tenant, policy group or volume.
    pub name: String,
    /// Where the terms come from, in words; absent if nothing says anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// The terms.
    pub terms: PolicyTerms,
}

/// A field of the terms as it is in effect.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct EffectiveField {
    /// Its value in base units; null if there is none.
    pub value: serde_json::Value,
    /// Where it comes from, in words.
    pub origin: String,
}

/// The policies that a volume stands under.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct VolumePolicy {
    /// The levels from the top down, the volume's own last.
    pub levels: Vec<PolicyLevel>,
    /// What of them is in effect, by field: of ceilings the lowest, of everything else what the policy says that the
    /// volume is bound to.
    pub effective: BTreeMap<String, EffectiveField>,
}

/// The policies of a tenant in a set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TenantPolicies {
    /// The tenant.
    pub name: String,
    /// The shared policy group whose terms everything of the tenant has together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qos_policy_group: Option<String>,
    /// The policy group, fixed or adaptive, that volumes get which are made without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
}

/// The binding of a volume in a set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VolumeBinding {
    /// The volume.
    pub name: String,
    /// The tenant that owns it; found by the name if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The fixed policy group that it is bound to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qos_policy_group: Option<String>,
    /// The adaptive policy group that it is bound to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qos_adaptive_policy_group: Option<String>,
}

/// All policies and bindings. A section that is absent says nothing. What one that is there does not name stays, unless the
/// set is applied with pruning: then other policy groups are removed, other tenants and volumes have no policy, and other
/// background work has the built-in one.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicySet {
    /// The version of everything at the time of the export: what was changed after it is not changed back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// Tenants' policies and templates.
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
    /// Policies of background work that are not the built-in ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub background_policies: Option<Vec<BackgroundPolicyEntry>>,
}

/// The lines of a file that the entries of a set came from, by section and in their order, for errors.
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

/// Policies to bring everything to.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PoliciesApply {
    /// What should be.
    pub policies: PolicySet,
    /// Where its entries came from.
    #[serde(default)]
    pub lines: PolicySetLines,
    /// True to answer what would change, and change nothing.
    #[serde(default)]
    pub dry_run: bool,
    /// Bind floors although pools do not have them; an alarm shows it. Change what was changed since the set was exported.
    #[serde(default)]
    pub force: bool,
    /// Remove what the sections that are there do not name; else it stays.
    #[serde(default)]
    pub prune: bool,
}

/// What applying a set changes.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct PoliciesDifference {
    /// One line for each thing that changes: `+` made, `-` removed, `~` changed.
    pub changes: Vec<String>,
    /// One line for each thing that no section names and that stays, because nothing is pruned.
    #[serde(default)]
    pub left: Vec<String>,
}
