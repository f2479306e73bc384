//! A write journal in a simulated machine: files behind a journal that is soon full.
//!
//! Answers come in any order. Power cuts and kills happen at any instant, drives fail, and files are deleted
//! and created again under the same name. Contents are stamps, one per block. Headers and superblocks are the
//! bytes that the journal encodes.

mod client;
mod crash;
mod machine;
mod requests;

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use weir_journal::{FileId, FileKey, Geometry, Journal, Ticket};

use crate::Stamp;
use crate::disk::File;
use crate::history::History;
use crate::journal_file;
use weir_types::random::Random;

use machine::Pending;
use requests::InFlight;
use weir_types::{ExtentIndex, VolumeId};

/// Number of files behind the journal.
const FILES: u32 = 3;
/// Number of blocks of each file that are used.
const FILE_BLOCKS: u32 = 160;
/// An `absorbing_per_mille` above every possible fullness: no write ever bypasses the journal.
const NEVER_PASSED_BY: u32 = 1001;
/// Steps between two calls that tell the journal that time has passed.
const INTERVAL: u64 = 64;

/// A deliberate mistake, by which a test checks that the world notices it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sabotage {
    /// No mistake.
    #[default]
    None,
    /// A sync of a slow file reports success without syncing, so the tail moves too early.
    SyncsNoSlowFile,
    /// A sync of the journal reports success without syncing, so unstable durable writes are acknowledged.
    SyncsNoJournal,
    /// A superblock write reports success before it is durable, so space is reused too early.
    SuperblockLate,
    /// Large writes bypass the journal even if records cover the range.
    PassesByRecords,
    /// The journal reuses space that a read still needs.
    ReadsUnpinned,
    /// A start does not wait for operations that a killed daemon left at the drives.
    StartsUnfenced,
    /// The journal is not told that the slow drive may have lost data.
    ForgetsUnnoticed,
}

/// Parameters of a run.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Seed that determines the whole run.
    pub seed: u64,
    /// Number of steps of the world.
    pub steps: u32,
    /// Maximum number of requests in flight.
    pub depth: usize,
    /// Number of blocks of the journal's log.
    pub log_blocks: u32,
    /// Faults of the slow drive per 10 000 answers.
    pub slow_faults_per_ten_thousand: u64,
    /// Faults of the journal's drive per 10 000 answers.
    pub journal_faults_per_ten_thousand: u64,
    /// Steps per 1000 in which a file is deleted and created again.
    pub renewals_per_mille: u64,
    /// Steps per 1000 in which the slow drive is lost, with its unstable data, or comes back.
    pub absences_per_mille: u64,
    /// True if the slow drive's filesystem can neither zero nor release ranges.
    pub is_without_fallocate: bool,
    /// Fullness of the journal, in thousandths, up to which large writes go through it.
    pub absorbing_per_mille: u32,
    /// The deliberate mistake of the run.
    pub sabotage: Sabotage,
}

impl Settings {
    /// A run with power cuts and kills alone.
    pub fn quiet(seed: u64) -> Settings {
        Settings {
            seed,
            steps: 1500,
            depth: [4, 16, 48][(seed % 3) as usize],
            log_blocks: [264, 400, 700][(seed / 3 % 3) as usize],
            slow_faults_per_ten_thousand: 0,
            journal_faults_per_ten_thousand: 0,
            renewals_per_mille: 0,
            absences_per_mille: 0,
            is_without_fallocate: false,
            absorbing_per_mille: [0, 0, 500][(seed / 9 % 3) as usize],
            sabotage: Sabotage::None,
        }
    }

    /// A run in which the slow drive is lost, comes back and has lost unstable data. No write bypasses the
    /// journal, because the owner would have to repeat a lost bypassed write.
    pub fn forgetful(seed: u64) -> Settings {
        let base = if seed % 5 < 2 { Settings::quiet(seed) } else { Settings::all_at_once(seed) };
        Settings { absences_per_mille: 20, absorbing_per_mille: NEVER_PASSED_BY, ..base }
    }

    /// A run with a mixture of all events.
    pub fn all_at_once(seed: u64) -> Settings {
        Settings {
            slow_faults_per_ten_thousand: if seed.is_multiple_of(2) { 150 } else { 0 },
            journal_faults_per_ten_thousand: if seed.is_multiple_of(5) { 30 } else { 0 },
            renewals_per_mille: if seed.is_multiple_of(3) { 0 } else { 5 },
            is_without_fallocate: seed.is_multiple_of(4),
            ..Settings::quiet(seed)
        }
    }
}

