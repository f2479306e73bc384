//! Temporary folders, in memory or on a real disk.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::interrupt;

/// Folder of memory-backed files.
const MEMORY: &str = "/dev/shm";

/// New, empty folder that is removed with its contents when dropped, unless kept.
pub struct Folder {
    path: PathBuf,
    is_kept: bool,
}

impl Folder {
    /// Creates a folder below `parent`, with a name that no other process has taken.
    pub fn new(parent: &Path, name: &str) -> Result<Folder> {
        std::fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))?;
        let path = parent.join(format!("{name}-{}", std::process::id()));
        let made = DirBuilder::new().mode(0o755).create(&path);
        made.with_context(|| format!("cannot create {}", path.display()))?;
        interrupt::remember(&path);
        Ok(Folder { path, is_kept: false })
    }

    /// Creates a folder in memory.
    pub fn in_memory(name: &str) -> Result<Folder> {
        if filesystem_of(Path::new(MEMORY)).as_deref() != Some("tmpfs") {
            bail!("{MEMORY} is not a memory filesystem");
        }
        Folder::new(Path::new(MEMORY), name)
    }

    /// Creates a folder on a disk: below `wanted` if given, else where temporary or built files go.
    pub fn on_disk(wanted: Option<&Path>, root: &Path, name: &str) -> Result<Folder> {
        if let Some(wanted) = wanted {
            return Folder::new(wanted, name);
        }
        let candidates = [std::env::temp_dir(), PathBuf::from("/var/tmp"), root.join("target")];
        let is_disk = |path: &&PathBuf| filesystem_of(path).is_some_and(|kind| kind != "tmpfs");
        match candidates.iter().find(is_disk) {
            Some(parent) => Folder::new(parent, name),
            None => bail!("no folder on a disk found; name one"),
        }
    }

    /// Returns the path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Leaves the folder in place when dropped.
    pub fn keep(&mut self) {
        interrupt::forget(&self.path);
        self.is_kept = true;
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        interrupt::forget(&self.path);
        if !self.is_kept {
            // A folder that cannot be removed is ignored: nothing depends on it.
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

/// Returns the type of the filesystem that holds a path.
fn filesystem_of(path: &Path) -> Option<String> {
    let path = path.canonicalize().ok()?;
    let mounts = std::fs::read_to_string("/proc/mounts").ok()?;
    let fields = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        Some((fields.next()?, fields.next()?))
    });
    let holding = fields.filter(|(point, _)| path.starts_with(point));
    holding.max_by_key(|(point, _)| point.len()).map(|(_, kind)| kind.to_owned())
}

/// Returns the whole disk, as `MAJOR:MINOR`, that holds a path, or `None` if no single disk does.
pub fn disk_of(path: &Path) -> Option<String> {
    use std::os::linux::fs::MetadataExt;
    let device = std::fs::metadata(path).ok()?.st_dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let entry = PathBuf::from(format!("/sys/dev/block/{major}:{minor}")).canonicalize().ok()?;
    let disk = if entry.join("partition").exists() { entry.parent()?.to_owned() } else { entry };
    Some(std::fs::read_to_string(disk.join("dev")).ok()?.trim().to_owned())
}

/// Returns the bytes that the disk with a path has written since the machine started.
pub fn bytes_written_to_disk_of(path: &Path) -> Result<u64> {
    let disk = disk_of(path).with_context(|| format!("no disk holds {}", path.display()))?;
    let stat = std::fs::read_to_string(format!("/sys/dev/block/{disk}/stat"))?;
    // The seventh field counts sectors of 512 bytes, whatever the disk's own are.
    let sectors = stat.split_whitespace().nth(6).and_then(|field| field.parse::<u64>().ok());
    Ok(sectors.with_context(|| format!("the statistics of disk {disk} are not understood"))? * 512)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_is_removed_unless_kept() {
        let mut folder = Folder::new(&std::env::temp_dir(), "weir-folder-test").unwrap();
        let path = folder.path().to_owned();
        assert!(path.is_dir());
        folder.keep();
        drop(folder);
        assert!(path.is_dir());
        drop(Folder { path: path.clone(), is_kept: false });
        assert!(!path.exists());
    }

    #[test]
    fn filesystem_of_a_path_is_found() {
        assert!(filesystem_of(Path::new("/proc/self")).is_some_and(|kind| kind == "proc"));
    }
}
