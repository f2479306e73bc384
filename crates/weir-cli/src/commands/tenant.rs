//! `weir tenant`: commands about tenants.

use super::super::arguments::{TenantChanges, TenantCommand};
use super::super::client::{Client, CommandError, segment};
use super::super::output::{self, Column};
use crate::client::Items;
use weir_api_types::{Tenant, TenantCreate, TenantModify};

/// Width of the labels of `inspect`.
const LABEL_WIDTH: usize = 24;

/// Runs a command about tenants.
pub fn run(client: &Client, command: TenantCommand) -> Result<(), CommandError> {
    match command {
        TenantCommand::Create { name } => {
            let existing = path(&name);
            let existing = || client.get(&existing, &[]).map(Some);
            let tenant: Tenant = client.create("/v1/tenants", &TenantCreate { name }, existing)?;
            client.tell(&tenant.name)
        }
        TenantCommand::Modify(arguments) => {
            let path = path(arguments.name.get());
            let TenantChanges { qos_policy_group, default_policy_group } = arguments.changes;
            let request = TenantModify { qos_policy_group, default_policy_group, force: arguments.force };
            client.patch::<Tenant>(&path, &[], &request).map(|_| ())
        }
        TenantCommand::Inspect { name, read } => {
            let tenant: Tenant = client.get(&path(name.get()), &[])?;
            output::show(&tenant, read.output, description)
        }
        TenantCommand::List(read) => {
            let list: Items<Tenant> = client.list("/v1/tenants", &[])?;
            output::show(&list, read.output, table)
        }
        TenantCommand::Delete { name } => client.delete(&path(&name), &[]),
    }
}

fn path(name: &str) -> String {
    format!("/v1/tenants/{}", segment(name))
}

fn or_dash(text: &Option<String>) -> String {
    text.clone().unwrap_or_else(|| "-".to_owned())
}

fn description(tenant: &Tenant) -> String {
    let fields = [
        ("Tenant", tenant.name.clone()),
        ("QoS Policy Group", or_dash(&tenant.qos_policy_group)),
        ("Default Policy Group", or_dash(&tenant.default_policy_group)),
        ("Volumes", tenant.volumes.to_string()),
        ("Version", tenant.version.to_string()),
        ("Created", tenant.created_at.to_string()),
    ];
    output::fields(LABEL_WIDTH, &fields)
}

fn table(list: &Items<Tenant>) -> String {
    let columns = [
        Column::Text("Tenant"),
        Column::Text("Policy Group"),
        Column::Text("Default Policy Group"),
        Column::Number("Volumes"),
        Column::Text("Created"),
    ];
    let row = |tenant: &Tenant| {
        vec![
            tenant.name.clone(),
            or_dash(&tenant.qos_policy_group),
            or_dash(&tenant.default_policy_group),
            tenant.volumes.to_string(),
            tenant.created_at.to_string(),
        ]
    };
    output::table(&columns, list.items.iter().map(row))
}
