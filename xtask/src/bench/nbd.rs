//! NBD bench: cost of serving with Weir, nbdkit and qemu-nbd, with fio on the bare file as the upper limit.

use std::path::Path;

use anyhow::Result;
use serde_json::{Value, json};

use super::{CORES, GIB, Options, WIDE};
use crate::numbers::median;
use crate::report::{Report, grouped, print_table};
use crate::repository::repository_root;
use crate::world::daemon::Daemon;
use crate::world::fio::{Load, Outcome, Target};
use crate::world::folder::Folder;
use crate::world::peers::Peer;
use crate::world::process::Process;

/// Load on a server.
struct Workload {
    name: &'static str,
    pattern: &'static str,
    block_bytes: u64,
    depth: u32,
}

const fn workload(name: &'static str, pattern: &'static str, block_bytes: u64, depth: u32) -> Workload {
    Workload { name, pattern, block_bytes, depth }
}

const WORKLOADS: [Workload; 5] = [
    workload("4 KiB read QD1", "randread", 4096, 1),
    workload("4 KiB write QD1", "randwrite", 4096, 1),
    workload("4 KiB read QD32", "randread", 4096, 32),
    workload("4 KiB write QD32", "randwrite", 4096, 32),
    workload("128 KiB read QD16", "randread", 128 << 10, 16),
];

/// Weir's volume.
const VOLUME: &str = "volume";

/// Server under test. The order is that of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Server {
    Bare,
    Weir,
    Nbdkit,
    QemuNbd,
}

const SERVERS: [(Server, &str); 4] = [
    (Server::Bare, "bare file (fio io_uring)"),
    (Server::Weir, "weir"),
    (Server::Nbdkit, "nbdkit file"),
    (Server::QemuNbd, "qemu-nbd io_uring"),
];

/// Length of one daemon's turn, in seconds, and turns of each daemon for one load, when two daemons are compared.
const TURN_SECONDS: u64 = 1;
const TURNS: usize = 4;

/// Servers on one medium, each with a file of its own.
struct Servers {
    folder: Folder,
    daemon: Daemon,
    nbdkit: Peer,
    qemu_nbd: Peer,
    size_bytes: u64,
}

/// One of two daemons that are compared on one medium, on a core of its own.
struct Side {
    folder: Folder,
    daemon: Daemon,
    size_bytes: u64,
}

/// Results of one measurement, or medians of several.
#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    iops: f64,
    p50_us: f64,
    p99_us: f64,
    processor_us: f64,
}

/// Results of one server, round by round.
type Rounds = Vec<Figures>;

/// Measures on a memory-backed file and on disk.
pub fn run(options: &Options) -> Result<Report> {
    let mut report = Report::new("nbd");
    let root = repository_root();
    let memory = Folder::in_memory("weir-bench-nbd")?;
    measure_medium(options, memory, false, &mut report)?;
    let disk = Folder::on_disk(options.disk.as_deref(), &root, "weir-bench-nbd")?;
    measure_medium(options, disk, true, &mut report)?;
    Ok(report)
}

fn measure_medium(options: &Options, folder: Folder, is_disk: bool, report: &mut Report) -> Result<()> {
    let medium = if is_disk { "disk" } else { "memory" };
    let mut servers = Servers::start(options, folder, is_disk)?;
    let mut medians = Vec::new();
    for workload in &WORKLOADS {
        let rounds = measure_workload(options, &mut servers, workload)?;
        claim(report, is_disk, workload, &rounds);
        if is_policy_tried(workload) && !is_disk {
            measure_policy(options, &mut servers, workload, report)?;
        }
        medians.push((workload, rounds.iter().map(|rounds| medians_of(rounds)).collect::<Vec<_>>()));
    }
    print_medium(medium, &medians);
    for (workload, figures) in &medians {
        for ((_, server), f) in SERVERS.iter().zip(figures) {
            report.row(row(medium, workload, server, f));
        }
    }
    Ok(())
}

fn row(medium: &str, workload: &Workload, server: &str, figures: &Figures) -> Value {
    let Figures { iops, p50_us, p99_us, processor_us } = figures;
    json!({"cell": cell_of(medium, workload), "server": server, "iops": iops, "p50_us": p50_us, "p99_us": p99_us,
        "processor_us_per_request": processor_us})
}

