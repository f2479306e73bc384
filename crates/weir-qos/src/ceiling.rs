//! The ceilings of one workload: a meter for each limit. The meter that frees last holds a request.

use serde::{Deserialize, Serialize};
use weir_types::{InitialCredit, Limits, Terms, Throughput};

use crate::cost::{Cost, Counting, Direction, MILLIONTHS};
use crate::meter::{Credit, Meter};

/// One limit of a workload, as the cause of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dimension {
    /// Operations per second of both directions.
    TotalOperations,
    /// Bytes per second of both directions.
    TotalBytes,
    /// Reads per second.
    ReadOperations,
    /// Bytes read per second.
    ReadBytes,
    /// Writes per second.
    WriteOperations,
    /// Bytes written per second.
    WriteBytes,
}

/// All dimensions.
pub const DIMENSIONS: [Dimension; 6] = [
    Dimension::TotalOperations,
    Dimension::TotalBytes,
    Dimension::ReadOperations,
    Dimension::ReadBytes,
    Dimension::WriteOperations,
    Dimension::WriteBytes,
];

impl Dimension {
    /// Returns the only direction that the dimension covers, if there is only one.
    pub fn direction(self) -> Option<Direction> {
        match self {
            Dimension::TotalOperations | Dimension::TotalBytes => None,
            Dimension::ReadOperations | Dimension::ReadBytes => Some(Direction::Read),
            Dimension::WriteOperations | Dimension::WriteBytes => Some(Direction::Write),
        }
    }

    /// Whether the dimension counts bytes; otherwise it counts operations.
    pub fn is_bytes(self) -> bool {
        matches!(self, Dimension::TotalBytes | Dimension::ReadBytes | Dimension::WriteBytes)
    }

    fn covers(self, direction: Direction) -> bool {
        self.direction().is_none_or(|only| only == direction)
    }

    /// Returns the dimension's rate among these limits.
    pub fn rate(self, limits: &Limits) -> Option<u64> {
        let throughput: Throughput = match self.direction() {
            None => limits.total,
            Some(Direction::Read) => limits.read,
            Some(Direction::Write) => limits.write,
        };
        if self.is_bytes() { throughput.bytes_per_second } else { throughput.iops }
    }
}

/// The rate of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rate {
    /// The ceiling, which applies once no credit is left.
    Sustained,
    /// The burst, which applies while there is credit.
    Burst,
}

/// A limit that held a request back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Limit {
    /// Limited dimension.
    pub dimension: Dimension,
    /// Rate that applied.
    pub rate: Rate,
}

#[derive(Clone, Debug)]
struct Metered {
    limit: Limit,
    meter: Meter,
}

/// The rate and credit that terms ask for under one limit.
struct Wanted {
    limit: Limit,
    rate: u64,
    credit: Credit,
}

/// The meters of one workload. Most workloads have at most one limit, which is found without following a
/// pointer.
#[derive(Clone, Debug, Default)]
pub struct Ceiling {
    first: Option<Metered>,
    more: Option<Box<More>>,
}

/// The second meter, for example of a policy that limits operations and bytes, and any others.
#[derive(Clone, Debug)]
struct More {
    second: Metered,
    others: Vec<Metered>,
}

/// Iterators over all meters, for rare operations. Code that runs for each request spells the meters out,
/// which is faster.
impl More {
    fn meters(&self) -> impl Iterator<Item = &Metered> {
        std::iter::once(&self.second).chain(&self.others)
    }

    fn meters_mut(&mut self) -> impl Iterator<Item = &mut Metered> {
        std::iter::once(&mut self.second).chain(&mut self.others)
    }
}

impl Ceiling {
    /// Returns ceilings without debt, and without credit unless the terms ask for it.
    pub fn new(terms: &Terms, now_ns: u64) -> Ceiling {
        let is_full = terms.burst.is_some_and(|burst| burst.initial_credit == InitialCredit::Full);
        let metered = |wanted: Wanted| {
            let mut meter = Meter::with_credit(wanted.rate, wanted.credit, now_ns);
            if is_full && wanted.limit.rate == Rate::Sustained {
                meter.fill();
            }
            Metered { limit: wanted.limit, meter }
        };
        Ceiling::of(wanted(terms).map(metered))
    }

    fn of(mut meters: impl Iterator<Item = Metered>) -> Ceiling {
        let first = meters.next();
        let more = meters.next().map(|second| Box::new(More { second, others: meters.collect() }));
        Ceiling { first, more }
    }

    fn meters(&self) -> impl Iterator<Item = &Metered> {
        self.first.iter().chain(self.more.iter().flat_map(|more| more.meters()))
    }

    fn meters_mut(&mut self) -> impl Iterator<Item = &mut Metered> {
        self.first.iter_mut().chain(self.more.iter_mut().flat_map(|more| more.meters_mut()))
    }

