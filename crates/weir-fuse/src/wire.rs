//! Fields of messages: numbers in the byte order of the machine, because both sides are on one machine.

/// Reads fields one after another.
pub struct Fields<'a>(pub &'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }

    pub fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_ne_bytes)
    }

    pub fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_ne_bytes)
    }

    pub fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_ne_bytes)
    }
}
