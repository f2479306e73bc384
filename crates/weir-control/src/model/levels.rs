//! The policy levels of a volume, the terms that are in effect, and applying them to the data plane.

use serde_json::{Value, json};
use weir_engine_interface::PolicyLevel;
use weir_types::{Limits, Name, OperationSize, PolicyGroupId, Rate, Scope, Terms};

use crate::model::Model;
use crate::model::built_in::is_built_in;
use crate::model::projected_state::ProjectedState;
use crate::records::{PolicyGroupRecord, VolumeRecord};

/// One level of the policies that apply to a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Level {
    /// Owner of the terms.
    pub scope: Scope,
    /// Name of the tenant, group or volume.
    pub name: Name,
    /// The policy group that the terms come from, in words; `None` if no policy sets them.
    pub origin: Option<String>,
    /// True if the volume is bound to this level: the volume's own level, and that of its shared group.
    pub is_bound: bool,
    /// The terms.
    pub terms: Terms,
}

/// One field of the terms as it is in effect for a volume.
#[derive(Clone, Debug, PartialEq)]
pub struct EffectiveField {
    /// The field.
    pub name: &'static str,
    /// Its value in base units.
    pub value: Value,
    /// Its origin, in words.
    pub origin: String,
}

impl Model {
    /// The records of all policy groups that a volume's policy depends on, without the built-in ones, which
    /// cannot be lost.
    ///
    /// The volume's own group comes first, then the groups above it, then the groups that its tenant names.
    pub fn groups_of(&self, volume: &VolumeRecord) -> Vec<&PolicyGroupRecord> {
        let tenant = self.tenants.get(&volume.tenant).map(|tenant| &tenant.record);
        let named = tenant
            .into_iter()
            .flat_map(|tenant| [tenant.policy_group, tenant.default_policy_group])
            .flatten();
        let mut groups: Vec<&PolicyGroupRecord> = Vec::new();
        let of_cgroups = volume.cgroups.iter().map(|bound| bound.policy_group);
        for start in volume.policy_group.into_iter().chain(of_cgroups).chain(named) {
            for group in self.upwards(start) {
                if !is_built_in(group.id) && groups.iter().all(|known| known.id != group.id) {
                    groups.push(group);
                }
            }
        }
        groups
    }

    /// A group and its ancestors, from the group to the top.
    pub(crate) fn upwards(&self, group: PolicyGroupId) -> Vec<&PolicyGroupRecord> {
        ProjectedState::now(self).upwards(group)
    }

    /// The levels of a volume; see [`ProjectedState::levels`].
    pub fn levels(&self, volume: &VolumeRecord, used_bytes: u64) -> Vec<Level> {
        ProjectedState::now(self).levels(volume, used_bytes)
    }

    pub(crate) fn own_level(&self, volume: &VolumeRecord, used_bytes: u64) -> Level {
        ProjectedState::now(self).own_level(volume, used_bytes)
    }

    /// True if the volume's own terms depend on its used space.
    pub fn follows_used_space(&self, volume: &VolumeRecord) -> bool {
        let adaptive = self.policy_of(volume).and_then(|group| group.adaptive);
        adaptive.is_some_and(|adaptive| adaptive.follows_used_space())
    }
}

