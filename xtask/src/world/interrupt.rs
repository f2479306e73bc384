//! What an interrupt must not leave behind: folders full of test data, some of them in memory. Processes need
//! no care here; they die with this one.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

static FOLDERS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// From now on an interrupt removes the remembered folders before it ends the program.
pub fn watch() -> Result<()> {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM]).context("cannot watch for interrupts")?;
    std::thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            for folder in folders().iter() {
                // Nothing can be done about a folder that cannot be removed.
                let _ = std::fs::remove_dir_all(folder);
            }
            std::process::exit(128 + signal);
        }
    });
    Ok(())
}

/// Adds a folder to those that an interrupt removes.
pub fn remember(folder: &Path) {
    folders().push(folder.to_owned());
}

/// Takes a folder off the list.
pub fn forget(folder: &Path) {
    folders().retain(|known| known != folder);
}

fn folders() -> MutexGuard<'static, Vec<PathBuf>> {
    FOLDERS.lock().unwrap_or_else(PoisonError::into_inner)
}