fn cell_of(medium: &str, workload: &Workload) -> String {
    format!("{medium} {}", workload.name)
}

/// Measures two daemons that both run, in short turns: a slow moment of the machine hits both alike. Both are
/// started for this round, and each round begins with the other one, because their placement in memory makes a
/// difference. Returns the rows of each.
pub fn compare(options: &Options, binaries: [&Path; 2], round: usize) -> Result<[Vec<Value>; 2]> {
    let mut rows = [Vec::new(), Vec::new()];
    for medium in ["memory", "disk"] {
        let name = |which: usize| ["weir-bench-now", "weir-bench-before"][which];
        let start = |which: usize| Side::start(options, (binaries[which], name(which)), medium);
        let mut sides = match round % 2 {
            0 => [start(0)?, start(1)?],
            _ => {
                let before = start(1)?;
                [start(0)?, before]
            }
        };
        for workload in WORKLOADS.iter().filter(|workload| options.wants(&cell_of(medium, workload))) {
            let mut figures = [Rounds::new(), Rounds::new()];
            let turns = if options.is_quick { 1 } else { TURNS };
            for turn in round..round + turns {
                for which in [turn % 2, (turn + 1) % 2] {
                    figures[which].push(sides[which].measure(workload)?);
                }
            }
            for (rows, figures) in rows.iter_mut().zip(&figures) {
                rows.push(row(medium, workload, "weir", &medians_of(figures)));
            }
        }
    }
    Ok(rows)
}

impl Side {
    fn start(options: &Options, (binary, name): (&Path, &str), medium: &str) -> Result<Side> {
        let folder = match medium {
            "memory" => Folder::in_memory(name)?,
            _ => Folder::on_disk(options.disk.as_deref(), &repository_root(), name)?,
        };
        let size_bytes = GIB / 4;
        let path = folder.path();
        let daemon = Daemon::start_on_core(CORES.daemon, binary, &path.join("state"))?;
        daemon.run(&format!("volume create {VOLUME} --size {}MiB", size_bytes >> 20))?;
        Load::fill("fill", daemon.volume(VOLUME), size_bytes).run(path)?;
        Ok(Side { folder, daemon, size_bytes })
    }

    fn measure(&mut self, workload: &Workload) -> Result<Figures> {
        let load = Load {
            extra: vec![CORES.client_option()],
            ..workload.load(self.daemon.volume(VOLUME), self.size_bytes, TURN_SECONDS)
        };
        let before = self.daemon.process().processor_seconds()?;
        let outcome = load.run(self.folder.path())?;
        Ok(Figures::of(&outcome, self.daemon.process().processor_seconds()? - before))
    }
}

impl Workload {
    fn load(&self, target: Target, size_bytes: u64, seconds: u64) -> Load {
        Load {
            pattern: self.pattern,
            block_bytes: self.block_bytes,
            depth: self.depth,
            seconds,
            ..Load::new("load", target, size_bytes)
        }
    }
}

impl Figures {
    /// The figures of a load during which a server used so many seconds of a processor.
    fn of(outcome: &Outcome, processor_seconds: f64) -> Figures {
        Figures {
            iops: outcome.iops,
            p50_us: outcome.p50_us,
            p99_us: outcome.p99_us,
            processor_us: processor_seconds * 1e6 / outcome.requests.max(1) as f64,
        }
    }
}

/// Measures every server in turn, for several rounds, so that a slow minute of the machine hits all of them
/// alike.
fn measure_workload(options: &Options, servers: &mut Servers, workload: &Workload) -> Result<Vec<Rounds>> {
    let seconds = if options.is_quick { 2 } else { 4 };
    let mut rounds_by_server = vec![Vec::new(); SERVERS.len()];
    for _ in 0..options.rounds(5) {
        for (figures, (server, _)) in rounds_by_server.iter_mut().zip(SERVERS) {
            figures.push(servers.measure(server, workload, seconds)?);
        }
    }
    Ok(rounds_by_server)
}

