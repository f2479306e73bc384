//! Record backups: the volumes' records beside their extents, written after the catalogue by one thread per
//! drive.
//!
//! A change is done once the catalogue has it. A backup that cannot be written, because the drive is full or
//! does not answer, is an alarm and not an error. The backup stays due and is retried until it is written.
//! Its content is the catalogue's at the time of the write, so backups never go back. A drive that hangs
//! costs one thread.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use weir_store::RecordUpdate;
use weir_store::format::MINIMUM_READER;
use weir_types::{DriveId, VolumeId};

use crate::alarms::{ActiveAlarm, AlarmSource};
use crate::core::Core;
use crate::error::{ControlError, Outcome};
use crate::model::Model;
use crate::model::built_in::is_built_in;
use crate::records::{BACKUP_FORMAT, PolicyGroupRecord, RecordBackup, VolumeRecord};

/// How long a finished change waits for the backups of its records before it is answered without them.
const ANSWER_WAIT: Duration = Duration::from_secs(1);
/// Maximum time of a write of backups before the drive is reported as not answering.
const OVERDUE: Duration = Duration::from_secs(5);
/// Pause before a failed write of backups is repeated.
const RETRY_PAUSE: Duration = Duration::from_secs(2);

/// Due backups, by drive.
#[derive(Default)]
pub(crate) struct RecordBackups {
    drives: Mutex<BTreeMap<DriveId, Queue>>,
    settled: Condvar,
}

/// The backups on one drive.
#[derive(Default)]
pub(crate) struct Queue {
    /// Volumes whose backups are out of date.
    due: BTreeSet<VolumeId>,
    /// Number of the latest request.
    asked: u64,
    /// Number of the latest request that succeeded or failed; all earlier ones are settled too.
    settled: u64,
    /// Start of the current write, while the drive's thread runs.
    writing_since: Option<Instant>,
    fault: Option<Fault>,
}

/// Why backups on a drive are out of date.
struct Fault {
    message: String,
    volumes: usize,
    retry_at: Instant,
}

/// Requests that a change waits for: the latest one at each drive.
#[derive(Debug, Default)]
pub(crate) struct Tickets(BTreeMap<DriveId, u64>);

impl RecordBackups {
    fn drives(&self) -> MutexGuard<'_, BTreeMap<DriveId, Queue>> {
        self.drives.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests backups of volumes' records on a drive. Returns the number of the request, and true if a
    /// thread must be started.
    fn ask(&self, drive: DriveId, volumes: BTreeSet<VolumeId>) -> (u64, bool) {
        let mut drives = self.drives();
        let queue = drives.entry(drive).or_default();
        queue.due.extend(volumes);
        queue.asked += 1;
        (queue.asked, queue.start())
    }

    /// Waits a bounded time until the requests are settled.
    pub fn wait(&self, tickets: &Tickets) {
        if tickets.0.is_empty() {
            return;
        }
        let is_open = |drives: &mut BTreeMap<DriveId, Queue>| {
            let is_open = |queue: &Queue, ticket: u64| queue.settled < ticket && !queue.is_overdue();
            tickets.0.iter().any(|(id, ticket)| drives.get(id).is_some_and(|queue| is_open(queue, *ticket)))
        };
        // An alarm reports backups that are late.
        let _ = self.settled.wait_timeout_while(self.drives(), ANSWER_WAIT, is_open);
    }

    /// The next volumes for a drive's thread; `None` ends the thread.
    fn next(&self, drive: DriveId) -> Option<(BTreeSet<VolumeId>, u64)> {
        let mut drives = self.drives();
        let queue = drives.get_mut(&drive)?;
        if queue.settled == queue.asked {
            queue.writing_since = None;
            return None;
        }
        queue.writing_since = Some(Instant::now());
        Some((queue.due.clone(), queue.asked))
    }