    /// Changes the limits. A limit that stays keeps its credit or debt as [`Meter::change`] says; a new limit
    /// starts without either.
    pub fn change(&mut self, terms: &Terms, now_ns: u64) {
        let old = std::mem::take(self);
        *self = Ceiling::of(wanted(terms).map(|wanted| {
            let known = old.meters().find(|metered| metered.limit == wanted.limit);
            let meter = match known {
                Some(metered) => {
                    let mut meter = metered.meter.clone();
                    meter.change(wanted.rate, wanted.credit, now_ns);
                    meter
                }
                None => Meter::with_credit(wanted.rate, wanted.credit, now_ns),
            };
            Metered { limit: wanted.limit, meter }
        }));
    }

    /// Returns true if nothing is limited.
    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Returns true if a limit covers one direction only.
    pub fn is_directional(&self) -> bool {
        self.meters().any(|metered| metered.limit.dimension.direction().is_some())
    }

    /// Returns the first instant at which a request may start at present, and the limit that sets it.
    pub fn ready_ns(&self, direction: Direction) -> (u64, Option<Limit>) {
        let later = |latest: (u64, Option<Limit>), Metered { limit, meter }: &Metered| {
            let ready_ns = if limit.dimension.covers(direction) { meter.ready_ns() } else { 0 };
            if ready_ns > latest.0 { (ready_ns, Some(*limit)) } else { latest }
        };
        let latest = self.first.as_ref().map_or((0, None), |first| later((0, None), first));
        let Some(more) = &self.more else { return latest };
        more.others.iter().fold(later(latest, &more.second), later)
    }

    /// Charges an admitted request.
    pub fn charge(&mut self, now_ns: u64, cost: Cost, counting: &Counting) {
        let charge = |Metered { limit, meter }: &mut Metered| {
            if limit.dimension.covers(cost.kind.direction()) {
                meter.settle(now_ns);
                meter.charge(amount(*limit, cost, counting));
            }
        };
        self.first.iter_mut().for_each(charge);
        if let Some(more) = &mut self.more {
            charge(&mut more.second);
            more.others.iter_mut().for_each(charge);
        }
    }

    /// Returns the share of the limits that a request takes, as the nanoseconds in which the tightest limit
    /// allows it.
    pub fn span_ns(&self, cost: Cost, counting: &Counting) -> f64 {
        let mut longest: f64 = 0.0;
        for Metered { limit, meter } in self.meters() {
            if limit.dimension.covers(cost.kind.direction()) {
                let millionths = amount(*limit, cost, counting) as f64;
                longest = longest.max(millionths * 1000.0 / meter.rate() as f64);
            }
        }
        longest
    }

    /// Returns the burst credit by limit: nanoseconds at the burst rate, and the most that may be saved.
    pub fn credits(&mut self, now_ns: u64) -> impl Iterator<Item = (Limit, u64, u64)> {
        self.meters_mut().map(move |Metered { limit, meter }| {
            meter.settle(now_ns);
            (*limit, meter.credit_ns(), meter.credit_ns_max())
        })
    }

    /// Sets the credit of one limit, for example after a restart.
    pub fn set_credit_ns(&mut self, limit: Limit, credit_ns: u64) {
        if let Some(metered) = self.meters_mut().find(|metered| metered.limit == limit) {
            metered.meter.set_credit_ns(credit_ns);
        }
    }
}

/// Returns the meters that terms ask for. A limit with a burst has two meters: one for the ceiling, which
/// saves credit, and one for the burst rate.
fn wanted(terms: &Terms) -> impl Iterator<Item = Wanted> {
    DIMENSIONS.into_iter().flat_map(|dimension| {
        let rate = dimension.rate(&terms.limits);
        let burst = terms.burst.and_then(|burst| Some((dimension.rate(&burst.rates)?, burst.seconds)));
        let burst = burst.filter(|(burst_rate, _)| rate.is_some_and(|rate| *burst_rate > rate));
        let sustained = rate.map(|rate| Wanted {
            limit: Limit { dimension, rate: Rate::Sustained },
            rate,
            credit: match burst {
                None => Credit::small(rate),
                Some((burst_rate, seconds)) => {
                    Credit { rate: burst_rate - rate, ns_max: u64::from(seconds) * 1_000_000_000 }
                }
            },
        });
        let burst = burst.map(|(rate, _)| Wanted {
            limit: Limit { dimension, rate: Rate::Burst },
            rate,
            credit: Credit::small(rate),
        });
        sustained.into_iter().chain(burst)
    })
}

