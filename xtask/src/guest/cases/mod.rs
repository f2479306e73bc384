//! Guest cases by name. A case begins with empty disks and no daemon, and ends with the guest.

mod attach;
mod documents;
mod fence;
mod flush;
mod lost_writes;
mod power_cut;
mod ring;
mod snapshot;
mod status;

use anyhow::{Result, bail};

type Case = fn() -> Result<()>;

/// Cases: a name that states the property, and the function that checks it.
const CASES: [(&str, Case); 14] = [
    ("snapshot_whose_writeback_failed_is_refused", snapshot::writeback_failed),
    ("write_of_a_killed_daemon_lands_before_the_next_one_reads", fence::killed),
    ("start_flushes_the_cache_of_the_disk_that_holds_the_data", flush::start),
    ("start_after_one_whose_sync_failed_knows_it", lost_writes::remembered),
    ("drives_found_after_a_sync_failed_all_know_it", lost_writes::found_later),
    ("power_cut_takes_nothing_that_was_promised_on_xfs", power_cut::xfs),
    ("power_cut_takes_nothing_that_was_promised_on_ext4", power_cut::ext4),
    ("block_status_does_not_wait_for_a_drive_that_hangs", status::hung_drive),
    ("ring_holds_its_promises_on_this_kernel", ring::tests),
    ("tutorial_and_readme_work_as_printed", documents::tutorial_and_readme),
    ("volume_is_a_device_of_the_kernels_nbd_client", attach::nbd),
    ("volume_is_a_ublk_device", attach::ublk),
    ("volume_is_a_loop_device_through_fuse", attach::fuse),
    ("attaching_with_nbd_client_works_as_printed", documents::attaching_with_nbd_client),
];

/// Benches, which only run by their names.
const BENCHES: [(&str, Case); 1] = [(ATTACH_BENCH, attach::bench)];
/// Name of the bench of attached volumes.
pub const ATTACH_BENCH: &str = "cost_of_attaching";

/// True if this is a bench.
pub fn is_bench(name: &str) -> bool {
    BENCHES.iter().any(|(bench, _)| *bench == name)
}

/// Returns the names of all cases, or the name of the wanted case.
pub fn names(wanted: Option<&str>) -> Result<Vec<&'static str>> {
    let names: Vec<&str> = CASES.iter().map(|(name, _)| *name).collect();
    match wanted {
        None => Ok(names),
        Some(wanted) if names.contains(&wanted) => {
            Ok(names.into_iter().filter(|name| *name == wanted).collect())
        }
        Some(wanted) => bail!("unknown guest case '{wanted}'; cases: {}", names.join(", ")),
    }
}

/// Runs a case in the guest.
pub fn run(name: &str) -> Result<()> {
    match CASES.iter().chain(&BENCHES).find(|(known, _)| *known == name) {
        Some((_, case)) => case(),
        None => bail!("unknown guest case '{name}'"),
    }
}
