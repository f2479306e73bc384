//! Snapshot of one volume: taking its ranges into new files while clients write to them.
//!
//! The mirror decides which range of which extent comes next. One helper thread for each drive shares or
//! duplicates the ranges. A quiesce ends by itself after a moment, because the caller may never come back. This
//! module does not know that other volumes are quiesced for the same instant: `data_plane/snapshots` does that.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::SyncSender;

use weir_engine_interface::SnapshotSpec;
use weir_store::extent_file_name;
use weir_store::snapshot::Target;
use weir_types::bounds::REGION_BYTES;
use weir_types::{ExtentIndex, VolumeId};
use weir_volume::Mirror;
use weir_volume::mirror::stall::Waiting;
use weir_volume::mirror::{Effect, Slots};

use crate::helper::Job;
use crate::io::Io;
use crate::token::{AskNumber, ReplicaIndex, VolumeIndex};
use crate::volumes::journals::VolumeJournals;
use crate::volumes::missing_answers::{LOOK_INTERVAL_NS, NO_ANSWER};
use crate::volumes::operations::Operations;
use crate::volumes::orphans::OrphanedIo;
use crate::volumes::volume_files::VolumeFiles;

/// Longest time that writes are quiesced while other volumes are brought to the same instant, in nanoseconds.
/// It is the longest pause that clients may notice.
pub const QUIESCE_NS_MAX: u64 = 50_000_000;

/// Why a volume is in no snapshot.
#[derive(Debug, PartialEq, Eq)]
pub enum NoSnapshot {
    /// It could not begin at this moment, for example because it was not quiesced any more.
    NotNow,
    /// It was abandoned, for this reason.
    Abandoned(String),
}

/// For each extent the replicas in the snapshot, all of which are identical.
pub type Outcome = Result<Vec<Slots>, NoSnapshot>;

/// A snapshot that a volume is asked for.
pub struct NewSnapshot {
    pub spec: SnapshotSpec,
    /// The snapshot begins only if the volume is quiesced, since its instant is that of other volumes or of a frozen
    /// filesystem.
    pub is_quiesced: bool,
    pub done: SyncSender<Outcome>,
}

impl NewSnapshot {
    /// Tells the caller that no snapshot can begin now.
    pub fn refuse(self) {
        tell(&self.done, Err(NoSnapshot::NotNow));
    }
}

/// When a reactor has to look at its snapshots although nothing happened.
#[derive(Default)]
pub struct SnapshotTimes {
    /// Quiesced volumes, with the time at which each quiesce ends.
    quiesces: BTreeSet<(u64, VolumeIndex)>,
    /// When to check for drives that do not answer to snapshots in progress, while there are any.
    look_ns: Option<u64>,
}

impl SnapshotTimes {
    /// When to look next, in nanoseconds.
    pub fn next_ns(&self) -> Option<u64> {
        self.quiesces.first().map(|&(at_ns, _)| at_ns).into_iter().chain(self.look_ns).min()
    }

    pub fn quiesce(&mut self, index: VolumeIndex, now_ns: u64) {
        self.quiesces.insert((now_ns + QUIESCE_NS_MAX, index));
    }

    /// A volume is not quiesced any more. True if it was.
    pub fn forget_quiesce(&mut self, index: VolumeIndex) -> bool {
        let count = self.quiesces.len();
        self.quiesces.retain(|(_, held)| *held != index);
        self.quiesces.len() < count
    }

    /// A volume whose quiesce has lasted too long.
    pub fn due_quiesce(&self, now_ns: u64) -> Option<VolumeIndex> {
        self.quiesces.first().filter(|(until_ns, _)| *until_ns <= now_ns).map(|(_, index)| *index)
    }

    /// A snapshot has begun.
    pub fn begun(&mut self, now_ns: u64) {
        self.look_ns.get_or_insert(now_ns + LOOK_INTERVAL_NS);
    }

    /// True if it is time to check for drives that do not answer. Checks end with this one, unless
    /// [`SnapshotTimes::begun`] says that a snapshot is in progress.
    pub fn take_look(&mut self, now_ns: u64) -> bool {
        self.look_ns.take_if(|look_ns| *look_ns <= now_ns).is_some()
    }
}

