//! Document on classes of service: its drives, its configuration, its volumes and its results, and the load
//! that measures them.
//!
//! The module does not know the claims about the results.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::daemon::Daemon;
use super::fio::{Completion, Load, Log};
use crate::numbers::rate;

/// Drives in the order of the configuration, with their names and their emulated kinds.
pub const DEVICES: [(&str, &str); 3] = [("xvdl", "ebs-standard"), ("xvdn", "ebs-io1"), ("xvdj", "ebs-gp2")];
/// Bytes of each volume that are written first and then read. Unwritten blocks are read without the drive.
const REGION_BYTES: u64 = 16 << 20;
/// Requests that the document keeps outstanding.
const DEPTH: u32 = 128;
/// Time before counting begins, in seconds. So many requests take 1.4 s on the slowest drive.
const SETTLE_SECONDS: u64 = 2;
/// Pause between checks of a measurement, which requests without pause would disturb.
const LOOK: Duration = Duration::from_millis(200);
/// Longest time that measuring the drives may take: many times the slowest measurement, also on a busy
/// machine.
const MEASURING_MAX: Duration = Duration::from_secs(300);

/// The document's results of one class.
pub struct Service {
    /// Name of the class.
    pub class: &'static str,
    /// Name of the class in the document.
    word: &'static str,
    /// Name of the volume.
    pub volume: &'static str,
    /// Drive of this class.
    pub drive: &'static str,
    /// Random reads of 4 KiB per second, 128 at a time.
    pub iops: f64,
    /// Average response time of single reads, in milliseconds.
    pub latency_ms: f64,
}

/// Services in the document's order.
pub const SERVICES: [Service; 3] = [
    Service {
        class: "high",
        word: "high",
        volume: "test-high",
        drive: "xvdn",
        iops: 10_346.0,
        latency_ms: 0.58,
    },
    Service {
        class: "medium",
        word: "med",
        volume: "test-med",
        drive: "xvdj",
        iops: 5783.0,
        latency_ms: 0.54,
    },
    Service { class: "low", word: "low", volume: "test-low", drive: "xvdl", iops: 89.0, latency_ms: 23.61 },
];

/// Creates a folder for each drive, and the document's configuration with these folders. Returns its path.
pub fn configure(folder: &Path) -> Result<PathBuf> {
    let paths = DEVICES.map(|(name, _)| folder.join(name));
    paths.iter().try_for_each(std::fs::create_dir_all)?;
    let kinds = paths.iter().zip(DEVICES).map(|(path, (_, kind))| (path.display().to_string(), kind.into()));
    let text = json!({
        "clusterid": "cos-demo-cluster",
        "kvdb": ["etcd://localhost:4001"],
        "storage": { "devices": paths, "emulate": Value::Object(kinds.collect()) },
        "zone": "a",
        "region": "us-west-1"
    });
    let path = folder.join("config.json");
    std::fs::write(&path, serde_json::to_string_pretty(&text)? + "\n")?;
    Ok(path)
}

/// Waits until all drives are measured. Fails if a drive cannot be measured.
pub fn wait_until_measured(daemon: &Daemon) -> Result<()> {
    let start = Instant::now();
    loop {
        let list = daemon.json("drive list")?;
        let drives = list["items"].as_array().context("there is no list of drives")?;
        if let Some(failure) = drives.iter().find_map(|drive| drive["measurement_failure"].as_str()) {
            bail!("a drive could not be measured: {failure}");
        }
        if drives.iter().all(|drive| drive["measurement"].is_object()) {
            return Ok(());
        }
        ensure!(start.elapsed() < MEASURING_MAX, "the drives are not measured after {MEASURING_MAX:?}");
        std::thread::sleep(LOOK);
    }
}

/// Returns the name of a drive's pool.
pub fn pool_of(daemon: &Daemon, drive: &str) -> Result<String> {
    let list = daemon.json("pool list")?;
    let has_drive = |pool: &&Value| {
        pool["drives"].as_array().is_some_and(|drives| drives.iter().any(|found| found["name"] == drive))
    };
    let pool = list["items"].as_array().and_then(|pools| pools.iter().find(has_drive));
    let name = pool.and_then(|pool| pool["name"].as_str());
    Ok(name.with_context(|| format!("drive '{drive}' is in no pool"))?.to_owned())
}

impl Service {
    /// Returns the document's command that creates the volume.
    pub fn creation(&self) -> String {
        format!("volume create --io_priority {} {} --size 8", self.word, self.volume)
    }

    /// Returns the drive of the volume, or `None` if it lies on several.
    pub fn drive_of_volume(&self, daemon: &Daemon) -> Result<Option<String>> {
        let volume = daemon.json(&format!("volume inspect {}", self.volume))?;
        match volume["drives"].as_array().map(Vec::as_slice) {
            Some([drive]) => Ok(drive["name"].as_str().map(str::to_owned)),
            _ => Ok(None),
        }
    }

    /// Writes the bytes that are read later.
    pub fn fill(&self, daemon: &Daemon, folder: &Path) -> Result<()> {
        let fill = Load::fill(format!("fill-{}", self.volume), daemon.volume(self.volume), REGION_BYTES);
        fill.run(folder).map(drop)
    }

    /// Runs the document's load, counts for this many seconds, and returns the requests per second.
    pub fn measure_iops(&self, daemon: &Daemon, folder: &Path, seconds: u64) -> Result<f64> {
        let load = Load { depth: DEPTH, seconds: SETTLE_SECONDS + seconds, ..self.load("deep", daemon) };
        let completions = load.run(folder)?.completions;
        Ok(rate(&completions, SETTLE_SECONDS * 1000, (SETTLE_SECONDS + seconds) * 1000))
    }

    /// Returns the mean time of single requests, in milliseconds.
    pub fn measure_latency_ms(&self, daemon: &Daemon, folder: &Path, seconds: u64) -> Result<f64> {
        let load = Load { seconds, ..self.load("alone", daemon) };
        Ok(mean_ms(&load.run(folder)?.completions))
    }

    fn load(&self, what: &str, daemon: &Daemon) -> Load {
        let name = format!("{what}-{}", self.volume);
        Load { log: Log::SinceStart, ..Load::new(name, daemon.volume(self.volume), REGION_BYTES) }
    }
}

fn mean_ms(completions: &[Completion]) -> f64 {
    let sum_ns: u64 = completions.iter().map(|completion| completion.latency_ns).sum();
    sum_ns as f64 / completions.len().max(1) as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configuration_lists_drives_in_document_order() {
        let folder = std::env::temp_dir().join(format!("weir-document-test-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let text = std::fs::read_to_string(configure(&folder).unwrap()).unwrap();
        let at = |name: &str| text.find(&format!("/{name}\"")).unwrap();
        assert!(at("xvdl") < at("xvdn") && at("xvdn") < at("xvdj"), "{text}");
        assert!(SERVICES.iter().all(|service| folder.join(service.drive).is_dir()));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn mean_covers_all_requests() {
        let completion = |latency_ns| Completion { at_ms: 0, latency_ns };
        assert_eq!(mean_ms(&[completion(1_000_000), completion(2_000_000)]), 1.5);
        assert_eq!(mean_ms(&[]), 0.0);
    }
}
