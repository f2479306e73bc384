//! Dry run: predicting the throughput and waiting times of each volume under given policies.
//!
//! The scheduler that serves requests runs a recorded or made-up load in virtual time. The dry run needs no
//! daemon and changes nothing. `docs/reference/dry-run.md` states its assumptions. A client waits for its replies as it did in
//! the recording. A drive that is not emulated takes as long as it took in the recording.

mod figures;
pub mod spec;
mod stage;
#[cfg(test)]
mod tests;

use crate::replay::{MadeUp, Recorded, invent, replay};
use crate::world::{Demand, Work};
use serde::Serialize;

use crate::trace::{Header, Record, Trace};
use figures::Tally;
pub use figures::{BoundBy, Figures};
use spec::Spec;
use stage::Scene;

/// Nanoseconds of a second.
const SECOND_NS: f64 = 1e9;

/// The prediction of a dry run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Prediction {
    /// Simulated time, in seconds.
    pub seconds: f64,
    /// True if the simulation ended early, because the whole load would take too long.
    pub is_cut_short: bool,
    /// The prediction for each volume.
    pub volumes: Vec<VolumePrediction>,
}

/// The prediction for a volume.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VolumePrediction {
    /// Tenant of the volume.
    pub tenant: String,
    /// Name of the volume.
    pub volume: String,
    /// Predicted figures.
    pub predicted: Figures,
    /// Figures of the recording, if there is one.
    pub recorded: Option<Figures>,
}

/// Simulates a recording under the policies and on the drives of its header.
pub fn of_trace(trace: &Trace) -> Prediction {
    let header = &trace.header;
    let mut scene = Scene::new(header);
    let records: Vec<Recorded> =
        trace.records.iter().map(|record| recorded(&mut scene, header, record)).collect();
    let mut tallies = scene.tallies();
    let until_ns = replay(&scene.stage, &records, |event| scene.count(&mut tallies, event));
    let mut measured: Vec<Tally> = header.volumes.iter().map(|_| Tally::default()).collect();
    trace.records.iter().for_each(|record| measured[usize::from(record.volume)].add_record(record));
    let seconds = header.duration_ns as f64 / SECOND_NS;
    let measured = measured.into_iter().map(|tally| Some(scene.figures(tally, seconds)));
    prediction(&scene, tallies, until_ns, measured.collect())
}

/// Simulates a made-up load under the policies and on the drives of a header that has its volumes.
pub fn of_spec(header: &Header, spec: &Spec) -> Prediction {
    let mut scene = Scene::new(header);
    let mut clients = Vec::new();
    for (volume, load) in spec.loads.iter().enumerate() {
        for connection in 0..load.connections {
            let node = scene.leaf(volume, connection);
            let (depth, bytes, read_percent, think_ns) =
                (load.depth, load.bytes, load.read_percent, load.think_ns);
            clients.push(MadeUp { node, depth, bytes, read_percent, think_ns });
        }
    }
    let mut tallies = scene.tallies();
    let until_ns = invent(&scene.stage, &clients, |event| scene.count(&mut tallies, event));
    let none = header.volumes.iter().map(|_| None).collect();
    prediction(&scene, tallies, until_ns, none)
}

fn prediction(
    scene: &Scene<'_>,
    tallies: Vec<Tally>,
    until_ns: u64,
    recorded: Vec<Option<Figures>>,
) -> Prediction {
    let seconds = until_ns as f64 / SECOND_NS;
    let volumes =
        scene.header.volumes.iter().zip(tallies).zip(recorded).map(|((volume, tally), recorded)| {
            let (tenant, name) = (volume.tenant.to_string(), volume.name.to_string());
            VolumePrediction { tenant, volume: name, predicted: scene.figures(tally, seconds), recorded }
        });
    Prediction { seconds, is_cut_short: until_ns < scene.stage.duration_ns, volumes: volumes.collect() }
}

/// Converts a record for the simulator.
fn recorded(scene: &mut Scene<'_>, header: &Header, record: &Record) -> Recorded {
    let volume = usize::from(record.volume);
    let is_emulated = header.drives[header.volumes[volume].drive].emulation.is_some();
    let work = match (record.drive_ns.max(record.queue_ns), is_emulated) {
        // A read of a range that was never written does not reach the drive.
        (0, _) => Work::Beside(0),
        (_, true) => Work::Turns,
        (_, false) => Work::Time(record.drive_ns),
    };
    let demand = Demand {
        node: scene.leaf(volume, record.connection),
        name: 0,
        kind: record.kind,
        bytes: record.bytes,
        volume,
        offset: record.offset,
        work,
        after_ns: record.other_ns(),
    };
    Recorded { demand, arrived_ns: record.arrived_ns, answered_ns: record.answered_ns() }
}
