//! `weir template`: commands about templates.

use super::super::arguments::TemplateCommand;
use super::super::client::{Client, CommandError, segment};
use super::super::output::{self, Column};
use super::volume;
use crate::client::Items;
use weir_api_types::{Template, TemplateCreate, TemplateModify, TemplateRead};

/// Width of the labels of `inspect`.
const LABEL_WIDTH: usize = 24;

/// Runs a command about templates.
pub fn run(client: &Client, command: TemplateCommand) -> Result<(), CommandError> {
    match command {
        TemplateCommand::Create { name, replicas, read_from, qos_policy_group } => {
            let request = TemplateCreate { name, replicas: replicas.0, read_from, qos_policy_group };
            let existing = || client.get(&path(&request.name), &[]).map(Some);
            let template: Template = client.create("/v1/templates", &request, existing)?;
            client.tell(&template.name)
        }
        TemplateCommand::List(read) => {
            let list: Items<Template> = client.list("/v1/templates", &[])?;
            output::show(&list, read.output, table)
        }
        TemplateCommand::Inspect { name, read } => {
            let template: Template = client.get(&path(&name), &[])?;
            output::show(&template, read.output, description)
        }
        TemplateCommand::Modify { name, changes } => {
            let request = TemplateModify {
                replicas: changes.replicas.map(|replicas| replicas.0),
                read_from: changes.read_from,
                qos_policy_group: changes.qos_policy_group,
            };
            client.patch::<Template>(&path(&name), &[], &request).map(|_| ())
        }
        TemplateCommand::Delete { name } => client.delete(&path(&name), &[]),
    }
}

fn path(name: &str) -> String {
    format!("/v1/templates/{}", segment(name))
}

fn replicas(template: &Template) -> String {
    let classes: Vec<String> = template.replicas.iter().map(|class| volume::class(Some(*class))).collect();
    classes.join(",")
}

fn read_from(template: &Template) -> &'static str {
    match template.read_from {
        TemplateRead::Low => "low",
        TemplateRead::Medium => "medium",
        TemplateRead::High => "high",
        TemplateRead::Fastest => "fastest",
    }
}

fn policy_group(template: &Template) -> String {
    template.qos_policy_group.clone().unwrap_or_else(|| "-".to_owned())
}

fn origin(template: &Template) -> String {
    template.created_at.map_or("built in".to_owned(), |created_at| created_at.to_string())
}

fn description(template: &Template) -> String {
    let fields = [
        ("Template", template.name.clone()),
        ("Replicas", replicas(template)),
        ("Read From", read_from(template).to_owned()),
        ("QoS Policy Group", policy_group(template)),
        ("Volumes", template.volumes.to_string()),
        ("Version", template.version.to_string()),
        ("Created", origin(template)),
    ];
    output::fields(LABEL_WIDTH, &fields)
}

fn table(list: &Items<Template>) -> String {
    let columns = [
        Column::Text("Template"),
        Column::Text("Replicas"),
        Column::Text("Read From"),
        Column::Text("Policy Group"),
        Column::Number("Volumes"),
        Column::Text("Created"),
    ];
    let row = |template: &Template| {
        vec![
            template.name.clone(),
            replicas(template),
            read_from(template).to_owned(),
            policy_group(template),
            template.volumes.to_string(),
            origin(template),
        ]
    };
    output::table(&columns, list.items.iter().map(row))
}