impl<'a> ProjectedState<'a> {
    /// A group and its ancestors, from the group to the top.
    fn upwards(self, group: PolicyGroupId) -> Vec<&'a PolicyGroupRecord> {
        let mut path: Vec<&'a PolicyGroupRecord> = Vec::new();
        let mut next = Some(group);
        while let Some(group) = next.and_then(|id| self.group(id)) {
            // Cycles are refused, but a catalogue that has one must not block the start.
            if path.iter().any(|seen| seen.id == group.id) {
                break;
            }
            path.push(group);
            next = group.parent;
        }
        path
    }

    /// The levels of a volume from the top down: its tenant if it has terms, the shared groups, the volume
    /// itself.
    pub fn levels(self, volume: &VolumeRecord, used_bytes: u64) -> Vec<Level> {
        let top = self.group_of_tenant(&volume.tenant);
        let bound = volume.policy_group;
        let tenant = top.and_then(|top| self.group(top)).map(|group| Level {
            scope: Scope::Tenant(volume.tenant.clone()),
            name: volume.tenant.clone(),
            origin: Some(format!("policy group {} of tenant {}", group.name, volume.tenant)),
            is_bound: bound == top,
            terms: group.terms,
        });
        let mut above = bound.map(|bound| self.upwards(bound)).unwrap_or_default();
        above.reverse();
        // The tenant's own group is the first level already.
        let shared = above.into_iter().filter(|group| group.is_shared && Some(group.id) != top);
        let shared = shared.map(|group| Level {
            scope: Scope::Group(group.id),
            name: group.name.clone(),
            origin: Some(match Some(group.id) == bound {
                true => format!("policy group {}", group.name),
                false => format!("parent policy group {}", group.name),
            }),
            is_bound: Some(group.id) == bound,
            terms: group.terms,
        });
        tenant.into_iter().chain(shared).chain([self.own_level(volume, used_bytes)]).collect()
    }

    fn own_level(self, volume: &VolumeRecord, used_bytes: u64) -> Level {
        let group = volume.policy_group.and_then(|id| self.group(id));
        let terms = group.map(|group| group.own_terms(volume.size_bytes, used_bytes)).unwrap_or_default();
        let own = group.filter(|group| !group.is_shared);
        Level {
            scope: Scope::Volume(volume.id),
            name: volume.name.clone(),
            origin: own.map(|group| format!("{} {}", group.kind(), group.name)),
            is_bound: true,
            terms,
        }
    }
}

/// The fields in effect for a volume with these levels: the lowest value of each ceiling, and the volume's
/// bound policy for all other fields.
///
/// Other fields of the levels above apply to all volumes there together.
pub fn effective(levels: &[Level]) -> Vec<EffectiveField> {
    let mut fields = effective_ceilings(levels);
    let nearest = |is_said: &dyn Fn(&Terms) -> bool| {
        levels.iter().rfind(|level| level.is_bound && is_said(&level.terms))
    };
    let plain = Terms::default();
    let mut push = |name, value: &dyn Fn(&Terms) -> Value, is_said: &dyn Fn(&Terms) -> bool| {
        let level = nearest(is_said);
        let origin = level.and_then(|level| level.origin.clone()).unwrap_or_else(|| "default".to_owned());
        fields.push(EffectiveField {
            name,
            value: value(level.map_or(&plain, |level| &level.terms)),
            origin,
        });
    };
    push("floor_iops", &|terms| json!(terms.floor.iops), &|terms| terms.floor.iops.is_some());
    push("floor_bytes_per_second", &|terms| json!(terms.floor.bytes_per_second), &|terms| {
        terms.floor.bytes_per_second.is_some()
    });
    push("burst", &|terms| json!(terms.burst), &|terms| terms.burst.is_some());
    push("weight", &|terms| json!(terms.weight), &|terms| terms.weight != plain.weight);
    push("operation_size", &|terms| json!(terms.operation_size), &|terms| {
        terms.operation_size != OperationSize::Any
    });
    push("charges", &|terms| json!(terms.charges), &|terms| terms.charges != plain.charges);
    fields
}

/// The weight of a volume among the volumes under the same level, from the policy that it is bound to.
pub(crate) fn effective_weight(levels: &[Level]) -> u32 {
    let plain = Terms::default().weight;
    let said = levels.iter().rfind(|level| level.is_bound && level.terms.weight != plain);
    said.map_or(plain, |level| level.terms.weight).0
}

