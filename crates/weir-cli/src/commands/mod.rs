//! Commands that send requests to the daemon, or need no daemon.

pub mod alarm;
pub mod background;
pub mod documents;
mod drain;
pub mod drive;
pub mod effect;
pub mod event;
pub mod journal;
mod measuring;
pub mod moving;
pub mod policy;
pub mod policy_set;
pub mod pool;
mod proposal;
pub mod qos;
pub mod reasons;
pub mod record;
pub mod scrub;
pub mod service;
mod shown;
pub mod simulate;
pub mod snapshot;
pub mod statistics;
pub mod status;
pub mod template;
pub mod tenant;
pub mod volume;