/// What the snapshot of a volume may use of the volume.
pub struct Desk<'a> {
    pub io: &'a mut Io,
    pub files: &'a VolumeFiles,
    pub journals: &'a mut VolumeJournals,
    pub operations: &'a mut Operations,
    pub mirror: &'a mut Mirror,
    /// Effects of the mirror, which the caller has to carry out.
    pub effects: &'a mut Vec<Effect>,
}

/// The snapshot in progress of a volume, if there is one.
pub struct VolumeSnapshot {
    volume: VolumeIndex,
    id: VolumeId,
    current: Option<Current>,
}

/// A snapshot in progress.
struct Current {
    spec: SnapshotSpec,
    done: SyncSender<Outcome>,
    step: Step,
    /// Why a replica is not part of the snapshot.
    fault: Option<String>,
}

/// The range that the drives work on.
#[derive(Default)]
struct Step {
    extent: ExtentIndex,
    /// Replicas that have not answered, with the number and the time of the request.
    waiting: BTreeMap<usize, (AskNumber, u64)>,
    failed: Slots,
    /// End of the range that all replicas that answered have completed.
    end: u32,
}

impl Current {
    /// Submits a range of a replica to the helper thread of its drive.
    ///
    /// # Errors
    /// If the replica cannot be in the snapshot, with the reason unless its drive is not used for it.
    fn ask_replica(
        &mut self,
        replica: ReplicaIndex,
        range: (u32, u32),
        desk: &mut Desk<'_>,
    ) -> Result<(), Option<String>> {
        let (extent, slot) = (self.step.extent, replica.slot);
        let home = desk.files.home_of(slot, extent).expect("the mirror knows only replicas that exist");
        let drive = desk.files.homes[home].drive;
        let Target { folder, can_share, has_space } = self.spec.targets.get(&drive).ok_or(None)?;
        let (source, target) = (desk.files.extent_path(slot, extent), folder.join(extent_file_name(extent)));
        // A journal writes to the file without reserving space first, so no block of the file may be shared.
        let (has_space, can_share) =
            (*has_space, *can_share && desk.journals.binding(extent, slot).is_none());
        let number = desk.operations.next_number();
        let held = desk.journals.snapshot_reads().begin((extent, slot), range, number);
        let held = held.map_err(|error| {
            Some(format!("snapshot {}: use the write journal: {error}", source.display()))
        })?;
        self.step.waiting.insert(slot, (number, desk.io.now_ns));
        desk.operations.begin();
        let job = Job::Snapshot { replica, number, drive, source, target, range, can_share, has_space, held };
        desk.io.helper.submit(job);
        Ok(())
    }
}

/// The length of the next step from an offset on: up to the next region of which a journal holds something, and
/// one region if this is the first. So the time of a step stays short.
fn length_of_step(
    (extent, slots): (ExtentIndex, Slots),
    (offset, length): (u32, u32),
    journals: &mut VolumeJournals,
) -> u32 {
    let region_bytes = REGION_BYTES as u32;
    let reads = journals.snapshot_reads();
    let held = slots.iter().filter_map(|slot| reads.next_held((extent, slot), (offset, length)));
    held.min().map_or(length, |held| {
        let before = (held - offset) / region_bytes * region_bytes;
        if before > 0 { before } else { region_bytes.min(length) }
    })
}

impl VolumeSnapshot {
    pub fn new(volume: VolumeIndex, id: VolumeId) -> VolumeSnapshot {
        VolumeSnapshot { volume, id, current: None }
    }

    /// True while the drives work on a snapshot.
    pub fn is_any(&self) -> bool {
        self.current.is_some()
    }

    /// Begins a snapshot. False if it cannot begin; the caller was told why.
    pub fn begin(&mut self, spec: SnapshotSpec, done: SyncSender<Outcome>, desk: &mut Desk<'_>) -> bool {
        match desk.mirror.snapshots().begin(desk.effects) {
            Err(error) => tell(&done, Err(NoSnapshot::Abandoned(error.to_string()))),
            Ok(_) => self.current = Some(Current { spec, done, step: Step::default(), fault: None }),
        }
        self.is_any()
    }

