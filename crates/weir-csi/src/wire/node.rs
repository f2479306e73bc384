//! Messages of the node service.

use super::{CapacityRange, Map, Topology, VolumeCapability};

/// `NodeStageVolumeRequest`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct NodeStageVolumeRequest {
    /// The volume.
    #[prost(string, tag = "1")]
    pub volume_id: String,
    /// Facts of the controller.
    #[prost(map = "string, string", tag = "2")]
    pub publish_context: Map,
    /// Where to mount it for the node.
    #[prost(string, tag = "3")]
    pub staging_target_path: String,
    /// How it will be used.
    #[prost(message, optional, tag = "4")]
    pub volume_capability: Option<VolumeCapability>,
    /// Facts of the volume.
    #[prost(map = "string, string", tag = "6")]
    pub volume_context: Map,
}

/// `NodeUnstageVolumeRequest` and `NodeUnpublishVolumeRequest`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct NodeRemoveRequest {
    /// The volume.
    #[prost(string, tag = "1")]
    pub volume_id: String,
    /// Where it is.
    #[prost(string, tag = "2")]
    pub path: String,
}

/// `NodePublishVolumeRequest`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct NodePublishVolumeRequest {
    /// The volume.
    #[prost(string, tag = "1")]
    pub volume_id: String,
    /// Facts of the controller.
    #[prost(map = "string, string", tag = "2")]
    pub publish_context: Map,
    /// Where it is mounted for the node.
    #[prost(string, tag = "3")]
    pub staging_target_path: String,
    /// Where a consumer gets it.
    #[prost(string, tag = "4")]
    pub target_path: String,
    /// How it will be used.
    #[prost(message, optional, tag = "5")]
    pub volume_capability: Option<VolumeCapability>,
    /// Whether writes are refused.
    #[prost(bool, tag = "6")]
    pub readonly: bool,
}

/// `NodeGetVolumeStatsRequest`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct NodeGetVolumeStatsRequest {
    /// The volume.
    #[prost(string, tag = "1")]
    pub volume_id: String,
    /// Where it is.
    #[prost(string, tag = "2")]
    pub volume_path: String,
}

/// `NodeGetVolumeStatsResponse`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct NodeGetVolumeStatsResponse {
    /// Use of space and inodes.
    #[prost(message, repeated, tag = "1")]
    pub usage: Vec<VolumeUsage>,
}

/// `VolumeUsage`.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct VolumeUsage {
    /// Free amount.
    #[prost(int64, tag = "1")]
    pub available: i64,
    /// Whole amount.
    #[prost(int64, tag = "2")]
    pub total: i64,
    /// Used amount.
    #[prost(int64, tag = "3")]
    pub used: i64,
    /// What is counted.
    #[prost(enumeration = "Unit", tag = "4")]
    pub unit: i32,
}

/// `VolumeUsage.Unit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum Unit {
    /// None.
    Unknown = 0,
    /// Bytes.
    Bytes = 1,
    /// Inodes.
    Inodes = 2,
}

/// `NodeGetInfoResponse`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct NodeGetInfoResponse {
    /// Identity of the node.
    #[prost(string, tag = "1")]
    pub node_id: String,
    /// Most volumes of the node.
    #[prost(int64, tag = "2")]
    pub max_volumes_per_node: i64,
    /// Place of the node.
    #[prost(message, optional, tag = "3")]
    pub accessible_topology: Option<Topology>,
}

/// `NodeExpandVolumeRequest`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct NodeExpandVolumeRequest {
    /// The volume.
    #[prost(string, tag = "1")]
    pub volume_id: String,
    /// Where it is.
    #[prost(string, tag = "2")]
    pub volume_path: String,
    /// Its new size.
    #[prost(message, optional, tag = "3")]
    pub capacity_range: Option<CapacityRange>,
    /// Where it is mounted for the node.
    #[prost(string, tag = "4")]
    pub staging_target_path: String,
    /// How it is used.
    #[prost(message, optional, tag = "5")]
    pub volume_capability: Option<VolumeCapability>,
}

/// `NodeExpandVolumeResponse`.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct NodeExpandVolumeResponse {
    /// The size now, in bytes.
    #[prost(int64, tag = "1")]
    pub capacity_bytes: i64,
}
