//! `weir qos simulate`: a dry run of policies.

use std::io::Read;
use std::path::Path;

use super::super::arguments::{LoadArguments, SimulateArguments};
use super::super::errors::CommandError;
use super::super::output::{self, Column};
use super::policy_set;
use crate::Local;
use weir_replay::dry_run::spec::Spec;
use weir_replay::dry_run::{Figures, Prediction, VolumePrediction, of_spec, of_trace};
use weir_replay::trace::{Header, Trace, decode};
use weir_types::control_bounds::TRACE_BYTES_MAX;

/// Default duration of a synthetic load, in seconds.
const SECONDS_DEFAULT: u32 = 10;

/// Plays a load under policies and shows the result.
pub fn simulate(local: &dyn Local, arguments: SimulateArguments) -> Result<(), CommandError> {
    let prediction = predict(local, &arguments)?;
    output::show(&prediction, arguments.read.output, table)
}

fn predict(local: &dyn Local, arguments: &SimulateArguments) -> Result<Prediction, CommandError> {
    let LoadArguments { trace, synthetic } = &arguments.load;
    if let Some(path) = trace {
        let mut trace = read_trace(path)?;
        if let Some(drive) = arguments.drive {
            trace.header.drives.iter_mut().for_each(|of| (of.emulation, of.in_flight) = (Some(drive), None));
        }
        put_under_file(local, &mut trace.header, arguments.policies.as_deref())?;
        return Ok(of_trace(&trace));
    }
    let usage = || CommandError::Usage("a made-up load needs --drive".to_owned());
    let (spec, drive): (&Spec, _) = synthetic.as_ref().zip(arguments.drive).ok_or_else(usage)?;
    let mut header = spec.header(drive, arguments.seconds.unwrap_or(SECONDS_DEFAULT));
    put_under_file(local, &mut header, arguments.policies.as_deref())?;
    Ok(of_spec(&header, spec))
}

fn put_under_file(
    local: &dyn Local,
    header: &mut Header,
    policies: Option<&Path>,
) -> Result<(), CommandError> {
    let Some(path) = policies else { return Ok(()) };
    let in_file =
        |error: &dyn std::fmt::Display| CommandError::Failed(format!("'{}': {error}", path.display()));
    let set = policy_set::read_file(path)?;
    local.put_under(header, set).map_err(|error| in_file(&error))
}

fn read_trace(path: &Path) -> Result<Trace, CommandError> {
    let failed = |error: &dyn std::fmt::Display| {
        CommandError::Failed(format!("cannot read the trace '{}': {error}", path.display()))
    };
    let file = std::fs::File::open(path).map_err(|error| failed(&error))?;
    let mut bytes = Vec::new();
    file.take(TRACE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|error| failed(&error))?;
    decode(&bytes).map_err(|error| failed(&error))
}

fn table(prediction: &Prediction) -> String {
    let columns = [
        Column::Text("Volume"),
        Column::Text("Tenant"),
        Column::Text(""),
        Column::Number("IOPS"),
        Column::Number("Throughput"),
        Column::Number("Latency"),
        Column::Number("p99"),
        Column::Number("Ceilings"),
        Column::Number("Queue"),
        Column::Number("Floors"),
        Column::Text("Bound By"),
    ];
    let rows = prediction.volumes.iter().flat_map(|volume| {
        let recorded = volume.recorded.iter().map(|figures| row(volume, "recorded", figures));
        recorded.chain([row(volume, "predicted", &volume.predicted)]).collect::<Vec<_>>()
    });
    let mut text = output::table(&columns, rows);
    if prediction.is_cut_short {
        text.push_str(&format!("\nCut short after {:.3} s: more would take too long.", prediction.seconds));
    }
    text
}

fn row(volume: &VolumePrediction, what: &str, figures: &Figures) -> Vec<String> {
    let bound_by = figures.bound_by.as_ref().map_or("-".to_owned(), |bound| {
        format!("{} {}: {} ({:.0}%)", bound.level, bound.name, bound.limit, bound.share * 100.0)
    });
    vec![
        volume.volume.clone(),
        volume.tenant.clone(),
        what.to_owned(),
        format!("{:.0}", figures.iops),
        output::rough_rate(figures.bytes_per_second),
        output::rough_time(figures.latency_mean_ns),
        output::rough_time(figures.latency_p99_ns),
        output::rough_time(figures.ceilings_mean_ns),
        output::rough_time(figures.queue_mean_ns),
        output::rough_time(figures.floors_mean_ns),
        bound_by,
    ]
}
