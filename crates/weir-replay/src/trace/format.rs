//! Format of a trace as bytes, and its encoder.

use weir_qos::Kind;

use super::{Header, Record, Trace};

/// First bytes of a trace.
pub const MAGIC: [u8; 8] = *b"WEIRTRCE";

/// Version of the format.
pub const VERSION: u32 = 1;

/// Bytes before the header: magic, version, length of the header, number of records.
pub const PREFIX_BYTES: usize = 24;

/// Bytes of one record.
pub const RECORD_BYTES: usize = 72;

/// Longest header, in bytes: some hundred bytes for each level of each volume that a recording may have.
pub const HEADER_BYTES_MAX: usize = 4 << 20;

/// Kinds of requests by their number in the file.
pub const KINDS: [Kind; 5] = [Kind::Read, Kind::Write, Kind::Discard, Kind::Zeroes, Kind::Flush];

/// Flag of a request that was answered with an error.
pub const FLAG_FAILED: u8 = 1;

fn header_json(header: &Header) -> Result<Vec<u8>, String> {
    let json = serde_json::to_vec(header).map_err(|error| error.to_string())?;
    if json.len() > HEADER_BYTES_MAX {
        return Err(format!(
            "the header of the trace has {} bytes; {HEADER_BYTES_MAX} are the most",
            json.len()
        ));
    }
    Ok(json)
}

/// Bytes of a trace before its first record.
///
/// # Errors
/// As for [`encode`].
pub fn header_bytes(header: &Header) -> Result<u64, String> {
    header_json(header).map(|json| (PREFIX_BYTES + json.len()) as u64)
}

/// Encodes a trace.
///
/// # Errors
/// If the header cannot be encoded as JSON, or is too long.
pub fn encode(trace: &Trace) -> Result<Vec<u8>, String> {
    let header = header_json(&trace.header)?;
    let mut bytes = Vec::with_capacity(PREFIX_BYTES + header.len() + trace.records.len() * RECORD_BYTES);
    bytes.extend(MAGIC);
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend((header.len() as u32).to_le_bytes());
    bytes.extend((trace.records.len() as u64).to_le_bytes());
    bytes.extend(header);
    trace.records.iter().for_each(|record| put(&mut bytes, record));
    Ok(bytes)
}

fn put(bytes: &mut Vec<u8>, record: &Record) {
    for value in [
        record.arrived_ns,
        record.offset,
        record.latency_ns,
        record.ceilings_ns,
        record.queue_ns,
        record.floors_ns,
        record.drive_ns,
    ] {
        bytes.extend(value.to_le_bytes());
    }
    bytes.extend(record.bytes.to_le_bytes());
    bytes.extend(record.connection.to_le_bytes());
    bytes.extend(record.volume.to_le_bytes());
    let kind = KINDS.iter().position(|kind| *kind == record.kind).expect("every kind has a number");
    bytes.push(kind as u8);
    bytes.push(if record.is_failed { FLAG_FAILED } else { 0 });
    bytes.extend([0; 4]);
}
