//! Bringing copies of volumes' extents to where they are wished, under running I/O: another number of copies, another
//! class, a drive that is to be emptied.
//!
//! What is next is decided in [`plan`] from what there is; here it is carried out. Nothing is kept of a move: whoever
//! looks again, in this daemon or the next, goes on from what it finds.
//!
//! A copy is added in the order file, account (by the data plane), record; it goes in the order account, record, file.
//! So a record names no copy that an account does not, and what a crash leaves is either taken back or given back.

mod evacuation;
mod plan;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use weir_types::bounds::COPIES_MAX;
use weir_types::{Class, ClassPolicy, DriveId, VolumeId};
use weir_volume::mirror::{Standing, Standings};

use super::Control;
use super::alarms::{AlarmSource, StandingAlarm};
use super::error::{ControlError, Outcome};
use super::model::Model;
use super::records::VolumeRecord;
use super::spread::Room;
use crate::store::extent_count;
use plan::{Candidate, CopyNow, Step, Unreachable, Wish, next_step, unreachable};

/// Extents of one volume that are moved at a time: enough that one is always being copied, few enough that what a move
/// occupies twice stays small.
const EXTENTS_AT_ONCE: usize = 2;
/// Steps that are taken for one volume before another one's turn.
const STEPS_AT_ONCE: usize = 64;

/// Volumes whose copies may not be where they are wished.
#[derive(Debug, Default)]
pub(super) struct Moves {
    unsettled: Mutex<BTreeMap<VolumeId, MoveView>>,
}

/// How far the copies of a volume are from where they are wished.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MoveView {
    /// Extents whose copies are not all where they are wished, or not all up to date.
    pub extents_left: u64,
    /// Why it cannot go on, in words.
    pub stuck: Option<String>,
}

impl Moves {
    fn unsettled(&self) -> MutexGuard<'_, BTreeMap<VolumeId, MoveView>> {
        self.unsettled.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The extents of a volume as they are at one look.
struct Look {
    record: VolumeRecord,
    revision: u64,
    standings: Vec<Standings>,
    wishes: Vec<Wish>,
    candidates: Vec<Candidate>,
    classes: BTreeMap<DriveId, Option<Class>>,
    leaving: BTreeSet<DriveId>,
}

impl Look {
    /// How the copies of an extent stand: as their accounts say, or, if it never had several, as it is recorded.
    fn standings(&self, extent: u32) -> Standings {
        let recorded = || {
            let mut standings = Standings::default();
            let copies = self.record.placement.copies_of(extent.into());
            copies.for_each(|(slot, _)| standings[slot] = Standing::InSync);
            standings
        };
        // Of an extent that never had several copies nothing is told, but it may be told of one behind it.
        let is_told = |standings: &Standings| standings.iter().any(|standing| *standing != Standing::Absent);
        self.standings.get(extent as usize).copied().filter(is_told).unwrap_or_else(recorded)
    }

    fn drive(&self, extent: u32, slot: usize) -> Option<DriveId> {
        let mut copies = self.record.placement.copies_of(extent.into());
        copies.find(|(other, _)| *other == slot).map(|(_, drive)| drive)
    }

    fn copies(&self, extent: u32) -> Vec<CopyNow> {
        let standings = self.standings(extent);
        let copy = |slot: usize| {
            let drive = self.drive(extent, slot);
            (standings[slot] != Standing::Absent).then(|| CopyNow {
                slot,
                drive,
                class: drive.and_then(|drive| self.classes.get(&drive).copied().flatten()),
                standing: standings[slot],
                must_leave: drive.is_some_and(|drive| self.leaving.contains(&drive)),
            })
        };
        (0..COPIES_MAX).filter_map(copy).collect()
    }

    /// A copy that is recorded and, by its account, no more.
    fn gone(&self, extent: u32) -> Option<usize> {
        let standings = self.standings(extent);
        let copies = self.record.placement.copies_of(extent.into());
        copies.map(|(slot, _)| slot).find(|slot| standings[*slot] == Standing::Absent)
    }
}

impl Model {
    /// Where the copies of each extent of a volume should be.
    fn wishes(&self, volume: &VolumeRecord, candidates: &[Candidate]) -> Vec<Wish> {
        let wanted = Some(volume.io_priority);
        let is_to_be_had = || {
            let drives = self.drives_of(volume).any(|drive| !drive.is_leaving && drive.class == wanted);
            drives || candidates.iter().any(|candidate| candidate.class == wanted)
        };
        let wish = match volume.class_policy {
            ClassPolicy::Any => None,
            ClassPolicy::Strict => wanted,
            ClassPolicy::Prefer => wanted.filter(|_| is_to_be_had()),
        };
        vec![wish; usize::from(volume.replicas)]
    }

