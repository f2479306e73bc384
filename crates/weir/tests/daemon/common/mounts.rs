//! Small filesystems, for tests that fill, remount or unmount a filesystem below a daemon.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::common::daemon::State;
use crate::common::program::tool;

/// A mounted filesystem. Dropping it unmounts it.
pub struct Mount {
    point: PathBuf,
    image: Option<PathBuf>,
}

impl Mount {
    /// A filesystem in memory.
    pub fn tmpfs(point: &Path, mebibytes: u64) -> Mount {
        fs::create_dir_all(point).unwrap();
        let size = format!("size={mebibytes}m,mode=0700");
        tool("mount", &["-t", "tmpfs", "-o", &size, "none", point.to_str().unwrap()]);
        Mount { point: point.to_owned(), image: None }
    }

    /// An ext4 or XFS filesystem in a file.
    pub fn image(state: &State, kind: &str, point: &Path, mebibytes: u64) -> Mount {
        let image = state.beside(&format!("image-{}", point.file_name().unwrap().to_str().unwrap()));
        fs::File::create_new(&image).unwrap().set_len(mebibytes << 20).unwrap();
        tool(&format!("mkfs.{kind}"), &["-q", image.to_str().unwrap()]);
        fs::create_dir_all(point).unwrap();
        let mount = Mount { point: point.to_owned(), image: Some(image) };
        mount.mount();
        mount
    }

    /// Mounts an unmounted image again.
    pub fn mount(&self) {
        let image = self.image.as_ref().unwrap().to_str().unwrap();
        tool("mount", &["-o", "loop", image, self.point.to_str().unwrap()]);
    }

    /// Remounts the filesystem with other options.
    pub fn remount(&self, options: &str) {
        tool("mount", &["-o", &format!("remount,{options}"), self.point.to_str().unwrap()]);
    }

    /// Detaches the filesystem from its mount point. Files that are open there stay open.
    pub fn unmount(&self) {
        tool("umount", &["-l", self.point.to_str().unwrap()]);
    }

    pub fn point(&self) -> &Path {
        &self.point
    }

    /// Free bytes.
    pub fn free_bytes(&self) -> u64 {
        let space = rustix::fs::statvfs(&self.point).unwrap();
        space.f_bfree * space.f_frsize
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // A lazy unmount, because a failed test's daemon may still be ending. The filesystem may be unmounted
        // already.
        let _ = std::process::Command::new("umount").arg("-l").arg(&self.point).output();
    }
}

/// Detaches every filesystem that is mounted below a folder, the newest first.
pub fn unmount_below(folder: &Path) {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let points = mounts.lines().filter_map(|line| line.split(' ').nth(1)).map(Path::new);
    let mut points: Vec<&Path> = points.filter(|point| point.starts_with(folder)).collect();
    points.reverse();
    for point in points {
        let _ = std::process::Command::new("umount").arg("-l").arg(point).output();
    }
}

/// Fills a filesystem to its last byte with a file in this folder.
pub fn fill_to_the_last_byte(folder: &Path) -> PathBuf {
    let path = folder.join("filler");
    let mut file = fs::File::options().create(true).append(true).open(&path).unwrap();
    for size in [1 << 20, 4096, 1] {
        let bytes = vec![7; size];
        while file.write_all(&bytes).is_ok() && file.sync_data().is_ok() {}
    }
    path
}
