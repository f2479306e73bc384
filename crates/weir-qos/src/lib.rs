//! weir-qos
