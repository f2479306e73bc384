//! Lost writes: a killed daemon wrote data that never reached the drive.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};

use crate::guest::commands::run;
use crate::guest::inside::{self, DRIVE, Disk};
use crate::world::daemon::Daemon;

/// Drives of one filesystem. The kernel reports a failed sync only to the first drive that syncs.
const DRIVES: [&str; 2] = ["one", "two"];

/// The kernel reports a failed sync only once. Checks that all drives of the filesystem and the following
/// start still know of it.
pub fn remembered() -> Result<()> {
    let data = Disk::mapped("data", "vdb")?;
    kill_unsynced(&data)?;
    lose_writes(&data)?;
    let daemon = inside::start()?;
    ensure!(
        refused(&daemon)? == DRIVES.len(),
        "a drive is used though the first sync of its filesystem failed"
    );
    inside::kill(daemon);
    let daemon = inside::start()?;
    ensure!(refused(&daemon)? == DRIVES.len(), "a start after the one whose sync failed uses a drive");
    daemon.run("drive accept two --yes")?;
    ensure!(refused(&daemon)? == DRIVES.len() - 1, "an accepted drive is used");
    ensure!(inside::attach("on-two")?.read(0, 4096)?.len() == 4096, "its volume is served");
    Ok(())
}

/// Checks the same for drives that are missing at the start and found while the daemon runs.
pub fn found_later() -> Result<()> {
    let data = Disk::mapped("data", "vdb")?;
    kill_unsynced(&data)?;
    // A second mount keeps the filesystem in the kernel, with its unreported failure.
    let elsewhere = Path::new("/mnt/elsewhere");
    std::fs::create_dir(elsewhere)?;
    run(Command::new("mount").args(["--bind", DRIVE]).arg(elsewhere))?;
    lose_writes(&data)?;
    run(Command::new("umount").arg(DRIVE))?;
    let daemon = inside::start()?;
    ensure!(missing(&daemon)? == DRIVES.len(), "the drives are not there at the start");
    run(Command::new("mount").arg("--bind").arg(elsewhere).arg(DRIVE))?;
    inside::wait_until("the drives are found", || Ok(missing(&daemon)? == 0))?;
    ensure!(
        refused(&daemon)? == DRIVES.len(),
        "a drive is used though the first sync of its filesystem failed"
    );
    Ok(())
}

/// Creates drives with a volume each on one filesystem, and kills the daemon after writes that are
/// acknowledged and not flushed.
fn kill_unsynced(data: &Disk) -> Result<()> {
    inside::mount_xfs_with_data_on(data)?;
    let daemon = inside::start()?;
    for name in DRIVES {
        let folder = Path::new(DRIVE).join(name);
        std::fs::create_dir(&folder)?;
        daemon.run(&format!("drive add {} --no-measurement", folder.display()))?;
        daemon.run(&format!("volume create on-{name} --size 1 --drive {name}"))?;
        inside::attach(&format!("on-{name}"))?.write(0, &[1; 4096])?;
    }
    inside::kill(daemon);
    Ok(())
}

/// Makes the disk lose writes, and then work again.
fn lose_writes(data: &Disk) -> Result<()> {
    data.fail_writes()?;
    // A sync of one file reports only the failure of this file. The failure of the filesystem stays
    // unreported.
    let unsynced = File::create(Path::new(DRIVE).join("unsynced"))?;
    unsynced.write_all_at(&[1; 1 << 20], 0)?;
    ensure!(unsynced.sync_all().is_err(), "the disk takes no writes");
    data.heal()
}

/// Returns the number of drives that are out of use because writes to them may be lost.
fn refused(daemon: &Daemon) -> Result<usize> {
    let shown = inside::printed("weir", &["--server", &daemon.server(), "status"])?;
    println!("{shown}");
    Ok(shown.matches("' uses it as it is").count())
}

/// Returns the number of drives that were not found.
fn missing(daemon: &Daemon) -> Result<usize> {
    let shown = inside::printed("weir", &["--server", &daemon.server(), "status"])?;
    Ok(shown.matches("bring it back, and it is used again").count())
}
