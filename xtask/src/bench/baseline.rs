//! What a request costs the processor beside an earlier daemon, whose binary `WEIR_BASELINE` names: both run and serve the
//! same loads in turn, second by second, so that a slow moment of the machine hits both alike. With the daemon's own binary
//! it shows how exact that is on a machine.

use std::path::{Path, PathBuf};

use anyhow::Result;
use serde_json::json;

use super::{GIB, Options};
use crate::numbers::{median, quantile};
use crate::report::{Report, print_table};
use crate::world::daemon::Daemon;
use crate::world::fio::Load;
use crate::world::folder::Folder;

/// Environment variable that names the earlier daemon.
const BASELINE: &str = "WEIR_BASELINE";
/// Most processor time per request, of that of the earlier daemon: what differs between two runs of one daemon.
const PROCESSOR_MOST: f64 = 1.03;
/// Rounds, and seconds of each load, at full length and in a quick run: what differs between two daemons that were started is
/// more than what differs between two seconds of one.
const ROUNDS: (usize, u64) = (16, 1);
const ROUNDS_QUICK: (usize, u64) = (2, 1);
/// Whose turn it is within a round, for each load: the daemon under test (0) and the earlier one (1) as early, and as late.
const TURNS: [usize; 4] = [0, 1, 1, 0];

/// What is read and written of a volume: little, so that what differs is the daemons and not the way to memory.
const SIZE_BYTES: u64 = GIB / 32;
/// The core of the client, and that of both daemons. Where the system places them at will, it changes between two cores and
/// one for both from second to second, and a request costs half as much again in one of the two.
const CORES: (usize, usize) = (0, 1);

/// One way of loading a volume.
struct Workload {
    name: &'static str,
    copies: usize,
    pattern: &'static str,
    block_bytes: u64,
    depth: u32,
}

