//! Plain files bench: the same load on files of the same filesystem, which are reflinked instead of
//! snapshots, without any daemon.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::{Course, GIB, LOG_BYTES, Options, Stage};
use crate::world::fio::{Load, Target};

/// Measures on a filesystem as Weir creates it.
pub fn reflink_files(options: &Options, written: u64, seconds: [u64; 2]) -> Result<Course> {
    let stage = Stage::new(options)?;
    let mounts = stage.folder.path().join("state/mounts");
    let mount = fs::read_dir(&mounts)?.next().context("no drive is mounted")??.path();
    let data = create(&stage, &mount, "data", written)?;
    let log = create(&stage, &mount, "log", LOG_BYTES)?;
    let files: Vec<PathBuf> = data.1.into_iter().chain(log.1).collect();
    Course::run(stage.folder.path(), [data.0, log.0], seconds, |number| reflink(&mount, &files, number))
}

/// Writes files of a GiB each, as extents are, and returns a load on all of them.
fn create(stage: &Stage, mount: &Path, name: &str, bytes: u64) -> Result<(Load, Vec<PathBuf>)> {
    let files: Vec<PathBuf> = (0..bytes / GIB).map(|index| mount.join(format!("{name}-{index}"))).collect();
    let names: Vec<_> = files.iter().map(|path| path.to_string_lossy()).collect();
    let target = Target::File(names.join(":").into());
    let fill = Load::fill(format!("fill-{name}"), target.clone(), bytes);
    let fill = Load { extra: vec!["--file_service_type=sequential".to_owned()], ..fill };
    fill.run(stage.folder.path())?;
    let extra = vec!["--file_service_type=random".to_owned()];
    Ok((Load { extra, ..Load::new(name, target, bytes) }, files))
}

/// Reflinks all files to new ones, durably.
fn reflink(mount: &Path, files: &[PathBuf], number: u32) -> Result<()> {
    for path in files {
        let name = path.file_name().context("a file has a name")?.to_string_lossy();
        let twin = mount.join(format!("snapshot-{number}-{name}"));
        let (source, target) = (File::open(path)?, File::create(twin)?);
        rustix::fs::ioctl_ficlone(&target, &source).context("cannot reflink")?;
    }
    rustix::fs::syncfs(&File::open(mount)?).context("cannot make reflinks durable")
}
