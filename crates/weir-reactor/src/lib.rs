//! weir-reactor
