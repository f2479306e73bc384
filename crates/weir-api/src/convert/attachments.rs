//! Conversion of control's view of attachments to the API.

use super::FromControl;
use weir_api_types::{AttachMethod, Attachment};
use weir_control::AttachmentView;

impl FromControl<AttachmentView> for Attachment {
    fn from_control(view: AttachmentView) -> Attachment {
        let record = view.record;
        Attachment {
            id: record.id.0,
            tenant: view.tenant.into(),
            volume: view.volume.into(),
            method: method_shown(record.method),
            method_reason: record.method_reason,
            // Until it is made, the device may be another program's.
            device: record.device.filter(|_| record.is_made).map(|device| device.display().to_string()),
            link: record.link.display().to_string(),
            read_only: record.is_read_only,
            consumer: record.consumer,
            node: record.node,
            created_at: record.created_at,
        }
    }
}

/// The method that a request asks for.
pub fn method_asked(method: AttachMethod) -> weir_control::AttachMethod {
    match method {
        AttachMethod::Fuse => weir_control::AttachMethod::Fuse,
        AttachMethod::FuseFile => weir_control::AttachMethod::FuseFile,
        AttachMethod::Nbd => weir_control::AttachMethod::Nbd,
        AttachMethod::Ublk => weir_control::AttachMethod::Ublk,
    }
}

fn method_shown(method: weir_control::AttachMethod) -> AttachMethod {
    match method {
        weir_control::AttachMethod::Fuse => AttachMethod::Fuse,
        weir_control::AttachMethod::FuseFile => AttachMethod::FuseFile,
        weir_control::AttachMethod::Nbd => AttachMethod::Nbd,
        weir_control::AttachMethod::Ublk => AttachMethod::Ublk,
    }
}
