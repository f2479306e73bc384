//! Pools: drives that are shared as one, how they are used, and which floors are admitted on them.
//!
//! At present each drive is a pool of its own, by its name; how it is used is recorded with the drive.

use std::collections::BTreeMap;

use weir_types::bounds::QUEUE_TARGET_MAX;
use weir_types::emulation::Capacity;
use weir_types::{DriveId, Name};

use super::Control;
use super::alarms::{AlarmSource, StandingAlarm};
use super::bounds::{OVER_COMMIT_PERCENT, RESERVE_PERCENT};
use super::catalogue::Transaction;
use super::error::{ControlError, Outcome};
use super::ledger::{Amount, Claim, Ledger, Measure};
use super::model::{Model, list_names};
use super::outlook::{Outlook, Proposal};
use super::records::{DriveRecord, PoolSettings, VolumeRecord, VolumeState, keys};
use crate::dataplane::PoolDepth;

/// What should become different about a pool; what is `None` stays.
#[derive(Clone, Copy, Debug, Default)]
pub struct ModifyPool {
    /// How much of the capacity floors and the reserve may be together, in percent.
    pub over_commit_percent: Option<u32>,
    /// The part of the capacity that is kept for background work, in percent.
    pub reserve_percent: Option<u32>,
    /// Most operations to keep in flight, or as many as trials find while volumes compete.
    pub queue_target: Option<Option<u32>>,
    /// Record it although floors are bound that are not there then.
    pub force: bool,
}

/// A pool as it is shown.
#[derive(Clone, Debug)]
pub struct PoolView {
    /// Its name.
    pub name: Name,
    /// Its drives.
    pub drives: Vec<DriveRecord>,
    /// How it is used.
    pub settings: PoolSettings,
    /// What is claimed of it.
    pub ledger: Ledger,
    /// How many operations it keeps in flight; `None` before the first volume is opened there.
    pub depth: Option<PoolDepth>,
}

impl PoolView {
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
    name: &'a Name,
    drives: Vec<&'a DriveRecord>,
    settings: PoolSettings,
}

impl<'a> Pool<'a> {
    fn of(drive: &'a DriveRecord) -> Pool<'a> {
        Pool { name: &drive.name, drives: vec![drive], settings: drive.pool }
    }

    /// What its drives deliver together, if that is known of all of them.
    fn capacity(&self) -> Option<Amount> {
        self.drives.iter().try_fold(Amount::default(), |sum, drive| Some(sum.plus(capacity(drive)?)))
    }

    fn holds(&self, volume: &VolumeRecord) -> bool {
        // Nobody can use a volume any more that is being removed.
        volume.state != VolumeState::Deleting && self.drives.iter().any(|drive| drive.id == volume.drive)
    }

    fn ledger(&self, outlook: Outlook<'_>) -> Ledger {
        let settings = outlook.settings(self.name, self.settings);
        let measure = Measure {
            capacity: self.capacity(),
            over_commit_percent: settings.over_commit_percent,
            reserve_percent: settings.reserve_percent,
        };
        let volumes = outlook.volumes().filter(|volume| self.holds(volume) && outlook.may_claim(volume));
        // What they occupy only matters to adaptive policies, which have no floors.
        Ledger::new(measure, volumes.map(|volume| (volume.tenant.clone(), outlook.levels(volume, 0))))
    }
}

/// What a drive delivers. Of one that is not emulated it is not known.
fn capacity(drive: &DriveRecord) -> Option<Amount> {
    let Capacity { iops, bytes_per_second } = drive.emulation?.capacity();
    Some(Amount { iops, bytes_per_second })
}

impl Model {
    /// All pools: that of the default drive first, then by name.
    pub(super) fn pools(&self) -> Vec<Pool<'_>> {
        let mut pools: Vec<_> = self.drives.values().map(|drive| Pool::of(&drive.record)).collect();
        let is_default = |pool: &Pool<'_>| pool.drives.iter().any(|drive| drive.id == DriveId::DEFAULT);
        pools.sort_by_key(|pool| (!is_default(pool), pool.name));
        pools
    }

    fn pool(&self, name: &Name) -> Outcome<Pool<'_>> {
        self.pools().into_iter().find(|pool| pool.name == name).ok_or_else(|| {
            let known = list_names(self.pools().iter().map(|pool| pool.name));
            ControlError::not_found(format!("unknown pool '{name}'; there are: {known}"))
        })
    }

    /// The pools of which a change would have floors claim more than there is, and more than now.
    pub(super) fn shortfalls(&self, proposal: &Proposal) -> Vec<Shortfall> {
        let shortfall = |pool: Pool<'_>| {
            let after = pool.ledger(Outlook::after(self, proposal));
            if after.fits() {
                return None;
            }
            let before = pool.ledger(Outlook::now(self));
            let is_admissible = after.is_admissible_after(&before);
            (!is_admissible).then(|| Shortfall { pool: pool.name.clone(), before, after })
        };
        self.pools().into_iter().filter_map(shortfall).collect()
    }
}