/// Returns true for workloads with a deep queue. On a fast medium they show the cost of each request.
fn is_policy_tried(workload: &Workload) -> bool {
    workload.depth == 32
}

/// Measures the cost of a policy that does not limit, on the same volume with and without it.
///
/// Turns alternate, so that neither the files nor the order make a difference. There are many short turns,
/// because a turn differs from the next by a tenth.
fn measure_policy(
    options: &Options,
    servers: &mut Servers,
    workload: &Workload,
    report: &mut Report,
) -> Result<()> {
    let rounds = if options.is_quick { 4 } else { 40 };
    let mut figures = [Rounds::new(), Rounds::new()];
    for round in 0..rounds {
        for turn in 0..2 {
            let is_bound = (round + turn) % 2 == 1;
            servers.bind(if is_bound { "wide" } else { "none" })?;
            figures[usize::from(is_bound)].push(servers.measure(Server::Weir, workload, 1)?);
        }
    }
    servers.bind("none")?;
    let [without, with] = figures.map(|rounds| medians_of(&rounds));
    let (part, processor) = (with.iops / without.iops, with.processor_us / without.processor_us);
    let what =
        format!("{} in memory: at least 0.98 of the IOPS under a policy that does not limit", workload.name);
    report.claim(what, format!("{part:.3}, at {processor:.3} of the processor time"), part >= 0.98);
    Ok(())
}

fn medians_of(rounds: &[Figures]) -> Figures {
    Figures {
        iops: median(rounds.iter().map(|f| f.iops)),
        p50_us: median(rounds.iter().map(|f| f.p50_us)),
        p99_us: median(rounds.iter().map(|f| f.p99_us)),
        processor_us: median(rounds.iter().map(|f| f.processor_us)),
    }
}

impl Servers {
    fn start(options: &Options, folder: Folder, is_disk: bool) -> Result<Servers> {
        let size_bytes = if options.is_quick { GIB / 4 } else { GIB };
        let path = folder.path().to_owned();
        for name in ["bare", "nbdkit", "qemu-nbd"] {
            fill_file(&path, name, size_bytes)?;
        }
        let daemon = Daemon::start(&options.binary, &path.join("state"), &[])?;
        // The policy has every setting that a policy can have, and never holds a request.
        let floor = "-min-throughput 1000IOPS";
        daemon.run(&format!("qos policy-group create above -max-throughput {WIDE} {floor} -weight 200"))?;
        let own = format!("-is-shared false -parent above -max-throughput {WIDE} {floor} -weight 50");
        daemon.run(&format!("qos policy-group create wide {own}"))?;
        daemon.run(&format!("volume create {VOLUME} --size {}MiB", size_bytes >> 20))?;
        Load::fill("fill", daemon.volume(VOLUME), size_bytes).run(&path)?;
        let nbdkit = Peer::nbdkit(&path, &path.join("nbdkit"), is_disk)?;
        let qemu_nbd = Peer::qemu_nbd(&path, "qemu-nbd", &path.join("qemu-nbd"))?;
        Ok(Servers { folder, daemon, nbdkit, qemu_nbd, size_bytes })
    }

    /// Binds Weir's volume to a policy group, or to none.
    fn bind(&self, policy: &str) -> Result<()> {
        self.daemon.run(&format!("volume modify -volume {VOLUME} -qos-policy-group {policy}")).map(drop)
    }

    fn target(&self, server: Server) -> Target {
        match server {
            Server::Bare => Target::File(self.folder.path().join("bare")),
            Server::Weir => self.daemon.volume(VOLUME),
            Server::Nbdkit => self.nbdkit.target(),
            Server::QemuNbd => self.qemu_nbd.target(),
        }
    }

    fn process(&mut self, server: Server) -> Option<&Process> {
        match server {
            Server::Bare => None,
            Server::Weir => Some(self.daemon.process()),
            Server::Nbdkit => Some(self.nbdkit.process()),
            Server::QemuNbd => Some(self.qemu_nbd.process()),
        }
    }

    fn processor_seconds(&mut self, server: Server) -> Result<f64> {
        self.process(server).map_or(Ok(0.0), Process::processor_seconds)
    }

