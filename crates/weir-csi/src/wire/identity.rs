//! Messages of the identity service.

use super::{BoolValue, Map};

/// `GetPluginInfoResponse`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct GetPluginInfoResponse {
    /// Name of the driver.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Version of the driver.
    #[prost(string, tag = "2")]
    pub vendor_version: String,
    /// More facts.
    #[prost(map = "string, string", tag = "3")]
    pub manifest: Map,
}

/// `GetPluginCapabilitiesResponse`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct GetPluginCapabilitiesResponse {
    /// Services, and when volumes can grow.
    #[prost(message, repeated, tag = "1")]
    pub capabilities: Vec<PluginCapability>,
}

/// `PluginCapability`.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct PluginCapability {
    /// The capability.
    #[prost(oneof = "PluginCapabilityKind", tags = "1, 2")]
    pub kind: Option<PluginCapabilityKind>,
}

/// A capability of the driver.
#[derive(Clone, Copy, PartialEq, Eq, prost::Oneof)]
pub enum PluginCapabilityKind {
    /// A service.
    #[prost(message, tag = "1")]
    Service(Capability),
    /// When volumes can grow.
    #[prost(message, tag = "2")]
    VolumeExpansion(Capability),
}

/// A capability by number, in the form of several messages of CSI.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Capability {
    /// Its number.
    #[prost(int32, tag = "1")]
    pub kind: i32,
}

/// A list of capabilities of a service: `ControllerGetCapabilitiesResponse` and its likes.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Capabilities {
    /// The capabilities.
    #[prost(message, repeated, tag = "1")]
    pub capabilities: Vec<ServiceCapability>,
}

/// A capability of a service: `ControllerServiceCapability` and its likes.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct ServiceCapability {
    /// The call that it stands for.
    #[prost(message, optional, tag = "1")]
    pub rpc: Option<Capability>,
}

impl Capabilities {
    /// The list of these numbers.
    pub fn of(kinds: &[i32]) -> Capabilities {
        let capability = |kind: &i32| ServiceCapability { rpc: Some(Capability { kind: *kind }) };
        Capabilities { capabilities: kinds.iter().map(capability).collect() }
    }
}

/// `ProbeResponse`.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct ProbeResponse {
    /// Whether the driver can serve.
    #[prost(message, optional, tag = "1")]
    pub ready: Option<BoolValue>,
}
