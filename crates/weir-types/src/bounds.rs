//! Bounds of the data path that several crates share, each with its unit and its reason.

/// Size of an extent, in bytes: the unit of placement, moves and scrubs of a volume.
pub const EXTENT_BYTES: u64 = 1 << 30;

/// Size of a block, in bytes. A block is never torn and never mixed. Direct I/O uses multiples of it.
pub const BLOCK_BYTES: u64 = 4096;

/// Granule of volume sizes, in bytes.
pub const VOLUME_SIZE_GRANULE_BYTES: u64 = BLOCK_BYTES;

/// Largest volume, in bytes: 64 TiB, which is 65 536 extents (one file each).
pub const VOLUME_SIZE_BYTES_MAX: u64 = 64 << 40;

/// Size of the pieces in which space is allocated ahead of writes, in bytes. The size is large enough that
/// sequential first writes rarely wait for the filesystem. It is small enough that a thin volume stays thin.
pub const ALLOCATION_BYTES: u64 = 1 << 20;

/// Size of a region, in bytes: the unit of the dirty region log and of resync. A region is small enough that
/// a resync transfers little unchanged data. It is large enough that the log of an extent fits one block of
/// 4096 bits.
pub const REGION_BYTES: u64 = 256 << 10;

/// Size of a section, in bytes: the unit whose checksums are valid or invalid. A section is large enough that
/// clients who write all over an extent cause few durable metadata writes. It is small enough that data that
/// they leave alone keeps its checksums.
pub const SECTION_BYTES: u64 = 16 << 20;

/// Damaged blocks that are listed per extent; of further ones only the number is reported. All of them fit
/// the block of the checksum header.
pub const DAMAGED_BLOCKS_MAX: usize = 256;

/// Volumes that one reactor scrubs at a time; others wait. Each scrub holds the checksums of one section in
/// memory, once for each of its replicas.
pub const SCRUBS_PER_REACTOR_MAX: usize = 4;

/// Replicas that an extent can have: three, and one that replaces another.
pub const REPLICA_SLOTS_MAX: usize = 4;

/// Largest part of a request that one buffer holds and one disk operation moves, in bytes. Larger requests
/// are served in several pieces, so no client can claim more memory than this at a time.
pub const PIECE_BYTES: u64 = 128 << 10;

/// Largest request that a client may send, in bytes. The NBD protocol lets a client assume this size.
pub const REQUEST_BYTES_MAX: u32 = 32 << 20;

/// Memory of one reactor for data in flight, in bytes.
pub const BUFFER_POOL_BYTES: usize = 128 << 20;

/// Bytes of buffers that one connection may hold while the pool is plentiful.
pub const CONNECTION_BUFFER_BYTES_MAX: usize = 4 << 20;

/// Bytes of buffers that one connection may hold for writes that wait for admission, while the pool is
/// plentiful.
pub const CONNECTION_WAITING_BYTES_MAX: usize = 512 << 10;

/// Bytes of buffers that one connection may hold, however short the pool is. Two pieces are enough, because a
/// small write may touch two and is received as a whole.
pub const CONNECTION_BUFFER_BYTES_MIN: usize = 2 * PIECE_BYTES as usize;

/// Connections that one volume may have; more are refused. Clients that spread their load use some tens.
pub const CONNECTIONS_PER_VOLUME_MAX: usize = 64;

/// Connections that one reactor serves beside the first of each of its volumes; more are refused. A volume
/// gets at most as many of them as are still free, so some are always left for the next volume.
pub const CONNECTIONS_SHARED_PER_REACTOR_MAX: usize = 256;

/// Connections that one reactor serves. Every volume can always have one.
pub const CONNECTIONS_PER_REACTOR_MAX: usize = VOLUMES_MAX + CONNECTIONS_SHARED_PER_REACTOR_MAX;

/// Handshakes in progress at a time on one listener. For a further client, the oldest handshake of the peer
/// with the most handshakes ends.
pub const HANDSHAKES_PER_LISTENER_MAX: usize = 128;

/// Seconds that a client may take for its handshake: several round trips around the world.
pub const HANDSHAKE_SECONDS_MAX: u64 = 10;

