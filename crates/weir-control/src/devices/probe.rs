//! Probing of block devices: the system's description of a device, its users and its content.
//!
//! The module only reads and decides nothing.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use uuid::Uuid;
use weir_types::Name;
use weir_types::control_bounds::SYSTEM_TABLE_BYTES_MAX;

use crate::devices::program::{ProgramError, WIPEFS};
use crate::devices::tables::{self, DeviceNumber, Signature};
use crate::devices::verdict::{DriveThere, Found, Relation, Relative};
use crate::error::{ControlError, Outcome};

/// Unit of sizes in sysfs, in bytes, whatever the sector size of the device.
const SECTOR_BYTES: u64 = 512;
/// First bytes of an XFS filesystem.
const XFS_MAGIC: &[u8; 4] = b"XFSB";
/// Offset of the UUID in an XFS filesystem, in bytes.
const XFS_UUID_OFFSET: usize = 32;
/// Offset of the flag in an XFS filesystem that mkfs is at work, in bytes. The flag is not 0 until all else
/// is written.
const XFS_IN_PROGRESS_OFFSET: usize = 126;
/// Number of bytes at the begin of a device that are read.
const BEGINNING_BYTES: usize = 128;

/// An existing block device.
#[derive(Clone, Debug)]
pub struct BlockDevice {
    /// Device number.
    pub number: DeviceNumber,
    /// Path of the device, for example `/dev/sdb`.
    pub path: PathBuf,
    /// Folder of the device in sysfs.
    system: PathBuf,
}

/// A drive, with the facts that show whether a device is in use.
#[derive(Clone, Debug)]
pub struct KnownDrive {
    /// Name of the drive.
    pub name: Name,
    /// Folder of the drive.
    pub folder: PathBuf,
    /// Filesystem that was made for the drive, if it is a device.
    pub filesystem: Option<Uuid>,
    /// Number of the device that holds the folder, if the drive is present.
    pub number: Option<DeviceNumber>,
}

/// System tables about the users of devices.
struct Tables {
    mounts: String,
    swaps: String,
    /// Backing devices of loop devices, and the names of the loop devices.
    loops: Vec<(PathBuf, String)>,
}

/// Number of the block device at a path, if there is one.
pub fn number_at(path: &Path) -> Option<DeviceNumber> {
    let found = fs::metadata(path).ok().filter(|found| found.file_type().is_block_device())?;
    Some(found.rdev().into())
}

impl BlockDevice {
    /// Returns the device with a number.
    ///
    /// # Errors
    /// If the system has no device with this number.
    pub fn with(number: DeviceNumber) -> io::Result<BlockDevice> {
        let system = fs::canonicalize(format!("/sys/dev/block/{number}"))?;
        BlockDevice::of(number, system)
    }

    fn of(number: DeviceNumber, system: PathBuf) -> io::Result<BlockDevice> {
        let name = system.file_name().and_then(|name| name.to_str());
        let name = name.ok_or_else(|| io::Error::other(format!("{} is no device", system.display())))?;
        // The kernel writes '!' for a slash in the names of devices that lie in folders.
        let path = Path::new("/dev").join(name.replace('!', "/"));
        Ok(BlockDevice { number, path, system })
    }

    /// Returns all block devices.
    ///
    /// # Errors
    /// If the system cannot list them.
    pub fn list() -> io::Result<Vec<BlockDevice>> {
        let entries = fs::read_dir("/sys/class/block")?;
        let device = |entry: io::Result<fs::DirEntry>| {
            let system = entry.ok()?.path().canonicalize().ok()?;
            BlockDevice::in_system(system).ok()
        };
        Ok(entries.filter_map(device).collect())
    }

