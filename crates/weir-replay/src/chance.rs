//! Random plans.

use weir_qos::Kind;
use weir_types::{Burst, InitialCredit, Limits, OperationSize, Terms, Throughput, Weight};

use super::oracle::entitlements;
use super::{Load, Plan, PlannedDrive, PlannedNode};
use weir_types::random::Random;

/// Properties of a random plan.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Maximum number of leaves of the tree.
    pub leaves_max: u64,
    /// True if requests differ in kind and size, and ceilings in dimension. Otherwise all rates are in
    /// operations.
    pub is_mixed: bool,
    /// True if clients come and go. Otherwise all clients always have requests open.
    pub is_changing: bool,
    /// Duration of the plan, in nanoseconds.
    pub duration_ns: u64,
}

/// A plan that follows from a seed. Its floors fit, and the rate of every leaf is bounded by a ceiling or a
/// drive.
pub fn plan(seed: u64, wanted: Wanted) -> Plan {
    let mut random = Random::new(seed ^ 0x5eed);
    let has_drive = random.chance(2, 3);
    let capacity = 500 + random.below(3500);
    let latency_ns = random.below(3_000_000);
    let needed = capacity * latency_ns / 1_000_000_000 + 2;
    let planned_drive = PlannedDrive {
        iops: capacity,
        bytes_per_second: 1 << 40,
        latency_ns,
        queue_target: Some((needed + random.below(24)) as u32),
    };
    let mut plan = Plan {
        nodes: nodes(&mut random, wanted, has_drive, capacity),
        planned_drive: has_drive.then_some(planned_drive),
        duration_ns: wanted.duration_ns,
        late_ns_max: 0,
        seed,
    };
    add_floors(&mut random, &mut plan);
    plan
}

fn nodes(random: &mut Random, wanted: Wanted, has_drive: bool, capacity: u64) -> Vec<PlannedNode> {
    let mut nodes: Vec<PlannedNode> = Vec::new();
    let inner = random.below(5) as usize;
    for index in 0..inner {
        let parent = (index > 0 && random.chance(1, 2)).then(|| random.below(index as u64) as usize);
        let is_limited = random.chance(1, 2) || (!has_drive && parent.is_none());
        nodes.push(PlannedNode { parent, terms: terms(random, wanted, is_limited, capacity), load: None });
    }
    let leaves = 1 + random.below(wanted.leaves_max);
    for leaf in 0..leaves.max(inner as u64) {
        // Every inner node has a leaf, so no floor is without a client.
        let any = (inner > 0 && random.chance(3, 4)).then(|| random.below(inner as u64) as usize);
        let parent = if (leaf as usize) < inner { Some(leaf as usize) } else { any };
        let is_limited = random.chance(1, 3) || (!has_drive && parent.is_none());
        let terms = terms(random, wanted, is_limited, capacity);
        nodes.push(PlannedNode { parent, terms, load: Some(load(random, wanted)) });
    }
    nodes
}

fn terms(random: &mut Random, wanted: Wanted, is_limited: bool, capacity: u64) -> Terms {
    let weight = Weight([1, 10, 50, 100, 200, 1000][random.below(6) as usize]);
    if !is_limited {
        return Terms { weight, ..Terms::default() };
    }
    let iops = 20 + random.below(capacity);
    let total = Throughput { iops: Some(iops), bytes_per_second: None };
    let mut terms = Terms { weight, ..Terms::limited(Limits { total, ..Limits::default() }) };
    if wanted.is_mixed {
        mix(random, &mut terms, iops);
    }
    terms
}

/// Adds ceilings in other dimensions, bursts, and operation sizes.
fn mix(random: &mut Random, terms: &mut Terms, iops: u64) {
    if random.chance(1, 3) {
        terms.limits.total.bytes_per_second = Some(iops * (2048 + random.below(65_536)));
    }
    if random.chance(1, 4) {
        terms.limits.read.iops = Some(1 + random.below(iops));
    }
    if random.chance(1, 4) {
        terms.limits.write.bytes_per_second = Some(iops * (1024 + random.below(16_384)));
    }
    terms.operation_size = match random.below(3) {
        0 => OperationSize::Any,
        1 => OperationSize::Bytes(4096),
        _ => OperationSize::Curve,
    };
    if random.chance(1, 3) {
        let total = Throughput { iops: Some(iops + 1 + random.below(3 * iops)), bytes_per_second: None };
        let full = if random.chance(1, 2) { InitialCredit::Full } else { InitialCredit::Empty };
        let rates = Limits { total, ..Limits::default() };
        terms.burst = Some(Burst { rates, seconds: 1 + random.below(3) as u32, initial_credit: full });
    }
}

fn load(random: &mut Random, wanted: Wanted) -> Load {
    let kinds = [Kind::Read, Kind::Write, Kind::Discard, Kind::Zeroes];
    let kind = if wanted.is_mixed { kinds[random.below(4) as usize] } else { Kind::Read };
    let has_data = matches!(kind, Kind::Read | Kind::Write);
    let bytes = if wanted.is_mixed { 512 << random.below(9) } else { 4096 };
    let is_shallow = wanted.is_changing && random.chance(1, 3);
    Load {
        depth: if is_shallow { 1 + random.below(4) as u32 } else { 64 + random.below(200) as u32 },
        kind,
        bytes: if has_data { bytes } else { 0 },
        think_ns: if is_shallow { random.below(5_000_000) } else { 0 },
        active: activity(random, wanted),
    }
}

fn activity(random: &mut Random, wanted: Wanted) -> Vec<(u64, u64)> {
    if !wanted.is_changing || random.chance(1, 3) {
        return vec![(0, u64::MAX)];
    }
    let mut active = Vec::new();
    let mut at_ns = 0;
    while at_ns < wanted.duration_ns {
        let from_ns = at_ns + random.below(wanted.duration_ns / 3);
        at_ns = from_ns + random.below(wanted.duration_ns / 2);
        active.push((from_ns, at_ns));
        // The last answers of one active period come before the next period begins.
        at_ns += wanted.duration_ns / 5;
    }
    active
}

/// Gives some nodes floors that fit: together at most four fifths of the rate that their parent can rely on.
fn add_floors(random: &mut Random, plan: &mut Plan) {
    let entitled = entitlements(plan);
    let count = plan.nodes.len();
    let sure = |index: Option<usize>, floors: &[Option<u64>]| -> f64 {
        match index {
            None => plan.planned_drive.map_or(f64::MAX, |planned_drive| planned_drive.iops as f64),
            Some(index) => floors[index].map_or(entitled[index] * 0.8, |floor| floor as f64),
        }
    };
    let mut floors: Vec<Option<u64>> = vec![None; count];
    let mut claimed = vec![0.0; count + 1];
    for index in 0..count {
        let node = &plan.nodes[index];
        let key = node.parent.map_or(count, |parent| parent);
        let left = sure(node.parent, &floors) * 0.8 - claimed[key];
        let own = node.terms.limits.total.iops.map_or(f64::MAX, |iops| iops as f64 * 0.8);
        let is_below_floors = node.parent.is_none_or(|parent| floors[parent].is_some());
        let floor = (left.min(own).min(1e6) * random.below(1000) as f64 / 1000.0) as u64;
        let is_plain = node.terms.operation_size == OperationSize::Any;
        if floor > 0 && is_below_floors && is_plain && random.chance(1, 3) {
            floors[index] = Some(floor);
            claimed[key] += floor as f64;
        }
    }
    for (node, floor) in plan.nodes.iter_mut().zip(floors) {
        node.terms.floor.iops = floor;
    }
}
