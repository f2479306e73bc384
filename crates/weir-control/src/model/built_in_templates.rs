//! Built-in templates: they always exist, cannot be changed, and are not stored in the catalogue.

use jiff::Timestamp;
use weir_types::{Class, Name};

use crate::catalogue::Revision;
use crate::error::{ControlError, Outcome};
use crate::model::Versioned;
use crate::records::TemplateRecord;

/// Name of each built-in template, the class of each replica, and the class to read from.
pub(crate) const BUILT_IN: [(&str, [Class; 3], Option<Class>); 3] = [
    ("nvme", [Class::High; 3], None),
    ("hdd", [Class::Low; 3], None),
    ("hybrid", [Class::Low, Class::Low, Class::High], Some(Class::High)),
];

/// All built-in templates, as records.
pub fn records() -> impl Iterator<Item = Versioned<TemplateRecord>> {
    BUILT_IN.iter().map(|(name, replicas, read_from)| {
        let record = TemplateRecord {
            name: Name::new(*name).expect("the names of built-in templates are names"),
            replicas: replicas.to_vec(),
            read_from: *read_from,
            policy_group: None,
            generation: 0,
            created_at: Timestamp::UNIX_EPOCH,
        };
        Versioned { record, revision: Revision::ABSENT }
    })
}

/// The built-in template with this name, compared without regard to case.
fn named(name: &Name) -> Option<&'static str> {
    let found = BUILT_IN.iter().find(|(built_in, ..)| built_in.eq_ignore_ascii_case(name.as_str()));
    found.map(|(built_in, ..)| *built_in)
}

/// True if the name belongs to a built-in template.
pub fn is_built_in(name: &Name) -> bool {
    named(name).is_some()
}

/// Refuses a name that belongs to a built-in template.
pub fn refuse_built_in_name(name: &Name) -> Outcome<()> {
    named(name).map_or(Ok(()), |built_in| {
        Err(ControlError::conflict(format!(
            "template '{built_in}' is built in and always exists; another name is accepted"
        )))
    })
}

/// Refuses to change or delete a built-in template.
pub fn refuse_built_in(record: &TemplateRecord) -> Outcome<()> {
    if !is_built_in(&record.name) {
        return Ok(());
    }
    Err(ControlError::refused(format!(
        "template '{}' is built in and stays as it is; 'template create' makes another, with --replicas {}",
        record.name,
        record.classes()
    )))
}
