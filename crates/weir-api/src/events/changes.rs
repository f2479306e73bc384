//! Changes of clients as events: the object of a change, from its method, path and body.

use serde_json::Value;
use weir_api_types::{EventCode, EventSeverity, ObjectKind, ObjectReference};

use super::Events;
use super::log::NewEvent;

impl Events {
    /// Records a change that a client asked for and that was done.
    pub(in super::super) fn changed(&self, who: &str, method: &str, path: &str, body: &str) {
        self.record(NewEvent {
            code: EventCode::Changed,
            severity: EventSeverity::Information,
            object: object_of(path, body),
            message: format!("{method} {path}"),
            cause: who.to_owned(),
        });
    }
}

/// The object that a change is about.
pub(in super::super) fn object_of(path: &str, body: &str) -> ObjectReference {
    let path = path.split('?').next().unwrap_or(path);
    let parts: Vec<&str> = path.trim_start_matches("/v1/").split('/').collect();
    // The name of a new object is in the body.
    let created =
        serde_json::from_str::<Value>(body).ok().and_then(|body| Some(body["name"].as_str()?.to_owned()));
    let object = |kind, tenant: Option<&str>, name: Option<&str>| ObjectReference {
        kind,
        id: None,
        tenant: tenant.map(str::to_owned),
        name: name.map(str::to_owned).or(created.clone()),
    };
    match parts[..] {
        ["tenants", tenant, "volumes", volume, "snapshots", snapshot, ..] => {
            let name = format!("{volume}@{snapshot}");
            object(ObjectKind::Snapshot, Some(tenant), Some(&name))
        }
        ["tenants", tenant, "volumes", volume, "clones"] => {
            let name = created.clone().unwrap_or_else(|| volume.to_owned());
            object(ObjectKind::Volume, Some(tenant), Some(&name))
        }
        ["tenants", tenant, noun, ref name @ ..] if kind_of_tenant(noun).is_some() => {
            let kind = kind_of_tenant(noun).unwrap_or(ObjectKind::Tenant);
            object(kind, Some(tenant), name.first().copied())
        }
        ["volumes", id, ..] => {
            ObjectReference { id: id.parse().ok(), ..object(ObjectKind::Volume, None, None) }
        }
        [noun, ref name @ ..] => object(kind(noun), None, name.first().copied()),
        [] => ObjectReference::daemon(),
    }
}

fn kind_of_tenant(noun: &str) -> Option<ObjectKind> {
    match noun {
        "volumes" => Some(ObjectKind::Volume),
        "snapshots" => Some(ObjectKind::Snapshot),
        "policy-groups" => Some(ObjectKind::PolicyGroup),
        "adaptive-policy-groups" => Some(ObjectKind::AdaptivePolicyGroup),
        _ => None,
    }
}

fn kind(noun: &str) -> ObjectKind {
    match noun {
        "tenants" => ObjectKind::Tenant,
        "drives" => ObjectKind::Drive,
        "pools" => ObjectKind::Pool,
        "templates" => ObjectKind::Template,
        "background-policies" => ObjectKind::BackgroundPolicy,
        "policies" => ObjectKind::Policies,
        _ => ObjectKind::Daemon,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn object_of_a_change_is_read_from_its_path_and_body() {
        for (path, body, expected) in [
            ("/v1/tenants/t/volumes/v?if_version=3", "", "volume t/v"),
            ("/v1/tenants/default/volumes", "{\"name\": \"new\"}", "volume new"),
            ("/v1/tenants/t/volumes/v/scrub", "", "volume t/v"),
            ("/v1/tenants/t/volumes/v/snapshots/s/restore", "", "snapshot t/v@s"),
            ("/v1/tenants/t/volumes/v/clones", "{\"name\": \"twin\"}", "volume t/twin"),
            ("/v1/tenants/t/policy-groups/gold", "", "policy group t/gold"),
            ("/v1/tenants", "{\"name\": \"t\"}", "tenant t"),
            ("/v1/tenants/t", "", "tenant t"),
            ("/v1/drives/d/drain", "", "drive d"),
            ("/v1/pools/p", "not JSON", "pool p"),
            (
                "/v1/volumes/00000000-0000-0000-0000-000000000001",
                "",
                "volume 00000000-0000-0000-0000-000000000001",
            ),
            ("/v1/logging", "", "daemon"),
            ("/", "", "daemon"),
        ] {
            let shown = object_of(path, body).to_string();
            assert!(
                shown == expected || shown.starts_with("daemon") && expected == "daemon",
                "{path}: {shown}"
            );
        }
    }
}
