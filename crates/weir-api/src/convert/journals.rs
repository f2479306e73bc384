//! Conversion of control's view of journals to the API.

use super::FromControl;
use weir_api_types::Journal;
use weir_control::JournalView;
impl FromControl<JournalView> for Journal {
    fn from_control(view: JournalView) -> Journal {
        Journal {
            id: view.volume.id.0,
            tenant: view.volume.tenant.into(),
            volume: view.volume.name.into(),
            drive: view.drive.into(),
            replicas: view.replicas,
            size_bytes: view.usage.size_bytes,
            used_bytes: view.usage.used_bytes,
            is_empty: view.usage.is_empty,
            has_failed: view.usage.has_failed,
        }
    }
}
