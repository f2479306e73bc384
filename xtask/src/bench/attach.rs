//! Attach bench: the cost of an attached volume, here and in a guest, whose kernel has all methods.

use anyhow::Result;

use super::Options;
use crate::guest;
use crate::report::Report;
use crate::world::attach_cost::{Length, PEERS, measure_all};

/// Runs everything. A quick run has no guest.
pub fn run(options: &Options) -> Result<Report> {
    let length = if options.is_quick { Length::QUICK } else { Length::FULL };
    let report = measure_all(&options.binary, &length)?;
    if !options.is_quick {
        println!("\nIn a guest without hardware virtualisation:\n");
        print!("{}", guest::bench(guest::ATTACH_BENCH, &PEERS)?);
    }
    Ok(report)
}
