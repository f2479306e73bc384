//! Publishing: a volume is attached to a node, so that the node has its block device.

use tonic::Status;
use uuid::Uuid;
use weir_api_types::{AttachMethod, Attachment, AttachmentCreate, Volume};

use crate::capability::usage_of;
use crate::failure::required;
use crate::objects::Objects;
use crate::rpc::Answer;
use crate::wire::*;

/// Key of the path of the block device, for the node.
pub const DEVICE: &str = "device";
/// The driver as a consumer of attachments.
const CONSUMER: &str = "csi";

/// Attaches a volume. A repeated call finds its attachment.
pub fn publish(
    objects: &Objects,
    node: Uuid,
    request: &ControllerPublishVolumeRequest,
) -> Answer<ControllerPublishVolumeResponse> {
    let id = required(&request.volume_id, "volume")?;
    let node_id = required(&request.node_id, "node")?;
    let usage = usage_of(request.volume_capability.as_ref())?;
    let volume = objects.volume(id)?;
    check_node(node, node_id)?;
    let is_read_only = request.readonly || usage.is_read_only;
    let attachment = match objects.attachment_of(&volume)? {
        Some(attachment) => existing(&volume, attachment, is_read_only)?,
        None => attach(objects, &volume, is_read_only)?,
    };
    let publish_context = Map::from([(DEVICE.to_owned(), attachment.link)]);
    Ok(ControllerPublishVolumeResponse { publish_context })
}

fn check_node(node: Uuid, asked: &str) -> Answer<()> {
    match asked == node.to_string() {
        true => Ok(()),
        false => Err(Status::not_found(format!("there is no node '{asked}'"))),
    }
}

/// An attachment that is there already, if it is what the call asks for.
fn existing(volume: &Volume, attachment: Attachment, is_read_only: bool) -> Answer<Attachment> {
    if attachment.consumer != CONSUMER || attachment.method == AttachMethod::FuseFile {
        let (name, consumer) = (&volume.name, &attachment.consumer);
        return Err(Status::failed_precondition(format!(
            "volume '{name}' is attached by '{consumer}'; 'weir detach {name}' ends that"
        )));
    }
    if attachment.read_only != is_read_only {
        return Err(Status::already_exists(format!(
            "volume '{}' is published with other access",
            volume.name
        )));
    }
    Ok(attachment)
}

fn attach(objects: &Objects, volume: &Volume, is_read_only: bool) -> Answer<Attachment> {
    let path = format!("{}/attachments", objects.path("volumes", Some(&volume.name)));
    let request = AttachmentCreate {
        method: AttachMethod::Fuse,
        read_only: is_read_only,
        consumer: Some(CONSUMER.to_owned()),
    };
    objects.post(&path, &request)
}

/// Detaches a volume. One that is not attached, or gone, is no error.
pub fn unpublish(objects: &Objects, request: &ControllerUnpublishVolumeRequest) -> Answer<Empty> {
    let volume = match objects.volume(required(&request.volume_id, "volume")?) {
        Err(status) if status.code() == tonic::Code::NotFound => return Ok(Empty {}),
        found => found?,
    };
    let attachment = objects.attachment_of(&volume)?.filter(|attachment| attachment.consumer == CONSUMER);
    let Some(attachment) = attachment else { return Ok(Empty {}) };
    objects.delete(&format!("/v1/attachments/{}", attachment.id)).map(|()| Empty {})
}
