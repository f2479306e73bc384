//! Baseline bench: processor time per request, and of an idle daemon, compared with an earlier daemon whose binary
//! `WEIR_BASELINE` names.
//!
//! Both daemons run and serve the same load in turn, some milliseconds each. A slow moment of the machine
//! therefore hits both alike. With the daemon's own binary as baseline, the bench shows its exactness on a
//! machine.

use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;

use super::{BASELINE, CORES, GIB, Options};
use crate::numbers::{median, quantile};
use crate::report::{Report, print_table};
use crate::world::daemon::Daemon;
use crate::world::fio::{Load, Running};
use crate::world::folder::Folder;

/// Largest processor time per request, as a fraction of that of the earlier daemon. The margin is the
/// difference between two runs of one daemon.
const PROCESSOR_MOST: f64 = 1.03;
/// Largest processor time of an idle daemon, as a fraction of that of the earlier one. Checks of once in some seconds fall
/// into one measurement and not into another.
const IDLE_MOST: f64 = 1.1;
/// How long both daemons have nothing to do in each round.
const IDLE: Duration = Duration::from_secs(5);
/// Rounds at full length and in a quick run. Two started daemons differ more than two moments of one daemon.
const ROUNDS: usize = 30;
const ROUNDS_QUICK: usize = 2;
/// Length of one load's turn, and turns of both loads together in a round. With turns of a second, a daemon
/// compared with itself had ratios from 0.95 to 1.06 in half of the rounds.
const TURN: Duration = Duration::from_millis(50);
const TURNS: usize = 40;

/// How often a load is tried, and what fio says when a pause has ended it.
const ATTEMPTS_MAX: usize = 3;
const INTERRUPTED: &str = "Interrupted system call";

/// Bytes of the volume that are read and written: few, so that the daemons differ and not the path to memory.
const SIZE_BYTES: u64 = GIB / 32;

/// Load on a volume.
struct Workload {
    name: &'static str,
    volume: &'static str,
    pattern: &'static str,
    block_bytes: u64,
    depth: u32,
}

