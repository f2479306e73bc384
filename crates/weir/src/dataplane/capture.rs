//! Capturing what volumes hold at one instant, in files beside theirs, while they are written to.
//!
//! Which part comes when is decided by the mirror, and the files are shared or copied by helper threads, one for each
//! drive. Here several volumes are brought to the same instant: all are held, which begins no change, and only when all
//! are does any of them begin. A hold ends by itself after a moment: whoever asked for it may not come back.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use weir_types::{DriveId, VolumeId};
use weir_volume::mirror::Slots;

use super::command::Command;
use super::helper::Job;
use super::reactor::Reactor;
use super::stalls::{LOOK_INTERVAL_NS, NO_ANSWER, OrphanedIo, STALL_NS};
use super::token::{AskNumber, ReplicaIndex, VolumeIndex};
use super::{DataPlane, DataPlaneError};
use crate::store::capture::Target;
use crate::store::extent_file_name;

/// How long changes are held for other volumes to be brought to the same instant, in nanoseconds: what clients may
/// notice as a pause at most.
const HOLD_NS: u64 = 50_000_000;

/// What is captured of one volume.
#[derive(Clone, Debug)]
pub struct CaptureSpec {
    /// Which volume.
    pub volume: VolumeId,
    /// Where extent files go on each of its drives. A whole file that holds nothing is there for each copy.
    pub targets: BTreeMap<DriveId, Target>,
    /// Where it is noted how far it is.
    pub progress: Arc<CaptureProgress>,
}

/// How far a capture is, for everybody to see.
#[derive(Debug, Default)]
pub struct CaptureProgress {
    bytes_left: AtomicU64,
}

impl CaptureProgress {
    /// Bytes of extents that are left, holes among them.
    pub fn bytes_left(&self) -> u64 {
        self.bytes_left.load(Relaxed)
    }
}

/// For each extent the copies that were captured, all of which are alike; or why it was given up.
pub(super) type Outcome = Result<Vec<Slots>, String>;

/// A capture that a volume is asked for.
pub(super) struct NewCapture {
    pub spec: CaptureSpec,
    /// It is one of several, and does not begin unless it is held.
    pub is_held: bool,
    pub done: SyncSender<Outcome>,
}

/// The capture of a volume that is under way.
pub(super) struct Capturing {
    spec: CaptureSpec,
    done: SyncSender<Outcome>,
    step: Step,
    /// Why a copy could not be captured.
    fault: Option<String>,
}

/// What drives are at.
#[derive(Default)]
struct Step {
    extent: u32,
    /// Copies that have not answered, and since when.
    waiting: BTreeMap<usize, (AskNumber, u64)>,
    failed: Slots,
    /// How far those came that have.
    end: u32,
}

impl Reactor {
    /// Holds the changes of a volume, for a moment.
    pub(super) fn hold(&mut self, id: VolumeId, done: SyncSender<bool>) {
        let index = self.by_id.get(&id).copied().filter(|index| self.can_be_captured(*index));
        if let Some(index) = index {
            self.volumes[index].mirror.hold();
            self.holds.insert((self.now_ns + HOLD_NS, index));
        }
        // They may have stopped waiting; then the hold ends by itself.
        let _ = done.send(index.is_some());
    }

    fn can_be_captured(&self, index: VolumeIndex) -> bool {
        let volume = &self.volumes[index];
        !volume.is_ending() && !volume.mirror.is_capturing() && self.stop_by_ns.is_none()
    }

    /// Lets volumes go on that were held for too long.
    pub(super) fn end_due_holds(&mut self) {
        while let Some((_, index)) = self.holds.first().copied().filter(|(until, _)| *until <= self.now_ns) {
            self.end_capture(index, "changes were held for too long");
        }
    }

    pub(super) fn begin_capture(&mut self, new: NewCapture) {
        let NewCapture { spec, is_held, done } = new;
        let index = self.by_id.get(&spec.volume).copied();
        let was_held = index.is_some_and(|index| self.forget_hold(index));
        let can_begin =
            |index: &VolumeIndex| was_held == is_held && (is_held || self.can_be_captured(*index));
        let Some(index) = index.filter(can_begin) else {
            return tell(&done, Err("it could not be brought to the same instant".to_owned()));
        };
        let volume = &mut self.volumes[index];
        if let Err(error) = volume.mirror.begin_capture(&mut volume.effects) {
            tell(&done, Err(error.to_string()));
        } else {
            volume.capturing = Some(Capturing { spec, done, step: Step::default(), fault: None });
            self.capture_look_ns.get_or_insert(self.now_ns + LOOK_INTERVAL_NS);
        }
        self.carry_out(index);
    }

    fn forget_hold(&mut self, index: VolumeIndex) -> bool {
        let count = self.holds.len();
        self.holds.retain(|(_, held)| *held != index);
        self.holds.len() < count
    }

