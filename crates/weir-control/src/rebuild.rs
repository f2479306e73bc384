//! Rebuild: filling an empty catalogue from the record backups beside the volumes' extents.

use std::collections::BTreeMap;
use std::path::PathBuf;

use weir_store::Store;
use weir_types::{DriveId, Name, PolicyGroupId, VolumeId};

use crate::catalogue::{Catalogue, Transaction};
use crate::drive_records::DRIVES_FILE;
use crate::error::{ControlError, Outcome};
use crate::model::Drive;
use crate::records::{
    Placement, PolicyGroupRecord, RecordBackup, TemplateRecord, TenantRecord, VolumeRecord, VolumeState, keys,
};

/// Content of all backups together.
#[derive(Default)]
struct Findings {
    tenants: BTreeMap<Name, TenantRecord>,
    groups: BTreeMap<PolicyGroupId, PolicyGroupRecord>,
    templates: BTreeMap<Name, TemplateRecord>,
    volumes: BTreeMap<(Name, String), VolumeRecord>,
}

/// A backup, and the folder that it was found in.
struct Found {
    drive: DriveId,
    folder: PathBuf,
    backup: RecordBackup,
}

/// Restores tenants, volumes, bindings, bound policy groups and templates in use in one transaction.
///
/// # Errors
/// Refused if the catalogue has volumes, or if a drive is missing. Invalid if a backup cannot be read or two
/// backups contradict each other; the message names the folder. After an error nothing has changed.
pub fn rebuild(drives: &BTreeMap<DriveId, Drive>, catalogue: &dyn Catalogue) -> Outcome<()> {
    let existing = catalogue.range(keys::VOLUMES)?.len();
    if existing > 0 {
        return Err(ControlError::refused(format!(
            "the catalogue has {existing} volumes and needs no rebuilding; start without --rebuild-catalogue"
        )));
    }
    let mut by_volume: BTreeMap<VolumeId, Vec<Found>> = BTreeMap::new();
    for (drive, store) in stores(drives)? {
        for id in store.scan()?.volumes {
            let (folder, backup) = (store.folder(id), read_backup(store, id)?);
            by_volume.entry(id).or_default().push(Found { drive, folder, backup });
        }
    }
    let mut findings = Findings::default();
    for (id, found) in by_volume {
        findings.add(settle(id, found)?)?;
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

fn read_backup(store: &Store, id: VolumeId) -> Outcome<RecordBackup> {
    let unusable = |why: String| {
        let folder = store.folder(id);
        ControlError::invalid(format!(
            "the record backup in {} cannot be used: {why}; move the folder away to rebuild without it",
            folder.display()
        ))
    };
    let content = store.read_record(id)?.ok_or_else(|| unusable("it is missing".to_owned()))?;
    let backup = RecordBackup::decode(&content).map_err(unusable)?;
    if backup.volume.id != id {
        return Err(unusable(format!("it is of volume {}", backup.volume.id)));
    }
    Ok(backup)
}

/// The newest of a volume's backups, checked against the drives that have one.
fn settle(id: VolumeId, mut found: Vec<Found>) -> Outcome<RecordBackup> {
    found.sort_by_key(|found| found.backup.volume.generation);
    let Found { drive, folder, mut backup } = found.pop().expect("a volume was found somewhere");
    let placement = &mut backup.volume.placement;
    // Replica metadata knows replicas by their slots, so a placement with several drives or replicas stays as
    // recorded.
    if placement.drives().len() == 1 && !placement.has_replicas() {
        if let Some(other) = found.pop() {
            let (folder, other) = (folder.display(), other.folder.display());
            return Err(ControlError::invalid(format!(
                "volume {id} lies on two drives, in {other} and in {folder}; move one folder away to rebuild"
            )));
        }
        // A volume on a single drive is where its files are.
        *placement = Placement::on(drive);
        return Ok(backup);
    }
    let is_found = |wanted: &DriveId| *wanted == drive || found.iter().any(|found| found.drive == *wanted);
    let is_covered = placement.is_covered(backup.volume.size_bytes, |wanted| is_found(&wanted));
    match placement.drives().iter().find(|wanted| !is_found(wanted)) {
        None => Ok(backup),
        // The missing replicas are reported when the volume is opened.
        Some(_) if placement.has_replicas() && is_covered => Ok(backup),
        Some(missing) => Err(ControlError::invalid(format!(
            "volume {id} in {} has extents on drive {missing} too, where nothing of it is; \
             bring its folder there back, or move the others away to rebuild without it",
            folder.display()
        ))),
    }
}

impl Findings {
    fn add(&mut self, backup: RecordBackup) -> Outcome<()> {
        self.tenants.insert(backup.tenant.name.clone(), backup.tenant);
        for group in backup.policy_group.into_iter().chain(backup.other_groups) {
            let newest = self.groups.entry(group.id).or_insert_with(|| group.clone());
            if group.generation > newest.generation {
                *newest = group;
            }
        }
        if let Some(template) = backup.template {
            let newest = self.templates.entry(template.name.clone()).or_insert_with(|| template.clone());
            if template.generation > newest.generation {
                *newest = template;
            }
        }
        // The files are whole in every recorded state.
        let volume = VolumeRecord { state: VolumeState::Online, deleted_at: None, ..backup.volume };
        let id = volume.id;
        let name = (volume.tenant.clone(), volume.export_name());
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
        for template in self.templates.values() {
            transaction = transaction.put(keys::template(&template.name), template)?;
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
