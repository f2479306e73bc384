//! Conversion of control's view of bound cgroups to the API.

use super::FromControl;
use weir_api_types::{CgroupBinding, CgroupOperations};
use weir_control::CgroupBindingView;
use weir_engine_interface::statistics;

impl FromControl<CgroupBindingView> for CgroupBinding {
    fn from_control(view: CgroupBindingView) -> CgroupBinding {
        CgroupBinding {
            id: view.record.id.0,
            tenant: view.tenant.into(),
            volume: view.volume.into(),
            cgroup: view.record.folder.display().to_string(),
            policy_group: view.policy_group.map(String::from).unwrap_or_default(),
            read: operations(view.totals.read),
            write: operations(view.totals.write),
            other: operations(view.totals.other),
            version: view.version,
            created_at: view.record.created_at,
        }
    }
}

fn operations(totals: statistics::CgroupOperations) -> CgroupOperations {
    let statistics::CgroupOperations { operations, bytes, delayed_ns } = totals;
    CgroupOperations { operations, bytes, delayed_ns }
}