    /// Has drives capture a part of an extent.
    pub(super) fn capture(
        &mut self,
        index: VolumeIndex,
        extent: u32,
        slots: Slots,
        (offset, length): (u32, u32),
    ) {
        let now_ns = self.now_ns;
        let volume = &mut self.volumes[index];
        let mut step = Step { extent, end: offset + length, ..Step::default() };
        let capturing = volume.capturing.take().expect("the mirror captures what it was asked to");
        for slot in slots.iter() {
            let home = volume.home_of(slot, extent).expect("the mirror captures copies that there are");
            let drive = volume.homes[home].drive;
            // What its file lacks is in the journal, and is not gathered from there: other copies have it in one place.
            let is_journaled = volume.journals.seat(extent, slot).is_some();
            let target = capturing.spec.targets.get(&drive).filter(|_| !is_journaled);
            let Some(Target { folder, can_share }) = target else {
                step.failed.insert(slot);
                continue;
            };
            let (source, target) =
                (volume.extent_path(slot, extent), folder.join(extent_file_name(extent.into())));
            let (replica, number) = (ReplicaIndex { volume: index, slot }, volume.next_number());
            step.waiting.insert(slot, (number, now_ns));
            volume.outstanding += 1;
            let (range, can_share) = ((offset, length), *can_share);
            self.helper.submit(Job::Capture { replica, number, drive, source, target, range, can_share });
        }
        volume.capturing = Some(Capturing { step, ..capturing });
        self.go_on_with_step(index);
    }

    /// A drive has captured a part of an extent, or could not.
    pub(super) fn capture_answered(
        &mut self,
        replica: ReplicaIndex,
        number: AskNumber,
        result: Result<u32, String>,
    ) {
        let volume = &mut self.volumes[replica.volume];
        let capturing = volume.capturing.as_mut();
        let is_asked = |capturing: &&mut Capturing| {
            capturing.step.waiting.get(&replica.slot).is_some_and(|(asked, _)| *asked == number)
        };
        if let Some(Capturing { step, fault, .. }) = capturing.filter(is_asked) {
            step.waiting.remove(&replica.slot);
            volume.outstanding -= 1;
            match result {
                Ok(end) => step.end = step.end.min(end),
                Err(message) => {
                    tracing::warn!(volume = %volume.id, extent = step.extent, "{message}");
                    step.failed.insert(replica.slot);
                    *fault = Some(message);
                }
            }
            self.go_on_with_step(replica.volume);
        } else if !self.is_orphaned(replica, number) {
            self.volumes[replica.volume].outstanding -= 1;
        }
        self.settle_volume(replica.volume);
    }

    fn go_on_with_step(&mut self, index: VolumeIndex) {
        let volume = &mut self.volumes[index];
        let Some(Capturing { step, spec, .. }) = &volume.capturing else { return };
        if step.waiting.is_empty() {
            let (end, failed, progress) = (step.end, step.failed, Arc::clone(&spec.progress));
            volume.mirror.captured(end, failed, &mut volume.effects);
            progress.bytes_left.store(volume.mirror.bytes_to_capture(), Relaxed);
            self.carry_out(index);
        }
    }

    /// Goes on without drives that should have answered long ago; nothing more is asked of them.
    pub(super) fn look_at_captures(&mut self) {
        if self.capture_look_ns.is_none_or(|look_ns| look_ns > self.now_ns) {
            return;
        }
        let captured = self.volumes.iter().filter(|(_, volume)| volume.capturing.is_some());
        let captured: Vec<VolumeIndex> = captured.map(|(index, _)| index).collect();
        self.capture_look_ns = (!captured.is_empty()).then_some(self.now_ns + LOOK_INTERVAL_NS);
        let before_ns = self.now_ns.saturating_sub(STALL_NS);
        captured.into_iter().for_each(|index| self.give_up_late(index, before_ns));
    }

    fn give_up_late(&mut self, index: VolumeIndex, before_ns: u64) {
        let volume = &mut self.volumes[index];
        let Some(mut capturing) = volume.capturing.take() else { return };
        let Capturing { step, fault, spec, .. } = &mut capturing;
        let late: Vec<_> = step.waiting.extract_if(.., |_, (_, since_ns)| *since_ns < before_ns).collect();
        for (slot, (number, _)) in &late {
            step.failed.insert(*slot);
            volume.orphans.add(*slot, *number, OrphanedIo { extent: step.extent, media: None, space: None });
            let home = volume.home_of(*slot, step.extent).map(|home| volume.homes[home].drive);
            home.into_iter().for_each(|drive| _ = spec.targets.remove(&drive));
            *fault = Some(NO_ANSWER.to_owned());
        }
        volume.capturing = Some(capturing);
        if !late.is_empty() {
            self.go_on_with_step(index);
            self.settle_volume(index);
        }
    }

