//! Throttle bench: the four tables of the document of io-throttle, through the file of an attached volume.
//!
//! Three cgroups have 1, 2 and 3 MiB/s. In each a program makes one request of 64 KiB after another for half a minute:
//! reads or writes, past the page cache or through it, as there. The same runs under the kernel's own limits
//! of block devices (`blkio.throttle`, where the host has cgroups of version 1), on a file of the disk.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use weir_testkit::cgroup::Cgroup;
use weir_testkit::program::path;

use super::Options;
use crate::numbers::off_per_cent;
use crate::report::{Report, print_table};
use crate::repository::repository_root;
use crate::world::daemon::Daemon;
use crate::world::folder::{Folder, disk_of};
use crate::world::peers::BlockGroup;
use crate::world::tools;

/// Largest difference between a cgroup's rate and its limit, in per cent.
const OFF_PER_CENT_MAX: f64 = 0.5;
/// Limits of the three cgroups, in MiB/s.
const LIMITS_MIB: [u64; 3] = [1, 2, 3];
const MIB: u64 = 1 << 20;
/// Space of each program in the file, in bytes.
const SPACE_BYTES: u64 = 64 * MIB;

/// One table of the document.
struct Table {
    name: &'static str,
    operation: &'static str,
    is_direct: bool,
    /// Rates that the document has, in MB/s.
    printed: [f64; 3],
}

/// The tables, in the order of the document.
const TABLES: [Table; 4] = [
    Table { name: "read, direct", operation: "read", is_direct: true, printed: [1.051, 2.099, 3.148] },
    Table { name: "write, direct", operation: "write", is_direct: true, printed: [21.272, 21.126, 21.021] },
    Table { name: "read, buffered", operation: "read", is_direct: false, printed: [2.326, 2.357, 2.389] },
    Table {
        name: "write, buffered",
        operation: "write",
        is_direct: false,
        printed: [27.258, 28.221, 26.151],
    },
];

/// Runs everything.
pub fn run(options: &Options) -> Result<Report> {
    tools::require(&["fio"])?;
    let folder = Folder::in_memory("weir-bench-throttle")?;
    let daemon = Daemon::start(&options.binary, &folder.path().join("state"), &["--reactors", "1"])?;
    daemon.run("volume create vol1 --size 256MiB")?;
    let file = PathBuf::from(daemon.run("attach vol1 --method fuse-file")?.trim());
    let groups = cgroups()?;
    let cgroups: Vec<&Cgroup> = groups.iter().collect();
    for (cgroup, limit) in cgroups.iter().zip(LIMITS_MIB) {
        let place = cgroup.folder().display();
        daemon.run(&format!(
            "policy-group create limit{limit} --max-throughput {limit}MiB/s --is-shared false"
        ))?;
        daemon.run(&format!(
            "qos cgroup bind --volume vol1 --cgroup {place} --qos-policy-group limit{limit}"
        ))?;
    }
    fill(&file)?;
    let mut report = Report::new("throttle");
    let mut rows = Vec::new();
    for table in &TABLES {
        let rates = measure(table, &file, &cgroups, options)?;
        rows.push(row(table, "weir", &rates));
        claim(table, &rates, &mut report);
    }
    daemon.run("detach vol1")?;
    match kernel(options)? {
        Some(tables) => {
            rows.extend(TABLES.iter().zip(&tables).map(|(table, rates)| row(table, "blkio", rates)))
        }
        None => {
            println!("this host has no cgroups of version 1 with blkio: the kernel's limits are not measured")
        }
    }
    print_table(&["table", "limits of", "1 MiB/s", "2 MiB/s", "3 MiB/s", "the document's, MB/s"], rows);
    Ok(report)
}

fn cgroups() -> Result<Vec<Cgroup>> {
    let create = |limit| Cgroup::create(&format!("weir-bench-{limit}")).context("cannot create a cgroup");
    LIMITS_MIB.into_iter().map(create).collect()
}

