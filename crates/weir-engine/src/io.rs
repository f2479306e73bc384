//! Io: what every component of a reactor may use of the world. It has no logic.

use std::rc::Rc;

use weir_reactor::{BufferPool, Ring};

use crate::alarms::Alarms;
use crate::helper::Helper;
use crate::space_count::SpaceAtHand;
use crate::token::Token;

/// The reactor's way to sockets, files, helper threads and alarms, and its time.
pub struct Io {
    pub ring: Ring<Token>,
    pub pool: BufferPool,
    pub helper: Helper,
    /// Time that counts as now in this round, in nanoseconds.
    pub now_ns: u64,
    /// Number of the reactor.
    pub reactor: usize,
    pub alarms: Alarms,
    /// The reactor's share of the counted space.
    pub space: Rc<SpaceAtHand>,
    /// The daemon stops: nothing new is begun, and nothing waits for emulated drives.
    pub is_stopping: bool,
}
