//! Mount table: where the filesystem of a device is mounted, as the kernel tells in `/proc/self/mountinfo`
//! (proc_pid_mountinfo(5)).

use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// Returns where a device with this number is mounted, in the mount namespace of the caller.
///
/// # Errors
/// If the table cannot be read.
pub fn mounts_of(major: u32, minor: u32) -> io::Result<Vec<PathBuf>> {
    Ok(find(&fs::read("/proc/self/mountinfo")?, major, minor))
}

fn find(table: &[u8], major: u32, minor: u32) -> Vec<PathBuf> {
    let number = format!("{major}:{minor}").into_bytes();
    let places = table.split(|byte| *byte == b'\n').filter_map(|line| {
        let mut fields = line.split(|byte| *byte == b' ');
        let found = fields.nth(2)?;
        // The root of the mount comes before its place.
        let place = fields.nth(1)?;
        (found == number).then(|| PathBuf::from(std::ffi::OsString::from_vec(unescaped(place))))
    });
    places.collect()
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
    fn places_of_a_device_are_found_with_their_escapes() {
        let table = b"22 28 0:21 / /proc rw - proc proc rw\n\
            95 28 7:3 / /mnt/a\\040b rw,relatime shared:5 - ext4 /dev/loop3 rw\n\
            96 28 7:30 / /mnt/c rw - ext4 /dev/loop30 rw\n\
            97 28 7:3 /sub /mnt/d rw - ext4 /dev/loop3 rw\nshort";
        assert_eq!(find(table, 7, 3), [PathBuf::from("/mnt/a b"), PathBuf::from("/mnt/d")]);
        assert!(find(table, 8, 3).is_empty() && find(b"", 7, 3).is_empty());
        assert_eq!(unescaped(b"\\134\\9\\"), b"\\\\9\\");
    }
}
