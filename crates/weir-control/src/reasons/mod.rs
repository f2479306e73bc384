//! Reasons for latency: counters by cause, combined with the policies of a volume and its drive.
//!
//! [`decide`] names the cause from a [`Situation`] alone, and [`words`] describes it. This module builds the
//! situation from two samples of a volume, and has the limits and credits for metrics.

mod decide;
mod limits;
mod place;
mod proposal;
#[cfg(test)]
mod tests;
mod words;

use std::collections::BTreeSet;
use std::sync::Arc;

use weir_engine_interface::statistics::{BoundTotals, TimeByCause};
use weir_reactor::Clock;
use weir_types::{Name, VolumeId};

use crate::core::Core;
use crate::error::Outcome;
use crate::figures::Figures;
use crate::model::Model;
use crate::model::levels::levels_in_effect;
use crate::reasons::limits::{Namer, credits_by_scope};
use crate::records::VolumeRecord;
use crate::totals::Totals;

pub use decide::{Cause, Finding, Situation, decide};
pub use limits::{
    Binding, BoundLimit, BurstCredit, Credit, NamedGroup, NamedLimit, limit_name, rate_name, scope_name,
};
pub use place::{Neighbour, Place};
pub use proposal::{Change, NamedVolumes, Proposal, Sizes};
pub use words::{advice, summary};

/// Counters of one volume at one instant.
#[derive(Clone, Debug)]
pub struct VolumeLook {
    volume: VolumeId,
    /// Time of the sample, by the clock of statistics.
    at_ns: u64,
    totals: Totals,
    bounds: Vec<BoundTotals>,
    /// Volumes with requests under way on the same drive.
    active: BTreeSet<VolumeId>,
}

/// The cause that binds a volume, with the evidence.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// The volume's tenant.
    pub tenant: Name,
    /// Time of the explanation, by the clock of statistics, in nanoseconds.
    pub timestamp_ns: u64,
    /// The counters.
    pub situation: Situation,
    /// The conclusion.
    pub finding: Finding,
    /// The other volumes that share the limit that binds.
    pub sharers: NamedVolumes,
    /// The change of a policy group that removes the cause, if there is one.
    pub proposal: Option<Proposal>,
}

/// Number of requests of all kinds between two instants, and their time by cause.
fn done_between(earlier: &Totals, later: &Totals) -> (u64, TimeByCause) {
    let mut done = later.clone();
    done.subtract(earlier);
    let kinds = [&done.read, &done.write, &done.other];
    let sum = |part: fn(&TimeByCause) -> u64| kinds.iter().map(|kind| part(&kind.time)).sum();
    let time = TimeByCause {
        delayed_ns: sum(|time| time.delayed_ns),
        floors_ns: sum(|time| time.floors_ns),
        queue_ns: sum(|time| time.queue_ns),
        drive_ns: sum(|time| time.drive_ns),
        other_ns: sum(|time| time.other_ns),
    };
    (kinds.iter().map(|kind| kind.operations).sum(), time)
}

/// The limits that held requests back between two instants, the strongest first.
fn bindings_between(earlier: &[BoundTotals], later: &[BoundTotals], namer: &Namer<'_>) -> Vec<Binding> {
    let since = |bound: &BoundTotals| {
        let before = earlier.iter().find(|old| old.limit == bound.limit && old.scope == bound.scope);
        let (requests, waited_ns) = before.map_or((0, 0), |old| (old.requests, old.waited_ns));
        BoundTotals {
            requests: bound.requests.saturating_sub(requests),
            waited_ns: bound.waited_ns.saturating_sub(waited_ns),
            ..bound.clone()
        }
    };
    let mut bounds: Vec<_> = later.iter().map(since).filter(|bound| bound.requests > 0).collect();
    bounds.sort_by_key(|bound| std::cmp::Reverse(bound.waited_ns));
    bounds.iter().map(|bound| namer.binding(bound)).collect()
}

/// Explains the latency of volumes.
pub struct Reasons {
    pub(crate) core: Arc<Core>,
    pub(crate) figures: Arc<Figures>,
}

impl Reasons {
    /// Takes a sample of a volume; a later call of [`Control::explain_volume`] explains the time in between.
    ///
    /// # Errors
    /// Not found for an unknown volume.
    pub fn look_at_volume(&self, tenant: Option<&Name>, name: &Name) -> Outcome<VolumeLook> {
        let model = self.core.model();
        let record = &model.volume(tenant, name)?.record;
        Ok(self.look(&model, record))
    }

    fn look(&self, model: &Model, record: &VolumeRecord) -> VolumeLook {
        let at_ns = self.core.uptime_ns();
        VolumeLook {
            volume: record.id,
            at_ns,
            totals: model.volume_totals(record.id),
            bounds: self.bounds_of(model, record.id, at_ns),
            active: place::active_beside(model, record),
        }
    }

    /// The delays that limits caused to a volume, with instants by the clock of statistics.
    fn bounds_of(&self, model: &Model, volume: VolumeId, at_ns: u64) -> Vec<BoundTotals> {
        let clock_ns = Clock.now_ns();
        let by_uptime = |instant_ns: u64| at_ns.saturating_sub(clock_ns.saturating_sub(instant_ns));
        let totals =
            model.open.get(&volume).map(|open| open.statistics().bounds.totals()).unwrap_or_default();
        let converted = |bound: BoundTotals| BoundTotals {
            since_ns: by_uptime(bound.since_ns),
            last_ns: by_uptime(bound.last_ns),
            ..bound
        };
        totals.into_iter().map(converted).collect()
    }

    /// Explains what has bound a volume since an earlier sample.
    ///
    /// # Errors
    /// Not found if the volume is gone.
    pub fn explain_volume(&self, earlier: &VolumeLook) -> Outcome<Explanation> {
        let credits = credits_by_scope(&self.core.engine.credits());
        let model = self.core.model();
        let record = &model.volume_by_id(earlier.volume)?.record;
        let later = self.look(&model, record);
        let levels = levels_in_effect(&model, record);
        let namer = Namer::new(&model, record, &levels, &credits);
        let statistics = model.open.get(&record.id).map(|open| open.statistics().counters());
        let (operations, time) = done_between(&earlier.totals, &later.totals);
        let situation = Situation {
            volume: record.name.to_string(),
            elapsed_ns: later.at_ns.saturating_sub(earlier.at_ns),
            operations,
            time,
            bindings: bindings_between(&earlier.bounds, &later.bounds, &namer),
            latest: later.bounds.iter().max_by_key(|bound| bound.last_ns).map(|bound| namer.binding(bound)),
            queue_depth: statistics.as_ref().map_or(0, |statistics| statistics.queue_depth),
            queue_depth_delayed: statistics.as_ref().map_or(0, |statistics| statistics.queue_depth_delayed),
            place: place::place(&model, record, earlier.active.union(&later.active)),
        };
        let finding = decide(&situation);
        let used_bytes = self.figures.known_used_bytes(&model, record).unwrap_or(0);
        let sizes = Sizes { allocated_bytes: record.size_bytes, used_bytes };
        Ok(Explanation {
            tenant: record.tenant.clone(),
            timestamp_ns: later.at_ns,
            sharers: proposal::sharers(&model, record, &finding),
            proposal: proposal::propose(&model, record, (&situation, &finding), sizes),
            situation,
            finding,
        })
    }
}
