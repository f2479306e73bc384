//! Pools: drives that are shared as one, their settings, and the admission of floors.
//!
//! The drives of one class are a pool, named after the class. A drive of unknown class is a pool of its own,
//! under its own name. A pool's settings are recorded with each of its drives.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use weir_engine_interface::DriveQueueDepth;
use weir_store::DriveUsage;
use weir_types::{Class, DriveId, Name};

use crate::alarms::{ActiveAlarm, AlarmSource};
use crate::core::Core;
use crate::drive_records::DriveRecords;
use crate::drive_view::{DriveView, drive_view};
use crate::error::{ControlError, Outcome, refuse_other_version};
use crate::figures::{DatedUsage, Figures};
use crate::floor_admission::{Shortfall, ledger_of, shortfalls};
use crate::ledger::Ledger;
use crate::model::Model;
use crate::model::pools::{Pool, pool_named, pool_version, pools_in};
use crate::model::projected_state::{ProjectedState, Proposal};
use crate::records::PoolSettings;

/// Changes to a pool; a field that is `None` changes nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct ModifyPool {
    /// Maximum for floors and the reserve together, in percent of the capacity.
    pub over_commit_percent: Option<u32>,
    /// Part of the capacity that is kept for background work, in percent.
    pub reserve_percent: Option<u32>,
    /// Maximum provisioned size in percent of the pool's size; `Some(None)` means no maximum.
    pub over_provision_percent: Option<Option<u32>>,
    /// Maximum number of operations in flight on each drive; `Some(None)` lets trials find it while volumes
    /// compete.
    pub queue_target: Option<Option<u32>>,
    /// Whether to accept the change even if the pool then lacks claimed floors.
    pub force: bool,
    /// Version that the pool must have, or the change is refused.
    pub if_version: Option<u64>,
}

/// A pool as it is shown.
#[derive(Clone, Debug)]
pub struct PoolView {
    /// Its number: its position among all pools.
    pub number: usize,
    /// Its name.
    pub name: Name,
    /// Its class, if known.
    pub class: Option<Class>,
    /// Its drives, in the order in which they were added.
    pub drives: Vec<DriveView>,
    /// Its settings.
    pub settings: PoolSettings,
    /// Its version: that of its most recently changed drive.
    pub version: u64,
    /// True if the state folder lies on a filesystem of its drives.
    pub has_metadata: bool,
    /// The claims on it.
    pub ledger: Ledger,
    /// Number of operations that its first drive in use keeps in flight; `None` before the first volume is
    /// opened there.
    pub depth: Option<DriveQueueDepth>,
}

impl PoolView {
    /// Space on those of its drives that are present and do not drain.
    pub fn summed_usage(&self) -> DriveUsage {
        let staying = self.drives.iter().filter(|drive| !drive.record.is_draining);
        DriveUsage::together(staying.filter_map(|drive| drive.usage.as_ref().ok()))
    }

    /// Bytes that volumes may come to occupy on it.
    pub fn provisioned_bytes(&self) -> u64 {
        self.drives.iter().map(|drive| drive.provisioned_bytes).sum()
    }

    /// Number of its drives that are present.
    pub fn drives_online(&self) -> usize {
        self.drives.iter().filter(|drive| drive.usage.is_ok()).count()
    }

    /// Whether all floors can be met, with the arithmetic, in words.
    pub fn summary(&self) -> String {
        let arithmetic = || self.ledger.arithmetic(self.ledger.bound());
        match (self.ledger.measure.capacity, self.ledger.fits()) {
            (None, _) => "its capacity is not measured, so floors on it are not guaranteed".to_owned(),
            (Some(_), true) => format!("all floors can be met at once: {}", arithmetic()),
            (Some(_), false) => {
                format!("over-committed, so that not all floors can be met at once: {}", arithmetic())
            }
        }
    }
}

/// Operations on pools, and the admission of floors.
pub struct Pools {
    pub(crate) core: Arc<Core>,
    pub(crate) figures: Arc<Figures>,
    pub(crate) drive_records: Arc<DriveRecords>,
}

impl Pools {
    /// All pools, in the order in which their first drives were added.
    pub fn pools(&self) -> Vec<PoolView> {
        let usages = self.figures.known_usages();
        let state_filesystem = std::fs::metadata(&self.core.state).ok().map(|metadata| metadata.dev());
        let model = self.core.model();
        let pools = pools_in(&model).into_iter().enumerate();
        let spaces = (&usages, state_filesystem);
        pools.map(|(number, pool)| self.pool_view(&model, spaces, number, &pool)).collect()
    }

