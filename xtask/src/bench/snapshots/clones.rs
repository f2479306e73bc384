//! Clones bench: thirty developers, each with a clone of one volume, together under one policy.
//!
//! The bench measures the rate and latency left to the parent volume. The parent runs flat out, and at half
//! of that rate, so that there is room for the clones. For comparison, thirty clients use another daemon with
//! volumes in memory. They show the loss that only the clients' processor use causes.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use serde_json::json;

use super::{GIB, Options, Stage};
use crate::numbers::median;
use crate::report::{Report, print_table};
use crate::world::daemon::Daemon;
use crate::world::fio::{Load, Outcome, Running};
use crate::world::folder::Folder;

/// Number of developers, each with a clone, and their common limit.
const CLONES: u32 = 30;
const CLONES_LIMIT: &str = "3000IOPS";
/// Time until thirty clients have started, which takes all processors of a small machine.
const CLONES_BEGIN: Duration = Duration::from_secs(3);
/// Largest 99th percentile with clones, as a multiple of the one without.
const P99_RATIO_MAX: f64 = 1.2;

/// Parent volume with its clones, and the other daemon with volumes of its own.
struct Scene<'scene> {
    stage: &'scene Stage,
    strangers: &'scene Daemon,
    written: u64,
    seconds: u64,
}

/// Neighbours of the parent volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beside {
    Nobody,
    Clones,
    Strangers,
}

/// Outcomes of a load by neighbour, and the total rates of the clones.
#[derive(Default)]
struct Comparison {
    alone: Vec<Outcome>,
    clones: Vec<Outcome>,
    strangers: Vec<Outcome>,
    clones_iops: Vec<f64>,
}

/// Measures the parent flat out and at half of its rate, with each neighbour.
pub fn work_on_clones(options: &Options, written: u64, report: &mut Report) -> Result<()> {
    let (rounds, seconds) = if options.is_quick { (1, 4) } else { (5, 8) };
    let stage = Stage::new(options)?;
    stage.create("data", 100, written)?;
    limit_together(&stage.daemon)?;
    for number in 0..CLONES {
        stage.daemon.run(&format!("volume clone data dev{number} --qos-policy-group dev"))?;
    }
    let memory = Folder::in_memory("weir-bench-snapshots")?;
    let strangers = Daemon::start(&options.binary, &memory.path().join("state"), &[])?;
    limit_together(&strangers)?;
    for number in 0..CLONES {
        strangers.run(&format!("volume create dev{number} --size 1 --qos-policy-group dev"))?;
    }
    let scene = Scene { stage: &stage, strangers: &strangers, written, seconds };
    let flat_out = scene.measure(None, rounds)?;
    let half = Comparison::of(&flat_out.alone, |outcome| outcome.iops) / 2.0;
    let halved = scene.measure(Some(half as u64), rounds)?;
    let rows = flat_out.rows("flat out").into_iter().chain(halved.rows("at half of that"));
    print_table(&["parent", "beside", "IOPS", "p50 µs", "p99 µs"], rows);
    flat_out.claim("flat out", report);
    halved.claim("at half of that", report);
    Ok(())
}

fn limit_together(daemon: &Daemon) -> Result<()> {
    let limit = format!("qos policy-group create dev -max-throughput {CLONES_LIMIT} -is-shared true");
    daemon.run(&limit).map(drop)
}

