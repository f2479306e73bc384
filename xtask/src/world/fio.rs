//! fio as the load and the measurement: a program that Weir's authors did not write.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;
use serde_json::Value;

use super::process::Process;

/// Time in which outstanding requests may complete after a load, in seconds.
const TIMEOUT_SECONDS: u64 = 180;

/// Target of a load.
#[derive(Clone, Debug)]
pub enum Target {
    /// Export of an NBD server on a Unix socket.
    Nbd {
        /// Socket of the server.
        socket: PathBuf,
        /// Name of the export, possibly empty.
        export: String,
    },
    /// File, with io_uring and without the page cache.
    File(PathBuf),
    /// File, with libaio and without the page cache, in a control group.
    FileInGroup {
        /// Path of the file.
        file: PathBuf,
        /// Folder of the control group.
        group: PathBuf,
    },
}

/// Log of every single request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Log {
    /// No log.
    None,
    /// Time of completion since the start of the load.
    SinceStart,
    /// Time of completion since 1970, for comparison with other loads and events.
    SinceEpoch,
}

/// One load.
#[derive(Clone, Debug)]
pub struct Load {
    /// Name of the load's files.
    pub name: String,
    /// Target of the load.
    pub target: Target,
    /// fio's name of the pattern: `randread`, `randwrite`, `randrw`, `write` and so on.
    pub pattern: &'static str,
    /// Size of a request in bytes.
    pub block_bytes: u64,
    /// Requests that each job keeps outstanding.
    pub depth: u32,
    /// Jobs, each with a connection of its own.
    pub jobs: u32,
    /// Duration in seconds. With 0 the load passes once over the whole size.
    pub seconds: u64,
    /// Size of the target in bytes.
    pub size_bytes: u64,
    /// Log of single requests.
    pub log: Log,
    /// Checksum by which fio reads back and verifies each write soon after it. Each block is written once
    /// before any is written again, so data from an earlier write is an error too.
    pub checksum: Option<&'static str>,
    /// More arguments.
    pub extra: Vec<String>,
}

/// Running load.
pub struct Running {
    process: Process,
    result: PathBuf,
    logs: Vec<PathBuf>,
    timeout: Duration,
}

/// Measurements of a load.
#[derive(Debug)]
pub struct Outcome {
    /// Number of completed requests.
    pub requests: u64,
    /// Completed requests per second.
    pub iops: f64,
    /// Median latency in microseconds.
    pub p50_us: f64,
    /// 99th percentile of the latency in microseconds.
    pub p99_us: f64,
    /// fio's error number, or 0 without an error.
    pub error: i64,
    /// Every single request in the order of completion, if logged.
    pub completions: Vec<Completion>,
}

/// One completed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Time of completion in milliseconds.
    pub at_ms: u64,
    /// Latency in nanoseconds.
    pub latency_ns: u64,
}

impl Load {
    /// Returns a load of random reads of 4 KiB, one at a time, for 10 s. The caller may change the rest.
    pub fn new(name: impl Into<String>, target: Target, size_bytes: u64) -> Load {
        Load {
            name: name.into(),
            target,
            pattern: "randread",
            block_bytes: 4096,
            depth: 1,
            jobs: 1,
            seconds: 10,
            size_bytes,
            log: Log::None,
            checksum: None,
            extra: Vec::new(),
        }
    }

    /// Returns the load that writes the whole target once.
    pub fn fill(name: impl Into<String>, target: Target, size_bytes: u64) -> Load {
        let blank = Load::new(name, target, size_bytes);
        Load { pattern: "write", block_bytes: 1 << 20, depth: 4, seconds: 0, ..blank }
    }

    /// Starts the load. Its files go into `folder`.
    pub fn start(&self, folder: &Path) -> Result<Running> {
        let result = folder.join(format!("{}.json", self.name));
        let mut arguments = vec!["fio".to_owned(), format!("--output={}", result.display())];
        arguments.extend(self.arguments(folder));
        let process = match &self.target {
            Target::FileInGroup { group, .. } => {
                let script = format!("echo $$ > {}/cgroup.procs && exec \"$0\" \"$@\"", group.display());
                arguments.splice(0..0, ["-c".to_owned(), script]);
                Process::start(&self.name, folder, "sh", &arguments)?
            }
            _ => Process::start(&self.name, folder, "fio", &arguments[1..])?,
        };
        let logs = (1..=self.jobs).map(|job| folder.join(format!("{}_lat.{job}.log", self.name)));
        let logs = if self.log == Log::None { Vec::new() } else { logs.collect() };
        let timeout =
            Duration::from_secs(if self.seconds == 0 { 1800 } else { self.seconds + TIMEOUT_SECONDS });
        Ok(Running { process, result, logs, timeout })
    }

    /// Starts the load and waits for its end. Fails if a request failed.
    pub fn run(&self, folder: &Path) -> Result<Outcome> {
        let outcome = self.start(folder)?.finish()?;
        ensure!(outcome.error == 0, "fio load {} failed with error {}", self.name, outcome.error);
        Ok(outcome)
    }

