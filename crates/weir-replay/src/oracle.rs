//! Checks of a history, by arithmetic simple enough to be obviously right.

use weir_qos::{Counting, Kind};
use weir_types::bounds::CEILING_CREDIT_NS;

use super::{History, Plan};

const BILLION: i128 = 1_000_000_000;

/// A limit of a node: the count of a request in millionths, the rate, and the maximum credit in billionths of
/// a unit.
struct Limit {
    millionths: Box<dyn Fn(Kind, u32) -> i128>,
    rate: i128,
    saved: i128,
}

/// Checks the ceilings of every node over windows of every length. A window may admit at most rate times
/// length, plus the credit saved before it, plus one request. `late_ns` is the possible delay of the
/// scheduler.
///
/// With S(n) the sum of the first n requests, the window from request i to just before request j holds S(j) -
/// S(i). The sum may be at most rate * (t(j) - t(i)) + saved. So for each j only the least S(i) - rate * t(i)
/// before j must be known.
pub fn check_windows(plan: &Plan, history: &History) -> Result<(), String> {
    for (index, node) in plan.nodes.iter().enumerate() {
        let below = below(plan, index);
        for (name, limit) in limits(&node.terms, plan.late_ns_max) {
            let (mut sum, mut least) = (0i128, i128::MAX);
            for &(at_ns, leaf) in history.admissions.iter().filter(|(_, leaf)| below[*leaf]) {
                let line = limit.rate * i128::from(at_ns);
                let load = plan.nodes[leaf].load.as_ref().ok_or("only leaves admit")?;
                let amount = (limit.millionths)(load.kind, load.bytes);
                if amount == 0 {
                    continue;
                }
                least = least.min(sum - line);
                if sum - line - least > limit.saved {
                    let excess = (sum - line - least - limit.saved) / BILLION;
                    return Err(format!("node {index} exceeded {name} by {excess} at {at_ns}"));
                }
                sum += amount * 1000;
            }
        }
    }
    Ok(())
}

/// For each node of a plan, whether it is `top` or lies below `top`.
fn below(plan: &Plan, top: usize) -> Vec<bool> {
    let mut below = vec![false; plan.nodes.len()];
    for (index, node) in plan.nodes.iter().enumerate() {
        below[index] = index == top || node.parent.is_some_and(|parent| below[parent]);
    }
    below
}

fn limits(terms: &weir_types::Terms, late_ns: u64) -> Vec<(String, Limit)> {
    let counting = Counting { operation_size: terms.operation_size, charges: terms.charges };
    let mut found = Vec::new();
    for dimension in weir_qos::DIMENSIONS {
        let Some(rate) = dimension.rate(&terms.limits) else { continue };
        let burst = terms.burst.and_then(|b| Some((dimension.rate(&b.rates)?, u64::from(b.seconds))));
        let burst = burst.filter(|(burst, _)| *burst > rate);
        let millionths = || -> Box<dyn Fn(Kind, u32) -> i128> {
            Box::new(move |kind: Kind, bytes: u32| {
                let is_covered = dimension.direction().is_none_or(|only| only == kind.direction());
                let operations = counting.operations(weir_qos::Cost::of(kind, bytes));
                let counted = if dimension.is_bytes() { u64::from(bytes) * 1_000_000 } else { operations };
                if is_covered { i128::from(counted) } else { 0 }
            })
        };
        let small = |rate: u64| i128::from(rate) * i128::from(CEILING_CREDIT_NS + late_ns);
        let saved = match burst {
            None => small(rate),
            Some((burst, seconds)) => {
                i128::from(burst - rate) * i128::from(seconds) * BILLION
                    + i128::from(rate) * i128::from(late_ns)
            }
        };
        found.push((format!("{dimension:?}"), Limit { millionths: millionths(), rate: rate.into(), saved }));
        if let Some((burst, _)) = burst {
            let limit = Limit { millionths: millionths(), rate: burst.into(), saved: small(burst) };
            found.push((format!("the burst of {dimension:?}"), limit));
        }
    }
    found
}

/// Length of the windows in which served requests are counted, in nanoseconds.
const WINDOW_NS: u64 = 200_000_000;

/// True if a leaf always has many requests open.
fn asks_without_end(plan: &Plan, leaf: usize) -> bool {
    plan.nodes[leaf].load.as_ref().is_some_and(|load| load.depth >= 64 && load.think_ns == 0)
}

/// Windows that lie wholly in the active periods of a leaf, some time after their beginning.
fn windows(plan: &Plan, leaf: usize) -> Vec<u64> {
    let active = plan.nodes[leaf].load.iter().flat_map(|load| &load.active);
    let mut windows = Vec::new();
    for &(from_ns, until_ns) in active {
        // Requests near the end of the plan may have no answer.
        let until_ns = until_ns.min(plan.duration_ns - WINDOW_NS / 4);
        let mut at_ns = from_ns + WINDOW_NS / 4;
        while at_ns + WINDOW_NS <= until_ns {
            windows.push(at_ns);
            at_ns += WINDOW_NS / 2;
        }
    }
    windows
}