/// Outcome of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Hash of the trace. Equal seeds give equal hashes.
    pub trace_hash: u64,
    /// Number of acknowledged requests.
    pub acknowledged: u64,
    /// Number of failed requests.
    pub failed: u64,
    /// Number of power cuts and kills that the journal survived.
    pub crashes: u64,
    /// Number of records written.
    pub records: u64,
    /// Number of destage operations.
    pub destaged: u64,
    /// Number of writes that bypassed the journal.
    pub passed_by: u64,
    /// Number of moves of the tail.
    pub tail_moves: u64,
    /// Number of steps in which changes waited for journal space.
    pub full: u64,
    /// Number of files that failed.
    pub files_failed: u64,
    /// Number of files that the journal forgot.
    pub forgotten: u64,
    /// Number of journals that failed.
    pub journals_failed: u64,
    /// Number of times that the slow drive lost unstable data of a file.
    pub absences: u64,
}

/// A block of the journal's file.
type Cell = journal_file::Cell<Stamp>;

/// A file behind the journal.
#[derive(Debug)]
struct Slow {
    id: FileId,
    file: File<Stamp>,
    history: History,
    /// Number of times that the file was created again.
    incarnation: u32,
    /// True if the slow drive failed an operation on the file.
    has_failed: bool,
    /// True while the slow drive is away, or not yet known to be back.
    is_away: bool,
    /// True once it is durably recorded that the content is invalid and will be deleted.
    is_pending_deletion: bool,
    /// True while the journal has not answered that it forgot the file.
    is_forgetting: bool,
}

struct JournalWorld {
    settings: Settings,
    random: Random,
    now: u64,
    geometry: Geometry,
    identity: u8,
    journal: Journal,
    journal_file: File<Cell>,
    slow: Vec<Slow>,
    pending: Vec<Pending>,
    /// Operations of a killed daemon that drives may still carry out, if the start did not wait for them.
    unfenced: Vec<Pending>,
    in_flight: BTreeMap<Ticket, InFlight>,
    next_ticket: u64,
    next_stamp: Stamp,
    has_journal_failed: bool,
    report: Report,
}

fn file_key(index: usize) -> FileKey {
    let volume = VolumeId::from_bytes([index as u8 % 2; 16]);
    FileKey { volume, extent: ExtentIndex(index as u32 / 4), replica: index as u8 / 2 % 2 }
}

/// Runs one world to its end. The journal is emptied last, and then the slow files must hold everything.
///
/// # Errors
/// Names the promise that was broken.
pub fn run(settings: Settings) -> Result<Report, String> {
    let mut world = JournalWorld::new(settings)?;
    for _ in 0..settings.steps {
        world.step()?;
    }
    world.settings.slow_faults_per_ten_thousand = 0;
    world.settings.journal_faults_per_ten_thousand = 0;
    world.settle()?;
    world.crash(true)?;
    world.settle()?;
    world.empty()?;
    Ok(world.report)
}

impl JournalWorld {
    fn new(settings: Settings) -> Result<JournalWorld, String> {
        let geometry = Geometry::tiny(settings.log_blocks).absorbing(settings.absorbing_per_mille);
        let mut journal_file = File::default();
        let journal = journal_file::make(&mut journal_file, geometry, 1)?;
        let mut world = JournalWorld {
            settings,
            random: Random::new(settings.seed),
            now: 1,
            geometry,
            identity: 1,
            journal,
            journal_file,
            slow: Vec::new(),
            pending: Vec::new(),
            unfenced: Vec::new(),
            in_flight: BTreeMap::new(),
            next_ticket: 1,
            next_stamp: 1,
            has_journal_failed: false,
            report: Report::default(),
        };
        for index in 0..FILES as usize {
            let id = world.open(index)?;
            world.slow.push(Slow {
                id,
                file: File::default(),
                history: History::default(),
                incarnation: 0,
                has_failed: false,
                is_away: false,
                is_pending_deletion: false,
                is_forgetting: false,
            });
        }
        Ok(world)
    }

    fn open(&mut self, index: usize) -> Result<FileId, String> {
        self.journal.open(file_key(index)).map_err(|error| error.to_string())
    }

    /// Takes one random step.
    fn step(&mut self) -> Result<(), String> {
        self.now += 1;
        self.carry_out_unfenced();
        self.report.full += u64::from(self.journal.usage().waiting > 0);
        if self.has_journal_failed {
            return self.replace_journal();
        }
        if self.random.chance(1, 300) {
            let is_power_cut = self.random.chance(3, 4);
            return self.crash(is_power_cut);
        }
        if self.random.chance(1, 20) {
            self.forget_failed()?;
        }
        if self.random.chance(self.settings.renewals_per_mille, 1000) {
            let index = self.random.below(FILES.into()) as usize;
            return self.forget(index);
        }
        self.give_up_what_is_in_the_way()?;
        if self.random.chance(self.settings.absences_per_mille, 1000) {
            let index = self.random.below(FILES.into()) as usize;
            return self.go_or_come(index);
        }
        if self.random.chance(1, 200) {
            let is_draining = self.random.chance(1, 3);
            let mut actions = Vec::new();
            self.journal.set_draining(is_draining, &mut actions);
            return self.take(actions);
        }
        if self.now.is_multiple_of(INTERVAL) {
            let mut actions = Vec::new();
            self.journal.interval_passed(&mut actions);
            return self.take(actions);
        }
        if self.in_flight.len() < self.settings.depth && self.random.chance(1, 2) {
            return self.send();
        }
        self.answer_one()
    }

