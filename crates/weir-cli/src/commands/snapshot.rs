//! `weir snapshot` and `weir volume clone`: commands about snapshots and clones.

use std::io::{IsTerminal, Write};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use super::super::arguments::{CloneArguments, ReadArguments, SnapshotCommand, Which, WhichShown};
use super::super::client::{Client, of_tenant, segment, tenant_and_any_name, tenant_and_name};
use super::super::errors::CommandError;
use super::super::output::{self, ListColumn};
use super::shown::life;
use weir_api_types::{Snapshot, SnapshotCreate, SnapshotRestore, Volume, VolumeClone};
use weir_client::Items;

/// Interval at which a waiting command reads the progress of a snapshot.
const WAIT_INTERVAL: Duration = Duration::from_millis(500);

/// Width of the labels of `show`.
const LABEL_WIDTH: usize = 24;

/// Columns of the list.
const COLUMNS: &[ListColumn<Snapshot>] = &[
    ListColumn::text("Volume", |snapshot| snapshot.volume.clone()),
    ListColumn::text("Snapshot", |snapshot| snapshot.name.clone()),
    ListColumn::text("Tenant", |snapshot| snapshot.tenant.clone()),
    ListColumn::number("Size", |snapshot| output::rough_size(snapshot.size_bytes)),
    ListColumn::number("Used", |snapshot| space(snapshot.used_bytes)),
    ListColumn::number("Unique", |snapshot| space(snapshot.unique_bytes)),
    ListColumn::text("State", |snapshot| life(snapshot.state).to_owned()),
    ListColumn::text("Created", |snapshot| snapshot.created_at.to_string()),
    ListColumn::wide_text("NBD Export", |snapshot| snapshot.export_name.clone()),
    ListColumn::wide_number("Version", |snapshot| snapshot.version.to_string()),
    ListColumn::wide_text("Snapshot ID", |snapshot| snapshot.id.to_string()),
];

/// Runs a command about snapshots.
pub fn run(client: &Client, command: SnapshotCommand) -> Result<(), CommandError> {
    match command {
        SnapshotCommand::Create { which, group, freeze } => create(client, which, group, freeze),
        SnapshotCommand::List { volume, tenant, read } => {
            list(client, tenant.tenant.as_deref(), volume.get(), read)
        }
        SnapshotCommand::Show { which, read } => show(client, &which, read),
        SnapshotCommand::Restore { which, force } => {
            let (volume, snapshot) = named(&which)?;
            let question =
                format!("Restore '{volume}@{snapshot}' and lose what was written to '{volume}' since?");
            client.options().confirm(&question)?;
            let tenant = which.tenant.tenant.as_deref();
            let path = format!("{}/restore", path(tenant, &volume, &snapshot));
            with_progress(client, (tenant, &volume), || {
                client.post::<Volume>(&path, &[], &SnapshotRestore { force }).map(|_| ())
            })
        }
        SnapshotCommand::Delete { which, force } => {
            let (volume, snapshot) = named(&which)?;
            let force = force.then_some("true");
            let path = path(which.tenant.tenant.as_deref(), &volume, &snapshot);
            client.delete(&path, &[("force", force)])
        }
    }
}

fn list(
    client: &Client,
    tenant: Option<&str>,
    volume: Option<&str>,
    read: ReadArguments,
) -> Result<(), CommandError> {
    let (tenant, volume) = tenant_and_any_name(tenant, volume);
    let query = [("tenant", tenant), ("volume", volume)];
    output::list(&client.list("/v1/snapshots", &query)?, read.output, COLUMNS)
}

/// Shows the named snapshot, or the list if none is named.
fn show(client: &Client, which: &WhichShown, read: ReadArguments) -> Result<(), CommandError> {
    let by_position = which.name.as_deref().and_then(|name| name.split_once('@'));
    let by_options = which.volume.as_deref().zip(which.snapshot.as_deref());
    let tenant = which.tenant.tenant.as_deref();
    match by_position.or(by_options) {
        Some((volume, name)) => {
            let snapshot: Snapshot = client.get(&path(tenant, volume, name), &[])?;
            output::show(&snapshot, read.output, description)
        }
        None => list(client, tenant, which.name.as_deref().or(which.volume.as_deref()), read),
    }
}

fn create(client: &Client, which: Which, group: Vec<String>, freeze: bool) -> Result<(), CommandError> {
    let (volumes, name) = match (group.is_empty(), which.name.as_deref().or(which.snapshot.as_deref())) {
        (false, Some(name)) => (group, name.to_owned()),
        _ => {
            let (volume, name) = named(&which)?;
            (vec![volume], name)
        }
    };
    let (tenant, volumes) = of_one_tenant(which.tenant.tenant.as_deref(), &volumes)?;
    let tenant = tenant.as_deref();
    let first = volumes.first().cloned().unwrap_or_default();
    let request = SnapshotCreate { name, volumes, freeze };
    let path = of_tenant(tenant, "snapshots", None);
    let list = with_progress(client, (tenant, &first), || {
        client.create::<Items<Snapshot>>(&path, &request, || existing(client, tenant, &request))
    })?;
    list.items.iter().try_for_each(|snapshot| client.tell(&snapshot.export_name))
}

/// The tenant and the names of volumes that belong to one tenant.
fn of_one_tenant(
    tenant: Option<&str>,
    volumes: &[String],
) -> Result<(Option<String>, Vec<String>), CommandError> {
    let both: Vec<_> = volumes.iter().map(|volume| tenant_and_name(tenant, volume)).collect();
    let tenant = both.first().and_then(|(tenant, _)| *tenant);
    if both.iter().any(|(other, _)| *other != tenant) {
        let message = format!("{} are not of one tenant; the volumes of a group are", volumes.join(", "));
        return Err(CommandError::Usage(message));
    }
    let names = both.iter().map(|(_, name)| (*name).to_owned()).collect();
    Ok((tenant.map(str::to_owned), names))
}

