//! Rates of volumes, counted by the daemon and timed by its own clock, so that a busy machine makes no ceiling look
//! exceeded. How exactly a ceiling is reached is for the benches; here it is only waited until it is.

use serde_json::Value;

use super::daemon::Daemon;
use super::wait_until;

/// The part of its rate that a busy volume is waited for to have.
const REACHED: f64 = 0.85;
/// What may come at once of a volume whose requests waited through a stall of the machine, in seconds of its rate.
const CATCH_UP_SECONDS: f64 = 0.1;
/// All kinds of requests.
const KINDS: [&str; 3] = ["read", "write", "other"];

/// Volumes that are used, and which of their requests are counted.
pub struct Counted<'a> {
    daemon: &'a Daemon,
    volumes: Vec<&'a str>,
    kinds: Vec<&'a str>,
}

/// Requests answered until a moment that is not before `at_ns` of the daemon's clock.
#[derive(Clone, Copy)]
struct Sample {
    at_ns: u64,
    answered: u64,
}

/// What was answered in a span of time, and what is at least as long as that span.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    pub answered: u64,
    pub seconds: f64,
}

impl Span {
    /// The most that a ceiling lets through in it.
    pub fn most(&self, iops: f64) -> f64 {
        iops * (self.seconds + CATCH_UP_SECONDS) + 2.0
    }
}

impl<'a> Counted<'a> {
    /// All requests of volumes, together.
    pub fn all(daemon: &'a Daemon, volumes: &[&'a str]) -> Counted<'a> {
        Counted { daemon, volumes: volumes.to_vec(), kinds: KINDS.to_vec() }
    }

    /// The requests of one kind of a volume.
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

    /// What is answered while something is done.
    pub fn during(&self, work: impl FnOnce()) -> Span {
        let first = self.sample();
        work();
        let last = self.sample();
        // A sample's time is taken before its counts, so this one is not before those of the last.
        let end = self.sample();
        Span { answered: last.answered - first.answered, seconds: (end.at_ns - first.at_ns) as f64 / 1e9 }
    }

    /// Waits until so many requests more are answered.
    pub fn wait_for(&self, requests: u64) {
        let first = self.sample().answered;
        wait_until("requests are answered", || self.sample().answered >= first + requests);
    }

    /// Waits until requests are answered at this rate, which is never exceeded.
    pub fn keep_to(&self, iops: f64) {
        // What was admitted before a change is answered first.
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

/// Waits until so many seconds have passed for the daemon.
pub fn pass_seconds(daemon: &Daemon, seconds: u64) {
    let now_ns = || daemon.get("/v1/statistics/volumes")["timestamp_ns"].as_u64().unwrap();
    let begun_ns = now_ns();
    wait_until("time has passed", || now_ns() >= begun_ns + seconds * 1_000_000_000);
}
