//! Filesystems on block devices: which one is there, making one, mounting it.
//!
//! A filesystem is made only where nothing is: never over anything that has a signature. A mount hides nothing: not
//! the files of a folder, and no other mount.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::str::FromStr;

use rustix::fs::StatVfsMountFlags;
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};

use crate::error::AttachError;
use crate::mount_table::{self, DeviceNumber};

/// Why a folder with a mount is no place for another.
const MOUNTED: &str = "something is mounted there; choose another folder";
/// Why a folder with files is no place for a mount.
const FILES: &str = "it has files, which a mount would hide; choose an empty folder";

/// A filesystem that can be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilesystemKind {
    /// ext4, by e2fsprogs.
    Ext4,
    /// XFS, by xfsprogs.
    Xfs,
}

impl FilesystemKind {
    /// All kinds.
    pub const ALL: [FilesystemKind; 2] = [FilesystemKind::Ext4, FilesystemKind::Xfs];

    /// The name, as `mount` has it.
    pub fn name(self) -> &'static str {
        match self {
            FilesystemKind::Ext4 => "ext4",
            FilesystemKind::Xfs => "xfs",
        }
    }

    fn program(self) -> &'static str {
        match self {
            FilesystemKind::Ext4 => "mkfs.ext4",
            FilesystemKind::Xfs => "mkfs.xfs",
        }
    }
}

impl FromStr for FilesystemKind {
    type Err = String;

    fn from_str(text: &str) -> Result<FilesystemKind, String> {
        let found = FilesystemKind::ALL.into_iter().find(|kind| kind.name() == text);
        found.ok_or_else(|| format!("'{text}' is not a filesystem that can be made; ext4 and xfs are"))
    }
}

/// How to mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MountOptions {
    /// Whether writes are refused.
    pub is_read_only: bool,
}

/// Returns the name of what is on a device: a filesystem, a partition table, or anything else that has a signature.
/// `None` if there is nothing.
///
/// # Errors
/// If the device cannot be read, or has no bytes.
pub fn probe(device: &Path) -> Result<Option<String>, AttachError> {
    /// Exit status of blkid(8): nothing was found, or the device could not be read.
    const NOTHING: i32 = 2;
    /// Exit status of blkid(8): several things were found.
    const SEVERAL: i32 = 8;
    let mut command = Command::new("blkid");
    command
        .args(["--probe", "--output", "export", "--match-tag", "TYPE", "--match-tag", "PTTYPE"])
        .arg(device);
    let output = run("blkid", &mut command)?;
    match output.status.code() {
        Some(NOTHING) => read_ends(device).map(|()| None).map_err(AttachError::system("read", device)),
        Some(SEVERAL) => Ok(Some("several things with signatures".to_owned())),
        Some(0) => Ok(Some(found_in(&String::from_utf8_lossy(&output.stdout)))),
        _ => Err(failed("blkid", &output)),
    }
}

/// Reads where signatures are: the beginning and the end. A device that cannot be read has not nothing.
fn read_ends(device: &Path) -> io::Result<()> {
    /// Bytes of each end: more than any signature that libblkid knows is away from it.
    const END_BYTES: u64 = 1 << 20;
    let mut file = File::open(device)?;
    let size_bytes = file.seek(SeekFrom::End(0))?;
    if size_bytes == 0 {
        return Err(io::Error::other("it has no bytes"));
    }
    let mut end = vec![0; END_BYTES.min(size_bytes) as usize];
    for start in [0, size_bytes - end.len() as u64] {
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(&mut end)?;
    }
    Ok(())
}

/// The type in blkid's output for programs.
fn found_in(output: &str) -> String {
    let values = output.lines().filter_map(|line| line.split_once('='));
    let mut types = values.filter_map(|(key, value)| match key {
        "TYPE" => Some(value.to_owned()),
        "PTTYPE" => Some(format!("a partition table ({value})")),
        _ => None,
    });
    types.next().unwrap_or_else(|| "something unknown".to_owned())
}

