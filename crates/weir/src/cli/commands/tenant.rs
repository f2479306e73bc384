//! `weir tenant`

use super::super::arguments::TenantCommand;
use super::super::client::{Client, CommandError, segment};
use super::super::output::{self, Column};
use crate::api::types::{Tenant, TenantCreate, TenantList};

/// Does what was told about tenants.
pub fn run(client: &Client, command: TenantCommand) -> Result<(), CommandError> {
    match command {
        TenantCommand::Create { name } => {
            let tenant: Tenant = client.post("/v1/tenants", &[], &TenantCreate { name })?;
            output::print(&tenant.name)
        }
        TenantCommand::List(read) => {
            let list: TenantList = client.get("/v1/tenants", &[])?;
            output::show(&list, read.output, table)
        }
        TenantCommand::Delete { name } => client.delete(&format!("/v1/tenants/{}", segment(&name)), &[]),
    }
}

fn table(list: &TenantList) -> String {
    let row = |tenant: &Tenant| vec![tenant.name.clone(), tenant.created_at.to_string()];
    output::table(&[Column::Text("Tenant"), Column::Text("Created")], list.tenants.iter().map(row))
}
