//! Demo (`cargo xtask demo`): volumes find their requested class, and a noisy neighbour is limited, first by
//! fairness and then by policies that change online.
//!
//! The first and the last act have daemons of their own. In the second act, fio uses three volumes on one drive, and one of
//! them turns noisy. Ceilings are set, raised and shared, and a volume whose policy follows its size is
//! resized. In the last act, containers use volumes of three classes.
//!
//! The drives are emulated in memory and slower than any machine. The volumes therefore share the drives, and
//! not the cores and the disk of the machine. All figures come from fio's own logs.

mod chart;
mod claims;
mod classes;
mod containers;
mod phases;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::arguments::Arguments;
use crate::report::{Report, grouped, print_table};
use crate::repository::repository_root;
use crate::world::daemon::Daemon;
use crate::world::fio::{Completion, Load, Log, Running};
use crate::world::folder::Folder;
use crate::world::{http, now_ms, tools};
use claims::Counted;
use phases::{PHASES, Phase};

/// Names of the volumes in the tenant.
const VOLUMES: [&str; 3] = ["vol1", "vol2", "vol3"];
/// Tenant that owns the volumes.
const TENANT: &str = "svm01";
/// Bytes of each volume that fio uses: few, because the drive is in memory.
const REGION_BYTES: u64 = 16 << 20;
/// IOPS of the drive, shared by three volumes. The document's filesystem delivers this rate to one volume.
/// The document's limits can be reached beside two other volumes, and a busy machine delivers this rate too.
const DRIVE_IOPS: u64 = 7000;
/// Time for a change to settle before counting begins, in seconds.
const SETTLE_SECONDS: u64 = 2;
/// Longest time in which a phase waits for requests that passed the ceilings of the phase before, in seconds.
/// A drive slower than the ceilings has a long queue.
const DRAIN_SECONDS_MAX: u64 = 15;
/// Unanswered requests past the ceilings that count as no queue: they only keep the drive busy.
const LET_THROUGH_FEW: u64 = 64;
/// Time over which each phase is counted, in seconds.
const COUNT_SECONDS: u64 = 8;
/// Upper bound of the whole run, in seconds. fio is stopped long before.
const LOAD_SECONDS: u64 = 600;

/// Counted time of a phase, in milliseconds since 1970.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    begin_ms: u64,
    from_ms: u64,
    to_ms: u64,
    /// Requests of each volume that had passed the ceilings before and were not answered yet.
    let_through: [u64; 3],
}

/// Completions of each volume.
type Logs = [Vec<Completion>; 3];

/// Demo in progress.
struct Demo {
    daemon: Daemon,
    logs_folder: Folder,
    running: Vec<(usize, Running)>,
    logs: Logs,
}

/// Runs the demo.
pub fn run(mut arguments: Arguments) -> Result<()> {
    let is_kept = arguments.flag("--keep");
    let output = arguments.option("--output")?.map(PathBuf::from);
    let disk = arguments.option("--disk")?.map(PathBuf::from);
    arguments.finish()?;
    tools::require(&["fio", "setpriv"])?;
    let root = repository_root();
    let binary = tools::weir_binary(&root)?;
    let output = output.unwrap_or_else(|| root.join("demo-output"));
    std::fs::create_dir_all(&output)?;
    let mut folder = match &disk {
        Some(disk) => Folder::new(disk, "weir-demo")?,
        None => Folder::in_memory("weir-demo")?,
    };
    let logs_folder = Folder::on_disk(disk.as_deref(), &root, "weir-demo-logs")?;
    let found = classes::play(&binary)?;
    let state = folder.path().join("state");
    println!("== a noisy neighbour, and what policies do about it");
    println!("$ weir serve --state {}", state.display());
    let start = if is_kept { Daemon::start_detached } else { Daemon::start };
    let mut demo = Demo::new(start(&binary, &state, &[])?, logs_folder);
    let emulated = folder.path().join("drive");
    std::fs::create_dir_all(&emulated)?;
    let windows = demo.play(&emulated)?;
    let counted = Counted { logs: &demo.logs, windows: &windows };
    print_rates(&counted);
    let chart = output.join("timeline.svg");
    std::fs::write(&chart, chart::draw(&demo.logs, &windows, &PHASES))?;
    println!("timeline: {}\n", chart.display());
    // What the acts before have shown counts also if the last one fails.
    let contained = containers::play(&binary);
    let mut report = report(&found, &counted);
    contained.iter().flatten().for_each(|found| containers::judge(found, &mut report));
    let verdict = report.finish(Some(&output.join("demo.json"))).and(contained.map(drop));
    if is_kept {
        demo.leave_running(&binary);
        folder.keep();
    } else {
        demo.daemon.process().stop()?;
    }
    verdict
}

