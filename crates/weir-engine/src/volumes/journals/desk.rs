//! Desk: what journals of a volume may use, and what they answer with.

use weir_reactor::Completion;
use weir_types::ExtentIndex;

use crate::emulation::Emulated;
use crate::io::Io;
use crate::token::Token;

/// All that the journals of a volume may use while they work.
pub struct Desk<'a> {
    pub io: &'a mut Io,
    pub emulated: &'a mut Emulated,
}

/// What the volume has to do for its journals.
pub enum JournalEffect {
    /// Pass an answer to a replica on as if a drive had answered, in this round, but after the current
    /// work.
    Answer(Completion<Token>),
    /// Acknowledged writes of a replica are lost with its journal: fail it, and never add it back as it is.
    Invalidated { extent: ExtentIndex, slot: usize },
    /// A journal holds data: check the journals from time to time.
    Wake,
}
