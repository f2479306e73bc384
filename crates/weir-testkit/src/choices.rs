//! Decisions made from bytes: a fuzzer or a seeded generator steers the test input with them.

/// A supply of decisions. Once the bytes are used up, every decision is the first one.
pub struct Choices<'a> {
    bytes: &'a [u8],
}

impl<'a> Choices<'a> {
    /// Decisions that these bytes make.
    pub fn new(bytes: &'a [u8]) -> Choices<'a> {
        Choices { bytes }
    }

    /// True once every further decision is the first one.
    pub fn is_used_up(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns all unused bytes.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.bytes)
    }

    /// Decides on a byte.
    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.bytes.split_first() else {
            return 0;
        };
        self.bytes = rest;
        *first
    }

    /// Decides on a number of 16 bits.
    pub fn number16(&mut self) -> u16 {
        u16::from_be_bytes([self.byte(), self.byte()])
    }

    /// Decides on a number of 32 bits.
    pub fn number32(&mut self) -> u32 {
        u32::from(self.number16()) << 16 | u32::from(self.number16())
    }

    /// Decides on a number of 64 bits.
    pub fn number64(&mut self) -> u64 {
        u64::from(self.number32()) << 32 | u64::from(self.number32())
    }

    /// Returns true once in `odds` times, and never once the bytes are used up.
    pub fn one_in(&mut self, odds: u8) -> bool {
        self.byte() % odds == odds - 1
    }

    /// Decides on one of some values.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::from(self.byte()) % from.len()]
    }

    /// Returns the sizes of the fragments in which a stream arrives, to be repeated; not all are 0.
    pub fn cuts(&mut self) -> [usize; 4] {
        let mut cuts = [0; 4].map(|_: usize| match self.byte() {
            255 => usize::MAX >> 8,
            size => usize::from(size),
        });
        cuts[3] = cuts[3].max(1);
        cuts
    }
}

impl Choices<'_> {
    /// Returns a text with up to seven edits: bytes and words replaced, inserted, removed and repeated. Without
    /// further bytes the text stays as it is.
    pub fn edited(&mut self, text: &[u8], words: &[&str]) -> Vec<u8> {
        let mut text = text.to_vec();
        for _ in 0..self.byte() % 8 {
            let at = usize::from(self.number16()) % (text.len() + 1);
            let end = text.len().min(at + usize::from(self.byte() % 32));
            match self.byte() % 5 {
                0 => _ = text.drain(at..end),
                1 => _ = text.splice(at..text.len().min(at + 1), [self.byte()]),
                2 => _ = text.splice(at..at, [self.byte()]),
                3 => _ = text.splice(at..end, self.pick(words).bytes()),
                _ => {
                    let part = text[at..end].to_vec();
                    text.splice(end..end, part);
                }
            }
        }
        text
    }
}

/// A seeded generator of bytes (splitmix64), the same on every machine.
pub struct Seeded(pub u64);

impl Seeded {
    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// The next bytes.
    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.number() as u8).collect()
    }
}
