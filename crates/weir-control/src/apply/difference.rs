//! Difference of a policy set in words: each changed object, with the old and the new value of its fields.
//!
//! The fields are read from the records, so no field can be forgotten. They have the same names as in the
//! file.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;
use weir_types::{BackgroundKind, BackgroundPolicy, PolicyGroupId};

use crate::apply::{Changes, Plan};
use crate::model::Model;
use crate::records::PolicyGroupRecord;

/// Keys of a policy group's record that are no fields: its identity and name, and Weir's own data.
const NOT_FIELDS: [&str; 7] = ["id", "number", "tenant", "name", "generation", "created_at", "parent"];
/// Placeholder for a field that is not set.
const NONE: &str = "none";

/// Values by field name.
type Fields = BTreeMap<String, String>;

impl Changes {
    /// The difference, one line for each changed object, ordered by section, tenant and name.
    pub(crate) fn describe(&self, model: &Model, plan: &Plan) -> Vec<String> {
        let name = |id: Option<PolicyGroupId>| {
            let planned = id.and_then(|id| plan.groups.get(&id));
            let group = planned.or_else(|| model.group_by_id(id?));
            group.map_or(NONE.to_owned(), |group| group.name.to_string())
        };
        let mut groups: Vec<_> = self
            .groups
            .iter()
            .filter_map(|(old, new)| {
                let record = new.as_ref().or(old.as_ref())?;
                let key = (record.kind(), record.tenant.clone(), record.name.clone());
                let subject = format!("{} {}/{}", record.kind(), record.tenant, record.name);
                let fields = |record: &Option<PolicyGroupRecord>| {
                    record.as_ref().map(|record| group_fields(record, name(record.parent)))
                };
                Some((key, line(&subject, fields(old), fields(new))))
            })
            .collect();
        groups.sort();
        let mut tenants: Vec<_> = self
            .tenants
            .iter()
            .map(|(old, new)| {
                let subject = format!("tenant {}", old.name);
                let fields = |group, default_policy_group| {
                    Fields::from([
                        ("qos_policy_group".to_owned(), name(group)),
                        ("default_policy_group".to_owned(), name(default_policy_group)),
                    ])
                };
                let (old, new) = (
                    fields(old.policy_group, old.default_policy_group),
                    fields(new.policy_group, new.default_policy_group),
                );
                line(&subject, Some(old), Some(new))
            })
            .collect();
        tenants.sort();
        let mut volumes: Vec<_> = self
            .volumes
            .iter()
            .map(|(old, new)| {
                let subject = format!("volume {}", old.export_name());
                let fields = |group| Fields::from([("qos_policy_group".to_owned(), name(group))]);
                line(&subject, Some(fields(old.policy_group)), Some(fields(new.policy_group)))
            })
            .collect();
        volumes.sort();
        let background =
            self.background.iter().map(|(kind, new)| background_line(model, *kind, new.unwrap_or_default()));
        let groups = groups.into_iter().map(|(_, line)| line);
        tenants.into_iter().chain(groups).chain(volumes).chain(background).collect()
    }
}

fn background_line(model: &Model, kind: BackgroundKind, new: BackgroundPolicy) -> String {
    let old = fields_of(&model.background_policy(kind), &[]);
    line(&format!("background policy {kind}"), Some(old), Some(fields_of(&new, &[])))
}

fn group_fields(record: &PolicyGroupRecord, parent: String) -> Fields {
    let mut fields = fields_of(record, &NOT_FIELDS);
    fields.insert("parent".to_owned(), parent);
    fields
}

/// One line of the difference: an object that changes, is added or is removed, with its changed fields.
fn line(subject: &str, old: Option<Fields>, new: Option<Fields>) -> String {
    let sign = match (&old, &new) {
        (None, _) => '+',
        (_, None) => '-',
        _ => '~',
    };
    let (is_new, old, new) = (old.is_none(), old.unwrap_or_default(), new.unwrap_or_default());
    let value = |fields: &Fields, name: &String| fields.get(name).cloned().unwrap_or_else(|| NONE.to_owned());
    let names: std::collections::BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let changed = names.into_iter().filter(|name| value(&old, name) != value(&new, name));
    let words = |name: &String| match is_new {
        true => format!("{name} {}", value(&new, name)),
        false => format!("{name} {} -> {}", value(&old, name), value(&new, name)),
    };
    let changed: Vec<String> = changed.map(words).collect();
    // The fields of a removed object are not shown.
    if changed.is_empty() || sign == '-' {
        return format!("{sign} {subject}");
    }
    format!("{sign} {subject}: {}", changed.join(", "))
}

/// Fields of a record in base units. Nested fields have the name `outer.inner`; an unset field has no entry.
fn fields_of(record: &impl Serialize, without: &[&str]) -> Fields {
    let mut fields = Fields::new();
    if let Ok(Value::Object(object)) = serde_json::to_value(record) {
        let own = object.into_iter().filter(|(name, _)| !without.contains(&name.as_str()));
        own.for_each(|(name, value)| flatten(name, value, &mut fields));
    }
    fields
}

fn flatten(name: String, value: Value, fields: &mut Fields) {
    match value {
        Value::Null => {}
        Value::Object(object) => {
            object.into_iter().for_each(|(inner, value)| flatten(format!("{name}.{inner}"), value, fields));
        }
        Value::String(text) => _ = fields.insert(name, text),
        value => _ = fields.insert(name, value.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(all: &[(&str, &str)]) -> Option<Fields> {
        Some(all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }

    #[test]
    fn changed_field_is_shown_with_old_and_new_value() {
        let old = fields(&[("a", "1"), ("b", "2"), ("c", "3")]);
        let new = fields(&[("a", "1"), ("b", "4"), ("d", "5")]);
        assert_eq!(line("x", old.clone(), new.clone()), "~ x: b 2 -> 4, c 3 -> none, d none -> 5");
        assert_eq!(line("x", None, new), "+ x: a 1, b 4, d 5");
        assert_eq!(line("x", old.clone(), None), "- x");
        assert_eq!(line("x", old.clone(), old), "~ x");
    }

    #[test]
    fn nested_fields_are_named_by_path() {
        let record = serde_json::json!({
            "limits": {"total": {"iops": 5, "bytes_per_second": null}},
            "kind": "fixed",
            "id": 7,
        });
        assert_eq!(
            fields_of(&record, &["id"]),
            fields(&[("kind", "fixed"), ("limits.total.iops", "5")]).unwrap()
        );
    }
}
