//! Recording the requests to volumes, with the volumes' policies and drives.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_engine_interface::Recording;
use weir_replay::trace::{self, Header, RECORD_BYTES, Trace, TraceDrive, TraceLevel, TraceVolume};
use weir_types::control_bounds::{RECORDING_SECONDS_MAX, RECORDING_VOLUMES_MAX, TRACE_BYTES_MAX};
use weir_types::{DriveId, Name, VolumeId};

use crate::core::Core;
use crate::engine::Engine;
use crate::error::{ControlError, Outcome};
use crate::figures::Figures;
use crate::model::Model;
use crate::records::VolumeRecord;

/// Settings of a recording.
#[derive(Clone, Debug)]
pub struct RecordVolumes {
    /// The volumes, each with its tenant if one was named.
    pub volumes: Vec<(Option<Name>, Name)>,
    /// Length of the recording in seconds.
    pub seconds: u32,
    /// Maximum size of the trace in bytes.
    pub bytes_max: u64,
}

/// A recording under way. It ends when this value is dropped.
pub struct RunningRecording {
    recording: Arc<Recording>,
    engine: Arc<dyn Engine>,
    volumes: Vec<VolumeId>,
    /// The drives of the header.
    drives: Vec<DriveId>,
    header: Header,
}

impl RunningRecording {
    /// True once the trace has no space left.
    pub fn is_full(&self) -> bool {
        self.recording.is_full()
    }

    /// Ends the recording and returns the encoded trace.
    ///
    /// # Errors
    /// If the policies of the volumes are too long for the trace.
    pub fn finish(mut self) -> Outcome<Vec<u8>> {
        self.engine.stop_recording(&self.volumes);
        let records = self.recording.take();
        let mut header = std::mem::take(&mut self.header);
        for (drive, id) in header.drives.iter_mut().zip(&self.drives) {
            drive.in_flight = self.engine.depth(*id).map(|depth| depth.operations);
        }
        if self.recording.is_full() {
            header.is_cut_short = true;
            header.duration_ns = records.iter().map(trace::Record::answered_ns).max().unwrap_or(0);
        }
        trace::encode(&Trace { header, records }).map_err(ControlError::refused)
    }
}

impl Drop for RunningRecording {
    fn drop(&mut self) {
        self.engine.stop_recording(&self.volumes);
    }
}

impl RecordVolumes {
    fn check(&self) -> Outcome<()> {
        if !(1..=RECORDING_VOLUMES_MAX).contains(&self.volumes.len()) {
            let count = self.volumes.len();
            return Err(ControlError::invalid(format!(
                "{count} volumes cannot be recorded; 1 to {RECORDING_VOLUMES_MAX} are accepted"
            )));
        }
        if !(1..=RECORDING_SECONDS_MAX).contains(&self.seconds) {
            return Err(ControlError::invalid(format!(
                "{} s cannot be recorded; 1 to {RECORDING_SECONDS_MAX} s are accepted",
                self.seconds
            )));
        }
        Ok(())
    }

    /// The number of requests that fit behind a header.
    fn records_max(&self, header: &Header) -> Outcome<u64> {
        let before = trace::header_bytes(header).map_err(ControlError::refused)?;
        let least = before + RECORD_BYTES as u64;
        if !(least..=TRACE_BYTES_MAX).contains(&self.bytes_max) {
            return Err(ControlError::invalid(format!(
                "a trace of these volumes of up to {} bytes cannot be made; {least} to {TRACE_BYTES_MAX} are accepted",
                self.bytes_max
            )));
        }
        Ok((self.bytes_max - before) / RECORD_BYTES as u64)
    }
}

/// The header of a trace of these volumes, with each drive once.
fn describe(model: &Model, volumes: &[(VolumeRecord, u64)], seconds: u32) -> Header {
    let mut header = Header { duration_ns: u64::from(seconds) * 1_000_000_000, ..Header::default() };
    let mut drives: BTreeMap<DriveId, usize> = BTreeMap::new();
    for (volume, used_bytes) in volumes {
        // The trace has one drive for a volume: the first of several.
        let Some(drive) = model.drives_of(volume).next() else { continue };
        let index = *drives.entry(drive.id).or_insert_with(|| {
            header.drives.push(TraceDrive {
                name: drive.name.clone(),
                emulation: drive.emulation,
                in_flight: None,
            });
            header.drives.len() - 1
        });
        header.volumes.push(TraceVolume {
            tenant: volume.tenant.clone(),
            name: volume.name.clone(),
            size_bytes: volume.size_bytes,
            used_bytes: *used_bytes,
            drive: index,
            levels: trace_levels(model, volume, *used_bytes),
        });
    }
    header
}

/// The levels of a volume as the data plane has them.
pub(crate) fn trace_levels(model: &Model, volume: &VolumeRecord, used_bytes: u64) -> Vec<TraceLevel> {
    let levels = model.levels(volume, used_bytes);
    let names: Vec<Name> = levels.iter().map(|level| level.name.clone()).collect();
    let path = crate::model::levels::path(volume, levels);
    // If the path is longer than the levels, it starts with the tenant.
    let tenant = (path.len() > names.len()).then(|| volume.tenant.clone());
    let names = tenant.into_iter().chain(names);
    path.into_iter()
        .zip(names)
        .map(|(level, name)| TraceLevel { scope: level.scope, name, terms: level.terms })
        .collect()
}

/// Starts recordings.
pub struct Recordings {
    pub(crate) core: Arc<Core>,
    pub(crate) figures: Arc<Figures>,
}

impl Recordings {
    /// Starts to record volumes; one recording runs at a time.
    ///
    /// # Errors
    /// If a value is not accepted, a volume is unknown or not served, or another recording runs.
    pub fn start_recording(&self, request: &RecordVolumes) -> Outcome<RunningRecording> {
        request.check()?;
        let volumes = self.volumes_to_record(request)?;
        let _change = self.core.begin_change();
        let header = describe(&self.core.model(), &volumes, request.seconds);
        let ids: Vec<VolumeId> = volumes.iter().map(|(volume, _)| volume.id).collect();
        let records_max = request.records_max(&header)?;
        let recording = self.core.engine.start_recording(&ids, header.duration_ns, records_max);
        let recording = recording.map_err(|error| ControlError::refused(error.to_string()))?;
        let engine = Arc::clone(&self.core.engine);
        let mut drives: Vec<DriveId> = Vec::new();
        for (volume, _) in &volumes {
            let drive = volume.placement.holders(volume.size_bytes)[0];
            if !drives.contains(&drive) {
                drives.push(drive);
            }
        }
        Ok(RunningRecording { recording, engine, volumes: ids, drives, header })
    }

    fn volumes_to_record(&self, request: &RecordVolumes) -> Outcome<Vec<(VolumeRecord, u64)>> {
        let mut volumes: Vec<(VolumeRecord, u64)> = Vec::new();
        for (tenant, name) in &request.volumes {
            let volume = self.core.model().volume(tenant.as_ref(), name)?.record.clone();
            if !self.core.model().open.contains_key(&volume.id) {
                return Err(ControlError::refused(format!("volume '{name}' is not served")));
            }
            if volumes.iter().any(|(known, _)| known.id == volume.id) {
                return Err(ControlError::invalid(format!("volume '{name}' is named twice")));
            }
            let used_bytes = self.figures.used_bytes(&volume).unwrap_or(0);
            volumes.push((volume, used_bytes));
        }
        Ok(volumes)
    }
}
