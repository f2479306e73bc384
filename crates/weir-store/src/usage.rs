//! Usage of a drive: the folders of volumes on it, and its space.

use std::fs;
use std::os::unix::fs::MetadataExt;

use weir_types::VolumeId;

use super::{Context, DELETED_SUFFIX, NEW_SUFFIX, Store, StoreError};

/// Space on the filesystem that holds a drive, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriveUsage {
    /// Size of the filesystem.
    pub size_bytes: u64,
    /// Space in use on the filesystem, by any program.
    pub used_bytes: u64,
    /// Space that Weir can still use.
    pub available_bytes: u64,
    /// Device number of the filesystem. Several drives may lie on one filesystem.
    pub filesystem: u64,
}

impl DriveUsage {
    /// Space of several drives together. A filesystem that holds several of them counts once.
    pub fn together<'a>(usages: impl Iterator<Item = &'a DriveUsage>) -> DriveUsage {
        let mut seen: Vec<u64> = Vec::new();
        let mut sum = DriveUsage { size_bytes: 0, used_bytes: 0, available_bytes: 0, filesystem: 0 };
        for usage in usages {
            if !seen.contains(&usage.filesystem) {
                seen.push(usage.filesystem);
                sum.size_bytes = sum.size_bytes.saturating_add(usage.size_bytes);
                sum.used_bytes = sum.used_bytes.saturating_add(usage.used_bytes);
                sum.available_bytes = sum.available_bytes.saturating_add(usage.available_bytes);
            }
        }
        sum
    }

    /// Used percentage of the usable space, rounded down. The reserve of the filesystem is not usable.
    pub fn full_percent(&self) -> u8 {
        let usable_bytes = u128::from(self.used_bytes) + u128::from(self.available_bytes);
        let percent = u128::from(self.used_bytes) * 100 / usable_bytes.max(1);
        u8::try_from(percent).expect("a part is at most 100% of the whole")
    }
}

/// Content of the drive's folder of volumes.
#[derive(Debug, Default)]
pub struct FolderScan {
    /// Folders that are named like a volume.
    pub volumes: Vec<VolumeId>,
    /// Folders of volumes that a crash left half made, and of pending deletions.
    pub leftovers: Vec<VolumeId>,
    /// Names of all other entries.
    pub strangers: Vec<String>,
}

/// The volume that a folder is named after.
fn volume_of(name: &str) -> Option<VolumeId> {
    let id = uuid::Uuid::try_parse(name).ok()?;
    (id.to_string() == name).then_some(VolumeId(id))
}

impl Store {
    /// Lists the volumes' folders on the drive, in order of their identity.
    pub fn scan(&self) -> Result<FolderScan, StoreError> {
        let volumes = self.volumes();
        let mut scan = FolderScan::default();
        for entry in fs::read_dir(&volumes).context("read", &volumes)? {
            let name = entry.context("read", &volumes)?.file_name();
            let name = name.to_string_lossy();
            let leftover = name.strip_suffix(NEW_SUFFIX).or_else(|| name.strip_suffix(DELETED_SUFFIX));
            match (volume_of(&name), leftover.and_then(volume_of)) {
                (Some(id), _) => scan.volumes.push(id),
                (None, Some(id)) => scan.leftovers.push(id),
                (None, None) => scan.strangers.push(name.into_owned()),
            }
        }
        scan.volumes.sort_unstable();
        scan.leftovers.sort_unstable();
        scan.strangers.sort_unstable();
        Ok(scan)
    }

    /// Space of the drive's filesystem.
    pub fn usage(&self) -> Result<DriveUsage, StoreError> {
        let space = rustix::fs::statvfs(self.drive()).context("read the free space of", self.drive())?;
        let bytes = |blocks: u64| blocks.saturating_mul(space.f_frsize);
        Ok(DriveUsage {
            size_bytes: bytes(space.f_blocks),
            used_bytes: bytes(space.f_blocks.saturating_sub(space.f_bfree)),
            available_bytes: bytes(space.f_bavail),
            filesystem: fs::metadata(self.drive()).context("examine", self.drive())?.dev(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_percent_relates_to_usable_space() {
        for (used_bytes, available_bytes, percent) in
            [(0, 0, 0), (7, 0, 100), (0, 9, 0), (95, 5, 95), (199, 1, 99)]
        {
            // The reserve of the filesystem makes it no fuller.
            let usage = DriveUsage { size_bytes: 10_000, used_bytes, available_bytes, filesystem: 0 };
            assert_eq!(usage.full_percent(), percent);
        }
        let largest =
            DriveUsage { size_bytes: 0, used_bytes: u64::MAX, available_bytes: u64::MAX, filesystem: 0 };
        assert_eq!(largest.full_percent(), 50);
    }
}
