//! Block status while a drive does not answer.

use std::path::Path;
use std::time::Instant;

use anyhow::{Result, ensure};

use crate::guest::client::Client;
use crate::guest::inside::{self, Disk, STATE};
use crate::world::daemon::Daemon;

/// Bytes of data in each volume.
const DATA_BYTES: usize = 1 << 20;

/// Checks block status with each drive hung in turn. Another replica answers for a replicated volume, and a
/// volume on another drive answers itself.
pub fn hung_drive() -> Result<()> {
    let disks = [Disk::mapped("one", "vda")?, Disk::mapped("two", "vdb")?];
    for disk in &disks {
        inside::mount_ext4(disk)?;
    }
    let mut daemon = inside::start()?;
    for disk in &disks {
        let folder = disk.folder().display().to_string();
        daemon.run(&format!("drive add {folder} --no-measurement --class high"))?;
    }
    daemon.run("volume create both --size 1 --io-priority high --repl 2")?;
    for name in ["one", "two"] {
        daemon.run(&format!("volume create on-{name} --size 1 --drive {name}"))?;
    }
    for volume in ["both", "on-one", "on-two"] {
        let mut client = inside::attach(volume)?;
        client.write(0, &[1; DATA_BYTES])?;
        client.flush()?;
    }
    daemon.process().stop()?;
    drop(daemon);
    for (disk, other) in [(&disks[0], "on-two"), (&disks[1], "on-one")] {
        answered_without(disk, other)?;
    }
    Ok(())
}

/// Checks both volumes with one disk hung. The daemon has opened no extent yet, so it knows nothing without
/// the disk.
fn answered_without(disk: &Disk, other: &str) -> Result<()> {
    let mut daemon: Daemon = inside::start()?;
    let socket = Path::new(STATE).join("nbd.sock");
    let mut both = Client::attach_with_status(&socket, "both")?;
    let mut other = Client::attach_with_status(&socket, other)?;
    inside::forget_pages()?;
    disk.hang()?;
    let begun = Instant::now();
    let (mirrored, alone) = (both.status(0, 2 * DATA_BYTES), other.status(0, 2 * DATA_BYTES));
    println!("two block status while a drive hangs: {} us", begun.elapsed().as_micros());
    disk.answer()?;
    let expected = vec![(DATA_BYTES as u32, false), (DATA_BYTES as u32, true)];
    ensure!(mirrored? == expected, "the other replica's status is the volume's");
    ensure!(alone? == expected, "a volume on another drive has its status");
    daemon.process().stop()
}
