//! `weir attach`, `weir detach` and `weir attachment`: commands about attachments.

use std::cell::Cell;

use super::super::arguments::{AttachArguments, AttachmentCommand, DetachArguments, ReadArguments};
use super::super::client::{Client, of_tenant};
use super::super::errors::CommandError;
use super::super::output::{self, ListColumn, or_dash};
use super::mounting::{self, Mounting};
use weir_api_types::{AttachMethod, Attachment, AttachmentCreate};
use weir_client::Items;

/// Width of the labels of `show`.
const LABEL_WIDTH: usize = 16;

/// Columns of the list.
const COLUMNS: &[ListColumn<Attachment>] = &[
    ListColumn::text("Volume", |attachment| attachment.volume.clone()),
    ListColumn::text("Tenant", |attachment| attachment.tenant.clone()),
    ListColumn::text("Device", |attachment| or_dash(&attachment.device)),
    ListColumn::text("Link", |attachment| attachment.link.clone()),
    ListColumn::text("Method", |attachment| method(attachment).to_owned()),
    ListColumn::text("Access", |attachment| access(attachment).to_owned()),
    ListColumn::text("Consumer", |attachment| attachment.consumer.clone()),
    ListColumn::wide_text("Since", |attachment| attachment.created_at.to_string()),
    ListColumn::wide_text("ID", |attachment| attachment.id.to_string()),
];

/// Attaches a volume, and prints the path of its device, or of its mount.
pub fn attach(client: &Client, arguments: &AttachArguments) -> Result<(), CommandError> {
    let mounting = Mounting::of(client, &arguments.mount)?;
    let path = path(arguments.tenant.tenant.as_deref(), arguments.name.get());
    let request = AttachmentCreate {
        method: arguments.method,
        read_only: arguments.read_only,
        consumer: Some(arguments.consumer.clone()),
    };
    let was_there = Cell::new(false);
    let existing = || {
        was_there.set(true);
        let found: Items<Attachment> = client.list(&path, &[])?;
        Ok(found.items.into_iter().next())
    };
    let attachment: Attachment = client.create(&path, &request, existing)?;
    let Some(mounting) = mounting else { return client.tell(&attachment.link) };
    match mounting.mount(&attachment) {
        Ok(place) => client.tell(&place.display().to_string()),
        Err(error) => {
            // Nothing stays of what failed.
            if !was_there.get() {
                remove(client, &attachment)?;
            }
            Err(error)
        }
    }
}

/// Detaches a volume.
pub fn detach(client: &Client, arguments: &DetachArguments) -> Result<(), CommandError> {
    let name = arguments.name.get();
    let found: Items<Attachment> = client.list(&path(arguments.tenant.tenant.as_deref(), name), &[])?;
    if found.items.is_empty() {
        return match client.options().if_exists {
            true => Ok(()),
            false => Err(CommandError::Failed(format!("volume '{name}' is not attached"))),
        };
    }
    found.items.iter().try_for_each(|attachment| {
        if arguments.unmount {
            mounting::unmount(client, attachment)?;
        }
        remove(client, attachment)
    })
}

fn remove(client: &Client, attachment: &Attachment) -> Result<(), CommandError> {
    client.delete(&format!("/v1/attachments/{}", attachment.id), &[])
}

/// Runs a command about attachments.
pub fn run(client: &Client, command: AttachmentCommand) -> Result<(), CommandError> {
    match command {
        AttachmentCommand::List { tenant, read } => list(client, tenant.tenant.as_deref(), read),
        AttachmentCommand::Show { name, tenant, read } => match name.get() {
            Some(name) => {
                let found: Items<Attachment> = client.list(&path(tenant.tenant.as_deref(), name), &[])?;
                output::show(&found, read.output, |found| {
                    found.items.iter().map(description).collect::<Vec<_>>().join("\n")
                })
            }
            None => list(client, tenant.tenant.as_deref(), read),
        },
    }
}

fn list(client: &Client, tenant: Option<&str>, read: ReadArguments) -> Result<(), CommandError> {
    output::list(&client.list("/v1/attachments", &[("tenant", tenant)])?, read.output, COLUMNS)
}

fn path(tenant: Option<&str>, volume: &str) -> String {
    format!("{}/attachments", of_tenant(tenant, "volumes", Some(volume)))
}

fn method(attachment: &Attachment) -> &'static str {
    match attachment.method {
        AttachMethod::Fuse => "fuse",
        AttachMethod::FuseFile => "fuse-file",
    }
}

fn access(attachment: &Attachment) -> &'static str {
    if attachment.read_only { "read-only" } else { "read-write" }
}

fn description(attachment: &Attachment) -> String {
    let fields = [
        ("Volume", attachment.volume.clone()),
        ("Tenant", attachment.tenant.clone()),
        ("Attachment ID", attachment.id.to_string()),
        ("Device", or_dash(&attachment.device)),
        ("Link", attachment.link.clone()),
        ("Method", method(attachment).to_owned()),
        ("Access", access(attachment).to_owned()),
        ("Consumer", attachment.consumer.clone()),
        ("Node", attachment.node.to_string()),
        ("Since", attachment.created_at.to_string()),
    ];
    output::fields(LABEL_WIDTH, &fields)
}
