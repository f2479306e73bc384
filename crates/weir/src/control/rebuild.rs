//! Filling an empty catalogue from the record copies that lie beside the volumes' extents.

use std::collections::BTreeMap;
use std::path::PathBuf;

use weir_types::{DriveId, Name, PolicyGroupId, VolumeId};

use super::catalogue::{Catalogue, Transaction};
use super::drives::{DRIVES_FILE, Drive};
use super::error::{ControlError, Outcome};
use super::records::{
    COPY_FORMAT, PolicyGroupRecord, RecordCopy, TenantRecord, VolumeRecord, VolumeState, keys,
};
use crate::store::Store;

/// What the copies say, taken together.
#[derive(Default)]
struct Findings {
    tenants: BTreeMap<Name, TenantRecord>,
    groups: BTreeMap<PolicyGroupId, PolicyGroupRecord>,
    volumes: BTreeMap<(Name, Name), VolumeRecord>,
    /// The folder in which each volume was found.
    folders: BTreeMap<VolumeId, PathBuf>,
}

/// Restores tenants, volumes, bindings and bound policy groups in one transaction.
///
/// # Errors
/// Refused if the catalogue has volumes; and if a drive is missing; invalid if a copy cannot be read or two contradict each other, with
/// the folder named. Nothing has changed then.
pub fn rebuild(drives: &BTreeMap<DriveId, Drive>, catalogue: &dyn Catalogue) -> Outcome<()> {
    let existing = catalogue.range(keys::VOLUMES)?.len();
    if existing > 0 {
        return Err(ControlError::refused(format!(
            "the catalogue has {existing} volumes and needs no rebuilding; start without --rebuild-catalogue"
        )));
    }
    let mut findings = Findings::default();
    for (drive, store) in stores(drives)? {
        for id in store.scan()?.volumes {
            let mut copy = read_copy(store, id)?;
            // A volume is where its files are.
            copy.volume.drive = drive;
            findings.found_in(id, store.folder(id))?;
            findings.add(copy)?;
        }
    }
    tracing::info!(
        tenants = findings.tenants.len(),
        policy_groups = findings.groups.len(),
        volumes = findings.volumes.len(),
        "rebuilding the catalogue"
    );
    catalogue.commit(findings.into_transaction()?)?;
    Ok(())
}

/// The stores of all drives.
fn stores(drives: &BTreeMap<DriveId, Drive>) -> Outcome<Vec<(DriveId, &Store)>> {
    drives.iter().map(|(id, drive)| store_of(*id, drive)).collect()
}

fn store_of(id: DriveId, drive: &Drive) -> Outcome<(DriveId, &Store)> {
    match &drive.store {
        Ok(store) => Ok((id, store)),
        Err(_) => Err(ControlError::refused(format!(
            "{}; its volumes would be missing from the catalogue: bring it back, or remove it from {DRIVES_FILE} \
             in the state folder to rebuild without it",
            drive.unavailable()
        ))),
    }
}

fn read_copy(store: &Store, id: VolumeId) -> Outcome<RecordCopy> {
    let unusable = |why: String| {
        let folder = store.folder(id);
        ControlError::invalid(format!(
            "the record copy in {} cannot be used: {why}; move the folder away to rebuild without it",
            folder.display()
        ))
    };
    let content = store.read_record(id)?.ok_or_else(|| unusable("it is missing".to_owned()))?;
    let copy: RecordCopy = serde_json::from_slice(&content).map_err(|error| unusable(error.to_string()))?;
    if copy.format != COPY_FORMAT {
        return Err(unusable(format!("it has format {}, not {COPY_FORMAT}", copy.format)));
    }
    if copy.volume.id != id {
        return Err(unusable(format!("it is of volume {}", copy.volume.id)));
    }
    Ok(copy)
}

impl Findings {
    fn found_in(&mut self, id: VolumeId, folder: PathBuf) -> Outcome<()> {
        let shown = folder.display().to_string();
        let Some(other) = self.folders.insert(id, folder) else { return Ok(()) };
        let other = other.display();
        Err(ControlError::invalid(format!(
            "volume {id} lies on two drives, in {other} and in {shown}; move one folder away to rebuild"
        )))
    }

    fn add(&mut self, copy: RecordCopy) -> Outcome<()> {
        self.tenants.insert(copy.tenant.name.clone(), copy.tenant);
        for group in copy.policy_group.into_iter().chain(copy.other_groups) {
            let newest = self.groups.entry(group.id).or_insert_with(|| group.clone());
            if group.generation > newest.generation {
                *newest = group;
            }
        }
        // The files are whole, whatever the record was about to become.
        let volume = VolumeRecord { state: VolumeState::Online, deleted_at: None, ..copy.volume };
        let id = volume.id;
        let name = (volume.tenant.clone(), volume.name.clone());
        match self.volumes.insert(name, volume) {
            None => Ok(()),
            Some(other) => Err(ControlError::invalid(format!(
                "the volumes {} and {id} are both named '{}' in tenant '{}'; move one folder away to rebuild",
                other.id, other.name, other.tenant
            ))),
        }
    }

    fn into_transaction(self) -> Outcome<Transaction> {
        let mut transaction = Transaction::default();
        let highest = self.groups.values().map(|group| group.number).max();
        for tenant in self.tenants.values() {
            transaction = transaction.put(keys::tenant(&tenant.name), tenant)?;
        }
        for group in self.groups.values() {
            transaction = transaction.put(keys::policy_group(group.id), group)?;
        }
        for volume in self.volumes.values() {
            transaction = transaction.put(keys::volume(volume.id), volume)?;
        }
        if let Some(highest) = highest {
            transaction = transaction.put(keys::POLICY_GROUP_NUMBER, &highest)?;
        }
        Ok(transaction)
    }
}
