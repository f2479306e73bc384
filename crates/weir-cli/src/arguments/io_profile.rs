//! Options of the I/O profile: the same when a volume is created, cloned or changed.

use clap::Args;
use weir_api_types::{FlushCoalescing, VolumeIoProfile};
use weir_types::emulation::parse_time;

/// Where writes are stable first, and what belongs to it.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct IoProfileOptions {
    /// Where writes are stable first: 'none' is on the drives of the replicas, 'journal' in write journals on journal
    /// drives, 'db_remote' in the memory of the replicas, and on their drives a moment later; 'auto' is 'db_remote' while
    /// the replicas are in different zones or racks that were named, or else 'none' [default: auto; of a clone or in a
    /// change, as before]
    #[arg(
        long,
        value_name = "auto|none|journal|db_remote",
        value_enum,
        ignore_case = true,
        hide_possible_values = true
    )]
    pub io_profile: Option<VolumeIoProfile>,
    /// Longest time from the answer to a flush until it is begun on the drives, with the I/O profile 'db_remote'
    /// [default: 100ms]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub flush_window: Option<u64>,
    /// Let the replicas share a zone and rack with the I/O profile 'db_remote': their failure may then lose the flushes of
    /// the window
    #[arg(long, value_name = "true|false", hide_possible_values = true, num_args = 0..=1, default_missing_value = "true")]
    pub allow_shared_failure_domain: Option<bool>,
    /// Count a request that is to be durable by itself (FUA) as one without and a flush, with the I/O profile 'db_remote'
    #[arg(long, value_name = "true|false", hide_possible_values = true, num_args = 0..=1, default_missing_value = "true")]
    pub coalesce_fua: Option<bool>,
}

impl IoProfileOptions {
    /// The request about flushes, if any option is given.
    pub fn flush_coalescing(self) -> Option<FlushCoalescing> {
        let (allow_shared_failure_domain, coalesce_fua) =
            (self.allow_shared_failure_domain, self.coalesce_fua);
        let request =
            FlushCoalescing { allow_shared_failure_domain, coalesce_fua, ..FlushCoalescing::default() };
        request.with_window_ns(self.flush_window).if_any()
    }
}
