//! Limits by name: their owner, their present value, and the burst credit that is left.

use std::collections::BTreeMap;

use weir_engine_interface::statistics::BoundTotals;
use weir_qos::{Dimension, Limit, Rate};
use weir_types::{CgroupBindingId, Name, PolicyGroupId, Scope, Terms};

use crate::model::built_in::is_built_in;
use crate::model::levels::levels_in_effect;
use crate::model::{Level, Model};
use crate::reasons::Reasons;
use crate::records::{CgroupBindingRecord, GroupKind, VolumeRecord};

/// A policy group by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedGroup {
    /// Its identity.
    pub id: PolicyGroupId,
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: GroupKind,
    /// True if it is built in and cannot be changed.
    pub is_built_in: bool,
}

/// Saved burst credit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credit {
    /// Time in nanoseconds that the credit lasts at the burst rate.
    pub ns: u64,
    /// Maximum credit in nanoseconds.
    pub ns_max: u64,
}

/// A limit with its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedLimit {
    /// The level of the limit.
    pub scope: Scope,
    /// Name of the tenant, policy group or volume; its identity if it no longer exists.
    pub name: String,
    /// The policy group that sets it.
    pub group: Option<NamedGroup>,
    /// The limited dimension and rate.
    pub limit: Limit,
    /// Its present value in operations or bytes per second; `None` if it was removed.
    pub value: Option<u64>,
    /// Burst credit that is left, if the limit has a burst.
    pub credit: Option<Credit>,
}

/// A limit that has held requests of a volume back at some time.
#[derive(Clone, Debug)]
pub struct BoundLimit {
    /// The volume.
    pub volume: VolumeRecord,
    /// The limit.
    pub limit: NamedLimit,
    /// Sum of the delays in nanoseconds.
    pub waited_ns: u64,
}

/// The burst credit of one limit at one level.
#[derive(Clone, Debug)]
pub struct BurstCredit {
    /// The level.
    pub scope: Scope,
    /// Tenant that the level belongs to.
    pub tenant: Name,
    /// Name of the tenant, policy group or volume.
    pub name: String,
    /// The limited dimension.
    pub dimension: Dimension,
    /// The credit.
    pub credit: Credit,
}

/// Name of a dimension in all interfaces, equal to the fields of limits.
pub fn limit_name(dimension: Dimension) -> &'static str {
    match dimension {
        Dimension::TotalOperations => "iops",
        Dimension::TotalBytes => "bytes_per_second",
        Dimension::ReadOperations => "read_iops",
        Dimension::ReadBytes => "read_bytes_per_second",
        Dimension::WriteOperations => "write_iops",
        Dimension::WriteBytes => "write_bytes_per_second",
    }
}

/// Name of a rate in all interfaces.
pub fn rate_name(rate: Rate) -> &'static str {
    match rate {
        Rate::Sustained => "sustained",
        Rate::Burst => "burst",
    }
}

/// Name of a level in all interfaces.
pub fn scope_name(scope: &Scope) -> &'static str {
    match scope {
        Scope::Tenant(_) => "tenant",
        Scope::Group(_) => "policy_group",
        Scope::Volume(_) => "volume",
        Scope::Cgroup(_) => "cgroup",
    }
}

/// Burst credit by level and dimension, in nanoseconds at the burst rate.
pub type Credits = BTreeMap<(Scope, Dimension), u64>;

/// Credits of the levels in use. For other levels the credit earned since their last use is unknown.
pub fn credits_by_scope(all: &[(Scope, weir_qos::Credits, u64)]) -> Credits {
    let used = all.iter().filter(|(_, _, ago_ns)| *ago_ns == 0);
    let flat = used.flat_map(|(scope, credits, _)| {
        credits.iter().map(|(limit, ns)| ((scope.clone(), limit.dimension), *ns))
    });
    flat.collect()
}

/// The credit of a limit, if the terms have a burst for it.
fn credit_of(terms: &Terms, dimension: Dimension, saved_ns: Option<u64>) -> Option<Credit> {
    let burst = terms.burst?;
    dimension.rate(&burst.rates)?;
    let ns_max = u64::from(burst.seconds) * 1_000_000_000;
    Some(Credit { ns: saved_ns?.min(ns_max), ns_max })
}

/// The rate of a limit under these terms, if they have it.
pub(super) fn rate_of(limit: Limit, terms: &Terms) -> Option<u64> {
    match limit.rate {
        Rate::Sustained => limit.dimension.rate(&terms.limits),
        Rate::Burst => limit.dimension.rate(&terms.burst?.rates),
    }
}

/// Names the limits of a volume's levels.
pub struct Namer<'a> {
    model: &'a Model,
    volume: &'a VolumeRecord,
    levels: &'a [Level],
    credits: &'a Credits,
}

