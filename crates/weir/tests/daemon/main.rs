//! The daemon from outside: real clients, kill -9, hostile clients, drives that fail.
//!
//! One program, so that it is linked once and its tests wait at the same time. Each module states a property of
//! the daemon; [`common`] is how a test starts a daemon and talks to it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod accepted_drives;
mod attachments;
mod background;
mod bad_input;
mod block_devices;
mod bursts;
mod ceilings;
mod cgroups;
mod classes;
mod coalesced_flushes;
mod common;
mod control_survives_kill;
mod crash;
mod csi;
mod decoders;
mod docker;
mod documents;
mod doors;
mod drain;
mod drives;
mod dry_run;
mod ends_in_order;
mod failures;
mod file_exerciser;
mod generated_client;
mod hostile_clients;
mod hung_drive;
mod interoperability;
mod io_method;
mod journals;
mod measurement;
mod operator;
mod random_model;
mod reasons;
mod replicas;
mod resync;
mod reviewed_faults;
mod scrub;
mod snapshots;
mod support;
mod templates;
mod verification;
