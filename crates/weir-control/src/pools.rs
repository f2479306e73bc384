//! Pools: drives that are shared as one, their settings, and the admission of floors.
//!
//! The drives of one class are a pool, named after the class. A drive of unknown class is a pool of its own,
//! under its own name. A pool's settings are recorded with each of its drives.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;

use weir_qos::{DriveModel, DriveRates};
use weir_types::bounds::QUEUE_TARGET_MAX;
use weir_types::emulation::Capacity;
use weir_types::{Class, DriveId, MeasuredDirection, Measurement, Name};

use super::alarms::{ActiveAlarm, AlarmSource};
use super::catalogue::Transaction;
use super::drives::DriveView;
use super::error::{ControlError, Outcome};
use super::ledger::{Amount, Claim, Ledger, Measure};
use super::model::{Model, list_names, refuse_other_version};
use super::projected_state::{ProjectedState, Proposal};
use super::records::{DriveRecord, PoolSettings, VolumeRecord, VolumeState, keys};
use super::{Control, DatedUsage};
use weir_engine::{DriveQueueDepth, DriveSpec};
use weir_store::DriveUsage;
use weir_types::control_bounds::{OVER_COMMIT_PERCENT, OVER_PROVISION_PERCENT, RESERVE_PERCENT};

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
    pub fn usage(&self) -> DriveUsage {
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

/// A pool in the records.
pub(super) struct Pool<'a> {
    pub name: Name,
    pub class: Option<Class>,
    /// At least one drive, in the order in which they were added.
    pub drives: Vec<&'a DriveRecord>,
    pub settings: PoolSettings,
}

impl<'a> Pool<'a> {
    fn of(drive: &'a DriveRecord) -> Pool<'a> {
        let name = drive.class.map_or_else(|| drive.name.clone(), name_of);
        Pool { name, class: drive.class, drives: vec![drive], settings: drive.pool }
    }

    /// The sum of its drives' capacity, if it is known for all of them.
    fn capacity(&self) -> Option<Amount> {
        self.drives.iter().try_fold(Amount::default(), |sum, drive| Some(sum.plus(capacity(drive)?)))
    }

    fn holds(&self, volume: &VolumeRecord) -> bool {
        // A volume that is being deleted cannot be used any more.
        let is_there = || self.drives.iter().any(|drive| volume.placement.names(drive.id));
        volume.state != VolumeState::Deleting && is_there()
    }

    fn ledger(&self, projected_state: ProjectedState<'_>) -> Ledger {
        let settings = projected_state.settings(&self.name, self.settings);
        let measure = Measure {
            capacity: self.capacity(),
            over_commit_percent: settings.over_commit_percent,
            reserve_percent: settings.reserve_percent,
        };
        let volumes = projected_state
            .volumes()
            .filter(|volume| self.holds(volume) && projected_state.may_claim(volume));
        // Used space only matters to adaptive policies, which have no floors.
        Ledger::new(measure, volumes.map(|volume| (volume.tenant.clone(), projected_state.levels(volume, 0))))
    }
}

/// The name of the pool of a class.
fn name_of(class: Class) -> Name {
    Name::new(class.to_string()).expect("the name of a class is a name")
}

/// A drive's capacity, from its emulation or else its measurement. The slower direction counts.
fn capacity(drive: &DriveRecord) -> Option<Amount> {
    if let Some(emulation) = drive.emulation {
        let Capacity { iops, bytes_per_second } = emulation.capacity();
        return Some(Amount { iops, bytes_per_second });
    }
    let Measurement { read, write, .. } = drive.measurement()?;
    Some(Amount {
        iops: read.iops.min(write.iops),
        bytes_per_second: read.bytes_per_second.min(write.bytes_per_second),
    })
}

impl DriveRecord {
    /// The drive's settings for the data plane.
    pub(super) fn spec(&self) -> DriveSpec {
        let rates = |direction: MeasuredDirection| DriveRates {
            iops: direction.iops,
            bytes_per_second: direction.bytes_per_second,
        };
        let measured =
            self.measurement().map(|found| DriveModel { read: rates(found.read), write: rates(found.write) });
        let emulated = self.emulation.map(DriveModel::emulated);
        DriveSpec {
            id: self.id,
            emulation: self.emulation,
            model: emulated.or(measured).unwrap_or(DriveModel::UNKNOWN),
            queue_target: self.pool.queue_target,
        }
    }

