//! Log: its format, its level, and a bound on lines that clients can cause.
//!
//! The level can be changed while the daemon runs.

use std::io::IsTerminal;
use std::str::FromStr;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Registry, fmt, reload};

/// The target of audit lines: one for each change.
pub const AUDIT: &str = "audit";
/// Lines of one kind that clients may cause within [`GATE_INTERVAL`].
const GATED_LINES_MAX: u32 = 10;
/// Interval in which at most [`GATED_LINES_MAX`] lines are written.
const GATE_INTERVAL: Duration = Duration::from_secs(1);

/// Format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// Text for people.
    #[default]
    Text,
    /// One JSON object for each line.
    Json,
}

/// The log level of this process.
struct Level {
    handle: reload::Handle<EnvFilter, Registry>,
    text: Mutex<String>,
}

static LEVEL: OnceLock<Level> = OnceLock::new();

/// Starts to write the log to standard error. A second daemon in the same process (in tests) keeps the first
/// one's log.
///
/// # Errors
/// In words, if the level is not understood.
pub fn start(level: &str, format: LogFormat) -> Result<(), String> {
    let (filter, handle) = reload::Layer::new(filter(level)?);
    let lines = fmt::layer().with_writer(std::io::stderr);
    let lines: Box<dyn Layer<_> + Send + Sync> = match format {
        LogFormat::Text => Box::new(lines.with_target(false).with_ansi(std::io::stderr().is_terminal())),
        LogFormat::Json => Box::new(lines.json().flatten_event(true)),
    };
    if tracing_subscriber::registry().with(filter).with(lines).try_init().is_ok() {
        // Only the first daemon of the process sets the level.
        let _ = LEVEL.set(Level { handle, text: Mutex::new(level.to_owned()) });
    }
    Ok(())
}

/// Parses a level. Audit lines are written at every level, unless the level names them.
fn filter(level: &str) -> Result<EnvFilter, String> {
    let parse = |text: &str| {
        EnvFilter::from_str(text).map_err(|error| {
            let accepted = "error, warn, info, debug, trace or a filter such as weir=debug is accepted";
            format!("log level '{level}': {error}; {accepted}")
        })
    };
    parse(level)?;
    if level.contains(AUDIT) { parse(level) } else { parse(&format!("{level},{AUDIT}=info")) }
}

/// The level of the log. `None` if this process writes no log.
pub fn level() -> Option<String> {
    LEVEL.get().map(|level| level.text.lock().unwrap_or_else(PoisonError::into_inner).clone())
}

/// Changes the level of the log.
///
/// # Errors
/// In words, if the level is not understood or this process writes no log.
pub fn set_level(text: &str) -> Result<(), String> {
    let filter = filter(text)?;
    let level = LEVEL.get().ok_or("this process writes no log whose level could be changed")?;
    level.handle.reload(filter).map_err(|error| format!("log level '{text}': {error}"))?;
    text.clone_into(&mut level.text.lock().unwrap_or_else(PoisonError::into_inner));
    Ok(())
}

/// Rate limit for one kind of log line that clients can cause.
#[derive(Debug, Default)]
pub struct LineGate {
    state: Mutex<GateState>,
}

#[derive(Debug, Default)]
struct GateState {
    began: Option<Instant>,
    written: u32,
    suppressed: u64,
}

impl LineGate {
    /// A gate that no line has passed yet.
    pub const fn new() -> LineGate {
        LineGate { state: Mutex::new(GateState { began: None, written: 0, suppressed: 0 }) }
    }

    /// `Some` if a line may be written now: the number of lines suppressed since the last written line.
    pub fn pass(&self) -> Option<u64> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).pass(Instant::now())
    }
}

impl GateState {
    fn pass(&mut self, now: Instant) -> Option<u64> {
        if self.began.is_none_or(|began| now.duration_since(began) >= GATE_INTERVAL) {
            (self.began, self.written) = (Some(now), 0);
        }
        if self.written >= GATED_LINES_MAX {
            self.suppressed += 1;
            return None;
        }
        self.written += 1;
        Some(std::mem::take(&mut self.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_lines_of_clients_are_rate_limited_and_counted() {
        let (mut gate, begin) = (GateState::default(), crate::control::tests::origin());
        let most = u64::from(GATED_LINES_MAX);
        let passed = (0..1000).filter(|_| gate.pass(begin).is_some()).count() as u64;
        assert_eq!(passed, most);
        assert_eq!(gate.pass(begin + GATE_INTERVAL), Some(1000 - most), "it tells how many were left out");
        assert_eq!(gate.pass(begin + GATE_INTERVAL), Some(0));
    }

    #[test]
    fn audit_lines_are_on_at_every_level_unless_named() {
        for (level, expected) in [("error", true), ("weir=debug", true), ("info,audit=off", false)] {
            let filter = filter(level).unwrap().to_string();
            assert_eq!(filter.contains("audit=info"), expected, "{filter}");
        }
        assert!(filter("weir=loud").unwrap_err().contains("is accepted"));
    }
}
