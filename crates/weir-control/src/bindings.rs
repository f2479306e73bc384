//! Bindings: the policy levels of served volumes, put into effect in the data plane.

use std::sync::Arc;

use weir_engine_interface::CgroupLimit;
use weir_types::{PolicyGroupId, Scope, Terms, Throughput};

use crate::core::Core;
use crate::error::{ControlError, Outcome};
use crate::figures::Figures;
use crate::model::levels::path;
use crate::records::{PolicyGroupRecord, VolumeRecord};

/// Puts the policies of volumes into effect.
pub struct Bindings {
    pub(crate) core: Arc<Core>,
    pub(crate) figures: Arc<Figures>,
}

impl Bindings {
    /// Used space of a volume, if its policy depends on it. It is 0 if the volume's files cannot be examined,
    /// which is an alarm of its own.
    fn used_for_policy(&self, volume: &VolumeRecord) -> u64 {
        match self.core.model().follows_used_space(volume) {
            true => self.figures.used_bytes_to_show(volume).unwrap_or(0),
            false => 0,
        }
    }

    /// Puts a volume under the policies that the records name.
    pub(crate) fn bind(&self, volume: &VolumeRecord) -> Outcome<()> {
        let used_bytes = self.used_for_policy(volume);
        let levels = self.core.model().levels(volume, used_bytes);
        let own = levels.last().map(|level| level.terms).unwrap_or_default();
        self.core.engine.bind(volume.id, path(volume, levels)).map_err(ControlError::not_in_effect)?;
        self.remember_own_terms(volume, own);
        self.limit_cgroups(volume)
    }

    /// Puts the limits of a volume's cgroups into effect.
    pub(crate) fn limit_cgroups(&self, volume: &VolumeRecord) -> Outcome<()> {
        if !self.is_served(volume) {
            return Ok(());
        }
        let model = self.core.model();
        let limits = volume.cgroups.iter().map(|binding| CgroupLimit {
            binding: binding.id,
            cgroup: binding.cgroup.clone(),
            terms: model
                .group_by_id(binding.policy_group)
                .map(|group| without_floor(group.terms))
                .unwrap_or_default(),
        });
        self.core.engine.limit_cgroups(volume.id, limits.collect()).map_err(ControlError::not_in_effect)
    }

    /// Applies the recorded terms of volumes whose place in the policy tree is unchanged.
    pub(crate) fn change_own_terms(&self, volumes: &[VolumeRecord]) -> Outcome<()> {
        let own = |volume: &VolumeRecord| {
            let used_bytes = self.used_for_policy(volume);
            (Scope::Volume(volume.id), self.core.model().own_level(volume, used_bytes).terms)
        };
        let served: Vec<_> = volumes.iter().filter(|volume| self.is_served(volume)).collect();
        let changes: Vec<_> = served.iter().map(|volume| own(volume)).collect();
        self.core.engine.change_terms(&changes).map_err(ControlError::not_in_effect)?;
        for (volume, (_, terms)) in served.into_iter().zip(changes) {
            self.remember_own_terms(volume, terms);
        }
        Ok(())
    }

    fn remember_own_terms(&self, volume: &VolumeRecord, own: Terms) {
        self.core.update(|model| {
            match model.policy_of(volume).is_some_and(|group| group.adaptive.is_some()) {
                true => model.adapted.insert(volume.id, own),
                false => model.adapted.remove(&volume.id),
            }
        });
    }

    /// Counts the I/O of a volume for its policy group from now on.
    pub(crate) fn join_policy(&self, volume: &VolumeRecord) {
        let Some(group) = volume.policy_group else { return };
        self.core.update(|model| {
            let now = model.volume_totals(volume.id);
            model.group_totals.join(group, volume.id, now);
        });
    }

    /// Puts volumes under the policies of their records again.
    pub(crate) fn bind_all(&self, volumes: &[VolumeRecord]) -> Outcome<()> {
        volumes.iter().filter(|volume| self.is_served(volume)).try_for_each(|volume| self.bind(volume))
    }

