//! `weir tenant`: commands about tenants.

use super::super::arguments::{ReadArguments, TenantChanges, TenantCommand};
use super::super::client::{Client, segment};
use super::super::errors::CommandError;
use super::super::output::{self, ListColumn, or_dash};
use weir_api_types::{Tenant, TenantCreate, TenantModify};

/// Width of the labels of `show`.
const LABEL_WIDTH: usize = 24;

/// Columns of the list.
const COLUMNS: &[ListColumn<Tenant>] = &[
    ListColumn::text("Tenant", |tenant| tenant.name.clone()),
    ListColumn::text("Policy Group", |tenant| or_dash(&tenant.qos_policy_group)),
    ListColumn::text("Default Policy Group", |tenant| or_dash(&tenant.default_policy_group)),
    ListColumn::number("Volumes", |tenant| tenant.volumes.to_string()),
    ListColumn::wide_number("Version", |tenant| tenant.version.to_string()),
    ListColumn::text("Created", |tenant| tenant.created_at.to_string()),
];

/// Runs a command about tenants.
pub fn run(client: &Client, command: TenantCommand) -> Result<(), CommandError> {
    match command {
        TenantCommand::Create { name } => {
            let name = name.get().to_owned();
            let existing = path(&name);
            let existing = || client.get(&existing, &[]).map(Some);
            let tenant: Tenant = client.create("/v1/tenants", &TenantCreate { name }, existing)?;
            client.tell(&tenant.name)
        }
        TenantCommand::Modify(arguments) => {
            let path = path(arguments.name.get());
            let TenantChanges { policy_group, default_policy_group } = arguments.changes;
            let (qos_policy_group, force) = (policy_group, arguments.force);
            let request = TenantModify { qos_policy_group, default_policy_group, force };
            client.patch::<Tenant>(&path, &[], &request).map(|_| ())
        }
        TenantCommand::List(read) => list(client, read),
        TenantCommand::Show { name, read } => match name.get() {
            Some(name) => {
                let tenant: Tenant = client.get(&path(name), &[])?;
                output::show(&tenant, read.output, description)
            }
            None => list(client, read),
        },
        TenantCommand::Delete { name } => client.delete(&path(name.get()), &[]),
    }
}

fn path(name: &str) -> String {
    format!("/v1/tenants/{}", segment(name))
}

fn list(client: &Client, read: ReadArguments) -> Result<(), CommandError> {
    output::list(&client.list("/v1/tenants", &[])?, read.output, COLUMNS)
}

fn description(tenant: &Tenant) -> String {
    let fields = [
        ("Tenant", tenant.name.clone()),
        ("Policy Group", or_dash(&tenant.qos_policy_group)),
        ("Default Policy Group", or_dash(&tenant.default_policy_group)),
        ("Volumes", tenant.volumes.to_string()),
        ("Version", tenant.version.to_string()),
        ("Created", tenant.created_at.to_string()),
    ];
    output::fields(LABEL_WIDTH, &fields)
}
