//! The number of an extent in its volume: a type of its own, so that no other number is taken for it.

use std::fmt;

use crate::bounds::EXTENT_BYTES;

/// Number of an extent, counted from the start of the volume. It is shown as the bare number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExtentIndex(pub u32);

impl ExtentIndex {
    /// The first `count` extents.
    pub fn first(count: u32) -> impl DoubleEndedIterator<Item = ExtentIndex> + ExactSizeIterator + Clone {
        (0..count).map(ExtentIndex)
    }

    /// All extents of a volume of `size_bytes`.
    pub fn all_of(
        size_bytes: u64,
    ) -> impl DoubleEndedIterator<Item = ExtentIndex> + ExactSizeIterator + Clone {
        ExtentIndex::first(size_bytes.div_ceil(EXTENT_BYTES) as u32)
    }

    /// This extent and all after it in a volume of `count` extents.
    pub fn onward(self, count: u32) -> impl DoubleEndedIterator<Item = ExtentIndex> + Clone {
        (self.0..count).map(ExtentIndex)
    }

    /// True if a volume of `count` extents has this one.
    pub const fn is_within(self, count: u32) -> bool {
        self.0 < count
    }

    /// The extent that holds a byte of the volume.
    pub const fn holding(volume_offset: u64) -> ExtentIndex {
        ExtentIndex((volume_offset / EXTENT_BYTES) as u32)
    }

    /// Position in a list of all extents.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The extent after this one.
    pub const fn next(self) -> ExtentIndex {
        ExtentIndex(self.0 + 1)
    }

    /// Offset of the extent's first byte in the volume.
    pub const fn start_bytes(self) -> u64 {
        self.0 as u64 * EXTENT_BYTES
    }
}

/// Width and fill reach the number: names of files pad it.
impl fmt::Display for ExtentIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_shown_as_the_bare_number() {
        assert_eq!(format!("{} {:08}", ExtentIndex(7), ExtentIndex(7)), "7 00000007");
    }

    #[test]
    fn an_extent_holds_what_begins_with_it() {
        for extent in ExtentIndex::first(3) {
            assert_eq!(ExtentIndex::holding(extent.start_bytes()), extent);
            assert_eq!(ExtentIndex::holding(extent.next().start_bytes() - 1), extent);
            assert_eq!(ExtentIndex::all_of(extent.start_bytes() + 1).last(), Some(extent));
        }
    }
}
