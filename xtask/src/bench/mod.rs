//! Benches (`cargo xtask bench NAME`): measurements of Weir and its peers, in turn in one run, as ratios.

mod attach;
mod baseline;
mod burst;
mod ceiling;
mod classes;
mod combination;
mod containers;
mod hang;
mod hybrid;
mod in_turn;
mod isolation;
mod many;
mod modify;
mod moves;
mod nbd;
mod neighbour;
mod peers;
mod profiles;
mod replicas;
mod scheduler;
mod shared;
mod snapshots;
mod throttle;

use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};

use crate::arguments::Arguments;
use crate::report::Report;
use crate::repository::repository_root;
use crate::world::daemon::Daemon;
use crate::world::fio::Load;
use crate::world::folder::Folder;
use crate::world::tools;

/// Bytes of one gibibyte.
const GIB: u64 = 1 << 30;
/// Bytes of one mebibyte.
const MIB: u64 = 1 << 20;
/// Longest time until journals are empty, in seconds.
const DRAIN_SECONDS_MAX: u64 = 600;
/// Cores of the two sides of a comparison of daemons.
///
/// If the kernel places the threads, it switches every few seconds between two cores and one for both. A
/// request costs half as much again in one of the two cases.
const CORES: Cores = Cores { client: 0, daemon: 1 };
/// Ceilings that nothing reaches.
const WIDE: &str = "900000000IOPS,900GB/s";

/// The core of the client, and the core of the daemon.
struct Cores {
    client: usize,
    daemon: usize,
}

impl Cores {
    /// fio's option that keeps a client on its core.
    fn client_option(&self) -> String {
        format!("--cpus_allowed={}", self.client)
    }
}

/// Environment variable that names the binary of an earlier daemon.
const BASELINE: &str = "WEIR_BASELINE";

type Bench = fn(&Options) -> Result<Report>;

const BENCHES: [(&str, Bench); 20] = [
    ("nbd", nbd::run),
    ("ceiling", ceiling::run),
    ("shared", shared::run),
    ("modify", modify::run),
    ("neighbour", neighbour::run),
    ("many", many::run),
    ("hang", hang::run),
    ("burst", burst::run),
    ("scheduler", scheduler::run),
    ("isolation", isolation::run),
    ("classes", classes::run),
    ("containers", containers::run),
    ("throttle", throttle::run),
    ("attach", attach::run),
    ("hybrid", hybrid::run),
    ("profiles", profiles::run),
    ("replicas", replicas::run),
    ("baseline", baseline::run),
    ("snapshots", snapshots::run),
    ("moves", moves::run),
];

/// Options of all benches.
#[derive(Clone)]
pub struct Options {
    is_quick: bool,
    /// True if the bench is one round of a comparison with an earlier daemon. It then has no rounds of its
    /// own, and leaves out what the comparison does not judge: other servers, and policies without effect.
    is_in_turn: bool,
    /// The cells of a matrix that are measured, by their names in the claims; none for all.
    cells: Vec<String>,
    disk: Option<PathBuf>,
    binary: PathBuf,
}

impl Options {
    /// Returns the rounds of a bench that has `full` of them.
    fn rounds(&self, full: usize) -> usize {
        if self.is_quick || self.is_in_turn { 1 } else { full }
    }

    /// Returns true if a cell of a matrix is measured.
    fn wants(&self, cell: &str) -> bool {
        self.cells.is_empty() || self.cells.iter().any(|wanted| wanted == cell)
    }
}

/// Returns true if there is a bench of this name.
pub fn exists(name: &str) -> bool {
    BENCHES.iter().any(|(known, _)| *known == name)
}

