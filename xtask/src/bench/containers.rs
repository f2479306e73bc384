//! Containers bench: the document's containers with fio, on volumes of the three classes.
//!
//! The document's three drives are emulated and measured. Its command lines run as printed but for the image, whose
//! fio is this machine's, with verification, and random reads of 4 KiB get the IOPS of its table.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use weir_testkit::docker::{Engine, IMAGE, PLUGINS};
use weir_testkit::program::path;

use super::Options;
use crate::numbers::off_per_cent;
use crate::report::{Report, grouped, print_table};
use crate::world::daemon::Daemon;
use crate::world::document::{self, SERVICES, Service};
use crate::world::folder::Folder;
use crate::world::process::Process;
use crate::world::tools;

/// Largest difference between a container's rate and the document's, in per cent.
const IOPS_OFF_PER_CENT_MAX: f64 = 5.0;
/// Name of the driver in the document.
const DRIVER: &str = "pxd";

/// The options of fio that all lines of the document have.
const COMMON: &str = "-directory=/test --filename=test --ioengine=libaio --readwrite=randrw --name=test --direct=1 \
     --gtod_reduce=1 --iodepth=128 --randrepeat=1 --end_fsync=1";
/// The options of each line alone, in the order of the document.
const LINES: [&str; 3] = [
    "--blocksize=16k --size=1G --verify=meta --do_verify=1 --verify_pattern=0xDeadBeef",
    "--blocksize=16k --size=4G",
    "--blocksize=4k --size=1G",
];
/// Time after which the line on the slow drive ends: as printed it takes fifty minutes.
const SLOW_SECONDS: u64 = 60;

/// Runs everything.
pub fn run(options: &Options) -> Result<Report> {
    tools::require(&weir_testkit::docker::PROGRAMS)?;
    let folder = Folder::in_memory("weir-bench-containers")?;
    let config = document::configure(folder.path())?.display().to_string();
    let daemon = Daemon::start(
        &options.binary,
        &folder.path().join("state"),
        &["--reactors", "2", "--config", &config],
    )?;
    println!("three drives are measured");
    document::wait_until_measured(&daemon)?;
    let mounts = folder.path().join("plugin").display().to_string();
    let server = daemon.server();
    let arguments =
        ["docker-plugin", "--server", &server, "--alias", DRIVER, "--folder", &mounts].map(str::to_owned);
    let binary = options.binary.to_string_lossy();
    let mut plugin = Process::start("plugin", folder.path(), &binary, &arguments)?;
    let socket = std::path::Path::new(PLUGINS).join(format!("{DRIVER}.sock"));
    plugin.wait_until(|_| std::os::unix::net::UnixStream::connect(&socket).is_ok())?;
    let engine = Engine::start(&folder.path().join("docker"), &[]);
    let mut report = Report::new("containers");
    let mut rows = Vec::new();
    for (service, line) in SERVICES.iter().zip(LINES) {
        daemon.run(&service.creation())?;
        printed(service, line, &engine, options, &mut report)?;
        rows.push(measure(service, &engine, options, &mut report)?);
    }
    print_table(&["volume", "IOPS", "document", "off %"], rows);
    let left = daemon.json("attachment list")?["items"].clone();
    report.claim("nothing stays attached".to_owned(), left.to_string(), left == json!([]));
    Ok(report)
}

/// Runs the document's line for a volume.
fn printed(
    service: &Service,
    line: &str,
    engine: &Engine,
    options: &Options,
    report: &mut Report,
) -> Result<()> {
    let is_slow = service.class == "low";
    let bound =
        if options.is_quick || is_slow { format!(" --runtime={SLOW_SECONDS}") } else { String::new() };
    let output = fio(service, engine, &format!("{line} {COMMON}{bound}"))?;
    let words = String::from_utf8_lossy(&output.stdout).into_owned();
    let holds = output.status.success() && words.contains("err= 0");
    let found = words.lines().find(|line| line.contains("err=")).unwrap_or("fio said nothing").to_owned();
    report.claim(
        format!("the document's container on {} ends without an error", service.volume),
        found,
        holds,
    );
    Ok(())
}

/// Measures random reads of 4 KiB, as the document's table has them.
fn measure(
    service: &Service,
    engine: &Engine,
    options: &Options,
    report: &mut Report,
) -> Result<Vec<String>> {
    let seconds = if options.is_quick { 4 } else { 30 };
    let more = format!(
        "--directory=/test --filename=read --ioengine=libaio --rw=randread --bs=4k --size=16M --direct=1 \
         --iodepth=128 --name=read --time_based --ramp_time=2 --runtime={seconds} --output-format=json"
    );
    let output = fio(service, engine, &more)?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let start = text.find('{').context("fio printed no JSON")?;
    let result: Value = serde_json::from_str(&text[start..]).context("fio printed no JSON")?;
    let iops = result["jobs"][0]["read"]["iops"].as_f64().context("fio counted nothing")?;
    let off = off_per_cent(iops, service.iops);
    report.row(json!({"class": service.class, "iops": iops}));
    let what = format!(
        "a container on {} does {} IOPS within {IOPS_OFF_PER_CENT_MAX} %",
        service.volume, service.iops
    );
    report.claim(what, format!("{iops:.1} ({off:+.2} %)"), off.abs() <= IOPS_OFF_PER_CENT_MAX);
    Ok(vec![service.volume.to_owned(), grouped(iops), grouped(service.iops), format!("{off:+.2}")])
}

/// Runs fio in a container with the volume at `/test`.
fn fio(service: &Service, engine: &Engine, options: &str) -> Result<std::process::Output> {
    let (driver, volume) = (format!("--volume-driver={DRIVER}"), format!("{}:/test", service.volume));
    let program = path("fio");
    let mut arguments = vec!["run", "--rm", &driver, "-v", &volume, IMAGE, &program];
    arguments.extend(options.split_whitespace());
    println!("$ docker {}", arguments.join(" "));
    let mut command: Command = engine.command(&arguments);
    let output = command.output().context("cannot run docker")?;
    ensure!(output.status.success(), "docker: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(output)
}
