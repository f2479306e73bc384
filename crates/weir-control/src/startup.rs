//! Startup of control: finishing or undoing interrupted changes after a crash, then serving every volume.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Instant;

use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;
use weir_engine_interface::ExportTable;
use weir_store::Store;
use weir_store::format::{self, FormatRecord};
use weir_types::name::DEFAULT_TENANT;
use weir_types::{DriveId, Name, VolumeId};

use crate::alarms::Alarms;
use crate::background::load_policies;
use crate::catalogue::{Catalogue, Guarded, Revision, SqliteCatalogue, Transaction, obstacle};
use crate::configuration::ControlConfig;
use crate::control::Control;
use crate::core::Core;
use crate::core::locks::Locks;
use crate::core::record_backups::RecordBackups;
use crate::core::shared::Shared;
use crate::core::snapshots_in_progress::SnapshotsInProgress;
use crate::engine::Engine;
use crate::error::{ControlError, Outcome};
use crate::model::{Drive, Model, Versioned};
use crate::records::{AttachmentRecord, NodeRecord, TenantRecord, VolumeRecord, VolumeState, keys};
use crate::{drive_records, drives, rebuild};

/// Name of the catalogue in the state folder.
const CATALOGUE_FILE: &str = "catalogue.sqlite";

/// Opens the catalogue. A damaged catalogue stops the start, unless a rebuild is requested: then it is set
/// aside.
fn open_catalogue(state: &Path, rebuild: bool) -> Outcome<SqliteCatalogue> {
    let path = state.join(CATALOGUE_FILE);
    let error = match SqliteCatalogue::open(&path) {
        Ok(catalogue) => return Ok(catalogue),
        Err(error) => error,
    };
    let shown = path.display();
    if let Some(obstacle) = obstacle(&path, &error) {
        let remedy = obstacle.explain(state);
        return Err(ControlError::internal(format!(
            "cannot open {shown}: {error}; {remedy}, then start again"
        )));
    }
    if !rebuild {
        return Err(ControlError::internal(format!(
            "cannot open {shown}: {error}; 'weir serve --rebuild-catalogue' rebuilds it from the volumes' record backups"
        )));
    }
    let suffix = format!("damaged-{}", Timestamp::now().as_second());
    for name in ["catalogue.sqlite", "catalogue.sqlite-wal", "catalogue.sqlite-shm"] {
        // A missing file need not be set aside.
        let _ = std::fs::rename(state.join(name), state.join(format!("{name}.{suffix}")));
    }
    tracing::warn!(%error, "the damaged catalogue was set aside with the suffix .{suffix}");
    Ok(SqliteCatalogue::open(&path)?)
}

/// Refuses a catalogue that needs a newer reader before any of it is used. Otherwise records the lowest
/// reader version from now on.
fn settle_format(catalogue: &dyn Catalogue) -> Outcome<()> {
    let entry = catalogue.get(keys::FORMAT)?;
    if let Some(entry) = &entry {
        let least = entry.value["minimum_reader"].as_u64().and_then(|least| u32::try_from(least).ok());
        let least = least.unwrap_or(u32::MAX);
        format::refuse_newer(least).map_err(|why| {
            ControlError::refused(format!("the catalogue cannot be used, and nothing was changed: {why}"))
        })?;
        if least == format::MINIMUM_READER {
            return Ok(());
        }
    }
    let revision = entry.map_or(Revision::ABSENT, |entry| entry.revision);
    let format = FormatRecord::current();
    // A start needs no free space.
    let said = Transaction::freeing_space().compare(keys::FORMAT, revision).put(keys::FORMAT, &format)?;
    catalogue.commit(said)?;
    Ok(())
}

fn node_identity(catalogue: &dyn Catalogue) -> Outcome<uuid::Uuid> {
    if let Some(entry) = catalogue.get(keys::NODE)? {
        return Ok(entry.decode::<NodeRecord>()?.id);
    }
    let node = NodeRecord { id: uuid::Uuid::new_v4() };
    catalogue.commit(Transaction::default().compare(keys::NODE, Revision::ABSENT).put(keys::NODE, &node)?)?;
    Ok(node.id)
}

/// Reads all records except the drives, which are open already. Creates the default tenant if there is none.
///
/// Returns the model, and the volumes whose creation or deletion was interrupted: their names are free.
fn load(catalogue: &dyn Catalogue, drives: BTreeMap<DriveId, Drive>) -> Outcome<(Model, Vec<VolumeRecord>)> {
    make_default_tenant(catalogue)?;
    let mut model = Model::default();
    model.drives = drives;
    for_each(catalogue, keys::TENANTS, |record, revision| model.put_tenant(record, revision))?;
    for_each(catalogue, keys::POLICY_GROUPS, |record, revision| model.put_group(record, revision))?;
    for_each(catalogue, keys::ATTACHMENTS, |record: AttachmentRecord, revision| {
        _ = model.attachments.insert(record.id, Versioned { record, revision });
    })?;
    for_each(catalogue, keys::TEMPLATES, |record, revision| model.templates.put(record, revision))?;
    load_policies(catalogue, &mut model)?;
    let mut interrupted = Vec::new();
    for_each(catalogue, keys::VOLUMES, |mut record: VolumeRecord, revision| {
        // No part of this daemon uses positions of drives yet.
        record.placement = record.placement.compacted();
        match record.state {
            VolumeState::Online => model.put_volume(record, revision),
            VolumeState::Creating | VolumeState::Deleting => interrupted.push(record),
        }
    })?;
    model.name_snapshots();
    Ok((model, interrupted))
}

