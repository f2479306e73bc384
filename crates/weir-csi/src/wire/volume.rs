//! Messages about a volume: its size, its use, its content and its place.

use super::{Empty, Map};

/// `CapacityRange`: zero stands for no limit.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct CapacityRange {
    /// Least size in bytes.
    #[prost(int64, tag = "1")]
    pub required_bytes: i64,
    /// Largest size in bytes.
    #[prost(int64, tag = "2")]
    pub limit_bytes: i64,
}

/// `VolumeCapability`: how a volume is to be used.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct VolumeCapability {
    /// As a block device or with a filesystem.
    #[prost(oneof = "AccessType", tags = "1, 2")]
    pub access_type: Option<AccessType>,
    /// By whom.
    #[prost(message, optional, tag = "3")]
    pub access_mode: Option<AccessMode>,
}

/// A block device or a filesystem.
#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum AccessType {
    /// A block device.
    #[prost(message, tag = "1")]
    Block(Empty),
    /// A filesystem.
    #[prost(message, tag = "2")]
    Mount(MountVolume),
}

/// `VolumeCapability.MountVolume`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct MountVolume {
    /// Type of the filesystem; empty for the default one.
    #[prost(string, tag = "1")]
    pub fs_type: String,
    /// Options of the mount.
    #[prost(string, repeated, tag = "2")]
    pub mount_flags: Vec<String>,
}

/// `VolumeCapability.AccessMode`.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct AccessMode {
    /// The mode.
    #[prost(enumeration = "Mode", tag = "1")]
    pub mode: i32,
}

/// `VolumeCapability.AccessMode.Mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum Mode {
    /// None was named.
    Unknown = 0,
    /// One node writes.
    SingleNodeWriter = 1,
    /// One node reads.
    SingleNodeReaderOnly = 2,
    /// Several nodes read.
    MultiNodeReaderOnly = 3,
    /// Several nodes read, and one of them writes.
    MultiNodeSingleWriter = 4,
    /// Several nodes write.
    MultiNodeMultiWriter = 5,
    /// One consumer on one node writes.
    SingleNodeSingleWriter = 6,
    /// Several consumers on one node write.
    SingleNodeMultiWriter = 7,
}

/// `Volume`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Volume {
    /// Size in bytes.
    #[prost(int64, tag = "1")]
    pub capacity_bytes: i64,
    /// Its identity.
    #[prost(string, tag = "2")]
    pub volume_id: String,
    /// Facts for the node.
    #[prost(map = "string, string", tag = "3")]
    pub volume_context: Map,
    /// What it was made of.
    #[prost(message, optional, tag = "4")]
    pub content_source: Option<VolumeContentSource>,
    /// Where it can be used.
    #[prost(message, repeated, tag = "5")]
    pub accessible_topology: Vec<Topology>,
}

/// `VolumeContentSource`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct VolumeContentSource {
    /// The source.
    #[prost(oneof = "Source", tags = "1, 2")]
    pub source: Option<Source>,
}

/// A snapshot or a volume by its identity.
#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum Source {
    /// A snapshot.
    #[prost(message, tag = "1")]
    Snapshot(SourceId),
    /// A volume.
    #[prost(message, tag = "2")]
    Volume(SourceId),
}

/// `VolumeContentSource.SnapshotSource` and `VolumeSource`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct SourceId {
    /// Its identity.
    #[prost(string, tag = "1")]
    pub id: String,
}

/// `Topology`: a place, as keys and values.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Topology {
    /// Its segments.
    #[prost(map = "string, string", tag = "1")]
    pub segments: Map,
}

/// `TopologyRequirement`: where a volume has to be usable.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct TopologyRequirement {
    /// In one of these places at least.
    #[prost(message, repeated, tag = "1")]
    pub requisite: Vec<Topology>,
    /// The best places first.
    #[prost(message, repeated, tag = "2")]
    pub preferred: Vec<Topology>,
}

/// `Snapshot`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Snapshot {
    /// Size of a volume that is made of it, in bytes.
    #[prost(int64, tag = "1")]
    pub size_bytes: i64,
    /// Its identity.
    #[prost(string, tag = "2")]
    pub snapshot_id: String,
    /// The volume that it is of.
    #[prost(string, tag = "3")]
    pub source_volume_id: String,
    /// When it was made.
    #[prost(message, optional, tag = "4")]
    pub creation_time: Option<prost_types::Timestamp>,
    /// Whether volumes can be made of it.
    #[prost(bool, tag = "5")]
    pub ready_to_use: bool,
    /// The group that it was made with.
    #[prost(string, tag = "6")]
    pub group_snapshot_id: String,
}
