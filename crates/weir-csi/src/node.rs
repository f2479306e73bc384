//! Node service: the filesystem of a published volume, and where consumers get it.
//!
//! A volume is staged once, and mounted from there for each consumer. A block device is given as it is.

use std::fs::{self, File};
use std::path::Path;

use tonic::Status;
use uuid::Uuid;
use weir_attach::AttachError;
use weir_attach::filesystem::{self, MountOptions};

use crate::capability::usage_of;
use crate::controller::publishing::DEVICE;
use crate::controller::topology;
use crate::failure::{missing, of_host, required};
use crate::objects::Objects;
use crate::rpc::Answer;
use crate::wire::*;

/// Stage and unstage, statistics, expansion, several writers.
const CAPABILITIES: [i32; 4] = [1, 2, 3, 5];
/// Most volumes of a node: those that the daemon attaches.
const VOLUMES_MAX: i64 = weir_types::control_bounds::ATTACHMENTS_MAX as i64;

/// What the service can do.
pub fn capabilities() -> Capabilities {
    Capabilities::of(&CAPABILITIES)
}

/// What the node is.
pub fn info(node: Uuid) -> NodeGetInfoResponse {
    NodeGetInfoResponse {
        node_id: node.to_string(),
        max_volumes_per_node: VOLUMES_MAX,
        accessible_topology: Some(topology(node)),
    }
}

/// Mounts a volume for the node, with a new filesystem if it has nothing.
pub fn stage(objects: &Objects, request: &NodeStageVolumeRequest) -> Answer<Empty> {
    let id = required(&request.volume_id, "volume")?;
    let staging = Path::new(required(&request.staging_target_path, "staging target path")?);
    let usage = usage_of(request.volume_capability.as_ref())?;
    objects.volume(id)?;
    let device = device_in(&request.publish_context)?;
    let Some(kind) = usage.filesystem else { return Ok(Empty {}) };
    // A read-only device cannot get a filesystem.
    let kind = Some(kind).filter(|_| !usage.is_read_only);
    let found = filesystem::prepare(device, kind).map_err(|error| of_host(&error))?;
    let options = MountOptions { is_read_only: usage.is_read_only };
    filesystem::mount(device, staging, &found, options).map_err(|error| of_host(&error))?;
    // The volume may have grown while it was not mounted, or be a larger clone.
    if !usage.is_read_only {
        filesystem::grow(device, staging, &found).map_err(|error| of_host(&error))?;
    }
    Ok(Empty {})
}

/// Unmounts a volume from the node. One that is not mounted is no error.
pub fn unstage(request: &NodeRemoveRequest) -> Answer<Empty> {
    required(&request.volume_id, "volume")?;
    let staging = Path::new(required(&request.path, "staging target path")?);
    filesystem::unmount(staging).map_err(|error| of_host(&error))?;
    Ok(Empty {})
}

/// Gives a volume to a consumer.
pub fn publish(objects: &Objects, request: &NodePublishVolumeRequest) -> Answer<Empty> {
    let id = required(&request.volume_id, "volume")?;
    let target = Path::new(required(&request.target_path, "target path")?);
    let usage = usage_of(request.volume_capability.as_ref())?;
    objects.volume(id)?;
    let is_read_only = request.readonly || usage.is_read_only;
    let is_block = usage.filesystem.is_none();
    let source = match is_block {
        true => device_in(&request.publish_context)?,
        false => Path::new(required(&request.staging_target_path, "staging target path")?),
    };
    if usage.is_of_one {
        refuse_elsewhere(source, target)?;
    }
    // Nothing stays of what is refused.
    create(target, is_block)?;
    filesystem::bind(source, target, MountOptions { is_read_only }).map_err(|error| of_host(&error))?;
    Ok(Empty {})
}

/// Creates a place: a folder, or a file for a block device.
fn create(place: &Path, is_file: bool) -> Answer<()> {
    let folder = if is_file { place.parent().unwrap_or(place) } else { place };
    let created = fs::create_dir_all(folder).and_then(|()| match is_file {
        true => File::options().create(true).append(true).open(place).map(drop),
        false => Ok(()),
    });
    created.map_err(|error| Status::internal(format!("cannot create {}: {error}", place.display())))
}