/// A pool of which floors would claim more than there is.
#[derive(Clone, Debug)]
pub(super) struct Shortfall {
    pool: Name,
    before: Ledger,
    after: Ledger,
}

impl Shortfall {
    /// Why that is refused.
    pub fn refusal(&self) -> ControlError {
        let remedy = self.after.remedy(self.before.bound());
        ControlError::refused(format!("{}; {remedy}", self.words("would be")))
    }

    /// Says so in the log, where somebody wants it all the same.
    pub fn log(&self) {
        tracing::warn!(pool = %self.pool, "forced: {}", self.words("is"));
    }

    fn words(&self, verb: &str) -> String {
        format!("pool '{}' {verb} over-committed: {}", self.pool, self.after.arithmetic(self.before.bound()))
    }

    /// The first claim that is not there any more, if those that were there before are entered first and all
    /// others in an order.
    pub fn first_beyond<K: Ord>(&self, order: impl Fn(&Claim) -> K) -> Option<&Claim> {
        let before: BTreeMap<_, _> =
            self.before.claims.iter().map(|claim| (&claim.scope, claim.rate)).collect();
        self.after.first_beyond(|claim| (before.get(&claim.scope) != Some(&claim.rate), order(claim)))
    }
}

impl PoolSettings {
    fn changed(self, request: ModifyPool) -> PoolSettings {
        PoolSettings {
            over_commit_percent: request.over_commit_percent.unwrap_or(self.over_commit_percent),
            reserve_percent: request.reserve_percent.unwrap_or(self.reserve_percent),
            queue_target: request.queue_target.unwrap_or(self.queue_target),
        }
    }

    /// Refuses values that are not accepted.
    pub(super) fn check(&self) -> Outcome<()> {
        let percents = [
            ("an over-commit", self.over_commit_percent, OVER_COMMIT_PERCENT),
            ("a reserve", self.reserve_percent, RESERVE_PERCENT),
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

impl Control {
    /// All pools: that of the default drive first, then by name.
    pub fn pools(&self) -> Vec<PoolView> {
        let model = self.model();
        model.pools().into_iter().map(|pool| self.pool_view(&model, pool)).collect()
    }

    /// One pool.
    ///
    /// # Errors
    /// Not found if there is none of that name.
    pub fn pool(&self, name: &Name) -> Outcome<PoolView> {
        let model = self.model();
        Ok(self.pool_view(&model, model.pool(name)?))
    }

    fn pool_view(&self, model: &Model, pool: Pool<'_>) -> PoolView {
        PoolView {
            name: pool.name.clone(),
            settings: pool.settings,
            ledger: pool.ledger(Outlook::now(model)),
            depth: pool.drives.iter().find_map(|drive| self.data_plane.depth(drive.id)),
            drives: pool.drives.into_iter().cloned().collect(),
        }
    }

    /// Changes how a pool is used; it holds from the answer on.
    ///
    /// # Errors
    /// Not found if there is none of that name; invalid for values that are not accepted; refused if floors
    /// are bound that are not there then, unless it is forced.
    pub fn modify_pool(&self, name: &Name, request: ModifyPool) -> Outcome<PoolView> {
        let _change = self.begin_change();
        let (old, drives) = {
            let model = self.model();
            let pool = model.pool(name)?;
            (pool.settings, pool.drives.iter().map(|drive| drive.id).collect::<Vec<_>>())
        };
        let new = old.changed(request);
        new.check()?;
        if new != old {
            self.admit(&Proposal::pool(name, new), request.force)?;
            self.save_pool(&drives, new)?;
            drives.iter().for_each(|drive| self.data_plane.set_queue_target(*drive, new.queue_target));
        }
        self.pool(name)
    }

    /// Writes with its drives how a pool is used.
    fn save_pool(&self, drives: &[DriveId], settings: PoolSettings) -> Outcome<()> {
        let changed: Vec<(DriveRecord, u64)> = {
            let model = self.model();
            let drives = drives.iter().filter_map(|id| model.drives.get(id));
            let change = |record: &DriveRecord| DriveRecord { pool: settings, ..record.clone() };
            drives.map(|drive| (change(&drive.record), drive.revision)).collect()
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
        self.bring_drive_copy_up_to_date();
        Ok(())
    }

    /// Refuses a change after which floors claim more of a pool than there is, unless it is forced or they
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

    /// An alarm for each pool of which floors claim more than there is. It follows from the records alone: it
    /// is there after a restart, and gone with its cause.
    pub(super) fn over_commit_alarms(&self) -> Vec<StandingAlarm> {
        let model = self.model();
        let ledgers = model.pools().into_iter().map(|pool| (pool.name, pool.ledger(Outlook::now(&model))));
        let alarm = |(name, ledger): (&Name, Ledger)| StandingAlarm {
            source: AlarmSource::Ledger,
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