/// Bytes read ahead from one connection's socket.
pub const RECEIVE_BUFFER_BYTES: usize = 256 << 10;

/// Memory of one reactor for the payloads of writes that wait for limits of cgroups, in bytes.
pub const HELD_PAYLOAD_BYTES_MAX: usize = 256 << 20;

/// Part of that memory that one file may use, in bytes. Beyond it, all processes that use the file wait.
pub const HELD_PAYLOAD_BYTES_OF_FILE_MAX: usize = 16 << 20;

/// Requests of one connection that may be waiting or in service. Beyond this number its socket is not read.
pub const CONNECTION_REQUESTS_MAX: usize = 1024;

/// Batches of replies that one connection may leave unread. Beyond this number its socket is not read.
pub const OUTBOX_BATCHES_MAX: usize = 4;

/// Time for which a client may leave replies unread, or owe the rest of a payload, while others find no
/// buffer, in nanoseconds. After that its connection ends. A reading client takes a batch of replies in a
/// fraction of this time.
pub const CLIENT_STALL_NS_MAX: u64 = 10_000_000_000;

/// Runs of data or hole in one reply to a block status request, of 8 bytes each.
pub const STATUS_RUNS_MAX: usize = 128;

/// Earned credit of a ceiling, in nanoseconds of its rate. A workload may use the credit to catch up after a
/// stall of the machine.
pub const CEILING_CREDIT_NS: u64 = 10_000_000;

/// Part of a machine stall for which waiting requests may catch up, in nanoseconds.
pub const BACKLOG_CATCH_UP_NS: u64 = 100_000_000;

/// Time for which an unmet floor may still be claimed, in nanoseconds.
pub const FLOOR_CREDIT_NS: u64 = 100_000_000;

/// Maximum number of operations that an operator may have a drive queue keep in flight. More would only wait
/// inside the device.
pub const QUEUE_TARGET_MAX: u32 = 1024;

/// Time for which a drive queue counts as shared after a second workload was last seen, in nanoseconds. A
/// client that sends little every few seconds then never finds a busy neighbour's requests queued in the
/// device.
pub const COMPETITION_MEMORY_NS: u64 = 30_000_000_000;

/// Lead or lag of a workload's share against its siblings that is still balanced, in nanoseconds of the
/// shared rate. The bound is four requests if they are more.
pub const SHARE_MEMORY_NS: u64 = 10_000_000;

/// Largest rate that a limit may name, in operations per second.
pub const RATE_IOPS_MAX: u64 = 1_000_000_000;

/// Largest rate of a limit, in bytes per second: 1 TB/s.
pub const RATE_BYTES_PER_SECOND_MAX: u64 = 1_000_000_000_000;

/// Longest latency, seek and flush of an emulated drive, in nanoseconds. The value is far beyond any real
/// drive, and below the timeouts of clients.
pub const EMULATED_TIME_NS_MAX: u64 = 10_000_000_000;

/// Maximum number of operations that an emulated drive serves at a time, equal to the maximum of a drive
/// queue. The model remembers the end of each.
pub const EMULATED_PARALLEL_MAX: u32 = QUEUE_TARGET_MAX;

/// Largest latency threshold of a class of drives, in nanoseconds. No slower drive can even be emulated.
pub const CLASS_LATENCY_NS_MAX: u64 = EMULATED_TIME_NS_MAX;

/// Operations in flight while the maximum rate of a drive is measured. A few busy volumes have as many open,
/// and vendors state their figures with this number.
pub const MEASUREMENT_DEPTH: usize = 32;

/// Sequential operations in flight during a measurement: with a piece each, 1 MiB.
pub const MEASUREMENT_SEQUENTIAL_DEPTH: usize = 8;

/// Largest file in which a drive is measured, in bytes: larger than the cache of a disk, and written in a few
/// seconds.
pub const MEASUREMENT_SCRATCH_BYTES_MAX: u64 = 256 << 20;

/// Largest file in which an emulated drive is measured, in bytes. Its figures do not depend on the drive
/// below it, as long as that one is faster.
pub const MEASUREMENT_EMULATED_SCRATCH_BYTES_MAX: u64 = 32 << 20;

