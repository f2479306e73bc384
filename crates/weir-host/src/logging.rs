//! Log: its format and its level.
//!
//! The level can be changed while the daemon runs.

use std::io::IsTerminal;
use std::str::FromStr;
use std::sync::{Mutex, OnceLock, PoisonError};

use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Registry, fmt, reload};

/// The target of audit lines: one for each change.
pub const AUDIT: &str = "audit";

/// Format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn audit_lines_are_on_at_every_level_unless_named() {
        for (level, expected) in [("error", true), ("weir=debug", true), ("info,audit=off", false)] {
            let filter = filter(level).unwrap().to_string();
            assert_eq!(filter.contains("audit=info"), expected, "{filter}");
        }
        assert!(filter("weir=loud").unwrap_err().contains("is accepted"));
    }
}