/// Refuses a volume of one consumer that another one has.
fn refuse_elsewhere(source: &Path, target: &Path) -> Answer<()> {
    let places = filesystem::places_bound_to(source).map_err(|error| of_host(&error))?;
    match places.iter().find(|place| *place != source && *place != target) {
        None => Ok(()),
        Some(other) => Err(Status::failed_precondition(format!(
            "the volume is for one consumer, who has it at {}",
            other.display()
        ))),
    }
}

/// Takes a volume from a consumer. One that is not there is no error.
pub fn unpublish(request: &NodeRemoveRequest) -> Answer<Empty> {
    required(&request.volume_id, "volume")?;
    let target = Path::new(required(&request.path, "target path")?);
    filesystem::unmount(target).map_err(|error| of_host(&error))?;
    let removed = if target.is_dir() { fs::remove_dir(target) } else { fs::remove_file(target) };
    match removed {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Status::internal(format!("cannot remove {}: {error}", target.display())))
        }
        _ => Ok(Empty {}),
    }
}

/// The block device of a published volume.
fn device_in(context: &Map) -> Answer<&Path> {
    context.get(DEVICE).map(Path::new).ok_or_else(|| missing("block device in the publish context"))
}

/// How much of a volume is used.
pub fn statistics(
    objects: &Objects,
    request: &NodeGetVolumeStatsRequest,
) -> Answer<NodeGetVolumeStatsResponse> {
    let id = required(&request.volume_id, "volume")?;
    let path = Path::new(required(&request.volume_path, "volume path")?);
    let volume = objects.volume(id)?;
    let found = fs::metadata(path)
        .map_err(|_| Status::not_found(format!("volume '{}' is not at {}", volume.name, path.display())))?;
    let count = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    if !found.is_dir() {
        let total = count(volume.size_bytes);
        let used = count(volume.used_bytes.unwrap_or(0));
        let usage = VolumeUsage { available: total - used, total, used, unit: Unit::Bytes.into() };
        return Ok(NodeGetVolumeStatsResponse { usage: vec![usage] });
    }
    let found = rustix::fs::statvfs(path)
        .map_err(|error| Status::internal(format!("cannot examine {}: {error}", path.display())))?;
    let usage = |available: u64, total: u64, free: u64, unit: Unit| VolumeUsage {
        available: count(available),
        total: count(total),
        used: count(total - free),
        unit: unit.into(),
    };
    let bytes = |blocks: u64| blocks * found.f_frsize;
    let of_bytes = usage(bytes(found.f_bavail), bytes(found.f_blocks), bytes(found.f_bfree), Unit::Bytes);
    let of_inodes = usage(found.f_favail, found.f_files, found.f_ffree, Unit::Inodes);
    Ok(NodeGetVolumeStatsResponse { usage: vec![of_bytes, of_inodes] })
}

/// Lets the filesystem of a volume grow to the size of the volume.
pub fn expand(objects: &Objects, request: &NodeExpandVolumeRequest) -> Answer<NodeExpandVolumeResponse> {
    let id = required(&request.volume_id, "volume")?;
    let path = Path::new(required(&request.volume_path, "volume path")?);
    let volume = objects.volume(id)?;
    if !path.exists() {
        return Err(Status::not_found(format!("volume '{}' is not at {}", volume.name, path.display())));
    }
    if path.is_dir() {
        let attachment = objects.attachment_of(&volume)?;
        let device = attachment.and_then(|attachment| attachment.device);
        let device = device.ok_or_else(|| Status::failed_precondition("the volume is not published"))?;
        let grown = grow(Path::new(&device), path);
        grown.map_err(|error| of_host(&error))?;
    }
    let capacity_bytes = i64::try_from(volume.size_bytes).unwrap_or(i64::MAX);
    Ok(NodeExpandVolumeResponse { capacity_bytes })
}

fn grow(device: &Path, place: &Path) -> Result<(), AttachError> {
    let kind = filesystem::probe(device)?.unwrap_or_default();
    filesystem::grow(device, place, &kind)
}
