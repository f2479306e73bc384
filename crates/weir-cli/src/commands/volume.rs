//! `weir volume`: commands about volumes.

use weir_types::Throughput;
use weir_types::units::Size;

use super::super::arguments::{
    ReadArguments, VolumeChanges, VolumeCommand, VolumeCreateArguments, VolumeFilters, VolumeModifyArguments,
};
use super::super::client::{Client, of_tenant, tenant_and_name};
use super::super::errors::CommandError;
use super::super::output::{self, ListColumn};
use super::super::rates::VolumeActivity;
use super::shown::{class, labelled, life};
use super::{background, effect, moving, record, scrub, snapshot, statistics};
use weir_api_types::{
    BoundPolicy, OperationSample, ReplicaPlacement, Volume, VolumeClassPolicy, VolumeCreate, VolumeDrive,
    VolumeIoProfile, VolumeLife, VolumeModify, VolumeSample,
};

/// Width of the labels of `show`.
const LABEL_WIDTH: usize = 24;

/// Columns of the list.
const COLUMNS: &[ListColumn<Volume>] = &[
    ListColumn::text("Volume", |volume| volume.name.clone()),
    ListColumn::text("Tenant", |volume| volume.tenant.clone()),
    ListColumn::number("Size", |volume| output::rough_size(volume.size_bytes)),
    ListColumn::number("Used", used),
    ListColumn::wide_number("Unique", |volume| output::optional_size(volume.unique_bytes)),
    ListColumn::number("Replicas", |volume| volume.replicas.to_string()),
    ListColumn::text("Template", |volume| output::or_dash(&volume.template)),
    ListColumn::text("Drives", by_replica),
    ListColumn::text("Class", short_class),
    ListColumn::text("State", |volume| short_state(volume).to_owned()),
    ListColumn::wide_text("Access", |volume| access(volume).to_owned()),
    ListColumn::text("Policy Group", |volume| {
        bound(volume).map_or("-".to_owned(), |policy| policy.name.clone())
    }),
    ListColumn::number("Connections", |volume| volume.connections.to_string()),
    ListColumn::wide_number("Snapshots", |volume| volume.snapshots.to_string()),
    ListColumn::wide_text("NBD Export", |volume| volume.export_name.clone()),
    ListColumn::wide_number("Version", |volume| volume.version.to_string()),
    ListColumn::wide_text("Created", |volume| volume.created_at.to_string()),
    ListColumn::wide_text("Volume ID", |volume| volume.id.to_string()),
];

/// Answer of `volume show` in JSON and YAML.
#[derive(serde::Serialize)]
struct Inspection {
    #[serde(flatten)]
    volume: Volume,
    statistics: VolumeSample,
}

/// Runs a command about volumes.
pub fn run(client: &Client, command: VolumeCommand) -> Result<(), CommandError> {
    match command {
        VolumeCommand::Create(arguments) => create(client, arguments),
        VolumeCommand::List { filters, read } => list(client, &filters, read),
        VolumeCommand::Show { name, tenant, read } => match name.get() {
            Some(name) => {
                let inspection = inspect(client, name, tenant.tenant.as_deref())?;
                output::show(&inspection, read.output, description)
            }
            None => {
                let path = "/v1/volumes";
                output::list(
                    &client.list(path, &[("tenant", tenant.tenant.as_deref())])?,
                    read.output,
                    COLUMNS,
                )
            }
        },
        VolumeCommand::Modify(arguments) => modify(client, arguments),
        VolumeCommand::Resize { name, tenant, size, force } => {
            let path = path(tenant.tenant.as_deref(), name.get());
            let request = VolumeModify { size_bytes: Some(size.0), force, ..VolumeModify::default() };
            client.patch::<Volume>(&path, &[], &request).map(|_| ())
        }
        VolumeCommand::Clone(arguments) => snapshot::clone_volume(client, arguments),
        VolumeCommand::Record(arguments) => record::record(client, arguments),
        VolumeCommand::Delete { name, tenant, force, with_snapshots, wait } => {
            let path = path(tenant.tenant.as_deref(), name.get());
            client.options().confirm(&format!("Delete volume '{}' and all its data?", name.get()))?;
            let volume: Option<Volume> = wait.then(|| client.get(&path, &[]).ok()).flatten();
            let (force, with) = (force.then_some("true"), with_snapshots.then_some("true"));
            client.delete(&path, &[("force", force), ("with_snapshots", with)])?;
            volume.map_or(Ok(()), |volume| background::wait(client, volume.id))
        }
    }
}

