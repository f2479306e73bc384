//! Resync: bringing stale replicas up to date in the background, and keeping the dirty region log short.
//!
//! [`Resync`] decides which region is next, and is pure. The mirror knows how a region is resynced. Each
//! step waits in the drive queues of both drives, with a leaf of its kind of background work beside the
//! tenants.

use weir_qos::{Cost, Kind};
use weir_types::BackgroundKind;
use weir_volume::Mirror;
use weir_volume::mirror::ResyncQueue;

/// The kind of background work.
pub const KIND: BackgroundKind = BackgroundKind::Resync;

/// Interval in nanoseconds of the checks for regions that can leave the dirty region log. A region without
/// changes for this long needs no resync after a crash.
pub const TIDY_INTERVAL_NS: u64 = 5_000_000_000;

/// What a step costs under a ceiling before it is known how much it moved.
pub const STEP: Cost = Cost { kind: Kind::Write, is_first: true, bytes: 0, drive_ns: 0 };

/// The resync of one volume.
#[derive(Debug, Default)]
pub struct Resync {
    pub queue: ResyncQueue,
    /// When regions leave the dirty region log next, in nanoseconds.
    pub tidy_at_ns: u64,
}

impl Resync {
    pub fn new(mirror: &Mirror) -> Resync {
        Resync { queue: ResyncQueue::new(mirror), tidy_at_ns: 0 }
    }

    /// The next instant at which there may be something to do though nothing happened until then.
    pub fn wake_ns(&self) -> u64 {
        self.queue.wake_ns().map_or(self.tidy_at_ns, |wake_ns| wake_ns.min(self.tidy_at_ns))
    }
}
