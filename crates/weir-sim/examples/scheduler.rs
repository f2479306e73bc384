//! Measures the cost of a scheduler decision with many workloads, as one line of JSON per number of
//! workloads.
//!
//! A group has a hundred workloads, and a tenant has a hundred groups. All of them have ceilings and weights;
//! groups also have floors. Requests arrive in virtual time: most may run at once, and some wait for a
//! ceiling of their workload, group or tenant. A decision is the answer to an arriving request, or the choice
//! of a waiting one. A client sends a batch of requests at a time. The next client is chosen at random, so
//! the first request of a batch finds its workload in no cache. `cold_ns` counts these first requests apart.

use std::hint::black_box;
use std::time::Instant;

use weir_qos::{Cost, Kind, NodeId, ROOT, Tree, Verdict};
use weir_types::random::Random;
use weir_types::{Limits, Terms, Throughput, Weight};

/// Workloads per group, and groups per tenant.
const MEMBERS: usize = 100;
/// Number of timed decisions, and of the warm-up decisions before them.
const DECISIONS: usize = 2_000_000;
/// Ceiling of a workload, in operations per second. Ceilings of groups and tenants are half of the sum below
/// them.
const IOPS: u64 = 1000;
/// Requests that a client sends at a time.
const DEPTH: usize = 8;

fn limited(iops: u64, weight: u32) -> Terms {
    let total = Throughput { iops: Some(iops), bytes_per_second: None };
    Terms { weight: Weight(weight), ..Terms::limited(Limits { total, ..Limits::default() }) }
}

fn plant(workloads: usize) -> (Tree<u32>, Vec<NodeId>) {
    let mut tree = Tree::new(0);
    let (mut tenant, mut group) = (ROOT, ROOT);
    let mut leaves = Vec::with_capacity(workloads);
    for index in 0..workloads {
        if index % (MEMBERS * MEMBERS) == 0 {
            tenant = tree.add_inner(ROOT, &limited(IOPS * 2500, 100), 0);
        }
        if index % MEMBERS == 0 {
            let floor = Throughput { iops: Some(IOPS * 10), bytes_per_second: None };
            let terms = Terms { floor, ..limited(IOPS * 50, 1 + (index / MEMBERS % 400) as u32) };
            group = tree.add_inner(tenant, &terms, 0);
        }
        leaves.push(tree.add_leaf(group, &limited(IOPS, 1 + (index % 200) as u32), 0));
    }
    (tree, leaves)
}

/// Resident memory of this process, in bytes.
fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap_or(0) * 4096
}

/// Overhead of the timer itself, in nanoseconds.
fn timer_ns() -> u64 {
    let mut times: Vec<u64> = (0..100_000).map(|_| Instant::now().elapsed().as_nanos() as u64).collect();
    times.sort_unstable();
    times[times.len() / 2]
}

struct Load {
    tree: Tree<u32>,
    leaves: Vec<NodeId>,
    random: Random,
    now_ns: u64,
    step_ns: u64,
    waited: u64,
    times_ns: Vec<u64>,
    cold_ns: Vec<u64>,
}

impl Load {
    /// Lets the requests of one client arrive, after all releases that were due before them.
    fn step(&mut self, overhead_ns: u64) {
        self.now_ns += self.random.below(2 * self.step_ns);
        loop {
            let start = Instant::now();
            let released = self.tree.release(self.now_ns);
            let elapsed_ns = start.elapsed().as_nanos() as u64;
            if black_box(released).is_none() {
                break;
            }
            self.times_ns.push(elapsed_ns.saturating_sub(overhead_ns));
        }
        let leaf = self.leaves[self.random.below(self.leaves.len() as u64) as usize];
        for request in 0..DEPTH {
            let start = Instant::now();
            let verdict = self.tree.arrive(self.now_ns, leaf, 0, Cost::of(Kind::Read, 4096));
            let elapsed_ns = (start.elapsed().as_nanos() as u64).saturating_sub(overhead_ns);
            self.times_ns.push(elapsed_ns);
            if request == 0 {
                self.cold_ns.push(elapsed_ns);
            }
            self.waited += u64::from(verdict == Verdict::Wait);
        }
    }
}

fn measure(workloads: usize) {
    let before = resident_bytes();
    let (tree, leaves) = plant(workloads);
    // The load is slightly below the ceilings of all tenants together, so that waiting requests come and go.
    let rate = (workloads as u64 * IOPS / 4) as f64 * 0.9;
    let step_ns = (1e9 / rate * DEPTH as f64).max(1.0) as u64;
    let mut load = Load {
        tree,
        leaves,
        random: Random::new(7),
        now_ns: 0,
        step_ns,
        waited: 0,
        times_ns: Vec::with_capacity(DECISIONS + workloads * DEPTH * 2),
        cold_ns: Vec::with_capacity(DECISIONS + workloads * DEPTH * 2),
    };
    let overhead_ns = timer_ns();
    while load.times_ns.len() < DECISIONS.max(DEPTH * 2 * workloads) {
        load.step(overhead_ns);
    }
    let timings_bytes = (load.times_ns.len() + load.cold_ns.len()) * size_of::<u64>();
    let bytes = (resident_bytes() - before).saturating_sub(timings_bytes) / workloads;
    load.times_ns.clear();
    load.cold_ns.clear();
    load.waited = 0;
    while load.times_ns.len() < DECISIONS {
        load.step(overhead_ns);
    }
    let mut times = std::mem::take(&mut load.times_ns);
    times.sort_unstable();
    let at = |part: f64| times[(times.len() as f64 * part) as usize];
    let (median, p99) = (at(0.5), at(0.99));
    let mean = times.iter().sum::<u64>() / times.len() as u64;
    load.cold_ns.sort_unstable();
    let cold = load.cold_ns[load.cold_ns.len() / 2];
    println!(
        "{{\"workloads\":{workloads},\"median_ns\":{median},\"mean_ns\":{mean},\"p99_ns\":{p99},\
         \"cold_ns\":{cold},\"bytes_per_workload\":{bytes},\"waited\":{},\"waiting\":{},\"timer_ns\":{overhead_ns}}}",
        load.waited,
        load.tree.waiting()
    );
}

fn main() {
    for workloads in [1000, 10_000, 100_000, 1_000_000] {
        measure(workloads);
    }
}