impl Demo {
    fn new(mut daemon: Daemon, logs_folder: Folder) -> Demo {
        print!("{}", daemon.process().output());
        println!("$ export WEIR_SERVER={}", daemon.server());
        daemon.be_talkative();
        Demo { daemon, logs_folder, running: Vec::new(), logs: Logs::default() }
    }

    /// Runs all phases in turn. Returns the counted time of each.
    fn play(&mut self, emulated: &Path) -> Result<Vec<Window>> {
        println!("# an emulated drive that three volumes share");
        let emulation = format!("iops={DRIVE_IOPS},latency=200us");
        let add = format!(
            "drive add {} --name emulated --emulate {emulation} --no-measurement",
            emulated.display()
        );
        self.daemon.run(&add)?;
        self.daemon.run(&format!("tenant create {TENANT}"))?;
        for volume in VOLUMES {
            self.daemon
                .run(&format!("volume create {volume} --size 1 --tenant {TENANT} --drive emulated"))?;
        }
        println!("# fio writes a part of each volume once, so that all of them stand on written space");
        for (index, volume) in VOLUMES.iter().enumerate() {
            let fill = Load::fill(format!("fill-{volume}"), self.target(index), REGION_BYTES);
            fill.run(self.logs_folder.path())?;
        }
        let mut windows = Vec::new();
        for (number, phase) in PHASES.iter().enumerate() {
            println!("\n== phase {}: {}", number + 1, phase.title);
            windows.push(self.play_phase(phase)?);
        }
        self.wind_up()?;
        Ok(windows)
    }

    fn play_phase(&mut self, phase: &Phase) -> Result<Window> {
        let begin_ms = now_ms();
        for (volume, jobs) in phase.loads {
            self.stop_load(*volume)?;
            self.start_load(*volume, *jobs)?;
        }
        for line in phase.commands {
            self.daemon.run(line)?;
        }
        std::thread::sleep(Duration::from_secs(SETTLE_SECONDS));
        let let_through = self.drain(phase)?;
        let from_ms = now_ms();
        std::thread::sleep(Duration::from_secs(COUNT_SECONDS));
        let to_ms = now_ms();
        self.daemon.run("qos statistics volume performance show")?;
        Ok(Window { begin_ms, from_ms, to_ms, let_through })
    }