    /// Drives that could take copies of a volume: where nobody asked for a class, those like the ones that it is on.
    fn candidates(&self, volume: &VolumeRecord, rooms: Vec<Room>) -> Vec<Candidate> {
        let class = |drive: DriveId| self.drives.get(&drive).and_then(|drive| drive.record.class);
        let rooms = rooms.into_iter().filter(|room| !self.is_leaving(room.drive));
        let all: Vec<Candidate> = rooms.map(|room| Candidate { class: class(room.drive), room }).collect();
        if volume.class_policy != ClassPolicy::Any {
            return all;
        }
        let own: BTreeSet<Option<Class>> = self.drives_of(volume).map(|drive| drive.class).collect();
        let like: Vec<Candidate> =
            all.iter().filter(|candidate| own.contains(&candidate.class)).cloned().collect();
        if like.len() >= usize::from(volume.replicas) { like } else { all }
    }
}

impl Control {
    /// Has it looked whether the copies of a volume are where they are wished.
    pub(super) fn begin_moves(&self, volume: VolumeId) {
        self.moves.unsettled().entry(volume).or_default();
    }

    /// Has it looked at all volumes whose extents have, or had, several copies: a move may have been interrupted.
    pub(super) fn begin_all_moves(&self) {
        let model = self.model();
        let volumes = model.volumes.values().map(|volume| &volume.record);
        volumes.filter(|volume| volume.placement.has_copies()).for_each(|volume| self.begin_moves(volume.id));
    }

    /// Refuses what copies of a volume could not be moved to, as far as drives and their classes go.
    pub(super) fn refuse_unreachable(&self, volume: &VolumeRecord) -> Outcome<()> {
        let rooms = self.rooms();
        let model = self.model();
        let candidates = model.candidates(volume, rooms);
        let wishes = model.wishes(volume, &candidates);
        let Some(Unreachable { wish, wished, there }) = unreachable(&wishes, &candidates) else {
            return Ok(());
        };
        let name = &volume.name;
        let class = wish.map_or("any class".to_owned(), |class| format!("class {class}"));
        Err(ControlError::refused(format!(
            "volume '{name}' cannot have {wished} copies of {class}: there are {there} such drives, and \
             copies of an extent are on distinct ones"
        )))
    }

    /// How far the copies of a volume are from where they are wished; `None` if they are there.
    pub fn moves_of(&self, volume: VolumeId) -> Option<MoveView> {
        self.moves.unsettled().get(&volume).cloned()
    }

    /// Moves copies as far as it goes now. Whoever calls this again and again brings all to where they are wished.
    pub fn settle_moves(&self) {
        let volumes: Vec<VolumeId> = self.moves.unsettled().keys().copied().collect();
        for volume in volumes {
            let moved = self.move_copies(volume).unwrap_or_else(|error| {
                let stuck = Some(error.message);
                Some(MoveView { extents_left: 1, stuck })
            });
            let mut unsettled = self.moves.unsettled();
            match moved {
                None => _ = unsettled.remove(&volume),
                Some(view) => _ = unsettled.insert(volume, view),
            }
        }
        self.settle_leaving();
    }

    /// Takes steps for the copies of one volume; `None` if all are where they are wished.
    fn move_copies(&self, volume: VolumeId) -> Outcome<Option<MoveView>> {
        for _ in 0..STEPS_AT_ONCE {
            // One step at a time, each under the lock of all changes and from a new look.
            let _change = self.begin_change();
            let Some(look) = self.look_at_copies(volume) else { return Ok(None) };
            let mut view = MoveView::default();
            let mut next = None;
            for extent in 0..extent_count(look.record.size_bytes) as u32 {
                let step = match look.gone(extent) {
                    Some(slot) => Step::Remove(slot),
                    None => next_step(&look.copies(extent), &look.wishes, &look.candidates),
                };
                match step {
                    Step::Done => continue,
                    Step::Wait => {}
                    Step::Stuck(wish) => view.stuck = Some(stuck_words(wish, look.wishes.len())),
                    step if next.is_none() && view.extents_left < EXTENTS_AT_ONCE as u64 => {
                        next = Some((extent, step));
                    }
                    _ => {}
                }
                view.extents_left += 1;
            }
            match next {
                Some((extent, step)) if self.take_step(&look, extent, step)? => {}
                _ => return Ok((view.extents_left > 0).then_some(view)),
            }
        }
        Ok(Some(self.moves_of(volume).unwrap_or_default()))
    }

