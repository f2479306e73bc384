//! `weir pool`: commands about pools.

use weir_types::Throughput;
use weir_types::units::ByteRate;

use super::super::arguments::{PoolChanges, PoolCommand};
use super::super::client::{Client, segment};
use super::super::errors::CommandError;
use super::super::output::{self, Column, ListColumn, rough_size};
use super::shown::{self, class, labelled};
use weir_api_types::{
    DriveState, InFlightOrigin, LevelScope, Pool, PoolClaim, PoolInFlight, PoolModify, PoolRates, PoolState,
};

/// Path of pools in the API.
const PATH: &str = "/v1/pools";
/// Width of the labels of `show`.
const LABEL_WIDTH: usize = 24;
/// Placeholder for an unknown capacity, and for values that depend on it.
const NOT_MEASURED: &str = "not measured";

/// Columns of the list.
const COLUMNS: &[ListColumn<Pool>] = &[
    ListColumn::text("Pool", |pool| pool.name.clone()),
    ListColumn::text("Class", |pool| class(pool.class)),
    ListColumn::text("Drives", drives),
    ListColumn::number("Size", |pool| rough_size(pool.size_bytes)),
    ListColumn::number("Used", |pool| rough_size(pool.used_bytes)),
    ListColumn::number("Available", |pool| rough_size(pool.available_bytes)),
    ListColumn::number("Provisioned", |pool| rough_size(pool.provisioned_bytes)),
    ListColumn::wide_text("Over-Provisioning", over_provisioning),
    ListColumn::text("Status", state),
    ListColumn::text("Capacity", |pool| either(pool.capacity)),
    ListColumn::number("Over-Commit", |pool| format!("{}%", pool.over_commit_percent)),
    ListColumn::text("Floors", |pool| both(pool.floors)),
    ListColumn::wide_text("Reserve", |pool| format!("{}%", pool.reserve_percent)),
    ListColumn::wide_text("Free for Floors", |pool| either(pool.free)),
    ListColumn::text("Floors Fit", |pool| fitting(pool).to_owned()),
    ListColumn::wide_text("Queue Target", queue_target),
    ListColumn::wide_number("Version", |pool| pool.version.to_string()),
];

/// Runs a command about pools.
pub fn run(client: &Client, command: PoolCommand) -> Result<(), CommandError> {
    match command {
        PoolCommand::List(read) | PoolCommand::Show { name: None, read } => {
            output::list(&client.list(PATH, &[])?, read.output, COLUMNS)
        }
        PoolCommand::Show { name: Some(name), read } => {
            let pool: Pool = client.get(&path(&name), &[])?;
            output::show(&pool, read.output, description)
        }
        PoolCommand::Modify { name, changes, force } => {
            let PoolChanges { over_commit, reserve, over_provision, queue_target } = changes;
            let request = PoolModify {
                over_commit_percent: over_commit,
                reserve_percent: reserve,
                over_provision_percent: over_provision,
                queue_target,
                force,
            };
            client.patch::<Pool>(&path(&name), &[], &request).map(|_| ())
        }
    }
}

fn path(name: &str) -> String {
    format!("{PATH}/{}", segment(name))
}

/// A capacity, in operations or in bytes per second.
fn either(rates: Option<PoolRates>) -> String {
    let words =
        |rates: PoolRates| format!("{}IOPS or {}", rates.iops, ByteRate(rates.bytes_per_second).short());
    rates.map_or(NOT_MEASURED.to_owned(), words)
}

/// Bound rates in both dimensions.
fn both(rates: PoolRates) -> String {
    let set = |rate: u64| Some(rate).filter(|rate| *rate > 0);
    Throughput { iops: set(rates.iops), bytes_per_second: set(rates.bytes_per_second) }.short()
}

fn drives(pool: &Pool) -> String {
    let names = pool.drives.iter().map(|drive| labelled(&drive.name, drive.emulation));
    names.collect::<Vec<_>>().join(", ")
}

/// State of a pool, with the drives that cannot be used.
pub fn state(pool: &Pool) -> String {
    let missing = pool.drives.iter().filter(|drive| drive.state == DriveState::Missing);
    let missing: Vec<&str> = missing.map(|drive| drive.name.as_str()).collect();
    match pool.state {
        PoolState::Online => shown::state(DriveState::Online).to_owned(),
        PoolState::Degraded => format!("degraded, missing: {}", missing.join(", ")),
        PoolState::Missing => shown::state(DriveState::Missing).to_owned(),
    }
}

