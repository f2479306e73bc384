//! Every bound of the system in one place, with its unit and its reason.
//!
//! Nothing in Weir may queue, buffer or allocate without a bound named here.

/// Size of the piece in which a volume is placed, moved and checked, in bytes.
pub const EXTENT_BYTES: u64 = 1 << 30;

/// Size of the block that is never torn and never mixed, in bytes. Direct I/O is done in multiples of it.
pub const BLOCK_BYTES: u64 = 4096;

/// Volume sizes are multiples of this, in bytes.
pub const VOLUME_SIZE_GRANULE_BYTES: u64 = BLOCK_BYTES;

/// Largest volume, in bytes: 64 TiB, which is 65 536 extents (one file each).
pub const VOLUME_SIZE_BYTES_MAX: u64 = 64 << 40;

/// Space is allocated ahead of writes in pieces of this size, in bytes: large enough that sequential first
/// writes rarely wait for the filesystem, small enough that a thin volume stays thin.
pub const ALLOCATION_BYTES: u64 = 1 << 20;

/// The piece of an extent by which it is kept metadata of what its replicas lack, in bytes: small enough that little is
/// copied that did not change, large enough that the metadata of an extent fits one block of 4096 bits.
pub const REGION_BYTES: u64 = 256 << 10;

/// The piece of an extent for which it is said whether the checksums of what rests there count, in bytes: large enough
/// that few durable writings are due to clients who write all over an extent, small enough that what they leave alone
/// keeps its checksums.
pub const SECTION_BYTES: u64 = 16 << 20;

/// Blocks of an extent of which it is kept that no replica has them as they should be; of more, only the number is told.
/// All of them fit the block that says what else is known of an extent at rest.
pub const DAMAGED_BLOCKS_MAX: usize = 256;

/// Volumes of one reactor that are scrubbed at a time; others wait. Each holds the checksums of one section in memory,
/// as they are beside each of its replicas.
pub const SCRUBS_PER_REACTOR_MAX: usize = 4;

/// Replicas that an extent can have, three and one that takes the place of another.
pub const REPLICAS_MAX: usize = 4;

/// Largest part of a request that one buffer holds and one disk operation moves, in bytes. Larger requests
/// are served in several pieces, so that no client can claim more memory than this at a time.
pub const PIECE_BYTES: u64 = 128 << 10;

/// Largest request that a client may send, in bytes: what the NBD protocol lets a client assume.
pub const REQUEST_BYTES_MAX: u32 = 32 << 20;

/// Memory for data in flight, in bytes, that one reactor owns.
pub const BUFFER_POOL_BYTES: usize = 128 << 20;

/// Bytes of buffers that one connection may hold while the pool is plentiful.
pub const CONNECTION_BUFFER_BYTES_MAX: usize = 4 << 20;

/// Bytes of buffers that one connection may hold for writes that wait for admission, while the pool is
/// plentiful.
pub const CONNECTION_WAITING_BYTES_MAX: usize = 512 << 10;

/// Bytes of buffers that one connection may hold, however short the pool is: two pieces, because a
/// small write may touch two and is taken in whole.
pub const CONNECTION_BUFFER_BYTES_MIN: usize = 2 * PIECE_BYTES as usize;

/// Connections that one volume may have; more are refused. Clients that spread their load use some tens.
pub const CONNECTIONS_PER_VOLUME_MAX: usize = 64;

/// Connections that one reactor serves beside the first of each of its volumes; more are refused. A volume gets as many
/// of them as are still free at most, so that some are always left for the next volume.
pub const CONNECTIONS_SHARED_PER_REACTOR_MAX: usize = 256;

/// Connections that one reactor serves: every volume can always have one.
pub const CONNECTIONS_PER_REACTOR_MAX: usize = VOLUMES_MAX + CONNECTIONS_SHARED_PER_REACTOR_MAX;

/// Handshakes under way at a time on one listener; for a further client the oldest one of the peer that has the most
/// ends.
pub const HANDSHAKES_PER_LISTENER_MAX: usize = 128;

/// Seconds that a client may take for its handshake: several round trips around the world.
pub const HANDSHAKE_SECONDS_MAX: u64 = 10;

/// Bytes read ahead from one connection's socket.
pub const RECEIVE_BUFFER_BYTES: usize = 256 << 10;