fn effective_ceilings(levels: &[Level]) -> Vec<EffectiveField> {
    type Pick = fn(&Limits) -> Option<Rate>;
    let ceilings: [(&'static str, Pick); 6] = [
        ("ceiling_iops", |limits| limits.total.iops.map(Rate::Iops)),
        ("ceiling_bytes_per_second", |limits| limits.total.bytes_per_second.map(Rate::BytesPerSecond)),
        ("ceiling_read_iops", |limits| limits.read.iops.map(Rate::Iops)),
        ("ceiling_read_bytes_per_second", |limits| limits.read.bytes_per_second.map(Rate::BytesPerSecond)),
        ("ceiling_write_iops", |limits| limits.write.iops.map(Rate::Iops)),
        ("ceiling_write_bytes_per_second", |limits| limits.write.bytes_per_second.map(Rate::BytesPerSecond)),
    ];
    let field = |(name, pick): (&'static str, Pick)| {
        let set = levels.iter().filter_map(|level| Some((pick(&level.terms.limits)?.value(), level)));
        // Of equal values, the level nearest to the volume wins.
        let lowest = set.rev().min_by_key(|(rate, _)| *rate);
        let origin =
            lowest.and_then(|(_, level)| level.origin.clone()).unwrap_or_else(|| "default".to_owned());
        EffectiveField { name, value: json!(lowest.map(|(rate, _)| rate)), origin }
    };
    ceilings.into_iter().map(field).collect()
}

/// The policy path of a volume in the data plane. It always starts at the tenant, because tenants share the
/// drives also without a policy.
pub(crate) fn path(volume: &VolumeRecord, levels: Vec<Level>) -> Vec<PolicyLevel> {
    let top = Scope::Tenant(volume.tenant.clone());
    let has_top = levels.first().is_some_and(|level| level.scope == top);
    let tenant = (!has_top).then(|| PolicyLevel { scope: top, terms: Terms::default() });
    let levels = levels.into_iter().map(|level| PolicyLevel { scope: level.scope, terms: level.terms });
    tenant.into_iter().chain(levels).collect()
}

/// The levels of a volume with its own terms as they are in effect. If these terms follow the used space,
/// they may be some seconds old.
pub(crate) fn levels_in_effect(model: &Model, record: &VolumeRecord) -> Vec<Level> {
    let mut levels = model.levels(record, 0);
    if let (Some(own), Some(terms)) = (levels.last_mut(), model.adapted.get(&record.id)) {
        own.terms = *terms;
    }
    levels
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_types::{Throughput, VolumeId, Weight};

    fn level(scope: Scope, origin: Option<&str>, total: &str, weight: u32) -> Level {
        let limits = Limits { total: Throughput::parse(total).unwrap(), ..Limits::default() };
        Level {
            scope,
            name: Name::new("x").unwrap(),
            origin: origin.map(str::to_owned),
            is_bound: true,
            terms: Terms { weight: Weight(weight), ..Terms::limited(limits) },
        }
    }

    #[test]
    fn effective_field_has_value_and_origin() {
        let (id, tenant) = (uuid::Uuid::from_u128(1), Name::new("svm01").unwrap());
        let levels = [
            Level { is_bound: false, ..level(Scope::Tenant(tenant), Some("tenant"), "1000IOPS,5MB/s", 9) },
            level(Scope::Group(PolicyGroupId(id)), Some("group"), "1000IOPS,9MB/s", 7),
            level(Scope::Volume(VolumeId(id)), None, "none", 100),
        ];
        let fields = effective(&levels);
        let found = |name| {
            let field = fields.iter().find(|field| field.name == name).unwrap();
            (field.value.clone(), field.origin.as_str())
        };
        assert_eq!(found("ceiling_iops"), (json!(1000), "group"), "of equal ones the nearest");
        assert_eq!(found("ceiling_bytes_per_second"), (json!(5_000_000), "tenant"));
        assert_eq!(found("ceiling_read_iops"), (Value::Null, "default"));
        assert_eq!(found("weight"), (json!(7), "group"));
        let above = effective(&[levels[0].clone(), levels[2].clone()]);
        let weight = above.iter().find(|field| field.name == "weight").unwrap();
        assert_eq!((&weight.value, weight.origin.as_str()), (&json!(100), "default"), "not the tenant's");
        assert_eq!(found("charges"), (json!({"discard": 1, "zeroes": 1, "flush": 0}), "default"));
        assert_eq!(found("burst"), (Value::Null, "default"));
    }
}
