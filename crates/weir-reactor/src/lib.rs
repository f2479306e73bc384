//! The reactor: sockets, files, timers and buffers of one thread, on io_uring or else on threads.
//!
//! This is the only crate with `unsafe`. It moves bytes and keeps time; it knows nothing of volumes,
//! protocols or policies. The table of operations in flight owns all memory that the kernel may touch, until
//! the kernel has answered. No caller can therefore free or reuse the memory too early.

pub mod buffer;
pub mod clock;
pub mod descriptor;
pub mod fence;
mod in_flight;
mod kernel;
pub mod mapping;
pub mod message;
pub mod peer;
mod request;
pub mod ring;
pub mod send;
mod threads;
pub mod ublk;
pub mod ublk_control;
pub mod ublk_device;
mod uring;
pub mod wake;

pub use buffer::{Buffer, BufferPool, Unfilled};
pub use clock::Clock;
pub use descriptor::{Descriptor, FallocateMode};
pub use fence::fence;
pub use in_flight::{Carried, Payload, Target};
pub use kernel::kernel_version;
pub use mapping::mapped;
pub use message::{read_message, write_message};
pub use peer::peer_groups;
pub use ring::{Completion, IoMethod, Ring, RingConfig};
pub use send::SendBatch;
pub use ublk::{BlockQueue, BlockRequest, MappedDevice};
pub use uring::RingError;
pub use wake::Waker;
