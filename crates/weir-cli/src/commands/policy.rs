//! `weir qos policy-group` and `weir qos adaptive-policy-group`: commands about policy groups.

use weir_types::{Size, Throughput};

use super::super::arguments::{
    AdaptiveArguments, AdaptivePolicyGroupCommand, PolicyGroupCommand, ReadArguments, TermsArguments,
};
use super::super::client::{Client, of_tenant};
use super::super::errors::CommandError;
use super::super::output::{self, ListColumn, or_dash};
use weir_api_types::{
    AdaptiveModify, AdaptivePolicyGroup, AdaptivePolicyGroupCreate, AdaptivePolicyGroupModify, BurstModify,
    BurstTerms, Charges, InitialCredit, LimitsModify, OperationSize, PeakMode, PolicyGroup,
    PolicyGroupCreate, PolicyGroupModify, PolicyLimits, PolicyTerms, Rates, Space,
};
use weir_client::Items;

/// Path of policy groups in the API.
const PATH: &str = "/v1/policy-groups";
/// Path of adaptive policy groups in the API.
const ADAPTIVE_PATH: &str = "/v1/adaptive-policy-groups";
/// Width of the labels of `show -policy-group`, equal to ONTAP's.
const LABEL_WIDTH: usize = 31;

/// Columns of the list of policy groups.
const COLUMNS: &[ListColumn<PolicyGroup>] = &[
    ListColumn::text("Name", |group| group.name.clone()),
    ListColumn::text("Vserver", |group| group.tenant.clone()),
    ListColumn::text("Class", |group| group.class.clone()),
    ListColumn::number("Wklds", |group| group.workloads.to_string()),
    ListColumn::text("Throughput", |group| {
        format!("{}-{}", floor(group.terms.floor, Throughput::short), short(group.terms.limits.total))
    }),
    ListColumn::text("Read", |group| short(group.terms.limits.read)),
    ListColumn::text("Write", |group| short(group.terms.limits.write)),
    ListColumn::wide_text("Burst", |group| {
        group.terms.burst.map_or("-".to_owned(), |burst| short(burst.rates.total))
    }),
    ListColumn::number("Weight", |group| group.terms.weight.to_string()),
    ListColumn::wide_text("IOPS Size", |group| operation_size(group.terms.operation_size)),
    ListColumn::wide_text("Charges", |group| charges(group.terms.charges)),
    ListColumn::text("Parent", |group| or_dash(&group.parent)),
    ListColumn::text("Is Shared", |group| group.is_shared.to_string()),
    ListColumn::wide_number("ID", |group| group.number.to_string()),
    ListColumn::wide_number("Version", |group| group.version.to_string()),
    ListColumn::wide_text("Created", |group| group.created_at.to_string()),
    ListColumn::wide_text("Uuid", |group| group.id.to_string()),
];

/// Columns of the list of adaptive policy groups.
const ADAPTIVE_COLUMNS: &[ListColumn<AdaptivePolicyGroup>] = &[
    ListColumn::text("Name", |group| group.name.clone()),
    ListColumn::text("Vserver", |group| group.tenant.clone()),
    ListColumn::text("Class", |group| group.class.clone()),
    ListColumn::number("Wklds", |group| group.workloads.to_string()),
    ListColumn::number("Expected IOPS", |group| per_tb(group.terms.expected_iops_per_tb)),
    ListColumn::number("Peak IOPS", |group| per_tb(group.terms.peak_iops_per_tb)),
    ListColumn::number("Minimum IOPS", |group| format!("{}IOPS", group.terms.absolute_iops_min)),
    ListColumn::wide_text("Expected Allocation", |group| space(group.terms.expected_space).to_owned()),
    ListColumn::wide_text("Peak Allocation", |group| space(group.terms.peak_space).to_owned()),
    ListColumn::text("Block Size", |group| block_size(group.terms.block_size_bytes)),
    ListColumn::wide_number("ID", |group| group.number.to_string()),
    ListColumn::wide_number("Version", |group| group.version.to_string()),
    ListColumn::wide_text("Created", |group| group.created_at.to_string()),
    ListColumn::wide_text("Uuid", |group| group.id.to_string()),
];

