//! What clients can attach to: the table of export names, and the listeners that do the NBD handshake and
//! hand each connection to the data plane.

pub mod table;
