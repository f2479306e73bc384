//! Volumes: created of nothing, a snapshot or another volume; deleted, listed, changed.

use std::collections::BTreeMap;

use tonic::Status;
use uuid::Uuid;
use weir_api_types::{Volume as WeirVolume, VolumeClone, VolumeIoProfile, VolumeLife, VolumeModify};
use weir_volume_options::Specification;

use super::paging::{page, position};
use super::{is_at, is_in, size_in, specification, topology};
use crate::capability::check_all;
use crate::failure::{of_change, required};
use crate::objects::Objects;
use crate::rpc::Answer;
use crate::wire::*;

/// Key of the filesystem in the context of a volume, if the StorageClass names one.
pub const FILESYSTEM: &str = "fs";
/// Parameters that a volume can change while it is in use.
const MUTABLE: &str = "policy_group (qos_policy_group), io_priority (priority_io), io_profile, flush_window, \
    allow_shared_failure_domain, coalesce_fua, repl, template";

/// Creates a volume. A repeated call finds it.
pub fn create_volume(
    objects: &Objects,
    (node, default_bytes): (Uuid, u64),
    request: &CreateVolumeRequest,
) -> Answer<CreateVolumeResponse> {
    let name = required(&request.name, "name")?;
    check_all(&request.volume_capabilities)?;
    if let Some(places) = &request.accessibility_requirements
        && !places.requisite.is_empty()
        && !places.requisite.iter().any(|place| is_at(place, node))
    {
        return Err(Status::resource_exhausted("the volume is wanted where this daemon has no drives"));
    }
    let mut all = request.parameters.clone();
    all.extend(request.mutable_parameters.clone());
    let wanted = specification(name, &all)?;
    if wanted.flush_coalescing().is_some() && wanted.io_profile != Some(VolumeIoProfile::DbRemote) {
        return Err(Status::invalid_argument("options of flushes belong to io_profile=db_remote"));
    }
    let origin = request.volume_content_source.as_ref().map(|source| origin(objects, source)).transpose()?;
    let default_bytes = origin.as_ref().map_or(default_bytes, |origin| origin.size_bytes);
    let size_bytes = size_in(request.capacity_range, default_bytes)?;
    let made = match objects.volume_named(&wanted.name)? {
        Some(volume) => existing(objects, volume, (origin.as_ref(), &wanted), request)?,
        None => match &origin {
            Some(origin) => clone(objects, origin, &wanted, size_bytes)?,
            None => objects.post(&objects.path("volumes", None), &wanted.request(size_bytes))?,
        },
    };
    let made = if origin.is_some() { completed(objects, made, &wanted, size_bytes)? } else { made };
    let mut volume = shown(&made, node, request.volume_content_source.clone());
    if all.keys().any(|key| is_filesystem(key)) {
        volume.volume_context.insert(FILESYSTEM.to_owned(), wanted.filesystem.name().to_owned());
    }
    Ok(CreateVolumeResponse { volume: Some(volume) })
}

fn is_filesystem(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    ["fs", "fstype", "filesystem"].contains(&key.as_str()) || key.ends_with("/fstype")
}

/// What a volume is made of.
struct Origin {
    /// The volume.
    volume: String,
    /// The snapshot, if it is one.
    snapshot: Option<String>,
    /// Name under which the daemon remembers it.
    export_name: String,
    size_bytes: u64,
}

fn origin(objects: &Objects, source: &VolumeContentSource) -> Answer<Origin> {
    match &source.source {
        Some(Source::Volume(SourceId { id })) => {
            let volume = objects.volume(id)?;
            let (export_name, size_bytes) = (volume.export_name, volume.size_bytes);
            Ok(Origin { volume: volume.name, snapshot: None, export_name, size_bytes })
        }
        Some(Source::Snapshot(SourceId { id })) => {
            let found = objects.snapshot(id)?;
            let snapshot = found.ok_or_else(|| Status::not_found(format!("there is no snapshot '{id}'")))?;
            let (export_name, size_bytes) = (snapshot.export_name, snapshot.size_bytes);
            Ok(Origin { volume: snapshot.volume, snapshot: Some(snapshot.name), export_name, size_bytes })
        }
        None => Err(Status::invalid_argument("the call names no source")),
    }
}

