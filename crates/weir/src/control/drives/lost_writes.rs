//! Drives on which writes of an earlier daemon were lost.
//!
//! At a start, and when a drive comes back, everything that was written there before is made durable. If that fails, nobody
//! knows which acknowledged writes are lost, and the system says so once: the next sync succeeds. So it is recorded, and the
//! drive is missing over restarts too, until somebody removes it or accepts it as it is.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use weir_types::{DriveId, Name, VolumeId};

use super::super::Control;
use super::super::catalogue::{Catalogue, Transaction};
use super::super::error::{ControlError, Outcome};
use super::super::model::Model;
use super::super::moves::has_everything;
use super::super::records::{DriveRecord, VolumeRecord, keys};
use super::{DriveView, open_settled};
use crate::store::{Store, extent_count};

/// That writes to a drive were lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostWrites {
    /// What the system said.
    pub message: String,
    /// When it was found.
    pub found_at: Timestamp,
}

/// Refuses a drive that writes were lost on.
///
/// # Errors
/// Why it is missing, in words.
pub(super) fn refuse(record: &DriveRecord) -> Result<(), String> {
    match &record.lost_writes {
        None => Ok(()),
        Some(lost) => Err(explain(lost)),
    }
}

fn explain(lost: &LostWrites) -> String {
    let LostWrites { message, found_at } = lost;
    format!("acknowledged writes to it may be lost, which was found at {found_at}: {message}")
}

/// Records that writes to a drive were lost; answers why it is missing, in words.
pub(super) fn record(
    catalogue: &dyn Catalogue,
    record: &mut DriveRecord,
    revision: &mut u64,
    message: String,
) -> String {
    let lost = LostWrites { message, found_at: Timestamp::now() };
    let why = explain(&lost);
    record.lost_writes = Some(lost);
    match note(catalogue, record, *revision) {
        Ok(now) => *revision = now,
        Err(error) => tracing::error!(
            drive = %record.name, %error,
            "that writes to the drive may be lost could not be recorded: the next start will not know it"
        ),
    }
    why
}

fn note(catalogue: &dyn Catalogue, record: &DriveRecord, revision: u64) -> Outcome<u64> {
    let key = keys::drive(record.id);
    Ok(catalogue.commit(Transaction::default().compare(&key, revision).put(&key, record)?)?)
}

/// What brings a missing drive back.
pub(super) fn remedy(record: &DriveRecord) -> String {
    match (&record.lost_writes, &record.name) {
        (None, _) => "bring it back, and it is used again".to_owned(),
        (Some(_), name) => format!(
            "'weir drive remove {name}' has its replicas made elsewhere; 'weir drive accept {name}' uses it as it is, and \
             makes those replicas anew that others stand in for"
        ),
    }
}

impl Control {
    /// Uses a drive again that writes were lost on. Replicas there are made anew if others have everything; what nobody else
    /// has is used as it is.
    ///
    /// # Errors
    /// Not found if there is none of that name; refused if no writes to it were lost, or it still cannot be used.
    pub fn accept_drive(&self, name: &Name) -> Outcome<DriveView> {
        let id = self.accept_losses(name)?;
        self.take_drive_back(id);
        self.drive(name)
    }

    fn accept_losses(&self, name: &Name) -> Outcome<DriveId> {
        let mut change = self.begin_drive_change()?;
        let (mut record, mut revision) = {
            let model = self.model();
            let drive = model.drive(name)?;
            (drive.record.clone(), drive.revision)
        };
        if record.lost_writes.is_none() {
            return Err(ControlError::refused(format!(
                "no writes to drive '{name}' are known to be lost, so there is nothing to accept"
            )));
        }
        let places = (self.state.as_path(), &*self.catalogue);
        let accepted = change.beside(|| {
            let store = open_settled(places, self.node, &mut record, &mut revision);
            let store = store.map_err(|why| ControlError::refused(format!("drive '{name}': {why}")))?;
            self.forget_replicas(&record, &store)
        });
        let accepted = accepted.and_then(|()| {
            let clean = DriveRecord { lost_writes: None, ..record.clone() };
            revision = note(&*self.catalogue, &clean, revision)?;
            record = clean;
            Ok(record.id)
        });
        self.update(|model| {
            if let Some(drive) = model.drives.get_mut(&record.id) {
                (drive.record, drive.revision) = (record.clone(), revision);
            }
        });
        accepted
    }

    /// Has replicas lack everything that others stand in for: those on the drive, and those behind a write journal on it.
    /// One on the drive that is behind a journal elsewhere keeps what it has: what is not known to be durable is still in the
    /// journal.
    fn forget_replicas(&self, drive: &DriveRecord, store: &Store) -> Outcome<()> {
        let copied: Vec<(VolumeId, Vec<Replica>)> = {
            let model = self.model();
            let all = model.volumes.values().map(|volume| &volume.record);
            let copied = all.filter(|volume| volume.placement.has_copies());
            copied.map(|volume| (volume.id, replaceable(&model, volume))).collect()
        };
        for (volume, replicas) in copied {
            let here = replicas.iter().filter(|(_, (_, home))| *home == drive.id);
            store.forget_metadata(volume, here.map(|(extent, _)| *extent))?;
            store.forget_journaled_metadata(
                volume,
                replicas.iter().map(|(extent, (slot, _))| (*extent, *slot)),
            )?;
        }
        Ok(())
    }
}

/// A replica of an extent: the extent, its number and its drive.
type Replica = (u32, (usize, DriveId));

/// The replicas of a volume that others stand in for.
fn replaceable(model: &Model, volume: &VolumeRecord) -> Vec<Replica> {
    let is_good = has_everything(model, volume);
    let replicas = |extent: u64| volume.placement.copies_of(extent).map(move |copy| (extent as u32, copy));
    let all = (0..extent_count(volume.size_bytes)).flat_map(replicas);
    let others_have = |(extent, (slot, _)): &Replica| {
        let mut others = volume.placement.copies_of((*extent).into()).filter(|(other, _)| other != slot);
        others.any(|other| is_good(*extent, other))
    };
    all.filter(others_have).collect()
}