    fn in_system(system: PathBuf) -> io::Result<BlockDevice> {
        let text = fs::read_to_string(system.join("dev"))?;
        let number = text
            .trim()
            .split_once(':')
            .and_then(|(major, minor)| Some(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?)));
        let number = number.ok_or_else(|| io::Error::other(format!("'{text}' is no device number")))?;
        BlockDevice::of(number.into(), system)
    }

    fn attribute(&self, name: &str) -> io::Result<u64> {
        let path = self.system.join(name);
        let text = fs::read_to_string(&path)?;
        text.trim().parse().map_err(|_| io::Error::other(format!("{} says '{text}'", path.display())))
    }

    /// Size of the device in bytes.
    fn size_bytes(&self) -> io::Result<u64> {
        Ok(self.attribute("size")?.saturating_mul(SECTOR_BYTES))
    }

    /// True if the device rotates, as far as the kernel knows.
    pub fn is_rotational(&self) -> bool {
        let disk = self.disk().ok().flatten();
        disk.as_ref().unwrap_or(self).attribute("queue/rotational").is_ok_and(|answer| answer != 0)
    }

    fn is_partition(&self) -> bool {
        self.system.join("partition").exists()
    }

    /// The disk of a partition; `None` if the device is no partition.
    fn disk(&self) -> io::Result<Option<BlockDevice>> {
        let disk = self.system.parent().filter(|_| self.is_partition());
        disk.map(|disk| BlockDevice::in_system(disk.to_owned())).transpose()
    }

    fn partitions(&self) -> io::Result<Vec<BlockDevice>> {
        let entries = fs::read_dir(&self.system)?.collect::<io::Result<Vec<_>>>()?;
        let folders = entries.into_iter().map(|entry| entry.path());
        folders.filter(|path| path.join("partition").exists()).map(BlockDevice::in_system).collect()
    }

    /// Names of devices that the kernel built on this device.
    fn holders(&self) -> io::Result<Vec<String>> {
        let name = |entry: io::Result<fs::DirEntry>| Ok(entry?.file_name().to_string_lossy().into_owned());
        match fs::read_dir(self.system.join("holders")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            result => result?.map(name).collect(),
        }
    }

    /// True if another device is built on this device; both then show the same bytes.
    pub fn is_held(&self) -> bool {
        self.holders().is_ok_and(|holders| !holders.is_empty())
    }

    fn beginning(&self) -> io::Result<[u8; BEGINNING_BYTES]> {
        let mut beginning = [0; BEGINNING_BYTES];
        File::open(&self.path)?.read_exact(&mut beginning)?;
        Ok(beginning)
    }

    /// UUID of the XFS filesystem on the device, if there is one.
    pub fn filesystem(&self) -> io::Result<Option<Uuid>> {
        match self.beginning() {
            // The drive has no medium.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            result => result.map(|beginning| filesystem_in(&beginning)),
        }
    }

    /// True if mkfs did not finish the XFS filesystem on the device.
    pub fn is_half_made(&self) -> io::Result<bool> {
        Ok(self.beginning()?[XFS_IN_PROGRESS_OFFSET] != 0)
    }

    /// True if no user has opened the device exclusively, as a filesystem, swap space, a RAID and mkfs do.
    fn is_free(&self) -> io::Result<bool> {
        let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC;
        match rustix::fs::open(&self.path, flags, Mode::empty()) {
            Ok(_) => Ok(true),
            Err(rustix::io::Errno::BUSY) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn signatures(&self) -> Result<Vec<Signature>, String> {
        let path = self.path.to_string_lossy();
        let columns = "TYPE,USAGE,LABEL,UUID";
        let printed = WIPEFS.run(&["--no-act", "--json", "--output", columns, &path]);
        let printed = printed.map_err(|error: ProgramError| error.to_string())?;
        tables::signatures(&printed).map_err(|error| format!("wipefs is not understood: {error}"))
    }

    /// Collects all facts that decide whether the device can become a drive.
    ///
    /// # Errors
    /// Refused if the system cannot provide a fact.
    pub fn look(&self, shown: &str, drives: &[KnownDrive]) -> Outcome<Found> {
        let error = |why: String| ControlError::refused(format!("{shown} cannot be examined: {why}"));
        let signatures = self.signatures().map_err(error)?;
        let has = |drive: &&KnownDrive| {
            let mut filesystems = signatures.iter().filter_map(Signature::filesystem);
            drive.filesystem.is_some_and(|made| filesystems.any(|found| found == made))
        };
        let twin = drives.iter().find(has).map(|drive| drive.name.clone());
        self.describe(shown, drives, signatures, twin).map_err(|cause| error(cause.to_string()))
    }

    fn describe(
        &self,
        shown: &str,
        drives: &[KnownDrive],
        signatures: Vec<Signature>,
        twin: Option<Name>,
    ) -> io::Result<Found> {
        let tables = Tables::read()?;
        let family = [(Relation::Itself, self.clone())].into_iter();
        let family = family.chain(self.disk()?.map(|disk| (Relation::Disk, disk)));
        let family = family.chain(self.partitions()?.into_iter().map(|part| (Relation::Partition, part)));
        Ok(Found {
            shown: shown.to_owned(),
            path: self.path.clone(),
            size_bytes: self.size_bytes()?,
            is_read_only: self.attribute("ro")? != 0,
            family: family
                .map(|(relation, device)| device.relative(relation, &tables, drives))
                .collect::<io::Result<_>>()?,
            signatures,
            twin,
            is_free: self.is_free()?,
        })
    }

    fn relative(&self, relation: Relation, tables: &Tables, drives: &[KnownDrive]) -> io::Result<Relative> {
        let drive = drives.iter().find(|drive| drive.number == Some(self.number)).map(|drive| {
            let folder = drive.filesystem.is_none().then(|| drive.folder.clone());
            DriveThere { name: drive.name.clone(), folder }
        });
        let loops = tables.loops.iter().filter(|(backing, _)| *backing == self.path);
        let mut holders = self.holders()?;
        holders.extend(loops.map(|(_, name)| name.clone()));
        Ok(Relative {
            relation,
            path: self.path.clone(),
            drive,
            mounts: tables::mounts_of(&tables.mounts, self.number, &self.path),
            is_swap: tables::is_swap(&tables.swaps, &self.path),
            holders,
        })
    }
}

impl Tables {
    fn read() -> io::Result<Tables> {
        let backing = |device: &BlockDevice| fs::read_to_string(device.system.join("loop/backing_file"));
        let origin = |device: &BlockDevice| {
            let path = PathBuf::from(backing(device).ok()?.trim_end_matches('\n'));
            // A backing path that is no device, or is gone, belongs to no device.
            let path = BlockDevice::with(number_at(&path)?).ok()?.path;
            Some((path, device.path.file_name()?.to_string_lossy().into_owned()))
        };
        Ok(Tables {
            mounts: read_table("/proc/self/mountinfo")?,
            swaps: match read_table("/proc/swaps") {
                // The kernel has no swap support.
                Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
                result => result?,
            },
            loops: BlockDevice::list()?.iter().filter_map(origin).collect(),
        })
    }
}

/// Reads a system table.
///
/// # Errors
/// Also if the table is longer than the limit, because the truncated part could hold the answer.
fn read_table(path: &str) -> io::Result<String> {
    let mut bytes = Vec::new();
    let read = File::open(path)?.take(SYSTEM_TABLE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if read as u64 > SYSTEM_TABLE_BYTES_MAX {
        return Err(io::Error::other(format!("{path} is longer than {SYSTEM_TABLE_BYTES_MAX} bytes")));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn filesystem_in(beginning: &[u8; BEGINNING_BYTES]) -> Option<Uuid> {
    let uuid = Uuid::from_slice(&beginning[XFS_UUID_OFFSET..][..16]).ok()?;
    beginning.starts_with(XFS_MAGIC).then_some(uuid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn xfs_filesystem_is_recognised_by_its_first_bytes() {
        let uuid = Uuid::from_u128(0x6ba7_b810_9dad_41d1_80b4_00c0_4fd4_30c8);
        let mut beginning = [0; BEGINNING_BYTES];
        beginning[..4].copy_from_slice(XFS_MAGIC);
        beginning[XFS_UUID_OFFSET..][..16].copy_from_slice(uuid.as_bytes());
        assert_eq!(filesystem_in(&beginning), Some(uuid));
        beginning[3] = b'b';
        assert_eq!(filesystem_in(&beginning), None);
    }

    #[test]
    fn only_block_devices_have_a_number() {
        for path in ["/", "/dev/null", "/no/such/place"] {
            assert_eq!(number_at(Path::new(path)), None, "{path}");
        }
    }

    #[test]
    fn every_block_device_can_be_described() {
        for device in BlockDevice::list().unwrap_or_default() {
            let again = BlockDevice::with(device.number).unwrap();
            assert_eq!((again.path, again.system), (device.path.clone(), device.system.clone()));
            assert!(device.path.starts_with("/dev"), "{device:?}");
            assert_eq!(device.disk().unwrap().is_some(), device.is_partition(), "{device:?}");
        }
    }
}