    /// Stores the result of a write.
    fn note(
        &self,
        drive: DriveId,
        tried: &BTreeSet<VolumeId>,
        ticket: u64,
        failure: Option<(String, usize)>,
    ) {
        let mut drives = self.drives();
        let queue = drives.entry(drive).or_default();
        queue.settled = ticket;
        match failure {
            None => {
                queue.due.retain(|volume| !tried.contains(volume) || queue.asked > ticket);
                if queue.fault.take().is_some() {
                    tracing::info!(%drive, "the backups of records on the drive are up to date again");
                }
            }
            Some((message, volumes)) => {
                if queue.fault.is_none() {
                    tracing::error!(%drive, volumes, "backups of records cannot be written: {message}");
                }
                let retry_at = Instant::now() + RETRY_PAUSE;
                queue.fault = Some(Fault { message, volumes, retry_at });
            }
        }
        self.settled.notify_all();
    }

    /// Drives where backups are due for a retry.
    fn retries(&self) -> Vec<DriveId> {
        let mut drives = self.drives();
        let is_due =
            |queue: &Queue| queue.fault.as_ref().is_some_and(|fault| fault.retry_at <= Instant::now());
        let due = drives.iter_mut().filter(|(_, queue)| queue.writing_since.is_none() && is_due(queue));
        let again = due.map(|(drive, queue)| {
            queue.asked += 1;
            queue.start();
            *drive
        });
        again.collect()
    }

    /// Forgets a drive that was removed.
    pub fn forget(&self, drive: DriveId) {
        self.drives().remove(&drive);
    }
}

impl Queue {
    /// Marks the queue as being written. Returns true if a thread must be started.
    fn start(&mut self) -> bool {
        let is_idle = self.writing_since.is_none();
        self.writing_since.get_or_insert_with(Instant::now);
        is_idle
    }

    fn is_overdue(&self) -> bool {
        self.writing_since.is_some_and(|since| since.elapsed() > OVERDUE)
    }

    /// The text of the alarm, if backups on the drive are out of date.
    fn trouble(&self, drive: &str) -> Option<String> {
        let since = self.writing_since.filter(|_| self.is_overdue());
        if let Some(since) = since {
            let (count, seconds) = (self.due.len(), since.elapsed().as_secs());
            return Some(format!(
                "the backups of {count} volume records on drive '{drive}' are out of date: the drive has not answered for \
                 {seconds} s; the catalogue has the changes, and the backups are written once it answers"
            ));
        }
        let fault = self.fault.as_ref()?;
        let (count, message) = (fault.volumes, &fault.message);
        Some(format!(
            "the backups of {count} volume records on drive '{drive}' are out of date: {message}; the catalogue has the \
             changes, and the backups are written once that is possible"
        ))
    }
}

fn record_backup(model: &Model, volume: &VolumeRecord) -> Outcome<RecordUpdate> {
    let is_bound = |group: &&PolicyGroupRecord| Some(group.id) == volume.policy_group;
    let backup = RecordBackup {
        format: BACKUP_FORMAT,
        minimum_reader: MINIMUM_READER,
        volume: volume.clone(),
        tenant: model.tenant(Some(&volume.tenant))?.record.clone(),
        policy_group: model.policy_of(volume).filter(|group| !is_built_in(group.id)).cloned(),
        other_groups: model.groups_of(volume).into_iter().skip_while(is_bound).cloned().collect(),
        template: model.template_to_back_up(volume).cloned(),
    };
    let content = serde_json::to_vec_pretty(&backup).map_err(|error| {
        ControlError::internal(format!("cannot write the record as JSON: {error}")).caused_by(error)
    })?;
    Ok(RecordUpdate { volume: volume.id, content })
}

/// Writes backups on a drive until no request is left, or the daemon ends.
fn write_until_done(control: &Weak<Core>, drive: DriveId) {
    while let Some(control) = control.upgrade() {
        let Some((volumes, ticket)) = control.record_backups.next(drive) else { return };
        let write = || control.update_record_backups(drive, &volumes);
        let failure = catch_unwind(AssertUnwindSafe(write))
            .unwrap_or_else(|_| Some(("the write failed; the log tells why".to_owned(), volumes.len())));
        control.record_backups.note(drive, &volumes, ticket, failure);
    }
}

