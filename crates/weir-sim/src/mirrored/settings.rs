//! What a world of a volume with replicas is made of, and what came of it. Nothing here does anything.

use weir_types::bounds::REPLICAS_MAX;

/// What a drive does to what it was given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rot {
    /// Nothing: whatever a scrub finds is a false alarm.
    #[default]
    None,
    /// The last of three loses writes, makes them elsewhere, and has blocks change.
    Always,
    /// Blocks of the last replica change once all is at rest and was scrubbed.
    AtRest,
}

/// A mistake that is made on purpose, to see that it is noticed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sabotage {
    /// None.
    #[default]
    None,
    /// Replica metadata is said to be written and is not, now and then.
    MetadataLate,
    /// One region in some is said to be copied and is not.
    SkipsRegions,
    /// Reads are made from stale replicas now and then.
    ReadsStale,
    /// A change begins before the checksums of the range are durably invalid.
    ChecksumsStayValid,
    /// A section has valid checksums though something in it changed.
    ChecksumsChanged,
    /// A good replica is given what a bad one has.
    MendsFromBad,
    /// Changes are let go before what they change is in the snapshot.
    SnapshotsLate,
    /// A start does not wait for what was asked of drives before it.
    StartsUnfenced,
    /// A start does not make durable what a killed daemon left in volatile memory of drives.
    StartsUnflushed,
    /// A range counts as zeroed or given back on a filesystem that can do neither.
    ZeroesNothing,
    /// An extent that comes again after a shrink has the files of the one before.
    GrowsOverOldFiles,
    /// The epochs of an extent that comes again after a shrink begin as those of the one before did.
    BeginsEpochsAnew,
    /// A replica behind a write journal whose drive was not found is served without it.
    ServesWithoutJournal,
    /// What a replica behind a write journal is to make durable is synced in its file, and not in the journal.
    SyncsFilesAlone,
    /// What a journal has of a replica is a hole if the file has nothing there.
    MapsFilesAlone,
}

/// What the filesystem of a drive can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abilities {
    /// Give back the space of a range.
    pub punches_holes: bool,
    /// Zero a range in one step.
    pub zeroes_ranges: bool,
    /// Say exactly where a file holds data.
    pub tells_holes: bool,
}

impl Abilities {
    /// All of it.
    const ALL: Abilities = Abilities { punches_holes: true, zeroes_ranges: true, tells_holes: true };
    /// Nothing that changes the space of a file.
    const NO_PLACEMENT: Abilities =
        Abilities { punches_holes: false, zeroes_ranges: false, tells_holes: true };

    /// Each of them by a bit.
    fn of_bits(bits: u64) -> Abilities {
        Abilities { punches_holes: bits & 1 != 0, zeroes_ranges: bits & 2 != 0, tells_holes: bits & 4 != 0 }
    }
}

/// What a run is made of.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Everything follows from it.
    pub seed: u64,
    /// Replicas to begin with, 1 to 3.
    pub replicas: usize,
    /// Steps of the world.
    pub steps: u32,
    /// Once in how many steps the power fails; twenty times as often while metadata with a new epoch is being written.
    pub steps_between_crashes: u64,
    /// Once in how many steps a resync goes on, a replica is promoted, or dirty regions are tidied.
    pub steps_between_background: u64,
    /// Most requests in flight.
    pub depth: usize,
    /// Of 1000 disk operations, how many find the drive full.
    pub full_per_mille: u64,
    /// Of 10 000 steps, in how many a drive fails until the next start.
    pub breaks_per_ten_thousand: u64,
    /// Of 10 000 steps, in how many a drive stops answering for a while.
    pub stalls_per_ten_thousand: u64,
    /// Folders of drives that go, in ten thousand steps.
    pub absences_per_ten_thousand: u64,
    /// Of 10 000 steps, in how many a drive, or the folder of epoch records, takes no metadata for a while.
    pub metadata_faults_per_ten_thousand: u64,
    /// Of 1000 replicas that come back, how many do so in an older state than they went.
    pub swaps_per_mille: u64,
    /// Of 1000 steps, in how many a replica is added or given up.
    pub moves_per_mille: u64,
    /// Replicas come and go in the order in which control moves them, and begin as control finds them.
    pub is_moved: bool,
    /// Of 10 000 steps, in how many an extent goes and another one comes in its place.
    pub resizes_per_ten_thousand: u64,
    /// Of 1000 steps, in how many a snapshot is begun.
    pub snapshots_per_mille: u64,
    /// Of 1000 steps, in how many something is scrubbed.
    pub scrubs_per_mille: u64,
    /// What becomes of what rests.
    pub rot: Rot,
    /// What the filesystem of each drive can do.
    pub abilities: [Abilities; REPLICAS_MAX],
    /// The replicas of this number are behind a write journal.
    pub journaled_slot: Option<usize>,
    /// Blocks of its log.
    pub journal_blocks: u32,
    /// Of ten crashes, in how many the daemon alone ends, and what it has asked drives for goes on.
    pub kills_per_ten: u64,
    /// Of 1000 times that the first drive could answer a sync, in how many it does not yet.
    pub slow_syncs_per_mille: u64,
    /// Of 1000 operations of the first drive, how many fail though it goes on.
    pub errors_per_mille: u64,
    /// Of 1000 syncs of the epoch record, how many fail though it can be written.
    pub record_errors_per_mille: u64,
    /// Power is likely to fail where an answer can be taken for more than it says: a sync of an earlier file beside one of
    /// the file in its place, and what is written again after it failed.
    pub cuts_where_doubtful: bool,
    /// The mistake that is made.
    pub sabotage: Sabotage,
}