    /// Relative cost of a read on this drive: first by class, then by measured latency.
    ///
    /// Latency counts on a logarithmic scale in steps of a factor of four, so that drives of one model share
    /// the reads.
    pub(super) fn read_cost(&self) -> u32 {
        let rank = self.class.map_or(Class::ALL.len(), |class| Class::High as usize - class as usize);
        let latency_ns = self.measurement().map_or(0, |found| found.read.latency_ns);
        let quarters = latency_ns.checked_ilog2().unwrap_or(0) / 2;
        rank as u32 * u64::BITS + quarters
    }
}

impl Model {
    /// All pools, in the order in which their first drives were added.
    pub(super) fn pools(&self) -> Vec<Pool<'_>> {
        let mut drives: Vec<_> = self.drives.values().map(|drive| &drive.record).collect();
        drives.sort_by_key(|drive| (drive.created_at, drive.id));
        let mut pools: Vec<Pool<'_>> = Vec::new();
        for drive in drives {
            let known = pools.iter_mut().find(|pool| pool.class.is_some() && pool.class == drive.class);
            match known {
                Some(pool) => pool.drives.push(drive),
                None => pools.push(Pool::of(drive)),
            }
        }
        pools
    }

    fn pool(&self, name: &Name) -> Outcome<Pool<'_>> {
        self.pools().into_iter().find(|pool| pool.name == *name).ok_or_else(|| {
            let known = list_names(self.pools().iter().map(|pool| &pool.name));
            ControlError::not_found(format!("unknown pool '{name}'; there are: {known}"))
        })
    }

    /// A drive's record with the settings of the pool that it joins.
    pub(super) fn joined(&self, mut drive: DriveRecord) -> DriveRecord {
        let is_other = |pool: &Pool<'_>| pool.drives.iter().any(|known| known.id != drive.id);
        let pool = self.pools().into_iter().find(|pool| pool.class.is_some() && pool.class == drive.class);
        if let Some(pool) = pool.filter(is_other) {
            // The number of operations in flight is each drive's own setting.
            drive.pool = PoolSettings { queue_target: drive.pool.queue_target, ..pool.settings };
        }
        drive
    }

    /// The pool that a drive is in.
    pub(super) fn pool_of(&self, drive: DriveId) -> Option<Pool<'_>> {
        self.pools().into_iter().find(|pool| pool.drives.iter().any(|known| known.id == drive))
    }

    /// The pools that a change would over-commit further.
    pub(super) fn shortfalls(&self, proposal: &Proposal) -> Vec<Shortfall> {
        let shortfall = |pool: Pool<'_>| {
            let after = pool.ledger(ProjectedState::after(self, proposal));
            if after.fits() {
                return None;
            }
            let before = pool.ledger(ProjectedState::now(self));
            let is_admissible = after.is_admissible_after(&before);
            (!is_admissible).then(|| Shortfall { pool: pool.name.clone(), before, after })
        };
        self.pools().into_iter().filter_map(shortfall).collect()
    }
}

/// A pool whose floors would claim more than the pool has.
#[derive(Clone, Debug)]
pub(super) struct Shortfall {
    pool: Name,
    before: Ledger,
    after: Ledger,
}

impl Shortfall {
    /// The refusal of the change.
    pub fn refusal(&self) -> ControlError {
        let remedy = self.after.remedy(self.before.bound());
        ControlError::refused(format!("{}; {remedy}", self.words("would be")))
    }

    /// Logs an over-commitment that was forced.
    pub fn log(&self) {
        tracing::warn!(pool = %self.pool, "forced: {}", self.words("is"));
    }

    fn words(&self, verb: &str) -> String {
        format!("pool '{}' {verb} over-committed: {}", self.pool, self.after.arithmetic(self.before.bound()))
    }

    /// The first claim that no longer fits, if unchanged claims are added first and all others in this order.
    pub fn first_beyond<K: Ord>(&self, order: impl Fn(&Claim) -> K) -> Option<&Claim> {
        let before: BTreeMap<_, _> =
            self.before.claims.iter().map(|claim| (&claim.scope, claim.rate)).collect();
        self.after.first_beyond(|claim| (before.get(&claim.scope) != Some(&claim.rate), order(claim)))
    }
}

impl PoolSettings {
    /// The changed settings of a drive of the pool. The number of operations in flight stays each drive's own
    /// unless the request sets it for all.
    fn changed(self, request: ModifyPool) -> PoolSettings {
        PoolSettings {
            over_commit_percent: request.over_commit_percent.unwrap_or(self.over_commit_percent),
            reserve_percent: request.reserve_percent.unwrap_or(self.reserve_percent),
            over_provision_percent: request.over_provision_percent.unwrap_or(self.over_provision_percent),
            queue_target: request.queue_target.unwrap_or(self.queue_target),
        }
    }

