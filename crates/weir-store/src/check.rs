//! Whether a volume's extent files are as they must be.

use std::fs;
use std::path::Path;

use weir_types::bounds::EXTENT_BYTES;

use super::extent_file_name;

/// Faults of one volume that are reported one by one; more are summed up in a last entry.
const FAULTS_SHOWN_MAX: usize = 16;

/// An extent file that is not as it must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtentFault {
    /// Index of the extent.
    pub extent: u64,
    /// What is wrong, in words.
    pub message: String,
}

/// Faults of one volume: the first of them, and how many more there are.
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

    /// The first of them, the last of which says how many more there are.
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

/// Compares the extent files in `extents` with what must be there: each of these indices is there, is a regular
/// file, and has the size of an extent.
#[cfg(test)]
pub fn check_extents(extents: &Path, indices: impl Iterator<Item = u32>) -> Vec<ExtentFault> {
    let mut faults = Faults::default();
    indices.filter_map(|index| extent_fault(extents, index)).for_each(|fault| faults.push(fault));
    faults.into_vec()
}

/// What is wrong with the file of an extent, if anything is.
pub fn extent_fault(extents: &Path, index: u32) -> Option<ExtentFault> {
    let extent = u64::from(index);
    let message = fault_of(&extents.join(extent_file_name(extent)))?;
    Some(ExtentFault { extent, message })
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
