//! `weir template`: commands about templates.

use super::super::arguments::TemplateCommand;
use super::super::client::{Client, segment};
use super::super::errors::CommandError;
use super::super::output::{self, ListColumn, or_dash};
use super::shown::class;
use weir_api_types::{Template, TemplateCreate, TemplateModify, TemplateRead};

/// Width of the labels of `show`.
const LABEL_WIDTH: usize = 24;

/// Columns of the list.
const COLUMNS: &[ListColumn<Template>] = &[
    ListColumn::text("Template", |template| template.name.clone()),
    ListColumn::text("Replicas", replicas),
    ListColumn::text("Read From", |template| read_from(template).to_owned()),
    ListColumn::text("Policy Group", |template| or_dash(&template.qos_policy_group)),
    ListColumn::number("Volumes", |template| template.volumes.to_string()),
    ListColumn::wide_number("Version", |template| template.version.to_string()),
    ListColumn::text("Created", origin),
];

/// Runs a command about templates.
pub fn run(client: &Client, command: TemplateCommand) -> Result<(), CommandError> {
    match command {
        TemplateCommand::Create { name, replicas, read_from, policy_group } => {
            let request =
                TemplateCreate { name, replicas: replicas.0, read_from, qos_policy_group: policy_group };
            let existing = || client.get(&path(&request.name), &[]).map(Some);
            let template: Template = client.create("/v1/templates", &request, existing)?;
            client.tell(&template.name)
        }
        TemplateCommand::List(read) | TemplateCommand::Show { name: None, read } => {
            output::list(&client.list("/v1/templates", &[])?, read.output, COLUMNS)
        }
        TemplateCommand::Show { name: Some(name), read } => {
            let template: Template = client.get(&path(&name), &[])?;
            output::show(&template, read.output, description)
        }
        TemplateCommand::Modify { name, changes } => {
            let request = TemplateModify {
                replicas: changes.replicas.map(|replicas| replicas.0),
                read_from: changes.read_from,
                qos_policy_group: changes.policy_group,
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
    let classes: Vec<String> = template.replicas.iter().map(|wanted| class(Some(*wanted))).collect();
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

fn origin(template: &Template) -> String {
    template.created_at.map_or("built in".to_owned(), |created_at| created_at.to_string())
}

fn description(template: &Template) -> String {
    let fields = [
        ("Template", template.name.clone()),
        ("Replicas", replicas(template)),
        ("Read From", read_from(template).to_owned()),
        ("Policy Group", or_dash(&template.qos_policy_group)),
        ("Volumes", template.volumes.to_string()),
        ("Version", template.version.to_string()),
        ("Created", origin(template)),
    ];
    output::fields(LABEL_WIDTH, &fields)
}
