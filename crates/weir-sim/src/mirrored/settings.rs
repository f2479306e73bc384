//! Parameters of a world with a replicated volume. This module contains no behaviour of the world.

use weir_types::bounds::REPLICA_SLOTS_MAX;

/// Kind of data corruption on drives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rot {
    /// No corruption: every finding of a scrub is a false alarm.
    #[default]
    None,
    /// The last of three drives loses writes, misdirects them, and corrupts blocks.
    Always,
    /// Blocks of the last replica are corrupted once the volume is at rest and scrubbed.
    AtRest,
}

/// A deliberate mistake, by which a test checks that the world notices it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sabotage {
    /// No mistake.
    #[default]
    None,
    /// A write of replica metadata sometimes reports success without writing.
    MetadataLate,
    /// A resync of a region sometimes reports success without writing.
    SkipsRegions,
    /// Reads are sometimes served from stale replicas.
    ReadsStale,
    /// A change begins before the checksums of the range are durably invalid.
    ChecksumsStayValid,
    /// A section has valid checksums though something in it changed.
    ChecksumsChanged,
    /// A good replica is overwritten from a bad one.
    MendsFromBad,
    /// Changes are let go before what they change is in the snapshot.
    SnapshotsLate,
    /// A start does not wait for what was asked of drives before it.
    StartsUnfenced,
    /// A start does not flush data that a killed daemon left in the volatile cache of drives.
    StartsUnflushed,
    /// A range counts as zeroed or released on a filesystem that can do neither.
    ZeroesNothing,
    /// An extent that a grow creates takes over the files of the deleted one.
    GrowsOverOldFiles,
    /// Epochs of an extent that a grow creates start again from the beginning.
    BeginsEpochsAnew,
    /// A replica behind a write journal whose drive was not found is served without it.
    ServesWithoutJournal,
    /// A sync of a journaled replica syncs its file, and not the journal.
    SyncsFilesAlone,
    /// The allocation map of a journaled replica ignores data in the journal.
    MapsFilesAlone,
}

/// Abilities of a drive's filesystem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abilities {
    /// Whether it can release the space of a range.
    pub punches_holes: bool,
    /// Whether it can zero a range in one step.
    pub zeroes_ranges: bool,
    /// Whether it reports exactly where a file holds data.
    pub tells_holes: bool,
}

impl Abilities {
    /// All abilities.
    const ALL: Abilities = Abilities { punches_holes: true, zeroes_ranges: true, tells_holes: true };
    /// No ability that changes the space of a file.
    const NO_PLACEMENT: Abilities =
        Abilities { punches_holes: false, zeroes_ranges: false, tells_holes: true };

    /// Abilities from one bit each.
    fn of_bits(bits: u64) -> Abilities {
        Abilities { punches_holes: bits & 1 != 0, zeroes_ranges: bits & 2 != 0, tells_holes: bits & 4 != 0 }
    }
}

