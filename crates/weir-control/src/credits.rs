//! Burst credit across restarts: saved while the daemon runs, and restored at its start.
//!
//! The credit lies in a file of its own, because it changes all the time and is worth little. The file is not
//! synced. If it cannot be read, every workload starts with the initial credit of its policy.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use weir_qos::{Credits, Limit};
use weir_types::Scope;

use crate::core::Core;

/// Name of the file in the state folder.
const CREDITS_FILE: &str = "credits.json";
/// Version of the file format.
const FORMAT: u32 = 1;

/// Content of the file.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct SavedCredits {
    format: u32,
    credits: Vec<Entry>,
}

/// Credit of one level under one limit.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Entry {
    scope: Scope,
    limit: Limit,
    /// Saved credit, in nanoseconds at the burst rate.
    credit_ns: u64,
    /// Time of this credit, in nanoseconds since 1970.
    at_ns: u64,
}

impl SavedCredits {
    /// Decodes the content of the file.
    ///
    /// # Errors
    /// In words, if this version does not understand it.
    pub fn decode(content: &[u8]) -> Result<SavedCredits, String> {
        let saved: SavedCredits = serde_json::from_slice(content).map_err(|error| error.to_string())?;
        match saved.format {
            FORMAT => Ok(saved),
            format => Err(format!("it has format {format}, not {FORMAT}")),
        }
    }
}

/// Nanoseconds since 1970: the only clock that continues while the daemon or the machine is down.
fn wall_ns() -> u64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX)
}

fn entries(credits: Vec<(Scope, Credits, u64)>, now_ns: u64) -> Vec<Entry> {
    let of_level = |(scope, credits, ago_ns): (Scope, Credits, u64)| {
        let at_ns = now_ns.saturating_sub(ago_ns);
        credits.into_iter().map(move |(limit, credit_ns)| Entry {
            scope: scope.clone(),
            limit,
            credit_ns,
            at_ns,
        })
    };
    credits.into_iter().flat_map(of_level).collect()
}

fn levels(entries: Vec<Entry>, now_ns: u64) -> Vec<(Scope, Credits, u64)> {
    let mut levels: Vec<(Scope, Credits, u64)> = Vec::new();
    for Entry { scope, limit, credit_ns, at_ns } in entries {
        match levels.iter_mut().find(|(known, ..)| *known == scope) {
            Some((_, credits, _)) => credits.push((limit, credit_ns)),
            None => levels.push((scope, vec![(limit, credit_ns)], now_ns.saturating_sub(at_ns))),
        }
    }
    levels
}

/// Saves and restores burst credit.
pub struct BurstCredits {
    pub(crate) core: Arc<Core>,
}

impl BurstCredits {
    fn credits_path(&self) -> PathBuf {
        self.core.state.join(CREDITS_FILE)
    }

    /// Saves the burst credit of all levels that have any. A failure is logged and has no other effect.
    pub fn save_credits(&self) {
        let credits = entries(self.core.engine.credits(), wall_ns());
        let path = self.credits_path();
        if credits.is_empty() && !path.exists() {
            return;
        }
        let written = SavedCredits { format: FORMAT, credits };
        let new = path.with_extension("new");
        let result = serde_json::to_vec(&written)
            .map_err(std::io::Error::other)
            .and_then(|content| std::fs::write(&new, content))
            .and_then(|()| std::fs::rename(&new, &path));
        if let Err(error) = result {
            tracing::warn!(path = %path.display(), %error, "burst credit cannot be written down");
        }
    }

    /// Restores the credit that all levels had when the daemon ended, plus the credit earned since by not
    /// using it. It runs before any volume is served.
    pub(crate) fn restore_credits(&self) {
        let path = self.credits_path();
        let content = match std::fs::read(&path) {
            Ok(content) => content,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return,
            Err(error) => return tracing::warn!(path = %path.display(), %error, "burst credit is lost"),
        };
        match SavedCredits::decode(&content) {
            Ok(saved) => self.core.engine.restore_credits(levels(saved.credits, wall_ns())),
            Err(error) => tracing::warn!(path = %path.display(), %error, "burst credit is lost"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_qos::{Dimension, Rate};
    use weir_types::VolumeId;

    #[test]
    fn saved_credit_is_restored() {
        let scope = Scope::Volume(VolumeId(uuid::Uuid::from_u128(7)));
        let limit = |dimension| Limit { dimension, rate: Rate::Sustained };
        let credits = vec![(limit(Dimension::TotalOperations), 5), (limit(Dimension::TotalBytes), 6)];
        let saved = SavedCredits {
            format: FORMAT,
            credits: entries(vec![(scope.clone(), credits.clone(), 30)], 100),
        };
        let text = serde_json::to_vec(&saved).unwrap();
        let read = SavedCredits::decode(&text).unwrap();
        assert_eq!(levels(read.credits, 1100), [(scope, credits, 1030)]);
    }
}
