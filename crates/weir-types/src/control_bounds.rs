//! Bounds of control and its API, each with its unit and its reason.
//!
//! The bounds of the data path are in `weir_types::bounds`.

use std::ops::RangeInclusive;

/// Maximum number of tenants: far more than one machine serves, few enough to list in one answer.
pub const TENANTS_MAX: usize = 4_096;

/// Maximum number of drives: several times the bays of the largest servers. A byte distinguishes as many,
/// with one value left for none.
pub const DRIVES_MAX: usize = 255;

/// Maximum number of replicas of each extent that a client can request. One slot stays free for a replica
/// that replaces another.
pub const REPLICAS_MAX: u8 = crate::bounds::REPLICA_SLOTS_MAX as u8 - 1;

/// Minimum size of a block device for a drive, in bytes: the minimum of an XFS filesystem.
pub const DEVICE_BYTES_MIN: u64 = 300 << 20;

/// Maximum number of new volumes that wait for the measurement of a drive. Most of the API's workers stay
/// free.
pub const CLASS_WAITS_MAX: usize = 8;

/// Maximum number of drives whose class a refusal explains. An operator of more drives knows them.
pub const REASONS_SHOWN_MAX: usize = 3;

/// Maximum number of block devices formatted at a time. Most of the API's workers stay free.
pub const DEVICE_FORMATS_MAX: usize = 2;

/// Maximum number of remembered filesystems that never became a drive: as many as there can be drives.
pub const UNFINISHED_FORMATS_MAX: usize = DRIVES_MAX;

/// Maximum output of a system program that is kept, in bytes: many times the output of the programs in use.
pub const PROGRAM_OUTPUT_BYTES_MAX: u64 = 64 << 10;

/// Maximum size of a system table that is read, in bytes: that of a hundred thousand mounts, which is the
/// limit of Linux.
pub const SYSTEM_TABLE_BYTES_MAX: u64 = 64 << 20;

/// Maximum number of templates, beside the built-in ones: more than an operator can tell apart, few enough to
/// list in one answer.
pub const TEMPLATES_MAX: usize = 1_024;

/// Maximum number of attachments: as many devices as one process can keep for the daemon, and more than a host
/// has mounts.
pub const ATTACHMENTS_MAX: usize = 1_024;

/// Maximum number of policy groups: one for every volume.
pub const POLICY_GROUPS_MAX: usize = crate::bounds::VOLUMES_MAX;

/// Range of the sum of floors and reserve, in percent of a pool's capacity. Less than a tenth is a mistake.
/// More than ten times the capacity makes every promise void.
pub const OVER_COMMIT_PERCENT: RangeInclusive<u32> = 10..=1000;

/// Range of the capacity that is reserved for background work, in percent. With more than half of the pool,
/// it would be the main load.
pub const RESERVE_PERCENT: RangeInclusive<u32> = 0..=50;

/// Range of the sum of volume sizes, in percent of a pool's size, if a limit is set. Less than all of it is a
/// mistake, and a hundred times is no limit.
pub const OVER_PROVISION_PERCENT: RangeInclusive<u32> = 100..=10_000;

/// Data-plane threads of a daemon: one per core of the largest hosts.
pub const REACTORS: RangeInclusive<i64> = 1..=1024;

/// Range of the fill level from which a pool raises an alarm, in percent. Below half there is nothing to
/// report. At 100, only a pool without free space raises it.
pub const POOL_FULL_PERCENT: RangeInclusive<u8> = 50..=100;

/// Default fill level from which a pool raises an alarm, in percent: early enough to add a drive, late enough
/// to be taken seriously.
pub const POOL_FULL_PERCENT_DEFAULT: u8 = 95;

/// Maximum nesting of policy groups: all levels, without the tenant, the volume, a cgroup and
/// connections.
pub const GROUP_DEPTH_MAX: usize = crate::bounds::POLICY_DEPTH_MAX - 4;

/// Maximum number of cgroups with limits of their own on one volume: more than a host has tenants of one volume.
pub const CGROUP_BINDINGS_MAX: usize = 64;