/// Runs a command about policy groups.
pub fn fixed(client: &Client, command: PolicyGroupCommand) -> Result<(), CommandError> {
    match command {
        PolicyGroupCommand::Create { name, tenant, terms, parent, is_shared } => {
            let modify = modification(*terms, parent, None);
            let request = PolicyGroupCreate {
                name: name.get().to_owned(),
                tenant: None,
                limits: modify.limits,
                burst: modify.burst,
                floor: modify.floor,
                weight: modify.weight,
                operation_size: modify.operation_size,
                charges: modify.charges,
                parent: modify.parent,
                is_shared,
            };
            let tenant = tenant.tenant.as_deref();
            let existing = || client.get(&path(tenant, &request.name), &[]).map(Some);
            let collection = of_tenant(tenant, "policy-groups", None);
            client.create::<PolicyGroup>(&collection, &request, existing).map(|_| ())
        }
        PolicyGroupCommand::Modify { name, tenant, terms, parent, is_shared, force } => {
            let request = PolicyGroupModify { force, ..modification(*terms, parent, is_shared) };
            let path = path(tenant.tenant.as_deref(), name.get());
            client.patch::<PolicyGroup>(&path, &[], &request).map(|_| ())
        }
        PolicyGroupCommand::Rename { name, tenant, new_name } => {
            let request = PolicyGroupModify { name: Some(new_name), ..PolicyGroupModify::default() };
            let path = path(tenant.tenant.as_deref(), name.get());
            client.patch::<PolicyGroup>(&path, &[], &request).map(|_| ())
        }
        PolicyGroupCommand::Delete { name, tenant } => {
            client.delete(&path(tenant.tenant.as_deref(), name.get()), &[])
        }
        PolicyGroupCommand::List { tenant, read } => show_fixed(client, None, tenant.tenant.as_deref(), read),
        PolicyGroupCommand::Show { name, tenant, read } => {
            show_fixed(client, name.get(), tenant.tenant.as_deref(), read)
        }
    }
}

/// Runs a command about adaptive policy groups.
pub fn adaptive(client: &Client, command: AdaptivePolicyGroupCommand) -> Result<(), CommandError> {
    use AdaptivePolicyGroupCommand::{Create, Delete, List, Modify, Rename, Show};
    match command {
        Create { name, tenant, terms } => {
            let request = AdaptivePolicyGroupCreate {
                name: name.get().to_owned(),
                tenant: None,
                terms: adaptive_modification(*terms),
            };
            let tenant = tenant.tenant.as_deref();
            let existing = || client.get(&adaptive_path(tenant, &request.name), &[]).map(Some);
            let collection = of_tenant(tenant, "adaptive-policy-groups", None);
            client.create::<AdaptivePolicyGroup>(&collection, &request, existing).map(|_| ())
        }
        Modify { name, tenant, terms } => {
            let request =
                AdaptivePolicyGroupModify { name: None, terms: Some(adaptive_modification(*terms)) };
            let path = adaptive_path(tenant.tenant.as_deref(), name.get());
            client.patch::<AdaptivePolicyGroup>(&path, &[], &request).map(|_| ())
        }
        Rename { name, tenant, new_name } => {
            let request = AdaptivePolicyGroupModify { name: Some(new_name), terms: None };
            let path = adaptive_path(tenant.tenant.as_deref(), name.get());
            client.patch::<AdaptivePolicyGroup>(&path, &[], &request).map(|_| ())
        }
        Delete { name, tenant } => client.delete(&adaptive_path(tenant.tenant.as_deref(), name.get()), &[]),
        List { tenant, read } => show_adaptive(client, None, tenant.tenant.as_deref(), read),
        Show { name, tenant, read } => show_adaptive(client, name.get(), tenant.tenant.as_deref(), read),
    }
}

fn path(tenant: Option<&str>, name: &str) -> String {
    of_tenant(tenant, "policy-groups", Some(name))
}

fn adaptive_path(tenant: Option<&str>, name: &str) -> String {
    of_tenant(tenant, "adaptive-policy-groups", Some(name))
}

