//! The dry run: a recorded or made-up load is played under policies in virtual time, by the very scheduler that serves
//! requests, and what each volume would get and wait is told.
//!
//! It needs no daemon and changes nothing. What it takes for granted is in the manual: a client waits for its answers
//! as it did when it was recorded, and a drive that is not emulated takes as long as it took then.

mod figures;
pub mod spec;
mod stage;
#[cfg(test)]
mod tests;

use serde::Serialize;
use weir_replay::replay::{MadeUp, Recorded, invent, replay};
use weir_replay::world::{Demand, Work};

use crate::trace::{Header, Record, Trace};
use figures::Tally;
pub use figures::{BoundBy, Figures};
use spec::Spec;
use stage::Scene;

/// Nanoseconds of a second.
const SECOND_NS: f64 = 1e9;

/// What would happen.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Prediction {
    /// How long was played, in seconds.
    pub seconds: f64,
    /// True if it would have taken too long to play all of it.
    pub is_cut_short: bool,
    /// What each volume would get.
    pub volumes: Vec<VolumePrediction>,
}

/// What a volume would get.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VolumePrediction {
    /// Its tenant.
    pub tenant: String,
    /// Its name.
    pub volume: String,
    /// What it would get.
    pub predicted: Figures,
    /// What it got when it was recorded, if it was.
    pub recorded: Option<Figures>,
}

/// Plays a recording under the policies and on the drives of its header.
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

/// Plays a made-up load under the policies and on the drives of a header that has its volumes.
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

/// A record as the simulator plays it.
fn recorded(scene: &mut Scene<'_>, header: &Header, record: &Record) -> Recorded {
    let volume = usize::from(record.volume);
    let is_emulated = header.drives[header.volumes[volume].drive].emulation.is_some();
    let work = match (record.drive_ns.max(record.queue_ns), is_emulated) {
        // What was never written is read without asking the drive.
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
