//! Decides whether a block device may be formatted, and if not, gives the reason.
//!
//! It only judges the findings; it knows no device and no file. Formatting destroys everything on a device.
//! So each sign of use, past or present, is a reason to refuse.

use std::path::{Path, PathBuf};

use uuid::Uuid;
use weir_types::Name;
use weir_types::control_bounds::DEVICE_BYTES_MIN;
use weir_types::units::Size;

use crate::devices::tables::Signature;
use crate::error::{ControlError, Outcome, list_names};

/// Findings about a block device that is to become a drive.
#[derive(Clone, Debug)]
pub struct Found {
    /// Name of the device as the user wrote it.
    pub shown: String,
    /// Path of the device, for example `/dev/sdb`.
    pub path: PathBuf,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// Whether the device is read-only.
    pub is_read_only: bool,
    /// The device itself, the disk that it is a partition of, and its own partitions.
    pub family: Vec<Relative>,
    /// Signatures on the device.
    pub signatures: Vec<Signature>,
    /// Drive whose filesystem has a UUID that one of the signatures has too.
    pub twin: Option<Name>,
    /// False if a process holds the device open exclusively.
    pub is_free: bool,
}

/// Relation of a device to the one that is to become a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// The same device.
    Itself,
    /// The disk that the device is a partition of.
    Disk,
    /// A partition of the device.
    Partition,
}

/// A device that shares bytes with the one that is to become a drive.
#[derive(Clone, Debug)]
pub struct Relative {
    /// Its relation to that device.
    pub relation: Relation,
    /// Its path.
    pub path: PathBuf,
    /// The drive that lies on it, if there is one.
    pub drive: Option<DriveThere>,
    /// Its mount points.
    pub mounts: Vec<PathBuf>,
    /// Whether it is swap space.
    pub is_swap: bool,
    /// Names of the devices that are built on it, for example `dm-0` or `loop3`.
    pub holders: Vec<String>,
}

/// A drive that lies on a device.
#[derive(Clone, Debug)]
pub struct DriveThere {
    /// Name of the drive.
    pub name: Name,
    /// Folder of the drive, if the drive is a folder on the device and not the device itself.
    pub folder: Option<PathBuf>,
}

impl Relative {
    /// The reason why the device is in use, as the rest of a sentence about this device.
    fn claim(&self) -> Option<String> {
        if let Some(DriveThere { name, folder }) = &self.drive {
            return Some(match folder {
                None => format!("is drive '{name}' already"),
                Some(folder) => format!("holds drive '{name}' at {}", folder.display()),
            });
        }
        if !self.mounts.is_empty() {
            return Some(format!("is mounted at {}", list_names(self.mounts.iter().map(|at| at.display()))));
        }
        if self.is_swap {
            return Some("is used as swap space".to_owned());
        }
        let holders = list_names(self.holders.iter());
        (!holders.is_empty()).then(|| format!("is used by {holders}"))
    }

    fn introduction(&self) -> String {
        let path = self.path.display();
        match self.relation {
            Relation::Itself => String::new(),
            Relation::Disk => format!("is a partition of {path}, which "),
            Relation::Partition => format!("has the partition {path}, which "),
        }
    }
}

/// Refuses a block device for which no formatting was requested.
pub fn refuse_unasked(shown: &str, path: &Path) -> ControlError {
    let path = path.display();
    ControlError::invalid(format!(
        "{shown} is a block device; 'weir drive add {path} --format' makes an XFS filesystem on it, mounts that and \
         uses it as a drive, and whatever was on the device is lost; it is refused while something is found there, \
         which 'wipefs --no-act {path}' shows; without --format an existing directory is accepted"
    ))
}

