//! Aligned buffers from one bounded arena.
//!
//! The arena is cut into slabs of the largest buffer; each slab serves one size until all its buffers are
//! back. Sizes are powers of two from 4 KiB to 128 KiB, all aligned to 4 KiB for direct I/O.

use std::cell::RefCell;
use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::rc::Rc;

use weir_types::bounds::{BLOCK_BYTES, PIECE_BYTES};

/// Smallest buffer, in bytes.
const SMALLEST: usize = BLOCK_BYTES as usize;
/// Size of a slab and of the largest buffer, in bytes.
const SLAB: usize = PIECE_BYTES as usize;
/// Number of sizes: 4, 8, 16, 32, 64, 128 KiB.
const CLASSES: usize = (SLAB / SMALLEST).ilog2() as usize + 1;

/// A bounded pool of aligned buffers for one thread.
#[derive(Clone)]
pub struct BufferPool(Rc<Pool>);

struct Pool {
    arena: Arena,
    state: RefCell<State>,
}

/// The mapping that all pooled buffers lie in.
struct Arena {
    base: NonNull<u8>,
    bytes: usize,
}

/// Which parts of the arena are free.
struct State {
    /// Slabs that serve no size at present.
    free_slabs: Vec<u32>,
    /// For each size: offsets of free buffers, in blocks of 4 KiB.
    free_buffers: [Vec<u32>; CLASSES],
    /// For each slab: buffers that are out, and the size it serves.
    slabs: Vec<Slab>,
    free_bytes: usize,
}

#[derive(Clone, Copy, Default)]
struct Slab {
    out: u16,
    class: u8,
}

/// One aligned piece of memory, zeroed only when first taken. It goes back to its pool when dropped.
pub struct Buffer {
    start: NonNull<u8>,
    class: u8,
    pool: Rc<Pool>,
}

impl BufferPool {
    /// Maps an arena of `bytes`, rounded down to whole slabs of 128 KiB. Memory is used as it is touched.
    ///
    /// # Errors
    /// Those of `mmap(2)`.
    pub fn new(bytes: usize) -> io::Result<BufferPool> {
        let slabs = bytes / SLAB;
        let arena = Arena::map(slabs * SLAB)?;
        let state = State {
            free_slabs: (0..slabs as u32).rev().collect(),
            free_buffers: Default::default(),
            slabs: vec![Slab::default(); slabs],
            free_bytes: arena.bytes,
        };
        Ok(BufferPool(Rc::new(Pool { arena, state: RefCell::new(state) })))
    }

    /// Takes a buffer of at least `bytes`; `None` if the pool is exhausted for now.
    ///
    /// # Panics
    /// If `bytes` is larger than the largest buffer: callers split by `PIECE_BYTES`.
    pub fn take(&self, bytes: usize) -> Option<Buffer> {
        assert!(bytes <= SLAB, "a buffer of {bytes} bytes was asked for; the largest has {SLAB}");
        let class = class_of(bytes);
        let block = self.0.state.borrow_mut().take(class)?;
        let offset = block as usize * SMALLEST;
        debug_assert!(offset + class_bytes(class) <= self.0.arena.bytes);
        // SAFETY: `offset` lies within the arena, whose mapping lives as long as `pool`.
        let start = unsafe { self.0.arena.base.add(offset) };
        Some(Buffer { start, class: class as u8, pool: Rc::clone(&self.0) })
    }

    /// Bytes that are not out, in buffers of any size.
    pub fn free_bytes(&self) -> usize {
        self.0.state.borrow().free_bytes
    }

    /// Bytes of the whole arena.
    pub fn total_bytes(&self) -> usize {
        self.0.arena.bytes
    }

    pub(crate) fn arena(&self) -> (NonNull<u8>, usize) {
        (self.0.arena.base, self.0.arena.bytes)
    }
}

