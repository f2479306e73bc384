//! First act of the demo: the document on classes of service.
//!
//! The document's three drives are sorted by their measured rates. Its three volumes lie on drives of their
//! class, and fio reads them.

use std::path::Path;

use anyhow::Result;
use serde_json::json;

use crate::numbers::off_per_cent;
use crate::report::{Report, grouped, print_table};
use crate::world::daemon::Daemon;
use crate::world::document::{self, SERVICES, Service};
use crate::world::folder::Folder;

/// Time over which each volume is counted, in seconds.
const COUNT_SECONDS: u64 = 4;
/// Largest difference between a volume and the document's measurement, in per cent.
const OFF_PER_CENT_MAX: f64 = 3.0;
/// Rate that every machine delivers, even a busy one, in IOPS. A drive up to this rate must be as fast as
/// emulated. A faster drive must only not exceed its emulated rate.
const ANY_MACHINE_IOPS: f64 = 1000.0;

/// Results of one volume.
pub struct Found {
    service: &'static Service,
    drive: Option<String>,
    iops: f64,
}

/// Runs the act with a daemon of its own, which ends with the act. Its drives are in memory, so that only the
/// emulation limits them.
pub fn play(binary: &Path) -> Result<Vec<Found>> {
    println!("== classes of service: three drives, given by a configuration file");
    let folder = Folder::in_memory("weir-demo-classes")?;
    let config = document::configure(folder.path())?;
    println!("$ cat {}\n{}", config.display(), std::fs::read_to_string(&config)?.trim_end());
    let (state, config) = (folder.path().join("state"), config.display().to_string());
    println!("$ weir serve --state {} --config {config}", state.display());
    let mut daemon = Daemon::start(binary, &state, &["--config", &config])?;
    println!("# the drives are measured; nobody said what they are");
    document::wait_until_measured(&daemon)?;
    daemon.be_talkative();
    daemon.run("status")?;
    for service in &SERVICES {
        daemon.run(&service.creation())?;
    }
    println!("# fio writes a part of each volume, and reads it: --rw=randread --bs=4k --iodepth=128");
    let found: Result<Vec<Found>> =
        SERVICES.iter().map(|service| measure(service, &daemon, folder.path())).collect();
    let found = found?;
    print_found(&found);
    daemon.process().stop()?;
    Ok(found)
}

fn measure(service: &'static Service, daemon: &Daemon, folder: &Path) -> Result<Found> {
    service.fill(daemon, folder)?;
    let iops = service.measure_iops(daemon, folder, COUNT_SECONDS)?;
    Ok(Found { service, drive: service.drive_of_volume(daemon)?, iops })
}

fn print_found(found: &[Found]) {
    println!("\nIOPS as fio counted them over {COUNT_SECONDS} s, beside the document's:\n");
    let row = |found: &Found| {
        let Found { service, drive, iops } = found;
        let drive = drive.clone().unwrap_or_default();
        vec![service.volume.to_owned(), drive, grouped(*iops), grouped(service.iops)]
    };
    print_table(&["volume", "drive", "IOPS", "document"], found.iter().map(row));
}

/// Adds every claim to the report.
pub fn judge(found: &[Found], report: &mut Report) {
    for Found { service, drive, iops } in found {
        let Service { class, volume, .. } = service;
        report.row(json!({"class": class, "volume": volume, "drive": drive, "iops": iops}));
        let off = off_per_cent(*iops, service.iops);
        let is_slow = off < -OFF_PER_CENT_MAX && service.iops <= ANY_MACHINE_IOPS;
        let holds = drive.as_deref() == Some(service.drive) && off <= OFF_PER_CENT_MAX && !is_slow;
        let words = if service.iops <= ANY_MACHINE_IOPS { "does" } else { "does at most" };
        let what =
            format!("{volume} lies on {} and {words} {} IOPS, within 3 %", service.drive, service.iops);
        let drive = drive.as_deref().unwrap_or("several drives");
        report.claim(what, format!("{iops:.1} ({off:+.2} %) on {drive}"), holds);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_claim_can_fail() {
        let failures = |drive: Option<&str>, part: f64| {
            let mut report = Report::new("test");
            let found = SERVICES.iter().map(|service| Found {
                service,
                drive: Some(drive.unwrap_or(service.drive).to_owned()),
                iops: service.iops * part,
            });
            judge(&found.collect::<Vec<_>>(), &mut report);
            report.finish(None).err().map_or_else(String::new, |error| error.to_string())
        };
        assert_eq!(failures(None, 0.98), "");
        assert!(failures(Some("xvdn"), 1.0).contains("2 of 3"));
        assert!(failures(None, 1.04).contains("3 of 3"));
        // A busy machine delivers less than the fast drives, and never less than the slow one.
        assert!(failures(None, 0.96).contains("1 of 3"));
    }
}