impl Core {
    /// Requests backups of volumes' records on all present drives of these volumes. The change waits for them
    /// when it ends.
    ///
    /// A missing drive gets its backups when it is back.
    pub(crate) fn write_record_backups<'a>(
        &self,
        tickets: &mut Tickets,
        volumes: impl IntoIterator<Item = &'a VolumeRecord>,
    ) {
        let mut by_drive: BTreeMap<DriveId, BTreeSet<VolumeId>> = BTreeMap::new();
        for volume in volumes {
            for drive in volume.placement.drives() {
                by_drive.entry(drive).or_default().insert(volume.id);
            }
        }
        let model = self.model();
        for (drive, volumes) in by_drive.into_iter().filter(|(drive, _)| model.is_there(*drive)) {
            let (ticket, is_idle) = self.record_backups.ask(drive, volumes);
            tickets.0.insert(drive, ticket);
            if is_idle {
                self.start_copier(drive);
            }
        }
    }

    /// Retries failed writes of record backups.
    pub fn retry_record_backups(&self) {
        self.record_backups.retries().into_iter().for_each(|drive| self.start_copier(drive));
    }

    fn start_copier(&self, drive: DriveId) {
        let control = self.myself.clone();
        let write = move || write_until_done(&control, drive);
        let started = std::thread::Builder::new().name("weir-backups".to_owned()).spawn(write);
        if let Err(error) = started {
            let mut drives = self.record_backups.drives();
            let queue = drives.entry(drive).or_default();
            let (message, volumes) = (format!("no thread can be started: {error}"), queue.due.len());
            (queue.writing_since, queue.settled) = (None, queue.asked);
            queue.fault = Some(Fault { message, volumes, retry_at: Instant::now() + RETRY_PAUSE });
        }
    }

    /// Writes the outdated backups among these volumes. On failure, returns the message and the number of
    /// backups.
    fn update_record_backups(&self, drive: DriveId, volumes: &BTreeSet<VolumeId>) -> Option<(String, usize)> {
        let Ok(store) = self.store(drive) else { return None };
        let outdated = || -> Outcome<Vec<RecordUpdate>> {
            let model = self.model();
            let all = volumes.iter().filter_map(|id| Some(&model.volumes.get(id)?.record));
            // A volume that is being created or moved there gets its backup with its files.
            let here = all.filter(|volume| volume.placement.names(drive) && store.folder(volume.id).exists());
            let backups = here.map(|volume| record_backup(&model, volume));
            let is_other = |backup: &Outcome<RecordUpdate>| {
                let is_same = |backup: &RecordUpdate| {
                    store.read_record(backup.volume).is_ok_and(|old| old.as_ref() == Some(&backup.content))
                };
                !backup.as_ref().is_ok_and(is_same)
            };
            backups.filter(is_other).collect()
        };
        match outdated() {
            Ok(backups) => {
                let failure = store.write_records(&backups).err();
                failure.map(|error| (error.to_string(), backups.len()))
            }
            Err(error) => Some((error.message, volumes.len())),
        }
    }

    /// The backup of a volume's record as it should lie beside its extents.
    pub(crate) fn record_backup(&self, volume: &VolumeRecord) -> Outcome<RecordUpdate> {
        record_backup(&self.model(), volume)
    }

    /// One alarm for each drive with outdated record backups, and one if the list of drives has no current
    /// backup.
    pub(crate) fn record_backup_alarms(&self) -> Vec<ActiveAlarm> {
        let model = self.model();
        let drives = self.record_backups.drives();
        let alarm = |(id, queue): (&DriveId, &Queue)| {
            let message = queue.trouble(model.drives.get(id)?.record.name.as_str())?;
            Some(ActiveAlarm {
                source: AlarmSource::Control,
                drive: Some(*id),
                volume: None,
                extent: None,
                message,
            })
        };
        drives.iter().filter_map(alarm).collect()
    }
}
