//! The outside world as the demo and the benches need it: programs, processes, folders, the daemon, its
//! peers, and fio.

pub mod daemon;
pub mod fio;
pub mod folder;
pub mod interrupt;
pub mod peers;
pub mod process;
pub mod tools;
