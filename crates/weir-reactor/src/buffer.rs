//! Aligned buffers from one bounded arena.
//!
//! The arena is divided into slabs of the largest buffer; each slab serves one size until all its buffers are
//! back. Sizes are powers of two from 4 KiB to 128 KiB, all aligned to 4 KiB for direct I/O.
//!
//! Memory of the pool still holds earlier data, which may be another tenant's. The pool therefore hands it
//! out as [`Unfilled`], which can only be filled, from its start. It becomes a [`Buffer`], which shows the
//! filled bytes and nothing else. Only a [`Buffer`] can be written to a file or sent.

use std::cell::{Cell, RefCell};
use std::io;
use std::ops::{Deref, DerefMut, Range};
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
    /// Number of buffers that were returned so far.
    returns: Cell<u64>,
}

/// The mapping that all pooled buffers lie in.
struct Arena {
    base: NonNull<u8>,
    bytes: usize,
}

/// The free parts of the arena.
struct State {
    /// Slabs that serve no size at present.
    free_slabs: Vec<u32>,
    /// For each size: offsets of free buffers, in blocks of 4 KiB.
    free_buffers: [Vec<u32>; CLASSES],
    /// For each slab: number of buffers in use, and the size that the slab serves.
    slabs: Vec<Slab>,
    free_bytes: usize,
}

#[derive(Clone, Copy, Default)]
struct Slab {
    out: u16,
    class: u8,
}

/// One aligned piece of memory of a pool. It returns to the pool when dropped.
struct Memory {
    start: NonNull<u8>,
    pool: Rc<Pool>,
    /// Bytes from the start that the present owner has filled. All others may be another tenant's.
    filled: u32,
    class: u8,
}

/// Memory that is being filled from its start. It can neither be written to a file nor sent.
pub struct Unfilled(Memory);

/// The filled bytes of a piece of memory; nothing else of the memory is in view.
pub struct Buffer(Memory);

impl BufferPool {
    /// Maps an arena of `bytes`, rounded down to whole slabs of 128 KiB. Memory is used as it is touched.
    ///
    /// # Errors
    /// The errors of `mmap(2)`.
    pub fn new(bytes: usize) -> io::Result<BufferPool> {
        let slabs = bytes / SLAB;
        let arena = Arena::map(slabs * SLAB)?;
        let state = State {
            free_slabs: (0..slabs as u32).rev().collect(),
            free_buffers: Default::default(),
            slabs: vec![Slab::default(); slabs],
            free_bytes: arena.bytes,
        };
        let (state, returns) = (RefCell::new(state), Cell::new(0));
        Ok(BufferPool(Rc::new(Pool { arena, state, returns })))
    }

    /// Takes a buffer of at least `bytes`; `None` if the pool is exhausted for now.
    ///
    /// # Panics
    /// If `bytes` is larger than the largest buffer: callers split by `PIECE_BYTES`.
    pub fn take(&self, bytes: usize) -> Option<Unfilled> {
        assert!(bytes <= SLAB, "a buffer of {bytes} bytes was asked for; the largest has {SLAB}");
        let class = class_of(bytes);
        let block = self.0.state.borrow_mut().take(class)?;
        let offset = block as usize * SMALLEST;
        debug_assert!(offset + class_bytes(class) <= self.0.arena.bytes);
        // SAFETY: `offset` lies within the arena, whose mapping lives as long as `pool`.
        let start = unsafe { self.0.arena.base.add(offset) };
        Some(Unfilled(Memory { start, pool: Rc::clone(&self.0), filled: 0, class: class as u8 }))
    }

    /// Bytes that are not in use, in buffers of any size.
    pub fn free_bytes(&self) -> usize {
        self.0.state.borrow().free_bytes
    }

    /// Number of buffers that were returned so far. A caller that found the pool exhausted may retry once
    /// this number has grown.
    pub fn returns(&self) -> u64 {
        self.0.returns.get()
    }

    /// Bytes of the whole arena.
    pub fn total_bytes(&self) -> usize {
        self.0.arena.bytes
    }

    pub(crate) fn arena(&self) -> (NonNull<u8>, usize) {
        (self.0.arena.base, self.0.arena.bytes)
    }
}

/// Returns the bytes that a buffer of `bytes` really takes from the pool.
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

impl Memory {
    fn capacity(&self) -> usize {
        class_bytes(self.class.into())
    }

    /// Returns the filled bytes.
    fn filled(&self) -> &[u8] {
        // SAFETY: the range was taken from the pool for this memory alone, and is mapped readable and
        // writable. It is initialised, because anonymous memory starts as zeroes. No more than the capacity
        // is ever filled.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.filled as usize) }
    }

    fn filled_mut(&mut self) -> &mut [u8] {
        let length = self.filled as usize;
        &mut self.all_mut()[..length]
    }

