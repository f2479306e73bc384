//! Node service: the filesystem of a published volume, and where consumers get it.
//!
//! A volume is staged once, and mounted from there for each consumer. A block device is given as it is.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use tonic::Status;
use uuid::Uuid;
use weir_attach::AttachError;
use weir_attach::filesystem::{self, FilesystemKind, MountOptions};

use crate::capability::{Access, usage_of};
use crate::controller::publishing::{READ_ONLY, device_of};
use crate::controller::topology;
use crate::controller::volumes::FILESYSTEM;
use crate::failure::{of_host, required};
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
    let volume = objects.volume(id)?;
    let device = device_of(objects, &volume)?;
    let Access::Filesystem(kind) = usage.access else { return Ok(Empty {}) };
    let of_class = request.volume_context.get(FILESYSTEM).and_then(|kind| kind.parse().ok());
    let is_read_only = usage.is_read_only || is_to_read(&request.publish_context);
    let found = prepare(&device, kind.or(of_class), is_read_only).map_err(|error| of_host(&error))?;
    let options = MountOptions { is_read_only };
    filesystem::mount(&device, staging, &found, options).map_err(|error| of_host(&error))?;
    // The volume may have grown while it was not mounted, or be a larger clone.
    if !is_read_only {
        filesystem::grow(&device, staging, &found).map_err(|error| of_host(&error))?;
    }
    Ok(Empty {})
}

/// True if the controller has published a volume for reading.
fn is_to_read(context: &Map) -> bool {
    context.get(READ_ONLY).is_some_and(|text| text == "true")
}

/// The filesystem of a device: a new one if it has nothing. Without a kind, any that is there is taken.
fn prepare(device: &Path, kind: Option<FilesystemKind>, is_read_only: bool) -> Result<String, AttachError> {
    if is_read_only {
        return filesystem::prepare(device, None);
    }
    match filesystem::prepare(device, kind) {
        Err(AttachError::NoFilesystem { .. }) => filesystem::prepare(device, Some(FilesystemKind::Ext4)),
        found => found,
    }
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
    let volume = objects.volume(id)?;
    let device = device_of(objects, &volume)?;
    let is_block = usage.access == Access::Block;
    let is_read_only = request.readonly || usage.is_read_only || is_to_read(&request.publish_context);
    if is_block && request.readonly && !is_to_read(&request.publish_context) {
        let message = "a block device can be read-only for all of its consumers alone";
        return Err(Status::invalid_argument(message));
    }
    let source = match is_block {
        true => device,
        false => {
            let staging = PathBuf::from(required(&request.staging_target_path, "staging target path")?);
            check_staged(&device, &staging)?;
            staging
        }
    };
    if usage.is_of_one {
        refuse_elsewhere(&source, target)?;
    }
    // Nothing stays of what is refused.
    create(target, is_block)?;
    let options = MountOptions { is_read_only: is_read_only && !is_block };
    filesystem::bind(&source, target, options).map_err(|error| of_host(&error))?;
    Ok(Empty {})
}

/// Refuses a folder where the volume is not mounted: consumers would write to the disk of the host.
fn check_staged(device: &Path, staging: &Path) -> Answer<()> {
    match filesystem::is_mounted_at(device, staging).map_err(|error| of_host(&error))? {
        true => Ok(()),
        false => {
            Err(Status::failed_precondition(format!("the volume is not staged at {}", staging.display())))
        }
    }
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
    let real = |place: &Path| place.canonicalize().unwrap_or_else(|_| place.to_owned());
    let (source, target) = (real(source), real(target));
    match places.iter().find(|place| **place != source && **place != target) {
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
        let grown = grow(&device_of(objects, &volume)?, path);
        grown.map_err(|error| of_host(&error))?;
    }
    let capacity_bytes = i64::try_from(volume.size_bytes).unwrap_or(i64::MAX);
    Ok(NodeExpandVolumeResponse { capacity_bytes })
}

fn grow(device: &Path, place: &Path) -> Result<(), AttachError> {
    let kind = filesystem::probe(device)?.unwrap_or_default();
    filesystem::grow(device, place, &kind)
}