fn path(tenant: Option<&str>, name: &str) -> String {
    of_tenant(tenant, "volumes", Some(name))
}

fn create(client: &Client, arguments: VolumeCreateArguments) -> Result<(), CommandError> {
    let (tenant, name) = tenant_and_name(arguments.tenant.tenant.as_deref(), arguments.name.get());
    let request = VolumeCreate {
        name: name.to_owned(),
        size_bytes: arguments.size.0,
        drive: arguments.drive,
        replicas: arguments.replicas,
        template: arguments.template,
        io_priority: arguments.class,
        class_policy: arguments.class_policy,
        io_profile: arguments.profile.io_profile,
        flush_coalescing: arguments.profile.flush_coalescing(),
        qos_policy_group: arguments.binding.policy_group,
        qos_adaptive_policy_group: arguments.binding.adaptive_policy_group,
        force: arguments.force,
    };
    let existing = || {
        let found: Volume = client.get(&path(tenant, &request.name), &[])?;
        let is_it = found.size_bytes == request.size_bytes
            && request.io_profile.is_none_or(|profile| profile == found.io_profile);
        Ok(Some(found).filter(|_| is_it))
    };
    let volume: Volume = client.create(&of_tenant(tenant, "volumes", None), &request, existing)?;
    client.tell(&volume.name)
}

fn list(client: &Client, filters: &VolumeFilters, read: ReadArguments) -> Result<(), CommandError> {
    let query = [
        ("tenant", filters.tenant.tenant.as_deref()),
        ("template", filters.template.as_deref()),
        ("health", filters.health.map(|health| health.word())),
    ];
    output::list(&client.list("/v1/volumes", &query)?, read.output, COLUMNS)
}

fn modify(client: &Client, arguments: VolumeModifyArguments) -> Result<(), CommandError> {
    let changes = arguments.changes;
    // ONTAP's document prints the option without a name, which is valid only beside the adaptive one.
    let (fixed, adaptive) = (changes.policy_group.clone(), changes.adaptive_policy_group.clone());
    if fixed.as_deref() == Some("") && adaptive.is_none() {
        return Err(CommandError::Usage(
            "--policy-group names no policy group; a name or 'none' is accepted".to_owned(),
        ));
    }
    if let Some(option) = says_what_a_template_says(&changes, arguments.class_policy) {
        return Err(CommandError::Usage(format!(
            "--template says how many replicas there are and of which class each is; {option} goes with '--template none' \
             alone"
        )));
    }
    let flush_coalescing = changes.profile.flush_coalescing();
    let request = VolumeModify {
        name: changes.new_name,
        size_bytes: None,
        io_priority: changes.class,
        class_policy: arguments.class_policy,
        replicas: changes.replicas,
        io_profile: changes.profile.io_profile,
        flush_coalescing,
        template: changes.template,
        qos_policy_group: fixed.filter(|name| !name.is_empty()),
        qos_adaptive_policy_group: adaptive,
        read_only: changes.read_only,
        force: arguments.force,
    };
    let path = path(arguments.tenant.tenant.as_deref(), arguments.name.get());
    let volume = client.patch::<Volume>(&path, &[], &request)?;
    if arguments.wait { moving::wait(client, &volume) } else { Ok(()) }
}

/// The first option that conflicts with a template, because the template sets its value.
fn says_what_a_template_says(
    changes: &VolumeChanges,
    class_policy: Option<VolumeClassPolicy>,
) -> Option<&'static str> {
    changes.template.as_ref().filter(|name| !name.eq_ignore_ascii_case("none"))?;
    let options = [
        (changes.replicas.is_some(), "--replicas"),
        (changes.class.is_some(), "--class"),
        (class_policy.is_some(), "--class-policy"),
    ];
    options.into_iter().find(|(is_given, _)| *is_given).map(|(_, option)| option)
}

fn inspect(client: &Client, name: &str, tenant: Option<&str>) -> Result<Inspection, CommandError> {
    let volume: Volume = client.get(&path(tenant, name), &[])?;
    let statistics = statistics::sample(client, Some(&volume.tenant), Some(&volume.name))?;
    let sample = statistics.volumes.into_iter().next().unwrap_or_default();
    Ok(Inspection { volume, statistics: sample })
}