    /// Returns all of the memory with its earlier content. Only the kernel may write into this slice; it must
    /// never leave this crate.
    fn all_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `filled`; `&mut self` makes this the only reference.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.capacity()) }
    }

    /// Returns the next bytes to fill, and counts them as filled.
    fn extend(&mut self, count: usize) -> &mut [u8] {
        let start = self.filled as usize;
        assert!(count <= self.capacity() - start, "{count} bytes do not fit behind {start}");
        self.filled += count as u32;
        &mut self.all_mut()[start..start + count]
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let offset = self.start.as_ptr() as usize - self.pool.arena.base.as_ptr() as usize;
        self.pool.state.borrow_mut().give_back((offset / SMALLEST) as u32, self.class as usize);
        self.pool.returns.set(self.pool.returns.get() + 1);
    }
}

impl Unfilled {
    /// Total room, in bytes.
    pub fn capacity(&self) -> usize {
        self.0.capacity()
    }

    /// Returns the bytes filled so far.
    pub fn filled(&self) -> &[u8] {
        self.0.filled()
    }

    /// Returns the bytes filled so far, to be changed.
    pub fn filled_mut(&mut self) -> &mut [u8] {
        self.0.filled_mut()
    }

    /// Fills the next bytes with the given ones.
    ///
    /// # Panics
    /// If they do not fit.
    pub fn append(&mut self, bytes: &[u8]) {
        self.0.extend(bytes.len()).copy_from_slice(bytes);
    }

    /// Fills the next bytes with zeroes.
    ///
    /// # Panics
    /// If they do not fit.
    pub fn append_zeroes(&mut self, count: usize) {
        // Most writes cover whole blocks and need none.
        if count > 0 {
            self.0.extend(count).fill(0);
        }
    }

    /// Returns the filled bytes as a buffer; the rest stays out of view.
    pub fn completed(self) -> Buffer {
        Buffer(self.0)
    }

    /// Returns a buffer of the given bytes.
    ///
    /// # Panics
    /// If they do not fit.
    pub fn filled_from(mut self, bytes: &[u8]) -> Buffer {
        self.0.filled = 0;
        self.append(bytes);
        self.completed()
    }

    /// Returns a buffer of zeroes, as many as there is room for.
    pub fn zeroed(mut self) -> Buffer {
        self.0.filled = 0;
        self.append_zeroes(self.capacity());
        self.completed()
    }

    /// Returns the range that the kernel fills; bytes after its start do not count as filled any more.
    ///
    /// # Panics
    /// If bytes before the range were not filled.
    pub(crate) fn refill(&mut self, range: Range<usize>) -> &mut [u8] {
        let (start, filled) = (range.start, self.0.filled as usize);
        assert!(start <= filled, "{start} is filled and nothing from {filled} on");
        self.0.filled = start as u32;
        &mut self.0.all_mut()[range]
    }

    /// Counts bytes that the kernel has filled.
    pub(crate) fn was_filled(&mut self, count: usize) {
        self.0.extend(count);
    }
}

impl Buffer {
    /// Capacity of the buffer's memory, in bytes.
    pub fn capacity(&self) -> usize {
        self.0.capacity()
    }

    /// Returns the memory, to be filled anew.
    pub fn reuse(mut self) -> Unfilled {
        self.0.filled = 0;
        Unfilled(self.0)
    }
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.0.filled()
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.0.filled_mut()
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buffer({} of {} bytes)", self.len(), self.capacity())
    }
}

impl std::fmt::Debug for Unfilled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Unfilled({} of {} bytes)", self.0.filled, self.capacity())
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
        // SAFETY: the arena alone owns the mapping. Every buffer holds the pool, so no buffer is left to
        // point into it.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_never_overlap_and_all_are_returned() {
        let pool = BufferPool::new(8 * SLAB).unwrap();
        let mut held = Vec::new();
        let mut seed = 1u64;
        for round in 0..20_000u64 {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            if seed >> 63 == 0 || held.is_empty() {
                let bytes = 1 + (seed >> 20) as usize % SLAB;
                if let Some(unfilled) = pool.take(bytes) {
                    let mark = round as u8;
                    let buffer = unfilled.filled_from(&vec![mark; bytes]);
                    assert!(buffer.len() == bytes && (buffer.as_ptr() as usize).is_multiple_of(SMALLEST));
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

    #[test]
    fn earlier_content_is_never_visible() {
        let pool = BufferPool::new(SLAB).unwrap();
        drop(pool.take(SLAB).unwrap().filled_from(&[7; SLAB]));
        let mut unfilled = pool.take(SLAB).unwrap();
        assert!(unfilled.filled().is_empty());
        unfilled.append(&[1; 100]);
        unfilled.append_zeroes(50);
        assert_eq!(unfilled.filled(), [[1; 100].as_slice(), &[0; 50]].concat());
        let buffer = unfilled.completed();
        assert_eq!((buffer.len(), buffer.capacity()), (150, SLAB));
        assert!(buffer.reuse().completed().is_empty(), "what is filled anew begins with nothing");
        assert!(pool.take(SLAB).unwrap().zeroed().iter().all(|&byte| byte == 0));
    }

    #[test]
    fn returned_buffers_are_counted() {
        let pool = BufferPool::new(SLAB).unwrap();
        let held = pool.take(SLAB);
        assert!(held.is_some() && pool.take(SLAB).is_none() && pool.returns() == 0);
        drop(held);
        assert_eq!(pool.returns(), 1);
    }
}
