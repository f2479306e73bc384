//! Arguments of recordings and dry runs.

use std::path::PathBuf;

use clap::Args;
use weir_types::Emulation;
use weir_types::units::Size;

use super::ReadArguments;
use weir_replay::dry_run::spec::Spec;
use weir_types::control_bounds::{MADE_UP_SECONDS_MAX, RECORDING_SECONDS_MAX};

/// Options of a recording.
#[derive(Debug, Args)]
pub struct RecordArguments {
    /// Volumes, as NAME or TENANT/NAME
    #[arg(value_name = "VOLUME", required = true)]
    pub volumes: Vec<String>,
    /// Tenant of volumes named without one [default: default]
    #[arg(long, value_name = "TENANT", visible_alias = "vserver", alias = "svm")]
    pub tenant: Option<String>,
    /// File to write
    #[arg(long, value_name = "FILE")]
    pub output: PathBuf,
    /// Duration in seconds
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=RECORDING_SECONDS_MAX as i64))]
    pub seconds: u32,
    /// End the recording when the file has this size [default: 64MiB]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub limit: Option<Size>,
}

/// Reads a size; a bare number counts in bytes.
fn bytes(text: &str) -> Result<Size, weir_types::UnitError> {
    Size::parse(text, 1)
}

/// Options of a dry run.
#[derive(Debug, Args)]
pub struct SimulateArguments {
    #[command(flatten)]
    pub load: LoadArguments,
    /// All policies and bindings, in the form of 'qos export' [default: those of the trace, or none]
    #[arg(long, value_name = "FILE")]
    pub policies: Option<PathBuf>,
    /// Drive to play on, in the form of 'drive add --emulate' [default: that of the trace]
    #[arg(
        long,
        value_name = "KIND|iops=N,bandwidth=RATE,latency=TIME,...",
        value_parser = Emulation::parse,
        allow_hyphen_values = true,
        required_unless_present = "trace"
    )]
    pub drive: Option<Emulation>,
    /// Duration of a synthetic load in seconds [default: 10]
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=MADE_UP_SECONDS_MAX as i64),
        conflicts_with = "trace"
    )]
    pub seconds: Option<u32>,
    #[command(flatten)]
    pub read: ReadArguments,
}

/// The load to play.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub struct LoadArguments {
    /// Play the file that 'volume record' wrote
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Play a synthetic load: VOLUME:depth=N,size=SIZE,read=PERCENT,think=TIME,connections=N,capacity=SIZE;
    /// several volumes with ';' between them
    #[arg(long, value_name = "SPEC", value_parser = Spec::parse)]
    pub synthetic: Option<Spec>,
}
