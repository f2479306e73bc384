//! ublk: the kernel's driver for block devices that are served by a process (`linux/ublk_cmd.h`).
//!
//! The driver numbers requests by tags. A command of the ring waits for the request of a tag; the next command answers
//! it, and waits for another one. What is asked lies in memory that the driver writes and the server reads. Payloads are
//! moved by reading and writing the driver's device, so no memory is held for requests that wait.

use std::io;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;

use io_uring::types::Fd;
use io_uring::{opcode, squeue};
use rustix::mm::{MapFlags, ProtFlags};

use crate::buffer::Unfilled;
use crate::descriptor::Descriptor;

/// `UBLK_U_IO_FETCH_REQ`.
const FETCH: u32 = 0xC010_7520;
/// `UBLK_U_IO_COMMIT_AND_FETCH_REQ`.
const COMMIT_AND_FETCH: u32 = 0xC010_7521;
/// `UBLKSRV_IO_BUF_OFFSET`: where payloads begin in the device.
const PAYLOADS_AT: u64 = 0x8000_0000;
/// `UBLK_IO_BUF_BITS`: each tag has so many bits of addresses there.
const PAYLOAD_BITS: u32 = 25;
/// Bytes of `struct ublksrv_io_desc`.
const REQUEST_BYTES: usize = 24;
/// Bytes of a sector, in which the driver counts.
const SECTOR_BYTES: u64 = 512;

/// The queue of a device: it has one.
#[derive(Debug)]
pub struct BlockQueue {
    device: Descriptor,
    requests: SharedRequests,
    depth: u16,
}

/// What the driver asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRequest {
    /// `UBLK_IO_OP_…`.
    pub operation: u8,
    /// `UBLK_IO_F_…`.
    pub flags: u32,
    /// Where the range begins, in bytes.
    pub offset: u64,
    /// Length of the range, in bytes.
    pub length: u64,
}

/// `struct ublksrv_io_desc`.
#[repr(C)]
#[derive(Clone, Copy)]
struct RawRequest {
    operation_and_flags: u32,
    sectors: u32,
    start_sector: u64,
    address: u64,
}

/// The memory in which the driver writes its requests.
#[derive(Debug)]
struct SharedRequests {
    start: NonNull<RawRequest>,
    bytes: usize,
}

// SAFETY: the mapping is the process's, not a thread's, and only its owner reads or ends it.
unsafe impl Send for SharedRequests {}

/// A device that is ready to be served, by any thread.
#[derive(Debug)]
pub struct MappedDevice {
    device: OwnedFd,
    requests: SharedRequests,
    depth: u16,
}

impl MappedDevice {
    /// A device, opened for reading and writing, whose one queue has `depth` tags.
    ///
    /// # Errors
    /// If the device cannot be mapped.
    pub fn new(device: OwnedFd, depth: u16) -> io::Result<MappedDevice> {
        let requests = SharedRequests::map(&device, depth)?;
        Ok(MappedDevice { device, requests, depth })
    }
}

impl SharedRequests {
    fn map(device: &OwnedFd, depth: u16) -> io::Result<SharedRequests> {
        let page = rustix::param::page_size();
        let bytes = (usize::from(depth) * REQUEST_BYTES).next_multiple_of(page);
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: the kernel chooses a place for a new mapping, so none that is in use changes.
        let start =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), bytes, ProtFlags::READ, flags, device, 0) };
        let start = NonNull::new(start?.cast()).expect("a mapping is not at zero");
        Ok(SharedRequests { start, bytes })
    }
}

impl Drop for SharedRequests {
    fn drop(&mut self) {
        // SAFETY: the mapping is this one's alone, and nothing borrows from it.
        let unmapped = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.bytes) };
        unmapped.expect("the mapping is there");
    }
}

impl BlockQueue {
    /// The queue of a device, for the thread that serves it.
    pub fn new(mapped: MappedDevice) -> BlockQueue {
        let MappedDevice { device, requests, depth } = mapped;
        BlockQueue { device: Descriptor::block_server(device), requests, depth }
    }

