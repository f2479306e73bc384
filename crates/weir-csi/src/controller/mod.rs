//! Controller service: volumes, snapshots, and on which node a volume is.
//!
//! Volumes and snapshots keep their names of Kubernetes in Weir, and their identities of Weir in Kubernetes.

mod groups;
mod paging;
pub mod publishing;
mod snapshots;
pub mod volumes;

use tonic::Status;
use uuid::Uuid;

use crate::capability::check_all;
use crate::failure::{of_parameter, required};
use crate::objects::Objects;
use crate::rpc::Answer;
use crate::wire::*;
use weir_volume_options::Specification;

pub use groups::{create_group, delete_group, get_group, group_capabilities};
pub use publishing::{publish, unpublish};
pub use snapshots::{create_snapshot, delete_snapshot, list_snapshots};
pub use volumes::{create_volume, delete_volume, expand, list_volumes, modify};

/// Key of the place of a volume and of a node: the daemon that has its drives.
pub const TOPOLOGY_KEY: &str = "weir/node";
/// The calls beyond the first ones that the driver has: create and delete, publish, list, capacity, snapshots and their
/// list, clones, read-only publishing, expansion, published nodes, several writers on one node, modification.
const CAPABILITIES: [i32; 12] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 13, 14];

/// What the service can do.
pub fn capabilities() -> Capabilities {
    Capabilities::of(&CAPABILITIES)
}

/// The place of a node.
pub fn topology(node: Uuid) -> Topology {
    Topology { segments: Map::from([(TOPOLOGY_KEY.to_owned(), node.to_string())]) }
}

/// Judges uses of a volume.
pub fn validate(
    objects: &Objects,
    request: &ValidateVolumeCapabilitiesRequest,
) -> Answer<ValidateVolumeCapabilitiesResponse> {
    objects.volume(required(&request.volume_id, "volume")?)?;
    if request.volume_capabilities.is_empty() {
        check_all(&request.volume_capabilities)?;
    }
    Ok(match check_all(&request.volume_capabilities) {
        Err(refused) => {
            ValidateVolumeCapabilitiesResponse { confirmed: None, message: refused.message().to_owned() }
        }
        Ok(()) => ValidateVolumeCapabilitiesResponse {
            confirmed: Some(Confirmed {
                volume_context: request.volume_context.clone(),
                volume_capabilities: request.volume_capabilities.clone(),
                parameters: request.parameters.clone(),
                mutable_parameters: request.mutable_parameters.clone(),
            }),
            message: String::new(),
        },
    })
}

/// The space that is left for volumes with these parameters.
pub fn capacity(objects: &Objects, node: Uuid, request: &GetCapacityRequest) -> Answer<GetCapacityResponse> {
    let specification = specification("capacity", &request.parameters)?;
    let is_elsewhere = request.accessible_topology.as_ref().is_some_and(|place| !is_at(place, node));
    let pools = objects.pools()?;
    let wanted = pools.iter().filter(|pool| match specification.io_priority {
        Some(class) => pool.class == Some(class),
        None => true,
    });
    let replicas = u64::from(specification.replicas.unwrap_or(1));
    let free: u64 = wanted.map(|pool| pool.available_bytes).sum();
    let free = if is_elsewhere { 0 } else { free / replicas };
    let available_capacity = i64::try_from(free).unwrap_or(i64::MAX);
    Ok(GetCapacityResponse { available_capacity, maximum_volume_size: None })
}

/// True if a place has the node.
fn is_at(place: &Topology, node: Uuid) -> bool {
    place.segments.get(TOPOLOGY_KEY).is_none_or(|named| *named == node.to_string())
}

/// What parameters ask for.
fn specification(name: &str, parameters: &Map) -> Answer<Specification> {
    if parameters.keys().any(|key| key.eq_ignore_ascii_case("size")) {
        return Err(Status::invalid_argument("'size' is no parameter: a claim says its size"));
    }
    // The provisioner adds names of Kubernetes' objects if it is told to.
    let is_own = |key: &str| !key.starts_with("csi.storage.k8s.io/") || key.ends_with("/fstype");
    let own = parameters.iter().filter(|(key, _)| is_own(key));
    let own = own.map(|(key, value)| (key.clone(), value.clone())).collect();
    Specification::read(name, &own).map_err(|error| of_parameter(&error))
}

/// The size of a volume in this range, in bytes: a multiple of what sizes are multiples of.
fn size_in(range: Option<CapacityRange>, default_bytes: u64) -> Answer<u64> {
    let granule = weir_types::bounds::VOLUME_SIZE_GRANULE_BYTES;
    let range = range.unwrap_or_default();
    let bytes =
        |value: i64| u64::try_from(value).map_err(|_| Status::invalid_argument("a size cannot be negative"));
    let (required_bytes, limit_bytes) = (bytes(range.required_bytes)?, bytes(range.limit_bytes)?);
    let wanted = if required_bytes > 0 {
        required_bytes
    } else if limit_bytes > 0 {
        default_bytes.min(limit_bytes)
    } else {
        default_bytes
    };
    let size_bytes = match required_bytes {
        0 => wanted / granule * granule,
        _ => wanted.div_ceil(granule) * granule,
    };
    if limit_bytes > 0 && (size_bytes > limit_bytes || size_bytes == 0) {
        return Err(Status::out_of_range(format!(
            "a volume has a multiple of {granule} bytes, and there is none from {required_bytes} to {limit_bytes}"
        )));
    }
    Ok(size_bytes)
}

/// True if a size is in the range.
fn is_in(range: Option<CapacityRange>, size_bytes: u64) -> bool {
    let range = range.unwrap_or_default();
    let size_bytes = i64::try_from(size_bytes).unwrap_or(i64::MAX);
    size_bytes >= range.required_bytes && (range.limit_bytes == 0 || size_bytes <= range.limit_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_is_a_multiple_within_the_range() {
        let size = |required_bytes, limit_bytes| {
            size_in(Some(CapacityRange { required_bytes, limit_bytes }), 1 << 30)
        };
        assert_eq!(size_in(None, 1 << 30).unwrap(), 1 << 30);
        assert_eq!(size(5000, 0).unwrap(), 8192);
        assert_eq!(size(0, 5000).unwrap(), 4096);
        for (required_bytes, limit_bytes, code) in [
            (5000, 6000, tonic::Code::OutOfRange),
            (0, 100, tonic::Code::OutOfRange),
            (-1, 0, tonic::Code::InvalidArgument),
        ] {
            assert_eq!(size(required_bytes, limit_bytes).unwrap_err().code(), code);
        }
        assert!(is_in(Some(CapacityRange { required_bytes: 10, limit_bytes: 20 }), 20));
        assert!(!is_in(Some(CapacityRange { required_bytes: 10, limit_bytes: 20 }), 21));
    }

    #[test]
    fn parameters_of_kubernetes_itself_are_passed_over() {
        let parameters = Map::from([
            ("csi.storage.k8s.io/pvc/name".to_owned(), "claim".to_owned()),
            ("csi.storage.k8s.io/fstype".to_owned(), "xfs".to_owned()),
            ("repl".to_owned(), "3".to_owned()),
            ("priority_io".to_owned(), "high".to_owned()),
        ]);
        assert_eq!(specification("v", &parameters).unwrap().replicas, Some(3));
        let unknown = Map::from([("colour".to_owned(), "red".to_owned())]);
        assert_eq!(specification("v", &unknown).unwrap_err().code(), tonic::Code::InvalidArgument);
    }
}
