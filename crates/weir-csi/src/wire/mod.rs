//! The messages of CSI 1.13, without those of alpha features. Field numbers are those of `csi.proto`
//! (container-storage-interface/spec, `spec.md`).
//!
//! Only fields that the driver reads or sets are here; the decoder passes over the others.

mod controller;
mod group;
mod identity;
mod node;
mod registration;
mod volume;

use std::collections::HashMap;

pub use controller::*;
pub use group::*;
pub use identity::*;
pub use node::*;
pub use registration::*;
pub use volume::*;

/// Parameters, attributes and contexts: text by key.
pub type Map = HashMap<String, String>;

/// A message without fields.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Empty {}

/// `google.protobuf.BoolValue`.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct BoolValue {
    /// The value.
    #[prost(bool, tag = "1")]
    pub value: bool,
}

/// `google.protobuf.Int64Value`.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Int64Value {
    /// The value.
    #[prost(int64, tag = "1")]
    pub value: i64,
}