/// Accepts a device that is unused and empty, or that holds only a filesystem from `unfinished`. Returns the
/// UUID of that filesystem.
///
/// `unfinished` lists the filesystems that this daemon began to make and that hold no drive.
///
/// # Errors
/// Conflict if the device is a drive; refused if another reason speaks against formatting it.
pub fn allow(found: &Found, unfinished: &[Uuid]) -> Outcome<Option<Uuid>> {
    let shown = &found.shown;
    let refused = |why: &str| Err(ControlError::refused(format!("{shown} {why}")));
    for relative in &found.family {
        let Some(claim) = relative.claim() else { continue };
        let words = format!("{}{claim}; an unused block device is accepted", relative.introduction());
        return match &relative.drive {
            Some(drive) if drive.folder.is_none() => Err(ControlError::conflict(format!("{shown} {words}"))),
            _ => refused(&words),
        };
    }
    if let Some(name) = &found.twin {
        return Err(ControlError::conflict(format!(
            "{shown} is drive '{name}' already, or a duplicate of it"
        )));
    }
    if found.is_read_only {
        return refused("is read-only; a block device that can be written is accepted");
    }
    if found.size_bytes < DEVICE_BYTES_MIN {
        let (size, least) = (Size(found.size_bytes), Size(DEVICE_BYTES_MIN));
        return refused(&format!("has {size}; an XFS filesystem needs {least} at least"));
    }
    let leftover = leftover(&found.signatures, unfinished);
    if leftover.is_none() && !found.signatures.is_empty() {
        let (what, path) = (list_names(found.signatures.iter()), found.path.display());
        return refused(&format!(
            "holds {what}; if nothing of that is needed any more, 'wipefs --all {path}' takes it away, and the device \
             is accepted then"
        ));
    }
    if !found.is_free {
        return refused("is in use: a process has it open exclusively; an unused block device is accepted");
    }
    Ok(leftover)
}