fn for_each<T: DeserializeOwned + Serialize>(
    catalogue: &dyn Catalogue,
    prefix: &str,
    mut put: impl FnMut(T, Revision),
) -> Outcome<()> {
    for entry in catalogue.range(prefix)? {
        put(entry.decode()?, entry.revision);
    }
    Ok(())
}

fn make_default_tenant(catalogue: &dyn Catalogue) -> Outcome<()> {
    let name = Name::new(DEFAULT_TENANT).map_err(|error| ControlError::internal(error.to_string()))?;
    let key = keys::tenant(&name);
    if catalogue.get(&key)?.is_none() {
        let record = TenantRecord::new(name, Timestamp::now());
        catalogue.commit(Transaction::default().compare(&key, Revision::ABSENT).put(&key, &record)?)?;
    }
    Ok(())
}

impl Control {
    /// Opens the catalogue, repairs the remains of a crash, and serves all volumes.
    ///
    /// # Errors
    /// If the drive or the catalogue cannot be used, or if a requested rebuild would destroy something. A
    /// volume that cannot be served is an alarm and not an error.
    pub fn start(
        config: &ControlConfig,
        engine: Arc<dyn Engine>,
        exports: Arc<ExportTable>,
    ) -> Outcome<Arc<Control>> {
        let catalogue = open_catalogue(&config.state, config.rebuild_catalogue)?;
        settle_format(&catalogue)?;
        drive_records::restore_lost(&config.state, &catalogue)?;
        let node = node_identity(&catalogue)?;
        let drives = drives::open_all(&config.state, &catalogue, node, config.drives.is_empty())?;
        if config.rebuild_catalogue {
            rebuild::rebuild(&drives, &catalogue)?;
        }
        let (mut model, interrupted) = load(&catalogue, drives)?;
        model.zone = config.zone.clone();
        let guarded = Guarded::new(catalogue, config.state.join(CATALOGUE_FILE));
        let core = core_of(config, node, guarded, model, (engine, exports));
        let control = Arc::new(Control::assemble(core, config));
        control.core.stores().iter().for_each(|(drive, store)| control.figures.note_space(*drive, store));
        control.drives.add_configured_drives(&config.drives);
        control.credits.restore_credits();
        control.drives.report_drives();
        control.space.set_space_aside();
        control.background.put_background_in_effect()?;
        control.scrubs.load_scrubs()?;
        control.serving.serve_all();
        control.attachments.take_over_all();
        control.moves.begin_all_moves();
        control.serving.resume_reclaims(&interrupted)?;
        let alarms =
            control.pools.over_commit_alarms().into_iter().chain(control.measurements.measurement_alarms());
        alarms.for_each(|alarm| tracing::warn!("{}", alarm.message));
        for (drive, store) in control.core.stores() {
            control.report_unknown_folders(drive, &store)?;
        }
        if config.measure_default {
            control.measurements.measure_fresh_default();
        }
        Ok(control)
    }

    /// Raises an alarm for folders on a drive that the catalogue does not know there. They may be volumes of
    /// a lost catalogue, so they are never removed.
    fn report_unknown_folders(&self, drive: DriveId, store: &Store) -> Outcome<()> {
        let scan = store.scan()?;
        let mut known: BTreeSet<VolumeId> = self
            .core
            .records()
            .into_iter()
            .filter(|volume| volume.placement.names(drive))
            .map(|v| v.id)
            .collect();
        // A deleted volume's folder may still have to be moved.
        known.extend(self.core.model().reclaims_on(drive).map(|(id, _)| id));
        let unknown: Vec<_> = scan.volumes.iter().filter(|id| !known.contains(id)).collect();
        if let Some(first) = unknown.first() {
            self.core.alarms.raise(format!(
                "{} volume folders on {} are not in the catalogue, such as {first}; \
                 if the catalogue was lost, stop the daemon, remove the new catalogue.sqlite and start with --rebuild-catalogue",
                unknown.len(),
                store.drive().display()
            ));
        }
        if let Some(stranger) = scan.strangers.first() {
            tracing::warn!(name = stranger, "something on the drive is not a volume's folder; left alone");
        }
        Ok(())
    }
}

fn core_of(
    config: &ControlConfig,
    node: uuid::Uuid,
    catalogue: Guarded<SqliteCatalogue>,
    model: Model,
    (engine, exports): (Arc<dyn Engine>, Arc<ExportTable>),
) -> Arc<Core> {
    Arc::new_cyclic(|myself| Core {
        state: config.state.clone(),
        node,
        started: Instant::now(),
        catalogue: Box::new(catalogue),
        engine,
        exports,
        myself: Weak::clone(myself),
        locks: Locks::default(),
        model: Shared::new(model),
        record_backups: RecordBackups::default(),
        snapshots_in_progress: SnapshotsInProgress::default(),
        alarms: Alarms::default(),
        classes: config.classes,
    })
}
