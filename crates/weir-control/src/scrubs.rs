//! Scrubs of volumes: running scrubs, the result of each volume's last scrub, and alarms about damaged
//! blocks.
//!
//! The data plane scrubs. This module starts scrubs and records their results. A scrub does not continue
//! after a restart, but its checksums stay valid.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use weir_engine_interface::statistics::ChecksumCounters;
use weir_engine_interface::{ScrubEnd, ScrubProgress, ScrubSnapshot};
use weir_types::bounds::{BLOCK_BYTES, DAMAGED_BLOCKS_MAX};
use weir_types::{ExtentIndex, Name, VolumeId};
use weir_volume::mirror::Damaged;

use crate::alarms::{ActiveAlarm, AlarmSource};
use crate::catalogue::{Entry, Transaction};
use crate::core::Core;
use crate::engine::OpenVolume;
use crate::error::{ControlError, Outcome};
use crate::model::Model;
use crate::records::{VolumeRecord, keys};

/// How long a cancelled scrub is waited for: operations under way finish first.
const END_TIMEOUT: Duration = Duration::from_secs(10);
const END_PAUSE: Duration = Duration::from_millis(10);

/// Result of a volume's last scrub, as stored in the catalogue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct ScrubRecord {
    state: ScrubState,
    begun_at: Timestamp,
    ended_at: Timestamp,
    blocks_checked: u64,
    blocks_found: u64,
    blocks_repaired: u64,
    blocks_damaged: u64,
    extents_passed_over: u64,
}

/// State of a scrub.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScrubState {
    /// No scrub of the volume has ended yet.
    Never,
    /// It waits until other scrubs are done.
    Waiting,
    /// It runs as fast as its policy and the drives allow.
    Running,
    /// The whole volume was examined.
    Completed,
    /// An operator cancelled it.
    Cancelled,
    /// The volume shrank or was closed during the scrub.
    Interrupted,
}

impl ScrubState {
    /// True if the scrub has not ended.
    pub fn is_going_on(self) -> bool {
        matches!(self, ScrubState::Waiting | ScrubState::Running)
    }
}

/// The running scrub of a volume, or else its last one, and the state of the volume's data at rest.
#[derive(Clone, Debug)]
pub struct ScrubView {
    /// The volume.
    pub volume: VolumeId,
    /// Its tenant.
    pub tenant: Name,
    /// Its name.
    pub name: Name,
    /// State of the scrub.
    pub state: ScrubState,
    /// Time of the request.
    pub begun_at: Option<Timestamp>,
    /// Time of its end.
    pub ended_at: Option<Timestamp>,
    /// Counters of the scrub.
    pub counted: ScrubSnapshot,
    /// Checksums and damaged blocks of the volume, whether a scrub or a read found them.
    pub checksums: ChecksumCounters,
}

/// A running scrub.
#[derive(Clone, Debug)]
pub(crate) struct RunningScrub {
    pub(crate) begun_at: Timestamp,
    pub(crate) progress: Arc<ScrubProgress>,
}

/// At most one running and one ended scrub for each volume.
pub struct Scrubs {
    core: Arc<Core>,
    running: Mutex<BTreeMap<VolumeId, RunningScrub>>,
    ended: Mutex<BTreeMap<VolumeId, ScrubRecord>>,
}

impl Scrubs {
    pub(crate) fn new(core: Arc<Core>) -> Scrubs {
        Scrubs { core, running: Default::default(), ended: Default::default() }
    }
}

impl Scrubs {
    pub(crate) fn running(&self) -> MutexGuard<'_, BTreeMap<VolumeId, RunningScrub>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ended(&self) -> MutexGuard<'_, BTreeMap<VolumeId, ScrubRecord>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ScrubRecord {
    fn new(scrub: &RunningScrub, end: ScrubEnd) -> ScrubRecord {
        let counted = scrub.progress.counters();
        ScrubRecord {
            state: match end {
                ScrubEnd::Completed => ScrubState::Completed,
                ScrubEnd::Cancelled => ScrubState::Cancelled,
                ScrubEnd::Interrupted => ScrubState::Interrupted,
            },
            begun_at: scrub.begun_at,
            ended_at: Timestamp::now(),
            blocks_checked: counted.blocks_checked,
            blocks_found: counted.blocks_found,
            blocks_repaired: counted.blocks_repaired,
            blocks_damaged: counted.blocks_damaged,
            extents_passed_over: counted.extents_passed_over,
        }
    }

    fn counted(&self) -> ScrubSnapshot {
        ScrubSnapshot {
            blocks_checked: self.blocks_checked,
            blocks_found: self.blocks_found,
            blocks_repaired: self.blocks_repaired,
            blocks_damaged: self.blocks_damaged,
            extents_passed_over: self.extents_passed_over,
            ..ScrubSnapshot::default()
        }
    }
}

impl ScrubView {
    fn never(volume: &VolumeRecord, checksums: ChecksumCounters) -> ScrubView {
        ScrubView {
            volume: volume.id,
            tenant: volume.tenant.clone(),
            name: volume.name.clone(),
            state: ScrubState::Never,
            begun_at: None,
            ended_at: None,
            counted: ScrubSnapshot::default(),
            checksums,
        }
    }