/// Maximum number of damaged ranges of a volume that are listed. With more damage, an operator needs a backup
/// and not a list.
pub const DAMAGED_RANGES_SHOWN_MAX: usize = 16;

/// Space that volumes leave free on the filesystem of the state folder, in bytes. It is many times the need
/// of a start, the catalogue and replica metadata, and many times the uncounted space of journals and
/// duplicating snapshots.
pub const STATE_RESERVE_BYTES_MAX: u64 = 64 << 20;

/// On a small filesystem the reserve is this fraction of its size: one part in 32.
pub const STATE_RESERVE_PART: u64 = 32;

/// Maximum number of names that an error lists; it counts the others.
pub const NAMES_IN_ERROR_MAX: usize = 8;

/// Maximum body of an API request, in bytes: ten times the longest meaningful one.
pub const API_BODY_BYTES_MAX: usize = 64 << 10;

/// Maximum number of connections that one listener of the API serves at a time. A further connection replaces
/// an idle one, and is refused while all are busy.
pub const API_CONNECTIONS_MAX: usize = 64;

/// Connections beyond [`API_CONNECTIONS_MAX`] that are reserved for administrators, on the Unix socket.
pub const API_CONNECTIONS_RESERVE: usize = 8;

/// Maximum time in which a client sends the head of a request, and maximum pause between two requests, in
/// seconds.
pub const API_HEADER_SECONDS_MAX: u64 = 10;

/// Maximum time in which a client sends the body of a request, in seconds: enough for the largest at 16
/// Mbit/s.
pub const API_BODY_SECONDS_MAX: u64 = 10;

/// Maximum time in which a client reads nothing of an answer before its connection ends, in seconds.
pub const API_WRITE_SECONDS_MAX: u64 = 10;

/// Buffer of one API connection for requests and answers, in bytes.
pub const API_CONNECTION_BUFFER_BYTES: usize = 64 << 10;

/// Maximum number of scrapes, and of lists with all entries in memory, that are answered at a time. Further
/// requests wait. With ten thousand volumes, each takes up to 32 MiB.
pub const API_SCRAPES_MAX: usize = 2;

/// Maximum number of answers that are kept for requests with an idempotency key.
pub const IDEMPOTENCY_KEYS_MAX: usize = 4096;

/// Maximum number of bytes of these answers.
pub const IDEMPOTENCY_ANSWERS_BYTES_MAX: usize = 16 << 20;

/// Time that such an answer is kept, in seconds: one day, as long as the most patient client retries.
pub const IDEMPOTENCY_SECONDS: u64 = 24 * 3600;

/// Maximum number of events that are kept.
pub const EVENTS_MAX: usize = 10_000;

/// Maximum age of an event, in seconds: a week, so that a weekend is not lost.
pub const EVENT_SECONDS: i64 = 7 * 24 * 3600;

/// Least time between two looks for new alarms and background work, in seconds. A look that takes much of a core is
/// rarer.
pub const EVENT_LOOK_SECONDS: u64 = 1;

/// Maximum number of clients that follow events. Each holds a connection of the API.
pub const EVENT_STREAMS_MAX: usize = 16;

/// Maximum number of events that a stream reads at a time.
pub const EVENTS_PER_READ: usize = 100;

/// Maximum time without a line on a stream of events, in seconds. Then a comment shows that it is alive.
pub const EVENT_STREAM_SILENCE_SECONDS_MAX: u64 = 15;

/// Maximum length of an idempotency key, in characters.
pub const IDEMPOTENCY_KEY_CHARACTERS_MAX: usize = 255;

/// Maximum time that a request waits for the begin of its answer before it is refused, in seconds.
pub const API_ANSWER_WAIT_SECONDS_MAX: u64 = 5;

/// Maximum time in which a client reads an answer that is made in pieces, in seconds.
pub const API_ANSWER_SECONDS_MAX: u64 = 60;

/// Size of one piece of an answer, in bytes.
pub const API_ANSWER_PIECE_BYTES: usize = 64 << 10;

