//! Cgroup folders: which cgroup a folder of a mounted hierarchy is.

use std::fs;
use std::path::Path;

use weir_types::Cgroup;

use crate::error::AttachError;
use crate::mount_table::{self, Mount};

/// Types of the filesystem of hierarchies, of version 1 and 2.
const KINDS: [&str; 2] = ["cgroup", "cgroup2"];

/// Returns the cgroup of a folder.
///
/// # Errors
/// If there is no such folder, or it is no cgroup.
pub fn cgroup_at(folder: &Path) -> Result<Cgroup, AttachError> {
    let folder = folder.canonicalize().map_err(AttachError::system("examine", folder))?;
    let mounts = mount_table::read().map_err(AttachError::system("read the mount table for", &*folder))?;
    let own = fs::read_to_string("/proc/self/cgroup");
    let own = own.map_err(AttachError::system("read", "/proc/self/cgroup"))?;
    let is_folder = folder.is_dir();
    let found = cgroup_in(&mounts, &own, &folder).filter(|_| is_folder);
    found.ok_or(AttachError::NoCgroup { folder })
}

/// `own`: the cgroups of this process, which name the hierarchies.
fn cgroup_in(mounts: &[Mount], own: &str, folder: &Path) -> Option<Cgroup> {
    // Of several mounts at one place, the last one is visible.
    let around = mounts.iter().filter(|mount| folder.starts_with(&mount.place));
    let mount = around.max_by_key(|mount| mount.place.components().count())?;
    if !KINDS.contains(&&*mount.kind) {
        return None;
    }
    let below = folder.strip_prefix(&mount.place).ok()?;
    let path = mount.root.join(below);
    let hierarchies = own.lines().filter_map(Cgroup::parse).map(|cgroup| cgroup.controllers);
    let controllers = hierarchies.into_iter().find(|controllers| is_of(mount, controllers))?;
    Some(Cgroup { controllers, path: path.to_str()?.to_owned() })
}

/// True if a hierarchy with these controllers is mounted here.
fn is_of(mount: &Mount, controllers: &str) -> bool {
    match mount.kind.as_str() {
        "cgroup2" => controllers.is_empty(),
        _ => {
            let has = |controller| mount.options.split(',').any(|option| option == controller);
            !controllers.is_empty() && controllers.split(',').all(has)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[u8] = b"22 28 0:21 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
        23 22 0:22 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:9 - cgroup cgroup rw,cpu,cpuacct\n\
        24 22 0:23 /docker/1 /sys/fs/cgroup/blkio rw - cgroup cgroup rw,blkio\n\
        25 22 0:24 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n\
        26 22 0:25 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,nsdelegate\n";
    const OWN: &str = "5:blkio:/\n4:cpu,cpuacct:/x\n1:name=systemd:/\n0::/user.slice\n";

    #[test]
    fn folder_is_a_cgroup_of_the_hierarchy_that_is_mounted_around_it() {
        let mounts = mount_table::parse(TABLE);
        let found = |folder: &str| {
            cgroup_in(&mounts, OWN, Path::new(folder)).map(|found| (found.controllers, found.path))
        };
        for (folder, controllers, path) in [
            ("/sys/fs/cgroup/cpu,cpuacct/a/b", "cpu,cpuacct", "/a/b"),
            ("/sys/fs/cgroup/blkio/a", "blkio", "/docker/1/a"),
            ("/sys/fs/cgroup/systemd/a", "name=systemd", "/a"),
            ("/sys/fs/cgroup/unified/a b", "", "/a b"),
        ] {
            assert_eq!(found(folder), Some((controllers.to_owned(), path.to_owned())), "{folder}");
        }
        assert_eq!(found("/sys/fs/cgroup/unified").unwrap().1, "/");
        assert_eq!((found("/sys/fs/cgroup"), found("/home")), (None, None));
    }
}
