//! Snapshots, also of several volumes at one instant.
//!
//! [`DataPlane::quiesce_all`] quiesces all of the volumes, so that no write begins. Only when all are quiesced does
//! the snapshot of any of them begin. Writes that have begun are in it, and those that wait are not. A
//! snapshot of one volume quiesces nothing, unless its filesystem is frozen.

use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use weir_engine_interface::{EngineError, SnapshotSpec};
use weir_types::VolumeId;
use weir_volume::mirror::Slots;

use super::DataPlane;
use crate::volumes::command::VolumeCommand;
use crate::volumes::snapshot::{NewSnapshot, NoSnapshot, Outcome, QUIESCE_NS_MAX};

/// How often volumes are quiesced before a snapshot of them is refused.
const QUIESCE_ATTEMPTS: usize = 10;
/// Pause between two attempts, in which writes go on.
const QUIESCE_PAUSE: Duration = Duration::from_nanos(QUIESCE_NS_MAX);
/// Longest time until all volumes are quiesced. The rest of [`QUIESCE_NS_MAX`] is left for the snapshots to
/// begin.
const QUIESCE_BEGIN_MAX: Duration = Duration::from_nanos(QUIESCE_NS_MAX / 2);

/// The outcome of a volume's snapshot, once there is one.
type Awaited = (VolumeId, Receiver<Outcome>);

/// Waits until all snapshots are complete.
fn wait_for_all(answers: Vec<Awaited>) -> Result<Vec<Vec<Slots>>, EngineError> {
    let outcome = |(volume, answer): Awaited| {
        let outcome = answer.recv().map_err(|_| EngineError::Stopped(volume))?;
        outcome.map_err(|why| match why {
            NoSnapshot::NotNow => EngineError::SnapshotNotNow(volume),
            NoSnapshot::Abandoned(reason) => EngineError::SnapshotRefused { volume, reason },
        })
    };
    answers.into_iter().map(outcome).collect()
}

impl DataPlane {
    /// Takes a snapshot of volumes, all at the same instant, while clients write to them. Returns when the
    /// snapshot is complete, for each volume and extent, the replicas in it. All of them are identical, and
    /// not durable yet. The caller adds and removes no replicas until then. Writes wait at most 50 ms at a time
    /// for all volumes to begin.
    ///
    /// `at_instant` is called once the instant is fixed: what is written from then on is not in the snapshot. The
    /// snapshot may still fail after that.
    ///
    /// # Errors
    /// If a volume is not open or cannot be in a snapshot now. Then no snapshot stays in progress.
    pub fn snapshot(
        &self,
        specs: &[SnapshotSpec],
        at_instant: Option<&mut dyn FnMut()>,
    ) -> Result<Vec<Vec<Slots>>, EngineError> {
        // The instant of one volume matters to nobody, unless a filesystem is frozen for it.
        let is_quiesced = specs.len() > 1 || at_instant.is_some();
        let begun = if is_quiesced { self.quiesce_all(specs) } else { Ok(()) };
        let asked = begun.and_then(|()| self.begin_all(specs, is_quiesced));
        // Every volume is quiesced until its snapshot has begun.
        if asked.is_ok()
            && let Some(at_instant) = at_instant
        {
            at_instant();
        }
        let outcome = asked.and_then(wait_for_all);
        if outcome.is_err() {
            specs.iter().for_each(|spec| self.abandon_snapshot(spec.volume));
        }
        outcome
    }

    /// Abandons the snapshot of a volume, if one is in progress.
    pub fn abandon_snapshot(&self, volume: VolumeId) {
        // A volume that is not open has no snapshot in progress.
        let _ = self.send(volume, VolumeCommand::AbandonSnapshot);
    }

    /// Quiesces all volumes at once. A busy host runs their reactors one after the other and perhaps too late,
    /// so it is tried again.
    fn quiesce_all(&self, specs: &[SnapshotSpec]) -> Result<(), EngineError> {
        for _ in 1..QUIESCE_ATTEMPTS {
            match self.quiesce(specs) {
                Err(EngineError::SnapshotNotNow(_)) => {
                    specs.iter().for_each(|spec| self.abandon_snapshot(spec.volume));
                    thread::sleep(QUIESCE_PAUSE);
                }
                outcome => return outcome,
            }
        }
        self.quiesce(specs)
    }

    fn quiesce(&self, specs: &[SnapshotSpec]) -> Result<(), EngineError> {
        let begun = Instant::now();
        let ask = |spec: &SnapshotSpec| {
            let (done, answer) = sync_channel(1);
            self.send(spec.volume, VolumeCommand::Quiesce { done })?;
            Ok((spec.volume, answer))
        };
        let answers: Vec<(VolumeId, Receiver<bool>)> =
            specs.iter().map(ask).collect::<Result<_, EngineError>>()?;
        let is_quiesced = |(volume, answer): (VolumeId, Receiver<bool>)| {
            let left = QUIESCE_BEGIN_MAX.saturating_sub(begun.elapsed());
            let is_quiesced = answer.recv_timeout(left).unwrap_or(false);
            if is_quiesced { Ok(()) } else { Err(EngineError::SnapshotNotNow(volume)) }
        };
        answers.into_iter().try_for_each(is_quiesced)
    }

    /// Begins the snapshot of each volume.
    fn begin_all(&self, specs: &[SnapshotSpec], is_quiesced: bool) -> Result<Vec<Awaited>, EngineError> {
        let ask = |spec: &SnapshotSpec| {
            let (done, answer) = sync_channel(1);
            let snapshot = Box::new(NewSnapshot { spec: spec.clone(), is_quiesced, done });
            self.send(spec.volume, VolumeCommand::Snapshot(snapshot))?;
            Ok((spec.volume, answer))
        };
        specs.iter().map(ask).collect()
    }
}