/// Parameters of a run.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Seed that determines the whole run.
    pub seed: u64,
    /// Number of replicas at the beginning, 1 to 3.
    pub replicas: usize,
    /// Number of steps of the world.
    pub steps: u32,
    /// Mean steps between power cuts. Power fails twenty times as often while metadata with a new epoch is
    /// being written.
    pub steps_between_crashes: u64,
    /// Mean steps between background steps: resync, promotion, or tidying of dirty regions.
    pub steps_between_background: u64,
    /// Maximum number of requests in flight.
    pub depth: usize,
    /// Disk operations per 1000 that find the drive full.
    pub full_per_mille: u64,
    /// Steps per 10 000 in which a drive fails until the next start.
    pub breaks_per_ten_thousand: u64,
    /// Steps per 10 000 in which a drive stops answering for a while.
    pub stalls_per_ten_thousand: u64,
    /// Folders of drives that go, in ten thousand steps.
    pub absences_per_ten_thousand: u64,
    /// Of 10 000 steps, in how many a drive, or the folder of epoch records, takes no metadata for a while.
    pub metadata_faults_per_ten_thousand: u64,
    /// Rejoins per 1000 in which the replica is in an older state than when it left.
    pub swaps_per_mille: u64,
    /// Steps per 1000 in which a replica is added or removed.
    pub moves_per_mille: u64,
    /// True if control moves replicas and recovers the extents, in its order of steps.
    pub is_moved: bool,
    /// Steps per 10 000 in which the last extent is deleted and created again.
    pub resizes_per_ten_thousand: u64,
    /// Of 1000 steps, in how many a snapshot is begun.
    pub snapshots_per_mille: u64,
    /// Steps per 1000 in which a section is scrubbed.
    pub scrubs_per_mille: u64,
    /// Kind of data corruption.
    pub rot: Rot,
    /// Abilities of the filesystem of each drive.
    pub abilities: [Abilities; REPLICA_SLOTS_MAX],
    /// Slot of the replicas behind a write journal, if any.
    pub journaled_slot: Option<usize>,
    /// Number of blocks of the journal's log.
    pub journal_blocks: u32,
    /// Crashes out of 10 that are kills: the daemon ends, and drives carry on with its operations.
    pub kills_per_ten: u64,
    /// True if flushes may be owed: the profile says so, and changes now and then.
    pub coalesces_flushes: bool,
    /// Chance in thousandths that the first drive delays a sync when it could answer it.
    pub slow_syncs_per_mille: u64,
    /// Operations of the first drive per 1000 that fail although the drive goes on working.
    pub errors_per_mille: u64,
    /// Syncs of the epoch record per 1000 that fail although the file can be written.
    pub record_errors_per_mille: u64,
    /// True if power is likely to fail after a doubtful answer. Doubtful is the sync of an earlier file
    /// beside one of the current file, or a write that succeeds after a failure.
    pub cuts_where_doubtful: bool,
    /// The deliberate mistake of the run.
    pub sabotage: Sabotage,
}

impl Settings {
    /// True if all filesystems can release space and zero ranges in one step.
    pub(super) fn can_all_place(&self) -> bool {
        self.abilities.iter().all(|abilities| abilities.punches_holes && abilities.zeroes_ranges)
    }

    /// True if rejoined replicas are often in sync again before late events reach them.
    pub(super) fn resyncs_end_soon(&self) -> bool {
        self.stalls_per_ten_thousand > 0 || self.errors_per_mille > 0
    }

    /// One to three replicas, with power cuts alone.
    pub fn quiet(seed: u64) -> Settings {
        Settings {
            seed,
            replicas: 1 + (seed % 3) as usize,
            steps: 1500,
            steps_between_crashes: 500,
            steps_between_background: 10,
            depth: 16,
            full_per_mille: 0,
            breaks_per_ten_thousand: 0,
            stalls_per_ten_thousand: 0,
            absences_per_ten_thousand: 0,
            metadata_faults_per_ten_thousand: 0,
            swaps_per_mille: 0,
            moves_per_mille: 0,
            is_moved: false,
            resizes_per_ten_thousand: 0,
            snapshots_per_mille: 0,
            scrubs_per_mille: 0,
            rot: Rot::None,
            abilities: [Abilities::ALL; REPLICA_SLOTS_MAX],
            journaled_slot: None,
            journal_blocks: 0,
            kills_per_ten: 0,
            coalesces_flushes: false,
            slow_syncs_per_mille: 0,
            errors_per_mille: 0,
            record_errors_per_mille: 0,
            cuts_where_doubtful: false,
            sabotage: Sabotage::None,
        }
    }

    /// All events except corruption, with scrubs.
    pub fn scrubbed(seed: u64) -> Settings {
        Settings { scrubs_per_mille: 300, ..Settings::all_at_once(seed) }
    }

    /// One or two replicas with power cuts, and then corruption at rest on the last replica. Every third seed
    /// has three replicas instead, the last on a faulty drive.
    pub fn rotting(seed: u64) -> Settings {
        let rot = if seed % 3 == 2 { Rot::Always } else { Rot::AtRest };
        Settings { scrubs_per_mille: 200, rot, ..Settings::quiet(seed) }
    }

