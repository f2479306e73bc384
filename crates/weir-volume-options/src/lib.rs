//! Options of volumes, as people write them for containers: `docker volume create -o KEY=VALUE`, the name of a volume of
//! `docker run -v`, and the parameters of a StorageClass of Kubernetes. The keys are Portworx's; a few are Weir's own.
//!
//! It knows no protocol and no daemon: Docker's plugin and the CSI driver stand on it.

#![forbid(unsafe_code)]

mod specification;

pub use specification::{Specification, SpecificationError, name_of};
