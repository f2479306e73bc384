//! Clones: new volumes that begin with the content of a volume or a snapshot.

use std::sync::Arc;

use jiff::Timestamp;
use weir_types::{FlushTerms, IoProfile, Name, VolumeId};

use crate::coalesced_flushes;
use crate::core::Core;
use crate::error::Outcome;
use crate::model::projected_state::Proposal;
use crate::placing::Placing;
use crate::pools::Pools;
use crate::records::{VolumeRecord, VolumeState};
use crate::serving::Serving;
use crate::snapshots::{Pair, SnapshotMaker, online, placement_like};
use crate::volume_requests::{FlushTermsChange, PolicyChange};
use crate::volume_views::{VolumeView, VolumeViews};
use crate::volumes::{policy_for_new, refuse_more, refuse_taken};

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
    /// I/O profile of the clone; if `None`, that of the volume.
    pub io_profile: Option<IoProfile>,
    /// How its flushes are owed; what is `None` is as for the volume if that has the same I/O profile.
    pub flush_terms: FlushTermsChange,
    /// True to bind floors that pools cannot meet, and to exceed their over-provisioning limits.
    pub force: bool,
}

/// Makes clones.
pub struct Clones {
    pub(crate) core: Arc<Core>,
    pub(crate) pools: Arc<Pools>,
    pub(crate) placing: Arc<Placing>,
    pub(crate) maker: Arc<SnapshotMaker>,
    pub(crate) serving: Arc<Serving>,
    pub(crate) views: Arc<VolumeViews>,
}

impl Clones {
    /// Creates a volume with the content of another volume or of a snapshot. The clone is on the same drives
    /// and has as many replicas. If the filesystem shares extents, the clone takes no space until it is
    /// written. Otherwise all data is duplicated before the call returns.
    ///
    /// # Errors
    /// * Not found for an unknown volume, snapshot or policy group.
    /// * Conflict for a name that is taken.
    /// * Full if there are too many volumes, or too little space to duplicate data that cannot be shared.
    /// * Full if the pool may have no more provisioned, or if no journal drive has room for a write journal that the
    ///   I/O profile promises.
    /// * Refused if the policy has floors that the pool cannot meet, unless the request is forced.
    /// * Refused if no snapshot of the volume can be taken now.
    pub fn clone_volume(&self, request: &CloneVolume) -> Outcome<VolumeView> {
        let begun = self.maker.begin_snapshots(&[], || {
            let pair = self.clone_pair(request)?;
            self.admit_clone(&pair.target, request.force)?;
            Ok(vec![pair])
        })?;
        let record = self.maker.finish_snapshots(begun, None, |change, pairs| {
            let mut record = VolumeRecord { state: VolumeState::Online, ..pairs[0].target.clone() };
            // While the data was duplicated, another change may have taken the name or the capacity that the
            // policy needs.
            refuse_taken(&self.core.model(), &record.tenant, &record.name)?;
            let policy_group =
                policy_for_new(&self.core.model(), &record.tenant, request.policy.as_ref(), None)?;
            record.policy_group = policy_group;
            self.admit_clone(&record, request.force)?;
            self.core.put_online(std::slice::from_ref(&record))?;
            self.serving.serve_new(change, &record);
            Ok(record)
        })?;
        self.views.volume(Some(&record.tenant), &record.name)
    }

    fn admit_clone(&self, clone: &VolumeRecord, force: bool) -> Outcome<()> {
        self.pools.admit(&Proposal::volume(clone), force)?;
        if force { Ok(()) } else { self.placing.refuse_over_provision(clone) }
    }

    fn clone_pair(&self, request: &CloneVolume) -> Outcome<Pair> {
        let model = self.core.model();
        let source = match &request.snapshot {
            None => online(model.volume(request.tenant.as_ref(), &request.source)?)?,
            Some(snapshot) => online(model.snapshot(request.tenant.as_ref(), &request.source, snapshot)?)?,
        };
        refuse_taken(&model, &source.tenant, &request.name)?;
        refuse_more(&model, 1)?;
        let io_profile = request.io_profile.unwrap_or(source.io_profile);
        let terms = if io_profile == source.io_profile { source.flush_terms } else { FlushTerms::default() };
        let target = VolumeRecord {
            id: VolumeId(uuid::Uuid::new_v4()),
            name: request.name.clone(),
            placement: placement_like(source),
            template: model.template_of(source).map(|template| template.name.clone()),
            io_profile,
            flush_terms: request.flush_terms.apply(terms),
            generation: 0,
            policy_group: policy_for_new(&model, &source.tenant, request.policy.as_ref(), None)?,
            cgroups: Vec::new(),
            is_read_only: false,
            snapshot: None,
            cloned_from: Some(source.export_name()),
            state: VolumeState::Creating,
            created_at: Timestamp::now(),
            ..source.clone()
        };
        coalesced_flushes::check(&model, &target)?;
        Ok(Pair { source: source.clone(), target })
    }
}
