//! The snapshots of a volume that is changed or deleted.

use weir_types::units::Size;

use crate::core::locks::Change;
use crate::error::{ControlError, Outcome, list_names};
use crate::records::{VolumeRecord, snapshot_of};
use crate::volumes::Volumes;

impl Volumes {
    /// Updates the volume name in the snapshots of a renamed volume.
    pub(crate) fn rename_snapshots(&self, change: &mut Change<'_>, volume: &VolumeRecord) -> Outcome<()> {
        let snapshots: Vec<VolumeRecord> = self.core.model().snapshots_of(volume.id).cloned().collect();
        let renamed = |old: &VolumeRecord| {
            let of = Some(snapshot_of(volume));
            VolumeRecord { snapshot: of, generation: old.generation + 1, ..old.clone() }
        };
        let all: Vec<VolumeRecord> = snapshots.iter().map(renamed).collect();
        if all.is_empty() {
            return Ok(());
        }
        self.core.put_online(&all)?;
        snapshots.iter().for_each(|old| self.core.exports.withdraw(&old.export_name()));
        let open = |record: &&VolumeRecord| self.core.model().open.contains_key(&record.id);
        all.iter().filter(open).for_each(|record| self.core.publish(record));
        self.core.write_record_backups(change.tickets(), &all);
        Ok(())
    }

    /// Refuses to shrink a volume below the size of one of its snapshots.
    pub(crate) fn refuse_below_snapshots(&self, volume: &VolumeRecord, size_bytes: u64) -> Outcome<()> {
        let model = self.core.model();
        let larger = || model.snapshots_of(volume.id).filter(|snapshot| snapshot.size_bytes > size_bytes);
        let Some(largest) = larger().map(|snapshot| snapshot.size_bytes).max() else { return Ok(()) };
        Err(ControlError::refused(format!(
            "volume '{}' had {} when these snapshots of it were made: {}; delete them first, or choose at least that",
            volume.name,
            Size(largest),
            list_names(larger().map(|snapshot| &snapshot.name))
        )))
    }

    /// Refuses to delete a volume that has snapshots.
    pub(crate) fn refuse_with_snapshots(&self, volume: &VolumeRecord) -> Outcome<()> {
        let names = list_names(self.core.model().snapshots_of(volume.id).map(|snapshot| &snapshot.name));
        if names.is_empty() {
            return Ok(());
        }
        Err(ControlError::refused(format!(
            "volume '{}' has snapshots: {names}; delete them first, or all together with --with-snapshots",
            volume.name
        )))
    }
}
