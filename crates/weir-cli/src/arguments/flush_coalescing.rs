//! Options of flush coalescing, which volumes and clones have in common.

use clap::Args;
use weir_api_types::FlushCoalescing;
use weir_types::emulation::parse_time;

/// How flushes are answered before they are carried out.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct FlushOptions {
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

impl FlushOptions {
    /// The request, if any option is given.
    pub fn request(self) -> Option<FlushCoalescing> {
        let (allow_shared_failure_domain, coalesce_fua) =
            (self.allow_shared_failure_domain, self.coalesce_fua);
        let request =
            FlushCoalescing { allow_shared_failure_domain, coalesce_fua, ..FlushCoalescing::default() };
        request.with_window_ns(self.flush_window).if_any()
    }
}