    fn of(volume: &VolumeRecord, scrubs: &Scrubs, checksums: ChecksumCounters) -> ScrubView {
        let view = ScrubView::never(volume, checksums);
        if let Some(RunningScrub { begun_at, progress }) = scrubs.running().get(&volume.id).cloned() {
            let counted = progress.counters();
            let state = if counted.elapsed_ns.is_some() { ScrubState::Running } else { ScrubState::Waiting };
            return ScrubView { state, begun_at: Some(begun_at), counted, ..view };
        }
        let Some(record) = scrubs.ended().get(&volume.id).copied() else { return view };
        let (begun_at, ended_at) = (Some(record.begun_at), Some(record.ended_at));
        ScrubView { state: record.state, begun_at, ended_at, counted: record.counted(), ..view }
    }
}

fn checksums_of(model: &Model, volume: &VolumeRecord) -> ChecksumCounters {
    model.open.get(&volume.id).map(|open| open.statistics().checksums.counters()).unwrap_or_default()
}

/// Offset of a block of an extent in its volume, in bytes.
pub fn offset_of(extent: ExtentIndex, block: u32) -> u64 {
    extent.start_bytes() + u64::from(block) * BLOCK_BYTES
}

/// Alarm text about damaged blocks of an extent.
fn damage_words(extent: ExtentIndex, damaged: &[Damaged]) -> String {
    let (rotten, undecided): (Vec<_>, Vec<_>) =
        damaged.iter().partition(|damaged| damaged.expected.is_some());
    let counted = |blocks: &[&Damaged]| {
        let (least, first) =
            (if damaged.len() >= DAMAGED_BLOCKS_MAX { "at least " } else { "" }, blocks.first()?);
        let (count, offset) = (blocks.len(), offset_of(extent, first.block));
        let blocks = if count == 1 { "block" } else { "blocks" };
        Some(format!(
            "{least}{count} {blocks} of {BLOCK_BYTES} bytes, the first at offset {offset} of the volume"
        ))
    };
    let rotten = counted(&rotten).map(|blocks| format!("no replica has what was written in {blocks}"));
    let undecided = counted(&undecided)
        .map(|blocks| format!("replicas differ in {blocks}, and nobody can tell which is right"));
    let all: Vec<_> = rotten.into_iter().chain(undecided).collect();
    format!("{}; it is left as it is until it is overwritten", all.join("; "))
}

impl Scrubs {
    /// Loads the results of scrubs of existing volumes.
    pub(crate) fn load_scrubs(&self) -> Outcome<()> {
        for entry in self.core.catalogue.range(keys::SCRUBS)? {
            let id = entry.key.strip_prefix(keys::SCRUBS).and_then(|id| id.parse().ok()).map(VolumeId);
            match id.filter(|id| self.core.model().volumes.contains_key(id)) {
                Some(id) => _ = self.ended().insert(id, Entry::decode(&entry)?),
                None => _ = self.core.catalogue.commit(Transaction::freeing_space().delete(entry.key))?,
            }
        }
        Ok(())
    }

    /// Starts to scrub a volume in the background. A running scrub continues.
    ///
    /// # Errors
    /// Not found for an unknown volume, refused for one that is not served.
    pub fn begin_scrub(&self, tenant: Option<&Name>, name: &Name) -> Outcome<ScrubView> {
        self.settle_scrubs();
        let _change = self.core.begin_change_of_volume(tenant, name)?;
        let record = self.core.model().volume(tenant, name)?.record.clone();
        if !self.running().contains_key(&record.id) {
            let scrub = RunningScrub { begun_at: Timestamp::now(), progress: Arc::default() };
            let progress = Arc::clone(&scrub.progress);
            if self.core.engine.scrub(record.id, progress)? {
                tracing::info!(volume = %record.id, name = %record.name, "it is scrubbed");
                self.running().insert(record.id, scrub);
            } else {
                return Err(ControlError::refused(format!(
                    "volume '{name}' cannot be scrubbed now: it is about to be closed"
                )));
            }
        }
        Ok(self.view_of_scrub(&record))
    }

    /// Cancels the scrub of a volume, if there is one. Its findings, repairs and checksums stay.
    ///
    /// # Errors
    /// Not found for an unknown volume.
    pub fn cancel_scrub(&self, tenant: Option<&Name>, name: &Name) -> Outcome<ScrubView> {
        let record = self.core.model().volume(tenant, name)?.record.clone();
        let running = self.running().get(&record.id).cloned();
        if let Some(scrub) = running {
            self.core.engine.end_scrub(record.id)?;
            let deadline = Instant::now() + END_TIMEOUT;
            while scrub.progress.end().is_none() && Instant::now() < deadline {
                std::thread::sleep(END_PAUSE);
            }
            self.settle_scrubs();
        }
        Ok(self.view_of_scrub(&record))
    }