/// The requested snapshots, if all of them exist.
fn existing(
    client: &Client,
    tenant: Option<&str>,
    request: &SnapshotCreate,
) -> Result<Option<Items<Snapshot>>, CommandError> {
    let of = |volume: &String| -> Result<Option<Snapshot>, CommandError> {
        let path = format!("{}/snapshots", of_tenant(tenant, "volumes", Some(volume)));
        let list: Items<Snapshot> = client.list(&path, &[])?;
        Ok(list.items.into_iter().find(|snapshot| snapshot.name == request.name))
    };
    let found: Option<Vec<Snapshot>> = request.volumes.iter().map(of).collect::<Result<_, _>>()?;
    Ok(found.map(|snapshots| Items { items: snapshots }))
}

/// Creates a clone of a volume.
pub fn clone_volume(client: &Client, arguments: CloneArguments) -> Result<(), CommandError> {
    let (volume, snapshot) = match arguments.source.split_once('@') {
        Some((volume, snapshot)) => (volume, Some(snapshot.to_owned())),
        None => (arguments.source.as_str(), None),
    };
    let request = VolumeClone {
        name: arguments.name.clone(),
        snapshot,
        qos_policy_group: arguments.binding.policy_group.clone(),
        qos_adaptive_policy_group: arguments.binding.adaptive_policy_group.clone(),
        io_profile: arguments.profile.io_profile,
        flush_coalescing: arguments.profile.flush_coalescing(),
        force: arguments.force,
    };
    let tenant = arguments.tenant.tenant.as_deref();
    let path = format!("{}/clones", of_tenant(tenant, "volumes", Some(volume)));
    let made: Volume = with_progress(client, (tenant, volume), || client.post(&path, &[], &request))?;
    client.tell(&made.name)
}

/// Volume and name of a snapshot, given by position or by options.
fn named(which: &Which) -> Result<(String, String), CommandError> {
    let by_options = || Some((which.volume.clone()?, which.snapshot.clone()?));
    let by_position = || {
        let (volume, snapshot) = which.name.as_deref()?.split_once('@')?;
        Some((volume.to_owned(), snapshot.to_owned()))
    };
    let usage = || {
        let given = which.name.as_deref().or(which.snapshot.as_deref()).unwrap_or_default();
        CommandError::Usage(format!(
            "'{given}' does not say of which volume: VOLUME@SNAPSHOT is accepted, such as vol1@{given}"
        ))
    };
    by_options().or_else(by_position).ok_or_else(usage)
}

fn path(tenant: Option<&str>, volume: &str, snapshot: &str) -> String {
    format!("{}/snapshots/{}", of_tenant(tenant, "volumes", Some(volume)), segment(snapshot))
}

/// Runs a request that may take long and shows its progress on a terminal. A request takes long where the
/// filesystem cannot share extents and all data is duplicated.
fn with_progress<T: Send>(
    client: &Client,
    (tenant, volume): (Option<&str>, &str),
    work: impl FnOnce() -> Result<T, CommandError> + Send,
) -> Result<T, CommandError> {
    let is_shown = std::io::stderr().is_terminal();
    std::thread::scope(|scope| {
        let (done, is_done) = channel();
        let worker = scope.spawn(move || {
            let outcome = work();
            drop(done);
            outcome
        });
        let mut most = 1;
        while is_done.recv_timeout(WAIT_INTERVAL) == Err::<(), _>(RecvTimeoutError::Timeout) {
            if is_shown {
                show_progress(client, (tenant, volume), &mut most);
            }
        }
        worker.join().map_err(|_| CommandError::Failed("the request ended unexpectedly".to_owned()))?
    })
}

fn show_progress(client: &Client, (tenant, volume): (Option<&str>, &str), most: &mut u64) {
    let now = client.get::<Volume>(&of_tenant(tenant, "volumes", Some(volume)), &[]);
    let Some(left) = now.ok().and_then(|volume| volume.snapshot_bytes_left) else { return };
    *most = left.max(*most);
    let (bar, left) = (output::progress_bar(1.0 - left as f64 / *most as f64), output::rough_size(left));
    // Progress output may fail: the user may have closed standard error.
    let _ = write!(std::io::stderr(), "\r\x1b[K{bar}, {left} to go over");
}

/// Space of a snapshot, which is unknown while its drive is missing.
fn space(bytes: Option<u64>) -> String {
    bytes.map_or("unknown".to_owned(), output::rough_size)
}

fn description(snapshot: &Snapshot) -> String {
    let size = snapshot.size_bytes;
    let fields = [
        ("Snapshot", snapshot.name.clone()),
        ("Volume", snapshot.volume.clone()),
        ("Tenant", snapshot.tenant.clone()),
        ("Snapshot ID", snapshot.id.to_string()),
        ("Version", snapshot.version.to_string()),
        ("Size", format!("{} ({size} bytes)", output::rough_size(size))),
        ("Used", space(snapshot.used_bytes)),
        ("Unique", space(snapshot.unique_bytes)),
        ("State", life(snapshot.state).to_owned()),
        ("NBD Export", snapshot.export_name.clone()),
        ("Created", snapshot.created_at.to_string()),
    ];
    output::fields(LABEL_WIDTH, &fields)
}
