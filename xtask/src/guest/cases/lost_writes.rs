//! What a killed daemon wrote and the drive never got.

use std::path::Path;

use anyhow::{Result, ensure};

use crate::guest::inside::{self, DRIVE, Disk};
use crate::world::daemon::Daemon;

/// The kernel says once that a sync failed: the start after that one must know it all the same.
pub fn remembered() -> Result<()> {
    let data = Disk::mapped("data", "vdb")?;
    inside::mount_xfs_with_data_on(&data)?;
    let daemon = inside::start_with_volume()?;
    inside::attach("vol1")?.write(0, &[1; 4096])?;
    inside::kill(daemon);
    // In memory alone, as checksums and replica metadata may be that a daemon has just written.
    std::fs::write(Path::new(DRIVE).join("unsynced"), [1; 1 << 20])?;
    data.fail_writes()?;
    let daemon = inside::start()?;
    ensure!(is_refused(&daemon)?, "a drive is used though its first sync failed");
    inside::kill(daemon);
    data.heal()?;
    let daemon = inside::start()?;
    ensure!(is_refused(&daemon)?, "a start after the one whose sync failed uses the drive");
    daemon.run("drive accept drive --yes")?;
    ensure!(inside::attach("vol1")?.read(0, 4096)?.len() == 4096, "an accepted drive is used");
    drop(daemon);
    Ok(())
}

fn is_refused(daemon: &Daemon) -> Result<bool> {
    let shown = inside::printed("weir", &["--server", &daemon.server(), "status"])?;
    Ok(shown.contains("acknowledged writes to it may be lost"))
}
