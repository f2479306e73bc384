//! Snapshots in the model: found by their volume.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_types::{Name, VolumeId};

use crate::error::{ControlError, Outcome, list_names};
use crate::model::{Model, Versioned};
use crate::records::VolumeRecord;

impl Model {
    /// Volumes that are not snapshots.
    pub(crate) fn plain_volumes(&self) -> impl Iterator<Item = &VolumeRecord> {
        self.volumes.values().map(|volume| &volume.record).filter(|volume| volume.snapshot.is_none())
    }

    /// The snapshots of a volume, in no order.
    pub(crate) fn snapshots_of(&self, volume: VolumeId) -> impl Iterator<Item = &VolumeRecord> {
        let all = self.volumes.values().map(|volume| &volume.record);
        all.filter(move |record| record.snapshot.as_ref().is_some_and(|of| of.volume == volume))
    }

    /// Number of snapshots by volume, for volumes that have any.
    pub(crate) fn snapshot_counts(&self) -> BTreeMap<VolumeId, u64> {
        let mut counts = BTreeMap::new();
        for of in self.volumes.values().filter_map(|volume| volume.record.snapshot.as_ref()) {
            *counts.entry(of.volume).or_default() += 1;
        }
        counts
    }

    /// The snapshot of this name of a volume.
    pub(crate) fn snapshot(
        &self,
        tenant: Option<&Name>,
        volume: &Name,
        name: &Name,
    ) -> Outcome<&Versioned<VolumeRecord>> {
        let of = &self.volume(tenant, volume)?.record;
        let found = self.snapshots_of(of.id).find(|record| record.name == *name);
        let found = found.and_then(|record| self.volumes.get(&record.id)).map(Arc::as_ref);
        found.ok_or_else(|| {
            let known = list_names(self.snapshots_of(of.id).map(|record| &record.name));
            let known = if known.is_empty() { "it has none".to_owned() } else { format!("it has: {known}") };
            ControlError::not_found(format!("unknown snapshot '{name}' of volume '{volume}'; {known}"))
        })
    }

    /// Updates the volume names in snapshots, which an interrupted rename may have left unchanged.
    pub(crate) fn name_snapshots(&mut self) {
        let name = |volume: &VolumeRecord| (volume.id, volume.name.clone());
        let names: BTreeMap<VolumeId, Name> = self.plain_volumes().map(name).collect();
        for volume in self.volumes.values_mut().filter(|volume| volume.record.snapshot.is_some()) {
            let of =
                Arc::make_mut(volume).record.snapshot.as_mut().expect("those that have one were filtered");
            if let Some(name) = names.get(&of.volume) {
                of.volume_name = name.clone();
            }
        }
    }
}