/// The unfinished filesystem, if it is the only thing on a device.
fn leftover(signatures: &[Signature], unfinished: &[Uuid]) -> Option<Uuid> {
    let [signature] = signatures else { return None };
    let filesystem = signature.filesystem().filter(|_| signature.kind == "xfs")?;
    unfinished.contains(&filesystem).then_some(filesystem)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn itself() -> Relative {
        Relative {
            relation: Relation::Itself,
            path: "/dev/sdb".into(),
            drive: None,
            mounts: Vec::new(),
            is_swap: false,
            holders: Vec::new(),
        }
    }

    fn blank() -> Found {
        Found {
            shown: "'/dev/sdb'".to_owned(),
            path: "/dev/sdb".into(),
            size_bytes: DEVICE_BYTES_MIN,
            is_read_only: false,
            family: vec![itself()],
            signatures: Vec::new(),
            twin: None,
            is_free: true,
        }
    }

    fn with(relative: Relative) -> Found {
        Found { family: vec![itself(), relative], ..blank() }
    }

    fn signature(kind: &str, usage: &str, uuid: Option<Uuid>) -> Signature {
        let uuid = uuid.map(|uuid| uuid.to_string());
        Signature { kind: kind.to_owned(), usage: Some(usage.to_owned()), label: None, uuid }
    }

    fn drive(folder: Option<&str>) -> Option<DriveThere> {
        Some(DriveThere { name: Name::new("d1").unwrap(), folder: folder.map(PathBuf::from) })
    }

    #[test]
    fn unused_empty_device_is_accepted() {
        assert_eq!(allow(&blank(), &[Uuid::from_u128(1)]), Ok(None));
        let disk = Relative { relation: Relation::Disk, path: "/dev/sd".into(), ..itself() };
        assert_eq!(allow(&with(disk), &[]), Ok(None));
    }

    #[test]
    fn refusal_names_the_user_of_the_device() {
        let disk = || Relative { relation: Relation::Disk, path: "/dev/sdx".into(), ..itself() };
        let partition = || Relative { relation: Relation::Partition, path: "/dev/sdb1".into(), ..itself() };
        let mounts = || vec![PathBuf::from("/srv/a"), PathBuf::from("/srv/b")];
        let holders = || vec!["dm-0".to_owned(), "loop3".to_owned()];
        for (relative, kind, words) in [
            (Relative { drive: drive(None), ..itself() }, ErrorKind::Conflict, "is drive 'd1' already"),
            (
                Relative { drive: drive(None), mounts: mounts(), ..disk() },
                ErrorKind::Conflict,
                "is a partition of /dev/sdx, which is drive 'd1' already",
            ),
            (
                Relative { drive: drive(Some("/srv/a/d")), mounts: mounts(), ..partition() },
                ErrorKind::Refused,
                "has the partition /dev/sdb1, which holds drive 'd1' at /srv/a/d",
            ),
            (Relative { mounts: mounts(), ..itself() }, ErrorKind::Refused, "is mounted at /srv/a, /srv/b"),
            (
                Relative { mounts: mounts(), ..partition() },
                ErrorKind::Refused,
                "has the partition /dev/sdb1, which is mounted at /srv/a",
            ),
            (Relative { is_swap: true, ..itself() }, ErrorKind::Refused, "is used as swap space"),
            (
                Relative { holders: holders(), ..disk() },
                ErrorKind::Refused,
                "is a partition of /dev/sdx, which is used by dm-0, loop3",
            ),
        ] {
            let error = allow(&with(relative), &[]).unwrap_err();
            let expected = format!("'/dev/sdb' {words}");
            assert!(error.kind == kind && error.message.starts_with(&expected), "{}", error.message);
            assert!(error.message.ends_with("an unused block device is accepted"), "{}", error.message);
        }
    }

    #[test]
    fn refusal_names_the_defect_of_the_device() {
        let mut ext4 = signature("ext4", "filesystem", None);
        ext4.label = Some("data".to_owned());
        let table = signature("gpt", "partition-table", None);
        for (found, words) in [
            (Found { is_read_only: true, ..blank() }, "is read-only; a block device that can be written"),
            (
                Found { size_bytes: DEVICE_BYTES_MIN - 512, ..blank() },
                "an XFS filesystem needs 300MiB at least",
            ),
            (Found { size_bytes: 0, ..blank() }, "has 0B; an XFS"),
            (Found { is_free: false, ..blank() }, "is in use: a process has it open exclusively"),
            (
                Found { signatures: vec![ext4, table], ..blank() },
                "holds a filesystem (ext4, label 'data'), a partition table (gpt); if nothing of that is needed any \
                 more, 'wipefs --all /dev/sdb'",
            ),
        ] {
            let error = allow(&found, &[]).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Refused);
            let expected = format!("'/dev/sdb' {words}");
            assert!(
                error.message.starts_with(&expected) || error.message.contains(words),
                "{}",
                error.message
            );
        }
        let twin = Found { twin: Some(Name::new("d1").unwrap()), ..blank() };
        let error = allow(&twin, &[]).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Conflict);
        assert_eq!(error.message, "'/dev/sdb' is drive 'd1' already, or a duplicate of it");
    }

    #[test]
    fn only_own_unfinished_unused_filesystem_is_formatted_over() {
        let (ours, theirs) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let xfs = |uuid| signature("xfs", "filesystem", Some(uuid));
        let holding = |signatures| Found { signatures, ..blank() };
        assert_eq!(allow(&holding(vec![xfs(ours)]), &[theirs, ours]), Ok(Some(ours)));
        for found in [
            holding(vec![xfs(theirs)]),
            holding(vec![xfs(ours), xfs(theirs)]),
            holding(vec![xfs(ours), signature("dos", "partition-table", None)]),
            holding(vec![signature("ext4", "filesystem", Some(ours))]),
            holding(vec![signature("xfs", "filesystem", None)]),
            Found { is_free: false, ..holding(vec![xfs(ours)]) },
            Found {
                family: vec![Relative { mounts: vec!["/mnt".into()], ..itself() }],
                ..holding(vec![xfs(ours)])
            },
        ] {
            assert_eq!(allow(&found, &[ours]).unwrap_err().kind, ErrorKind::Refused, "{found:?}");
        }
    }

    #[test]
    fn device_is_not_formatted_unasked_and_refusal_names_the_command() {
        let error = refuse_unasked("'/dev/sdb'", Path::new("/dev/sdb"));
        assert_eq!(error.kind, ErrorKind::Invalid);
        for words in
            ["'/dev/sdb' is a block device; 'weir drive add /dev/sdb --format' makes an XFS", "is lost"]
        {
            assert!(error.message.contains(words), "{}", error.message);
        }
    }
}
