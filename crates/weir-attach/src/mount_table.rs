//! Mount table: which filesystems are mounted where, as the kernel tells in `/proc/self/mountinfo`
//! (proc_pid_mountinfo(5)).

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// Number of a block device, or of a filesystem without one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceNumber {
    /// Number of its driver.
    pub major: u32,
    /// Number among those of its driver.
    pub minor: u32,
}

impl DeviceNumber {
    /// From the number as system calls have it.
    pub fn of(number: u64) -> DeviceNumber {
        DeviceNumber { major: rustix::fs::major(number), minor: rustix::fs::minor(number) }
    }
}

/// A mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// The device of its filesystem.
    pub device: DeviceNumber,
    /// The part of the filesystem that is mounted.
    pub root: PathBuf,
    /// Where it is.
    pub place: PathBuf,
    /// Type of the filesystem.
    pub kind: String,
    /// Options of the filesystem, separated by commas.
    pub options: String,
}

/// Returns all mounts in the mount namespace of the caller. Of those at one place the last one is visible.
///
/// # Errors
/// If the table cannot be read.
pub fn read() -> io::Result<Vec<Mount>> {
    Ok(parse(&fs::read("/proc/self/mountinfo")?))
}

/// Returns where a device is mounted, in the mount namespace of the caller.
///
/// # Errors
/// If the table cannot be read.
pub fn places_of(device: DeviceNumber) -> io::Result<Vec<PathBuf>> {
    Ok(read()?.into_iter().filter(|mount| mount.device == device).map(|mount| mount.place).collect())
}

/// True if any process of the host has a device mounted at another place than this one: a container does. A place below
/// another root is the same: a container that watches its host has all of the host's mounts. Processes that the caller
/// may not examine are left out.
pub fn is_mounted_elsewhere(device: DeviceNumber, place: &Path) -> bool {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let tables = processes
        .filter(|entry| entry.file_name().to_string_lossy().bytes().all(|byte| byte.is_ascii_digit()))
        .filter_map(|entry| fs::read(entry.path().join("mountinfo")).ok());
    tables
        .flat_map(|table| parse(&table))
        .any(|mount| mount.device == device && !is_same(&mount.place, place))
}

/// True if a place is another one seen below some root.
fn is_same(seen: &Path, place: &Path) -> bool {
    place.strip_prefix("/").is_ok_and(|inside| seen.ends_with(inside))
}

/// The mounts in a table, in its order. Lines that are no mount are left out.
pub fn parse(table: &[u8]) -> Vec<Mount> {
    table.split(|byte| *byte == b'\n').filter_map(mount_in).collect()
}

fn mount_in(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let (major, minor) = std::str::from_utf8(fields.nth(2)?).ok()?.split_once(':')?;
    let device = DeviceNumber { major: major.parse().ok()?, minor: minor.parse().ok()? };
    let (root, place) = (path_of(fields.next()?), path_of(fields.next()?));
    // A dash ends the fields whose number varies.
    fields.by_ref().find(|field| *field == b"-")?;
    let mut text = || fields.next().map(|field| String::from_utf8_lossy(field).into_owned());
    let (kind, _source, options) = (text()?, text()?, text()?);
    Some(Mount { device, root, place, kind, options })
}

fn path_of(field: &[u8]) -> PathBuf {
    PathBuf::from(OsString::from_vec(unescaped(field)))
}

/// Replaces octal escapes such as `\040` for a space.
fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut found = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, behind)) = rest.split_first() {
        let digits = behind.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.filter(|_| *first == b'\\').and_then(|digits| u8::from_str_radix(digits, 8).ok());
        found.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &behind[3..] } else { behind };
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_read_with_their_escapes() {
        let table = b"22 28 0:21 / /proc rw - proc proc rw\n\
            95 28 7:3 / /mnt/a\\040b rw,relatime shared:5 - ext4 /dev/loop3 rw\n\
            96 28 7:30 / /mnt/c rw - ext4 /dev/loop30 rw\n\
            97 28 7:3 /sub /mnt/d rw - ext4 /dev/loop3 rw,discard\nshort\n98 28 x:3 / /mnt/e rw - a b c\n";
        let found: Vec<_> = parse(table).into_iter().map(|mount| (mount.device.minor, mount.place)).collect();
        let expected = [(21, "/proc"), (3, "/mnt/a b"), (30, "/mnt/c"), (3, "/mnt/d")];
        assert_eq!(found, expected.map(|(minor, place)| (minor, PathBuf::from(place))));
        let last = parse(table).pop().unwrap();
        assert_eq!((&*last.kind, &*last.options, last.root), ("ext4", "rw,discard", PathBuf::from("/sub")));
        assert_eq!(unescaped(b"\\134\\9\\"), b"\\\\9\\");
        let place = Path::new("/run/weir-docker/mounts/vol");
        assert!(is_same(place, place) && is_same(Path::new("/host/run/weir-docker/mounts/vol"), place));
        assert!(!is_same(Path::new("/data"), place) && !is_same(Path::new("/mounts/vol"), place));
    }
}
