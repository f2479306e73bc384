//! Ledger: the floors that are claimed from a pool, and whether the pool has them. This is the arithmetic of
//! admission.
//!
//! This module is pure: it sees the policy levels of volumes and the capacity of drives, and changes nothing.
//! The rules:
//!
//! * **Floors nest.** A level with a floor claims it once, however many levels stand below it. A floor below
//!   is a part of it. If the floors below exceed the one above, the floors below are claimed instead. `tree`
//!   refuses this case, but an older catalogue may hold it. A level without a floor claims the floors below
//!   it. Operations and bytes are claimed separately.
//! * **Each pool counts separately.** A group or tenant with volumes on several pools claims its floor in
//!   full on each. All its members may ask on one pool at once, and every pool guarantees floors for itself.
//! * **Adaptive policies claim nothing.** They have ceilings and no floors, so neither a resize nor growth
//!   changes a ledger.
//! * **Operations count as small ones, and bytes as those of large operations**, like the capacity. Both
//!   share the same drives: a part of a pool that one has used is not left for the other.
//! * **The reserve is a part of the capacity**, independent of the over-commit.
//!
//! All values are whole operations and bytes. The reserve is rounded up and the limit down, so that the shown
//! numbers add up to the decision.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;

use weir_types::control_bounds::OVER_COMMIT_PERCENT;
use weir_types::units::ByteRate;
use weir_types::{Name, Rate, Scope, Terms};

use crate::model::Level;

/// Operations and bytes, each per second. The place of use says whether both apply together, or either.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Operations per second.
    pub iops: u64,
    /// Bytes per second.
    pub bytes_per_second: u64,
}

impl Amount {
    fn each(self, other: Amount, apply: fn(u64, u64) -> u64) -> Amount {
        Amount {
            iops: apply(self.iops, other.iops),
            bytes_per_second: apply(self.bytes_per_second, other.bytes_per_second),
        }
    }

    /// The sum of two amounts, in each dimension.
    pub fn plus(self, other: Amount) -> Amount {
        self.each(other, u64::saturating_add)
    }

    /// The difference of two amounts, at least zero in each dimension.
    pub fn without(self, other: Amount) -> Amount {
        self.each(other, u64::saturating_sub)
    }

    /// The percentage of the amount, rounded down.
    fn percent(self, percent: u32) -> Amount {
        let of = |value: u64| clamped(u128::from(value) * u128::from(percent) / 100);
        Amount { iops: of(self.iops), bytes_per_second: of(self.bytes_per_second) }
    }

    /// The percentage of the amount, rounded up.
    fn percent_up(self, percent: u32) -> Amount {
        let of = |value: u64| clamped((u128::from(value) * u128::from(percent)).div_ceil(100));
        Amount { iops: of(self.iops), bytes_per_second: of(self.bytes_per_second) }
    }

    /// True if neither dimension exceeds that of the other amount.
    fn is_at_most(self, other: Amount) -> bool {
        self.iops <= other.iops && self.bytes_per_second <= other.bytes_per_second
    }

    fn is_nothing(self) -> bool {
        self == Amount::default()
    }

    /// The dimensions that are not zero.
    fn rates(self) -> impl Iterator<Item = Rate> {
        let all = [Rate::Iops(self.iops), Rate::BytesPerSecond(self.bytes_per_second)];
        all.into_iter().filter(|rate| rate.value() > 0)
    }

    /// The dimension of `kind` alone.
    fn of(self, kind: Rate) -> Rate {
        match kind {
            Rate::Iops(_) => Rate::Iops(self.iops),
            Rate::BytesPerSecond(_) => Rate::BytesPerSecond(self.bytes_per_second),
        }
    }

    /// The amount in words, for "either operations or bytes".
    pub fn either(self) -> String {
        format!("{}IOPS or {}", self.iops, ByteRate(self.bytes_per_second))
    }
}

/// The amount in words, for "operations and bytes together".
impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rates: Vec<String> = self.rates().map(|rate| rate.to_string()).collect();
        f.write_str(if rates.is_empty() { "0IOPS" } else { "" })?;
        f.write_str(&rates.join(" and "))
    }
}

impl From<Rate> for Amount {
    fn from(rate: Rate) -> Amount {
        match rate {
            Rate::Iops(iops) => Amount { iops, ..Amount::default() },
            Rate::BytesPerSecond(bytes_per_second) => Amount { bytes_per_second, ..Amount::default() },
        }
    }
}

fn clamped(value: u128) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}

/// Capacity and settings that floors are admitted against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measure {
    /// Capacity of the drives: either this number of small operations, or this number of bytes of large ones.
    ///
    /// `None` if unknown: then everything is admitted and nothing is guaranteed.
    pub capacity: Option<Amount>,
    /// Maximum for floors and the reserve together, in percent of the capacity.
    pub over_commit_percent: u32,
    /// Part of the capacity that is kept for background work, in percent.
    pub reserve_percent: u32,
}