/// Makes sure that a device has a filesystem: makes one if there is nothing. Returns the name of the filesystem.
/// Without a kind, none is made.
///
/// # Errors
/// If something else is there, or the device is too small.
pub fn prepare(device: &Path, kind: Option<FilesystemKind>) -> Result<String, AttachError> {
    let found = probe(device)?;
    let is_unfinished = found.as_deref() == Some(FilesystemKind::Xfs.name()) && is_unfinished_xfs(device)?;
    match (found.filter(|_| !is_unfinished), kind) {
        (Some(found), Some(kind)) if found != kind.name() => {
            Err(AttachError::OtherContent { device: device.to_owned(), found, asked: kind.name() })
        }
        (Some(found), _) => Ok(found),
        (None, Some(kind)) => {
            let mut command = Command::new(kind.program());
            // What was not finished has a signature, over which the program makes nothing unasked.
            command.args(is_unfinished.then_some(if kind == FilesystemKind::Xfs { "-f" } else { "-F" }));
            let output = run(kind.program(), command.arg("-q").arg(device))?;
            if !output.status.success() {
                return Err(failed(kind.program(), &output));
            }
            Ok(kind.name().to_owned())
        }
        (None, None) => Err(AttachError::NoFilesystem { device: device.to_owned() }),
    }
}

/// True if the program that makes an XFS filesystem was killed: the superblock says that it is in progress
/// (`sb_inprogress` of `xfs_dsb`), and there are no files.
fn is_unfinished_xfs(device: &Path) -> Result<bool, AttachError> {
    /// Where the superblock says so, in bytes.
    const IN_PROGRESS_AT: u64 = 126;
    let mut byte = [0];
    let read = File::open(device).and_then(|mut file| {
        file.seek(SeekFrom::Start(IN_PROGRESS_AT))?;
        file.read_exact(&mut byte)
    });
    read.map_err(AttachError::system("read", device))?;
    Ok(byte == [1])
}

/// Creates a folder to mount on, or refuses one where a mount would hide files or another mount.
///
/// # Errors
/// If there is something to hide, or the folder cannot be created.
pub fn check_folder(folder: &Path) -> Result<(), AttachError> {
    fs::create_dir_all(folder).map_err(AttachError::system("create", folder))?;
    if mounted_at(folder)?.is_some() {
        return Err(AttachError::MountPoint { folder: folder.to_owned(), why: MOUNTED });
    }
    let mut entries = fs::read_dir(folder).map_err(AttachError::system("read", folder))?;
    if entries.next().is_some() {
        return Err(AttachError::MountPoint { folder: folder.to_owned(), why: FILES });
    }
    Ok(())
}

/// Returns the device of the filesystem that is mounted at a folder; `None` if none is.
///
/// # Errors
/// If the table of mounts cannot be read.
pub fn mounted_at(folder: &Path) -> Result<Option<DeviceNumber>, AttachError> {
    let folder = match fs::canonicalize(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        found => found.map_err(AttachError::system("examine", folder))?,
    };
    let table = mount_table::read().map_err(AttachError::system("read the mounts at", &folder))?;
    Ok(table.iter().rev().find(|mount| mount.place == folder).map(|mount| mount.device))
}

/// Mounts the filesystem of a device. A folder where it is mounted already is no error.
///
/// # Errors
/// If the mount would hide something, or the filesystem cannot be mounted.
pub fn mount(device: &Path, folder: &Path, kind: &str, options: MountOptions) -> Result<(), AttachError> {
    let number = number_of(device)?;
    if mounted_at(folder)? == Some(number) {
        return Ok(());
    }
    check_folder(folder)?;
    let mut flags = MountFlags::NODEV;
    flags.set(MountFlags::RDONLY, options.is_read_only);
    // A clone of a volume has the UUID of the volume, with which XFS mounts one of them alone.
    let data = (kind == FilesystemKind::Xfs.name()).then_some(c"nouuid");
    let mounted = rustix::mount::mount(device, folder, kind, flags, data);
    mounted.map_err(AttachError::system("mount at", folder))
}