fn claim(table: &Table, rates: &[f64], report: &mut Report) {
    let off: Vec<f64> =
        rates.iter().zip(LIMITS_MIB).map(|(rate, limit)| off_per_cent(*rate, (limit * MIB) as f64)).collect();
    report.row(json!({"table": table.name, "bytes_per_second": rates}));
    let words: Vec<String> = off.iter().map(|off| format!("{off:+.2} %")).collect();
    let holds = off.iter().all(|off| off.abs() <= OFF_PER_CENT_MAX);
    report.claim(
        format!("{}: three cgroups have their 1, 2 and 3 MiB/s within {OFF_PER_CENT_MAX} %", table.name),
        words.join(", "),
        holds,
    );
}

fn row(table: &Table, whose: &str, rates: &[f64]) -> Vec<String> {
    let rates = rates.iter().map(|rate| format!("{:.3}", rate / MIB as f64));
    let printed = table.printed.map(|rate| format!("{rate:.1}")).join(", ");
    [table.name.to_owned(), whose.to_owned()].into_iter().chain(rates).chain([printed]).collect()
}

/// Writes the whole file, so that reads find data.
fn fill(file: &Path) -> Result<()> {
    let mut command = std::process::Command::new(path("fio"));
    command.args(["--name=fill", "--rw=write", "--bs=1M", "--direct=1", "--ioengine=psync"]);
    command.arg(format!("--size={}", SPACE_BYTES * 3)).arg(format!("--filename={}", file.display()));
    let output = command.output().context("cannot run fio")?;
    ensure!(output.status.success(), "fio: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(())
}

/// Runs one program in each cgroup, and returns their rates in bytes per second.
fn measure(table: &Table, file: &Path, cgroups: &[&Cgroup], options: &Options) -> Result<Vec<f64>> {
    let children: Vec<Child> = cgroups
        .iter()
        .enumerate()
        .map(|(number, cgroup)| start(table, file, (number as u64, cgroup), options))
        .collect::<Result<_>>()?;
    children.into_iter().map(|child| rate(child, table.operation)).collect()
}

fn start(table: &Table, file: &Path, (number, cgroup): (u64, &Cgroup), options: &Options) -> Result<Child> {
    let seconds = if options.is_quick { 5 } else { 30 };
    let mut command = cgroup.command(&path("fio"));
    command.args(["--name=throttled", "--bs=64k", "--ioengine=psync", "--thread=1", "--output-format=json"]);
    command.arg(format!("--rw={}", table.operation)).arg(format!("--direct={}", u8::from(table.is_direct)));
    command.arg(format!("--offset={}", number * SPACE_BYTES)).arg(format!("--size={SPACE_BYTES}"));
    command.args(["--time_based", "--ramp_time=2", &format!("--runtime={seconds}")]);
    command.arg(format!("--filename={}", file.display()));
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().context("cannot run fio in a cgroup")
}

fn rate(child: Child, operation: &str) -> Result<f64> {
    let output = child.wait_with_output()?;
    ensure!(output.status.success(), "fio: {}", String::from_utf8_lossy(&output.stderr).trim());
    let result: Value = serde_json::from_slice(&output.stdout).context("fio printed no JSON")?;
    result["jobs"][0][operation]["bw_bytes"].as_f64().context("fio counted nothing")
}

/// The same under the kernel's limits of the block device below a file; `None` if the host has no such limits.
fn kernel(options: &Options) -> Result<Option<Vec<Vec<f64>>>> {
    let folder = Folder::on_disk(options.disk.as_deref(), &repository_root(), "weir-bench-throttle")?;
    let file = folder.path().join("file");
    fs::write(&file, "")?;
    let Some(device) = disk_of(&file) else { return Ok(None) };
    if !BlockGroup::is_available() {
        return Ok(None);
    }
    let limited = |limit| BlockGroup::new(&format!("bench-blkio-{limit}"), &device, "bps", limit * MIB);
    let groups: Vec<BlockGroup> = LIMITS_MIB.into_iter().map(limited).collect::<Result<_>>()?;
    let cgroups: Vec<&Cgroup> = groups.iter().map(BlockGroup::cgroup).collect();
    fill(&file)?;
    TABLES.iter().map(|table| measure(table, &file, &cgroups, options)).collect::<Result<_>>().map(Some)
}
