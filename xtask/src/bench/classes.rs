//! Classes bench: the drives and volumes of the document on classes of service.
//!
//! The document's three drives are sorted by their measured rates, and its three volumes find their class.
//! Each volume gets the rate that the document measured. Other drives without a given class are sorted too.

use anyhow::Result;
use serde_json::json;

use super::Options;
use crate::numbers::off_per_cent;
use crate::report::{Report, grouped, print_table};
use crate::world::daemon::Daemon;
use crate::world::document::{self, SERVICES, Service};
use crate::world::folder::Folder;

/// Largest difference between a volume's rate and the document's, in per cent.
const IOPS_OFF_PER_CENT_MAX: f64 = 3.0;
/// Largest difference between the latency of the slowest volume and the document's, in per cent. The way to
/// the daemon and back is negligible beside this latency. Beside that of the others it is not, on any
/// machine.
const LATENCY_OFF_PER_CENT_MAX: f64 = 15.0;
/// Class whose latency is judged.
const LATENCY_CLASS: &str = "low";
/// Least requests per second and longest latency of single requests in seconds, as published.
const THRESHOLDS: [(&str, f64, f64); 2] = [("high", 8000.0, 0.002), ("medium", 500.0, 0.010)];
/// Requests that a measurement keeps in flight.
const MEASURED_DEPTH: f64 = 32.0;

/// Drive without a given class.
struct Other {
    iops: f64,
    latency_us: f64,
    seek_us: f64,
}

impl Other {
    const fn new(iops: f64, latency_us: f64) -> Other {
        Other { iops, latency_us, seek_us: 0.0 }
    }

    fn parameters(&self) -> String {
        format!("iops={},latency={}us,seek={}us", self.iops, self.latency_us, self.seek_us)
    }

    /// Returns the class that follows from the parameters and the published thresholds.
    fn class(&self) -> &'static str {
        let turn = 1.0 / self.iops + self.seek_us / 1e6;
        let latency = turn + self.latency_us / 1e6;
        let iops = (1.0 / turn).min(MEASURED_DEPTH / latency);
        let reached = THRESHOLDS.iter().find(|(_, least, longest)| iops >= *least && latency <= *longest);
        reached.map_or("low", |(class, ..)| class)
    }
}

/// Drives on either side of each threshold, at least a sixth away from it.
const OTHERS: [Other; 11] = [
    Other::new(40_000.0, 100.0),
    Other::new(12_000.0, 1000.0),
    Other::new(9500.0, 500.0),
    Other::new(20_000.0, 3000.0),
    Other::new(20_000.0, 5000.0),
    Other::new(6500.0, 300.0),
    Other::new(700.0, 1000.0),
    Other::new(800.0, 20_000.0),
    Other::new(400.0, 500.0),
    Other::new(350.0, 0.0),
    Other { seek_us: 12_450.0, ..Other::new(20_000.0, 100.0) },
];

/// Results of one class.
struct Found {
    service: &'static Service,
    pool: String,
    drive: Option<String>,
    iops: f64,
    latency_ms: f64,
}

/// Measures everything.
pub fn run(options: &Options) -> Result<Report> {
    let folder = Folder::in_memory("weir-bench-classes")?;
    let config = document::configure(folder.path())?.display().to_string();
    let arguments = ["--reactors", "2", "--config", &config];
    let daemon = Daemon::start(&options.binary, &folder.path().join("state"), &arguments)?;
    println!("three drives are measured");
    document::wait_until_measured(&daemon)?;
    println!("{}", daemon.run("service drive show")?);
    let seconds = if options.is_quick { 4 } else { 30 };
    let found: Result<Vec<Found>> =
        SERVICES.iter().map(|service| measure(service, &daemon, &folder, seconds)).collect();
    let mut report = Report::new("classes");
    show(&found?, &mut report);
    sort_others(&daemon, &folder, &mut report)?;
    Ok(report)
}

fn measure(service: &'static Service, daemon: &Daemon, folder: &Folder, seconds: u64) -> Result<Found> {
    daemon.run(&service.creation())?;
    service.fill(daemon, folder.path())?;
    Ok(Found {
        service,
        pool: document::pool_of(daemon, service.drive)?,
        drive: service.drive_of_volume(daemon)?,
        iops: service.measure_iops(daemon, folder.path(), seconds)?,
        latency_ms: service.measure_latency_ms(daemon, folder.path(), seconds)?,
    })
}

