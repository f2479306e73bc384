//! Proposes a change of a policy group that removes the cause, and names the other volumes that it concerns.
//!
//! [`change`] decides from the evidence and the group's record alone.

use weir_qos::{Dimension, Direction, Limit, Rate};
use weir_types::bounds::{RATE_BYTES_PER_SECOND_MAX, RATE_IOPS_MAX, WEIGHT_MAX};
use weir_types::{AdaptiveTerms, Limits, Name, Scope, Terms, Throughput};

use crate::model::Model;
use crate::model::built_in::is_built_in;
use crate::model::levels::levels_in_effect;
use crate::policy_changes::AdaptiveChange;
use crate::reasons::limits::rate_of;
use crate::reasons::{Cause, Finding, NamedLimit, Situation};
use crate::records::{PolicyGroupRecord, VolumeRecord};

/// Factor by which a proposal raises a limit, a floor or a weight.
const FACTOR: u64 = 2;
/// Number of volumes that are named before the rest is only counted.
pub const VOLUMES_NAMED_MAX: usize = 100;

/// A change of a policy group that removes the cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// Name of the policy group. It belongs to the volume's tenant.
    pub group: Name,
    /// The change.
    pub change: Change,
    /// Other volumes that are bound to the group, whose terms change too.
    pub others: NamedVolumes,
}

/// Values to set in a policy group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Ceilings of one direction, or of both directions together. The burst rates change too if they would be
    /// below.
    Ceilings {
        /// Direction; `None` for both together.
        direction: Option<Direction>,
        /// Both ceilings of the direction.
        ceilings: Throughput,
        /// Both burst rates of the direction, if they change.
        burst: Option<Throughput>,
    },
    /// Burst rates of one direction, or of both directions together.
    Burst {
        /// Direction; `None` for both together.
        direction: Option<Direction>,
        /// Both burst rates of the direction.
        rates: Throughput,
    },
    /// A floor.
    Floor(Throughput),
    /// A weight.
    Weight(u32),
    /// Parameters of an adaptive group.
    Adaptive(AdaptiveChange),
}

/// Sizes of a volume, which adaptive terms follow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Provisioned size in bytes.
    pub allocated_bytes: u64,
    /// Occupied space in bytes.
    pub used_bytes: u64,
}

/// Some volumes of a tenant: the first [`VOLUMES_NAMED_MAX`] by name, and how many there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamedVolumes {
    /// Number of volumes.
    pub count: u64,
    /// Names of the first ones.
    pub names: Vec<String>,
}

/// The change that removes the cause; `None` if no change of this group does.
pub fn change(
    situation: &Situation,
    finding: &Finding,
    group: &PolicyGroupRecord,
    sizes: Sizes,
) -> Option<Change> {
    if is_built_in(group.id) {
        return None;
    }
    let limit = finding.binding.as_ref().map(|binding| &binding.limit);
    match (finding.cause, &group.adaptive, limit) {
        (Cause::Ceiling, None, Some(limit)) => ceiling(limit, &group.terms),
        (Cause::Ceiling, Some(terms), Some(limit)) => adaptive(limit.limit, *terms, sizes),
        (Cause::Queue, None, _) => weight(&group.terms),
        (Cause::Floors, None, _) => floor(situation, &group.terms),
        _ => None,
    }
}

fn of_direction(limits: &Limits, direction: Option<Direction>) -> Throughput {
    match direction {
        None => limits.total,
        Some(Direction::Read) => limits.read,
        Some(Direction::Write) => limits.write,
    }
}

/// The rates with a greater one in this dimension; `None` if no greater one is allowed.
fn raised(rates: Throughput, dimension: Dimension, value: u64) -> Option<Throughput> {
    let greatest = if dimension.is_bytes() { RATE_BYTES_PER_SECOND_MAX } else { RATE_IOPS_MAX };
    let value = value.saturating_mul(FACTOR).min(greatest);
    let raised = match dimension.is_bytes() {
        true => Throughput { bytes_per_second: Some(value), ..rates },
        false => Throughput { iops: Some(value), ..rates },
    };
    (raised != rates).then_some(raised)
}

/// Raises the ceiling that binds. A change replaces both rates of its direction, so the other rate is there too.
fn ceiling(limit: &NamedLimit, terms: &Terms) -> Option<Change> {
    let (dimension, value) = (limit.limit.dimension, limit.value?);
    let direction = dimension.direction();
    let burst = of_direction(&terms.burst.map(|burst| burst.rates).unwrap_or_default(), direction);
    if limit.limit.rate == Rate::Burst {
        return Some(Change::Burst { direction, rates: raised(burst, dimension, value)? });
    }
    let ceilings = raised(of_direction(&terms.limits, direction), dimension, value)?;
    let rate = |rates: Throughput| if dimension.is_bytes() { rates.bytes_per_second } else { rates.iops };
    // A burst rate below the ceiling would be refused.
    let is_below = rate(burst).is_some_and(|burst| Some(burst) < rate(ceilings));
    let burst = if is_below { raised(burst, dimension, value) } else { None };
    Some(Change::Ceilings { direction, ceilings, burst })
}