fn modification(terms: TermsArguments, parent: Option<String>, is_shared: Option<bool>) -> PolicyGroupModify {
    let limits =
        |total: Option<Throughput>, read: Option<Throughput>, write: Option<Throughput>| LimitsModify {
            total: total.map(Rates::from),
            read: read.map(Rates::from),
            write: write.map(Rates::from),
        };
    PolicyGroupModify {
        name: None,
        limits: limits(terms.max_throughput, terms.max_read, terms.max_write),
        burst: BurstModify {
            rates: limits(terms.burst, terms.burst_read, terms.burst_write),
            seconds: terms.burst_seconds,
            initial_credit: terms.burst_credit,
        },
        floor: terms.min_throughput.map(Rates::from),
        weight: terms.weight,
        operation_size: terms.iops_size,
        charges: terms.charge.unwrap_or_default(),
        parent,
        is_shared,
        force: false,
    }
}

fn adaptive_modification(terms: AdaptiveArguments) -> AdaptiveModify {
    AdaptiveModify {
        expected_iops_per_tb: terms.expected_iops,
        peak_iops_per_tb: terms.peak_iops,
        expected_space: terms.expected_iops_allocation,
        peak_space: terms.peak_iops_allocation,
        absolute_iops_min: terms.absolute_min_iops,
        block_size_bytes: terms.block_size,
        ceiling_iops_min: terms.ceiling_iops_min,
        ceiling_iops_max: terms.ceiling_iops_max,
        peak_mode: terms.peak_mode,
        burst_seconds: terms.burst_seconds,
    }
}

fn show_fixed(
    client: &Client,
    name: Option<&str>,
    tenant: Option<&str>,
    read: ReadArguments,
) -> Result<(), CommandError> {
    if let Some(name) = name {
        let group: PolicyGroup = client.get(&path(tenant, name), &[])?;
        return output::show(&group, read.output, description);
    }
    let list: Items<PolicyGroup> = client.list(PATH, &[("tenant", tenant)])?;
    if list.items.is_empty() && read.output.is_for_people() {
        return output::print("There are no policy groups.");
    }
    output::list(&list, read.output, COLUMNS)
}

fn show_adaptive(
    client: &Client,
    name: Option<&str>,
    tenant: Option<&str>,
    read: ReadArguments,
) -> Result<(), CommandError> {
    if let Some(name) = name {
        let group: AdaptivePolicyGroup = client.get(&adaptive_path(tenant, name), &[])?;
        return output::show(&group, read.output, adaptive_description);
    }
    output::list(&client.list(ADAPTIVE_PATH, &[("tenant", tenant)])?, read.output, ADAPTIVE_COLUMNS)
}

/// A ceiling in ONTAP's notation, where no ceiling is infinite.
fn ceiling(rates: Rates, written: fn(&Throughput) -> String) -> String {
    let throughput = Throughput::from(rates);
    if throughput.is_unlimited() { "INF".to_owned() } else { written(&throughput) }
}

/// A ceiling for a list.
fn short(rates: Rates) -> String {
    ceiling(rates, Throughput::short)
}

/// A floor in ONTAP's notation, where no floor is zero.
fn floor(rates: Rates, written: fn(&Throughput) -> String) -> String {
    let throughput = Throughput::from(rates);
    if throughput.is_unlimited() { "0".to_owned() } else { written(&throughput) }
}

/// An operation size in the notation of the command line.
pub fn operation_size(size: OperationSize) -> String {
    match size {
        OperationSize::Any => "any".to_owned(),
        OperationSize::Curve => "curve".to_owned(),
        OperationSize::Bytes(bytes) => Size(u64::from(bytes)).exact(),
    }
}

/// Charges in the notation of the command line.
pub fn charges(charges: Charges) -> String {
    let Charges { discard, zeroes, flush } = charges;
    format!("discard={discard},zeroes={zeroes},flush={flush}")
}

fn credit(credit: InitialCredit) -> &'static str {
    match credit {
        InitialCredit::Empty => "empty",
        InitialCredit::Full => "full",
    }
}