    /// Everything that can happen but rot, while the volume is in the snapshot again and again, and scrubbed.
    pub fn snapshotted(seed: u64) -> Settings {
        let scrubs_per_mille = if seed.is_multiple_of(2) { 0 } else { 100 };
        Settings { snapshots_per_mille: 8, scrubs_per_mille, ..Settings::all_at_once(seed) }
    }

    /// Everything that can happen but rot, and drives that do not answer; in some the volume is in the snapshot and scrubbed. Power
    /// and drives fail seldom and a resync ends soon, so that replicas that were given up are often in sync again before
    /// a drive carries out the orphaned writes.
    pub fn stalled(seed: u64) -> Settings {
        let base =
            if seed.is_multiple_of(2) { Settings::all_at_once(seed) } else { Settings::snapshotted(seed) };
        Settings {
            stalls_per_ten_thousand: 25,
            breaks_per_ten_thousand: 5,
            metadata_faults_per_ten_thousand: base.metadata_faults_per_ten_thousand / 4,
            steps: 3000,
            steps_between_crashes: 3000,
            steps_between_background: 6,
            depth: 6,
            ..base
        }
    }

    /// All events except corruption, with drives that fail often and come back in an older state.
    pub fn swapped(seed: u64) -> Settings {
        Settings { swaps_per_mille: 500, breaks_per_ten_thousand: 40, ..Settings::all_at_once(seed) }
    }

    /// Replicas move between drives, beside the events of another kind of world. The seed selects the other
    /// events, up to all except corruption.
    pub fn moved(seed: u64) -> Settings {
        let base = match seed % 4 {
            0 => Settings {
                breaks_per_ten_thousand: 15,
                metadata_faults_per_ten_thousand: 40,
                ..Settings::quiet(seed)
            },
            1 => Settings::scrubbed(seed),
            2 => Settings::snapshotted(seed),
            _ => Settings::stalled(seed),
        };
        let replicas = 1 + (seed / 4 % 3) as usize;
        Settings { is_moved: true, moves_per_mille: 0, replicas, steps: 3000, depth: 6, ..base }
    }

    /// Frequent kills while operations are in flight, beside the events of another kind of world.
    pub fn killed(seed: u64) -> Settings {
        Settings { kills_per_ten: 8, steps_between_crashes: 200, ..Settings::one_of_four(seed) }
    }

    /// Filesystems with different or equal sets of abilities, beside the events of another kind of world.
    pub fn mixed(seed: u64) -> Settings {
        let bits = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        let is_alike = seed.is_multiple_of(3);
        let of = |slot: usize| Abilities::of_bits(if is_alike { bits } else { bits >> (3 * slot) });
        Settings { abilities: std::array::from_fn(of), ..Settings::one_of_four(seed) }
    }

    /// Shrinks and grows of the volume, beside failing drives, late writes and kills.
    pub fn resized(seed: u64) -> Settings {
        let base = match seed % 4 {
            0 => Settings::quiet(seed),
            1 => Settings { kills_per_ten: 5, ..Settings::all_at_once(seed) },
            2 => Settings::stalled(seed),
            _ => Settings::all_at_once(seed),
        };
        Settings { resizes_per_ten_thousand: 60, ..base }
    }

    /// One replica behind a write journal that is soon full, beside power cuts, kills and failing drives. The
    /// journal's drive fails too, and replicas come and go.
    pub fn journaled(seed: u64) -> Settings {
        let base = match seed % 3 {
            0 => Settings::quiet(seed),
            _ => Settings { swaps_per_mille: 0, ..Settings::all_at_once(seed) },
        };
        let replicas = 2 + (seed / 3 % 2) as usize;
        Settings {
            replicas,
            journaled_slot: Some(seed as usize % replicas),
            journal_blocks: [264, 400, 700][(seed / 9 % 3) as usize],
            kills_per_ten: 4,
            steps: 3000,
            ..base
        }
    }

