//! What an interrupt must not leave behind: folders full of test data, some of them in memory, and loop devices.
//! Processes need no care here; they die with this one.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::shared_disk;

static FOLDERS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
static DEVICES: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// From now on an interrupt lets go of the remembered loop devices and removes the remembered folders before it ends the
/// program.
pub fn watch() -> Result<()> {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM]).context("cannot watch for interrupts")?;
    std::thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            // First, because what is mounted of them may be mounted in these folders.
            devices().iter().for_each(|device| shared_disk::release(device));
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

/// Adds a loop device to those that an interrupt lets go of.
pub fn remember_device(device: &Path) {
    devices().push(device.to_owned());
}

/// Takes a loop device off the list.
pub fn forget_device(device: &Path) {
    devices().retain(|known| known != device);
}

fn devices() -> MutexGuard<'static, Vec<PathBuf>> {
    DEVICES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn folders() -> MutexGuard<'static, Vec<PathBuf>> {
    FOLDERS.lock().unwrap_or_else(PoisonError::into_inner)
}