fn weight(terms: &Terms) -> Option<Change> {
    let raised = terms.weight.0.saturating_mul(FACTOR as u32).min(WEIGHT_MAX);
    (raised > terms.weight.0).then_some(Change::Weight(raised))
}

/// Raises the floor up to the ceiling, or gives one of twice the rate that the volume has now.
fn floor(situation: &Situation, terms: &Terms) -> Option<Change> {
    let seconds = situation.elapsed_ns.max(1) as f64 / 1e9;
    let iops_now = (situation.operations as f64 / seconds).ceil().max(1.0) as u64;
    let (dimension, value) = match (terms.floor.iops, terms.floor.bytes_per_second) {
        (Some(iops), _) => (Dimension::TotalOperations, iops),
        (None, Some(bytes)) => (Dimension::TotalBytes, bytes),
        (None, None) => (Dimension::TotalOperations, iops_now),
    };
    let raised = raised(terms.floor, dimension, value)?;
    let ceiling = terms.limits.total;
    let within = |rate: Option<u64>, most: Option<u64>| rate.map(|rate| rate.min(most.unwrap_or(u64::MAX)));
    let floor = Throughput {
        iops: within(raised.iops, ceiling.iops),
        bytes_per_second: within(raised.bytes_per_second, ceiling.bytes_per_second),
    };
    (floor != terms.floor).then_some(Change::Floor(floor))
}

/// The smallest change of the parameters that raises the limit: of one rate, of both, or of a bound too.
fn adaptive(limit: Limit, terms: AdaptiveTerms, sizes: Sizes) -> Option<Change> {
    if limit.dimension.is_bytes() {
        return Some(Change::Adaptive(AdaptiveChange {
            block_size_bytes: Some(None),
            ..AdaptiveChange::default()
        }));
    }
    let doubled = |rate: u64| rate.saturating_mul(FACTOR).min(RATE_IOPS_MAX);
    let expected_iops_per_tb = Some(doubled(terms.expected_iops_per_tb));
    let peak_iops_per_tb = Some(doubled(terms.peak_iops_per_tb));
    let expected = AdaptiveChange { expected_iops_per_tb, ..AdaptiveChange::default() };
    let peak = AdaptiveChange { peak_iops_per_tb, ..AdaptiveChange::default() };
    let both = AdaptiveChange { expected_iops_per_tb, ..peak };
    let minimum = AdaptiveChange { absolute_iops_min: Some(doubled(terms.absolute_iops_min)), ..both };
    let maximum = AdaptiveChange { ceiling_iops_max: Some(terms.ceiling_iops_max.map(doubled)), ..both };
    let rate = |terms: AdaptiveTerms| rate_of(limit, &terms.terms(sizes.allocated_bytes, sizes.used_bytes));
    let helps = |change: &AdaptiveChange| {
        let changed = change.applied(terms);
        // An expected rate above the peak would be refused.
        changed.expected_iops_per_tb <= changed.peak_iops_per_tb && rate(changed) > rate(terms)
    };
    [expected, peak, both, minimum, maximum].into_iter().find(helps).map(Change::Adaptive)
}

/// The proposal for a volume; `None` if no change of a policy group removes the cause.
pub(super) fn propose(
    model: &Model,
    volume: &VolumeRecord,
    (situation, finding): (&Situation, &Finding),
    sizes: Sizes,
) -> Option<Proposal> {
    let group = match (finding.cause, &finding.binding) {
        (Cause::Ceiling, Some(binding)) => model.group_by_id(binding.limit.group.as_ref()?.id)?,
        (Cause::Floors | Cause::Queue, _) => model.policy_of(volume)?,
        _ => return None,
    };
    let change = change(situation, finding, group, sizes)?;
    let is_bound = |other: &VolumeRecord| other.policy_group == Some(group.id);
    Some(Proposal { group: group.name.clone(), change, others: others(model, volume, is_bound) })
}

/// The other volumes that share the limit that binds.
pub(super) fn sharers(model: &Model, volume: &VolumeRecord, finding: &Finding) -> NamedVolumes {
    match finding.binding.as_ref().map(|binding| &binding.limit.scope) {
        Some(Scope::Tenant(_)) => others(model, volume, |_| true),
        Some(scope @ Scope::Group(_)) => others(model, volume, |other| {
            levels_in_effect(model, other).iter().any(|level| level.scope == *scope)
        }),
        Some(Scope::Volume(_) | Scope::Cgroup(_)) | None => NamedVolumes::default(),
    }
}

/// The other volumes of a volume's tenant for which this is true.
fn others(model: &Model, volume: &VolumeRecord, is_meant: impl Fn(&VolumeRecord) -> bool) -> NamedVolumes {
    let all = model.plain_volumes().filter(|other| other.tenant == volume.tenant && other.id != volume.id);
    let mut names: Vec<String> =
        all.filter(|other| is_meant(other)).map(|other| other.name.to_string()).collect();
    let count = names.len() as u64;
    names.sort_unstable();
    names.truncate(VOLUMES_NAMED_MAX);
    NamedVolumes { count, names }
}