/// Runs one bench, or all of them.
pub fn run(mut arguments: Arguments) -> Result<()> {
    let names = BENCHES.map(|(name, _)| name).join(", ");
    let name = arguments.word().with_context(|| format!("which bench: all, {names}"))?;
    let is_quick = arguments.flag("--quick");
    let json = arguments.option("--json")?.map(PathBuf::from);
    let disk = arguments.option("--disk")?.map(PathBuf::from);
    let cells: Vec<_> = arguments.option("--cell")?.into_iter().collect();
    let in_turn = arguments.option("--in-turn")?.map(|rounds| rounds.parse()).transpose();
    let in_turn: Option<usize> = in_turn.context("--in-turn needs a number of rounds")?;
    arguments.finish()?;
    let chosen: Vec<_> = BENCHES.iter().filter(|(known, _)| *known == name || name == "all").collect();
    if chosen.is_empty() {
        bail!("there is no bench '{name}'; there are all, {names}");
    }
    if json.is_some() && chosen.len() > 1 {
        bail!("--json goes with one bench at a time");
    }
    tools::require(&["fio", "nbdkit", "qemu-nbd", "qemu-storage-daemon", "setpriv"])?;
    let is_in_turn = in_turn.is_some();
    ensure!(cells.is_empty() || name == "ceiling", "only the bench 'ceiling' has cells");
    let options =
        Options { is_quick, is_in_turn, cells, disk, binary: tools::weir_binary(&repository_root())? };
    let mut verdict = Ok(());
    for (name, bench) in chosen {
        println!(
            "## bench {name}{}\n",
            if options.is_quick { " (quick: too short to judge by)" } else { "" }
        );
        let report = match in_turn {
            Some(rounds) => in_turn::run(name, *bench, &options, rounds),
            None => bench(&options),
        }?;
        verdict = verdict.and(report.finish(json.as_deref()));
        println!();
    }
    verdict
}

/// Waits until all write journals are empty. Destaging disturbs a measurement, and data in a journal is not
/// in the disks' files yet.
fn wait_for_empty_journals(daemon: &Daemon) -> Result<()> {
    let begun = std::time::Instant::now();
    loop {
        let list = daemon.json("journal list")?;
        let all = list["items"].as_array().map(Vec::as_slice).unwrap_or_default();
        if all.iter().all(|journal| journal["is_empty"] == true) {
            return Ok(());
        }
        ensure!(begun.elapsed().as_secs() < DRAIN_SECONDS_MAX, "journals do not get empty: {list}");
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
}

/// Daemon on a new folder in memory, for benches in which the drive must not matter.
struct Stage {
    daemon: Daemon,
    folder: Folder,
}

impl Stage {
    fn in_memory(options: &Options, name: &str) -> Result<Stage> {
        let folder = Folder::in_memory(&format!("weir-bench-{name}"))?;
        let daemon = Daemon::start(&options.binary, &folder.path().join("state"), &[])?;
        Ok(Stage { daemon, folder })
    }

    /// Creates a volume in the default tenant and writes all of it.
    fn create_volume(&self, name: &str, size_bytes: u64) -> Result<()> {
        self.daemon.run(&format!("volume create {name} --size {}MiB", size_bytes / MIB))?;
        let fill = Load::fill(format!("fill-{name}"), self.daemon.volume(name), size_bytes);
        fill.run(self.folder.path()).map(drop)
    }

    /// Returns a load on a volume, for the caller to change.
    fn load(&self, name: &str, volume: &str, size_bytes: u64) -> Load {
        Load::new(name, self.daemon.volume(volume), size_bytes)
    }

    /// Creates a policy group with one ceiling for each member, or for all members together.
    fn create_policy(&self, name: &str, limit: &str, is_shared: bool) -> Result<()> {
        let line = format!("qos policy-group create {name} -max-throughput {limit} -is-shared {is_shared}");
        self.daemon.run(&line).map(drop)
    }

    /// Binds a volume to a policy group, or to none.
    fn bind(&self, volume: &str, policy: &str) -> Result<()> {
        self.daemon.run(&format!("volume modify -volume {volume} -qos-policy-group {policy}")).map(drop)
    }
}
