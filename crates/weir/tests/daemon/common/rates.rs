//! Rates of volumes, counted by the daemon and timed by the daemon's own clock.
//!
//! A busy machine therefore makes no ceiling look exceeded. The benches measure how exactly a ceiling is
//! reached. Tests only wait until it is reached.

use serde_json::Value;

use super::daemon::Daemon;
use super::wait_until;

/// Fraction of its rate that a busy volume must reach before the wait ends.
const REACHED: f64 = 0.85;
/// Catch-up that a volume may deliver at once after a stall of the machine, in seconds of its rate.
const CATCH_UP_SECONDS: f64 = 0.1;
/// All kinds of requests.
const KINDS: [&str; 3] = ["read", "write", "other"];

/// Set of volumes and kinds of requests whose answers are counted.
pub struct Counted<'a> {
    daemon: &'a Daemon,
    volumes: Vec<&'a str>,
    kinds: Vec<&'a str>,
}

/// Number of requests answered until a moment that is not before `at_ns` of the daemon's clock.
#[derive(Clone, Copy)]
struct Sample {
    at_ns: u64,
    answered: u64,
}

/// Requests answered in a time span, and an upper bound of the length of that span.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    pub answered: u64,
    pub seconds: f64,
}

impl Span {
    /// Returns the most requests that a ceiling lets through in this span.
    pub fn most(&self, iops: f64) -> f64 {
        iops * (self.seconds + CATCH_UP_SECONDS) + 2.0
    }
}

impl<'a> Counted<'a> {
    /// Counts all requests of the given volumes together.
    pub fn all(daemon: &'a Daemon, volumes: &[&'a str]) -> Counted<'a> {
        Counted { daemon, volumes: volumes.to_vec(), kinds: KINDS.to_vec() }
    }

    /// Counts the requests of one kind of one volume.
    pub fn only(daemon: &'a Daemon, volume: &'a str, kind: &'a str) -> Counted<'a> {
        Counted { daemon, volumes: vec![volume], kinds: vec![kind] }
    }

    fn sample(&self) -> Sample {
        let statistics = self.daemon.get("/v1/statistics/volumes");
        let of_volume = |volume: &&Value| self.volumes.iter().any(|name| volume["volume"] == *name);
        let volumes = statistics["volumes"].as_array().unwrap().iter().filter(of_volume);
        let of_kind = |volume: &Value, kind: &str| volume[kind]["operations"].as_u64().unwrap();
        let answered = |volume: &Value| self.kinds.iter().map(|kind| of_kind(volume, kind)).sum::<u64>();
        Sample { at_ns: statistics["timestamp_ns"].as_u64().unwrap(), answered: volumes.map(answered).sum() }
    }

    /// Counts the answers while `work` runs.
    pub fn during(&self, work: impl FnOnce()) -> Span {
        let first = self.sample();
        work();
        let last = self.sample();
        // A sample takes its time before its counts. The time of `end` is therefore not before the counts of
        // `last`.
        let end = self.sample();
        Span { answered: last.answered - first.answered, seconds: (end.at_ns - first.at_ns) as f64 / 1e9 }
    }

    /// Waits until this many more requests are answered.
    pub fn wait_for(&self, requests: u64) {
        let first = self.sample().answered;
        wait_until("requests are answered", || self.sample().answered >= first + requests);
    }

    /// Waits until requests are answered at this rate, and asserts that they never exceed it.
    pub fn keep_to(&self, iops: f64) {
        // Requests admitted before a change are answered first.
        self.wait_for((iops / 2.0) as u64 + 1);
        wait_until(&format!("{:?} have {iops} IOPS", self.volumes), || {
            let span = self.during(|| self.wait_for(iops as u64 + 1));
            assert!(span.answered as f64 <= span.most(iops), "{span:?} where {iops} IOPS are the ceiling");
            span.answered as f64 >= REACHED * iops * span.seconds
        });
    }

    /// Waits until more requests are answered than a ceiling of this rate allows.
    pub fn exceed(&self, iops: f64) {
        wait_until(&format!("{:?} have more than {iops} IOPS", self.volumes), || {
            let span = self.during(|| self.wait_for(iops as u64 + 1));
            span.answered as f64 > span.most(iops)
        });
    }
}

/// Waits until the daemon's clock has advanced by this many seconds.
pub fn pass_seconds(daemon: &Daemon, seconds: u64) {
    let now_ns = || daemon.get("/v1/statistics/volumes")["timestamp_ns"].as_u64().unwrap();
    let begun_ns = now_ns();
    wait_until("time has passed", || now_ns() >= begun_ns + seconds * 1_000_000_000);
}