    /// One pool.
    ///
    /// # Errors
    /// Not found if no pool has that name.
    pub fn pool(&self, name: &Name) -> Outcome<PoolView> {
        pool_named(&self.core.model(), name)?;
        let found = self.pools().into_iter().find(|pool| pool.name == *name);
        found.ok_or_else(|| ControlError::not_found(format!("pool '{name}' is no more")))
    }

    fn pool_view(
        &self,
        model: &Model,
        (usages, state_filesystem): (&BTreeMap<DriveId, DatedUsage>, Option<u64>),
        number: usize,
        pool: &Pool<'_>,
    ) -> PoolView {
        let drives = pool.drives.iter().filter_map(|drive| model.drives.get(&drive.id));
        let is_of_state = |usage: &DriveUsage| Some(usage.filesystem) == state_filesystem;
        let mut online = pool.drives.iter().filter_map(|drive| usages.get(&drive.id)?.usage.as_ref().ok());
        PoolView {
            has_metadata: online.any(is_of_state),
            number,
            name: pool.name.clone(),
            class: pool.class,
            settings: pool.settings,
            version: pool_version(model, pool),
            ledger: ledger_of(pool, ProjectedState::now(model)),
            depth: pool.drives.iter().find_map(|drive| self.core.engine.depth(drive.id)),
            drives: drives.map(|drive| drive_view(model, drive, usages)).collect(),
        }
    }

    /// Changes the settings of a pool. The change applies before the call returns.
    ///
    /// # Errors
    /// Not found if no pool has that name. Invalid for values that are not accepted. Refused, unless forced,
    /// if the pool then lacks claimed floors. Conflict if the pool has another version than requested.
    pub fn modify_pool(&self, name: &Name, request: ModifyPool) -> Outcome<PoolView> {
        let _change = self.core.begin_change();
        let (settings, drives) = {
            let model = self.core.model();
            let pool = pool_named(&model, name)?;
            refuse_other_version(format!("pool '{name}'"), pool_version(&model, &pool), request.if_version)?;
            let drives = pool.drives.iter().map(|drive| (drive.id, changed(drive.pool, request)));
            let has_changes = pool.drives.iter().any(|drive| changed(drive.pool, request) != drive.pool);
            (changed(pool.settings, request), drives.filter(|_| has_changes).collect::<Vec<_>>())
        };
        settings.check()?;
        if !drives.is_empty() {
            self.admit(&Proposal::pool(name, settings), request.force)?;
            self.drive_records.save_pool(&drives)?;
            drives
                .iter()
                .for_each(|(drive, new)| self.core.engine.set_queue_target(*drive, new.queue_target));
        }
        self.pool(name)
    }

    /// Refuses a change after which floors claim more than a pool has, unless it is forced or the floors
    /// claim no more than before.
    pub(crate) fn admit(&self, proposal: &Proposal, force: bool) -> Outcome<()> {
        let shortfalls = shortfalls(&self.core.model(), proposal);
        match shortfalls.first().filter(|_| !force) {
            Some(shortfall) => Err(shortfall.refusal()),
            None => {
                shortfalls.iter().for_each(Shortfall::log);
                Ok(())
            }
        }
    }

    /// One alarm for each over-committed pool.
    ///
    /// The alarm follows from the records alone: it survives a restart and ends with its cause.
    pub(crate) fn over_commit_alarms(&self) -> Vec<ActiveAlarm> {
        let model = self.core.model();
        let pools = pools_in(&model);
        let ledgers = pools.iter().map(|pool| (&pool.name, ledger_of(pool, ProjectedState::now(&model))));
        let alarm = |(name, ledger): (&Name, Ledger)| ActiveAlarm {
            source: AlarmSource::Ledger,
            drive: None,
            volume: None,
            extent: None,
            message: format!(
                "pool '{name}' is over-committed: {}; not all floors on it are met when all ask at once",
                ledger.arithmetic(ledger.bound())
            ),
        };
        ledgers.filter(|(_, ledger)| !ledger.fits()).map(alarm).collect()
    }
}

/// The changed settings of a drive of the pool. The number of operations in flight stays each drive's own
/// unless the request sets it for all.
fn changed(settings: PoolSettings, request: ModifyPool) -> PoolSettings {
    PoolSettings {
        over_commit_percent: request.over_commit_percent.unwrap_or(settings.over_commit_percent),
        reserve_percent: request.reserve_percent.unwrap_or(settings.reserve_percent),
        over_provision_percent: request.over_provision_percent.unwrap_or(settings.over_provision_percent),
        queue_target: request.queue_target.unwrap_or(settings.queue_target),
    }
}