/// The rates that are set, with a label for each direction.
fn rates(limits: PolicyLimits, labels: [&'static str; 3]) -> Vec<(&'static str, String)> {
    let all = labels.into_iter().zip([limits.total, limits.read, limits.write]);
    all.filter(|(_, rates)| *rates != Rates::default())
        .map(|(label, rates)| (label, ceiling(rates, Throughput::long)))
        .collect()
}

fn burst_fields(burst: BurstTerms) -> Vec<(&'static str, String)> {
    let mut fields = rates(burst.rates, ["Burst Throughput", "Burst Read", "Burst Write"]);
    fields.push(("Burst Duration", format!("{}s", burst.seconds)));
    fields.push(("Burst Credit at Start", credit(burst.initial_credit).to_owned()));
    fields
}

/// Fields of the terms that differ from the defaults.
fn unusual_fields(terms: &PolicyTerms) -> Vec<(&'static str, String)> {
    let directional = PolicyLimits { total: Rates::default(), ..terms.limits };
    let mut fields = rates(directional, ["", "Maximum Read", "Maximum Write"]);
    fields.extend(terms.burst.map(burst_fields).unwrap_or_default());
    let plain = PolicyTerms::from(weir_types::Terms::default());
    if terms.weight != plain.weight {
        fields.push(("Weight", terms.weight.to_string()));
    }
    if terms.operation_size != plain.operation_size {
        fields.push(("IOPS Size", operation_size(terms.operation_size)));
    }
    if terms.charges != plain.charges {
        fields.push(("Charges", charges(terms.charges)));
    }
    fields
}

/// All fields of a policy group, in ONTAP's layout.
pub(crate) fn description(group: &PolicyGroup) -> String {
    let terms = &group.terms;
    let maximum = ceiling(terms.limits.total, Throughput::long);
    let minimum = floor(terms.floor, Throughput::long);
    let range = format!("{}-{}", floor(terms.floor, Throughput::short), short(terms.limits.total));
    let mut fields = vec![
        ("Policy Group Name", group.name.clone()),
        ("Vserver", group.tenant.clone()),
        ("Uuid", group.id.to_string()),
        ("Policy Group Class", group.class.clone()),
        ("Policy Group ID", group.number.to_string()),
        ("Maximum Throughput", maximum),
        ("Minimum Throughput", minimum),
    ];
    fields.extend(unusual_fields(&group.terms));
    fields.extend(group.parent.clone().map(|parent| ("Parent Policy Group", parent)));
    fields.extend([
        ("Number of Workloads", group.workloads.to_string()),
        ("Throughput Policy", range),
        ("Is Shared", group.is_shared.to_string()),
        ("Is Policy Auto Generated", "-".to_owned()),
    ]);
    output::fields(LABEL_WIDTH, &fields)
}

fn space(space: Space) -> &'static str {
    match space {
        Space::AllocatedSpace => "allocated-space",
        Space::UsedSpace => "used-space",
    }
}

/// A block size in the notation of the command line.
fn block_size(bytes: Option<u32>) -> String {
    let unit = weir_types::adaptive::BLOCK_SIZE_K_BYTES;
    match bytes {
        None => "ANY".to_owned(),
        Some(bytes) if bytes.is_multiple_of(unit) => format!("{}K", bytes / unit),
        Some(bytes) => Size(u64::from(bytes)).exact(),
    }
}

fn per_tb(rate: u64) -> String {
    format!("{rate}IOPS/TB")
}

/// All fields of an adaptive policy group, in ONTAP's layout.
pub(crate) fn adaptive_description(group: &AdaptivePolicyGroup) -> String {
    let terms = &group.terms;
    let mut fields = vec![
        ("Policy Group Name", group.name.clone()),
        ("Vserver", group.tenant.clone()),
        ("Uuid", group.id.to_string()),
        ("Policy Group Class", group.class.clone()),
        ("Policy Group ID", group.number.to_string()),
        ("Expected IOPS", per_tb(terms.expected_iops_per_tb)),
        ("Peak IOPS", per_tb(terms.peak_iops_per_tb)),
        ("Absolute Minimum IOPS", format!("{}IOPS", terms.absolute_iops_min)),
        ("Expected IOPS Allocation", space(terms.expected_space).to_owned()),
        ("Peak IOPS Allocation", space(terms.peak_space).to_owned()),
        ("Block Size", block_size(terms.block_size_bytes)),
    ];
    let bounds = [("Least Ceiling", terms.ceiling_iops_min), ("Greatest Ceiling", terms.ceiling_iops_max)];
    fields.extend(bounds.into_iter().filter_map(|(label, bound)| Some((label, format!("{}IOPS", bound?)))));
    if terms.peak_mode == PeakMode::Credits {
        fields.push(("Peak Mode", format!("credits, full ones last {}s", terms.burst_seconds)));
    }
    fields.push(("Number of Workloads", group.workloads.to_string()));
    output::fields(LABEL_WIDTH, &fields)
}