fn show(found: &[Found], report: &mut Report) {
    println!("random reads of 4 KiB over NBD, 128 at a time, and the mean latency of one at a time:");
    let row = |found: &Found| {
        let Found { service, iops, latency_ms, .. } = found;
        vec![
            service.volume.to_owned(),
            found.pool.clone(),
            grouped(*iops),
            grouped(service.iops),
            format!("{:+.2}", off_per_cent(*iops, service.iops)),
            format!("{latency_ms:.2}"),
            format!("{:.2}", service.latency_ms),
        ]
    };
    let headings = ["volume", "drive's class", "IOPS", "document", "off %", "ms", "document"];
    print_table(&headings, found.iter().map(row));
    found.iter().for_each(|found| judge(found, report));
}

fn judge(found: &Found, report: &mut Report) {
    let Found { service, pool, iops, latency_ms, .. } = found;
    let Service { class, volume, drive, .. } = service;
    report.row(json!({"class": class, "pool": pool, "iops": iops, "latency_ms": latency_ms}));
    let lies_on = found.drive.as_deref().unwrap_or("several drives");
    let holds = pool == class && lies_on == *drive;
    let what = format!("{drive} is measured as {class}, and {volume} lies there");
    report.claim(what, format!("{drive} is {pool}, {volume} on {lies_on}"), holds);
    let off = off_per_cent(*iops, service.iops);
    let what = format!("{volume} does {} IOPS within {IOPS_OFF_PER_CENT_MAX} %", service.iops);
    report.claim(what, format!("{iops:.1} ({off:+.2} %)"), off.abs() <= IOPS_OFF_PER_CENT_MAX);
    if *class == LATENCY_CLASS {
        let off = off_per_cent(*latency_ms, service.latency_ms);
        let what = format!("{volume} takes {} ms within {LATENCY_OFF_PER_CENT_MAX} %", service.latency_ms);
        report.claim(what, format!("{latency_ms:.2} ({off:+.1} %)"), off.abs() <= LATENCY_OFF_PER_CENT_MAX);
    }
}

/// Adds drives without a given class, one after the other, and checks the pool of each.
fn sort_others(daemon: &Daemon, folder: &Folder, report: &mut Report) -> Result<()> {
    println!("{} other drives are measured:", OTHERS.len());
    let mut rows = Vec::new();
    let mut wrong = Vec::new();
    for (number, other) in OTHERS.iter().enumerate() {
        let (name, parameters) = (format!("other{number}"), other.parameters());
        let path = folder.path().join(&name);
        std::fs::create_dir_all(&path)?;
        daemon.run(&format!("drive add {} --name {name} --emulate {parameters}", path.display()))?;
        let pool = document::pool_of(daemon, &name)?;
        if pool != other.class() {
            wrong.push(format!("{parameters} is {pool} and not {}", other.class()));
        }
        report.row(json!({"parameters": parameters, "pool": pool, "expected": other.class()}));
        rows.push(vec![parameters, pool, other.class().to_owned()]);
        daemon.run(&format!("drive remove {name}"))?;
    }
    print_table(&["drive", "pool", "by the thresholds"], rows);
    let found = if wrong.is_empty() { "all".to_owned() } else { wrong.join("; ") };
    let what = format!("{} drives of no given class are in the pool that the thresholds say", OTHERS.len());
    report.claim(what, found, wrong.is_empty());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_drives_cover_all_classes() {
        let classes = OTHERS.map(|other| other.class());
        assert_eq!(classes[..3], ["high"; 3]);
        assert_eq!(classes[3..7], ["medium"; 4]);
        assert_eq!(classes[7..], ["low"; 4]);
    }

    #[test]
    fn each_claim_can_fail() {
        let failures = |change: fn(&mut Found)| {
            let mut report = Report::new("test");
            for service in &SERVICES {
                let drive = Some(service.drive.to_owned());
                let (pool, iops, latency_ms) = (service.class.to_owned(), service.iops, service.latency_ms);
                let mut found = Found { service, pool, drive, iops, latency_ms };
                change(&mut found);
                judge(&found, &mut report);
            }
            report.finish(None).err().map_or_else(String::new, |error| error.to_string())
        };
        assert_eq!(failures(|_| {}), "");
        assert!(failures(|found| found.pool = "low".to_owned()).contains("2 of 7"));
        assert!(failures(|found| found.drive = None).contains("3 of 7"));
        assert!(failures(|found| found.iops *= 1.031).contains("3 of 7"));
        assert!(failures(|found| found.latency_ms *= 1.16).contains("1 of 7"));
    }
}