/// State of the floors of a pool: whether all can be met.
fn fitting(pool: &Pool) -> &'static str {
    match (pool.capacity, pool.is_over_committed) {
        (None, _) => NOT_MEASURED,
        (Some(_), true) => "over-committed",
        (Some(_), false) => "fits",
    }
}

fn over_provisioning(pool: &Pool) -> String {
    let limit = |percent: u32| format!("at most {percent}% of its size");
    pool.over_provision_percent.map_or("not limited".to_owned(), limit)
}

fn queue_target(pool: &Pool) -> String {
    pool.queue_target.map_or("auto".to_owned(), |operations| operations.to_string())
}

fn in_flight(in_flight: Option<PoolInFlight>) -> String {
    let Some(PoolInFlight { operations, origin }) = in_flight else {
        return "no volume was opened there yet".to_owned();
    };
    let how = match origin {
        InFlightOrigin::Chosen => ", chosen",
        InFlightOrigin::Held => " while volumes compete, found elsewhere",
        InFlightOrigin::Found => " while volumes compete, found by trial",
        InFlightOrigin::Sought => " while volumes compete, so far: better is looked for by trial",
    };
    format!("{operations}{how}")
}

fn description(pool: &Pool) -> String {
    let of_capacity = |percent: u32, rates: Option<PoolRates>| match rates {
        Some(_) => format!("{percent}% of that: {}", either(rates)),
        None => format!("{percent}%"),
    };
    let fields = [
        ("Pool", pool.name.clone()),
        ("Version", pool.version.to_string()),
        ("Class", class(pool.class)),
        ("Drives", drives(pool)),
        ("Status", state(pool)),
        ("Size", rough_size(pool.size_bytes)),
        ("Used", rough_size(pool.used_bytes)),
        ("Available", rough_size(pool.available_bytes)),
        ("Provisioned", rough_size(pool.provisioned_bytes)),
        ("Over-Provisioning", over_provisioning(pool)),
        ("Capacity", either(pool.capacity)),
        ("Over-Commit", of_capacity(pool.over_commit_percent, pool.limit)),
        ("Reserve", of_capacity(pool.reserve_percent, pool.reserve)),
        ("Floors", both(pool.floors)),
        ("Free for Floors", either(pool.free)),
        ("Floors Fit", pool.summary.clone()),
        ("Operations in Flight", in_flight(pool.in_flight)),
        ("Queue Target", queue_target(pool)),
    ];
    format!("{}\n{}", output::fields(LABEL_WIDTH, &fields), ledger(pool))
}

/// The ledger as a table: a row for each claim, then the totals.
fn ledger(pool: &Pool) -> String {
    let columns = [
        Column::Text("Claim"),
        Column::Text("Tenant"),
        Column::Text("Name"),
        Column::Text("From"),
        Column::Number("IOPS"),
        Column::Number("Bandwidth"),
    ];
    let rest = [("-floors-", Some(pool.floors)), ("-reserve-", pool.reserve)];
    let rest = rest.into_iter().chain([("-over-commit-", pool.limit), ("-free-", pool.free)]);
    let rest = rest.filter_map(|(label, rates)| Some(sum(label, rates?)));
    output::table(&columns, pool.claims.iter().map(claim).chain(rest))
}

fn claim(claim: &PoolClaim) -> Vec<String> {
    let scope = match claim.scope {
        LevelScope::Tenant => "tenant",
        LevelScope::PolicyGroup => "policy group",
        LevelScope::Volume => "volume",
        LevelScope::Cgroup => "cgroup",
    };
    let dash = || "-".to_owned();
    vec![
        scope.to_owned(),
        claim.tenant.clone(),
        claim.name.clone(),
        claim.origin.clone().unwrap_or_else(dash),
        claim.iops.map_or_else(dash, |iops| iops.to_string()),
        claim.bytes_per_second.map_or_else(dash, |rate| ByteRate(rate).short()),
    ]
}

fn sum(label: &str, rates: PoolRates) -> Vec<String> {
    let empty = String::new;
    let (iops, bandwidth) = (rates.iops.to_string(), ByteRate(rates.bytes_per_second).short());
    vec![label.to_owned(), empty(), empty(), empty(), iops, bandwidth]
}