    /// Submits a range of an extent, or its first part, to the helper threads of its drives.
    pub fn ask(
        &mut self,
        (extent, slots): (ExtentIndex, Slots),
        (offset, length): (u32, u32),
        desk: &mut Desk<'_>,
    ) {
        let current = self.current.as_mut().expect("the mirror has ranges for a snapshot in progress");
        let is_direct = |slot: usize| desk.journals.binding(extent, slot).is_none();
        let direct: Slots = slots.iter().filter(|slot| is_direct(*slot)).collect();
        // Where there is a replica behind no journal, the others are resynced from it. Writes would wait for slow drives
        // otherwise.
        let taken = if direct.is_empty() { slots } else { direct };
        let range = (offset, length_of_step((extent, taken), (offset, length), desk.journals));
        current.step = Step { extent, end: offset + range.1, ..Step::default() };
        for slot in slots.iter() {
            let replica = ReplicaIndex { volume: self.volume, slot };
            let is_taken = taken.contains(slot);
            let asked = if is_taken { current.ask_replica(replica, range, desk) } else { Err(None) };
            if let Err(fault) = asked {
                current.step.failed.insert(slot);
                if let Some(message) = fault {
                    tracing::warn!(volume = %self.id, extent = extent.0, "{message}");
                    current.fault = Some(message);
                }
            }
        }
        self.go_on(desk);
    }

    /// Takes the answer of a drive for a range of an extent. False if it is not expected any more.
    pub fn answered(
        &mut self,
        slot: usize,
        number: AskNumber,
        result: Result<u32, String>,
        desk: &mut Desk<'_>,
    ) -> bool {
        let is_asked = |current: &&mut Current| {
            current.step.waiting.get(&slot).is_some_and(|(asked, _)| *asked == number)
        };
        let Some(Current { step, fault, .. }) = self.current.as_mut().filter(is_asked) else { return false };
        step.waiting.remove(&slot);
        desk.operations.end();
        match result {
            Ok(end) => step.end = step.end.min(end),
            Err(message) => {
                tracing::warn!(volume = %self.id, extent = step.extent.0, "{message}");
                step.failed.insert(slot);
                *fault = Some(message);
            }
        }
        self.go_on(desk);
        true
    }

    fn go_on(&mut self, desk: &mut Desk<'_>) {
        let Some(Current { step, spec, .. }) = &self.current else { return };
        if step.waiting.is_empty() {
            desk.mirror.snapshots().step_done(step.end, step.failed, desk.effects);
            spec.progress.set_bytes_left(desk.mirror.snapshot_bytes_left());
        }
    }

    /// Gives up on drives whose answer is overdue, and asks them nothing more for this snapshot. Returns the slots and
    /// numbers of the requests. What such a drive still writes is in no snapshot.
    pub fn give_up_late(&mut self, desk: &mut Desk<'_>) -> Vec<(usize, AskNumber)> {
        let now_ns = desk.io.now_ns;
        let Some(Current { step, fault, spec, .. }) = &mut self.current else { return Vec::new() };
        let is_late =
            |_: &usize, (_, since_ns): &mut (AskNumber, u64)| Waiting::Asked(*since_ns).is_late(now_ns);
        let late: Vec<_> = step.waiting.extract_if(.., is_late).collect();
        for (slot, (number, _)) in &late {
            step.failed.insert(*slot);
            let io = OrphanedIo { extent: step.extent, queued: None, space: None };
            desk.operations.orphan(*slot, *number, io);
            let home = desk.files.home_of(*slot, step.extent).map(|home| desk.files.homes[home].drive);
            home.into_iter().for_each(|drive| _ = spec.targets.remove(&drive));
            *fault = Some(NO_ANSWER.to_owned());
        }
        if !late.is_empty() {
            self.go_on(desk);
        }
        late.into_iter().map(|(slot, (number, _))| (slot, number)).collect()
    }

    /// The snapshot has ended: with these replicas, or without a replica of some extent.
    pub fn ended(&mut self, replicas: Option<Vec<Slots>>) {
        let Some(Current { done, fault, .. }) = self.current.take() else { return };
        let fault = fault.unwrap_or_else(|| "no replica of an extent is left".to_owned());
        tell(&done, replicas.ok_or(NoSnapshot::Abandoned(fault)));
    }

    /// Abandons the snapshot in progress or the quiesce, if there is one.
    pub fn abandon(&mut self, why: &str, desk: &mut Desk<'_>) {
        if !desk.mirror.is_busy_with_snapshot() {
            return;
        }
        if let Some(current) = &mut self.current {
            current.fault = Some(why.to_owned());
        }
        desk.mirror.snapshots().abandon(desk.effects);
    }
}

/// Reports the outcome to the caller, who may have stopped waiting.
fn tell(done: &SyncSender<Outcome>, outcome: Outcome) {
    let _ = done.send(outcome);
}
