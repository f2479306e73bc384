//! What a killed daemon wrote and the drive never got.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};

use crate::guest::commands::run;
use crate::guest::inside::{self, DRIVE, Disk};
use crate::world::daemon::Daemon;

/// Drives of one filesystem: whoever asks it second is told nothing.
const DRIVES: [&str; 2] = ["one", "two"];

/// The kernel says once that a sync failed: all drives there, and the start after that one, must know it all the same.
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

/// The same of drives that are missing at the start, and found while the daemon runs.
pub fn found_later() -> Result<()> {
    let data = Disk::mapped("data", "vdb")?;
    kill_unsynced(&data)?;
    // Mounted elsewhere too, the filesystem stays in the kernel with what is to be told of it.
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

/// Drives with a volume each on one filesystem, whose daemon is killed with writes that were acknowledged and not flushed.
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

/// Has the disk lose writes, and work again.
fn lose_writes(data: &Disk) -> Result<()> {
    data.fail_writes()?;
    // Whoever syncs one file is told of that file: the filesystem's own failure is still to be told.
    let unsynced = File::create(Path::new(DRIVE).join("unsynced"))?;
    unsynced.write_all_at(&[1; 1 << 20], 0)?;
    ensure!(unsynced.sync_all().is_err(), "the disk takes no writes");
    data.heal()
}

/// How many drives are not used because writes to them may be lost.
fn refused(daemon: &Daemon) -> Result<usize> {
    let shown = inside::printed("weir", &["--server", &daemon.server(), "status"])?;
    println!("{shown}");
    Ok(shown.matches("' uses it as it is").count())
}

/// How many drives were not found.
fn missing(daemon: &Daemon) -> Result<usize> {
    let shown = inside::printed("weir", &["--server", &daemon.server(), "status"])?;
    Ok(shown.matches("bring it back, and it is used again").count())
}