impl<'a> Namer<'a> {
    /// A namer for a volume with these levels.
    pub fn new(
        model: &'a Model,
        volume: &'a VolumeRecord,
        levels: &'a [Level],
        credits: &'a Credits,
    ) -> Namer<'a> {
        Namer { model, volume, levels, credits }
    }

    /// A limit with the delay that it caused.
    pub fn binding(&self, bound: &BoundTotals) -> Binding {
        Binding {
            limit: self.named(&bound.scope, bound.limit),
            requests: bound.requests,
            waited_ns: bound.waited_ns,
            since_ns: bound.since_ns,
        }
    }

    fn named(&self, scope: &Scope, limit: Limit) -> NamedLimit {
        let terms = self.terms_of(scope);
        let value = terms.and_then(|terms| rate_of(limit, &terms));
        let saved_ns = self.credits.get(&(scope.clone(), limit.dimension)).copied();
        NamedLimit {
            scope: scope.clone(),
            name: self.name_of(scope),
            group: self.group_of(scope),
            limit,
            value,
            credit: terms.and_then(|terms| credit_of(&terms, limit.dimension, saved_ns)),
        }
    }

    fn terms_of(&self, scope: &Scope) -> Option<Terms> {
        match scope {
            Scope::Cgroup(id) => Some(self.model.group_by_id(self.cgroup(*id)?.policy_group)?.terms),
            _ => self.levels.iter().find(|level| level.scope == *scope).map(|level| level.terms),
        }
    }

    fn name_of(&self, scope: &Scope) -> String {
        match scope {
            Scope::Tenant(name) => name.to_string(),
            Scope::Volume(_) => self.volume.name.to_string(),
            Scope::Cgroup(id) => {
                self.cgroup(*id).map_or_else(|| id.to_string(), |bound| bound.folder.display().to_string())
            }
            Scope::Group(id) => {
                self.model.group_by_id(*id).map_or_else(|| id.to_string(), |group| group.name.to_string())
            }
        }
    }

    fn cgroup(&self, id: CgroupBindingId) -> Option<&'a CgroupBindingRecord> {
        self.volume.cgroups.iter().find(|bound| bound.id == id)
    }

    /// The policy group that sets a level's terms.
    fn group_of(&self, scope: &Scope) -> Option<NamedGroup> {
        let id: PolicyGroupId = match scope {
            Scope::Tenant(name) => self.model.tenants.get(name)?.record.policy_group?,
            Scope::Group(id) => *id,
            Scope::Volume(_) => self.volume.policy_group?,
            Scope::Cgroup(id) => self.cgroup(*id)?.policy_group,
        };
        let record = self.model.group_by_id(id)?;
        let kind = if record.adaptive.is_some() { GroupKind::Adaptive } else { GroupKind::Fixed };
        Some(NamedGroup { id, name: record.name.to_string(), kind, is_built_in: is_built_in(id) })
    }
}

/// The tenant, the name and the terms in effect of a level.
fn level_of(model: &Model, scope: &Scope) -> Option<(Name, String, Terms)> {
    match scope {
        Scope::Tenant(name) => {
            let group = model.group_by_id(model.tenants.get(name)?.record.policy_group?)?;
            Some((name.clone(), name.to_string(), group.terms))
        }
        Scope::Group(id) => {
            let group = model.group_by_id(*id)?;
            Some((group.tenant.clone(), group.name.to_string(), group.terms))
        }
        Scope::Volume(id) => {
            let volume = &model.volumes.get(id)?.record;
            let own = levels_in_effect(model, volume).pop()?;
            Some((volume.tenant.clone(), volume.name.to_string(), own.terms))
        }
        Scope::Cgroup(id) => {
            let volumes = model.volumes.values().map(|volume| &volume.record);
            let mut all = volumes.flat_map(|volume| volume.cgroups.iter().map(move |bound| (volume, bound)));
            let (volume, bound) = all.find(|(_, bound)| bound.id == *id)?;
            let terms = model.group_by_id(bound.policy_group)?.terms;
            Some((volume.tenant.clone(), bound.folder.display().to_string(), terms))
        }
    }
}

impl Reasons {
    /// All limits that have held requests of served volumes back at some time.
    pub fn bound_limits(&self) -> Vec<BoundLimit> {
        let model = self.core.model();
        let credits = Credits::new();
        let mut all = Vec::new();
        for (id, open) in &model.open {
            let Some(volume) = model.volumes.get(id).map(|volume| &volume.record) else { continue };
            let namer = Namer::new(&model, volume, &[], &credits);
            all.extend(open.statistics().bounds.totals().into_iter().map(|bound| BoundLimit {
                volume: volume.clone(),
                limit: namer.named(&bound.scope, bound.limit),
                waited_ns: bound.waited_ns,
            }));
        }
        all
    }

    /// The burst credits of all levels that are in effect and have a burst.
    pub fn burst_credits(&self) -> Vec<BurstCredit> {
        let saved = credits_by_scope(&self.core.engine.credits());
        let model = self.core.model();
        let credit = |((scope, dimension), ns): (&(Scope, Dimension), &u64)| {
            let (tenant, name, terms) = level_of(&model, scope)?;
            let credit = credit_of(&terms, *dimension, Some(*ns))?;
            Some(BurstCredit { scope: scope.clone(), tenant, name, dimension: *dimension, credit })
        };
        saved.iter().filter_map(credit).collect()
    }
}

/// A limit with the delay that it caused in the span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    /// The limit.
    pub limit: NamedLimit,
    /// Number of requests that it held back.
    pub requests: u64,
    /// Sum of their delays in nanoseconds.
    pub waited_ns: u64,
    /// Start of the delays without a pause of more than a second, by the clock of statistics, in nanoseconds.
    pub since_ns: u64,
}
