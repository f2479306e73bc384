//! `weir attach`, `weir detach` and `weir attachment`: commands about attachments.

use std::cell::Cell;
use std::path::Path;

use super::super::arguments::{AttachArguments, AttachmentCommand, DetachArguments, ReadArguments};
use super::super::client::{Client, of_tenant};
use super::super::errors::CommandError;
use super::super::output::{self, ListColumn, or_dash};
use super::mounting::{self, Mounting};
use super::nbd_program;
use weir_api_types::{AttachMethod, Attachment, AttachmentCreate};
use weir_attach::fuse_mount::is_out_of_sight;
use weir_client::Items;

/// The answer if the file is not seen here.
const OUT_OF_SIGHT: &str = "the file cannot be seen here: the daemon has a mount namespace of its own, as a unit of systemd \
     may give it; run it without one, or use '--method fuse'";

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
    if let Some(program) = arguments.print_command {
        let volume = (arguments.tenant.tenant.as_deref(), arguments.name.get());
        return nbd_program::print(client, volume, program);
    }
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
    match use_of(client, &attachment, mounting.as_ref()) {
        Ok(place) => client.tell(&place),
        Err(error) => {
            // Nothing stays of what failed.
            if !was_there.get() {
                remove(client, &attachment)?;
            }
            Err(error)
        }
    }
}

/// Where the volume can be used: at its mount, or at its link.
fn use_of(
    client: &Client,
    attachment: &Attachment,
    mounting: Option<&Mounting>,
) -> Result<String, CommandError> {
    if let Some(mounting) = mounting {
        return Ok(mounting.mount(attachment)?.display().to_string());
    }
    let is_file = attachment.method == AttachMethod::FuseFile;
    if is_file && client.refuse_remote().is_ok() && is_out_of_sight(Path::new(&attachment.link)) {
        return Err(CommandError::Failed(OUT_OF_SIGHT.to_owned()));
    }
    Ok(attachment.link.clone())
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
        AttachMethod::Nbd => "nbd",
        AttachMethod::Ublk => "ublk",
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
        ("Method", format!("{} ({})", method(attachment), attachment.method_reason)),
        ("Access", access(attachment).to_owned()),
        ("Consumer", attachment.consumer.clone()),
        ("Node", attachment.node.to_string()),
        ("Since", attachment.created_at.to_string()),
    ];
    output::fields(LABEL_WIDTH, &fields)
}
