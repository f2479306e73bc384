//! The bodies that concern templates.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use weir_types::Class;

use super::IoPriority;
use crate::control::TemplateView;

/// From which replicas is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum TemplateRead {
    /// Those of class low.
    Low,
    /// Those of class medium.
    Medium,
    /// Those of class high.
    High,
    /// The fastest.
    Fastest,
}

/// A template: where each replica of the volumes that follow it lives, and which is read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Template {
    /// Its name.
    pub name: String,
    /// The class of each replica, in the order of the replicas.
    pub replicas: Vec<IoPriority>,
    /// The class of the replicas that are read as long as one of them has everything, or the fastest.
    pub read_from: TemplateRead,
    /// The policy group, of the tenant of each, that volumes are bound to which are made from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qos_policy_group: Option<String>,
    /// True if it always exists and cannot be changed.
    pub built_in: bool,
    /// Number of volumes that follow it.
    pub volumes: u64,
    /// Its version, which grows with each change of it; 0 if it is built in.
    #[serde(default)]
    pub version: u64,
    /// When it was made; absent if it is built in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub created_at: Option<Timestamp>,
}

/// All templates.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct TemplateList {
    /// The templates in the order of their names.
    pub templates: Vec<Template>,
}

/// What a new template should be.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TemplateCreate {
    /// Its name: 1 to 128 letters, digits, '.', '_' and '-', beginning with a letter or digit.
    #[schema(example = "mixed")]
    pub name: String,
    /// The class of each replica, 1 to 3 of them.
    #[schema(min_items = 1, max_items = 3)]
    pub replicas: Vec<IoPriority>,
    /// The class of the replicas that are read, which one of them must have; the fastest if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_from: Option<TemplateRead>,
    /// The policy group, fixed or adaptive, of the tenant of each that volumes are bound to which are made from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qos_policy_group: Option<String>,
}

/// What should become different about a template; what is absent stays.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TemplateModify {
    /// Other classes: the replicas of its volumes are moved there in the background.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_items = 1, max_items = 3)]
    pub replicas: Option<Vec<IoPriority>>,
    /// Another class to read from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_from: Option<TemplateRead>,
    /// Another policy group for volumes to come, or 'none'.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qos_policy_group: Option<String>,
}

impl From<TemplateRead> for Option<Class> {
    fn from(read: TemplateRead) -> Option<Class> {
        match read {
            TemplateRead::Low => Some(Class::Low),
            TemplateRead::Medium => Some(Class::Medium),
            TemplateRead::High => Some(Class::High),
            TemplateRead::Fastest => None,
        }
    }
}

impl From<Option<Class>> for TemplateRead {
    fn from(class: Option<Class>) -> TemplateRead {
        match class {
            Some(Class::Low) => TemplateRead::Low,
            Some(Class::Medium) => TemplateRead::Medium,
            Some(Class::High) => TemplateRead::High,
            None => TemplateRead::Fastest,
        }
    }
}

impl From<TemplateView> for Template {
    fn from(view: TemplateView) -> Template {
        let record = view.record;
        Template {
            name: record.name.into(),
            replicas: record.replicas.into_iter().map(IoPriority::from).collect(),
            read_from: record.read_from.into(),
            qos_policy_group: record.policy_group.map(String::from),
            built_in: view.is_built_in,
            volumes: view.volumes as u64,
            version: view.version,
            created_at: (!view.is_built_in).then_some(record.created_at),
        }
    }
}
