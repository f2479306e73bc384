//! `weir alarm`: commands about alarms.

use weir_api_types::Alarm;

use crate::arguments::{AlarmCommand, AlarmFilter};
use crate::client::Client;
use crate::errors::CommandError;
use crate::output::{self, ListColumn};

/// Path of alarms in the API.
const PATH: &str = "/v1/alarms";
/// Width of the labels of `show`.
const LABEL_WIDTH: usize = 24;

/// Columns of the list.
const COLUMNS: &[ListColumn<Alarm>] = &[
    ListColumn::text("Severity", |alarm| output::word(alarm.severity)),
    ListColumn::text("Code", code),
    ListColumn::text("Object", |alarm| alarm.object.to_string()),
    ListColumn::text("Since", |alarm| alarm.since.to_string()),
    ListColumn::text("Message", |alarm| alarm.message.clone()),
    ListColumn::wide_text("At Risk", |alarm| alarm.at_risk.clone()),
    ListColumn::wide_text("Remedy", |alarm| alarm.remedy.clone()),
    ListColumn::text("ID", |alarm| alarm.id.to_string()),
];

/// Runs a command about alarms.
pub fn run(client: &Client, command: AlarmCommand) -> Result<(), CommandError> {
    let (filter, read) = match command {
        AlarmCommand::Show { id: Some(id), read } => {
            let alarm: Alarm = client.get(&format!("{PATH}/{id}"), &[])?;
            return output::show(&alarm, read.output, description);
        }
        AlarmCommand::Show { id: None, read } => (AlarmFilter::default(), read),
        AlarmCommand::List { filter, read } => (filter, read),
    };
    let (severity, code) = (filter.severity.map(output::word), filter.code.map(output::word));
    let query = [("severity", severity.as_deref()), ("code", code.as_deref())];
    output::list(&client.list(PATH, &query)?, read.output, COLUMNS)
}

fn code(alarm: &Alarm) -> String {
    output::word(alarm.code)
}

fn description(alarm: &Alarm) -> String {
    let mut fields = vec![
        ("ID", alarm.id.to_string()),
        ("Code", code(alarm)),
        ("Severity", output::word(alarm.severity)),
        ("Since", alarm.since.to_string()),
        ("Object", alarm.object.to_string()),
    ];
    fields.extend(alarm.extent.map(|extent| ("Extent", extent.to_string())));
    fields.extend([
        ("Message", alarm.message.clone()),
        ("At Risk", alarm.at_risk.clone()),
        ("Remedy", alarm.remedy.clone()),
    ]);
    output::fields(LABEL_WIDTH, &fields)
}