impl Scene<'_> {
    /// Loads the parent at a rate per second, or as fast as it can, with each neighbour in turn.
    fn measure(&self, rate: Option<u64>, rounds: usize) -> Result<Comparison> {
        let mut course = Comparison::default();
        for _ in 0..rounds {
            course.alone.push(self.load(rate, Beside::Nobody)?.0);
            let (outcome, clones_iops) = self.load(rate, Beside::Clones)?;
            course.clones.push(outcome);
            course.clones_iops.push(clones_iops);
            course.strangers.push(self.load(rate, Beside::Strangers)?.0);
        }
        Ok(course)
    }

    /// Returns the outcome of the parent, and the total operations per second of its neighbours.
    fn load(&self, rate: Option<u64>, beside: Beside) -> Result<(Outcome, f64)> {
        let folder = self.stage.folder.path();
        let running = match beside {
            Beside::Nobody => Vec::new(),
            Beside::Clones => self.start_all(&self.stage.daemon, self.written, folder)?,
            Beside::Strangers => self.start_all(self.strangers, GIB / 4, folder)?,
        };
        if beside != Beside::Nobody {
            std::thread::sleep(CLONES_BEGIN);
        }
        let load = Load { pattern: "randrw", depth: 4, ..self.stage.load("data", self.written) };
        let mut load = Load { seconds: self.seconds, ..load };
        // Reads and writes have half of the rate each. They come at random instants, as from many users.
        let each = rate.map(|rate| rate / 2);
        load.extra.extend(each.map(|each| format!("--rate_iops={each},{each}")));
        load.extra.extend(each.map(|_| "--rate_process=poisson".to_owned()));
        let outcome = load.run(folder)?;
        let others = running.into_iter().map(|load| load.finish()).collect::<Result<Vec<_>>>()?;
        Ok((outcome, others.iter().map(|other| other.iops).sum()))
    }

    fn start_all(&self, daemon: &Daemon, size_bytes: u64, folder: &Path) -> Result<Vec<Running>> {
        let start = |number: u32| {
            let name = format!("dev{number}");
            let load = Load::new(name.clone(), daemon.volume(&name), size_bytes);
            let seconds = self.seconds + CLONES_BEGIN.as_secs() + 1;
            Load { pattern: "randrw", depth: 4, seconds, ..load }.start(folder)
        };
        (0..CLONES).map(start).collect()
    }
}

impl Comparison {
    fn of(outcomes: &[Outcome], what: fn(&Outcome) -> f64) -> f64 {
        median(outcomes.iter().map(what))
    }

    fn p99_us(outcomes: &[Outcome]) -> f64 {
        Comparison::of(outcomes, |outcome| outcome.p99_us)
    }

    fn situations(&self) -> [(&'static str, &[Outcome]); 3] {
        [("nobody", &self.alone), ("its clones", &self.clones), ("others in memory", &self.strangers)]
    }

    fn rows(&self, load: &str) -> [Vec<String>; 3] {
        self.situations().map(|(beside, outcomes)| {
            vec![
                load.to_owned(),
                beside.to_owned(),
                format!("{:.0}", Comparison::of(outcomes, |outcome| outcome.iops)),
                format!("{:.1}", Comparison::of(outcomes, |outcome| outcome.p50_us)),
                format!("{:.1}", Comparison::p99_us(outcomes)),
            ]
        })
    }

    fn claim(&self, load: &str, report: &mut Report) {
        let p99_us = self.situations().map(|(beside, outcomes)| (beside, Comparison::p99_us(outcomes)));
        let together = median(self.clones_iops.iter().copied());
        report.row(json!({"parent": load, "p99_us": p99_us, "clones_iops": together}));
        let alone_us = Comparison::p99_us(&self.alone).max(1.0);
        let ratio = |outcomes: &[Outcome]| Comparison::p99_us(outcomes) / alone_us;
        let (clones, strangers) = (ratio(&self.clones), ratio(&self.strangers));
        let per_cent = |ratio: f64| format!("{:+.1} %", (ratio - 1.0) * 100.0);
        let what = format!(
            "{CLONES} clones under one policy of {CLONES_LIMIT} leave the 99th percentile of their parent, {load}, \
             within 20 %"
        );
        let told = format!("{}, {} beside others in memory", per_cent(clones), per_cent(strangers));
        report.claim(what, told, clones <= P99_RATIO_MAX);
        let what = format!("and get their {CLONES_LIMIT} together");
        report.claim(what, format!("{together:.0}"), (2850.0..=3150.0).contains(&together));
    }
}