/// Bytes that a buffer asked for with `bytes` really takes from the pool.
pub fn footprint(bytes: usize) -> usize {
    class_bytes(class_of(bytes))
}

fn class_of(bytes: usize) -> usize {
    bytes.div_ceil(SMALLEST).max(1).next_power_of_two().ilog2() as usize
}

fn class_bytes(class: usize) -> usize {
    SMALLEST << class
}

impl State {
    fn take(&mut self, class: usize) -> Option<u32> {
        if self.free_buffers[class].is_empty() {
            self.dedicate_slab(class)?;
        }
        let block = self.free_buffers[class].pop()?;
        self.slabs[slab_of(block)].out += 1;
        self.free_bytes -= class_bytes(class);
        Some(block)
    }

    fn dedicate_slab(&mut self, class: usize) -> Option<()> {
        let slab = self.free_slabs.pop()?;
        self.slabs[slab as usize] = Slab { out: 0, class: class as u8 };
        let first = slab * (SLAB / SMALLEST) as u32;
        self.free_buffers[class]
            .extend((0..SLAB >> (12 + class)).rev().map(|n| first + ((n as u32) << class)));
        Some(())
    }

    fn give_back(&mut self, block: u32, class: usize) {
        let slab = slab_of(block);
        self.free_bytes += class_bytes(class);
        self.free_buffers[class].push(block);
        self.slabs[slab].out -= 1;
        let is_last_of_class = self.free_buffers[class].len() <= SLAB / class_bytes(class);
        if self.slabs[slab].out == 0 && !is_last_of_class {
            debug_assert_eq!(self.slabs[slab].class as usize, class);
            self.free_buffers[class].retain(|&b| slab_of(b) != slab);
            self.free_slabs.push(slab as u32);
        }
    }
}

fn slab_of(block: u32) -> usize {
    block as usize * SMALLEST / SLAB
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let offset = self.start.as_ptr() as usize - self.pool.arena.base.as_ptr() as usize;
        self.pool.state.borrow_mut().give_back((offset / SMALLEST) as u32, self.class as usize);
    }
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the range was taken from the pool for this buffer alone, is mapped readable and writable,
        // and is initialised (anonymous memory starts as zeroes).
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), class_bytes(self.class as usize)) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`; `&mut self` makes this the only reference.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), class_bytes(self.class as usize)) }
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buffer({} bytes)", self.len())
    }
}

impl Arena {
    fn map(bytes: usize) -> io::Result<Arena> {
        use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh private anonymous mapping at an address of the kernel's choosing aliases nothing.
        let base = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, access, MapFlags::PRIVATE) }?;
        let base = NonNull::new(base.cast()).expect("mmap succeeded, so its address is not null");
        Ok(Arena { base, bytes })
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours alone; every buffer holds the pool, so none is left to point into it.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_never_overlap_and_all_come_back() {
        let pool = BufferPool::new(8 * SLAB).unwrap();
        let mut held = Vec::new();
        let mut seed = 1u64;
        for round in 0..20_000u64 {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            if seed >> 63 == 0 || held.is_empty() {
                let bytes = 1 + (seed >> 20) as usize % SLAB;
                if let Some(mut buffer) = pool.take(bytes) {
                    assert!(buffer.len() >= bytes && (buffer.as_ptr() as usize).is_multiple_of(SMALLEST));
                    let mark = round as u8;
                    buffer.fill(mark);
                    held.push((mark, buffer));
                }
            } else {
                let (mark, buffer) = held.swap_remove((seed >> 8) as usize % held.len());
                assert!(buffer.iter().all(|&b| b == mark), "somebody else wrote into a buffer");
            }
        }
        held.clear();
        assert_eq!(pool.free_bytes(), pool.total_bytes());
        let largest: Vec<_> = std::iter::from_fn(|| pool.take(SLAB)).collect();
        assert!(largest.len() > 8 - CLASSES, "only {} slabs came back", largest.len());
    }
}