const fn workload(
    name: &'static str,
    copies: usize,
    (pattern, block_bytes, depth): (&'static str, u64, u32),
) -> Workload {
    Workload { name, copies, pattern, block_bytes, depth }
}

/// Those of `bench nbd`, and the random writes and reads of `bench replicas`.
const WORKLOADS: [Workload; 7] = [
    workload("4 KiB read QD1", 1, ("randread", 4096, 1)),
    workload("4 KiB write QD1", 1, ("randwrite", 4096, 1)),
    workload("4 KiB read QD32", 1, ("randread", 4096, 32)),
    workload("4 KiB write QD32", 1, ("randwrite", 4096, 32)),
    workload("128 KiB read QD16", 1, ("randread", 128 << 10, 16)),
    workload("three replicas: 4 KiB read QD32", 3, ("randread", 4096, 32)),
    workload("three replicas: 4 KiB write QD32", 3, ("randwrite", 4096, 32)),
];

/// Measures everything in memory, where the media cost least and the daemon shows most.
pub fn run(options: &Options) -> Result<Report> {
    let mut report = Report::new("baseline");
    let Some(baseline) = std::env::var_os(BASELINE).map(PathBuf::from) else {
        println!("{BASELINE} names no daemon to compare with: nothing is measured");
        return Ok(report);
    };
    let (rounds, seconds) = if options.is_quick { ROUNDS_QUICK } else { ROUNDS };
    let mut costs: Vec<[Vec<f64>; 2]> = vec![Default::default(); WORKLOADS.len()];
    for round in 0..rounds {
        let measured = measure([&options.binary, &baseline], (round, seconds))?;
        for (costs, measured) in costs.iter_mut().zip(measured) {
            costs.iter_mut().zip(measured).for_each(|(costs, cost)| costs.push(cost));
        }
    }
    let judged = WORKLOADS.iter().zip(costs).map(|(workload, costs)| judge(workload, costs, &mut report));
    let rows = judged.collect::<Vec<_>>();
    print_table(&["load", "processor us per request", "before", "ratio", "half of the rounds"], rows);
    Ok(report)
}

/// Processor time per request of each load, in microseconds, of two daemons that are started for it: where its memory
/// happens to lie makes a difference of a tenth or more, which is another one in each round. Both run at once and take
/// turns second by second, so that what slows the machine for some seconds hits both alike; who waits takes next to nothing.
fn measure(binaries: [&Path; 2], (round, seconds): (usize, u64)) -> Result<Vec<[f64; 2]>> {
    let folders = [Folder::in_memory("weir-bench-now")?, Folder::in_memory("weir-bench-before")?];
    let start_one = |which: usize| start(binaries[which], &folders[which]);
    // The daemon started first seemed to cost more for large reads, also where both were the same one; why is not known.
    let mut daemons = match round % 2 {
        0 => [start_one(0)?, start_one(1)?],
        _ => {
            let before = start_one(1)?;
            [start_one(0)?, before]
        }
    };
    let mut costs = |workload: &Workload| -> Result<[f64; 2]> {
        let mut spent = [Spent::default(); 2];
        for turn in TURNS {
            // Whoever comes first in one round comes second in the next.
            let which = (turn + round) % 2;
            let load = Load {
                pattern: workload.pattern,
                block_bytes: workload.block_bytes,
                depth: workload.depth,
                seconds,
                extra: vec![format!("--cpus_allowed={}", CORES.0)],
                ..Load::new("load", daemons[which].volume(&volume_of(workload)), SIZE_BYTES)
            };
            spent[which].add(&mut daemons[which], &folders[which], &load)?;
        }
        Ok(spent.map(|spent| spent.us_per_request()))
    };
    WORKLOADS.iter().map(&mut costs).collect()
}

fn volume_of(workload: &Workload) -> String {
    format!("volume{}", workload.copies)
}

/// A daemon with a volume of one copy and one of three, both filled.
fn start(binary: &Path, folder: &Folder) -> Result<Daemon> {
    let path = folder.path();
    let daemon = Daemon::start_on_core(CORES.1, binary, &path.join("state"))?;
    for number in 0..3 {
        let drive = path.join(format!("drive{number}"));
        std::fs::create_dir_all(&drive)?;
        daemon.run(&format!("drive add {} --class high --no-measurement", drive.display()))?;
    }
    daemon.run("volume create volume1 --size 1GiB")?;
    daemon.run("volume create volume3 --size 1GiB --io-priority high --repl 3")?;
    for volume in ["volume1", "volume3"] {
        Load::fill("fill", daemon.volume(volume), SIZE_BYTES).run(folder.path())?;
    }
    Ok(daemon)
}

/// The row of a load in the table, of what it cost in each round now and before.
fn judge(workload: &Workload, costs: [Vec<f64>; 2], report: &mut Report) -> Vec<String> {
    // Within rounds: what slows a whole round cancels out.
    let ratios: Vec<f64> = costs[0].iter().zip(&costs[1]).map(|(now, before)| now / before).collect();
    let (low, high) = (quantile(&ratios, 0.25), quantile(&ratios, 0.75));
    let ratio = median(ratios);
    let ([now_us, before_us], name) = (costs.map(median), workload.name);
    report.row(
        json!({"workload": name, "now_us": now_us, "before_us": before_us, "ratio_quartiles": [low, high]}),
    );
    let what = format!("{name}: at most {PROCESSOR_MOST} of the processor time of before");
    report.claim(what, format!("{ratio:.3}"), ratio <= PROCESSOR_MOST);
    let half = format!("{low:.3} to {high:.3}");
    vec![name.to_owned(), format!("{now_us:.2}"), format!("{before_us:.2}"), format!("{ratio:.3}"), half]
}

/// What a daemon spent on a load.
#[derive(Clone, Copy, Default)]
struct Spent {
    processor_seconds: f64,
    requests: u64,
}

impl Spent {
    fn add(&mut self, daemon: &mut Daemon, folder: &Folder, load: &Load) -> Result<()> {
        let before = daemon.process().processor_seconds()?;
        self.requests += load.run(folder.path())?.requests;
        self.processor_seconds += daemon.process().processor_seconds()? - before;
        Ok(())
    }

    fn us_per_request(self) -> f64 {
        self.processor_seconds * 1e6 / self.requests.max(1) as f64
    }
}