    fn measure(&mut self, server: Server, workload: &Workload, seconds: u64) -> Result<Figures> {
        let load = workload.load(self.target(server), self.size_bytes, seconds);
        let before = self.processor_seconds(server)?;
        let outcome = load.run(self.folder.path())?;
        Ok(Figures::of(&outcome, self.processor_seconds(server)? - before))
    }
}

fn fill_file(folder: &Path, name: &str, size_bytes: u64) -> Result<()> {
    let target = Target::File(folder.join(name));
    Load::fill(format!("fill-{name}"), target, size_bytes).run(folder).map(drop)
}

fn print_medium(medium: &str, medians: &[(&Workload, Vec<Figures>)]) {
    let headings =
        ["workload", "server", "IOPS", "of bare", "p50 µs", "p99 µs", "CPU µs/req", "of nbdkit", "of qemu"];
    println!("on {medium}, one connection over a Unix socket:");
    let mut rows = Vec::new();
    for (workload, figures) in medians {
        let of = |server: Server| figures.get(server as usize).copied().unwrap_or_default();
        for ((server, name), f) in SERVERS.iter().zip(figures) {
            let ratio = |other: f64| {
                if *server == Server::Bare || other == 0.0 {
                    "".to_owned()
                } else {
                    format!("{:.2}", f.processor_us / other)
                }
            };
            rows.push(vec![
                workload.name.to_owned(),
                (*name).to_owned(),
                grouped(f.iops),
                format!("{:.2}", f.iops / of(Server::Bare).iops.max(1.0)),
                format!("{:.1}", f.p50_us),
                format!("{:.1}", f.p99_us),
                if *server == Server::Bare { String::new() } else { format!("{:.2}", f.processor_us) },
                ratio(of(Server::Nbdkit).processor_us),
                ratio(of(Server::QemuNbd).processor_us),
            ]);
        }
    }
    print_table(&headings, rows);
}

/// Returns the median of the ratios of two servers in the same round. A slowdown of a whole round cancels
/// out.
fn ratio(rounds: &[Rounds], server: Server, peer: Server, figure: fn(&Figures) -> f64) -> f64 {
    let pairs = rounds[server as usize].iter().zip(&rounds[peer as usize]);
    median(pairs.map(|(ours, theirs)| figure(ours) / figure(theirs).max(f64::MIN_POSITIVE)))
}

/// Adds the targets to the report, each with its result.
fn claim(report: &mut Report, is_disk: bool, workload: &Workload, rounds: &[Rounds]) {
    let weir_to = |peer, figure| ratio(rounds, Server::Weir, peer, figure);
    let what = format!("{} {}", workload.name, if is_disk { "on disk" } else { "in memory" });
    if workload.depth == 1 {
        let part = weir_to(Server::Nbdkit, |f| f.p50_us);
        report.claim(
            format!("{what}: median latency below nbdkit's"),
            format!("{part:.3} of it"),
            part < 1.0,
        );
    }
    if workload.depth != 32 {
        return;
    }
    if is_disk {
        let part = weir_to(Server::Bare, |f| f.iops);
        report.claim(
            format!("{what}: at least 0.9 of the bare file's IOPS"),
            format!("{part:.3}"),
            part >= 0.9,
        );
        return;
    }
    for (peer, peer_name, limit) in [(Server::Nbdkit, "nbdkit", 0.55), (Server::QemuNbd, "qemu-nbd", 0.3)] {
        let part = weir_to(peer, |f| f.processor_us);
        let what = format!("{what}: at most {limit} of {peer_name}'s processor time per request");
        report.claim(what, format!("{part:.3}"), part <= limit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_taken_within_rounds() {
        let rounds = |all: [f64; 3]| all.map(|iops| Figures { iops, ..Figures::default() }).to_vec();
        let all = vec![rounds([100.0, 200.0, 50.0]), rounds([90.0, 180.0, 45.0])];
        assert!((ratio(&all, Server::Weir, Server::Bare, |f| f.iops) - 0.9).abs() < 1e-9);
    }

    #[test]
    fn server_table_follows_the_enum_order() {
        assert!(SERVERS.iter().enumerate().all(|(index, (server, _))| *server as usize == index));
    }
}