/// One claim: a row of the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The tenant.
    pub tenant: Name,
    /// Owner of the floor.
    pub scope: Scope,
    /// Name of the tenant, group or volume.
    pub name: Name,
    /// The policy group that the floor comes from, in words.
    pub origin: Option<String>,
    /// Claimed rate.
    pub rate: Rate,
}

impl Claim {
    /// Sort key: tenant, then tenants before groups before volumes, then name.
    fn order(&self) -> (&Name, u8, &Name) {
        let rank = match self.scope {
            Scope::Tenant(_) => 0,
            Scope::Group(_) => 1,
            Scope::Volume(_) => 2,
            // A cgroup has no floor.
            Scope::Cgroup(_) => 3,
        };
        (&self.tenant, rank, &self.name)
    }
}

/// The claims on a pool, and the measure that admits them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ledger {
    /// Capacity and settings of the pool.
    pub measure: Measure,
    /// The claims, sorted by tenant, kind of owner and name.
    pub claims: Vec<Claim>,
}

/// A level with the levels below it.
#[derive(Default)]
struct Node {
    level: Option<(Name, Level)>,
    below: BTreeMap<Scope, Node>,
}

impl Node {
    fn enter(&mut self, tenant: &Name, levels: Vec<Level>) {
        let mut node = self;
        for level in levels {
            node = node.below.entry(level.scope.clone()).or_default();
            node.level.get_or_insert_with(|| (tenant.clone(), level));
        }
    }

    /// The claims of this level and the levels below it, in the dimension of `kind`.
    fn claims(&self, kind: Rate) -> Vec<Claim> {
        let below: Vec<Claim> = self.below.values().flat_map(|node| node.claims(kind)).collect();
        let Some((tenant, level)) = &self.level else { return below };
        let Some(rate) = floor(&level.terms).filter(|rate| rate.with(0) == kind) else { return below };
        if sum(&below).of(kind).value() > rate.value() {
            return below;
        }
        let (tenant, scope, name) = (tenant.clone(), level.scope.clone(), level.name.clone());
        vec![Claim { tenant, scope, name, origin: level.origin.clone(), rate }]
    }
}

/// The floor as the data plane enforces it: of two dimensions, operations.
fn floor(terms: &Terms) -> Option<Rate> {
    terms.floor.rates().next()
}

fn sum(claims: &[Claim]) -> Amount {
    claims.iter().fold(Amount::default(), |sum, claim| sum.plus(claim.rate.into()))
}

impl Measure {
    /// The reserve for background work: either of the two.
    fn reserve(&self) -> Option<Amount> {
        Some(self.capacity?.percent_up(self.reserve_percent))
    }

    /// The capacity times the over-commit: either of the two.
    fn limit(&self) -> Option<Amount> {
        Some(self.capacity?.percent(self.over_commit_percent))
    }

    /// The maximum for floors: either of the two.
    fn budget(&self) -> Option<Amount> {
        Some(self.limit()?.without(self.reserve()?))
    }

    fn fits(&self, claimed: Amount) -> bool {
        let Some(budget) = self.budget() else { return true };
        let (all, used) = parts(budget, claimed);
        // If the budget is zero in one dimension, the parts are zero and decide nothing.
        self.reserve_percent <= self.over_commit_percent && claimed.is_at_most(budget) && used <= all
    }

    /// The amount that may be claimed in addition: either of the two.
    fn free(&self, claimed: Amount) -> Option<Amount> {
        let budget = self.budget()?;
        let (all, used) = parts(budget, claimed);
        // The same part is left of both dimensions.
        let left = |other: u64| all.saturating_sub(used).checked_div(u128::from(other)).map_or(0, clamped);
        Some(Amount { iops: left(budget.bytes_per_second), bytes_per_second: left(budget.iops) })
    }

    /// The lowest over-commit in percent that admits these claims, if there is one.
    fn over_commit_needed(&self, claimed: Amount) -> Option<u32> {
        let fits = |over_commit_percent| Measure { over_commit_percent, ..*self }.fits(claimed);
        OVER_COMMIT_PERCENT.into_iter().find(|percent| fits(*percent))
    }
}

impl Ledger {
    /// The ledger of a pool that holds volumes with these tenants and levels.
    pub fn new(measure: Measure, volumes: impl IntoIterator<Item = (Name, Vec<Level>)>) -> Ledger {
        let mut root = Node::default();
        for (tenant, levels) in volumes {
            root.enter(&tenant, levels);
        }
        let kinds = [Rate::Iops(0), Rate::BytesPerSecond(0)];
        let mut claims: Vec<Claim> = kinds.into_iter().flat_map(|kind| root.claims(kind)).collect();
        claims.sort_by(|a, b| a.order().cmp(&b.order()));
        Ledger { measure, claims }
    }

    /// The sum of all claims.
    pub fn bound(&self) -> Amount {
        sum(&self.claims)
    }

    /// The reserve for background work: either of the two.
    pub fn reserve(&self) -> Option<Amount> {
        self.measure.reserve()
    }

