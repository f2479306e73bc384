//! Identity service: what the driver is, and whether it can serve.

use weir_api_types::Status;

use crate::objects::Objects;
use crate::rpc::Answer;
use crate::wire::*;

/// `CONTROLLER_SERVICE`, `VOLUME_ACCESSIBILITY_CONSTRAINTS` and `GROUP_CONTROLLER_SERVICE`.
const SERVICES: [i32; 3] = [1, 2, 3];
/// `VolumeExpansion.ONLINE`.
const ONLINE: i32 = 1;

/// What the driver is.
pub fn info(name: &str) -> GetPluginInfoResponse {
    GetPluginInfoResponse {
        name: name.to_owned(),
        vendor_version: env!("CARGO_PKG_VERSION").to_owned(),
        manifest: Map::new(),
    }
}

/// What the driver can do.
pub fn capabilities() -> GetPluginCapabilitiesResponse {
    let capability = |kind| PluginCapability { kind: Some(kind) };
    let services = SERVICES.map(|kind| capability(PluginCapabilityKind::Service(Capability { kind })));
    let expansion = capability(PluginCapabilityKind::VolumeExpansion(Capability { kind: ONLINE }));
    GetPluginCapabilitiesResponse { capabilities: services.into_iter().chain([expansion]).collect() }
}

/// Whether the daemon answers.
pub fn probe(objects: &Objects) -> Answer<ProbeResponse> {
    let _: Status = objects.get("/v1/status")?;
    Ok(ProbeResponse { ready: Some(BoolValue { value: true }) })
}
