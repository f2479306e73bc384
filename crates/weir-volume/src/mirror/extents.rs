//! Extents of a mirror, and those whose metadata or checksum headers could not be written.

use std::collections::BTreeSet;
use std::ops::{Index, IndexMut};

use weir_types::ExtentIndex;

use super::checksums::ChecksumWork;
use super::effect::Effect;
use super::extent::MirroredExtent;
use super::recovered_extent::RecoveredExtent;
use super::replica_metadata::ReplicaState;

/// All extents of a mirror.
#[derive(Debug)]
pub(super) struct Extents {
    all: Vec<MirroredExtent>,
    /// Extents whose replica metadata could not be written.
    refused_metadata: BTreeSet<ExtentIndex>,
    /// Extents whose checksum headers could not be written beside any replica in sync.
    refused_headers: BTreeSet<ExtentIndex>,
}

impl Extents {
    /// Extents in their recovered states.
    pub fn new(recovered: Vec<RecoveredExtent>) -> Extents {
        Extents {
            all: recovered.into_iter().map(MirroredExtent::new).collect(),
            refused_metadata: BTreeSet::new(),
            refused_headers: BTreeSet::new(),
        }
    }

    /// Changes the number of extents. Added ones start from `new`; those that `new` does not cover get one
    /// replica in slot 0.
    pub fn resize(&mut self, count: u32, new: Vec<RecoveredExtent>) {
        self.all.truncate(count as usize);
        self.refused_metadata.retain(|extent| extent.is_within(count));
        self.refused_headers.retain(|extent| extent.is_within(count));
        let missing = count as usize - self.all.len();
        let new = new.into_iter().chain(std::iter::repeat_with(|| RecoveredExtent::alone(0))).take(missing);
        self.all.extend(new.map(MirroredExtent::new));
    }

    /// Number of extents.
    pub fn count(&self) -> u32 {
        self.all.len() as u32
    }

    /// An extent; `None` beyond the last.
    pub fn within(&self, index: ExtentIndex) -> Option<&MirroredExtent> {
        self.all.get(index.index())
    }

    /// An extent; `None` beyond the last.
    pub fn within_mut(&mut self, index: ExtentIndex) -> Option<&mut MirroredExtent> {
        self.all.get_mut(index.index())
    }

    /// Writes the metadata if the wanted metadata differs from the recorded. Each extent has one write under
    /// way at a time.
    pub fn write_metadata(&mut self, index: ExtentIndex, effects: &mut Vec<Effect>) {
        if let Some(request) = self[index].next_metadata_write(index) {
            effects.push(Effect::WriteMetadata(Box::new(request)));
        }
    }

    /// Notes whether the metadata of an extent could not be written.
    pub fn set_refused_metadata(&mut self, index: ExtentIndex, is_refused: bool) {
        set(&mut self.refused_metadata, index, is_refused);
    }

    /// Writes refused metadata again.
    pub fn retry_metadata(&mut self, effects: &mut Vec<Effect>) {
        for index in self.refused_metadata.clone() {
            match self.within(index).is_some_and(MirroredExtent::needs_metadata_write) {
                true => self.write_metadata(index, effects),
                false => self.set_refused_metadata(index, false),
            }
        }
    }

    /// Writes the checksum headers if the wanted ones differ from the recorded. Each extent has one write
    /// under way at a time.
    pub fn write_checksum_headers(&mut self, index: ExtentIndex, effects: &mut Vec<Effect>) {
        let extent = &mut self[index];
        let (in_sync, stale) = (extent.in_sync(), extent.with(ReplicaState::Stale));
        let checksums = extent.checksums_mut();
        if let Some(headers) = checksums.and_then(|checksums| checksums.next_header_write(in_sync, stale)) {
            let work = Box::new(ChecksumWork::WriteHeaders(headers));
            effects.push(Effect::ChecksumWork { extent: index, work });
        }
    }

    /// Notes whether the checksum headers of an extent could not be written beside any replica in sync.
    pub fn set_refused_headers(&mut self, index: ExtentIndex, is_refused: bool) {
        set(&mut self.refused_headers, index, is_refused);
    }

    /// Writes refused checksum headers again.
    pub fn retry_checksum_headers(&mut self, effects: &mut Vec<Effect>) {
        for index in std::mem::take(&mut self.refused_headers) {
            if self.within(index).is_some_and(|extent| extent.checksums().is_some()) {
                self.write_checksum_headers(index, effects);
            }
        }
    }
}

fn set(set: &mut BTreeSet<ExtentIndex>, index: ExtentIndex, is_member: bool) {
    _ = if is_member { set.insert(index) } else { set.remove(&index) };
}

impl Index<ExtentIndex> for Extents {
    type Output = MirroredExtent;

    fn index(&self, index: ExtentIndex) -> &MirroredExtent {
        &self.all[index.index()]
    }
}

impl IndexMut<ExtentIndex> for Extents {
    fn index_mut(&mut self, index: ExtentIndex) -> &mut MirroredExtent {
        &mut self.all[index.index()]
    }
}