impl Settings {
    /// True if all filesystems can give space back and zero in one step.
    pub(super) fn can_all_place(&self) -> bool {
        self.abilities.iter().all(|abilities| abilities.punches_holes && abilities.zeroes_ranges)
    }

    /// True if replicas that come back are often in sync again before something late happens to them.
    pub(super) fn resyncs_end_soon(&self) -> bool {
        self.stalls_per_ten_thousand > 0 || self.errors_per_mille > 0
    }

    /// One to three replicas and power cuts alone.
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
            abilities: [Abilities::ALL; REPLICAS_MAX],
            journaled_slot: None,
            journal_blocks: 0,
            kills_per_ten: 0,
            slow_syncs_per_mille: 0,
            errors_per_mille: 0,
            record_errors_per_mille: 0,
            cuts_where_doubtful: false,
            sabotage: Sabotage::None,
        }
    }

    /// Everything that can happen but rot, while it is scrubbed.
    pub fn scrubbed(seed: u64) -> Settings {
        Settings { scrubs_per_mille: 300, ..Settings::all_at_once(seed) }
    }

    /// One or two replicas and power cuts, then blocks of the last replica that rot at rest; or three, the last on a drive that
    /// does not do as it is told.
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

    /// Everything that can happen but rot, and drives that fail often and come back in an older state.
    pub fn swapped(seed: u64) -> Settings {
        Settings { swaps_per_mille: 500, breaks_per_ten_thousand: 40, ..Settings::all_at_once(seed) }
    }

    /// Replicas of extents are moved from drive to drive, and what happens in the other worlds happens meanwhile: seeds by
    /// turns, up to everything at once but rot.
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

    /// The daemon is killed again and again while drives are at what it asked for, beside whatever else can happen.
    pub fn killed(seed: u64) -> Settings {
        Settings { kills_per_ten: 8, steps_between_crashes: 200, ..Settings::one_of_four(seed) }
    }

    /// Drives whose filesystems differ in what they can do, or lack the same, beside whatever else can happen.
    pub fn mixed(seed: u64) -> Settings {
        let bits = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        let is_alike = seed.is_multiple_of(3);
        let of = |slot: usize| Abilities::of_bits(if is_alike { bits } else { bits >> (3 * slot) });
        Settings { abilities: std::array::from_fn(of), ..Settings::one_of_four(seed) }
    }

    /// The volume shrinks and grows, beside failing drives, late writes and kills.
    pub fn resized(seed: u64) -> Settings {
        let base = match seed % 4 {
            0 => Settings::quiet(seed),
            1 => Settings { kills_per_ten: 5, ..Settings::all_at_once(seed) },
            2 => Settings::stalled(seed),
            _ => Settings::all_at_once(seed),
        };
        Settings { resizes_per_ten_thousand: 60, ..base }
    }

    /// One replica is behind a write journal that is soon full, beside power cuts, kills and failing drives, that of the journal
    /// too; replicas come and go.
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

    /// Drives fail and come back before they answer syncs, writes of metadata and epoch records fail and are tried again,
    /// and power fails where an answer can be taken for more than it says.
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

    /// Everything that can happen, in some mixture.
    pub fn all_at_once(seed: u64) -> Settings {
        let mut abilities = [Abilities::ALL; REPLICAS_MAX];
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

/// What came of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Equal for equal seeds.
    pub trace_hash: u64,
    /// Requests that were acknowledged.
    pub acknowledged: u64,
    /// Requests that failed.
    pub failed: u64,
    /// Crashes that were survived.
    pub crashes: u64,
    /// Of these, how often the daemon alone ended.
    pub kills: u64,
    /// Times that the volume shrank and grew.
    pub resizes: u64,
    /// Regions that were copied.
    pub copied: u64,
    /// Changes of replica states.
    pub replica_states: u64,
    /// Snapshots that came to their end.
    pub snapshots: u64,
    /// Writes of metadata that no replica in sync could take.
    pub metadata_refused: u64,
    /// Writes of checksum headers that no replica in sync could take.
    pub headers_refused: u64,
    /// Replicas that control added or gave up.
    pub moves: u64,
    /// Answers that could be taken for more than they said.
    pub doubtful_answers: u64,
    /// Times that the folder of a drive went.
    pub absences: u64,
    /// Pieces of work that were given up because a drive did not answer.
    pub given_up: u64,
    /// Of these, writes that were carried out all the same, later.
    pub late_writes: u64,
    /// Sections that were scrubbed, or given up.
    pub sections_scrubbed: u64,
    /// Sections that got valid checksums after that.
    pub sections_validated: u64,
    /// Replicas that lost with a write journal, or by what it held, what was acknowledged.
    pub invalidated: u64,
    /// Write journals that failed.
    pub journals_failed: u64,
    /// Pieces that a write journal brought to files behind it.
    pub brought: u64,
    /// Replicas that came back with metadata that was not what was last written there.
    pub swapped: u64,
    /// Blocks of replicas that were found bad where others were good.
    pub blocks_found: u64,
    /// Blocks of these that were repaired.
    pub blocks_repaired: u64,
    /// Blocks that were found without a good replica.
    pub blocks_damaged: u64,
}
