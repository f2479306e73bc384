//! The resync of one volume: which region is next, at which pace, and the dirty region log.

use weir_engine_interface::statistics::VolumeStatistics;
use weir_qos::{Kind, Pace};
use weir_reactor::Clock;
use weir_types::bounds::{PIECE_BYTES, REGION_BYTES};
use weir_types::{BackgroundPolicy, ExtentIndex};
use weir_volume::Mirror;
use weir_volume::geometry::Part;
use weir_volume::mirror::resync_queue::{ExtentReplica, Next, steps_at_once};
use weir_volume::mirror::{Effect, ResyncQueue};

use super::{KIND, ResyncSchedule, STEP, TIDY_INTERVAL_NS};
use crate::io::Io;
use crate::token::VolumeIndex;
use crate::volumes::operations::{Operations, Owner, Purpose};
use crate::volumes::volume_files::VolumeFiles;

/// What the resync of a volume may use while it works.
pub struct Desk<'a> {
    pub io: &'a mut Io,
    /// The policy of resync.
    pub policy: BackgroundPolicy,
    pub schedule: &'a mut ResyncSchedule,
    pub files: &'a VolumeFiles,
    pub operations: &'a mut Operations,
    pub statistics: &'a VolumeStatistics,
    pub mirror: &'a mut Mirror,
    /// Effects of the mirror, which the caller has to carry out.
    pub effects: &'a mut Vec<Effect>,
    /// A command waits until the volume is quiet.
    pub is_ending: bool,
}

/// The resync of one volume.
#[derive(Debug)]
pub struct VolumeResync {
    volume: VolumeIndex,
    queue: ResyncQueue,
    /// When regions leave the dirty region log next, in nanoseconds.
    tidy_at_ns: u64,
}

impl VolumeResync {
    pub fn new(volume: VolumeIndex, mirror: &Mirror) -> VolumeResync {
        VolumeResync { volume, queue: ResyncQueue::new(mirror), tidy_at_ns: 0 }
    }

    /// The next instant at which there may be something to do though nothing happened until then.
    fn wake_ns(&self) -> u64 {
        self.queue.wake_ns().map_or(self.tidy_at_ns, |wake_ns| wake_ns.min(self.tidy_at_ns))
    }

    /// Begins the resync of a volume that may have several replicas. The caller has to carry out the volume's
    /// effects.
    pub fn begin(&mut self, desk: &mut Desk<'_>) {
        desk.mirror.begin(desk.effects);
        self.tidy_at_ns = desk.io.now_ns + TIDY_INTERVAL_NS;
        desk.schedule.add(self.volume);
    }

    /// An extent has changed, so its replicas are checked again.
    pub fn look_at(&mut self, extent: ExtentIndex) {
        self.queue.look_at(extent);
    }

    /// The volume has another size, so all replicas are checked again.
    pub fn look_at_all(&mut self, mirror: &Mirror) {
        self.queue.look_at_all(mirror);
    }

    /// Requests all steps that can be taken now from the mirror. The caller has to carry out the volume's
    /// effects.
    pub fn go_on(&mut self, desk: &mut Desk<'_>) {
        let now_ns = desk.io.now_ns;
        if desk.io.is_stopping || desk.is_ending {
            return;
        }
        self.tidy(desk);
        while let Some(next) = self.queue.next(desk.mirror, now_ns) {
            match next {
                Next::Promote((extent, slot)) => {
                    self.queue.rest((extent, slot), now_ns);
                    desk.mirror.promote(extent, slot, desk.effects);
                }
                Next::Resync(replica) => {
                    if !self.begin_step(replica, desk) {
                        break;
                    }
                }
            }
        }
        desk.schedule.wake_at(self.wake_ns());
    }