/// Names of the drives that hold a volume, or one replica of it.
fn drives(drives: &[VolumeDrive]) -> String {
    let names = drives.iter().map(|drive| labelled(&drive.name, drive.emulation));
    let names: Vec<_> = names.collect();
    if names.is_empty() { "unknown".to_owned() } else { names.join(", ") }
}

/// Names of the drives that hold a volume, by replica if it has several.
fn by_replica(volume: &Volume) -> String {
    if volume.placement.is_empty() {
        return drives(&volume.drives);
    }
    let replicas: Vec<String> = volume.placement.iter().map(|replica| drives(&replica.drives)).collect();
    replicas.join(" | ")
}

/// Drives of each replica of a volume, if it has several.
fn replica_fields(volume: &Volume) -> Vec<(&'static str, String)> {
    let field = |replica: &ReplicaPlacement| {
        ("Replica", format!("{} on {}", replica.number, drives(&replica.drives)))
    };
    volume.placement.iter().map(field).collect()
}

/// Fields about the snapshots of a volume, and about the space that only the volume uses.
fn snapshot_fields(volume: &Volume) -> Vec<(&'static str, String)> {
    let count = (volume.snapshots > 0).then(|| ("Snapshots", volume.snapshots.to_string()));
    let unique = volume.unique_bytes.map(|bytes| ("Unique", output::rough_size(bytes)));
    let left = volume
        .snapshot_bytes_left
        .map(|bytes| ("Snapshot in Progress", format!("{} to go over", Size(bytes))));
    [count, unique, left].into_iter().flatten().collect()
}

/// The policy group of either kind that a volume is bound to.
fn bound(volume: &Volume) -> Option<&BoundPolicy> {
    volume.qos_policy_group.as_ref().or(volume.qos_adaptive_policy_group.as_ref())
}

fn used(volume: &Volume) -> String {
    volume.used_bytes.map_or("unknown".to_owned(), output::rough_size)
}

/// Class of a volume, with the requested class if they differ.
fn short_class(volume: &Volume) -> String {
    match is_met(volume) {
        true => class(volume.class),
        false => format!("{} (not {})", class(volume.class), class(Some(volume.io_priority))),
    }
}

fn is_met(volume: &Volume) -> bool {
    volume.class_policy == VolumeClassPolicy::Any || volume.class == Some(volume.io_priority)
}

/// I/O profile of a volume, and the one in effect if that is another one.
fn long_profile(volume: &Volume) -> String {
    let (requested, derived) = (profile(volume.io_profile), profile(volume.derived_io_profile));
    if requested == derived { requested.to_owned() } else { format!("{requested} (now {derived})") }
}

/// An I/O profile in a word.
fn profile(profile: VolumeIoProfile) -> &'static str {
    match profile {
        VolumeIoProfile::Auto => "auto",
        VolumeIoProfile::None => "none",
        VolumeIoProfile::Journal => "journal",
        VolumeIoProfile::DbRemote => "db_remote",
    }
}

/// Requested class and resulting class of a volume.
fn long_class(volume: &Volume) -> String {
    let (requested, actual) = (class(Some(volume.io_priority)), class(volume.class));
    if let Some(template) = &volume.template {
        return format!("{actual} (the lowest, by template '{template}')");
    }
    let policy = match volume.class_policy {
        VolumeClassPolicy::Any => return format!("{actual} (none was requested)"),
        VolumeClassPolicy::Strict => "strict",
        VolumeClassPolicy::Prefer => "prefer",
    };
    match is_met(volume) {
        true => format!("{actual} (as requested, {policy})"),
        false => format!("requested {requested}, actual {actual} ({policy})"),
    }
}

/// Life-cycle state of a volume, or its health if it can be used.
fn short_state(volume: &Volume) -> &'static str {
    match volume.state {
        VolumeLife::Online => moving::health(volume),
        state => life(state),
    }
}

fn access(volume: &Volume) -> &'static str {
    if volume.read_only { "read only" } else { "read and write" }
}

fn long_state(volume: &Volume) -> String {
    match volume.state {
        VolumeLife::Online => moving::long_health(volume),
        state => life(state).to_owned(),
    }
}

