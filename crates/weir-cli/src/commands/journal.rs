//! `weir journal`: commands about write journals.

use super::super::arguments::JournalCommand;
use super::super::client::{Client, CommandError};
use super::super::output::{self, Column};
use crate::client::Items;
use weir_api_types::Journal;

/// Runs a command about journals.
pub fn run(client: &Client, command: JournalCommand) -> Result<(), CommandError> {
    let JournalCommand::List { tenant, read } = command;
    let list: Items<Journal> = client.list("/v1/journals", &[("tenant", tenant.tenant.as_deref())])?;
    output::show(&list, read.output, table)
}

fn state(journal: &Journal) -> &'static str {
    match (journal.has_failed, journal.is_empty) {
        (true, _) => "failed",
        (false, true) => "empty",
        (false, false) => "in use",
    }
}

fn table(list: &Items<Journal>) -> String {
    let columns = [
        Column::Text("Volume"),
        Column::Text("Tenant"),
        Column::Text("Drive"),
        Column::Text("State"),
        Column::Number("Replicas"),
        Column::Number("Used"),
        Column::Number("Size"),
    ];
    let row = |journal: &Journal| {
        vec![
            journal.volume.clone(),
            journal.tenant.clone(),
            journal.drive.clone(),
            state(journal).to_owned(),
            journal.replicas.to_string(),
            output::rough_size(journal.used_bytes),
            output::rough_size(journal.size_bytes),
        ]
    };
    output::table(&columns, list.items.iter().map(row))
}