/// Requests of one connection that may be waiting or in service; past this its socket is not read.
pub const CONNECTION_REQUESTS_MAX: usize = 1024;

/// Batches of answers that one connection may leave unread; past this its socket is not read.
pub const OUTBOX_BATCHES_MAX: usize = 4;

/// How long a client may leave unread what it has been sent, or owe the rest of a payload, in nanoseconds, while others
/// find no buffer; then its connection ends. A reading client takes a batch of answers in a fraction of that.
pub const CLIENT_STALL_NS_MAX: u64 = 10_000_000_000;

/// Runs of data or hole in one answer to a block status request, of 8 bytes each.
pub const STATUS_RUNS_MAX: usize = 128;

/// Earned credit of a ceiling, in nanoseconds of its rate: what a workload that wanted more may catch up
/// after a stall of the machine.
pub const CEILING_CREDIT_NS: u64 = 10_000_000;

/// How much of a stall of the machine is caught up for requests that waited through it, in nanoseconds.
pub const BACKLOG_CATCH_UP_NS: u64 = 100_000_000;

/// How long a floor that was due and could not be met may still be claimed, in nanoseconds.
pub const FLOOR_CREDIT_NS: u64 = 100_000_000;

/// Most operations that an operator may have a pool keep in flight: more only wait inside the device.
pub const QUEUE_TARGET_MAX: u32 = 1024;

/// How long a pool is taken to be shared after a second workload was last seen there, in nanoseconds: who asks for
/// little every few seconds is not to find the queue of a busy neighbour in the device each time.
pub const COMPETITION_MEMORY_NS: u64 = 30_000_000_000;

/// How far a workload's share may lag behind or run ahead of its siblings' and still be made good, in nanoseconds
/// of what they share (or four requests, if that is more).
pub const SHARE_MEMORY_NS: u64 = 10_000_000;

/// Largest rate that a limit may name, in operations per second.
pub const RATE_IOPS_MAX: u64 = 1_000_000_000;

/// Largest rate that a limit may name, in bytes per second: 1 TB/s.
pub const RATE_BYTES_PER_SECOND_MAX: u64 = 1_000_000_000_000;

/// Longest latency, seek and flush of an emulated drive, in nanoseconds: far beyond any medium, and short of
/// what clients take for a dead server.
pub const EMULATED_TIME_NS_MAX: u64 = 10_000_000_000;

/// Most operations that an emulated drive may be told to serve at a time, as many as a pool may be told to
/// keep in flight: the model remembers the end of each.
pub const EMULATED_PARALLEL_MAX: u32 = QUEUE_TARGET_MAX;

/// Longest latency that a class of drives may be said to begin with, in nanoseconds: no slower drive can even be
/// emulated.
pub const CLASS_LATENCY_NS_MAX: u64 = EMULATED_TIME_NS_MAX;

/// Operations that are kept in flight to find what a drive delivers at most: what a few busy volumes have open, and
/// the number with which makers state theirs.
pub const MEASUREMENT_DEPTH: usize = 32;

/// Sequential operations that are kept in flight: with a piece each, 1 MiB.
pub const MEASUREMENT_SEQUENTIAL_DEPTH: usize = 8;

/// Largest file that a drive is measured in, in bytes: beyond the cache of a disk, and written in a few seconds.
pub const MEASUREMENT_SCRATCH_BYTES_MAX: u64 = 256 << 20;

/// Largest file that an emulated drive is measured in, in bytes: what it delivers does not depend on what it lies
/// on, as long as that is faster.
pub const MEASUREMENT_EMULATED_SCRATCH_BYTES_MAX: u64 = 32 << 20;

/// Smallest file that says anything of a drive, in bytes.
pub const MEASUREMENT_SCRATCH_BYTES_MIN: u64 = 8 << 20;

/// The part of a drive's free space that its measurement may take: volumes that grow meanwhile must not run out of it.
pub const MEASUREMENT_SPACE_DIVISOR: u64 = 4;

/// Operations of one phase of a measurement, after which it ends early: more make no median better.
pub const MEASUREMENT_OPERATIONS_MAX: usize = 100_000;

/// Longest measurement, in seconds: a drive that takes longer does not answer.
pub const MEASUREMENT_SECONDS_MAX: u64 = 120;

