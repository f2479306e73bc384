//! Statistics by volume and by policy group.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use weir_engine_interface::statistics::VolumeCounters;
use weir_types::{Name, PolicyGroupId, VolumeId};

use crate::core::Core;
use crate::engine::OpenVolume;
use crate::error::Outcome;
use crate::model::{Model, Versioned};
use crate::policies::PolicyGroups;
use crate::records::{PolicyGroupRecord, VolumeRecord};
use crate::totals::Totals;
use crate::volume_views::VolumeViews;

/// Statistics of one volume.
#[derive(Clone, Debug)]
pub struct VolumeSample {
    /// The volume.
    pub volume: Arc<Versioned<VolumeRecord>>,
    /// The policy group that it is bound to.
    pub policy: Option<Name>,
    /// Its counters.
    pub counters: VolumeCounters,
}

/// Statistics of one policy group: the I/O of its members during their membership.
#[derive(Clone, Debug)]
pub struct PolicyGroupSample {
    /// The policy group.
    pub record: PolicyGroupRecord,
    /// Number of volumes that are bound to it.
    pub workloads: usize,
    /// Totals of its members.
    pub totals: Totals,
    /// Number of its members' unanswered requests.
    pub queue_depth: u64,
    /// Number of requests among them that a ceiling holds back.
    pub queue_depth_delayed: u64,
}

/// Reads statistics.
pub struct Statistics {
    pub(crate) core: Arc<Core>,
    pub(crate) views: Arc<VolumeViews>,
    pub(crate) groups: Arc<PolicyGroups>,
}

impl Statistics {
    /// Statistics of all volumes, those of one tenant, or one volume, all at the same instant.
    pub fn volume_samples(&self, tenant: Option<&Name>, name: Option<&Name>) -> Outcome<Vec<VolumeSample>> {
        let ids = match name {
            Some(name) => vec![self.core.model().volume(tenant, name)?.record.id],
            None => self.views.volume_ids(tenant)?,
        };
        let model = self.core.model();
        let sample = |id: &VolumeId| {
            let volume = Arc::clone(model.volumes.get(id)?);
            let policy = model.policy_of(&volume.record).map(|group| group.name.clone());
            let counters = model.open.get(id).map(|open| open.statistics().counters()).unwrap_or_default();
            Some(VolumeSample { volume, policy, counters })
        };
        Ok(ids.iter().filter_map(sample).collect())
    }

    /// Statistics of all policy groups, those of one tenant, or one group.
    pub fn policy_group_samples(
        &self,
        tenant: Option<&Name>,
        name: Option<&Name>,
    ) -> Outcome<Vec<PolicyGroupSample>> {
        let views = match name {
            Some(name) => vec![self.groups.policy_group_of_any_kind(tenant, name)?],
            None => self.groups.all_policy_groups(tenant)?,
        };
        // Unused built-in groups would only make the answer long.
        let views = views.into_iter().filter(|view| !view.is_built_in || view.workloads > 0);
        let model = self.core.model();
        let depths = queue_depths(&model);
        let sample = |record: PolicyGroupRecord, workloads| {
            let (queue_depth, queue_depth_delayed) = depths.get(&record.id).copied().unwrap_or_default();
            let totals = model.group_totals.totals(record.id, |volume| model.volume_totals(volume));
            PolicyGroupSample { record, workloads, totals, queue_depth, queue_depth_delayed }
        };
        Ok(views.map(|view| sample(view.record, view.workloads)).collect())
    }
}

/// Number of unanswered requests, and of those held back by a ceiling, by policy group.
fn queue_depths(model: &Model) -> BTreeMap<PolicyGroupId, (u64, u64)> {
    let mut depths: BTreeMap<_, (u64, u64)> = BTreeMap::new();
    for volume in model.volumes.values() {
        let statistics = model.open.get(&volume.record.id).map(OpenVolume::statistics);
        if let (Some(group), Some(statistics)) = (volume.record.policy_group, statistics) {
            let depth = depths.entry(group).or_default();
            depth.0 += statistics.queue_depth.load(Relaxed);
            depth.1 += statistics.queue_depth_delayed.load(Relaxed);
        }
    }
    depths
}