/// Smallest file that gives meaningful figures of a drive, in bytes.
pub const MEASUREMENT_SCRATCH_BYTES_MIN: u64 = 8 << 20;

/// Divisor of a drive's free space that gives the space for its measurement. Volumes that grow during the
/// measurement must not run out of space.
pub const MEASUREMENT_SPACE_DIVISOR: u64 = 4;

/// Operations after which a phase of a measurement ends early: more do not improve the median.
pub const MEASUREMENT_OPERATIONS_MAX: usize = 100_000;

/// Longest measurement, in seconds. A drive that takes longer counts as not answering.
pub const MEASUREMENT_SECONDS_MAX: u64 = 120;

/// Buffers of a measurement, in bytes: enough for its operations in flight, of either size.
pub const MEASUREMENT_POOL_BYTES: usize = 2 << 20;

/// Smallest journal in front of a slow drive, in bytes. Four times the unstable bytes leave room to absorb
/// rewrites, and for batches that are worth sorting.
pub const JOURNAL_BYTES_MIN: u64 = 64 << 20;

/// Largest journal, in bytes. A disk takes this amount in minutes, and the journal's index in memory is still
/// small.
pub const JOURNAL_BYTES_MAX: u64 = 16 << 30;

/// Maximum payload of one record of a journal, in bytes: about the data that several clients send while the
/// previous record is written.
pub const JOURNAL_RECORD_PAYLOAD_BYTES_MAX: u64 = 1 << 20;

/// Maximum number of entries of one record of a journal: as many as fit its header, which is one block.
pub const JOURNAL_RECORD_ENTRIES_MAX: usize = 100;

/// Length, in bytes, from which writes may bypass a journal. A disk is at full speed with writes of this
/// length, and they would fill the journal with data that needs no sorting.
pub const JOURNAL_BYPASS_BYTES: u32 = PIECE_BYTES as u32;

/// Writes that bypass a journal at a time; further ones go through it. Every new request must be compared
/// with each of them.
pub const JOURNAL_BYPASSES_MAX: usize = 64;

/// Changes and syncs that wait in front of a journal. Further ones are refused, and the caller tries again.
/// The bound exceeds the operations that a drive queue keeps in flight.
pub const JOURNAL_WAITING_MAX: usize = 4096;

/// Extents whose files are behind one journal: the extents of 128 TiB, more than any drive has.
pub const JOURNAL_FILES_MAX: usize = 1 << 17;

/// Unstable record bytes from which on a journal is synced unasked. Recovery scans this many bytes after the
/// end of the log for signs of damage. Unstable records never exceed twice this number.
pub const JOURNAL_UNSTABLE_BYTES: u64 = 16 << 20;

/// Maximum length of one destage operation, in bytes. Longer operations are no faster on disks.
pub const JOURNAL_DESTAGE_BYTES_MAX: u64 = 1 << 20;

/// Destage operations of a journal at a time: enough for a disk to choose between, and 8 MiB of buffers.
pub const JOURNAL_DESTAGES_MAX: usize = 8;

/// Entries that are sorted at a time before they are destaged. The number is large enough for one sweep of a
/// disk. Space in a full journal is freed at the end of a batch, so the number also bounds that wait.
/// Neighbours beyond the batch are destaged with it.
pub const JOURNAL_BATCH_ENTRIES_MAX: usize = 256;

/// Entries that are dropped from a journal's index in one event, unless a request waits for their space.
/// Dropping a whole batch would delay the next request.
pub const JOURNAL_DROPPED_ENTRIES_MAX: usize = 256;

/// Longest burst that a policy may allow, in seconds: an hour.
pub const BURST_SECONDS_MAX: u32 = 3600;

/// Largest weight of a workload, as in the I/O controllers of Linux.
pub const WEIGHT_MAX: u32 = 10_000;

/// Default weight of background work: a tenth of a tenant's. Clients hardly notice the work, and it still
/// comes to an end.
pub const BACKGROUND_WEIGHT_DEFAULT: u32 = 10;

/// Longest deadline of background work, in seconds: 30 days.
pub const BACKGROUND_DEADLINE_SECONDS_MAX: u32 = 30 * 86_400;