/// Gives a mounted folder, or a block device, at another place, which exists. A place that has it already is no error.
/// Only a folder can be read-only.
///
/// # Errors
/// If something else is mounted there, or the caller may not mount.
pub fn bind(source: &Path, place: &Path, options: MountOptions) -> Result<(), AttachError> {
    if mounted_at(place)?.is_none() {
        // The link to a device may lead elsewhere later.
        let source = source.canonicalize().map_err(AttachError::system("examine", source))?;
        rustix::mount::mount_bind(&source, place).map_err(AttachError::system("mount at", place))?;
    } else if !is_same(source, place)? || is_more_read_only(place, source)? && !options.is_read_only {
        return Err(AttachError::MountPoint { folder: place.to_owned(), why: MOUNTED });
    }
    // A bind mount is read-only only after a second step, which may not have been reached before.
    if options.is_read_only {
        let flags = MountFlags::BIND | MountFlags::RDONLY | MountFlags::NODEV;
        let mounted = rustix::mount::mount_remount(place, flags, c"");
        mounted.map_err(AttachError::system("make read-only", place))?;
    }
    Ok(())
}

/// Returns where a mounted folder, or a block device, is seen, in the mount namespace of the caller; also where it was
/// before [`bind`].
///
/// # Errors
/// If the table of mounts cannot be read, or there is no such place.
pub fn places_bound_to(source: &Path) -> Result<Vec<PathBuf>, AttachError> {
    let real = source.canonicalize().map_err(AttachError::system("examine", source))?;
    let table = mount_table::read().map_err(AttachError::system("read the mounts of", &real))?;
    // A bind mount has the root of what it shows.
    let around = table.iter().filter(|mount| real.starts_with(&mount.place));
    let Some(around) = around.max_by_key(|mount| mount.place.components().count()) else {
        return Ok(Vec::new());
    };
    let inside = real.strip_prefix(&around.place).unwrap_or(Path::new(""));
    let root = if inside.as_os_str().is_empty() { around.root.clone() } else { around.root.join(inside) };
    let same = table.iter().filter(|mount| mount.device == around.device && mount.root == root);
    Ok(same.map(|mount| mount.place.clone()).collect())
}

/// True if a place is read-only and another one is not.
fn is_more_read_only(place: &Path, other: &Path) -> Result<bool, AttachError> {
    let is_read_only = |place: &Path| {
        let found = rustix::fs::statvfs(place).map_err(AttachError::system("examine", place))?;
        Ok::<_, AttachError>(found.f_flag.contains(StatVfsMountFlags::RDONLY))
    };
    Ok(is_read_only(place)? && !is_read_only(other)?)
}

/// True if the filesystem of a device is mounted at a folder.
///
/// # Errors
/// If the device or the table of mounts cannot be examined.
pub fn is_mounted_at(device: &Path, folder: &Path) -> Result<bool, AttachError> {
    Ok(mounted_at(folder)? == Some(number_of(device)?))
}

/// True if two places have the same folder, or block devices of the same number.
fn is_same(one: &Path, other: &Path) -> Result<bool, AttachError> {
    let identity = |place: &Path| {
        let found = rustix::fs::stat(place).map_err(AttachError::system("examine", place))?;
        Ok((found.st_dev, found.st_ino, found.st_rdev))
    };
    Ok(identity(one)? == identity(other)?)
}

/// Lets a mounted filesystem grow to the size of its device. One that is so large already is no error.
///
/// # Errors
/// If the filesystem cannot grow.
pub fn grow(device: &Path, place: &Path, kind: &str) -> Result<(), AttachError> {
    let (program, argument) = match kind {
        "ext4" => ("resize2fs", device),
        "xfs" => ("xfs_growfs", place),
        _ => return Ok(()),
    };
    let output = run(program, Command::new(program).arg(argument))?;
    if output.status.success() { Ok(()) } else { Err(failed(program, &output)) }
}