    /// The current or last scrub of a volume.
    ///
    /// # Errors
    /// Not found for an unknown tenant or volume.
    pub fn scrub(&self, tenant: Option<&Name>, name: &Name) -> Outcome<ScrubView> {
        let record = self.core.model().volume(tenant, name)?.record.clone();
        Ok(self.view_of_scrub(&record))
    }

    /// The scrubs of all volumes, or those of one tenant, by tenant and name.
    ///
    /// # Errors
    /// Not found for an unknown tenant.
    pub fn scrubs(&self, tenant: Option<&Name>) -> Outcome<Vec<ScrubView>> {
        let model = self.core.model();
        tenant.map(|tenant| model.tenant(Some(tenant)).map(|_| ())).transpose()?;
        let own = model.plain_volumes().filter(|volume| tenant.is_none_or(|tenant| volume.tenant == *tenant));
        let view = |volume| ScrubView::of(volume, self, checksums_of(&model, volume));
        let mut views: Vec<_> = own.map(view).collect();
        views.sort_by(|a, b| (&a.tenant, &a.name).cmp(&(&b.tenant, &b.name)));
        Ok(views)
    }

    fn view_of_scrub(&self, volume: &VolumeRecord) -> ScrubView {
        let rest = checksums_of(&self.core.model(), volume);
        ScrubView::of(volume, self, rest)
    }

    /// The scrub of a volume; `None` if it was never scrubbed and nothing is known of its data at rest.
    pub(crate) fn scrub_of(&self, volume: &VolumeRecord) -> Option<ScrubView> {
        let view = self.view_of_scrub(volume);
        let is_known = view.state != ScrubState::Never || !view.checksums.damaged.is_empty();
        (is_known || view.checksums.checksummed_bytes > 0).then_some(view)
    }

    /// Forgets the scrubs of a deleted volume.
    pub(crate) fn forget_scrub(&self, volume: VolumeId) {
        self.running().remove(&volume);
        if self.ended().remove(&volume).is_some()
            && let Err(error) =
                self.core.catalogue.commit(Transaction::freeing_space().delete(keys::scrub(volume)))
        {
            tracing::warn!(%volume, %error, "how its last scrub ended stays until the next start");
        }
    }

    /// Records the scrubs that have ended.
    pub fn settle_scrubs(&self) {
        let all: Vec<_> = self.running().iter().map(|(id, scrub)| (*id, scrub.clone())).collect();
        for (id, scrub) in all {
            if let Some(end) = scrub.progress.end() {
                self.note_scrub(id, &scrub, end);
            }
        }
    }

    fn note_scrub(&self, id: VolumeId, scrub: &RunningScrub, end: ScrubEnd) {
        let _change = self.core.begin_change();
        // Another thread recorded it in the meantime, or the volume was deleted.
        let is_other = |known: &RunningScrub| !Arc::ptr_eq(&known.progress, &scrub.progress);
        if self.running().get(&id).is_none_or(is_other) || !self.core.model().volumes.contains_key(&id) {
            return;
        }
        let record = ScrubRecord::new(scrub, end);
        let noted = Transaction::default().put(keys::scrub(id), &record);
        if let Err(error) = noted.and_then(|transaction| self.core.catalogue.commit(transaction)) {
            return tracing::warn!(volume = %id, %error, "how a scrub ended cannot be noted yet");
        }
        let ScrubRecord { state, blocks_checked, blocks_found, blocks_repaired, blocks_damaged, .. } = record;
        tracing::info!(
            volume = %id, ?state, blocks_checked, blocks_found, blocks_repaired, blocks_damaged, "a scrub ended"
        );
        self.ended().insert(id, record);
        self.running().remove(&id);
    }

    /// One alarm for each extent that has blocks without a replica known to be correct. It stays until the
    /// blocks are overwritten.
    pub(crate) fn scrub_alarms(&self) -> Vec<ActiveAlarm> {
        let model = self.core.model();
        let of_volume = |(id, open): (&VolumeId, &OpenVolume)| {
            let id = *id;
            let alarm = move |(extent, damaged): (ExtentIndex, Vec<Damaged>)| ActiveAlarm {
                source: AlarmSource::Scrub,
                drive: None,
                volume: Some(id),
                extent: Some(extent),
                message: damage_words(extent, &damaged),
            };
            open.damaged().into_iter().map(alarm)
        };
        model.open.iter().flat_map(of_volume).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_alarm_names_offset_and_both_kinds() {
        let rotten = |block| Damaged { block, expected: Some(1) };
        let one = damage_words(ExtentIndex(1), &[rotten(2)]);
        assert_eq!(
            one,
            "no replica has what was written in 1 block of 4096 bytes, the first at offset 1073750016 of the volume; it \
             is left as it is until it is overwritten"
        );
        let both =
            damage_words(ExtentIndex(0), &[rotten(1), rotten(2), Damaged { block: 3, expected: None }]);
        assert!(
            both.contains("written in 2 blocks") && both.contains("replicas differ in 1 block"),
            "{both}"
        );
        let many: Vec<_> = (0..DAMAGED_BLOCKS_MAX as u32).map(rotten).collect();
        assert!(damage_words(ExtentIndex(0), &many).contains("at least 256 blocks"));
    }
}
