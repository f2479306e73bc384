//! A volume as its reactor holds it: the pure state, the open files, and what each operation belongs to.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::SyncSender;

use weir_qos::Cost;
use weir_reactor::{Buffer, Descriptor};
use weir_types::VolumeId;
use weir_volume::geometry::Part;
use weir_volume::{Action, OperationId, Volume};

use super::VolumeSpec;
use super::command::NewSize;
use super::emulation::Emulated;
use super::recording::Tap;
use super::sharing::{PoolPlace, Shaping};
use super::token::ConnectionIndex;
use crate::statistics::VolumeStatistics;

/// A request of a connection: the connection's index and the request's index there.
pub(super) type Ticket = (ConnectionIndex, usize);

/// What an operation of the volume belongs to.
pub(super) struct Context {
    pub ticket: Ticket,
    /// The part of the request that it serves.
    pub part: Part,
    /// Its buffer, while the kernel does not have it.
    pub buffer: Option<Buffer>,
    /// What it costs the media, once it stood in line for them.
    pub cost: Option<Cost>,
    /// When it came to the media, or in line for them.
    pub at_media_since_ns: u64,
    /// Time in line, in nanoseconds; and the part of it in which others went first for their floors.
    pub queue_ns: u64,
    pub floors_ns: u64,
    /// Time at the media, in nanoseconds.
    pub media_ns: u64,
}

impl Context {
    pub fn new(ticket: Ticket, part: Part, buffer: Option<Buffer>) -> Context {
        Context {
            ticket,
            part,
            buffer,
            cost: None,
            at_media_since_ns: 0,
            queue_ns: 0,
            floors_ns: 0,
            media_ns: 0,
        }
    }
}

/// A drive that a volume is on.
pub(super) struct Home {
    /// The folder of its extent files.
    pub directory: PathBuf,
    /// Where it stands in line.
    pub place: PoolPlace,
}

/// One volume of a reactor.
pub(super) struct ServedVolume {
    pub id: VolumeId,
    pub volume: Volume,
    pub statistics: Arc<VolumeStatistics>,
    /// Where it stands before ceilings, if it is under any.
    pub shaping: Option<Shaping>,
    /// The drives that it is on.
    pub homes: Vec<Home>,
    /// By copy and extent the index of its home; extents of the first copy beyond the list are in the first.
    pub copies: Vec<Vec<u8>>,
    /// Requests that ceilings hold back.
    pub delayed_requests: usize,
    pub actions: Vec<Action>,
    /// Flushes under way by number; `None` marks a free number.
    pub flushes: Vec<Option<Ticket>>,
    /// Operations of the ring and the helper that still have to come back.
    pub outstanding: usize,
    pub connections: usize,
    pub open_requests: u64,
    /// Whoever asked to close the volume, to be answered once it is quiet.
    pub closing: Option<SyncSender<()>>,
    /// A new size, and whoever asked for it; put off until the volume is quiet if it is smaller.
    pub resizing_to: Option<(NewSize, SyncSender<()>)>,
    pub size_bytes: u64,
    /// No client may change its data.
    pub is_read_only: bool,
    /// Whoever made it read-only, to be answered once nothing is written any more.
    pub becoming_read_only: Option<SyncSender<()>>,
    /// Why the extent that is about to be retired is.
    pub fault_message: Option<String>,
    /// The filesystem cannot zero a range in one step.
    pub lacks_zero_range: bool,
    /// What it knows of the emulated drives that it is on.
    pub emulated: Emulated,
    /// Its part in a recording, while there is one.
    pub tap: Option<Tap>,
    files: Vec<Option<Descriptor>>,
    contexts: Vec<Option<Context>>,
}

impl ServedVolume {
    pub fn new(spec: VolumeSpec, statistics: Arc<VolumeStatistics>) -> ServedVolume {
        ServedVolume {
            id: spec.id,
            volume: Volume::new(spec.size_bytes),
            statistics,
            shaping: None,
            homes: Vec::new(),
            copies: spec.layout.copies,
            delayed_requests: 0,
            actions: Vec::new(),
            flushes: Vec::new(),
            outstanding: 0,
            connections: 0,
            open_requests: 0,
            closing: None,
            resizing_to: None,
            size_bytes: spec.size_bytes,
            is_read_only: spec.is_read_only,
            becoming_read_only: None,
            fault_message: None,
            lacks_zero_range: false,
            emulated: Emulated::new(spec.id),
            tap: None,
            files: Vec::new(),
            contexts: Vec::new(),
        }
    }

    /// The index of the drive that holds an extent.
    pub fn home_of(&self, extent: u32) -> usize {
        self.copies[0].get(extent as usize).copied().unwrap_or(0).into()
    }

    /// The file of an extent.
    pub fn extent_path(&self, extent: u32) -> PathBuf {
        self.homes[self.home_of(extent)].directory.join(format!("{extent:08}"))
    }

    /// The open file of an extent that the volume calls ready.
    pub fn file(&self, extent: u32) -> Descriptor {
        let file = self.files.get(extent as usize).and_then(Option::as_ref);
        file.expect("a volume acts only on extents that were opened").clone()
    }

    pub fn set_file(&mut self, extent: u32, file: Option<Descriptor>) {
        let index = extent as usize;
        if self.files.len() <= index {
            self.files.resize(index + 1, None);
        }
        self.files[index] = file;
    }

    /// Takes over a new size; files beyond the end are closed.
    pub fn set_size(&mut self, size_bytes: u64) {
        self.size_bytes = size_bytes;
        self.volume.resize(size_bytes);
        self.files.truncate(self.volume.extents() as usize);
    }

    pub fn set_context(&mut self, operation: OperationId, context: Context) {
        let index = operation.0 as usize;
        if self.contexts.len() <= index {
            self.contexts.resize_with(index + 1, || None);
        }
        self.contexts[index] = Some(context);
    }

    pub fn context(&mut self, operation: OperationId) -> &mut Context {
        self.contexts[operation.0 as usize].as_mut().expect("an operation has a context until it is done")
    }

    /// What was kept for an operation that is done.
    pub fn take_context(&mut self, operation: OperationId) -> Context {
        self.volume.forget(operation);
        self.contexts[operation.0 as usize].take().expect("an operation is done once")
    }

    /// The buffer of an operation, on its way to the kernel.
    pub fn lend_buffer(&mut self, operation: OperationId) -> Buffer {
        self.context(operation).buffer.take().expect("a buffer is lent once at a time")
    }

    /// Enters a flush and returns its number.
    pub fn add_flush(&mut self, ticket: Ticket) -> u32 {
        let free = self.flushes.iter().position(Option::is_none);
        let number = free.unwrap_or(self.flushes.len());
        if number == self.flushes.len() {
            self.flushes.push(None);
        }
        self.flushes[number] = Some(ticket);
        number as u32
    }

    pub fn is_quiet(&self) -> bool {
        self.connections == 0 && self.outstanding == 0 && self.volume.operations() == 0
    }

    /// Publishes the gauges.
    pub fn publish(&self) {
        self.statistics.queue_depth.store(self.open_requests, Relaxed);
        self.statistics.queue_depth_delayed.store(self.delayed_requests as u64, Relaxed);
        self.statistics.connections.store(self.connections as u64, Relaxed);
    }
}