/// Checks that every leaf that always has requests open is served at the rate of its floor. Also checks that
/// it never starves: no gap exceeds a few requests of its entitlement.
pub fn check_claims(plan: &Plan, history: &History) -> Result<(), String> {
    let entitled = entitlements(plan);
    for (leaf, node) in plan.nodes.iter().enumerate().filter(|(leaf, _)| asks_without_end(plan, *leaf)) {
        let starts: Vec<u64> =
            history.events.iter().filter(|event| event.node == leaf).map(|event| event.started_ns).collect();
        let within = |from_ns: u64, length_ns: u64| {
            let range = from_ns..from_ns + length_ns;
            starts.iter().filter(|at_ns| range.contains(at_ns)).count() as f64
        };
        let floor = node.terms.floor.iops.unwrap_or(0) as f64;
        let timeout_ns = (4e9 / entitled[leaf].max(1e-3)) as u64 + WINDOW_NS;
        for from_ns in windows(plan, leaf) {
            let (got, due) = (within(from_ns, WINDOW_NS), floor * WINDOW_NS as f64 / 1e9);
            if got < due * 0.99 - 4.0 {
                return Err(format!("leaf {leaf} got {got} of {due} that were due from {from_ns} on"));
            }
            let may_starve =
                from_ns + timeout_ns > plan.duration_ns || !is_active(plan, leaf, from_ns + timeout_ns);
            if !may_starve && within(from_ns, timeout_ns) == 0.0 {
                return Err(format!("leaf {leaf} got nothing for {timeout_ns} ns from {from_ns} on"));
            }
        }
    }
    Ok(())
}

fn is_active(plan: &Plan, leaf: usize, at_ns: u64) -> bool {
    let mut active = plan.nodes[leaf].load.iter().flat_map(|load| &load.active);
    active.any(|&(from_ns, until_ns)| (from_ns..until_ns).contains(&at_ns))
}

/// Checks that the drive is never idle while a client without ceilings has requests open.
pub fn check_no_idling(plan: &Plan, history: &History) -> Result<(), String> {
    let Some(planned_drive) = plan.planned_drive else { return Ok(()) };
    let has_ceiling = |mut index: usize| loop {
        if !plan.nodes[index].terms.limits.is_unlimited() {
            return true;
        }
        match plan.nodes[index].parent {
            Some(parent) => index = parent,
            None => return false,
        }
    };
    let free = (0..plan.nodes.len()).filter(|&leaf| asks_without_end(plan, leaf) && !has_ceiling(leaf));
    for from_ns in free.flat_map(|leaf| windows(plan, leaf)) {
        let range = from_ns..from_ns + WINDOW_NS;
        let done = history.events.iter().filter(|event| range.contains(&event.answered_ns)).count() as f64;
        let possible = planned_drive.iops as f64 * WINDOW_NS as f64 / 1e9;
        if done < possible * 0.999 - 2.0 {
            return Err(format!("the drive did {done} of {possible} from {from_ns} on"));
        }
    }
    Ok(())
}

/// Entitlement of each node of a plan, in operations per second. All leaves have requests of one size open
/// all the time. Each child gets its floor, at least its weight's part of the parent's rate, and at most its
/// ceilings.
pub fn entitlements(plan: &Plan) -> Vec<f64> {
    let capacity = plan.planned_drive.map_or(f64::MAX, |planned_drive| planned_drive.iops as f64);
    let count = plan.nodes.len();
    let (mut most, mut floor) = (vec![0.0f64; count], vec![0.0f64; count]);
    for index in (0..count).rev() {
        let node = &plan.nodes[index];
        let children = || (0..count).filter(|&child| plan.nodes[child].parent == Some(index));
        let below: f64 =
            if node.load.is_some() { capacity } else { children().map(|child| most[child]).sum() };
        most[index] = below.min(node.terms.limits.total.iops.map_or(f64::MAX, |iops| iops as f64));
        let claimed: f64 = children().map(|child| floor[child]).sum();
        floor[index] = claimed.max(node.terms.floor.iops.unwrap_or(0) as f64).min(most[index]);
    }
    let mut given = vec![0.0; count];
    divide(plan, None, capacity, &most, &floor, &mut given);
    for index in 0..count {
        divide(plan, Some(index), given[index], &most, &floor, &mut given);
    }
    given
}

/// Divides a parent's rate among its children, by searching for the level at which the whole rate is given
/// away.
fn divide(plan: &Plan, parent: Option<usize>, amount: f64, most: &[f64], floor: &[f64], given: &mut [f64]) {
    let is_child = |&child: &usize| plan.nodes[child].parent == parent;
    let children: Vec<usize> = (0..plan.nodes.len()).filter(is_child).collect();
    let at_level = |level: f64, child: usize| {
        let weight = f64::from(plan.nodes[child].terms.weight.0);
        (level * weight).max(floor[child]).min(most[child])
    };
    let total: f64 = children.iter().map(|&child| most[child]).sum();
    let amount = amount.min(total);
    let (mut low, mut high) = (0.0, amount + 1.0);
    for _ in 0..200 {
        let middle = (low + high) / 2.0;
        let sum: f64 = children.iter().map(|&child| at_level(middle, child)).sum();
        if sum < amount { low = middle } else { high = middle }
    }
    for child in children {
        given[child] = at_level(high, child);
    }
}
