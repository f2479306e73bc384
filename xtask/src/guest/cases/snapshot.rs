//! Snapshots whose duplicated data never reaches the disk.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use rustix::process::Signal;

use crate::guest::inside::{self, DRIVE, Disk};

/// Bytes of data in the volume: enough that their duplication can be interrupted.
const VOLUME_BYTES: usize = 96 << 20;
/// Size of one request, in bytes.
const REQUEST_BYTES: usize = 8 << 20;

/// Bytes that are duplicated when writeback fails.
const COPIED_BYTES: u64 = 8 << 20;

/// The kernel reports data lost in writeback only once, here to another file descriptor. Checks that the
/// snapshot fails nevertheless.
pub fn writeback_failed() -> Result<()> {
    let data = Disk::mapped("data", "vdb")?;
    inside::mount_xfs_with_data_on(&data)?;
    let mut daemon = inside::start_with_volume()?;
    let mut client = inside::attach("vol1")?;
    for offset in (0..VOLUME_BYTES).step_by(REQUEST_BYTES) {
        client.write(offset as u64, &[7; REQUEST_BYTES])?;
    }
    client.flush()?;
    let somebody = File::open(DRIVE)?;
    inside::sync(&somebody)?;
    data.fail_writes()?;
    let server = daemon.server();
    let snapshot = std::thread::spawn(move || {
        inside::printed("weir", &["--server", &server, "snapshot", "create", "vol1@s1"])
    });
    inside::wait_until("the snapshot's file has data", || Ok(snapshot_has_data()))?;
    daemon.process().signal(Signal::STOP);
    let told = inside::sync(&somebody);
    data.heal()?;
    daemon.process().signal(Signal::CONT);
    ensure!(told.is_err(), "no writeback failed, so the case shows nothing");
    let outcome = snapshot.join().expect("the thread only runs a program");
    if outcome.is_ok() {
        inside::forget_pages()?;
        let content = inside::attach("vol1@s1")?.read(0, REQUEST_BYTES)?;
        let is_whole = content.iter().all(|byte| *byte == 7);
        ensure!(is_whole, "a snapshot whose data the disk never got was declared durable");
        return inside::fail("a snapshot was declared durable although its writeback failed");
    }
    Ok(())
}

/// Returns true once the file of an unfinished snapshot is so large that part of it was written, not only
/// allocated.
fn snapshot_has_data() -> bool {
    let extents = extents_of_new(&Path::new(DRIVE).join("volumes"));
    let has_data =
        |path: PathBuf| path.metadata().is_ok_and(|metadata| metadata.blocks() * 512 >= COPIED_BYTES);
    extents.is_some_and(has_data)
}

fn extents_of_new(volumes: &Path) -> Option<PathBuf> {
    let mut folders = std::fs::read_dir(volumes).ok()?.flatten().map(|entry| entry.path());
    let new = folders.find(|path| path.extension().is_some_and(|suffix| suffix == "new"))?;
    Some(new.join("extents/00000000"))
}
