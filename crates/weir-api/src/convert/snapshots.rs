//! Conversion of control's view of snapshots to the API.

use super::{FromControl, IntoApi};
use weir_api_types::Snapshot;
use weir_control::SnapshotView;
impl FromControl<SnapshotView> for Snapshot {
    fn from_control(view: SnapshotView) -> Snapshot {
        let SnapshotView { record, version, of, occupied } = view;
        Snapshot {
            export_name: record.export_name(),
            id: record.id.0,
            version,
            tenant: record.tenant.into(),
            volume: of.volume_name.into(),
            name: record.name.into(),
            size_bytes: record.size_bytes,
            used_bytes: occupied.map(|occupied| occupied.used_bytes),
            unique_bytes: occupied.map(|occupied| occupied.unique_bytes),
            state: record.state.into_api(),
            created_at: record.created_at,
        }
    }
}
