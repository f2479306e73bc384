//! Volume files: the drives that hold a volume, where each extent replica is, and the files that are open.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use weir_engine_interface::{Content, FileIdentity, NO_HOME, OpenFile, home_beyond_list};
use weir_reactor::Descriptor;
use weir_types::bounds::EXTENT_BYTES;
use weir_types::{DriveId, ExtentIndex, VolumeId};
use weir_volume::zeroing::Filesystem;

use crate::drive_queue::{HomeQueue, SharedDriveQueue};
use crate::emulation::SharedEmulation;
use crate::volumes::space_permission::IsCounted;

/// A drive that holds extents of a volume, with the state that volumes share on that drive.
pub struct NewHome {
    pub drive: DriveId,
    pub directory: PathBuf,
    pub read_cost: u32,
    pub is_counted: Arc<IsCounted>,
    /// The drive's model, if the drive is emulated.
    pub emulated: Option<SharedEmulation>,
    pub drive_queue: SharedDriveQueue,
}

/// A drive that holds extents of a volume.
pub struct Home {
    pub drive: DriveId,
    /// The folder with the volume's extent files.
    pub directory: PathBuf,
    /// Cost of a read, relative to the other homes.
    pub read_cost: u32,
    /// The drive is away, so nothing is asked of it except syncs.
    pub is_away: bool,
    /// Whether space taken on this drive is counted.
    pub is_counted: Arc<IsCounted>,
    /// Capabilities of the filesystem, as far as they are known.
    pub filesystem: Filesystem,
    /// The volume's place in the drive queue.
    pub queue: HomeQueue,
}

/// The files of one replica of the volume.
#[derive(Default)]
struct SlotFiles {
    /// Index of the home, by extent.
    homes: Vec<u8>,
    files: Vec<Option<Descriptor>>,
    /// Identities of the open files, by extent.
    identities: BTreeMap<ExtentIndex, FileIdentity>,
}

/// The files of a volume.
#[derive(Default)]
pub struct VolumeFiles {
    /// The drives that hold extents of the volume.
    pub homes: Vec<Home>,
    replicas: Vec<SlotFiles>,
    /// Number of times that a replica's file was given up or replaced. Findings about the file from before
    /// are invalid.
    renewals: u64,
}

impl VolumeFiles {
    /// Number of replicas that the volume has or had.
    pub fn slots(&self) -> usize {
        self.replicas.len()
    }

    /// Number of times that a replica's file was given up or replaced.
    pub fn renewals(&self) -> u64 {
        self.renewals
    }

    /// The index of a drive's home.
    pub fn home_on(&self, drive: DriveId) -> Option<usize> {
        self.homes.iter().position(|home| home.drive == drive)
    }

    /// Closes the files beyond the end of a volume.
    pub fn truncate(&mut self, extents: u32) {
        for replica in &mut self.replicas {
            replica.files.truncate(extents as usize);
            replica.identities.retain(|extent, _| extent.is_within(extents));
        }
    }

    /// Takes over the layout of the replicas.
    pub fn set_layout(&mut self, replicas: Vec<Vec<u8>>) {
        self.replicas.resize_with(replicas.len().max(self.replicas.len()), SlotFiles::default);
        for (replica, homes) in self.replicas.iter_mut().zip(replicas) {
            replica.homes = homes;
        }
    }

    /// Sets the home of an extent replica.
    pub fn set_home(&mut self, (extent, slot): (ExtentIndex, usize), home: u8, extents: u32) {
        self.replicas.resize_with(self.replicas.len().max(slot + 1), SlotFiles::default);
        let count = extents as usize;
        let replica = &mut self.replicas[slot];
        replica.homes.resize(count.max(replica.homes.len()), home_beyond_list(slot));
        replica.homes[extent.index()] = home;
        self.set_file(slot, extent, None);
    }

    /// The home of an extent replica, if the replica exists.
    pub fn home_of(&self, slot: usize, extent: ExtentIndex) -> Option<usize> {
        let home = self.replicas.get(slot)?.homes.get(extent.index()).copied();
        let home = home.unwrap_or(home_beyond_list(slot));
        (home != NO_HOME).then_some(home.into())
    }

    /// Path of an extent replica's file.
    pub fn extent_path(&self, slot: usize, extent: ExtentIndex) -> PathBuf {
        let home = self.home_of(slot, extent).expect("the mirror knows only replicas that exist");
        self.homes[home].directory.join(format!("{extent:08}"))
    }

    /// The open file of an extent replica in state ready.
    pub fn file(&self, slot: usize, extent: ExtentIndex) -> &Descriptor {
        let file = self.replicas[slot].files.get(extent.index()).and_then(Option::as_ref);
        file.expect("a volume acts only on extents that were opened")
    }

    pub fn set_file(&mut self, slot: usize, extent: ExtentIndex, file: Option<Descriptor>) {
        if file.is_none() {
            self.renewals += 1;
        }
        let (files, index) = (&mut self.replicas[slot].files, extent.index());
        if files.len() <= index {
            files.resize(index + 1, None);
        }
        files[index] = file;
        self.replicas[slot].identities.remove(&extent);
    }

    /// Records the identity of an extent replica's open file.
    pub fn set_file_identity(&mut self, slot: usize, extent: ExtentIndex, identity: FileIdentity) {
        self.replicas[slot].identities.insert(extent, identity);
    }

    /// The files that a volume has open on a drive.
    pub fn open_on(&self, drive: DriveId, volume: VolumeId) -> Vec<OpenFile> {
        let Some(home) = self.home_on(drive) else { return Vec::new() };
        let open = self.replicas.iter().enumerate().flat_map(|(slot, replica)| {
            replica.identities.iter().map(move |(extent, identity)| (slot, *extent, *identity))
        });
        let on_drive = open.filter(|(slot, extent, _)| self.home_of(*slot, *extent) == Some(home));
        let file = |(slot, extent, identity)| OpenFile {
            volume,
            content: Content::Replica(extent, slot),
            path: self.extent_path(slot, extent),
            identity,
            size_bytes: EXTENT_BYTES,
        };
        on_drive.map(file).collect()
    }
}
