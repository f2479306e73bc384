//! Messages as the kernel makes them.

#![allow(dead_code)]

use weir_fuse::protocol::{FUSE_IN_HEADER_BYTES, HEAD_BYTES};

/// Operations by their numbers in `linux/fuse.h`.
pub const FORGET: u32 = 2;
pub const GETATTR: u32 = 3;
pub const SETATTR: u32 = 4;
pub const OPEN: u32 = 14;
pub const READ: u32 = 15;
pub const WRITE: u32 = 16;
pub const FSYNC: u32 = 20;
pub const GETXATTR: u32 = 22;
pub const INIT: u32 = 26;
pub const FALLOCATE: u32 = 43;

/// A message with these fields behind its head.
pub fn message(operation: u32, unique: u64, fields: &[u8]) -> Vec<u8> {
    let length = (FUSE_IN_HEADER_BYTES + fields.len()) as u32;
    let mut bytes = Vec::new();
    bytes.extend(length.to_ne_bytes());
    bytes.extend(operation.to_ne_bytes());
    bytes.extend(unique.to_ne_bytes());
    bytes.extend(1u64.to_ne_bytes());
    [1000u32, 100, 4711, 0].iter().for_each(|number| bytes.extend(number.to_ne_bytes()));
    bytes.extend(fields);
    bytes
}

/// The fields of a read or a write: handle, offset, length, and what the server does not need.
pub fn range(offset: u64, length: u32) -> Vec<u8> {
    let mut fields = Vec::new();
    fields.extend(0u64.to_ne_bytes());
    fields.extend(offset.to_ne_bytes());
    fields.extend(length.to_ne_bytes());
    fields.extend([0; 20]);
    fields
}

/// A write with its payload.
pub fn write(unique: u64, offset: u64, payload: &[u8]) -> Vec<u8> {
    let fields = [range(offset, payload.len() as u32).as_slice(), payload].concat();
    message(WRITE, unique, &fields)
}

/// The fields of an fallocate.
pub fn allocation(offset: u64, length: u64, mode: u32) -> Vec<u8> {
    let mut fields = Vec::new();
    [0, offset, length].iter().for_each(|number: &u64| fields.extend(number.to_ne_bytes()));
    fields.extend(mode.to_ne_bytes());
    fields.extend([0; 4]);
    fields
}

/// The first message of a session.
pub fn init(major: u32, minor: u32, flags: u64) -> Vec<u8> {
    let mut fields = Vec::new();
    [major, minor, 131_072, flags as u32, (flags >> 32) as u32]
        .iter()
        .for_each(|number| fields.extend(number.to_ne_bytes()));
    fields.extend([0; 44]);
    message(INIT, 1, &fields)
}

/// The part of a message that is decoded.
pub fn head(message: &[u8]) -> &[u8] {
    &message[..message.len().min(HEAD_BYTES)]
}