    /// Number of tags.
    pub fn depth(&self) -> u16 {
        self.depth
    }

    /// The device.
    pub fn device(&self) -> &Descriptor {
        &self.device
    }

    /// The request of a tag, after its command has ended.
    ///
    /// # Panics
    /// If there is no such tag.
    pub fn request(&self, tag: u16) -> BlockRequest {
        assert!(tag < self.depth, "tag {tag} of {}", self.depth);
        // SAFETY: the mapping has a request for each tag, aligned as the kernel lays them out. The kernel writes one
        // before its command ends, and not again before it is answered. Any bytes are valid numbers.
        let raw = unsafe { self.requests.start.as_ptr().add(usize::from(tag)).read_volatile() };
        BlockRequest {
            operation: raw.operation_and_flags as u8,
            flags: raw.operation_and_flags & !0xFF,
            offset: raw.start_sector.saturating_mul(SECTOR_BYTES),
            length: u64::from(raw.sectors) * SECTOR_BYTES,
        }
    }

    /// Appends a part of the payload of a write to memory: `count` bytes from a position in it.
    ///
    /// # Errors
    /// The errors of `pread(2)`; those of the driver if it has given up the request.
    pub fn take_payload(
        &self,
        tag: u16,
        position: u64,
        memory: &mut Unfilled,
        count: usize,
    ) -> io::Result<()> {
        let start = memory.filled().len();
        let target = memory.refill(start..start + count);
        let moved =
            rustix::io::retry_on_intr(|| rustix::io::pread(&self.device, &mut *target, place(tag, position)));
        let moved = check_moved(moved?, count);
        memory.was_filled(if moved.is_ok() { count } else { 0 });
        moved
    }

    /// Puts a part of the data of a read where the driver takes it from, at a position in it.
    ///
    /// # Errors
    /// The errors of `pwrite(2)`; those of the driver if it has given up the request.
    pub fn put_data(&self, tag: u16, position: u64, data: &[u8]) -> io::Result<()> {
        let moved =
            rustix::io::retry_on_intr(|| rustix::io::pwrite(&self.device, data, place(tag, position)));
        check_moved(moved?, data.len())
    }

    /// The command that waits for the first request of a tag.
    pub(crate) fn fetch(&self, tag: u16) -> squeue::Entry {
        self.command(FETCH, tag, 0)
    }

    /// The command that answers the request of a tag, and waits for the next.
    pub(crate) fn commit(&self, tag: u16, result: i32) -> squeue::Entry {
        self.command(COMMIT_AND_FETCH, tag, result)
    }

    /// `struct ublksrv_io_cmd`: queue, tag, result, and no address, because payloads are moved by hand.
    fn command(&self, operation: u32, tag: u16, result: i32) -> squeue::Entry {
        let mut bytes = [0; 16];
        bytes[2..4].copy_from_slice(&tag.to_ne_bytes());
        bytes[4..8].copy_from_slice(&result.to_ne_bytes());
        opcode::UringCmd16::new(Fd(self.device.raw()), operation).cmd(bytes).build()
    }
}

/// Where the payload of a tag lies in the device.
fn place(tag: u16, position: u64) -> u64 {
    debug_assert!(position < 1 << PAYLOAD_BITS, "a payload has at most 32 MiB");
    PAYLOADS_AT + (u64::from(tag) << PAYLOAD_BITS) + position
}

fn check_moved(moved: usize, wanted: usize) -> io::Result<()> {
    if moved == wanted { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_kernel() {
        assert_eq!(size_of::<RawRequest>(), REQUEST_BYTES);
        assert_eq!((place(0, 0), place(1, 4096)), (0x8000_0000, 0x8200_1000));
        // `_IOWR('u', number, struct ublksrv_io_cmd)`, whose size is 16.
        let encoded = |number: u32| 3 << 30 | 16 << 16 | u32::from(b'u') << 8 | number;
        assert_eq!([FETCH, COMMIT_AND_FETCH], [encoded(0x20), encoded(0x21)]);
    }
}
