//! Snapshots in progress: new volumes with the content of others at one instant, while these are written.
//!
//! Snapshots, clones and restores build on this module, which does not know the purpose of the new volumes.
//! The order of all changes holds for a new volume: first a record with the state `creating`, then files and
//! their durable content. The final record comes last.
//!
//! No lock is held while the content is shared or duplicated. In this time the volumes concerned must not be
//! resized, moved or deleted. Other modules ask here by volume whether this is so.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use weir_engine_interface::{EngineError, SnapshotProgress, SnapshotSpec};
use weir_store::snapshot::Target;
use weir_store::{Store, WriteScope, epoch_record, extent_count};
use weir_types::units::Size;
use weir_types::{DriveId, ExtentIndex, VolumeId};
use weir_volume::mirror::{EpochRecord, ReplicaMetadata, ReplicaState, Slots};

use crate::attachments::Hold;
use crate::catalogue::{Revision, Transaction};
use crate::core::Core;
use crate::core::locks::Change;
use crate::core::snapshots_in_progress::{Entered, busy};
use crate::error::{ControlError, Outcome};
use crate::extents::Extents;
use crate::journals::Journals;
use crate::moves::Moves;
use crate::records::{Placement, VolumeRecord, keys};

/// How long a snapshot waits for another snapshot in progress of the same volume.
const TIMEOUT: Duration = Duration::from_secs(60);
/// First epoch of the new volumes' replica metadata: nothing was there before.
const FIRST_EPOCH: u64 = 1;
/// Epoch record of each extent of a new volume.
const FIRST_EPOCH_RECORD: EpochRecord =
    EpochRecord { allocated: FIRST_EPOCH, committed: FIRST_EPOCH, is_failed: false };

/// A volume, and the new volume that gets its content.
#[derive(Clone, Debug)]
pub(crate) struct Pair {
    pub source: VolumeRecord,
    pub target: VolumeRecord,
}

/// Why prepared snapshots did not become volumes. Nothing of them is left.
pub(crate) enum Unfinished {
    /// The volumes could not be held for the same instant, which may succeed when it is tried again.
    NotNow(ControlError),
    /// Another reason.
    Failed(ControlError),
}

impl From<ControlError> for Unfinished {
    fn from(error: ControlError) -> Unfinished {
        Unfinished::Failed(error)
    }
}

impl From<Unfinished> for ControlError {
    fn from(unfinished: Unfinished) -> ControlError {
        match unfinished {
            Unfinished::NotNow(error) | Unfinished::Failed(error) => error,
        }
    }
}

/// Prepared snapshots.
pub(crate) struct Begun<'a> {
    pairs: Vec<Pair>,
    specs: Vec<SnapshotSpec>,
    /// The writes to each drive, from before the first file was made there.
    writes: BTreeMap<DriveId, WriteScope>,
    /// The volumes that must not change until the end.
    concerned: Vec<VolumeId>,
    _entered: Entered<'a>,
}

impl Begun<'_> {
    /// The volumes that the snapshots are of.
    pub(crate) fn sources(&self) -> Vec<VolumeId> {
        self.pairs.iter().map(|pair| pair.source.id).collect()
    }
}

/// The volumes that must not change during snapshots of these pairs, and others, each once.
fn concerned(others: &[VolumeId], pairs: &[Pair]) -> Vec<VolumeId> {
    let sources = pairs.iter().map(|pair| pair.source.id);
    let all: BTreeSet<VolumeId> = sources.chain(others.iter().copied()).collect();
    all.into_iter().collect()
}

/// The drive was missing when the files were made. It has no part of the snapshot and should hold no replica.
fn came_late(drive: DriveId) -> ControlError {
    ControlError::refused(format!("drive {drive} came back while the snapshot was in progress; try again"))
}

/// Placement of a volume made of another: the drives that hold its extents, and no others.
pub(crate) fn placement_like(source: &VolumeRecord) -> Placement {
    let mut placement = source.placement.clone();
    for drive in source.placement.drives() {
        placement.forget(extent_count(source.size_bytes), drive);
    }
    placement.compacted()
}

fn is_on(volume: &VolumeRecord, drive: DriveId, extent: ExtentIndex) -> bool {
    volume.placement.replicas_of(extent).any(|(_, on)| on == drive)
}

/// The metadata of an extent whose replicas are all in sync.
fn metadata_of(slots: Slots) -> ReplicaMetadata {
    let replica_state = |slot| if slots.contains(slot) { ReplicaState::InSync } else { ReplicaState::Absent };
    ReplicaMetadata::first(FIRST_EPOCH, std::array::from_fn(replica_state))
}

/// Makes new volumes with the content of others.
pub struct SnapshotMaker {
    pub(crate) core: Arc<Core>,
    pub(crate) extents: Arc<Extents>,
    pub(crate) moves: Arc<Moves>,
    pub(crate) journals: Arc<Journals>,
}

