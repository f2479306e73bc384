//! Projected state: the records as they are, or as a proposed change would leave them.

use std::collections::BTreeMap;

use weir_types::control_bounds::GROUP_DEPTH_MAX;
use weir_types::{Name, PolicyGroupId, VolumeId};

use crate::model::Model;
use crate::records::{PolicyGroupRecord, PoolSettings, TenantRecord, VolumeRecord};

/// A proposed change: the records that it would write.
#[derive(Clone, Debug, Default)]
pub struct Proposal {
    /// Policy groups; `None` for groups that the change deletes.
    pub groups: BTreeMap<PolicyGroupId, Option<PolicyGroupRecord>>,
    /// Tenants.
    pub tenants: BTreeMap<Name, TenantRecord>,
    /// Volumes, including new ones.
    pub volumes: BTreeMap<VolumeId, VolumeRecord>,
    /// Settings of pools, by pool name.
    pub pools: BTreeMap<Name, PoolSettings>,
}

impl Proposal {
    /// A change of one policy group.
    pub fn group(record: &PolicyGroupRecord) -> Proposal {
        Proposal { groups: BTreeMap::from([(record.id, Some(record.clone()))]), ..Proposal::default() }
    }

    /// A change of one tenant.
    pub fn tenant(record: &TenantRecord) -> Proposal {
        Proposal { tenants: BTreeMap::from([(record.name.clone(), record.clone())]), ..Proposal::default() }
    }

    /// A change or creation of one volume.
    pub fn volume(record: &VolumeRecord) -> Proposal {
        Proposal { volumes: BTreeMap::from([(record.id, record.clone())]), ..Proposal::default() }
    }

    /// A change of one pool's settings.
    pub fn pool(name: &Name, settings: PoolSettings) -> Proposal {
        Proposal { pools: BTreeMap::from([(name.clone(), settings)]), ..Proposal::default() }
    }
}

/// Policies, volumes and pools, as they are or as a proposal would leave them.
#[derive(Clone, Copy)]
pub struct ProjectedState<'a> {
    model: &'a Model,
    proposal: Option<&'a Proposal>,
}

impl<'a> ProjectedState<'a> {
    /// The state now.
    pub fn now(model: &'a Model) -> ProjectedState<'a> {
        ProjectedState { model, proposal: None }
    }

    /// The state after the proposal.
    pub fn after(model: &'a Model, proposal: &'a Proposal) -> ProjectedState<'a> {
        ProjectedState { model, proposal: Some(proposal) }
    }

    /// The policy group of an identity, built-in or not.
    pub fn group(self, id: PolicyGroupId) -> Option<&'a PolicyGroupRecord> {
        match self.proposal.and_then(|proposal| proposal.groups.get(&id)) {
            Some(proposed) => proposed.as_ref(),
            None => self.model.group_by_id(id),
        }
    }

    /// The group whose terms apply to a tenant.
    pub fn group_of_tenant(self, name: &Name) -> Option<PolicyGroupId> {
        let proposed = self.proposal.and_then(|proposal| proposal.tenants.get(name));
        proposed.or_else(|| Some(&self.model.tenants.get(name)?.record))?.policy_group
    }

    /// True if any level of a volume can have a floor.
    ///
    /// The answer is cheaper than [`ProjectedState::levels`]. Most volumes have no floor, and every change
    /// asks about all volumes of a pool.
    pub fn may_claim(self, volume: &VolumeRecord) -> bool {
        let above = |id: &PolicyGroupId| self.group(*id)?.parent;
        let groups = std::iter::successors(volume.policy_group, above).take(GROUP_DEPTH_MAX);
        let mut groups = groups.chain(self.group_of_tenant(&volume.tenant)).filter_map(|id| self.group(id));
        groups.any(|group| group.adaptive.is_some() || !group.terms.floor.is_unlimited())
    }

    /// All volumes.
    pub fn volumes(self) -> impl Iterator<Item = &'a VolumeRecord> {
        let proposed = self.proposal.map(|proposal| &proposal.volumes);
        let is_as_now = move |id: &VolumeId| proposed.is_none_or(|proposed| !proposed.contains_key(id));
        let now = self.model.volumes.iter().filter(move |(id, _)| is_as_now(id));
        now.map(|(_, volume)| &volume.record).chain(proposed.into_iter().flat_map(BTreeMap::values))
    }

    /// The settings of a pool, given its present ones.
    pub fn settings(self, pool: &Name, now: PoolSettings) -> PoolSettings {
        let proposed = self.proposal.and_then(|proposal| proposal.pools.get(pool));
        proposed.copied().unwrap_or(now)
    }
}