/// A volume that is there already, if it is what the call asks for. A clone may lack what [`completed`] adds.
fn existing(
    objects: &Objects,
    volume: WeirVolume,
    (origin, wanted): (Option<&Origin>, &Specification),
    request: &CreateVolumeRequest,
) -> Answer<WeirVolume> {
    let refused = |what: &str| {
        Err(Status::already_exists(format!("volume '{}' exists with another {what}", volume.name)))
    };
    if volume.state != VolumeLife::Online {
        return Err(Status::aborted(format!(
            "volume '{}' is being created or deleted; try again",
            volume.name
        )));
    }
    let is_as_made = origin.is_some_and(|origin| origin.size_bytes == volume.size_bytes);
    let is_to_grow = is_as_made && objects.attachment_of(&volume)?.is_none();
    if !is_in(request.capacity_range, volume.size_bytes) && !is_to_grow {
        return refused("size");
    }
    if volume.cloned_from.as_deref() != origin.map(|origin| origin.export_name.as_str()) {
        return refused("source");
    }
    match wanted.other_profile_key(&volume) {
        Some(key) if origin.is_none() || !may_become(volume.io_profile, wanted.io_profile) => refused(key),
        _ => Ok(volume),
    }
}

/// True if a clone with one I/O profile may be on its way to another: [`clone`] and [`completed`] make it.
fn may_become(actual: VolumeIoProfile, wanted: Option<VolumeIoProfile>) -> bool {
    wanted.is_none_or(|wanted| actual == profile_at_first(wanted) || actual == wanted)
}

/// The I/O profile with which a clone is made. Others need replicas and options that it gets only then.
fn profile_at_first(wanted: VolumeIoProfile) -> VolumeIoProfile {
    if wanted == VolumeIoProfile::Journal { wanted } else { VolumeIoProfile::None }
}

/// Makes a volume of a source.
fn clone(objects: &Objects, origin: &Origin, wanted: &Specification, size_bytes: u64) -> Answer<WeirVolume> {
    if size_bytes < origin.size_bytes {
        return Err(Status::out_of_range(format!(
            "a volume of '{}' has at least its {} bytes",
            origin.export_name, origin.size_bytes
        )));
    }
    let request = VolumeClone {
        name: wanted.name.clone(),
        snapshot: origin.snapshot.clone(),
        qos_policy_group: wanted.policy_group.clone(),
        qos_adaptive_policy_group: None,
        io_profile: wanted.io_profile.map(profile_at_first),
        flush_coalescing: None,
        force: false,
    };
    let path = format!("{}/clones", objects.path("volumes", Some(&origin.volume)));
    objects.post(&path, &request)
}

/// Gives a clone what it cannot be made with: a larger size, other drives, more replicas, an I/O profile
/// that needs them.
fn completed(
    objects: &Objects,
    volume: WeirVolume,
    wanted: &Specification,
    size_bytes: u64,
) -> Answer<WeirVolume> {
    let change = VolumeModify {
        size_bytes: Some(size_bytes).filter(|size_bytes| *size_bytes > volume.size_bytes),
        replicas: wanted.replicas.filter(|replicas| *replicas != volume.replicas),
        io_priority: wanted.io_priority.filter(|class| *class != volume.io_priority),
        template: wanted.template.clone().filter(|template| Some(template) != volume.template.as_ref()),
        io_profile: wanted.io_profile.filter(|profile| *profile != volume.io_profile),
        flush_coalescing: wanted.other_profile_key(&volume).and_then(|_| wanted.flush_coalescing()),
        ..VolumeModify::default()
    };
    match change == VolumeModify::default() {
        true => Ok(volume),
        false => objects.patch(&format!("/v1/volumes/{}", volume.id), &change),
    }
}

fn resize(objects: &Objects, volume: &WeirVolume, size_bytes: u64) -> Answer<WeirVolume> {
    let change = VolumeModify { size_bytes: Some(size_bytes), ..VolumeModify::default() };
    objects.patch(&format!("/v1/volumes/{}", volume.id), &change)
}

/// A volume as CSI shows it.
pub fn shown(volume: &WeirVolume, node: Uuid, source: Option<VolumeContentSource>) -> Volume {
    Volume {
        capacity_bytes: i64::try_from(volume.size_bytes).unwrap_or(i64::MAX),
        volume_id: volume.id.to_string(),
        volume_context: Map::new(),
        content_source: source,
        accessible_topology: vec![topology(node)],
    }
}

