//! Block requests: from what a block device's driver hands over to a connection's requests.
//!
//! Payloads stay with the driver until their writes are admitted.

use std::io;

use super::connection::Connection;
use super::desk::Desk;
use super::door::Door;
use super::messages::take_buffers;
use super::request::ActiveRequest;
use super::ublk::{Fetched, failed};
use weir_nbd::NbdError;
use weir_types::bounds::CONNECTION_REQUESTS_MAX;

/// Takes requests until the reactor has to do something for one, and answers true.
pub fn take_block_requests(connection: &mut Connection, desk: &mut Desk<'_>) -> bool {
    let index = connection.index;
    connection.door.ublk().begin(index, desk.io);
    while connection.may_parse() && connection.requests.len() < CONNECTION_REQUESTS_MAX {
        let Some(request) = connection.door.ublk().next(index, desk.io) else { return false };
        desk.volume.arrived();
        let id = connection.requests.insert(ActiveRequest::new(request, desk.io.now_ns));
        connection.ask_for_admission(id, desk);
        if desk.lists.has_effects() {
            return true;
        }
    }
    false
}

/// The driver has answered for a tag. True if there is a request, and the connection is open.
pub fn fetched(connection: &mut Connection, tag: u16, result: &io::Result<u32>, desk: &mut Desk<'_>) -> bool {
    match connection.door.ublk().fetched(tag, result) {
        Fetched::Arrived => !connection.is_closing,
        Fetched::Ended => {
            connection.close(desk);
            false
        }
    }
}

/// Starts all parts of an admitted write, whose payload the driver still has.
pub fn start_from_device(connection: &mut Connection, id: usize, desk: &mut Desk<'_>) {
    let request = &connection.requests[id];
    let Some(buffers) = take_buffers(request, &mut connection.holdings, desk) else {
        return connection.starving.push_back(id);
    };
    let held_bytes = buffers.iter().map(|(_, memory)| memory.capacity()).sum();
    match connection.door.ublk().take_payload(request, buffers) {
        Ok(parts) => {
            for (part, buffer) in parts {
                connection.start_write(id, part, buffer, desk);
            }
        }
        Err(error) => {
            failed(&error);
            connection.holdings.unhold(held_bytes, desk.lists);
            connection.requests[id].error = Some(NbdError::Io);
            connection.finish(id, desk);
        }
    }
}

/// True if nothing is left of the connection but what its driver was asked for, which ends with the daemon.
pub fn is_left_to_its_driver(connection: &Connection) -> bool {
    connection.is_closing && connection.requests.is_empty() && matches!(connection.door, Door::Ublk(_))
}