    fn look_at_copies(&self, volume: VolumeId) -> Option<Look> {
        let rooms = self.rooms();
        let model = self.model();
        let versioned = model.volumes.get(&volume)?;
        let standings = model.open.get(&volume)?.copies.snapshot().standings;
        let record = versioned.record.clone();
        let candidates = model.candidates(&record, rooms);
        let drives = || model.drives.values().map(|drive| &drive.record);
        Some(Look {
            wishes: model.wishes(&record, &candidates),
            candidates,
            classes: drives().map(|drive| (drive.id, drive.class)).collect(),
            leaving: drives().filter(|drive| drive.is_leaving).map(|drive| drive.id).collect(),
            revision: versioned.revision,
            record,
            standings,
        })
    }

    /// Takes a step; false if it cannot be taken now.
    fn take_step(&self, look: &Look, extent: u32, step: Step) -> Outcome<bool> {
        match step {
            Step::Add { slot, drive } => self.add_copy(look, (extent, slot), drive),
            Step::Remove(slot) => self.remove_copy(look, (extent, slot)),
            Step::Done | Step::Wait | Step::Stuck(_) => Ok(false),
        }
    }

    fn add_copy(&self, look: &Look, (extent, slot): (u32, usize), drive: DriveId) -> Outcome<bool> {
        let mut record = look.record.clone();
        let count = extent_count(record.size_bytes);
        record.placement.set(count, (extent.into(), slot), Some(drive));
        record.generation += 1;
        let store = self.store(drive)?;
        store.add_extent(record.id, extent, &self.record_copy(&look.record)?.content)?;
        let homes = self.layout(&record)?.homes;
        let place = record.placement.places().position(|other| other == Some(drive));
        let home = place.and_then(|place| u8::try_from(place).ok());
        let home = home.expect("the placement was just told of this drive");
        if !self.data_plane.add_copy(record.id, (extent, slot), &homes, home)? {
            self.give_back_extent(&look.record, drive, extent)?;
            return Ok(false);
        }
        self.save_volume(&record, look.revision)?;
        self.write_copies([&record])?;
        Ok(true)
    }

    fn remove_copy(&self, look: &Look, (extent, slot): (u32, usize)) -> Outcome<bool> {
        let is_there = look.standings(extent)[slot] != Standing::Absent;
        if is_there && !self.data_plane.remove_copy(look.record.id, (extent, slot))? {
            return Ok(false);
        }
        let Some(drive) = look.drive(extent, slot) else { return Ok(true) };
        let mut record = look.record.clone();
        record.placement.set(extent_count(record.size_bytes), (extent.into(), slot), None);
        record.generation += 1;
        self.save_volume(&record, look.revision)?;
        self.write_copies([&record])?;
        // On a drive that is missing it is found when that is back.
        if self.store(drive).is_ok() {
            self.give_back_extent(&record, drive, extent)?;
        }
        Ok(true)
    }

    /// An alarm for each volume whose copies cannot get to where they are wished.
    pub(super) fn move_alarms(&self) -> Vec<StandingAlarm> {
        let unsettled = self.moves.unsettled();
        let stuck = unsettled.iter().filter_map(|(id, view)| Some((*id, view.stuck.clone()?)));
        let alarm = |(volume, why)| StandingAlarm {
            source: AlarmSource::Replicas,
            volume: Some(volume),
            extent: None,
            message: format!("copies are not where they should be: {why}"),
        };
        stuck.map(alarm).collect()
    }
}

fn stuck_words(wish: Wish, replicas: usize) -> String {
    let class = wish.map_or("any class".to_owned(), |class| format!("class {class}"));
    format!(
        "no drive of {class} is free for one of {replicas} copies; copies of an extent are on distinct drives"
    )
}
