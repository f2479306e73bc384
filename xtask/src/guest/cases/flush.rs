//! Flush at the start of the daemon.

use std::fs::File;

use anyhow::{Result, ensure};

use crate::guest::inside::{self, DRIVE, Disk};

/// Checks that a start flushes the cache of the data disk. Data of a killed daemon may be only in this cache,
/// and the next daemon reads it as current. A forced log of the filesystem flushes another disk here, and no
/// disk if the log is clean.
pub fn start() -> Result<()> {
    inside::mount_xfs_with_data_on(&Disk::mapped("data", "vdb")?)?;
    let daemon = inside::start_with_volume()?;
    let mut client = inside::attach("vol1")?;
    client.write(0, &[1; 4096])?;
    inside::kill(daemon);
    let folder = File::open(DRIVE)?;
    inside::sync(&folder)?;
    let before = inside::flushes("vdb")?;
    let daemon = inside::start()?;
    let after = inside::flushes("vdb")?;
    ensure!(
        after > before,
        "the daemon was ready without a flush of the cache of the disk that holds the data"
    );
    drop(daemon);
    Ok(())
}
