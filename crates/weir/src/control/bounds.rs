//! Bounds of control and its API, each with its unit and its reason. Those of the data path are in
//! `weir_types::bounds`.

use std::ops::RangeInclusive;

/// Tenants that one daemon knows: far more than one machine serves, few enough to list in one answer.
pub const TENANTS_MAX: usize = 4_096;

/// Drives that one daemon knows: several times the bays of the largest servers, and as many as a byte can tell apart
/// beside one value for none.
pub const DRIVES_MAX: usize = 255;

/// Replicas of each extent that can be asked for: one less than there can be, for one that takes the place of another.
pub const REPLICAS_MAX: u8 = weir_types::bounds::REPLICAS_MAX as u8 - 1;

/// Smallest block device that can be a drive, in bytes: the least that an XFS filesystem is made on.
pub const DEVICE_BYTES_MIN: u64 = 300 << 20;

/// New volumes that wait at a time until a drive is measured: they leave most of the API's workers to everybody else.
pub const CLASS_WAITS_MAX: usize = 8;

/// Drives of which a refusal says why they are not of a class: whoever has more of them knows them.
pub const REASONS_SHOWN_MAX: usize = 3;

/// Block devices that are formatted at a time: they leave most of the API's workers to everybody else.
pub const DEVICE_FORMATS_MAX: usize = 2;

/// Filesystems that were begun on block devices and came to nothing that are remembered: as many as there can be
/// drives.
pub const UNFINISHED_FORMATS_MAX: usize = DRIVES_MAX;

/// What is kept of what a program of the system prints, in bytes: many times what those say that are run.
pub const PROGRAM_OUTPUT_BYTES_MAX: u64 = 64 << 10;

/// Longest table of the system that is read, in bytes: that of a hundred thousand mounts, which is all that Linux has.
pub const SYSTEM_TABLE_BYTES_MAX: u64 = 64 << 20;

/// Templates that one daemon knows, beside the built-in ones: more than anybody tells apart, few enough to list in one
/// answer.
pub const TEMPLATES_MAX: usize = 1_024;

/// Policy groups that one daemon knows: one for every volume.
pub const POLICY_GROUPS_MAX: usize = weir_types::bounds::VOLUMES_MAX;

/// How much of a pool's capacity floors and the reserve may be together, in percent: less than a tenth is a
/// mistake, and who promises more than ten times what there is promises nothing.
pub const OVER_COMMIT_PERCENT: RangeInclusive<u32> = 10..=1000;

/// The part of a pool's capacity that can be kept for background work, in percent: more than half of it would
/// make that the foreground.
pub const RESERVE_PERCENT: RangeInclusive<u32> = 0..=50;

/// How much of a pool's size volumes on it may have together, in percent, where that is limited: less than all of it
/// is a mistake, and a hundred times is no limit.
pub const OVER_PROVISION_PERCENT: RangeInclusive<u32> = 100..=10_000;

/// From how full on a pool may be told as nearly full, in percent: before half of it is used there is nothing to tell.
/// At 100 only a pool without any free space is.
pub const POOL_FULL_PERCENT: RangeInclusive<u8> = 50..=100;

/// From how full on a pool is told as nearly full unless it is configured, in percent: early enough to add a drive,
/// late enough to be read.
pub const POOL_FULL_PERCENT_DEFAULT: u8 = 95;

/// Groups that may stand under each other: what is left of all levels without the pool, the tenant, the volume and
/// its connections.
pub const GROUP_DEPTH_MAX: usize = weir_types::bounds::POLICY_DEPTH_MAX - 4;

/// Ranges of damaged blocks of a volume that are told one by one: who has more needs the volume's backup and no list.
pub const DAMAGED_RANGES_SHOWN_MAX: usize = 16;

/// Space that volumes leave free on the filesystem that holds the state folder, in bytes: many times what a start, the
/// catalogue and replica metadata need, and what journals and snapshots that are copied take uncounted.
pub const STATE_RESERVE_BYTES_MAX: u64 = 64 << 20;

/// On small filesystems it is less: this part of their size.
pub const STATE_RESERVE_PART: u64 = 32;

/// Names that an error lists before it says how many more there are.
pub const NAMES_IN_ERROR_MAX: usize = 8;

/// Largest body of an API request, in bytes: ten times the longest that makes sense.
pub const API_BODY_BYTES_MAX: usize = 64 << 10;

/// Connections that one listener of the API serves at a time; for a further one an idle one ends, and while all are busy
/// it is refused.
pub const API_CONNECTIONS_MAX: usize = 64;

