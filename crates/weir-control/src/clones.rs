//! Clones: new volumes that begin with the content of a volume or a snapshot.

use jiff::Timestamp;
use weir_types::{Name, VolumeId};

use super::Control;
use super::error::Outcome;
use super::projected_state::Proposal;
use super::records::{VolumeRecord, VolumeState};
use super::snapshots::online;
use super::snapshots_in_progress::{Pair, placement_like};
use super::volumes::{PolicyChange, VolumeView, refuse_more, refuse_taken};

/// A request for a clone.
#[derive(Clone, Debug)]
pub struct CloneVolume {
    /// Owner of the volume and of the clone; if `None`, the volume is looked up as usual.
    pub tenant: Option<Name>,
    /// Volume to clone.
    pub source: Name,
    /// Snapshot of the volume to clone, instead of its current content.
    pub snapshot: Option<Name>,
    /// Name of the clone.
    pub name: Name,
    /// Policy of the clone; if `None`, the default policy group of its tenant.
    pub policy: Option<PolicyChange>,
    /// True to bind floors that pools cannot meet, and to exceed their over-provisioning limits.
    pub force: bool,
}

impl Control {
    /// Creates a volume with the content of another volume or of a snapshot. The clone is on the same drives
    /// and has as many replicas. If the filesystem shares extents, the clone takes no space until it is
    /// written. Otherwise all data is duplicated before the call returns.
    ///
    /// # Errors
    /// * Not found for an unknown volume, snapshot or policy group.
    /// * Conflict for a name that is taken.
    /// * Full if there are too many volumes, or too little space to duplicate data that cannot be shared.
    /// * Full if the pool may have no more provisioned.
    /// * Refused if the policy has floors that the pool cannot meet, unless the request is forced.
    /// * Refused if no snapshot of the volume can be taken now.
    pub fn clone_volume(&self, request: &CloneVolume) -> Outcome<VolumeView> {
        let begun = self.begin_snapshots(&[], || {
            let pair = self.clone_pair(request)?;
            self.admit_clone(&pair.target, request.force)?;
            Ok(vec![pair])
        })?;
        let record = self.finish_snapshots(begun, |change, pairs| {
            let mut record = VolumeRecord { state: VolumeState::Online, ..pairs[0].target.clone() };
            // While the data was duplicated, another change may have taken the name or the capacity that the
            // policy needs.
            refuse_taken(&self.model(), &record.tenant, &record.name)?;
            let policy_group = self.model().policy_for_new(&record.tenant, request.policy.as_ref(), None)?;
            record.policy_group = policy_group;
            self.admit_clone(&record, request.force)?;
            self.put_online(std::slice::from_ref(&record))?;
            self.serve_new(change, &record);
            Ok(record)
        })?;
        self.volume(Some(&record.tenant), &record.name)
    }

    fn admit_clone(&self, clone: &VolumeRecord, force: bool) -> Outcome<()> {
        self.admit(&Proposal::volume(clone), force)?;
        if force { Ok(()) } else { self.refuse_over_provision(clone) }
    }

    fn clone_pair(&self, request: &CloneVolume) -> Outcome<Pair> {
        let model = self.model();
        let source = match &request.snapshot {
            None => online(model.volume(request.tenant.as_ref(), &request.source)?)?,
            Some(snapshot) => online(model.snapshot(request.tenant.as_ref(), &request.source, snapshot)?)?,
        };
        refuse_taken(&model, &source.tenant, &request.name)?;
        refuse_more(&model, 1)?;
        let target = VolumeRecord {
            id: VolumeId(uuid::Uuid::new_v4()),
            name: request.name.clone(),
            placement: placement_like(source),
            template: model.template_of(source).map(|template| template.name.clone()),
            generation: 0,
            policy_group: model.policy_for_new(&source.tenant, request.policy.as_ref(), None)?,
            is_read_only: false,
            snapshot: None,
            cloned_from: Some(source.export_name()),
            state: VolumeState::Creating,
            created_at: Timestamp::now(),
            ..source.clone()
        };
        Ok(Pair { source: source.clone(), target })
    }
}
