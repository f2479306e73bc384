//! Fencing: writes of a killed daemon that are still in flight at the drive.

use std::time::Duration;

use anyhow::{Result, ensure};

use crate::guest::inside::{self, Disk};

/// Bytes of a block.
const BLOCK_BYTES: usize = 4096;
/// Time that the drive takes for a write.
const DELAY: Duration = Duration::from_secs(8);

/// Checks that a block read by the next daemon no longer changes, unless a client of this daemon writes it.
pub fn killed() -> Result<()> {
    let data = Disk::mapped("data", "vdb")?;
    inside::mount_xfs_with_data_on(&data)?;
    let daemon = inside::start_with_volume()?;
    let mut client = inside::attach("vol1")?;
    client.write(0, &[1; BLOCK_BYTES])?;
    client.flush()?;
    data.delay_writes(DELAY)?;
    client.send_write(0, &[2; BLOCK_BYTES])?;
    inside::wait_until("a write is under way", || Ok(data.writes_delayed()? > 0))?;
    inside::kill(daemon);
    let daemon = inside::start()?;
    let mut client = inside::attach("vol1")?;
    let first = client.read(0, BLOCK_BYTES)?;
    let was_open = data.writes_delayed()? > 0;
    inside::wait_until("no write is under way", || Ok(data.writes_delayed()? == 0))?;
    let second = client.read(0, BLOCK_BYTES)?;
    ensure!(
        first == second,
        "a block changed from {} to {} by a write of the daemon that was killed before",
        first[0],
        second[0]
    );
    ensure!(!was_open, "a block was read while a killed daemon's write to it was under way");
    data.heal()?;
    client.write(0, &[3; BLOCK_BYTES])?;
    ensure!(client.read(0, BLOCK_BYTES)? == [3; BLOCK_BYTES], "a newer write is read back");
    drop(daemon);
    Ok(())
}
