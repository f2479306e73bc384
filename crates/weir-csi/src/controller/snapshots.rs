//! Snapshots of volumes.

use tonic::Status;
use weir_api_types::{Snapshot as WeirSnapshot, SnapshotCreate, SnapshotList, Volume};

use super::paging::{page, position};
use crate::failure::required;
use crate::objects::Objects;
use crate::rpc::Answer;
use crate::wire::*;

/// Key of whether mounted filesystems are frozen.
const FREEZE: &str = "freeze";

/// Takes a snapshot. A repeated call finds it.
pub fn create_snapshot(objects: &Objects, request: &CreateSnapshotRequest) -> Answer<CreateSnapshotResponse> {
    let name = required(&request.name, "name")?;
    let volume = objects.volume(required(&request.source_volume_id, "source volume")?)?;
    let freeze = is_frozen(&request.parameters)?;
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
        None => take(objects, &volume, name, freeze)?,
    };
    Ok(CreateSnapshotResponse { snapshot: Some(shown(&snapshot, &volume.id.to_string())) })
}

/// Whether mounted filesystems are frozen for a snapshot: unless its class says `freeze: "false"`.
pub fn is_frozen(parameters: &Map) -> Answer<bool> {
    let mut is_frozen = true;
    // The snapshotter adds names of Kubernetes' objects if it is told to.
    for (key, value) in parameters.iter().filter(|(key, _)| !key.starts_with("csi.storage.k8s.io/")) {
        if key != FREEZE {
            return Err(Status::invalid_argument(format!("'{key}' is not a parameter of a snapshot")));
        }
        let refused = |_| Status::invalid_argument(format!("'{FREEZE}' is 'true' or 'false', not '{value}'"));
        is_frozen = value.parse().map_err(refused)?;
    }
    Ok(is_frozen)
}

fn take(objects: &Objects, volume: &Volume, name: &str, freeze: bool) -> Answer<WeirSnapshot> {
    let request = SnapshotCreate { name: name.to_owned(), volumes: vec![volume.name.clone()], freeze };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filesystems_are_frozen_unless_the_class_says_otherwise() {
        let with = |pairs: &[(&str, &str)]| {
            is_frozen(&pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect())
        };
        assert!(with(&[]).unwrap() && with(&[("csi.storage.k8s.io/volumesnapshot/name", "a")]).unwrap());
        assert!(!with(&[("freeze", "false")]).unwrap());
        for refused in [("freeze", "no"), ("colour", "red")] {
            assert_eq!(with(&[refused]).unwrap_err().code(), tonic::Code::InvalidArgument);
        }
    }
}
