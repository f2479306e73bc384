//! Check: whether the extent files of a volume are present and whole.

use std::fs;
use std::path::Path;

use weir_types::ExtentIndex;
use weir_types::bounds::EXTENT_BYTES;

use super::extent_file_name;

/// Faults of one volume that are reported one by one. The last entry counts the others.
const FAULTS_SHOWN_MAX: usize = 16;

/// A faulty extent file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtentFault {
    /// Index of the extent.
    pub extent: ExtentIndex,
    /// The fault, in words.
    pub message: String,
}

/// Faults of one volume: the first ones, and the number of further ones.
#[derive(Debug, Default)]
pub struct Faults {
    shown: Vec<ExtentFault>,
    further: u64,
}

impl Faults {
    /// Adds a fault.
    pub fn push(&mut self, fault: ExtentFault) {
        if self.shown.len() < FAULTS_SHOWN_MAX {
            self.shown.push(fault);
        } else {
            self.further += 1;
        }
    }

    /// The first faults. The last of them includes the number of further faults.
    pub fn into_vec(self) -> Vec<ExtentFault> {
        let Faults { mut shown, further } = self;
        if further > 0
            && let Some(last) = shown.last_mut()
        {
            last.message.push_str(&format!(" (and {further} further extents are at fault)"));
        }
        shown
    }
}

/// Checks the extent files in `extents`: each index must have a regular file with the size of an extent.
#[cfg(test)]
pub fn check_extents(extents: &Path, indices: impl Iterator<Item = ExtentIndex>) -> Vec<ExtentFault> {
    let mut faults = Faults::default();
    indices.filter_map(|index| extent_fault(extents, index)).for_each(|fault| faults.push(fault));
    faults.into_vec()
}

/// The fault of an extent file, if there is one.
pub fn extent_fault(extents: &Path, index: ExtentIndex) -> Option<ExtentFault> {
    let message = fault_of(&extents.join(extent_file_name(index)))?;
    Some(ExtentFault { extent: index, message })
}

fn fault_of(path: &Path) -> Option<String> {
    let shown = path.display();
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Some(format!("extent file {shown} is missing"))
        }
        Err(error) => Some(format!("extent file {shown} cannot be examined: {error}")),
        Ok(metadata) if !metadata.is_file() => Some(format!("{shown} is not a regular file")),
        Ok(metadata) if metadata.len() != EXTENT_BYTES => Some(format!(
            "extent file {shown} has {} bytes where {EXTENT_BYTES} are expected",
            metadata.len()
        )),
        Ok(_) => None,
    }
}