    /// Changes of the I/O profile: control moves all replicas behind the journal of a drive, and away from it.
    pub fn reprofiled(seed: u64) -> Settings {
        let of_base = seed / 4;
        let base =
            if of_base.is_multiple_of(2) { Settings::moved(of_base) } else { Settings::absent(of_base) };
        Settings {
            seed,
            replicas: 1 + (seed % 2) as usize,
            is_moved: true,
            moves_per_mille: 0,
            swaps_per_mille: 0,
            journaled_slot: Some((seed / 2 % 2) as usize),
            journal_blocks: [264, 700][(seed / 4 % 2) as usize],
            snapshots_per_mille: 0,
            kills_per_ten: 4,
            steps: 3000,
            ..base
        }
    }

    /// Two or three replicas whose flushes are owed, beside the events of another kind of world and many kills.
    pub fn coalesced(seed: u64) -> Settings {
        let of_base = seed / 8;
        let base = match seed % 4 {
            0 => Settings::absent(of_base),
            1 => Settings::all_at_once(of_base),
            2 => Settings::stalled(of_base),
            _ => Settings::moved(of_base),
        };
        let replicas = 2 + (seed / 4 % 2) as usize;
        let slow_syncs_per_mille = [0, 500][(seed / 8 % 2) as usize];
        Settings { seed, coalesces_flushes: true, replicas, kills_per_ten: 6, slow_syncs_per_mille, ..base }
    }

    /// Worlds full of doubtful answers. Drives fail and come back before they answer syncs. Writes of
    /// metadata and epoch records fail and are retried. Power fails after doubtful answers.
    pub fn doubtful(seed: u64) -> Settings {
        let base = Settings {
            replicas: 3,
            metadata_faults_per_ten_thousand: 0,
            cuts_where_doubtful: true,
            breaks_per_ten_thousand: 3,
            steps: 3000,
            steps_between_crashes: 3000,
            steps_between_background: 4,
            depth: 6,
            full_per_mille: 0,
            swaps_per_mille: 0,
            ..Settings::all_at_once(seed)
        };
        match seed % 2 {
            0 => Settings { errors_per_mille: 15, slow_syncs_per_mille: 980, ..base },
            _ => Settings {
                errors_per_mille: 5,
                record_errors_per_mille: 300,
                metadata_faults_per_ten_thousand: 10,
                moves_per_mille: 0,
                ..base
            },
        }
    }

    /// Folders of drives go and return, some with other files in the place of open ones, beside whatever else can happen.
    pub fn absent(seed: u64) -> Settings {
        let base = match seed % 3 {
            0 => Settings { moves_per_mille: 0, ..Settings::quiet(seed) },
            1 => Settings::all_at_once(seed),
            _ => Settings::moved(seed),
        };
        Settings { absences_per_ten_thousand: 60, swaps_per_mille: 0, steps: 3000, ..base }
    }

    /// What happens beside what a kind of world is for: seeds by turns.
    fn one_of_four(seed: u64) -> Settings {
        match seed % 4 {
            0 => Settings::quiet(seed),
            1 => Settings::scrubbed(seed),
            2 => Settings::snapshotted(seed),
            _ => Settings::moved(seed),
        }
    }

    /// A mixture of all events except corruption.
    pub fn all_at_once(seed: u64) -> Settings {
        let mut abilities = [Abilities::ALL; REPLICA_SLOTS_MAX];
        if seed.is_multiple_of(5) {
            abilities[1] = Abilities::NO_PLACEMENT;
        }
        Settings {
            full_per_mille: if seed.is_multiple_of(2) { 10 } else { 0 },
            breaks_per_ten_thousand: 15,
            metadata_faults_per_ten_thousand: if seed.is_multiple_of(4) { 0 } else { 40 },
            swaps_per_mille: if seed % 4 == 1 { 300 } else { 0 },
            moves_per_mille: if seed.is_multiple_of(3) { 0 } else { 4 },
            abilities,
            ..Settings::quiet(seed)
        }
    }
}
