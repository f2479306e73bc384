//! Floor admission: whether pools have the floors that the policies of their volumes claim. It decides, from the model alone,
//! and changes nothing.

use std::collections::BTreeMap;

use weir_types::emulation::Capacity;
use weir_types::{Measurement, Name};

use crate::error::ControlError;
use crate::ledger::{Amount, Claim, Ledger, Measure};
use crate::model::Model;
use crate::model::pools::{Pool, pools_in};
use crate::model::projected_state::{ProjectedState, Proposal};
use crate::records::DriveRecord;

/// A pool whose floors would claim more than the pool has.
#[derive(Clone, Debug)]
pub(crate) struct Shortfall {
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

/// The pools that a change would over-commit further.
pub(crate) fn shortfalls(model: &Model, proposal: &Proposal) -> Vec<Shortfall> {
    let shortfall = |pool: Pool<'_>| {
        let after = ledger_of(&pool, ProjectedState::after(model, proposal));
        if after.fits() {
            return None;
        }
        let before = ledger_of(&pool, ProjectedState::now(model));
        let is_admissible = after.is_admissible_after(&before);
        (!is_admissible).then(|| Shortfall { pool: pool.name.clone(), before, after })
    };
    pools_in(model).into_iter().filter_map(shortfall).collect()
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

/// The sum of its drives' capacity, if it is known for all of them.
fn capacity_of(pool: &Pool<'_>) -> Option<Amount> {
    pool.drives.iter().try_fold(Amount::default(), |sum, drive| Some(sum.plus(capacity(drive)?)))
}

pub(crate) fn ledger_of(pool: &Pool<'_>, projected_state: ProjectedState<'_>) -> Ledger {
    let settings = projected_state.settings(&pool.name, pool.settings);
    let measure = Measure {
        capacity: capacity_of(pool),
        over_commit_percent: settings.over_commit_percent,
        reserve_percent: settings.reserve_percent,
    };
    let volumes =
        projected_state.volumes().filter(|volume| pool.holds(volume) && projected_state.may_claim(volume));
    // Used space only matters to adaptive policies, which have no floors.
    Ledger::new(measure, volumes.map(|volume| (volume.tenant.clone(), projected_state.levels(volume, 0))))
}