    /// Begins to resync a region, if that may begin now.
    fn begin_step(&mut self, (extent, slot): ExtentReplica, desk: &mut Desk<'_>) -> bool {
        let now_ns = desk.io.now_ns;
        let home = desk.files.home_of(slot, extent).expect("the mirror knows replicas that there are");
        let has_clients = desk.schedule.throttle.has_clients(now_ns);
        let steps_max = if has_clients { 1 } else { steps_at_once(piece_ns((extent, slot), home, desk)) };
        let is_full = self.queue.steps_under_way() >= steps_max;
        if is_full || desk.schedule.throttle.waits(self.volume, now_ns) {
            return false;
        }
        let ready_ns = on_pace(home, desk, |pace| pace.ready_ns());
        if ready_ns > now_ns {
            desk.schedule.wake_at(ready_ns);
            return false;
        }
        let Some(memory) = desk.io.pool.take(PIECE_BYTES as usize) else {
            self.queue.rest((extent, slot), now_ns);
            return false;
        };
        match desk.mirror.resync_region(extent, slot, desk.effects) {
            Some(id) => {
                let part = Part { extent, offset: 0, length: PIECE_BYTES as u32, position: 0 };
                let owner = Owner::new(Purpose::Resync { extent, slot }, part, Some(memory.into()));
                desk.operations.set_owner(id, owner);
                self.queue.step_begun();
                desk.schedule.throttle.step_began(Clock.now_ns());
                on_pace(home, desk, |pace| pace.asked(now_ns, STEP));
            }
            // What it lacks is under way, cannot be reached, or was found to be a hole everywhere.
            None if desk.mirror.regions_out_of_sync(extent, slot) > 0 => {
                self.queue.rest((extent, slot), now_ns)
            }
            None => {}
        }
        true
    }

    /// A step has ended.
    pub fn region_ended(&mut self, (extent, slot): ExtentReplica, is_resynced: bool, desk: &mut Desk<'_>) {
        let now_ns = desk.io.now_ns;
        self.queue.step_ended();
        // Much may have been copied in this round.
        desk.schedule.throttle.step_ended(Clock.now_ns(), desk.policy.weight);
        match desk.files.home_of(slot, extent).filter(|_| is_resynced) {
            Some(home) => {
                on_pace(home, desk, |pace| pace.moved(now_ns, STEP, REGION_BYTES as u32));
                desk.statistics.replication.add_resynced(REGION_BYTES);
            }
            None => self.queue.rest((extent, slot), now_ns),
        }
        self.go_on(desk);
    }

    /// Publishes the number of bytes left to resync. It counts all dirty regions, so it is not called for
    /// each step.
    pub fn publish(&self, mirror: &Mirror, statistics: &VolumeStatistics) {
        statistics.replication.publish_left(self.queue.regions_left(mirror) * REGION_BYTES);
    }

    /// Removes all regions from the dirty region log, because no further change comes.
    pub fn tidy_up(&mut self, desk: &mut Desk<'_>) {
        for extent in ExtentIndex::first(desk.mirror.extents()) {
            if desk.mirror.is_dirty(extent) {
                desk.mirror.tidy_up(extent, desk.effects);
            }
        }
    }

    /// Removes regions without recent changes from the dirty region log.
    fn tidy(&mut self, desk: &mut Desk<'_>) {
        if desk.io.now_ns < self.tidy_at_ns {
            return;
        }
        self.tidy_at_ns = desk.io.now_ns + TIDY_INTERVAL_NS;
        for extent in ExtentIndex::first(desk.mirror.extents()) {
            if desk.mirror.is_dirty(extent) {
                desk.mirror.tidy(extent, desk.effects);
            }
        }
    }
}

/// Acts on the pace of resync on a home's drive.
fn on_pace<T>(home: usize, desk: &Desk<'_>, act: impl FnOnce(&mut Pace) -> T) -> T {
    desk.files.homes[home].queue.shared().with_pace((KIND, desk.policy), desk.io.now_ns, act)
}

/// Time of the slower of the source and target drives for a piece, in nanoseconds.
fn piece_ns((extent, slot): ExtentReplica, home: usize, desk: &Desk<'_>) -> u32 {
    let cost_ns =
        |home: usize, kind| desk.files.homes[home].queue.shared().cost(kind, PIECE_BYTES as u32).drive_ns;
    let source = desk.mirror.source(extent, slot).and_then(|source| desk.files.home_of(source, extent));
    let read_ns = source.map_or(0, |source| cost_ns(source, Kind::Read));
    cost_ns(home, Kind::Write).max(read_ns)
}