fn description(inspection: &Inspection) -> String {
    let Inspection { volume, statistics } = inspection;
    let size = Size(volume.size_bytes);
    let mut fields = vec![
        ("Volume", volume.name.clone()),
        ("Tenant", volume.tenant.clone()),
        ("Volume ID", volume.id.to_string()),
        ("Version", volume.version.to_string()),
        ("Size", format!("{size} ({} bytes)", volume.size_bytes)),
        ("Used", used(volume)),
        ("Drives", drives(&volume.drives)),
        ("Replicas", volume.replicas.to_string()),
        ("Template", volume.template.clone().unwrap_or_else(|| "none".to_owned())),
    ];
    fields.extend(volume.cloned_from.clone().map(|source| ("Cloned From", source)));
    fields.extend(snapshot_fields(volume));
    fields.extend(replica_fields(volume));
    fields.extend(moving::fields(volume));
    fields.extend(scrub::fields(volume));
    fields.extend([
        ("State", long_state(volume)),
        ("Access", access(volume).to_owned()),
        ("Class", long_class(volume)),
        ("I/O Profile", long_profile(volume)),
        ("Created", volume.created_at.to_string()),
        ("NBD Export", volume.export_name.clone()),
        ("Ack Point", volume.ack_point.clone()),
        ("Connections", volume.connections.to_string()),
    ]);
    fields.extend(policy_fields(bound(volume), volume.qos_adaptive_policy_group.is_some()));
    fields.extend(effect::fields(&volume.policy));
    fields.extend(activity_fields(statistics));
    output::fields(LABEL_WIDTH, &fields)
}

fn policy_fields(policy: Option<&BoundPolicy>, is_adaptive: bool) -> Vec<(&'static str, String)> {
    let Some(policy) = policy else { return vec![("QoS Policy Group", "none".to_owned())] };
    let sharing = match (is_adaptive, policy.is_shared) {
        (true, _) => "adaptive",
        (false, true) => "shared",
        (false, false) => "not shared",
    };
    let ceiling = |rates| Throughput::from(rates).long();
    let mut fields = vec![
        ("QoS Policy Group", format!("{} ({sharing})", policy.name)),
        ("Maximum Throughput", ceiling(policy.limits.total)),
    ];
    for (label, rates) in [("Maximum Read", policy.limits.read), ("Maximum Write", policy.limits.write)] {
        if !Throughput::from(rates).is_unlimited() {
            fields.push((label, ceiling(rates)));
        }
    }
    fields
}

/// Counters since the daemon started.
fn activity_fields(sample: &VolumeSample) -> Vec<(&'static str, String)> {
    let total = VolumeActivity::since_start(sample).total;
    let requests =
        |reads: u64, writes: u64, others: u64| format!("{reads} reads, {writes} writes, {others} others");
    vec![
        ("Requests", requests(sample.read.operations, sample.write.operations, sample.other.operations)),
        ("Errors", (sample.read.errors + sample.write.errors + sample.other.errors).to_string()),
        ("Read Latency", latency(&sample.read)),
        ("Write Latency", latency(&sample.write)),
        ("Queue Depth", format!("{} ({} delayed)", sample.queue_depth, sample.queue_depth_delayed)),
        ("Delayed Requests", total.delayed.to_string()),
        ("Delayed by Limiter", output::rough_time(Some(total.delayed_ns))),
        ("Behind Floors", output::rough_time(Some(total.floors_ns))),
        ("Queued for Drive", output::rough_time(Some(total.queue_ns))),
        ("Served by Drive", output::rough_time(Some(total.drive_ns))),
        ("Otherwise", output::rough_time(Some(total.other_ns))),
    ]
}

/// Mean and percentiles since the daemon started.
fn latency(sample: &OperationSample) -> String {
    let Some(percentiles) = sample.latency_percentiles else { return "-".to_owned() };
    let mean = output::rough_time(sample.latency_sum_ns.checked_div(sample.operations));
    let time = |ns| output::rough_time(Some(ns));
    format!(
        "mean {mean}, p50 {}, p99 {}, p99.9 {}",
        time(percentiles.p50_ns),
        time(percentiles.p99_ns),
        time(percentiles.p999_ns)
    )
}
