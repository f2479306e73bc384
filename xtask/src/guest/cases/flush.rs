//! What a start makes stable.

use std::fs::File;

use anyhow::{Result, ensure};

use crate::guest::inside::{self, DRIVE, Disk};

/// What a killed daemon wrote may be in the cache of the disk alone, and is read as the newest after the start. Forcing the
/// filesystem's log flushes another disk here, and none where the log is clean.
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