impl SnapshotMaker {
    /// Prepares snapshots, all of the same instant.
    ///
    /// `pairs` names the volumes under the decision lock. It is called again if another snapshot in progress
    /// of one of them has to end first. The volumes in `others` must not change either.
    pub(crate) fn begin_snapshots(
        &self,
        others: &[VolumeId],
        pairs: impl Fn() -> Outcome<Vec<Pair>>,
    ) -> Outcome<Begun<'_>> {
        let until = Instant::now() + TIMEOUT;
        loop {
            let concerned = concerned(others, &pairs()?);
            let mut change = self.core.begin_volume_change(&concerned)?;
            let pairs = pairs()?;
            if pairs.iter().any(|pair| !change.holds(pair.source.id)) {
                // Other volumes have these names now.
                continue;
            }
            let progress = || Arc::<SnapshotProgress>::default();
            let of_pair = |pair: &Pair| (pair.source.id, pair.target.id, progress());
            let all: Vec<_> = pairs.iter().map(of_pair).collect();
            let pairwise = all.iter().flat_map(|(source, target, progress)| {
                [(*source, Arc::clone(progress)), (*target, Arc::clone(progress))]
            });
            // The volumes in `others` show the progress of the first pair.
            let first = all.first().map_or_else(progress, |(.., progress)| Arc::clone(progress));
            let others_too = others.iter().map(|other| (*other, Arc::clone(&first)));
            let entries = pairwise.chain(others_too).collect();
            if let Some(entered) = self.core.snapshots_in_progress.enter(entries) {
                let prepare = || -> Outcome<_> {
                    self.refuse_without_space(&pairs)?;
                    let writes = self.begin_write_scopes(&pairs)?;
                    let progress = all.into_iter().map(|(.., progress)| progress);
                    let specs =
                        pairs.iter().zip(progress).map(|(pair, progress)| self.prepare(pair, progress));
                    let specs: Outcome<Vec<SnapshotSpec>> = specs.collect();
                    Ok((specs.inspect_err(|_| self.undo_snapshots(&pairs))?, writes))
                };
                let (specs, writes) = change.beside(prepare)?;
                drop(change);
                let begun = Begun { pairs, specs, writes, concerned, _entered: entered };
                self.make_journals(&begun)?;
                return Ok(begun);
            }
            drop(change);
            if !self.core.snapshots_in_progress.wait(&concerned, until) {
                return Err(busy(&pairs[0].source));
            }
        }
    }

    /// Makes the journals that new volumes are promised. No lock is held: to fill a journal takes long.
    fn make_journals(&self, begun: &Begun<'_>) -> Outcome<()> {
        let targets = begun.pairs.iter().map(|pair| &pair.target);
        let mut promised = targets.filter(|target| target.is_promised_journals());
        let made = promised.try_for_each(|target| self.journals.make_journals(target));
        made.inspect_err(|_| self.undo_snapshots(&begun.pairs))
    }

    /// Records a new volume durably as `creating`, and makes its files.
    fn prepare(&self, pair: &Pair, progress: Arc<SnapshotProgress>) -> Outcome<SnapshotSpec> {
        let Pair { source, target } = pair;
        let key = keys::volume(target.id);
        self.core
            .catalogue
            .commit(Transaction::default().compare(&key, Revision::ABSENT).put(&key, target)?)?;
        let mut targets = BTreeMap::new();
        for (drive, store) in self.core.stores_there(source) {
            let extents: Vec<ExtentIndex> = target.placement.extents_on(drive, target.size_bytes).collect();
            let can_share = self.can_share(pair, drive, &store);
            let begun = store.begin_snapshot(target.id, &extents)?;
            targets.insert(drive, Target { can_share, has_space: target.is_promised_journals(), ..begun });
        }
        Ok(SnapshotSpec { volume: source.id, targets, progress })
    }

    /// True if the files of a new volume on a drive can share extents with those of its source. A journal writes to
    /// files without reserving space first, so a file behind a journal shares nothing.
    fn can_share(&self, Pair { source, target }: &Pair, drive: DriveId, store: &Store) -> bool {
        let is_behind = target.is_promised_journals() || self.journals.is_behind_any(source, drive);
        !is_behind && store.look_whether_it_shares()
    }

    /// Refuses snapshots that do not fit. Filesystems that cannot share duplicate everything, and this must
    /// not fill a drive.
    fn refuse_without_space(&self, pairs: &[Pair]) -> Outcome<()> {
        let mut needed: BTreeMap<u64, (BTreeSet<VolumeId>, u64)> = BTreeMap::new();
        for pair in pairs {
            let source = &pair.source;
            for (drive, store) in self.core.stores_there(source) {
                if self.is_left_out(source, drive) || self.can_share(pair, drive, &store) {
                    continue;
                }
                let usage = store.usage()?;
                let (sources, bytes) = needed.entry(usage.filesystem).or_default();
                // The journals together hold this much at most, on whatever drives the replicas behind them are.
                let is_first = sources.insert(source.id);
                *bytes += store.used_bytes(source.id)?
                    + if is_first { self.journals.held_bytes(source) } else { 0 };
                if *bytes > usage.available_bytes {
                    return Err(self.refuse_full(drive, *bytes, usage.available_bytes));
                }
            }
        }
        Ok(())
    }

    /// True if the replicas of a volume on a drive are slow ones of a template: they are not in a snapshot, and are
    /// resynced later.
    fn is_left_out(&self, source: &VolumeRecord, drive: DriveId) -> bool {
        let has_slow_ones = source.template.is_some() && !source.is_promised_journals();
        has_slow_ones && self.journals.is_behind_any(source, drive)
    }

    fn refuse_full(&self, drive: DriveId, needed: u64, available: u64) -> ControlError {
        let name = self.core.model().drives.get(&drive).map(|drive| drive.record.name.to_string());
        ControlError::full(format!(
            "the files on drive '{}' cannot be shared: {} would have to be copied there, and {} are free",
            name.unwrap_or_default(),
            Size(needed),
            Size(available)
        ))
    }

    /// Gives up prepared snapshots.
    pub(crate) fn abandon(&self, begun: &Begun<'_>) {
        self.undo_snapshots(&begun.pairs);
    }

    /// Takes prepared snapshots and makes volumes of them. What is held is let go at their instant.
    ///
    /// `publish` records the volumes once all files are in place. It is called under the decision lock. If
    /// anything fails, nothing is left.
    pub(crate) fn finish_snapshots<T>(
        &self,
        begun: Begun<'_>,
        held: Option<Box<dyn Hold>>,
        publish: impl FnOnce(&mut Change<'_>, &[Pair]) -> Outcome<T>,
    ) -> Result<T, Unfinished> {
        let in_snapshot = self.snapshot_of(&begun.specs, held);
        let is_not_now = matches!(in_snapshot, Err(Unfinished::NotNow(_)));
        let in_snapshot = in_snapshot.map_err(ControlError::from);
        // This makes most data durable before the locks are taken, so that the final sync under locks is
        // short.
        let settled = in_snapshot.and_then(|in_snapshot| {
            begun.writes.values().try_for_each(WriteScope::make_durable)?;
            Ok(in_snapshot)
        });
        let begun_change = self.core.begin_volume_change(&begun.concerned);
        let mut change = begun_change.inspect_err(|_| self.undo_snapshots(&begun.pairs))?;
        let in_place =
            change.beside(|| settled.and_then(|in_snapshot| self.put_in_place(&begun, &in_snapshot)));
        let published = in_place.and_then(|pairs| {
            let published = publish(&mut change, &pairs)?;
            // Replicas that are not in the snapshot are added again.
            pairs.iter().for_each(|pair| self.moves.begin_moves(pair.target.id));
            Ok(published)
        });
        published.map_err(|error| {
            change.beside(|| self.undo_snapshots(&begun.pairs));
            if is_not_now { Unfinished::NotNow(error) } else { Unfinished::Failed(error) }
        })
    }

    /// Takes the snapshots. Returns the replicas of each volume and extent in it.
    fn snapshot_of(
        &self,
        specs: &[SnapshotSpec],
        mut held: Option<Box<dyn Hold>>,
    ) -> Result<Vec<Vec<Slots>>, Unfinished> {
        let (is_holding, mut was_held) = (held.is_some(), true);
        let mut let_go = || was_held = held.take().is_none_or(|held| held.thaw());
        let at_instant = is_holding.then_some(&mut let_go as &mut dyn FnMut());
        let in_snapshot = self.core.engine.snapshot(specs, at_instant).map_err(|error| {
            let is_not_now = matches!(error, EngineError::SnapshotNotNow(_));
            let error = ControlError::refused(error.to_string());
            if is_not_now { Unfinished::NotNow(error) } else { Unfinished::Failed(error) }
        })?;
        if !was_held {
            let message = "the filesystems on the volumes were not frozen for long enough: the snapshot began after the 10 s that \
                 they may be; try again, or without freezing";
            return Err(Unfinished::Failed(ControlError::refused(message)));
        }
        Ok(in_snapshot)
    }

    /// Reclaims the files that were made so far. Files that cannot be reclaimed now are reclaimed at the next
    /// start, because the catalogue has the records.
    ///
    /// No client knows these volumes. Another volume may have one of their names, and is not touched.
    fn undo_snapshots(&self, pairs: &[Pair]) {
        for Pair { target, .. } in pairs {
            let absent_journals = self.journals.absent_drives(target).into_iter().collect();
            let target = VolumeRecord { absent_journals, ..target.clone() };
            match self.core.mark_deleting(&target) {
                Ok(deleting) => self.extents.begin_reclaims(&deleting),
                Err(error) => {
                    tracing::error!(volume = %target.id, %error, "a snapshot that failed could not be undone yet");
                }
            }
        }
    }

    /// Opens a scope of writes on each drive of the source volumes, once per drive.
    fn begin_write_scopes(&self, pairs: &[Pair]) -> Outcome<BTreeMap<DriveId, WriteScope>> {
        let stores: BTreeMap<DriveId, Store> =
            pairs.iter().flat_map(|pair| self.core.stores_there(&pair.source)).collect();
        stores.into_iter().map(|(drive, store)| Ok((drive, store.begin_writes()?))).collect()
    }

    /// Completes the new volumes durably.
    fn put_in_place(&self, begun: &Begun<'_>, in_snapshot: &[Vec<Slots>]) -> Outcome<Vec<Pair>> {
        let complete = |(pair, in_snapshot): (&Pair, &Vec<Slots>)| self.complete_pair(pair, in_snapshot);
        let pairs: Vec<Pair> = begun.pairs.iter().zip(in_snapshot).map(complete).collect::<Outcome<_>>()?;
        let mut by_drive: BTreeMap<DriveId, (Store, Vec<VolumeId>)> = BTreeMap::new();
        for target in pairs.iter().map(|pair| &pair.target) {
            for (drive, store) in self.core.stores_of(target)? {
                by_drive.entry(drive).or_insert_with(|| (store, Vec::new())).1.push(target.id);
            }
        }
        for (drive, (store, volumes)) in &by_drive {
            let writes = begun.writes.get(drive).ok_or_else(|| came_late(*drive))?;
            store.adopt_snapshots(writes, volumes)?;
        }
        pairs.iter().zip(in_snapshot).try_for_each(|(pair, slots)| self.put_behind(&pair.target, slots))?;
        Ok(pairs)
    }

    /// Binds the replicas of a new volume to their journals, if its I/O profile promises some.
    fn put_behind(&self, target: &VolumeRecord, in_snapshot: &[Slots]) -> Outcome<()> {
        if !target.is_promised_journals() {
            return Ok(());
        }
        let has_replicas = target.placement.has_replicas();
        let metadata = |extent: ExtentIndex| has_replicas.then(|| metadata_of(in_snapshot[extent.index()]));
        self.journals.put_behind_journals(target, ExtentIndex::all_of(target.size_bytes), metadata)?;
        Ok(())
    }

    /// Completes the files of a new volume, with replica metadata. Replicas that are not in the snapshot are
    /// removed from its placement.
    fn complete_pair(&self, pair: &Pair, in_snapshot: &[Slots]) -> Outcome<Pair> {
        let mut target = pair.target.clone();
        let count = extent_count(target.size_bytes);
        let has_replicas = target.placement.has_replicas();
        for (extent, slots) in (0..).map(ExtentIndex).zip(in_snapshot) {
            let missed: Vec<usize> = target.placement.replicas_of(extent).map(|(slot, _)| slot).collect();
            for slot in missed.into_iter().filter(|slot| !slots.contains(*slot)) {
                target.placement.set(count, (extent, slot), None);
            }
        }
        if has_replicas {
            let end = u32::try_from(count).expect("a volume's size is bounded");
            let extents = ExtentIndex(0)..ExtentIndex(end);
            epoch_record::begin(&self.core.epoch_records(target.id), extents, FIRST_EPOCH_RECORD)?;
        }
        // No request goes to a drive that did not answer before.
        let unused: Vec<DriveId> = target
            .placement
            .drives()
            .into_iter()
            .filter(|drive| target.placement.forget(count, *drive))
            .collect();
        unused.into_iter().for_each(|drive| {
            self.extents.reclaims.give_back_part(target.id, drive, "a snapshot of", &target)
        });
        let record = self.core.record_backup(&target)?;
        for (drive, store) in self.core.stores_of(&target)? {
            let made = pair.target.placement.extents_on(drive, target.size_bytes);
            let (kept, missed): (Vec<ExtentIndex>, Vec<ExtentIndex>) =
                made.partition(|extent| is_on(&target, drive, *extent));
            let metadata = |extent: &ExtentIndex| (*extent, metadata_of(in_snapshot[extent.index()]));
            let all_metadata: Vec<(ExtentIndex, ReplicaMetadata)> =
                if has_replicas { kept.iter().map(metadata).collect() } else { Vec::new() };
            store.complete_snapshot(target.id, &missed, &all_metadata, &record.content)?;
        }
        Ok(Pair { source: pair.source.clone(), target })
    }
}