    /// Answers all outstanding operations.
    fn settle(&mut self) -> Result<(), String> {
        for _ in 0..100_000 {
            self.now += 1;
            self.forget_failed()?;
            self.all_come()?;
            if self.has_journal_failed {
                self.replace_journal()?;
            } else if !self.pending.is_empty() {
                self.answer_one()?;
            } else {
                let left = self.in_flight.len() + self.slow.iter().filter(|slow| slow.is_forgetting).count();
                return if left == 0 { Ok(()) } else { Err(format!("{left} requests were never answered")) };
            }
        }
        Err("there is no end of actions".to_owned())
    }

    /// Destages everything, and checks that the slow files are complete without the journal.
    fn empty(&mut self) -> Result<(), String> {
        let mut actions = Vec::new();
        self.journal.set_draining(true, &mut actions);
        self.take(actions)?;
        self.settle()?;
        if !self.journal.is_empty() {
            return Err(format!("the journal cannot be emptied: {:?}", self.journal.usage()));
        }
        for (index, slow) in self.slow.iter_mut().enumerate() {
            slow.file.crash(&mut self.random);
            for block in slow.history.sectors() {
                let stamp = slow.file.read(block as u32);
                let result = slow.history.check_read(block, stamp, self.now, self.now);
                result.map_err(|error| format!("without the journal, file {index}: {error}"))?;
            }
        }
        Ok(())
    }

    /// Records failed files as invalid, and has the journal forget them.
    fn forget_failed(&mut self) -> Result<(), String> {
        for index in 0..self.slow.len() {
            if self.slow[index].has_failed && !self.slow[index].is_forgetting {
                self.forget(index)?;
            }
        }
        Ok(())
    }

    /// Takes the slow drive away from a file, or brings it back without the data that was not stable.
    fn go_or_come(&mut self, index: usize) -> Result<(), String> {
        let slow = &mut self.slow[index];
        if slow.is_pending_deletion {
            return Ok(());
        }
        slow.is_away = !slow.is_away;
        let (is_away, id) = (slow.is_away, slow.id);
        let mut actions = Vec::new();
        if !is_away {
            self.report.absences += 1;
            self.slow[index].file.crash(&mut self.random);
            self.journal.resume(id, &mut actions);
        } else if self.settings.sabotage != Sabotage::ForgetsUnnoticed {
            self.journal.suspend(id, &mut actions);
        }
        self.take(actions)
    }

    /// Sometimes gives up files that a nearly full journal waits for. Other replicas have their data.
    fn give_up_what_is_in_the_way(&mut self) -> Result<(), String> {
        let in_the_way = self.journal.in_the_way();
        if in_the_way.is_empty() || !self.random.chance(1, 50) {
            return Ok(());
        }
        let is_meant = |index: &usize| in_the_way.contains(&file_key(*index));
        let meant: Vec<usize> = (0..self.slow.len()).filter(is_meant).collect();
        meant.into_iter().try_for_each(|index| self.forget(index))
    }

    /// Brings the slow drive back to all files that lost it.
    fn all_come(&mut self) -> Result<(), String> {
        let away: Vec<usize> = (0..self.slow.len()).filter(|index| self.slow[*index].is_away).collect();
        away.into_iter().try_for_each(|index| self.go_or_come(index))
    }

    fn forget(&mut self, index: usize) -> Result<(), String> {
        let slow = &mut self.slow[index];
        if slow.is_forgetting || self.has_journal_failed {
            return Ok(());
        }
        (slow.is_pending_deletion, slow.is_forgetting) = (true, true);
        let mut actions = Vec::new();
        self.journal.forget(slow.id, &mut actions);
        self.take(actions)
    }

    /// Creates a file again, under the same name.
    fn renew(&mut self, index: usize) -> Result<(), String> {
        let id = self.open(index)?;
        // The earlier file is gone, and outstanding operations go to the earlier file.
        self.unfenced.retain(|pending| pending.slow_file() != Some(index));
        let slow = &mut self.slow[index];
        let incarnation = slow.incarnation + 1;
        let (file, history) = (File::default(), History::default());
        let (has_failed, is_away, is_pending_deletion, is_forgetting) = (false, false, false, false);
        *slow =
            Slow { id, file, history, incarnation, has_failed, is_away, is_pending_deletion, is_forgetting };
        Ok(())
    }

    fn index_of(&self, id: FileId) -> usize {
        self.slow.iter().position(|slow| slow.id == id).expect("files are behind the journal")
    }

    fn note(&mut self, what: &impl Hash) {
        // This hasher gives equal hashes in every process.
        let mut hasher = DefaultHasher::new();
        (self.report.trace_hash, self.now, what).hash(&mut hasher);
        self.report.trace_hash = hasher.finish();
    }
}