    /// Waits until the drive has served the requests that limited volumes had in its queue. Returns the
    /// remaining ones.
    fn drain(&self, phase: &Phase) -> Result<[u64; 3]> {
        let begun = Instant::now();
        loop {
            let let_through = self.let_through()?;
            let is_few = |volume: &&usize| let_through[**volume] <= LET_THROUGH_FEW;
            if phase.limited.iter().all(|volume| is_few(&volume))
                || begun.elapsed().as_secs() >= DRAIN_SECONDS_MAX
            {
                return Ok(let_through);
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Returns the unanswered requests of each volume that no ceiling holds.
    fn let_through(&self) -> Result<[u64; 3]> {
        let (text, _) = http::get(&self.daemon.socket(), "/v1/statistics/volumes")?;
        let sample: Value = serde_json::from_str(&text)?;
        let samples = sample["volumes"].as_array().context("the statistics list no volumes")?;
        let mut let_through = [0; 3];
        for (name, count) in VOLUMES.iter().zip(&mut let_through) {
            let sample = samples.iter().find(|sample| sample["volume"] == *name);
            let sample = sample.with_context(|| format!("no statistics of {name}"))?;
            let number =
                |field: &str| sample[field].as_u64().with_context(|| format!("{name} has no {field}"));
            *count = number("queue_depth")?.saturating_sub(number("queue_depth_delayed")?);
        }
        Ok(let_through)
    }

    fn target(&self, volume: usize) -> crate::world::fio::Target {
        self.daemon.volume(&format!("{TENANT}/{}", VOLUMES[volume]))
    }

    /// Starts the document's load. Clients run at lower priority than the server, since they usually run on
    /// other machines.
    fn start_load(&mut self, volume: usize, jobs: u32) -> Result<()> {
        let name = format!("{}-{jobs}-jobs", VOLUMES[volume]);
        println!("# fio on {}: {jobs} jobs, --rw=randrw --bs=4k --iodepth=256", VOLUMES[volume]);
        let load = Load {
            pattern: "randrw",
            depth: 256,
            jobs,
            seconds: LOAD_SECONDS,
            log: Log::SinceEpoch,
            extra: vec!["--nice=10".to_owned()],
            ..Load::new(name, self.target(volume), REGION_BYTES)
        };
        self.running.push((volume, load.start(self.logs_folder.path())?));
        Ok(())
    }

    /// Ends the load on a volume, if there is one, and keeps its log.
    fn stop_load(&mut self, volume: usize) -> Result<()> {
        let (ending, staying) =
            std::mem::take(&mut self.running).into_iter().partition(|(of, _)| *of == volume);
        self.running = staying;
        self.collect(ending)
    }

    fn collect(&mut self, mut ending: Vec<(usize, Running)>) -> Result<()> {
        ending.iter_mut().for_each(|(_, running)| running.stop());
        for (volume, running) in ending {
            let outcome = running.finish()?;
            anyhow::ensure!(
                outcome.error == 0,
                "fio failed on {} with error {}",
                VOLUMES[volume],
                outcome.error
            );
            self.logs[volume].extend(outcome.completions);
        }
        Ok(())
    }

    fn wind_up(&mut self) -> Result<()> {
        println!("\n== the end: policies are released, so that what still waits completes");
        self.daemon.run(&format!("volume modify -volume vol1 -vserver {TENANT} -qos-policy-group none"))?;
        self.daemon
            .run(&format!("volume modify -volume vol2 -vserver {TENANT} -qos-adaptive-policy-group none"))?;
        let ending = std::mem::take(&mut self.running);
        self.collect(ending)
    }

    fn leave_running(mut self, binary: &Path) {
        let (server, id) = (self.daemon.server(), self.daemon.process().id());
        println!("\nThe daemon keeps running. To reach it:\n  export WEIR_SERVER={server}");
        println!("  {} volume list", binary.display());
        println!("To end it:\n  kill {id}");
        self.daemon.process().keep();
    }
}

fn print_rates(counted: &Counted<'_>) {
    println!("\nIOPS as fio counted them, over {COUNT_SECONDS} s of each phase:\n");
    let rows = PHASES.iter().enumerate().map(|(index, phase)| {
        let name = format!("{}. {}", index + 1, phase.title);
        std::iter::once(name).chain(counted.rates(index).map(grouped)).collect()
    });
    print_table(&["phase", "vol1", "vol2", "vol3"], rows);
}

fn report(found: &[classes::Found], counted: &Counted<'_>) -> Report {
    let mut report = Report::new("demo");
    classes::judge(found, &mut report);
    for (index, phase) in PHASES.iter().enumerate() {
        let [vol1, vol2, vol3] = counted.rates(index);
        report.row(json!({"phase": phase.title, "vol1": vol1, "vol2": vol2, "vol3": vol3}));
    }
    claims::judge(counted, &mut report);
    report
}