const fn workload(
    name: &'static str,
    volume: &'static str,
    (pattern, block_bytes, depth): (&'static str, u64, u32),
) -> Workload {
    Workload { name, volume, pattern, block_bytes, depth }
}

/// Volume of one replica, without a limit.
const PLAIN: &str = "plain";
/// Volume of three replicas, without a limit.
const MIRRORED: &str = "mirrored";
/// Volume of one replica that holds requests back, and its limit.
const LIMITED: &str = "limited";
const LIMIT: &str = "50000IOPS";

/// Workloads of `bench nbd`, the random writes and reads of `bench replicas`, and requests of `bench ceiling`
/// that wait for the highest limit.
const WORKLOADS: [Workload; 10] = [
    workload("4 KiB read QD1", PLAIN, ("randread", 4096, 1)),
    workload("4 KiB write QD1", PLAIN, ("randwrite", 4096, 1)),
    workload("4 KiB read QD32", PLAIN, ("randread", 4096, 32)),
    workload("4 KiB write QD32", PLAIN, ("randwrite", 4096, 32)),
    workload("128 KiB read QD16", PLAIN, ("randread", 128 << 10, 16)),
    workload("three replicas: 4 KiB read QD32", MIRRORED, ("randread", 4096, 32)),
    workload("three replicas: 4 KiB write QD32", MIRRORED, ("randwrite", 4096, 32)),
    workload("held back: 4 KiB read QD32", LIMITED, ("randread", 4096, 32)),
    workload("held back: 4 KiB write QD32", LIMITED, ("randwrite", 4096, 32)),
    workload("held back: 4 KiB write QD256", LIMITED, ("randwrite", 4096, 256)),
];

/// Measures everything in memory, where the drive costs least and the daemon's part is largest.
pub fn run(options: &Options) -> Result<Report> {
    let mut report = Report::new("baseline");
    let Some(baseline) = std::env::var_os(BASELINE).map(PathBuf::from) else {
        println!("{BASELINE} names no daemon to compare with: nothing is measured");
        return Ok(report);
    };
    let rounds = if options.is_quick { ROUNDS_QUICK } else { ROUNDS };
    let mut costs: Vec<[Vec<f64>; 2]> = vec![Default::default(); WORKLOADS.len() + 1];
    for round in 0..rounds {
        let measured = measure([&options.binary, &baseline], round)?;
        for (costs, measured) in costs.iter_mut().zip(measured) {
            costs.iter_mut().zip(measured).for_each(|(costs, cost)| costs.push(cost));
        }
    }
    let loads = WORKLOADS.iter().map(|workload| (workload.name, PROCESSOR_MOST));
    let rows = loads.chain([("idle for a second", IDLE_MOST)]);
    let judged: Vec<_> = rows.zip(costs).map(|(row, costs)| judge(row, costs, &mut report)).collect();
    print_table(&["load", "processor us per request", "before", "ratio", "half of the rounds"], judged);
    Ok(report)
}

/// Returns the processor time per request of each load, and of an idle second, in microseconds, for two daemons.
///
/// Both daemons are started for this round. Their placement in memory causes a difference of a tenth or more,
/// which changes from round to round.
fn measure(binaries: [&Path; 2], round: usize) -> Result<Vec<[f64; 2]>> {
    let folders = [Folder::in_memory("weir-bench-now")?, Folder::in_memory("weir-bench-before")?];
    let start_one = |which: usize| start(binaries[which], &folders[which]);
    // The daemon started first seemed to cost more for large reads, also if both had the same binary. The
    // reason is unknown.
    let mut daemons = match round % 2 {
        0 => [start_one(0)?, start_one(1)?],
        _ => {
            let before = start_one(1)?;
            [start_one(0)?, before]
        }
    };
    let loads = WORKLOADS.iter().map(|workload| compare_patiently(workload, &mut daemons, &folders, round));
    let mut costs = loads.collect::<Result<Vec<_>>>()?;
    costs.push(compare_idle(&mut daemons)?);
    Ok(costs)
}

/// Returns the processor time of both daemons in a second without requests, in microseconds.
fn compare_idle(daemons: &mut [Daemon; 2]) -> Result<[f64; 2]> {
    let before = processor_times(daemons)?;
    sleep(IDLE);
    let after = processor_times(daemons)?;
    Ok([0, 1].map(|which| (after[which] - before[which]).as_secs_f64() * 1e6 / IDLE.as_secs_f64()))
}

/// Compares, and again if a load ended by itself: the end of a pause sometimes interrupts a wait of fio, which takes that
/// for an error.
fn compare_patiently(
    workload: &Workload,
    daemons: &mut [Daemon; 2],
    folders: &[Folder; 2],
    round: usize,
) -> Result<[f64; 2]> {
    for _ in 1..ATTEMPTS_MAX {
        match compare(workload, daemons, folders, round) {
            Err(error) if format!("{error:#}").contains(INTERRUPTED) => println!("{error:#}: once more"),
            compared => return compared,
        }
    }
    compare(workload, daemons, folders, round)
}

/// Returns the processor time per request of both daemons, in microseconds. Each has a load, and one load is
/// paused while the other runs.
fn compare(
    workload: &Workload,
    daemons: &mut [Daemon; 2],
    folders: &[Folder; 2],
    round: usize,
) -> Result<[f64; 2]> {
    let before = processor_times(daemons)?;
    let start = |which: usize| load(workload, &daemons[which]).start(folders[which].path());
    let mut loads = [start(0)?, start(1)?];
    take_turns(&mut loads, round);
    let mut requests = [0; 2];
    for (load, requests) in loads.into_iter().zip(&mut requests) {
        let outcome = load.finish()?;
        ensure!(outcome.error == 0, "fio failed with error {}", outcome.error);
        *requests = outcome.requests.max(1);
    }
    let after = processor_times(daemons)?;
    Ok([0, 1].map(|which| (after[which] - before[which]).as_secs_f64() * 1e6 / requests[which] as f64))
}

fn processor_times(daemons: &mut [Daemon; 2]) -> Result<[Duration; 2]> {
    let [now, before] = daemons;
    Ok([now.process().processor_time()?, before.process().processor_time()?])
}

/// Lets one load run at a time. The load that begins changes with each round. At the end both loads are told
/// to stop.
fn take_turns(loads: &mut [Running; 2], round: usize) {
    for turn in 0..TURNS {
        let (mine, other) = ((round + turn) % 2, (round + turn + 1) % 2);
        loads[other].pause();
        loads[mine].resume();
        sleep(TURN);
    }
    for load in loads {
        load.stop();
        load.resume();
    }
}

/// Returns a load that runs until it is stopped.
fn load(workload: &Workload, daemon: &Daemon) -> Load {
    Load {
        pattern: workload.pattern,
        block_bytes: workload.block_bytes,
        depth: workload.depth,
        seconds: 3600,
        extra: vec![CORES.client_option()],
        ..Load::new("load", daemon.volume(workload.volume), SIZE_BYTES)
    }
}

/// Starts a daemon with the volumes, all filled.
fn start(binary: &Path, folder: &Folder) -> Result<Daemon> {
    let path = folder.path();
    let daemon = Daemon::start_on_core(CORES.daemon, binary, &path.join("state"))?;
    for number in 0..3 {
        let drive = path.join(format!("drive{number}"));
        std::fs::create_dir_all(&drive)?;
        daemon.run(&format!("drive add {} --class high --no-measurement", drive.display()))?;
    }
    for volume in [PLAIN, LIMITED] {
        daemon.run(&format!("volume create {volume} --size 1GiB"))?;
    }
    daemon.run(&format!("volume create {MIRRORED} --size 1GiB --io-priority high --repl 3"))?;
    for volume in [PLAIN, LIMITED, MIRRORED] {
        Load::fill("fill", daemon.volume(volume), SIZE_BYTES).run(folder.path())?;
    }
    daemon.run(&format!("qos policy-group create {LIMITED} -max-throughput {LIMIT}"))?;
    daemon.run(&format!("volume modify -volume {LIMITED} -qos-policy-group {LIMITED}"))?;
    Ok(daemon)
}

/// Returns the table row of a load, from its costs in each round now and before.
fn judge((name, most): (&str, f64), costs: [Vec<f64>; 2], report: &mut Report) -> Vec<String> {
    // Ratios are taken within rounds: a slowdown of a whole round cancels out.
    let ratios: Vec<f64> = costs[0].iter().zip(&costs[1]).map(|(now, before)| now / before).collect();
    let (low, high) = (quantile(&ratios, 0.25), quantile(&ratios, 0.75));
    let ratio = median(ratios);
    let [now_us, before_us] = costs.map(median);
    report.row(
        json!({"workload": name, "now_us": now_us, "before_us": before_us, "ratio_quartiles": [low, high]}),
    );
    let what = format!("{name}: at most {most} of the processor time of before");
    report.claim(what, format!("{ratio:.3}"), ratio <= most);
    let half = format!("{low:.3} to {high:.3}");
    vec![name.to_owned(), format!("{now_us:.2}"), format!("{before_us:.2}"), format!("{ratio:.3}"), half]
}