    fn arguments(&self, folder: &Path) -> Vec<String> {
        let mut arguments = vec![
            format!("--name={}", self.name),
            format!("--rw={}", self.pattern),
            format!("--bs={}", self.block_bytes),
            format!("--iodepth={}", self.depth),
            format!("--numjobs={}", self.jobs),
            format!("--size={}", self.size_bytes),
        ];
        let fixed = "--output-format=json --group_reporting --thread --unified_rw_reporting=mixed \
                     --clat_percentiles=0 --lat_percentiles=1 --randrepeat=0";
        arguments.extend(fixed.split_whitespace().map(str::to_owned));
        match self.checksum {
            None => arguments.push("--norandommap".to_owned()),
            Some(checksum) => {
                let fixed =
                    "--verify_backlog=64 --verify_fatal=1 --verify_state_save=0 --serialize_overlap=1";
                arguments.extend(fixed.split_whitespace().map(str::to_owned));
                arguments.push(format!("--verify={checksum}"));
            }
        }
        if self.seconds > 0 {
            arguments.extend(["--time_based".to_owned(), format!("--runtime={}", self.seconds)]);
        }
        if self.log != Log::None {
            let prefix = folder.join(&self.name);
            arguments.push(format!("--write_lat_log={}", prefix.display()));
            arguments.extend(["--disable_clat=1", "--disable_slat=1"].map(str::to_owned));
        }
        if self.log == Log::SinceEpoch {
            arguments.push("--log_unix_epoch=1".to_owned());
        }
        arguments.extend(self.target.arguments());
        arguments.extend(self.extra.iter().cloned());
        arguments
    }
}

impl Target {
    fn arguments(&self) -> Vec<String> {
        let file = |engine: &str, file: &Path| {
            vec![
                format!("--ioengine={engine}"),
                "--direct=1".to_owned(),
                format!("--filename={}", file.display()),
            ]
        };
        match self {
            Target::Nbd { socket, export } => {
                let uri = format!("nbd+unix:///{export}?socket={}", socket.display());
                vec!["--ioengine=nbd".to_owned(), format!("--uri={uri}")]
            }
            Target::File(path) => file("io_uring", path),
            Target::FileInGroup { file: path, .. } => file("libaio", path),
        }
    }
}

impl Running {
    /// Returns true if the load has ended, as it does after an error.
    pub fn has_ended(&mut self) -> Result<bool> {
        self.process.has_ended()
    }

    /// Asks fio to stop issuing requests now. Outstanding requests still complete.
    pub fn stop(&mut self) {
        self.timeout = Duration::from_secs(TIMEOUT_SECONDS);
        self.process.signal(Signal::INT);
    }

    /// Pauses fio: outstanding requests complete, and no others follow.
    pub fn pause(&self) {
        self.process.signal(Signal::STOP);
    }

    /// Resumes fio.
    pub fn resume(&self) {
        self.process.signal(Signal::CONT);
    }

    /// Waits for the end and reads the measurements.
    pub fn finish(mut self) -> Result<Outcome> {
        // fio's exit status is not precise enough: an interrupted load fails too. Its own error number is
        // kept.
        if let Err(error) = self.process.wait(self.timeout)
            && std::fs::metadata(&self.result).map_or(0, |result| result.len()) == 0
        {
            return Err(error);
        }
        let text = std::fs::read_to_string(&self.result).context("fio left no result")?;
        let mut outcome = read_result(&text).with_context(|| self.process.output())?;
        for path in &self.logs {
            let text = std::fs::read_to_string(path).with_context(|| format!("no {}", path.display()))?;
            read_log(&text, &mut outcome.completions)?;
        }
        outcome.completions.sort_by_key(|completion| completion.at_ms);
        Ok(outcome)
    }
}

/// Reads fio's JSON, before which some engines print a line.
fn read_result(text: &str) -> Result<Outcome> {
    let start = text.find('{').context("fio printed no result")?;
    let value: Value = serde_json::from_str(&text[start..]).context("fio printed no JSON")?;
    let job = &value["jobs"][0];
    let all = &job["mixed"];
    if !all.is_object() {
        bail!("fio's result has no totals");
    }
    let latency = &all["lat_ns"];
    let percentile = |name: &str| latency["percentile"][name].as_f64().unwrap_or(0.0) / 1000.0;
    Ok(Outcome {
        requests: all["total_ios"].as_u64().unwrap_or(0),
        iops: all["iops"].as_f64().unwrap_or(0.0),
        p50_us: percentile("50.000000"),
        p99_us: percentile("99.000000"),
        error: job["error"].as_i64().unwrap_or(0),
        completions: Vec::new(),
    })
}

/// Reads a latency log with one line for each request: time in ms, latency in ns, and more.
fn read_log(text: &str, completions: &mut Vec<Completion>) -> Result<()> {
    for line in text.lines() {
        let mut fields = line.split(',').map(|field| field.trim().parse::<u64>());
        let (Some(Ok(at_ms)), Some(Ok(latency_ns))) = (fields.next(), fields.next()) else {
            bail!("fio's log has the line '{line}'");
        };
        completions.push(Completion { at_ms, latency_ns });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_read_after_other_output() {
        let text = "fio: connected\n{\"jobs\":[{\"error\":0,\"mixed\":{\"total_ios\":7,\"iops\":3.5,\
                    \"lat_ns\":{\"percentile\":{\"50.000000\":1500,\"99.000000\":9000}}}}]}";
        let outcome = read_result(text).unwrap();
        assert_eq!((outcome.requests, outcome.iops), (7, 3.5));
        assert_eq!((outcome.p50_us, outcome.p99_us), (1.5, 9.0));
        assert!(read_result("fio: no luck").is_err());
        assert!(read_result("{\"jobs\":[]}").is_err());
    }

    #[test]
    fn logs_are_read_line_by_line() {
        let mut completions = Vec::new();
        read_log("3, 1500, 0, 4096, 0, 0\n4, 1600, 1, 4096, 0, 0\n", &mut completions).unwrap();
        assert_eq!(completions[1], Completion { at_ms: 4, latency_ns: 1600 });
        assert!(read_log("nonsense\n", &mut completions).is_err());
    }
}
