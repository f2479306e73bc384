//! Messages of the controller service.

use super::{
    CapacityRange, Int64Value, Map, Snapshot, Topology, TopologyRequirement, Volume, VolumeCapability,
    VolumeContentSource,
};

/// `CreateVolumeRequest`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct CreateVolumeRequest {
    /// Name of the volume: the same one for a repeated call.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Its size.
    #[prost(message, optional, tag = "2")]
    pub capacity_range: Option<CapacityRange>,
    /// How it will be used.
    #[prost(message, repeated, tag = "3")]
    pub volume_capabilities: Vec<VolumeCapability>,
    /// Parameters of the StorageClass.
    #[prost(map = "string, string", tag = "4")]
    pub parameters: Map,
    /// What it is made of.
    #[prost(message, optional, tag = "6")]
    pub volume_content_source: Option<VolumeContentSource>,
    /// Where it has to be usable.
    #[prost(message, optional, tag = "7")]
    pub accessibility_requirements: Option<TopologyRequirement>,
    /// Parameters of the VolumeAttributesClass.
    #[prost(map = "string, string", tag = "8")]
    pub mutable_parameters: Map,
}

/// `CreateVolumeResponse`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct CreateVolumeResponse {
    /// The volume.
    #[prost(message, optional, tag = "1")]
    pub volume: Option<Volume>,
}

/// `DeleteVolumeRequest` and `DeleteSnapshotRequest`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct DeleteRequest {
    /// What to delete.
    #[prost(string, tag = "1")]
    pub id: String,
}

/// `ControllerPublishVolumeRequest`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ControllerPublishVolumeRequest {
    /// The volume.
    #[prost(string, tag = "1")]
    pub volume_id: String,
    /// The node.
    #[prost(string, tag = "2")]
    pub node_id: String,
    /// How it will be used.
    #[prost(message, optional, tag = "3")]
    pub volume_capability: Option<VolumeCapability>,
    /// Whether writes are refused.
    #[prost(bool, tag = "4")]
    pub readonly: bool,
}

/// `ControllerPublishVolumeResponse`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ControllerPublishVolumeResponse {
    /// Facts for the node.
    #[prost(map = "string, string", tag = "1")]
    pub publish_context: Map,
}

/// `ControllerUnpublishVolumeRequest`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ControllerUnpublishVolumeRequest {
    /// The volume.
    #[prost(string, tag = "1")]
    pub volume_id: String,
    /// The node; empty for all nodes.
    #[prost(string, tag = "2")]
    pub node_id: String,
}

/// `ValidateVolumeCapabilitiesRequest`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ValidateVolumeCapabilitiesRequest {
    /// The volume.
    #[prost(string, tag = "1")]
    pub volume_id: String,
    /// Facts that came with it.
    #[prost(map = "string, string", tag = "2")]
    pub volume_context: Map,
    /// Uses to judge.
    #[prost(message, repeated, tag = "3")]
    pub volume_capabilities: Vec<VolumeCapability>,
    /// Parameters of the StorageClass.
    #[prost(map = "string, string", tag = "4")]
    pub parameters: Map,
    /// Parameters of the VolumeAttributesClass.
    #[prost(map = "string, string", tag = "6")]
    pub mutable_parameters: Map,
}

/// `ValidateVolumeCapabilitiesResponse`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ValidateVolumeCapabilitiesResponse {
    /// What holds; absent if anything does not.
    #[prost(message, optional, tag = "1")]
    pub confirmed: Option<Confirmed>,
    /// Why not.
    #[prost(string, tag = "2")]
    pub message: String,
}

/// `ValidateVolumeCapabilitiesResponse.Confirmed`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Confirmed {
    /// Facts that hold.
    #[prost(map = "string, string", tag = "1")]
    pub volume_context: Map,
    /// Uses that work.
    #[prost(message, repeated, tag = "2")]
    pub volume_capabilities: Vec<VolumeCapability>,
    /// Parameters that hold.
    #[prost(map = "string, string", tag = "3")]
    pub parameters: Map,
    /// Mutable parameters that hold.
    #[prost(map = "string, string", tag = "4")]
    pub mutable_parameters: Map,
}

