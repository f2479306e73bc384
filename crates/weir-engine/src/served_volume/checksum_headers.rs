//! Checksums of a volume: their headers, and what is published of them.

use super::ServedVolume;
use weir_types::bounds::EXTENT_BYTES;
use weir_volume::mirror::ChecksumHeader;

impl ServedVolume {
    /// Takes the checksum headers that were found beside replicas.
    pub fn take_checksum_headers(&mut self, headers: Vec<(u32, usize, Option<ChecksumHeader>)>) {
        for (extent, slot, headers) in headers {
            self.mirror.set_checksum_header(extent, slot, headers);
        }
        self.publish_all_checksums();
    }

    /// Publishes the damaged ranges and valid checksum sections of an extent.
    pub fn publish_checksums(&self, extent: u32) {
        let (damaged, valid) = (self.mirror.damaged(extent), self.mirror.valid_sections(extent));
        self.open.statistics.checksums.is(extent, damaged, valid);
        self.open.status.set_damaged(extent, damaged);
    }

    /// Publishes the damaged ranges and valid checksum sections of all extents.
    pub fn publish_all_checksums(&self) {
        self.open.statistics.checksums.forget();
        self.open.status.forget_damaged();
        (0..self.mirror.extents()).for_each(|extent| self.publish_checksums(extent));
    }

    /// Invalidates the checksums beyond the new end of a shrinking volume, because its files are cut there.
    pub fn invalidate_checksum_tail(&mut self, size_bytes: u64) {
        let tail = size_bytes % EXTENT_BYTES;
        if size_bytes < self.size_bytes && tail > 0 {
            self.mirror.invalidate_checksums_from((size_bytes / EXTENT_BYTES) as u32, tail as u32);
        }
    }
}
