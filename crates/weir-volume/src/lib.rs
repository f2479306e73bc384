//! weir-volume
