//! Interrupts: an interrupted run leaves no folders of test data behind, of which some are in memory, and no
//! loop devices.
//!
//! Processes need no care here, because they die with this one.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::shared_disk;

static FOLDERS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
static DEVICES: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Releases the remembered loop devices and removes the remembered folders on an interrupt, before the
/// program ends.
pub fn watch() -> Result<()> {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM]).context("cannot watch for interrupts")?;
    std::thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            // Devices come first, because they may be mounted in these folders.
            devices().iter().for_each(|device| shared_disk::release(device));
            for folder in folders().iter() {
                // A folder that cannot be removed is ignored.
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

/// Removes a folder from the list.
pub fn forget(folder: &Path) {
    folders().retain(|known| known != folder);
}

/// Adds a loop device to those that an interrupt releases.
pub fn remember_device(device: &Path) {
    devices().push(device.to_owned());
}

/// Removes a loop device from the list.
pub fn forget_device(device: &Path) {
    devices().retain(|known| known != device);
}

fn devices() -> MutexGuard<'static, Vec<PathBuf>> {
    DEVICES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn folders() -> MutexGuard<'static, Vec<PathBuf>> {
    FOLDERS.lock().unwrap_or_else(PoisonError::into_inner)
}
