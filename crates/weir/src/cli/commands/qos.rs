//! `weir qos`

use weir_types::Throughput;

use super::super::arguments::{
    Ceilings, Format, PerformanceCommand, PolicyGroupCommand, QosCommand, ReadArguments, StatisticsCommand,
    VolumeStatisticsCommand,
};
use super::super::client::{Client, CommandError, segment};
use super::super::output::{self, Column};
use super::statistics;
use crate::api::types::{
    LimitsModify, PolicyGroup, PolicyGroupCreate, PolicyGroupList, PolicyGroupModify, PolicyLimits, Rates,
    Rename,
};

/// Where policy groups are.
const PATH: &str = "/v1/qos/policy-groups";
/// Width of the labels of `show -policy-group`, which is that of ONTAP.
const LABEL_WIDTH: usize = 31;

/// Does what was told about quality of service.
pub fn run(client: &Client, command: QosCommand) -> Result<(), CommandError> {
    match command {
        QosCommand::PolicyGroup { command } => policy_group(client, command),
        QosCommand::Statistics { command } => {
            let StatisticsCommand::Volume { command } = command;
            let VolumeStatisticsCommand::Performance { command } = command;
            let PerformanceCommand::Show(arguments) = command;
            statistics::performance(client, &arguments)
        }
    }
}

fn policy_group(client: &Client, command: PolicyGroupCommand) -> Result<(), CommandError> {
    match command {
        PolicyGroupCommand::Create { name, tenant, ceilings, is_shared } => {
            let request = PolicyGroupCreate {
                name: name.get().to_owned(),
                tenant: tenant.tenant,
                limits: limits(ceilings),
                is_shared,
            };
            client.post::<PolicyGroup>(PATH, &[], &request).map(|_| ())
        }
        PolicyGroupCommand::Modify { name, tenant, ceilings, is_shared } => {
            let request = PolicyGroupModify { limits: limits_modify(ceilings)?, is_shared };
            let query = [("tenant", tenant.tenant.as_deref())];
            client.patch::<PolicyGroup>(&path(name.get()), &query, &request).map(|_| ())
        }
        PolicyGroupCommand::Rename { name, tenant, new_name } => {
            let query = [("tenant", tenant.tenant.as_deref())];
            let path = format!("{}/rename", path(name.get()));
            client.post::<PolicyGroup>(&path, &query, &Rename { new_name }).map(|_| ())
        }
        PolicyGroupCommand::Delete { name, tenant } => {
            client.delete(&path(name.get()), &[("tenant", tenant.tenant.as_deref())])
        }
        PolicyGroupCommand::Show { name, tenant, read } => show(client, name.get(), tenant.as_deref(), read),
    }
}

fn path(name: &str) -> String {
    format!("{PATH}/{}", segment(name))
}

fn limits(ceilings: Ceilings) -> PolicyLimits {
    let rates = |ceiling: Option<Throughput>| Rates::from(ceiling.unwrap_or_default());
    PolicyLimits {
        total: rates(ceilings.max_throughput),
        read: rates(ceilings.max_read),
        write: rates(ceilings.max_write),
    }
}

fn limits_modify(ceilings: Ceilings) -> Result<LimitsModify, CommandError> {
    let Ceilings { max_throughput, max_read, max_write } = ceilings;
    Ok(LimitsModify {
        total: max_throughput.map(Rates::from),
        read: max_read.map(Rates::from),
        write: max_write.map(Rates::from),
    })
}

fn show(
    client: &Client,
    name: Option<&str>,
    tenant: Option<&str>,
    read: ReadArguments,
) -> Result<(), CommandError> {
    let query = [("tenant", tenant)];
    if let Some(name) = name {
        let group: PolicyGroup = client.get(&path(name), &query)?;
        return output::show(&group, read.output, description);
    }
    let list: PolicyGroupList = client.get(PATH, &query)?;
    if list.policy_groups.is_empty() && read.output == Format::Table {
        return output::print("There are no policy groups.");
    }
    output::show(&list, read.output, table)
}

/// A ceiling as ONTAP writes it: no ceiling is infinite.
fn ceiling(rates: Rates) -> String {
    let throughput = Throughput::from(rates);
    if throughput.is_unlimited() { "INF".to_owned() } else { throughput.to_string() }
}

/// Everything about a policy group, in the look of ONTAP.
pub(in crate::cli) fn description(group: &PolicyGroup) -> String {
    let maximum = ceiling(group.limits.total);
    let mut fields = vec![
        ("Policy Group Name", group.name.clone()),
        ("Vserver", group.tenant.clone()),
        ("Uuid", group.id.to_string()),
        ("Policy Group Class", group.class.clone()),
        ("Policy Group ID", group.number.to_string()),
        ("Maximum Throughput", maximum.clone()),
        ("Minimum Throughput", "0".to_owned()),
    ];
    for (label, rates) in [("Maximum Read", group.limits.read), ("Maximum Write", group.limits.write)] {
        if rates != Rates::default() {
            fields.push((label, ceiling(rates)));
        }
    }
    fields.extend([
        ("Number of Workloads", group.workloads.to_string()),
        ("Throughput Policy", format!("0-{maximum}")),
        ("Is Shared", group.is_shared.to_string()),
        ("Is Policy Auto Generated", "-".to_owned()),
    ]);
    output::fields(LABEL_WIDTH, &fields)
}

fn table(list: &PolicyGroupList) -> String {
    let columns = [
        Column::Text("Name"),
        Column::Text("Vserver"),
        Column::Text("Class"),
        Column::Number("Wklds"),
        Column::Text("Throughput"),
        Column::Text("Read"),
        Column::Text("Write"),
        Column::Text("Is Shared"),
    ];
    let row = |group: &PolicyGroup| {
        vec![
            group.name.clone(),
            group.tenant.clone(),
            group.class.clone(),
            group.workloads.to_string(),
            format!("0-{}", ceiling(group.limits.total)),
            ceiling(group.limits.read),
            ceiling(group.limits.write),
            group.is_shared.to_string(),
        ]
    };
    output::table(&columns, list.policy_groups.iter().map(row))
}
