//! Publishing: a volume is attached to a node, so that the node has its block device.

use std::path::PathBuf;

use tonic::Status;
use uuid::Uuid;
use weir_api_types::{Attachment, AttachmentCreate, Volume};

use crate::capability::{Access, usage_of};
use crate::failure::required;
use crate::objects::Objects;
use crate::rpc::Answer;
use crate::wire::*;

/// Key of whether consumers may only read, for the node.
pub const READ_ONLY: &str = "read_only";
/// The driver as a consumer of attachments.
const CONSUMER: &str = "csi";
/// The same, for consumers that only read. A filesystem needs a device that can be written: to read it, its journal is
/// replayed first.
const READING_CONSUMER: &str = "csi, read-only";

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
    let is_read_only = request.readonly || usage.is_read_only || volume.read_only;
    let wanted = AttachmentCreate {
        method: None,
        read_only: volume.read_only || is_read_only && usage.access == Access::Block,
        consumer: Some(if is_read_only { READING_CONSUMER } else { CONSUMER }.to_owned()),
    };
    match objects.attachment_of(&volume)? {
        Some(attachment) => check_existing(&volume, &attachment, &wanted)?,
        None => {
            let path = format!("{}/attachments", objects.path("volumes", Some(&volume.name)));
            let _: Attachment = objects.post(&path, &wanted)?;
        }
    }
    let publish_context = Map::from([(READ_ONLY.to_owned(), is_read_only.to_string())]);
    Ok(ControllerPublishVolumeResponse { publish_context })
}

/// The block device of a published volume.
pub fn device_of(objects: &Objects, volume: &Volume) -> Answer<PathBuf> {
    let attachment = objects.attachment_of(volume)?.filter(is_own);
    let device = attachment.and_then(|attachment| attachment.device).map(PathBuf::from);
    let unpublished = || Status::failed_precondition(format!("volume '{}' is not published", volume.name));
    device.ok_or_else(unpublished)
}

fn is_own(attachment: &Attachment) -> bool {
    [CONSUMER, READING_CONSUMER].contains(&attachment.consumer.as_str())
}

fn check_node(node: Uuid, asked: &str) -> Answer<()> {
    match asked == node.to_string() {
        true => Ok(()),
        false => Err(Status::not_found(format!("there is no node '{asked}'"))),
    }
}

/// Checks that an attachment is what a call asks for.
fn check_existing(volume: &Volume, attachment: &Attachment, wanted: &AttachmentCreate) -> Answer<()> {
    let name = &volume.name;
    if !is_own(attachment) {
        let consumer = &attachment.consumer;
        return Err(Status::failed_precondition(format!(
            "volume '{name}' is attached by '{consumer}'; 'weir detach {name}' ends that"
        )));
    }
    if attachment.read_only != wanted.read_only || Some(&attachment.consumer) != wanted.consumer.as_ref() {
        return Err(Status::already_exists(format!("volume '{name}' is published with other access")));
    }
    match attachment.device {
        Some(_) => Ok(()),
        None => Err(Status::aborted(format!("volume '{name}' is being attached or detached; try again"))),
    }
}

/// Detaches a volume. One that is not attached, or gone, is no error.
pub fn unpublish(objects: &Objects, request: &ControllerUnpublishVolumeRequest) -> Answer<Empty> {
    let volume = match objects.volume(required(&request.volume_id, "volume")?) {
        Err(status) if status.code() == tonic::Code::NotFound => return Ok(Empty {}),
        found => found?,
    };
    let attachment = objects.attachment_of(&volume)?.filter(is_own);
    let Some(attachment) = attachment else { return Ok(Empty {}) };
    objects.delete(&format!("/v1/attachments/{}", attachment.id)).map(|()| Empty {})
}
