//! `weir qos cgroup`: commands about cgroups with limits of their own.

use weir_api_types::{CgroupBinding, CgroupBindingCreate, CgroupBindingModify, CgroupOperations};
use weir_client::Items;
use weir_types::Size;

use super::super::arguments::{CgroupCommand, CgroupOfVolume};
use super::super::client::{Client, of_tenant};
use super::super::errors::CommandError;
use super::super::output::{self, ListColumn};

/// Columns of the list.
const COLUMNS: &[ListColumn<CgroupBinding>] = &[
    ListColumn::text("Cgroup", |binding| binding.cgroup.clone()),
    ListColumn::text("Policy group", |binding| binding.policy_group.clone()),
    ListColumn::text("Read", |binding| size(&binding.read)),
    ListColumn::text("Written", |binding| size(&binding.write)),
    ListColumn::wide_text("Reads", |binding| binding.read.operations.to_string()),
    ListColumn::wide_text("Writes", |binding| binding.write.operations.to_string()),
    ListColumn::wide_text("Since", |binding| binding.created_at.to_string()),
    ListColumn::wide_text("ID", |binding| binding.id.to_string()),
];

/// Runs a command about cgroups.
pub fn run(client: &Client, command: CgroupCommand) -> Result<(), CommandError> {
    match command {
        CgroupCommand::Bind { cgroup, policy_group } => bind(client, &cgroup, policy_group),
        CgroupCommand::Unbind { cgroup } => unbind(client, &cgroup),
        CgroupCommand::List { volume, tenant, read } => {
            let path = path(tenant.tenant.as_deref(), volume.get());
            output::list(&client.list(&path, &[])?, read.output, COLUMNS)
        }
    }
}

fn bind(client: &Client, cgroup: &CgroupOfVolume, policy_group: String) -> Result<(), CommandError> {
    let path = path(cgroup.tenant.tenant.as_deref(), cgroup.volume.get());
    if let Some(bound) = find(client, cgroup)? {
        let request = CgroupBindingModify { policy_group: Some(policy_group) };
        let _: CgroupBinding = client.patch(&format!("{path}/{}", bound.id), &[], &request)?;
        return Ok(());
    }
    let request = CgroupBindingCreate { cgroup: folder(cgroup)?, policy_group };
    let _: CgroupBinding = client.create(&path, &request, || find(client, cgroup))?;
    Ok(())
}

fn unbind(client: &Client, cgroup: &CgroupOfVolume) -> Result<(), CommandError> {
    let volume = cgroup.volume.get();
    let path = path(cgroup.tenant.tenant.as_deref(), volume);
    match find(client, cgroup)? {
        Some(bound) => client.delete(&format!("{path}/{}", bound.id), &[]),
        None if client.options().if_exists => Ok(()),
        None => {
            let folder = cgroup.cgroup.display();
            Err(CommandError::Failed(format!("cgroup {folder} is not bound on volume '{volume}'")))
        }
    }
}

fn find(client: &Client, cgroup: &CgroupOfVolume) -> Result<Option<CgroupBinding>, CommandError> {
    let (path, folder) = (path(cgroup.tenant.tenant.as_deref(), cgroup.volume.get()), folder(cgroup)?);
    let found: Items<CgroupBinding> = client.list(&path, &[])?;
    Ok(found.items.into_iter().find(|bound| bound.cgroup == folder))
}

/// The folder as it was given, from the root and without a slash at its end.
fn folder(cgroup: &CgroupOfVolume) -> Result<String, CommandError> {
    let folder = std::path::absolute(&cgroup.cgroup)?;
    Ok(folder.components().collect::<std::path::PathBuf>().display().to_string())
}

fn path(tenant: Option<&str>, volume: &str) -> String {
    format!("{}/cgroups", of_tenant(tenant, "volumes", Some(volume)))
}

fn size(operations: &CgroupOperations) -> String {
    Size(operations.bytes).to_string()
}