/// Connections beyond [`API_CONNECTIONS_MAX`] that are kept for those who may administer, on the Unix socket.
pub const API_CONNECTIONS_RESERVE: usize = 8;

/// Seconds that a client may take to send the head of a request, or be silent between two.
pub const API_HEADER_SECONDS_MAX: u64 = 10;

/// Seconds that a client may take to send the body of a request: the largest at 16 Mbit/s.
pub const API_BODY_SECONDS_MAX: u64 = 10;

/// Seconds that a client may take nothing of an answer before its connection ends.
pub const API_WRITE_SECONDS_MAX: u64 = 10;

/// Bytes of a request or an answer that one connection of the API holds on their way in or out.
pub const API_CONNECTION_BUFFER_BYTES: usize = 64 << 10;

/// Lists that are answered at a time some entries at a time; further requests wait.
pub const API_LISTS_MAX: usize = 32;

/// Scrapes, and lists whose entries are all in memory, that are answered at a time; further requests wait. Each takes up
/// to 32 MiB with ten thousand volumes.
pub const API_SCRAPES_MAX: usize = 2;

/// Seconds that a request waits for its answer to be begun before it is refused.
pub const API_ANSWER_WAIT_SECONDS_MAX: u64 = 5;

/// Seconds that a client may take to read an answer that is made piece by piece.
pub const API_ANSWER_SECONDS_MAX: u64 = 60;

/// Bytes of such an answer that are written at a time.
pub const API_ANSWER_PIECE_BYTES: usize = 64 << 10;

/// Pieces of such an answer that are written ahead of its client.
pub const API_ANSWER_PIECES_AHEAD: usize = 2;

/// Volumes that are looked up at a time for a list of them.
pub const API_VOLUMES_PER_PIECE: usize = 128;

/// Tenants that are looked up at a time for a list of them: for each piece the volumes of all tenants are counted.
pub const API_TENANTS_PER_PIECE: usize = 1024;

/// Shortest token that the API accepts over TCP, in bytes: 128 random bits in hexadecimal digits, or 24 letters.
pub const API_TOKEN_BYTES_MIN: usize = 24;

/// Longest token, in bytes.
pub const API_TOKEN_BYTES_MAX: usize = 4096;

/// API requests that read and run at a time; further ones wait. Reads wait for no drive and no change, so these are
/// about as many as there are cores.
pub const API_READERS_MAX: usize = 8;

/// API requests that change something and run at a time; further ones wait: one for each connection, so that changes
/// that wait for a drive that hangs leave threads to others.
pub const API_WORKERS_MAX: usize = API_CONNECTIONS_MAX;
const _: () = assert!(2 * DEVICE_FORMATS_MAX < API_WORKERS_MAX);

/// Changes that may be at one drive at a time: a quarter of all that run, so that several drives may hang.
pub const DRIVE_CHANGES_MAX: usize = API_WORKERS_MAX / 4;

/// Snapshots, clones and restorings that are made at a time; further ones wait. Where filesystems cannot share each may
/// take hours.
pub const API_SNAPSHOTS_MAX: usize = 8;

/// Alarms that one answer shows; the number of all of them is always told.
pub const ALARMS_SHOWN_MAX: usize = 256;

/// Pieces of background work that the answer about the daemon shows; that about background work shows all.
pub const JOBS_SHOWN_MAX: usize = 16;

/// Largest body of an API request that brings all policies at once, in bytes: some hundred for every policy group
/// and every volume that there can be.
pub const API_POLICIES_BYTES_MAX: usize = 16 << 20;

/// Longest recording of requests, in seconds: what one API request may take.
pub const RECORDING_SECONDS_MAX: u32 = 600;

/// Volumes that one recording may have: more than anybody compares.
pub const RECORDING_VOLUMES_MAX: usize = 256;

/// Largest trace, in bytes: 3.7 million requests, which the daemon holds in memory until they are fetched.
pub const TRACE_BYTES_MAX: u64 = 256 << 20;

/// Largest trace if nothing else is said, in bytes: 900 000 requests.
pub const TRACE_BYTES_DEFAULT: u64 = 64 << 20;

/// Requests of a made-up load that are open at a time: those of a hundred saturated connections.
pub const MADE_UP_REQUESTS_MAX: u64 = 100 * weir_types::bounds::CONNECTION_REQUESTS_MAX as u64;

/// Longest made-up load, in seconds.
pub const MADE_UP_SECONDS_MAX: u32 = RECORDING_SECONDS_MAX;
