//! Request and answer bodies about templates.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use weir_types::Class;

use super::IoPriority;

/// The replicas that a volume reads from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum TemplateRead {
    /// Replicas of class low.
    Low,
    /// Replicas of class medium.
    Medium,
    /// Replicas of class high.
    High,
    /// The fastest replicas.
    Fastest,
}

/// A template: the class of each replica of the volumes that follow it, and the replicas that are read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Template {
    /// Name of the template.
    pub name: String,
    /// Class of each replica, in the order of the replicas.
    pub replicas: Vec<IoPriority>,
    /// Class of the replicas that are read while one of them is in sync, or the fastest.
    pub read_from: TemplateRead,
    /// Policy group that a volume created from the template is bound to. The name is looked up in the tenant
    /// of the volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qos_policy_group: Option<String>,
    /// True if the template always exists and cannot be changed.
    pub built_in: bool,
    /// Number of volumes that follow the template.
    pub volumes: u64,
    /// Version of the template, which grows with each change; 0 if the template is built in.
    #[serde(default)]
    pub version: u64,
    /// Time at which the template was created; absent if it is built in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub created_at: Option<Timestamp>,
}

/// All templates.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct TemplateList {
    /// Templates, ordered by name.
    pub items: Vec<Template>,
    /// Token of the next page, if this page is not the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_page_token: Option<String>,
}

/// A template to create.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TemplateCreate {
    /// Name of the template: 1 to 128 letters, digits, '.', '_' and '-', beginning with a letter or digit.
    #[schema(example = "mixed")]
    pub name: String,
    /// Class of each replica, for 1 to 3 replicas.
    #[schema(min_items = 1, max_items = 3)]
    pub replicas: Vec<IoPriority>,
    /// Class of the replicas that are read, which at least one replica must have; the fastest if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_from: Option<TemplateRead>,
    /// Policy group, fixed or adaptive, that a volume created from the template is bound to. The name is
    /// looked up in the tenant of the volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qos_policy_group: Option<String>,
}

/// Changes of a template; an absent field keeps its value.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TemplateModify {
    /// New class of each replica. The replicas of the template's volumes are moved in the background.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_items = 1, max_items = 3)]
    pub replicas: Option<Vec<IoPriority>>,
    /// New class to read from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_from: Option<TemplateRead>,
    /// New policy group for volumes created later, or 'none'.
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
