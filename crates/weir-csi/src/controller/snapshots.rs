//! Snapshots of volumes.

use tonic::Status;
use weir_api_types::{Snapshot as WeirSnapshot, SnapshotCreate, SnapshotList, Volume};

use super::paging::{page, position};
use crate::failure::required;
use crate::objects::Objects;
use crate::rpc::Answer;
use crate::wire::*;

/// Takes a snapshot. A repeated call finds it.
pub fn create_snapshot(objects: &Objects, request: &CreateSnapshotRequest) -> Answer<CreateSnapshotResponse> {
    let name = required(&request.name, "name")?;
    let volume = objects.volume(required(&request.source_volume_id, "source volume")?)?;
    refuse_parameters(&request.parameters)?;
    // In CSI, names of snapshots are unique among all volumes.
    let existing = objects.snapshots()?.into_iter().find(|snapshot| snapshot.name == name);
    let snapshot = match existing {
        Some(snapshot) if snapshot.volume == volume.name => snapshot,
        Some(snapshot) => {
            return Err(Status::already_exists(format!(
                "snapshot '{name}' is of volume '{}'",
                snapshot.volume
            )));
        }
        None => take(objects, &volume, name)?,
    };
    Ok(CreateSnapshotResponse { snapshot: Some(shown(&snapshot, &volume.id.to_string())) })
}

/// Refuses parameters: a snapshot has none.
pub fn refuse_parameters(parameters: &Map) -> Answer<()> {
    // The snapshotter adds names of Kubernetes' objects if it is told to.
    match parameters.keys().find(|key| !key.starts_with("csi.storage.k8s.io/")) {
        None => Ok(()),
        Some(key) => Err(Status::invalid_argument(format!("'{key}' is not a parameter of a snapshot"))),
    }
}

fn take(objects: &Objects, volume: &Volume, name: &str) -> Answer<WeirSnapshot> {
    let request = SnapshotCreate { name: name.to_owned(), volumes: vec![volume.name.clone()] };
    let made: SnapshotList = objects.post(&objects.path("snapshots", None), &request)?;
    made.items.into_iter().next().ok_or_else(|| Status::internal("the daemon made no snapshot"))
}

/// A snapshot as CSI shows it.
pub fn shown(snapshot: &WeirSnapshot, volume_id: &str) -> Snapshot {
    let created_at = snapshot.created_at;
    Snapshot {
        size_bytes: i64::try_from(snapshot.size_bytes).unwrap_or(i64::MAX),
        snapshot_id: snapshot.id.to_string(),
        source_volume_id: volume_id.to_owned(),
        creation_time: Some(prost_types::Timestamp {
            seconds: created_at.as_second(),
            nanos: created_at.subsec_nanosecond(),
        }),
        ready_to_use: true,
        group_snapshot_id: String::new(),
    }
}

/// Deletes a snapshot. One that is gone is no error.
pub fn delete_snapshot(objects: &Objects, request: &DeleteRequest) -> Answer<Empty> {
    let Some(snapshot) = objects.snapshot(required(&request.id, "snapshot")?)? else { return Ok(Empty {}) };
    remove(objects, &snapshot).map(|()| Empty {})
}

/// Deletes a snapshot.
pub fn remove(objects: &Objects, snapshot: &WeirSnapshot) -> Answer<()> {
    let of_volume = objects.path("volumes", Some(&snapshot.volume));
    let name = weir_client::segment(&snapshot.name);
    objects.delete(&format!("{of_volume}/snapshots/{name}"))
}

/// Lists snapshots: all, those of a volume, or one.
pub fn list_snapshots(objects: &Objects, request: &ListSnapshotsRequest) -> Answer<ListSnapshotsResponse> {
    let volumes = objects.volumes()?;
    let id_of = |snapshot: &WeirSnapshot| {
        let volume = volumes.iter().find(|volume| volume.name == snapshot.volume);
        volume.map(|volume| volume.id.to_string()).unwrap_or_default()
    };
    let mut snapshots = objects.snapshots()?;
    if !request.snapshot_id.is_empty() {
        snapshots.retain(|snapshot| snapshot.id.to_string() == request.snapshot_id);
    }
    if !request.source_volume_id.is_empty() {
        snapshots.retain(|snapshot| id_of(snapshot) == request.source_volume_id);
    }
    let position_of =
        |snapshot: &WeirSnapshot| position(snapshot.created_at.as_nanosecond(), &snapshot.id.to_string());
    let (snapshots, next_token) = page(snapshots, position_of, request.max_entries, &request.starting_token)?;
    let entry = |snapshot: &WeirSnapshot| CreateSnapshotResponse {
        snapshot: Some(shown(snapshot, &id_of(snapshot))),
    };
    Ok(ListSnapshotsResponse { entries: snapshots.iter().map(entry).collect(), next_token })
}
