//! Parsers for the tables in which the system lists mounts, swap space and the signatures that `wipefs`
//! finds.
//!
//! This module reads text only and does not know its source.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use uuid::Uuid;

/// The kernel's number of a block device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceNumber {
    major: u32,
    minor: u32,
}

impl From<u64> for DeviceNumber {
    fn from(number: u64) -> DeviceNumber {
        DeviceNumber { major: rustix::fs::major(number), minor: rustix::fs::minor(number) }
    }
}

impl fmt::Display for DeviceNumber {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.major, self.minor)
    }
}

/// A signature on a device: it shows that the device holds data.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Signature {
    /// Its type, for example `ext4` or `gpt`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its purpose, in `wipefs`'s words.
    #[serde(default)]
    pub usage: Option<String>,
    /// Its label, if it has one.
    #[serde(default)]
    pub label: Option<String>,
    /// Its UUID in any form, if it has one.
    #[serde(default)]
    pub uuid: Option<String>,
}

impl Signature {
    /// Its UUID, if the UUID has the usual form.
    pub fn filesystem(&self) -> Option<Uuid> {
        self.uuid.as_deref().and_then(|text| Uuid::try_parse(text).ok())
    }
}

impl fmt::Display for Signature {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.usage.as_deref() {
            Some("filesystem") => "a filesystem",
            Some("partition-table") => "a partition table",
            Some("raid") => "a part of a RAID or of a volume group",
            Some("crypto") => "encrypted data",
            _ => "a signature",
        };
        write!(formatter, "{what} ({}", self.kind)?;
        match self.label.as_deref() {
            None | Some("") => write!(formatter, ")"),
            Some(label) => write!(formatter, ", label '{label}')"),
        }
    }
}

/// The output of `wipefs --json`.
#[derive(Deserialize)]
struct Signatures {
    signatures: Vec<Signature>,
}

/// The signatures that `wipefs --no-act --json` printed.
///
/// # Errors
/// If the output does not have the known form.
pub fn signatures(printed: &str) -> Result<Vec<Signature>, serde_json::Error> {
    // Some versions print nothing for an empty device.
    if printed.trim().is_empty() {
        return Ok(Vec::new());
    }
    serde_json::from_str::<Signatures>(printed).map(|found| found.signatures)
}

/// The mount points of a device, from `/proc/self/mountinfo`.
///
/// The device is found by its number. Some filesystems have a number of their own; they are found by the
/// device's path.
pub fn mounts_of(mountinfo: &str, number: DeviceNumber, path: &Path) -> Vec<PathBuf> {
    let number = number.to_string();
    let mount = |line: &str| {
        let (place, source) = line.split_once(" - ")?;
        let mut place = place.split(' ').skip(2);
        let (found, target) = (place.next()?, place.nth(1)?);
        let is_it = found == number || source.split(' ').nth(1).map(unescaped).as_deref() == Some(path);
        is_it.then(|| unescaped(target))
    };
    mountinfo.lines().filter_map(mount).collect()
}

/// Whether a device is swap space, from `/proc/swaps`.
pub fn is_swap(swaps: &str, path: &Path) -> bool {
    let mut lines = swaps.lines().skip(1).filter_map(|line| line.split_whitespace().next());
    lines.any(|swap| unescaped(swap) == path)
}

/// A path in which the kernel wrote white space and backslashes as octal numbers.
///
/// Bytes that are not UTF-8 become replacement characters, so two different paths can look equal.
fn unescaped(text: &str) -> PathBuf {
    let mut parts = text.split('\\');
    let mut bytes: Vec<u8> = parts.next().unwrap_or_default().into();
    for part in parts {
        let number = part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match number {
            Some(byte) => {
                bytes.push(byte);
                bytes.extend(&part.as_bytes()[3..]);
            }
            None => {
                bytes.push(b'\\');
                bytes.extend(part.as_bytes());
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTINFO: &str = "\
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
36 22 7:1 / /srv/with\\040space\\134s rw,noatime shared:1 master:2 - xfs /dev/loop1 rw
37 22 7:1 /volumes /srv/bound rw - xfs /dev/loop1 rw
38 22 0:44 / /srv/pool rw - btrfs /dev/sdb1 rw,space_cache
39 22 7:10 / /srv/other rw - ext4 /dev/loop10 rw
half a line";

    fn number(major: u32, minor: u32) -> DeviceNumber {
        DeviceNumber::from(rustix::fs::makedev(major, minor))
    }

    #[test]
    fn mounts_are_found_by_number_and_by_path() {
        let mounts = |major, minor, path: &str| mounts_of(MOUNTINFO, number(major, minor), Path::new(path));
        assert_eq!(mounts(7, 1, "/dev/loop1"), [Path::new("/srv/with space\\s"), Path::new("/srv/bound")]);
        assert_eq!(mounts(8, 17, "/dev/sdb1"), [Path::new("/srv/pool")]);
        assert_eq!(mounts(7, 0, "/dev/loop0"), Vec::<PathBuf>::new());
    }

    #[test]
    fn swap_space_is_found() {
        let swaps = "Filename\t\t\tType\t\tSize\tUsed\tPriority\n/dev/zram0 partition 1024 0 100\n/a\\040b file 1 0 1\n";
        for (path, expected) in
            [("/dev/zram0", true), ("/a b", true), ("/dev/zram", false), ("Filename", false)]
        {
            assert_eq!(is_swap(swaps, Path::new(path)), expected, "{path}");
        }
    }

    #[test]
    fn signatures_are_parsed_and_described() {
        let printed = r#"{"signatures": [
            {"device":"loop0", "offset":"0x438", "type":"ext4", "uuid":"6ba7b810-9dad-41d1-80b4-00c04fd430c8",
             "label":"data", "usage":"filesystem"},
            {"type":"dos", "uuid":null, "label":null, "usage":"partition-table"},
            {"type":"LVM2_member", "uuid":"ujSsfn-cJMG", "label":null, "usage":"raid"},
            {"type":"crypto_LUKS", "usage":"crypto"},
            {"type":"swap", "usage":"other"}
        ]}"#;
        let found = signatures(printed).unwrap();
        let words: Vec<_> = found.iter().map(ToString::to_string).collect();
        assert_eq!(
            words,
            [
                "a filesystem (ext4, label 'data')",
                "a partition table (dos)",
                "a part of a RAID or of a volume group (LVM2_member)",
                "encrypted data (crypto_LUKS)",
                "a signature (swap)",
            ]
        );
        let uuids: Vec<_> = found.iter().map(|signature| signature.filesystem().is_some()).collect();
        assert_eq!(uuids, [true, false, false, false, false]);
        assert_eq!(signatures("{\n   \"signatures\": [\n\n   ]\n}\n").unwrap(), []);
        assert_eq!(signatures("\n").unwrap(), []);
        assert!(signatures("DEVICE OFFSET TYPE").is_err());
    }

    proptest::proptest! {
        #[test]
        fn escaped_paths_round_trip(path in "[a-z \\t\\n\\\\0-9é]{0,20}") {
            let escape = |character: char| match character {
                ' ' | '\t' | '\n' | '\\' => format!("\\{:03o}", character as u32),
                other => other.to_string(),
            };
            let escaped: String = path.chars().map(escape).collect();
            proptest::prop_assert_eq!(unescaped(&escaped), PathBuf::from(&path));
        }

        #[test]
        fn parsers_accept_any_text(text in "\\PC{0,60}") {
            mounts_of(&text, number(7, 1), Path::new("/dev/loop1"));
            is_swap(&text, Path::new("/dev/loop1"));
            unescaped(&text);
        }
    }
}
