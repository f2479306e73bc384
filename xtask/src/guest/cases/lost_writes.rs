//! What a killed daemon wrote and the drive never got.

use std::path::Path;

use anyhow::{Result, ensure};

use crate::guest::inside::{self, DRIVE, Disk};
use crate::world::daemon::Daemon;

/// Drives of one filesystem: whoever asks it second is told nothing.
const DRIVES: [&str; 2] = ["one", "two"];

/// The kernel says once that a sync failed: all drives there, and the start after that one, must know it all the same.
pub fn remembered() -> Result<()> {
    let data = Disk::mapped("data", "vdb")?;
    inside::mount_xfs_with_data_on(&data)?;
    let daemon = inside::start()?;
    for name in DRIVES {
        let folder = Path::new(DRIVE).join(name);
        std::fs::create_dir(&folder)?;
        daemon.run(&format!("drive add {} --no-measurement", folder.display()))?;
        daemon.run(&format!("volume create on-{name} --size 1 --drive {name}"))?;
        inside::attach(&format!("on-{name}"))?.write(0, &[1; 4096])?;
    }
    inside::kill(daemon);
    // In memory alone, as checksums and replica metadata may be that a daemon has just written.
    std::fs::write(Path::new(DRIVE).join("unsynced"), [1; 1 << 20])?;
    data.fail_writes()?;
    let daemon = inside::start()?;
    ensure!(
        refused(&daemon)? == DRIVES.len(),
        "a drive is used though the first sync of its filesystem failed"
    );
    inside::kill(daemon);
    data.heal()?;
    let daemon = inside::start()?;
    ensure!(refused(&daemon)? == DRIVES.len(), "a start after the one whose sync failed uses a drive");
    daemon.run("drive accept two --yes")?;
    ensure!(refused(&daemon)? == DRIVES.len() - 1, "an accepted drive is used");
    ensure!(inside::attach("on-two")?.read(0, 4096)?.len() == 4096, "its volume is served");
    Ok(())
}

/// How many drives are not used because writes to them may be lost.
fn refused(daemon: &Daemon) -> Result<usize> {
    let shown = inside::printed("weir", &["--server", &daemon.server(), "status"])?;
    println!("{shown}");
    Ok(shown.matches("' uses it as it is").count())
}