    /// Refuses values that are not accepted.
    pub(super) fn check(&self) -> Outcome<()> {
        let over_provision = self.over_provision_percent.unwrap_or(*OVER_PROVISION_PERCENT.end());
        let percents = [
            ("an over-commit", self.over_commit_percent, OVER_COMMIT_PERCENT),
            ("a reserve", self.reserve_percent, RESERVE_PERCENT),
            ("an over-provisioning", over_provision, OVER_PROVISION_PERCENT),
        ];
        for (what, percent, range) in percents {
            if !range.contains(&percent) {
                let (least, most) = (range.start(), range.end());
                return Err(ControlError::invalid(format!(
                    "{what} of {percent}% is not accepted; {least}% to {most}% is"
                )));
            }
        }
        match self.queue_target {
            Some(target) if !(1..=QUEUE_TARGET_MAX).contains(&target) => Err(ControlError::invalid(format!(
                "a queue target of {target} operations is not accepted; 1 to {QUEUE_TARGET_MAX} and 'auto' \
                 are"
            ))),
            _ => Ok(()),
        }
    }
}

impl Model {
    /// The version of a pool: that of its most recently changed drive.
    fn pool_version(&self, pool: &Pool<'_>) -> u64 {
        let versions = pool.drives.iter().filter_map(|drive| self.drives.get(&drive.id));
        versions.map(|drive| drive.revision).max().unwrap_or(0)
    }
}

impl Control {
    /// All pools, in the order in which their first drives were added.
    pub fn pools(&self) -> Vec<PoolView> {
        let usages = self.known_usages();
        let state_filesystem = std::fs::metadata(&self.state).ok().map(|metadata| metadata.dev());
        let model = self.model();
        let pools = model.pools().into_iter().enumerate();
        let spaces = (&usages, state_filesystem);
        pools.map(|(number, pool)| self.pool_view(&model, spaces, number, &pool)).collect()
    }

    /// One pool.
    ///
    /// # Errors
    /// Not found if no pool has that name.
    pub fn pool(&self, name: &Name) -> Outcome<PoolView> {
        self.model().pool(name)?;
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
            version: model.pool_version(pool),
            ledger: pool.ledger(ProjectedState::now(model)),
            depth: pool.drives.iter().find_map(|drive| self.data_plane.depth(drive.id)),
            drives: drives.map(|drive| model.drive_view(drive, usages)).collect(),
        }
    }

    /// Changes the settings of a pool. The change applies before the call returns.
    ///
    /// # Errors
    /// Not found if no pool has that name. Invalid for values that are not accepted. Refused, unless forced,
    /// if the pool then lacks claimed floors. Conflict if the pool has another version than requested.
    pub fn modify_pool(&self, name: &Name, request: ModifyPool) -> Outcome<PoolView> {
        let _change = self.begin_change();
        let (settings, drives) = {
            let model = self.model();
            let pool = model.pool(name)?;
            refuse_other_version(format!("pool '{name}'"), model.pool_version(&pool), request.if_version)?;
            let drives = pool.drives.iter().map(|drive| (drive.id, drive.pool.changed(request)));
            let has_changes = pool.drives.iter().any(|drive| drive.pool.changed(request) != drive.pool);
            (pool.settings.changed(request), drives.filter(|_| has_changes).collect::<Vec<_>>())
        };
        settings.check()?;
        if !drives.is_empty() {
            self.admit(&Proposal::pool(name, settings), request.force)?;
            self.save_pool(&drives)?;
            drives.iter().for_each(|(drive, new)| self.data_plane.set_queue_target(*drive, new.queue_target));
        }
        self.pool(name)
    }

    /// Writes a pool's settings with its drives.
    fn save_pool(&self, drives: &[(DriveId, PoolSettings)]) -> Outcome<()> {
        let changed: Vec<(DriveRecord, u64)> = {
            let model = self.model();
            let change = |(id, pool): &(DriveId, PoolSettings)| {
                let drive = model.drives.get(id)?;
                Some((DriveRecord { pool: *pool, ..drive.record.clone() }, drive.revision))
            };
            drives.iter().filter_map(change).collect()
        };
        let mut transaction = Transaction::default();
        for (record, revision) in &changed {
            let key = keys::drive(record.id);
            transaction = transaction.compare(&key, *revision).put(&key, record)?;
        }
        let revision = self.catalogue.commit(transaction)?;
        self.update(|model| {
            for (record, _) in changed {
                if let Some(drive) = model.drives.get_mut(&record.id) {
                    (drive.record, drive.revision) = (record, revision);
                }
            }
        });
        self.update_drive_list_backup();
        Ok(())
    }

    /// Refuses a change after which floors claim more than a pool has, unless it is forced or the floors
    /// claim no more than before.
    pub(super) fn admit(&self, proposal: &Proposal, force: bool) -> Outcome<()> {
        let shortfalls = self.model().shortfalls(proposal);
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
    pub(super) fn over_commit_alarms(&self) -> Vec<ActiveAlarm> {
        let model = self.model();
        let pools = model.pools();
        let ledgers = pools.iter().map(|pool| (&pool.name, pool.ledger(ProjectedState::now(&model))));
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
