//! Space of the state folder: volumes are refused more before its filesystem is full.
//!
//! The catalogue, replica metadata and sockets need a little space there at any time, and a start must not need what
//! volumes have taken. So drives on the same filesystem get only what it has above a reserve.

use weir_types::DriveId;

use super::Control;
use super::bounds::{STATE_RESERVE_BYTES_MAX, STATE_RESERVE_PART};
use crate::store::space::Space;

impl Control {
    /// Tells the data plane what volumes may still take on drives that share the state folder's filesystem.
    pub fn set_space_aside(&self) {
        // While the system does not tell, what was said last holds.
        let Ok(space) = Space::of(&self.state) else { return };
        let left_bytes = space.free_bytes.saturating_sub(reserve_bytes(space.size_bytes));
        let shares = |(drive, store): (DriveId, crate::store::Store)| {
            (store.filesystem() == space.filesystem).then_some(drive)
        };
        let drives: Vec<DriveId> = self.stores().into_iter().filter_map(shares).collect();
        drives.into_iter().for_each(|drive| self.data_plane.set_space_left(drive, left_bytes));
    }
}

/// What volumes leave free on the state folder's filesystem, by its size.
fn reserve_bytes(size_bytes: u64) -> u64 {
    (size_bytes / STATE_RESERVE_PART).min(STATE_RESERVE_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserve_is_a_small_part_of_small_filesystems_and_bounded_on_large_ones() {
        assert_eq!(reserve_bytes(96 << 20), 3 << 20);
        assert_eq!(reserve_bytes(1 << 40), STATE_RESERVE_BYTES_MAX);
    }
}
