//! Open files: a volume's files as they were when they were opened, for control to compare with a drive.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use weir_types::{ExtentIndex, VolumeId};

/// Identity of a file regardless of its name: the filesystem's device number and the inode number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileIdentity {
    /// Device number of the filesystem.
    pub device: u64,
    /// Inode number of the file.
    pub inode: u64,
}

impl FileIdentity {
    /// The identity of a file or folder.
    pub fn of(metadata: &std::fs::Metadata) -> FileIdentity {
        FileIdentity { device: metadata.dev(), inode: metadata.ino() }
    }
}

/// An open file of a volume, as it was when it was opened.
#[derive(Clone, Debug)]
pub struct OpenFile {
    /// The volume that the file belongs to.
    pub volume: VolumeId,
    /// Content of the file.
    pub content: Content,
    /// Path at which the file was opened.
    pub path: PathBuf,
    /// Identity of the file.
    pub identity: FileIdentity,
    /// Size of the file in bytes.
    pub size_bytes: u64,
}

/// Content of a volume's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// A replica of an extent, by extent and slot.
    Replica(ExtentIndex, usize),
    /// The volume's write journal on the drive.
    Journal,
}