/// Returns the amount that a request counts under a limit, in millionths of an operation or byte.
fn amount(limit: Limit, cost: Cost, counting: &Counting) -> u64 {
    if limit.dimension.is_bytes() { u64::from(cost.bytes) * MILLIONTHS } else { counting.operations(cost) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::Kind;
    use weir_types::Burst;

    fn limits(total: &str, read: &str, write: &str) -> Limits {
        let parse = |text| Throughput::parse(text).unwrap();
        Limits { total: parse(total), read: parse(read), write: parse(write) }
    }

    fn ceiling(total: &str, read: &str, write: &str) -> Ceiling {
        Ceiling::new(&Terms::limited(limits(total, read, write)), 0)
    }

    const READ_4K: Cost = Cost { kind: Kind::Read, is_first: true, bytes: 4096, drive_ns: 0 };
    const WRITE_1M: Cost = Cost { kind: Kind::Write, is_first: true, bytes: 1 << 20, drive_ns: 0 };

    #[test]
    fn tightest_limit_applies_and_is_named() {
        let mut ceiling = ceiling("1000IOPS,4096B/s", "none", "none");
        assert_eq!(ceiling.ready_ns(Direction::Read), (0, None));
        ceiling.charge(0, READ_4K, &Counting::default());
        let limit = Limit { dimension: Dimension::TotalBytes, rate: Rate::Sustained };
        assert_eq!(ceiling.ready_ns(Direction::Read), (1_000_000_000, Some(limit)));
        assert_eq!(ceiling.span_ns(READ_4K, &Counting::default()), 1e9);
    }

    #[test]
    fn directions_are_limited_apart() {
        let mut ceiling = ceiling("none", "1IOPS", "1MiB/s");
        ceiling.charge(0, READ_4K, &Counting::default());
        assert_eq!(ceiling.ready_ns(Direction::Write), (0, None));
        ceiling.charge(0, WRITE_1M, &Counting::default());
        let by = |direction| ceiling.ready_ns(direction).1.map(|limit| limit.dimension);
        assert_eq!(by(Direction::Write), Some(Dimension::WriteBytes));
        assert_eq!(by(Direction::Read), Some(Dimension::ReadOperations));
    }

    #[test]
    fn large_request_is_repaid_once() {
        let mut ceiling = ceiling("1MiB/s", "none", "none");
        for second in 0..5 {
            let (at_ns, _) = ceiling.ready_ns(Direction::Write);
            assert_eq!(at_ns, second * 1_000_000_000);
            ceiling.charge(at_ns, WRITE_1M, &Counting::default());
        }
    }

    /// Returns when each of `count` reads starts, for a client that always has more to read.
    fn starts(ceiling: &mut Ceiling, from_ns: u64, count: usize) -> Vec<u64> {
        let mut now_ns = from_ns;
        let start = |_| {
            now_ns = now_ns.max(ceiling.ready_ns(Direction::Read).0);
            ceiling.charge(now_ns, READ_4K, &Counting::default());
            now_ns
        };
        (0..count).map(start).collect()
    }

    fn bursting(initial_credit: InitialCredit) -> Ceiling {
        let rates = limits("200IOPS", "none", "none");
        let burst = Some(Burst { rates, seconds: 60, initial_credit });
        Ceiling::new(&Terms { burst, ..Terms::limited(limits("100IOPS", "none", "none")) }, 0)
    }

    /// A full initial credit is available at once, as with QEMU's `max` and `max-length`, and gp2's credit.
    #[test]
    fn full_credit_allows_the_burst_from_the_start() {
        let starts = starts(&mut bursting(InitialCredit::Full), 0, 18_000);
        let until = |ns: u64| starts.iter().filter(|&&at| at < ns).count();
        assert_eq!(until(60_000_000_000), 12_000);
        assert!(until(120_000_000_000).abs_diff(18_000) <= 1, "{}", until(120_000_000_000));
    }

    #[test]
    fn empty_credit_is_earned_before_it_is_spent() {
        let mut ceiling = bursting(InitialCredit::Empty);
        let early = starts(&mut ceiling, 0, 1000);
        assert_eq!(*early.last().unwrap(), 9_990_000_000);
        // An idle half minute earns 3000 requests: half a minute at twice the rate.
        let late = starts(&mut ceiling, 40_000_000_000, 9000);
        let until = |ns: u64| late.iter().filter(|&&at| at < ns).count();
        assert!(until(70_000_000_000).abs_diff(6000) <= 1, "{}", until(70_000_000_000));
        assert!(until(80_000_000_000).abs_diff(7000) <= 2, "{}", until(80_000_000_000));
    }

    #[test]
    fn change_keeps_the_credit_of_remaining_limits() {
        let mut ceiling = bursting(InitialCredit::Full);
        let rates = limits("400IOPS", "none", "none");
        let burst = Some(Burst { rates, seconds: 60, initial_credit: InitialCredit::Full });
        let faster = Terms { burst, ..Terms::limited(limits("100IOPS,1MB/s", "none", "none")) };
        ceiling.change(&faster, 0);
        let credits: Vec<_> = ceiling.credits(0).map(|(limit, ns, _)| (limit.dimension, ns)).collect();
        let expected = [
            (Dimension::TotalOperations, 60_000_000_000),
            (Dimension::TotalOperations, 0),
            (Dimension::TotalBytes, 0),
        ];
        assert_eq!(credits, expected);
    }
}
