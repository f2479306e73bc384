//! Records of volumes: written to the catalogue and the model, and published to clients.

use std::path::PathBuf;

use jiff::Timestamp;
use weir_engine_interface::Export;
use weir_types::{Name, VolumeId};

use crate::catalogue::{Revision, Transaction};
use crate::core::Core;
use crate::error::{ControlError, Outcome, refuse_other_version};
use crate::model::Versioned;
use crate::records::{VolumeRecord, VolumeState, keys};

impl Core {
    /// Writes a volume's record to the catalogue, unless another change wrote it first, and to the model.
    pub(crate) fn save_volume(&self, record: &VolumeRecord, revision: Revision) -> Outcome<Revision> {
        let key = crate::records::keys::volume(record.id);
        let transaction = Transaction::default().compare(&key, revision).put(&key, record)?;
        let revision = self.catalogue.commit(transaction)?;
        self.update(|model| model.put_volume(record.clone(), revision));
        Ok(revision)
    }

    /// A volume that is not being deleted and has the requested version, with its revision.
    pub(crate) fn usable_volume(
        &self,
        tenant: Option<&Name>,
        name: &Name,
        if_version: Option<u64>,
    ) -> Outcome<(VolumeRecord, Revision)> {
        let Versioned { record, revision } = self.model().volume(tenant, name)?.clone();
        refuse_other_version(record.title(), revision.0, if_version)?;
        match record.state {
            VolumeState::Online => Ok((record, revision)),
            _ => Err(ControlError::refused(format!(
                "volume '{name}' is being deleted; 'volume delete' finishes it"
            ))),
        }
    }

    /// Lets new clients attach a volume, with the size and mode of its record.
    pub(crate) fn publish(&self, volume: &VolumeRecord) {
        let size = weir_types::units::Size(volume.size_bytes);
        let export = Export {
            volume: volume.id,
            size_bytes: volume.size_bytes,
            read_only: volume.is_read_only,
            description: format!("volume {} of tenant {}, {size}", volume.name, volume.tenant),
        };
        self.exports.publish(volume.export_name(), export);
    }

    /// Records volumes whose files are in place, all or none.
    pub(crate) fn put_online(&self, records: &[VolumeRecord]) -> Outcome<()> {
        let mut transaction = Transaction::default();
        for record in records {
            transaction = transaction.put(keys::volume(record.id), record)?;
        }
        let revision = self.catalogue.commit(transaction)?;
        self.update(|model| records.iter().for_each(|record| model.put_volume(record.clone(), revision)));
        Ok(())
    }

    /// Records durably that a volume is deleted.
    pub(crate) fn mark_deleting(&self, record: &VolumeRecord) -> Outcome<VolumeRecord> {
        let key = keys::volume(record.id);
        let deleted_at = Some(record.deleted_at.unwrap_or_else(Timestamp::now));
        let deleting = VolumeRecord { state: VolumeState::Deleting, deleted_at, ..record.clone() };
        let Some(entry) = self.catalogue.get(&key)? else { return Ok(deleting) };
        let transaction = Transaction::freeing_space().compare(&key, entry.revision).put(&key, &deleting)?;
        let revision = self.catalogue.commit(transaction)?;
        self.update(|model| {
            if model.volumes.contains_key(&record.id) {
                model.put_volume(deleting.clone(), revision);
            }
        });
        Ok(deleting)
    }

    /// The file of a volume's epoch records.
    pub(crate) fn epoch_records(&self, volume: VolumeId) -> PathBuf {
        self.state.join(EPOCH_RECORDS_FOLDER).join(volume.to_string())
    }

    /// True if any extent of a volume has, or had, several replicas, even if the record lacks the newest
    /// replica.
    pub(crate) fn has_metadata(&self, volume: &VolumeRecord) -> bool {
        volume.placement.has_replicas() || self.epoch_records(volume.id).exists()
    }

    /// All volumes with replicas.
    pub(crate) fn resyncing_volumes(&self) -> Vec<VolumeRecord> {
        let model = self.model();
        let all = model.volumes.values().map(|volume| &volume.record);
        all.filter(|volume| volume.placement.has_replicas()).cloned().collect()
    }
}

impl Core {
    pub(crate) fn records(&self) -> Vec<VolumeRecord> {
        self.model().volumes.values().map(|volume| volume.record.clone()).collect()
    }
}

/// Folder of all epoch records in the state folder.
pub(crate) const EPOCH_RECORDS_FOLDER: &str = "epoch-records";
