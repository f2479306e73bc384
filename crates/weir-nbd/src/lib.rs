//! weir-nbd
