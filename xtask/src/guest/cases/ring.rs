//! Tests of the ring (io_uring) on the guest's kernel.

use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::guest::commands::run;
use crate::guest::image::RING_TESTS;
use crate::guest::inside::{self, Disk};

/// Runs the ring's tests. Each kernel decides which memory may be submitted as registered, and the effect on
/// an operation.
pub fn tests() -> Result<()> {
    let data = Disk::mapped("data", "vda")?;
    inside::mount_ext4(&data)?;
    // The tests need files in memory too.
    std::fs::create_dir_all("/dev/shm")?;
    run(Command::new("mount").args(["-t", "tmpfs", "shm", "/dev/shm"]))?;
    let tests = Command::new(RING_TESTS).current_dir(data.folder()).status().context("cannot run them")?;
    ensure!(tests.success(), "the ring's tests: {tests}");
    Ok(())
}
