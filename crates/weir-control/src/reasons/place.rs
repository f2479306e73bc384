//! The position of a volume among the users of its drive.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering::Relaxed;

use weir_engine_interface::PolicyLevel;
use weir_types::{Scope, VolumeId};

use crate::engine::OpenVolume;
use crate::error::list_names;
use crate::model::Model;
use crate::model::levels::{effective_weight, levels_in_effect, path};
use crate::records::VolumeRecord;

/// Another volume, or background work, that uses the same drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Its export name, or the kind of work.
    pub name: String,
    /// True if it, or a level above it, has a floor.
    pub has_floor: bool,
}

/// A volume among the users of its drive.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Place {
    /// Name of the drive.
    pub drive: String,
    /// The volume's own weight.
    pub weight: u32,
    /// True if it, or a level above it, has a floor.
    pub has_floor: bool,
    /// Fraction of the drive, from 0 to 1, that weights give the volume while all users want more than they
    /// get.
    pub portion: f64,
    /// Other users with requests under way.
    pub neighbours: Vec<Neighbour>,
}

/// Other volumes with requests under way on the drives of a volume.
pub fn active_beside(model: &Model, volume: &VolumeRecord) -> BTreeSet<VolumeId> {
    let is_active = |other: &&VolumeRecord| {
        let statistics = model.open.get(&other.id).map(OpenVolume::statistics);
        statistics.is_some_and(|statistics| statistics.queue_depth.load(Relaxed) > 0)
    };
    let others = model.volumes.values().map(|other| &other.record);
    let shares = |other: &VolumeRecord| other.placement.drives().iter().any(|d| volume.placement.names(*d));
    let beside = others.filter(|other| other.id != volume.id && shares(other));
    beside.filter(is_active).map(|other| other.id).collect()
}

/// The position of a volume beside these other volumes.
pub fn place<'a>(model: &Model, volume: &VolumeRecord, others: impl Iterator<Item = &'a VolumeId>) -> Place {
    let path_of = |record: &VolumeRecord| path(record, levels_in_effect(model, record));
    let own = path_of(volume);
    let records = others.filter_map(|id| model.volumes.get(id)).map(|other| &other.record);
    let (mut neighbours, paths): (Vec<_>, Vec<_>) = records
        .map(|record| {
            let path = path_of(record);
            (Neighbour { name: record.export_name(), has_floor: has_floor(&path) }, path)
        })
        .unzip();
    let on_drives = volume.placement.drives().into_iter().flat_map(|drive| model.background_on(drive));
    let background: BTreeMap<_, _> = on_drives.collect();
    neighbours.extend(background.iter().map(|(kind, policy)| Neighbour {
        name: format!("{kind} in the background"),
        has_floor: policy.deadline_seconds.is_some(),
    }));
    neighbours.sort_by(|one: &Neighbour, other| one.name.cmp(&other.name));
    Place {
        drive: list_names(model.drives_of(volume).map(|drive| &drive.name)),
        weight: effective_weight(&levels_in_effect(model, volume)),
        has_floor: has_floor(&own),
        portion: portion(&own, &paths, background.values().map(|policy| policy.weight.0).sum()),
        neighbours,
    }
}

fn has_floor(path: &[PolicyLevel]) -> bool {
    path.iter().any(|level| !level.terms.floor.is_unlimited())
}

/// The fraction of a path by the weights of its levels, beside other paths and background work of this
/// weight.
///
/// At each level, its weight counts among the weights of all levels below the same one.
fn portion(own: &[PolicyLevel], others: &[Vec<PolicyLevel>], background: u32) -> f64 {
    let is_beside = |other: &[PolicyLevel], depth: usize| {
        other.len() > depth && other[..depth].iter().zip(own).all(|(a, b)| a.scope == b.scope)
    };
    let mut part = 1.0;
    for (depth, level) in own.iter().enumerate() {
        let mut seen: BTreeSet<&Scope> = BTreeSet::from([&level.scope]);
        // Background work competes at the level of the tenants.
        let beside = if depth == 0 { background } else { 0 };
        let mut all = f64::from(level.terms.weight.0 + beside);
        for other in others.iter().filter(|other| is_beside(other, depth)) {
            if seen.insert(&other[depth].scope) {
                all += f64::from(other[depth].terms.weight.0);
            }
        }
        part *= f64::from(level.terms.weight.0) / all;
    }
    part
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_types::{Name, Terms, Weight};

    fn level(scope: Scope, weight: u32) -> PolicyLevel {
        PolicyLevel { scope, terms: Terms { weight: Weight(weight), ..Terms::default() } }
    }

    fn volume(tenant: &str, tenant_weight: u32, number: u128, weight: u32) -> Vec<PolicyLevel> {
        let id = VolumeId(uuid::Uuid::from_u128(number));
        let tenant = Scope::Tenant(Name::new(tenant).unwrap());
        vec![level(tenant, tenant_weight), level(Scope::Volume(id), weight)]
    }

    #[test]
    fn portion_is_the_product_over_all_levels() {
        let own = volume("a", 100, 1, 100);
        assert_eq!(portion(&own, &[], 0), 1.0);
        assert_eq!(portion(&own, &[volume("a", 100, 2, 300)], 0), 0.25);
        let others = [volume("a", 100, 2, 300), volume("b", 300, 3, 1), volume("b", 300, 4, 9)];
        assert_eq!(portion(&own, &others, 0), 0.25 * 0.25);
        assert_eq!(portion(&own, &others, 100), 0.25 * 0.2, "background work stands beside tenants");
    }
}