    /// True if the data plane serves the volume. Other volumes get the recorded policy when they are opened.
    fn is_served(&self, volume: &VolumeRecord) -> bool {
        self.core.model().open.contains_key(&volume.id)
    }

    /// Puts a changed policy group in effect.
    pub(crate) fn put_group_in_effect(
        &self,
        old: &PolicyGroupRecord,
        new: &PolicyGroupRecord,
    ) -> Outcome<()> {
        if new.is_shared && old.terms != new.terms {
            let mut changes = vec![(Scope::Group(new.id), new.terms)];
            let tenant =
                self.core.model().tenants.get(&new.tenant).and_then(|tenant| tenant.record.policy_group);
            if tenant == Some(new.id) {
                changes.push((Scope::Tenant(new.tenant.clone()), new.terms));
            }
            self.core.engine.change_terms(&changes).map_err(ControlError::not_in_effect)?;
        }
        let volumes = self.volumes_under(new.id);
        self.limit_cgroups_of(new.id)?;
        if old.parent != new.parent {
            return self.bind_all(&volumes);
        }
        if new.is_shared {
            return Ok(());
        }
        self.change_own_terms(&volumes)
    }

    /// Puts changed terms of a group into effect for the cgroups that are bound to it.
    fn limit_cgroups_of(&self, group: PolicyGroupId) -> Outcome<()> {
        let model = self.core.model();
        let volumes = model.volumes.values().map(|volume| &volume.record);
        let limited = volumes.filter(|volume| volume.cgroups.iter().any(|bound| bound.policy_group == group));
        limited.into_iter().try_for_each(|volume| self.limit_cgroups(volume))
    }

    /// The volumes that are bound to a group or to a group below it.
    fn volumes_under(&self, group: PolicyGroupId) -> Vec<VolumeRecord> {
        let model = self.core.model();
        let is_under = |volume: &&VolumeRecord| {
            volume.policy_group.is_some_and(|of| model.upwards(of).iter().any(|above| above.id == group))
        };
        model.volumes.values().map(|volume| &volume.record).filter(is_under).cloned().collect()
    }

    /// Adapts volumes whose policy depends on their used space. Unchanged terms are not touched.
    pub fn follow_used_space(&self) {
        let followers: Vec<_> = {
            let model = self.core.model();
            let served =
                model.adapted.keys().filter_map(|id| model.volumes.get(id)).map(|v| v.record.clone());
            served.filter(|volume| model.follows_used_space(volume)).collect()
        };
        for volume in followers {
            if !self.is_adapted(&volume)
                && let Err(error) = self.adapt(&volume)
            {
                tracing::error!(volume = %volume.id, %error, "the policy cannot follow the used space");
            }
        }
    }

    /// True if the terms in effect match the volume's current used space.
    fn is_adapted(&self, volume: &VolumeRecord) -> bool {
        let Some(used_bytes) = self.figures.used_bytes(volume) else { return true };
        let model = self.core.model();
        model.adapted.get(&volume.id) == Some(&model.own_level(volume, used_bytes).terms)
    }

    /// Applies the current terms of a volume's policy, unless the volume is being changed.
    fn adapt(&self, seen: &VolumeRecord) -> Outcome<()> {
        // A concurrent change of the volume applies the policy itself.
        let Some(_change) = self.core.try_volume_change(&[seen.id], &[]) else { return Ok(()) };
        let current = self.core.model().volumes.get(&seen.id).map(|volume| volume.record.clone());
        match current.filter(|volume| self.core.model().adapted.contains_key(&volume.id)) {
            Some(volume) => self.change_own_terms(&[volume]),
            None => Ok(()),
        }
    }

    pub(crate) fn leave_policy(&self, record: &VolumeRecord) {
        let Some(group) = record.policy_group else { return };
        self.core.update(|model| {
            let now = model.volume_totals(record.id);
            model.group_totals.leave(group, record.id, now);
        });
    }
}

/// The terms for a cgroup: floors are admitted for volumes alone.
fn without_floor(terms: Terms) -> Terms {
    Terms { floor: Throughput::default(), ..terms }
}
