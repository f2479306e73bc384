//! Snapshots of several volumes at the same instant. A group has no record of its own: its snapshots have its name, which is
//! its identity too.

use std::collections::BTreeSet;

use tonic::Status;
use weir_api_types::{Snapshot as WeirSnapshot, SnapshotCreate, SnapshotList, Volume};

use super::snapshots::{is_frozen, remove, shown};
use crate::failure::{missing, required};
use crate::objects::Objects;
use crate::rpc::Answer;
use crate::wire::*;

/// `CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT`.
const CAPABILITIES: [i32; 1] = [1];

/// What the service can do.
pub fn group_capabilities() -> Capabilities {
    Capabilities::of(&CAPABILITIES)
}

/// Takes snapshots of volumes at the same instant. A repeated call finds them.
pub fn create_group(
    objects: &Objects,
    request: &CreateVolumeGroupSnapshotRequest,
) -> Answer<VolumeGroupSnapshotResponse> {
    let name = required(&request.name, "name")?;
    if request.source_volume_ids.is_empty() {
        return Err(missing("source volumes"));
    }
    let freeze = is_frozen(&request.parameters)?;
    let volumes: Vec<Volume> =
        request.source_volume_ids.iter().map(|id| objects.volume(id)).collect::<Answer<_>>()?;
    let wanted: BTreeSet<&str> = volumes.iter().map(|volume| volume.name.as_str()).collect();
    let existing = members(objects, name)?;
    let found: BTreeSet<&str> = existing.iter().map(|snapshot| snapshot.volume.as_str()).collect();
    let snapshots = if found.is_empty() {
        let names = wanted.iter().map(|&name| name.to_owned()).collect();
        let request = SnapshotCreate { name: name.to_owned(), volumes: names, freeze };
        objects.post::<SnapshotList>(&objects.path("snapshots", None), &request)?.items
    } else if found == wanted {
        existing
    } else {
        return Err(Status::already_exists(format!("snapshots '{name}' are of other volumes")));
    };
    group(objects, name, &snapshots)
}

/// Shows a group.
pub fn get_group(
    objects: &Objects,
    request: &VolumeGroupSnapshotRequest,
) -> Answer<VolumeGroupSnapshotResponse> {
    let id = required(&request.group_snapshot_id, "group")?;
    let snapshots = members(objects, id)?;
    if snapshots.is_empty() {
        return Err(Status::not_found(format!("there is no group '{id}' of snapshots")));
    }
    refuse_strangers(&snapshots, &request.snapshot_ids)?;
    group(objects, id, &snapshots)
}

/// Deletes a group with its snapshots. One that is gone is no error.
pub fn delete_group(objects: &Objects, request: &VolumeGroupSnapshotRequest) -> Answer<Empty> {
    let snapshots = members(objects, required(&request.group_snapshot_id, "group")?)?;
    if !snapshots.is_empty() {
        refuse_strangers(&snapshots, &request.snapshot_ids)?;
    }
    snapshots.iter().try_for_each(|snapshot| remove(objects, snapshot)).map(|()| Empty {})
}

fn members(objects: &Objects, group: &str) -> Answer<Vec<WeirSnapshot>> {
    Ok(objects.snapshots()?.into_iter().filter(|snapshot| snapshot.name == group).collect())
}

/// Refuses snapshots that are not of the group.
fn refuse_strangers(members: &[WeirSnapshot], ids: &[String]) -> Answer<()> {
    let is_member = |id: &&String| members.iter().any(|member| member.id.to_string() == **id);
    match ids.iter().find(|id| !is_member(id)) {
        None => Ok(()),
        Some(stranger) => {
            Err(Status::invalid_argument(format!("snapshot '{stranger}' is not of this group")))
        }
    }
}

fn group(objects: &Objects, id: &str, members: &[WeirSnapshot]) -> Answer<VolumeGroupSnapshotResponse> {
    let volumes = objects.volumes()?;
    let snapshots: Vec<Snapshot> = members
        .iter()
        .map(|member| {
            let volume = volumes.iter().find(|volume| volume.name == member.volume);
            let volume_id = volume.map(|volume| volume.id.to_string()).unwrap_or_default();
            Snapshot { group_snapshot_id: id.to_owned(), ..shown(member, &volume_id) }
        })
        .collect();
    let creation_time = snapshots.first().and_then(|snapshot| snapshot.creation_time);
    let group_snapshot = VolumeGroupSnapshot {
        group_snapshot_id: id.to_owned(),
        snapshots,
        creation_time,
        ready_to_use: true,
    };
    Ok(VolumeGroupSnapshotResponse { group_snapshot: Some(group_snapshot) })
}