    /// The capacity times the over-commit: either of the two.
    pub fn limit(&self) -> Option<Amount> {
        self.measure.limit()
    }

    /// The amount that may still be claimed: either of the two.
    pub fn free(&self) -> Option<Amount> {
        self.measure.free(self.bound())
    }

    /// True if the pool has everything that is claimed.
    pub fn fits(&self) -> bool {
        self.measure.fits(self.bound())
    }

    /// True if a change from `before` to this ledger may be made: the new ledger fits, or it claims no more
    /// than before.
    ///
    /// So floors of an over-committed pool can be reduced one by one.
    pub fn is_admissible_after(&self, before: &Ledger) -> bool {
        let is_budget_kept = match (before.measure.budget(), self.measure.budget()) {
            (Some(before), Some(after)) => before.is_at_most(after),
            (_, after) => after.is_none(),
        };
        is_budget_kept && self.bound().is_at_most(before.bound()) || self.fits()
    }

    /// The first claim that no longer fits, if claims are added in this order.
    pub fn first_beyond<K: Ord>(&self, order: impl Fn(&Claim) -> K) -> Option<&Claim> {
        let mut claims: Vec<&Claim> = self.claims.iter().collect();
        claims.sort_by_cached_key(|claim| order(claim));
        let mut claimed = Amount::default();
        claims.into_iter().find(|claim| {
            claimed = claimed.plus(claim.rate.into());
            !self.measure.fits(claimed)
        })
    }

    /// The changes that would be accepted instead, in words. `before` is the sum of claims before the change.
    pub fn remedy(&self, before: Amount) -> String {
        let asked: Vec<Rate> = self.bound().without(before).rates().collect();
        let free = self.measure.free(before).unwrap_or_default();
        let more = match asked.as_slice() {
            [] => None,
            [kind] => Some(free.of(*kind).to_string()),
            _ => Some(free.either()),
        };
        let more = more.map(|free| format!("up to {free} more"));
        let over_commit = self.measure.over_commit_needed(self.bound());
        let over_commit = over_commit.map(|percent| format!("an over-commit of {percent}%"));
        let accepted: Vec<String> = more.into_iter().chain(over_commit).collect();
        match accepted.is_empty() {
            true => "--force records it as it is".to_owned(),
            false => format!("{} would be accepted, and --force records it as it is", accepted.join(" or ")),
        }
    }

    /// The arithmetic in words. `before` is the sum of claims before the change.
    pub fn arithmetic(&self, before: Amount) -> String {
        let (bound, reserve) = (self.bound(), self.reserve().unwrap_or_default());
        let was = bound.each(before, u64::min);
        let asked = bound.without(was);
        let claims = match (was.is_nothing(), asked.is_nothing()) {
            (true, false) => format!("floors of {asked} asked for"),
            (_, true) => format!("floors of {was} bound there"),
            (false, false) => format!("floors of {was} bound there plus {asked} asked for"),
        };
        let mut kinds = bound.rates();
        match (kinds.next(), kinds.next()) {
            (Some(_), Some(_)) => self.mixed_arithmetic(&claims),
            (kind, _) => {
                let kind = kind.unwrap_or(Rate::Iops(0));
                let of = |amount: Option<Amount>| amount.unwrap_or_default().of(kind);
                let sum = bound.plus(reserve).of(kind);
                format!(
                    "{claims} plus {} reserved for background work are {sum}; its capacity of {} times an \
                     over-commit of {}% is {}",
                    reserve.of(kind),
                    of(self.measure.capacity),
                    self.measure.over_commit_percent,
                    of(self.limit())
                )
            }
        }
    }

    /// Operations and bytes can only be added as parts of the budget.
    fn mixed_arithmetic(&self, claims: &str) -> String {
        let (bound, budget) = (self.bound(), self.measure.budget().unwrap_or_default());
        let part = |claimed: u64, of: u64| (u128::from(claimed) * 1000).div_ceil(u128::from(of.max(1)));
        let parts = [part(bound.iops, budget.iops), part(bound.bytes_per_second, budget.bytes_per_second)];
        let percent = |thousandths: u128| format!("{}.{}%", thousandths / 10, thousandths % 10);
        format!(
            "{claims} are {} and {} of the {} that floors may have, {} together; those are its capacity of {} \
             times an over-commit of {}%, less {}% of it reserved for background work",
            percent(parts[0]),
            percent(parts[1]),
            budget.either(),
            percent(parts[0] + parts[1]),
            self.measure.capacity.unwrap_or_default().either(),
            self.measure.over_commit_percent,
            self.measure.reserve_percent
        )
    }
}

/// A budget and the claimed part of it, in a common unit: the product of both dimensions.
fn parts(budget: Amount, claimed: Amount) -> (u128, u128) {
    let product = |a: u64, b: u64| u128::from(a) * u128::from(b);
    let used = product(claimed.iops, budget.bytes_per_second)
        .saturating_add(product(claimed.bytes_per_second, budget.iops));
    (product(budget.iops, budget.bytes_per_second), used)
}
