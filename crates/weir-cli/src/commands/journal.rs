//! `weir journal`: commands about write journals.

use super::super::arguments::JournalCommand;
use super::super::client::{Client, of_tenant};
use super::super::errors::CommandError;
use super::super::output::{self, ListColumn};
use super::drive;
use weir_api_types::{DriveUse, Journal};
use weir_client::Items;

/// Path of journals in the API.
const PATH: &str = "/v1/journals";
/// Width of the labels of `show`.
const LABEL_WIDTH: usize = 24;

/// Columns of the list.
const COLUMNS: &[ListColumn<Journal>] = &[
    ListColumn::text("Volume", |journal| journal.volume.clone()),
    ListColumn::text("Tenant", |journal| journal.tenant.clone()),
    ListColumn::text("Drive", |journal| journal.drive.clone()),
    ListColumn::text("State", |journal| state(journal).to_owned()),
    ListColumn::number("Replicas", |journal| journal.replicas.to_string()),
    ListColumn::number("Used", |journal| output::rough_size(journal.used_bytes)),
    ListColumn::number("Size", |journal| output::rough_size(journal.size_bytes)),
    ListColumn::wide_text("Journal ID", |journal| journal.id.to_string()),
];

/// Runs a command about journals.
pub fn run(client: &Client, command: JournalCommand) -> Result<(), CommandError> {
    let (volume, tenant, read) = match &command {
        JournalCommand::Add(arguments) => return drive::add(client, arguments, DriveUse::Journal),
        JournalCommand::List { tenant, read } => (None, tenant.tenant.as_deref(), read),
        JournalCommand::Show { name, tenant, read } => (name.get(), tenant.tenant.as_deref(), read),
    };
    let Some(volume) = volume else {
        return output::list(&client.list(PATH, &[("tenant", tenant)])?, read.output, COLUMNS);
    };
    let path = format!("{}/journals", of_tenant(tenant, "volumes", Some(volume)));
    let list: Items<Journal> = client.list(&path, &[])?;
    output::show(&list, read.output, |list| described(volume, &list.items))
}

fn state(journal: &Journal) -> &'static str {
    match (journal.has_failed, journal.is_empty) {
        (true, _) => "failed",
        (false, true) => "empty",
        (false, false) => "in use",
    }
}

fn described(volume: &str, journals: &[Journal]) -> String {
    if journals.is_empty() {
        return format!("Volume '{volume}' has no write journal.");
    }
    let text: Vec<String> = journals.iter().map(description).collect();
    text.join("\n")
}

fn description(journal: &Journal) -> String {
    let bytes = |bytes: u64| format!("{} ({bytes} bytes)", output::rough_size(bytes));
    let fields = [
        ("Volume", journal.volume.clone()),
        ("Tenant", journal.tenant.clone()),
        ("Journal ID", journal.id.to_string()),
        ("Drive", journal.drive.clone()),
        ("State", state(journal).to_owned()),
        ("Replicas", journal.replicas.to_string()),
        ("Used", bytes(journal.used_bytes)),
        ("Size", bytes(journal.size_bytes)),
    ];
    output::fields(LABEL_WIDTH, &fields)
}