/// Maximum number of pieces that are written ahead of the client.
pub const API_ANSWER_PIECES_AHEAD: usize = 2;

/// Number of volumes that are looked up at a time for a list.
pub const API_VOLUMES_PER_PIECE: usize = 128;

/// Number of tenants that are looked up at a time for a list. Each piece counts the volumes of all tenants.
pub const API_TENANTS_PER_PIECE: usize = 1024;

/// Minimum length of the API's token over TCP, in bytes: 128 random bits in hexadecimal digits, or 24
/// letters.
pub const API_TOKEN_BYTES_MIN: usize = 24;

/// Maximum length of the token, in bytes.
pub const API_TOKEN_BYTES_MAX: usize = 4096;

/// Maximum number of API requests that read at a time; further ones wait. Reads wait for no drive and no
/// change, so the number is about that of the cores.
pub const API_READERS_MAX: usize = 8;

/// Maximum number of API requests that change something at a time; further ones wait. There is one for each
/// connection, so changes that wait for a hanging drive leave threads for others.
pub const API_WORKERS_MAX: usize = API_CONNECTIONS_MAX;
const _: () = assert!(2 * DEVICE_FORMATS_MAX < API_WORKERS_MAX);

/// Maximum number of changes at one drive at a time: a quarter of all changes, so that several drives may
/// hang.
pub const DRIVE_CHANGES_MAX: usize = API_WORKERS_MAX / 4;

/// Maximum number of snapshots, clones and restores at a time; further ones wait. Each may take hours where
/// the filesystem cannot share extents.
pub const API_SNAPSHOTS_MAX: usize = 8;

/// Maximum number of alarms in one answer, which always states the total.
pub const ALARMS_SHOWN_MAX: usize = 256;

/// Maximum number of background jobs in the answer about the daemon. The answer about background work shows
/// all.
pub const JOBS_SHOWN_MAX: usize = 16;

/// Maximum body of an API request that applies all policies at once, in bytes: some hundred for each possible
/// policy group and volume.
pub const API_POLICIES_BYTES_MAX: usize = 16 << 20;

/// Maximum duration of a recording, in seconds: the time that one API request may take.
pub const RECORDING_SECONDS_MAX: u32 = 600;

/// Maximum number of volumes in one recording: more than an operator compares.
pub const RECORDING_VOLUMES_MAX: usize = 256;

/// Maximum size of a trace, in bytes: 3.7 million requests, which the daemon holds in memory until the client
/// reads them.
pub const TRACE_BYTES_MAX: u64 = 256 << 20;

/// Default size limit of a trace, in bytes: 900 000 requests.
pub const TRACE_BYTES_DEFAULT: u64 = 64 << 20;

/// Maximum number of open requests of a synthetic load: those of a hundred saturated connections.
pub const MADE_UP_REQUESTS_MAX: u64 = 100 * crate::bounds::CONNECTION_REQUESTS_MAX as u64;

/// Maximum duration of a synthetic load, in seconds.
pub const MADE_UP_SECONDS_MAX: u32 = RECORDING_SECONDS_MAX;

/// Maximum number of requests in progress whose clients do not wait. Half of the workers are left for others.
pub const OPERATION_REQUESTS_MAX: usize = API_WORKERS_MAX / 2;

/// Maximum number of ended operations that are kept.
pub const OPERATIONS_ENDED_MAX: usize = 1000;

/// Maximum age of an ended operation, in seconds.
pub const OPERATION_SECONDS: i64 = 24 * 3600;

/// Maximum size of a kept answer of a request whose client did not wait, in bytes.
pub const OPERATION_RESULT_BYTES_MAX: usize = 1 << 20;

/// Maximum size of all kept answers of such requests, in bytes. The oldest operations leave first.
pub const OPERATION_RESULTS_BYTES_MAX: usize = 16 << 20;

/// Maximum time that an answer waits for the end of an operation, in seconds.
pub const OPERATION_WAIT_SECONDS_MAX: u32 = 60;

/// Maximum number of clients that wait for the end of an operation.
pub const OPERATION_WAITS_MAX: usize = 32;