/// Unmounts a folder. One where nothing is mounted is no error.
///
/// # Errors
/// If files are in use.
pub fn unmount(folder: &Path) -> Result<(), AttachError> {
    match rustix::mount::unmount(folder, UnmountFlags::NOFOLLOW) {
        Ok(()) | Err(Errno::INVAL | Errno::NOENT) => Ok(()),
        Err(Errno::BUSY) => {
            Err(AttachError::Busy { device: folder.to_owned(), mounts: Vec::new(), users: Vec::new() })
        }
        Err(error) => Err(AttachError::system("unmount", folder)(error)),
    }
}

/// Returns where a device is mounted, in the mount namespace of the caller.
///
/// # Errors
/// If there is no such device, or the table of mounts cannot be read.
pub fn places_of(device: &Path) -> Result<Vec<PathBuf>, AttachError> {
    let number = number_of(device)?;
    mount_table::places_of(number).map_err(AttachError::system("find the mounts of", device))
}

/// The number of a block device.
fn number_of(device: &Path) -> Result<DeviceNumber, AttachError> {
    let found = rustix::fs::stat(device).map_err(AttachError::system("examine", device))?;
    if rustix::fs::FileType::from_raw_mode(found.st_mode) != rustix::fs::FileType::BlockDevice {
        let error = io::Error::other("it is no block device of this host");
        return Err(AttachError::system("use", device)(error));
    }
    Ok(DeviceNumber::of(found.st_rdev))
}

fn run(program: &'static str, command: &mut Command) -> Result<std::process::Output, AttachError> {
    let output = command.env("LC_ALL", "C").stdin(Stdio::null()).output();
    output.map_err(|error| AttachError::Program { program, words: error.to_string() })
}

fn failed(program: &'static str, output: &std::process::Output) -> AttachError {
    let words = String::from_utf8_lossy(&output.stderr);
    // xfsprogs explains all its options behind the error.
    let words = words.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:"));
    let words = words.filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ");
    AttachError::Program { program, words }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::in_words;

    #[test]
    fn type_is_found_in_the_output_for_programs() {
        assert_eq!(found_in("DEVNAME=/dev/loop0\nTYPE=ext4\n"), "ext4");
        assert_eq!(found_in("DEVNAME=/dev/loop0\nPTTYPE=gpt\n"), "a partition table (gpt)");
        assert_eq!(found_in(""), "something unknown");
    }

    #[test]
    fn device_that_cannot_be_read_has_not_nothing() {
        let folder = tempfile::tempdir().unwrap();
        assert!(probe(&folder.path().join("nowhere")).is_err());
        let empty = folder.path().join("empty");
        fs::write(&empty, "").unwrap();
        assert!(in_words(&probe(&empty).unwrap_err()).contains("it has no bytes"));
        let blank = folder.path().join("blank");
        File::create(&blank).unwrap().set_len(3 << 20).unwrap();
        assert_eq!(probe(&blank).unwrap(), None);
    }

    #[test]
    fn unfinished_xfs_is_known_by_its_superblock() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("device");
        let mut superblock = vec![0; 512];
        superblock[..4].copy_from_slice(b"XFSB");
        for (byte, is_unfinished) in [(0, false), (1, true)] {
            superblock[126] = byte;
            fs::write(&file, &superblock).unwrap();
            assert_eq!(is_unfinished_xfs(&file).unwrap(), is_unfinished);
        }
    }

    #[test]
    fn folder_with_files_or_another_mount_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let refused = |place: &Path| check_folder(place).unwrap_err().to_string();
        fs::write(folder.path().join("file"), "").unwrap();
        assert!(refused(folder.path()).contains("it has files, which a mount would hide"));
        let inside = folder.path().join("file/inside");
        assert!(refused(&inside).contains("cannot create"), "{}", refused(&inside));
        check_folder(&folder.path().join("new/folder")).unwrap();
        assert!(refused(Path::new("/proc")).contains("something is mounted there"));
        assert!(mounted_at(Path::new("/proc")).unwrap().is_some());
        assert_eq!(mounted_at(folder.path()).unwrap(), None);
        assert_eq!(mounted_at(&folder.path().join("nowhere")).unwrap(), None);
    }
}