    /// A capture has come to its end.
    pub(super) fn capture_ended(&mut self, index: VolumeIndex, replicas: Option<Vec<Slots>>) {
        let Some(Capturing { done, fault, .. }) = self.volumes[index].capturing.take() else { return };
        let fault = || fault.unwrap_or_else(|| "no copy of an extent is left".to_owned());
        tell(&done, replicas.ok_or_else(fault));
    }

    /// Gives up a capture of a volume, or that it is held for one, if there is any.
    pub(super) fn end_capture(&mut self, index: VolumeIndex, why: &str) {
        self.forget_hold(index);
        let volume = &mut self.volumes[index];
        if !volume.mirror.is_capturing() {
            return;
        }
        if let Some(capturing) = &mut volume.capturing {
            capturing.fault = Some(why.to_owned());
        }
        volume.mirror.abandon_capture(&mut volume.effects);
        self.carry_out(index);
    }

    pub(super) fn abandon_capture(&mut self, id: VolumeId) {
        if let Some(index) = self.by_id.get(&id).copied() {
            self.end_capture(index, "it was given up");
        }
    }

    /// Gives up all captures: the daemon stops.
    pub(super) fn end_captures(&mut self) {
        let all: Vec<VolumeIndex> = self.volumes.iter().map(|(index, _)| index).collect();
        all.into_iter().for_each(|index| self.end_capture(index, "the daemon stops"));
    }
}

/// Tells whoever asked. They may have stopped waiting.
fn tell(done: &SyncSender<Outcome>, outcome: Outcome) {
    let _ = done.send(outcome);
}

impl DataPlane {
    /// Captures what volumes hold, all at the same instant, while they go on being written to. Answers, once everything
    /// is captured, for each of them and each of its extents the copies that were, all of which are alike; they are not
    /// durable yet. Copies must not come or go meanwhile. Changes wait for 50 ms at most until all have begun.
    ///
    /// # Errors
    /// If a volume is not open or cannot be captured now; nothing goes on then.
    pub fn capture(&self, specs: &[CaptureSpec]) -> Result<Vec<Vec<Slots>>, DataPlaneError> {
        let is_held = specs.len() > 1;
        let begun = if is_held { self.hold(specs) } else { Ok(()) };
        let outcome = begun.and_then(|()| self.capture_held(specs, is_held));
        if outcome.is_err() {
            specs.iter().for_each(|spec| self.abandon_capture(spec.volume));
        }
        outcome
    }

    /// Gives up the capture of a volume, if there is one under way.
    pub fn abandon_capture(&self, volume: VolumeId) {
        if let Ok(reactor) = self.reactor_of(volume) {
            self.reactors[reactor].order(Command::AbandonCapture { volume });
        }
    }

    fn hold(&self, specs: &[CaptureSpec]) -> Result<(), DataPlaneError> {
        let ask = |spec: &CaptureSpec| {
            let (done, answer) = sync_channel(1);
            let reactor = self.reactor_of(spec.volume)?;
            self.reactors[reactor].order(Command::Hold { volume: spec.volume, done });
            Ok((spec.volume, answer))
        };
        let answers: Vec<(VolumeId, Receiver<bool>)> =
            specs.iter().map(ask).collect::<Result<_, DataPlaneError>>()?;
        let is_held = |(volume, answer): (VolumeId, Receiver<bool>)| {
            let is_held = answer.recv_timeout(Duration::from_nanos(HOLD_NS)).unwrap_or(false);
            if is_held { Ok(()) } else { Err(busy(volume)) }
        };
        answers.into_iter().try_for_each(is_held)
    }

    fn capture_held(&self, specs: &[CaptureSpec], is_held: bool) -> Result<Vec<Vec<Slots>>, DataPlaneError> {
        let ask = |spec: &CaptureSpec| {
            let (done, answer) = sync_channel(1);
            let reactor = self.reactor_of(spec.volume)?;
            let capture = Box::new(NewCapture { spec: spec.clone(), is_held, done });
            self.reactors[reactor].order(Command::Capture(capture));
            Ok((spec.volume, answer))
        };
        let answers: Vec<(VolumeId, Receiver<Outcome>)> =
            specs.iter().map(ask).collect::<Result<_, DataPlaneError>>()?;
        let outcome = |(volume, answer): (VolumeId, Receiver<Outcome>)| {
            let outcome = answer.recv().map_err(|_| DataPlaneError::Stopped(volume))?;
            outcome.map_err(|reason| DataPlaneError::NotCaptured { volume, reason })
        };
        answers.into_iter().map(outcome).collect()
    }
}

fn busy(volume: VolumeId) -> DataPlaneError {
    let reason = "it could not be held for the same instant".to_owned();
    DataPlaneError::NotCaptured { volume, reason }
}