/// Deletes a volume. One that is gone is no error.
pub fn delete_volume(objects: &Objects, request: &DeleteRequest) -> Answer<Empty> {
    let id = required(&request.id, "volume")?;
    match objects.volume(id) {
        Err(status) if status.code() == tonic::Code::NotFound => Ok(Empty {}),
        Err(status) => Err(status),
        Ok(volume) => objects.delete(&format!("/v1/volumes/{}", volume.id)).map(|()| Empty {}),
    }
}

/// Lists volumes, with the nodes that they are on.
pub fn list_volumes(
    objects: &Objects,
    node: Uuid,
    request: &ListVolumesRequest,
) -> Answer<ListVolumesResponse> {
    let position_of =
        |volume: &WeirVolume| position(volume.created_at.as_nanosecond(), &volume.id.to_string());
    let (max_entries, token) = (request.max_entries, request.starting_token.as_str());
    let (volumes, next_token) = page(objects.volumes()?, position_of, max_entries, token)?;
    let attached: BTreeMap<String, Uuid> =
        objects.attachments()?.into_iter().map(|attachment| (attachment.volume, attachment.node)).collect();
    let entry = |volume: &WeirVolume| {
        let nodes = attached.get(&volume.name).map(Uuid::to_string).into_iter().collect();
        let status = Some(VolumeStatus { published_node_ids: nodes });
        VolumeEntry { volume: Some(shown(volume, node, None)), status }
    };
    Ok(ListVolumesResponse { entries: volumes.iter().map(entry).collect(), next_token })
}

/// Lets a volume grow. A filesystem on it has to grow on its node too.
pub fn expand(
    objects: &Objects,
    request: &ControllerExpandVolumeRequest,
) -> Answer<ControllerExpandVolumeResponse> {
    let volume = objects.volume(required(&request.volume_id, "volume")?)?;
    if request.capacity_range.is_none() {
        return Err(crate::failure::missing("capacity range"));
    }
    let size_bytes = size_in(request.capacity_range, volume.size_bytes)?;
    let size_bytes = match size_bytes > volume.size_bytes {
        true => resize(objects, &volume, size_bytes).map_err(of_change)?.size_bytes,
        false => volume.size_bytes,
    };
    let is_block = request
        .volume_capability
        .as_ref()
        .is_some_and(|capability| matches!(capability.access_type, Some(AccessType::Block(_))));
    Ok(ControllerExpandVolumeResponse {
        capacity_bytes: i64::try_from(size_bytes).unwrap_or(i64::MAX),
        node_expansion_required: !is_block,
    })
}

/// Changes what a VolumeAttributesClass names. In effect when this call returns, but for moves to other drives, which
/// go on in the background.
pub fn modify(objects: &Objects, request: &ControllerModifyVolumeRequest) -> Answer<Empty> {
    let volume = objects.volume(required(&request.volume_id, "volume")?)?;
    let parameters = &request.mutable_parameters;
    let fixed = ["size", "fs", "filesystem", "fstype", "name"];
    let is_fixed = |key: &&String| fixed.contains(&key.to_ascii_lowercase().as_str());
    if let Some(key) = parameters.keys().find(is_fixed) {
        return Err(Status::invalid_argument(format!("'{key}' cannot be changed; there are: {MUTABLE}")));
    }
    let wanted = specification(&volume.name, parameters)?;
    let change = VolumeModify {
        io_priority: wanted.io_priority,
        io_profile: wanted.io_profile,
        flush_coalescing: wanted.flush_coalescing(),
        replicas: wanted.replicas,
        template: wanted.template,
        qos_policy_group: wanted.policy_group,
        ..VolumeModify::default()
    };
    let changed: Answer<WeirVolume> = objects.patch(&format!("/v1/volumes/{}", volume.id), &change);
    match changed {
        // A name of a policy group or template: what is invalid is the parameter, and it can be taken back.
        Err(status) if status.code() == tonic::Code::NotFound => {
            Err(Status::invalid_argument(status.message().to_owned()))
        }
        changed => changed.map(|_| Empty {}).map_err(of_change),
    }
}