/// Operations of one kind of background work that wait in the queue of a drive or are in flight there. The
/// number is large enough that one is always waiting for its share. It is small enough that a new client
/// request is not behind many.
pub const BACKGROUND_OPERATIONS_MAX: usize = 4;

/// Space that one operation of a reclaim gives back at most, in bytes. More would block the drive's
/// filesystem for too long, and would overdraw a ceiling in bytes for too long.
pub const RECLAIM_STEP_BYTES: u64 = 64 << 20;

/// Maximum charge of a policy for a discard, a write of zeroes or a flush, in operations. More would let one
/// request stop a volume for good.
pub const CHARGE_MAX: u32 = 1000;

/// Maximum depth of the policy tree, from a pool down to a connection. Nested tenants and groups all count.
pub const POLICY_DEPTH_MAX: usize = 16;

/// Longest name of a volume, tenant or policy group, in bytes.
pub const NAME_BYTES_MAX: usize = 128;

/// Volumes that one daemon holds.
pub const VOLUMES_MAX: usize = 16_384;

const _: () = assert!(EXTENT_BYTES.is_multiple_of(REGION_BYTES) && REGION_BYTES.is_multiple_of(PIECE_BYTES));
const _: () = assert!(EXTENT_BYTES.is_multiple_of(ALLOCATION_BYTES));
const _: () =
    assert!(EXTENT_BYTES.is_multiple_of(SECTION_BYTES) && SECTION_BYTES.is_multiple_of(REGION_BYTES));
// One bit each: sections of an extent, and pieces of a section.
const _: () = assert!(EXTENT_BYTES / SECTION_BYTES <= 64 && SECTION_BYTES / PIECE_BYTES <= 128);
const _: () = assert!(ALLOCATION_BYTES.is_multiple_of(PIECE_BYTES));
const _: () = assert!(PIECE_BYTES.is_multiple_of(BLOCK_BYTES));
const _: () = assert!(RECEIVE_BUFFER_BYTES > PIECE_BYTES as usize);
// Half of the pool covers the promised minimum of all connections except the first of each volume.
const _: () =
    assert!(CONNECTIONS_SHARED_PER_REACTOR_MAX * CONNECTION_BUFFER_BYTES_MIN <= BUFFER_POOL_BYTES / 2);
const _: () = assert!(CONNECTIONS_PER_VOLUME_MAX < CONNECTIONS_SHARED_PER_REACTOR_MAX / 2);
const _: () = assert!(MEASUREMENT_SEQUENTIAL_DEPTH * PIECE_BYTES as usize <= MEASUREMENT_POOL_BYTES / 2);
const _: () = assert!(MEASUREMENT_DEPTH * BLOCK_BYTES as usize <= MEASUREMENT_POOL_BYTES / 2);
const _: () = assert!(MEASUREMENT_SCRATCH_BYTES_MIN.is_multiple_of(PIECE_BYTES));
const _: () = assert!(MEASUREMENT_SCRATCH_BYTES_MAX.is_multiple_of(PIECE_BYTES));
const _: () = assert!(MEASUREMENT_EMULATED_SCRATCH_BYTES_MAX.is_multiple_of(PIECE_BYTES));
const _: () =
    assert!(JOURNAL_BYTES_MIN.is_multiple_of(BLOCK_BYTES) && JOURNAL_BYTES_MAX.is_multiple_of(BLOCK_BYTES));
const _: () = assert!(4 * JOURNAL_UNSTABLE_BYTES <= JOURNAL_BYTES_MIN);
const _: () = assert!(JOURNAL_BYPASS_BYTES as u64 <= JOURNAL_RECORD_PAYLOAD_BYTES_MAX);
const _: () =
    assert!(PIECE_BYTES <= JOURNAL_RECORD_PAYLOAD_BYTES_MAX && PIECE_BYTES <= JOURNAL_DESTAGE_BYTES_MAX);
const _: () = assert!(JOURNAL_WAITING_MAX > QUEUE_TARGET_MAX as usize);
const _: () = assert!(JOURNAL_BATCH_ENTRIES_MAX > JOURNAL_RECORD_ENTRIES_MAX);
