//! Conversion of control's view of templates to the API.

use super::FromControl;
use weir_api_types::{IoPriority, Template};
use weir_control::TemplateView;
impl FromControl<TemplateView> for Template {
    fn from_control(view: TemplateView) -> Template {
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
