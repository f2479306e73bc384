//! The ring on the guest's kernel.

use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::guest::commands::run;
use crate::guest::image::RING_TESTS;
use crate::guest::inside::{self, Disk};

/// Which memory may be submitted as registered, and what an operation then does, is the kernel's to decide: of each kernel.
pub fn tests() -> Result<()> {
    let data = Disk::mapped("data", "vda")?;
    inside::mount_ext4(&data)?;
    // The tests ask for files in memory too.
    std::fs::create_dir_all("/dev/shm")?;
    run(Command::new("mount").args(["-t", "tmpfs", "shm", "/dev/shm"]))?;
    let tests = Command::new(RING_TESTS).current_dir(data.folder()).status().context("cannot run them")?;
    ensure!(tests.success(), "the ring's tests: {tests}");
    Ok(())
}