/// Buffers of a measurement, in bytes: its operations in flight, of either size.
pub const MEASUREMENT_POOL_BYTES: usize = 2 << 20;

/// Smallest journal in front of a slow drive, in bytes: four times what may be unstable in it leaves room for
/// rewrites to be absorbed and for batches that are worth sorting.
pub const JOURNAL_BYTES_MIN: u64 = 64 << 20;

/// Largest journal, in bytes: what a disk takes in minutes, and what its index takes in memory is still
/// small.
pub const JOURNAL_BYTES_MAX: u64 = 16 << 30;

/// Most payload of one record of a journal, in bytes: what several clients send while the record before it is
/// written.
pub const JOURNAL_RECORD_PAYLOAD_BYTES_MAX: u64 = 1 << 20;

/// Most entries of one record of a journal: as many as fit its header, which is one block.
pub const JOURNAL_RECORD_ENTRIES_MAX: usize = 100;

/// Writes from this length on may pass by a journal, in bytes: a disk is as fast with them as it gets, and
/// they would fill the journal with what need not be sorted.
pub const JOURNAL_BYPASS_BYTES: u32 = PIECE_BYTES as u32;

/// Writes that pass by a journal at a time; further ones go through it. Whatever overlaps them has to be
/// looked for.
pub const JOURNAL_BYPASSES_MAX: usize = 64;

/// Changes and syncs that wait in front of a journal; whoever asks for more is refused and asks again. More
/// than the operations that a pool keeps in flight.
pub const JOURNAL_WAITING_MAX: usize = 4096;

/// Extents whose files are behind one journal: those of 128 TiB, more than any drive has.
pub const JOURNAL_FILES_MAX: usize = 1 << 17;

/// Records that are not stable, in bytes, from which on a journal is synced unasked: so much is looked
/// through after the end of the log for signs that it was damaged, and twice that is never exceeded.
pub const JOURNAL_UNSTABLE_BYTES: u64 = 16 << 20;

/// Most that one operation brings from a journal to the slow file, in bytes: beyond that disks gain nothing.
pub const JOURNAL_DESTAGE_BYTES_MAX: u64 = 1 << 20;

/// Operations that bring data from a journal to slow files at a time: enough for a disk to choose between,
/// and 8 MiB of buffers.
pub const JOURNAL_DESTAGES_MAX: usize = 8;

/// Entries that are sorted at a time before they are brought to slow files: enough for a disk to go over once, few enough
/// that who waits for space in a full journal, which comes with the end of a batch, waits no longer than a disk takes for
/// them. Neighbours beyond them are brought along.
pub const JOURNAL_BATCH_ENTRIES_MAX: usize = 256;

/// Entries that are dropped from a journal's index in one event, unless somebody waits for their space:
/// dropping a whole batch would hold up whoever asks next.
pub const JOURNAL_DROPPED_ENTRIES_MAX: usize = 256;

/// Longest burst that a policy may allow, in seconds: an hour.
pub const BURST_SECONDS_MAX: u32 = 3600;

/// Largest weight of a workload, as with Linux's controllers.
pub const WEIGHT_MAX: u32 = 10_000;

/// Weight of background work if nobody says otherwise: a tenth of a tenant's, so that it is hardly noticed where
/// clients ask and still comes to an end.
pub const BACKGROUND_WEIGHT_DEFAULT: u32 = 10;

/// Longest deadline of background work, in seconds: 30 days.
pub const BACKGROUND_DEADLINE_SECONDS_MAX: u32 = 30 * 86_400;

/// Operations of one kind of background work that waits in the queue of a drive or are under way there: enough that one
/// is always waiting where it has a claim, few enough that a client who comes is not behind many.
pub const BACKGROUND_OPERATIONS_MAX: usize = 4;

/// Most that one operation of a reclaim gives back, in bytes: more would hold up the drive's filesystem, and take a
/// ceiling in bytes far ahead, for too long at a time.
pub const RECLAIM_STEP_BYTES: u64 = 64 << 20;

/// Most operations that a policy may charge for a discard, a write of zeroes or a flush: more would let one
/// request stop a volume for good.
pub const CHARGE_MAX: u32 = 1000;

/// Levels from a pool down to a connection: tenants and groups may be nested to this depth in all.
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
// Half of the pool is enough to give the least that is promised to all connections but the first of each volume.
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