/// `ListVolumesRequest`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ListVolumesRequest {
    /// Most entries of the answer; 0 for all.
    #[prost(int32, tag = "1")]
    pub max_entries: i32,
    /// Token of the answer before.
    #[prost(string, tag = "2")]
    pub starting_token: String,
}

/// `ListVolumesResponse`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ListVolumesResponse {
    /// The volumes.
    #[prost(message, repeated, tag = "1")]
    pub entries: Vec<VolumeEntry>,
    /// Token of the next page; empty at the end.
    #[prost(string, tag = "2")]
    pub next_token: String,
}

/// `ListVolumesResponse.Entry`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct VolumeEntry {
    /// The volume.
    #[prost(message, optional, tag = "1")]
    pub volume: Option<Volume>,
    /// Where it is published.
    #[prost(message, optional, tag = "2")]
    pub status: Option<VolumeStatus>,
}

/// `ListVolumesResponse.VolumeStatus`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct VolumeStatus {
    /// The nodes.
    #[prost(string, repeated, tag = "1")]
    pub published_node_ids: Vec<String>,
}

/// `ControllerModifyVolumeRequest`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ControllerModifyVolumeRequest {
    /// The volume.
    #[prost(string, tag = "1")]
    pub volume_id: String,
    /// Parameters of the VolumeAttributesClass.
    #[prost(map = "string, string", tag = "3")]
    pub mutable_parameters: Map,
}

/// `GetCapacityRequest`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct GetCapacityRequest {
    /// How volumes will be used.
    #[prost(message, repeated, tag = "1")]
    pub volume_capabilities: Vec<VolumeCapability>,
    /// Parameters of the StorageClass.
    #[prost(map = "string, string", tag = "2")]
    pub parameters: Map,
    /// The place.
    #[prost(message, optional, tag = "3")]
    pub accessible_topology: Option<Topology>,
}

/// `GetCapacityResponse`.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct GetCapacityResponse {
    /// Space for volumes, in bytes.
    #[prost(int64, tag = "1")]
    pub available_capacity: i64,
    /// Size of the largest volume, in bytes.
    #[prost(message, optional, tag = "2")]
    pub maximum_volume_size: Option<Int64Value>,
}

/// `CreateSnapshotRequest`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct CreateSnapshotRequest {
    /// The volume.
    #[prost(string, tag = "1")]
    pub source_volume_id: String,
    /// Name of the snapshot.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Parameters of the VolumeSnapshotClass.
    #[prost(map = "string, string", tag = "4")]
    pub parameters: Map,
}

/// `CreateSnapshotResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct CreateSnapshotResponse {
    /// The snapshot.
    #[prost(message, optional, tag = "1")]
    pub snapshot: Option<Snapshot>,
}

/// `ListSnapshotsRequest`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ListSnapshotsRequest {
    /// Most entries of the answer; 0 for all.
    #[prost(int32, tag = "1")]
    pub max_entries: i32,
    /// Token of the answer before.
    #[prost(string, tag = "2")]
    pub starting_token: String,
    /// Only those of this volume.
    #[prost(string, tag = "3")]
    pub source_volume_id: String,
    /// Only this one.
    #[prost(string, tag = "4")]
    pub snapshot_id: String,
}

/// `ListSnapshotsResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ListSnapshotsResponse {
    /// The snapshots.
    #[prost(message, repeated, tag = "1")]
    pub entries: Vec<CreateSnapshotResponse>,
    /// Token of the next page; empty at the end.
    #[prost(string, tag = "2")]
    pub next_token: String,
}

/// `ControllerExpandVolumeRequest`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ControllerExpandVolumeRequest {
    /// The volume.
    #[prost(string, tag = "1")]
    pub volume_id: String,
    /// Its new size.
    #[prost(message, optional, tag = "2")]
    pub capacity_range: Option<CapacityRange>,
    /// How it is used.
    #[prost(message, optional, tag = "4")]
    pub volume_capability: Option<VolumeCapability>,
}

/// `ControllerExpandVolumeResponse`.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct ControllerExpandVolumeResponse {
    /// The size now, in bytes.
    #[prost(int64, tag = "1")]
    pub capacity_bytes: i64,
    /// Whether its filesystem has to grow on the node.
    #[prost(bool, tag = "2")]
    pub node_expansion_required: bool,
}
