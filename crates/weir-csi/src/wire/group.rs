//! Messages of the group controller service.

use super::{Map, Snapshot};

/// `CreateVolumeGroupSnapshotRequest`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct CreateVolumeGroupSnapshotRequest {
    /// Name of the group.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The volumes.
    #[prost(string, repeated, tag = "2")]
    pub source_volume_ids: Vec<String>,
    /// Parameters of the VolumeGroupSnapshotClass.
    #[prost(map = "string, string", tag = "4")]
    pub parameters: Map,
}

/// `GetVolumeGroupSnapshotRequest` and `DeleteVolumeGroupSnapshotRequest`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct VolumeGroupSnapshotRequest {
    /// The group.
    #[prost(string, tag = "1")]
    pub group_snapshot_id: String,
    /// Its snapshots.
    #[prost(string, repeated, tag = "2")]
    pub snapshot_ids: Vec<String>,
}

/// `CreateVolumeGroupSnapshotResponse` and `GetVolumeGroupSnapshotResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct VolumeGroupSnapshotResponse {
    /// The group.
    #[prost(message, optional, tag = "1")]
    pub group_snapshot: Option<VolumeGroupSnapshot>,
}

/// `VolumeGroupSnapshot`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct VolumeGroupSnapshot {
    /// Its identity.
    #[prost(string, tag = "1")]
    pub group_snapshot_id: String,
    /// Its snapshots.
    #[prost(message, repeated, tag = "2")]
    pub snapshots: Vec<Snapshot>,
    /// When it was made.
    #[prost(message, optional, tag = "3")]
    pub creation_time: Option<prost_types::Timestamp>,
    /// Whether volumes can be made of it.
    #[prost(bool, tag = "4")]
    pub ready_to_use: bool,
}
