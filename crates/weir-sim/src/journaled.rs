//! A write journal in an imagined machine: files behind a journal that is soon full, answers in any order,
//! power cuts and kills at any instant, drives that fail, files that go and come again under the same name.
//!
//! Contents are stamps, one for each block; headers and superblocks are the bytes that the journal makes.

mod client;
mod crash;
mod machine;

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use weir_journal::{FileId, FileKey, Geometry, Journal, Pin, Ticket};

use crate::Stamp;
use crate::disk::File;
use crate::history::History;
use crate::journal_file;
use weir_types::random::Random;

use client::InFlight;
use machine::Pending;

/// Files behind the journal.
const FILES: u32 = 3;
/// Blocks of each that are used.
const FILE_BLOCKS: u32 = 160;
/// A fullness in thousandths up to which everything goes through the journal: there is none above it.
const NEVER_PASSED_BY: u32 = 1001;
/// Steps after which the journal is told that time has passed.
const INTERVAL: u64 = 64;

/// A mistake that is made on purpose, to see that it is noticed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sabotage {
    /// None.
    #[default]
    None,
    /// A slow file is said to be synced and is not, so that the tail moves before it is.
    SyncsNoSlowFile,
    /// The journal is said to be synced and is not, so that durable writes are acknowledged before they are
    /// stable.
    SyncsNoJournal,
    /// A superblock is said to be durable and is not, so that space is used again too early.
    SuperblockLate,
    /// Large writes pass by whatever records there are.
    PassesByRecords,
    /// The space that is read from is given back before it was read.
    ReadsUnpinned,
    /// A start does not wait for what a killed daemon had asked of drives.
    StartsUnfenced,
    /// The journal is not told that the slow drive may have forgotten something.
    ForgetsUnnoticed,
}

/// What a run is made of.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Everything follows from it.
    pub seed: u64,
    /// Steps of the world.
    pub steps: u32,
    /// Most requests in flight.
    pub depth: usize,
    /// Blocks of the journal's log.
    pub log_blocks: u32,
    /// Of 10 000 answers, how many are faults of the slow drive.
    pub slow_faults_per_ten_thousand: u64,
    /// Of 10 000 answers, how many are faults of the journal's drive.
    pub journal_faults_per_ten_thousand: u64,
    /// Of 1000 steps, in how many a file is given up and made anew.
    pub renewals_per_mille: u64,
    /// Of 1000 steps, in how many the slow drive goes away, with what was not stable there, or comes back.
    pub absences_per_mille: u64,
    /// The slow drive's filesystem can neither zero nor release.
    pub is_without_fallocate: bool,
    /// How full the journal may be, in thousandths, for large writes to go through it.
    pub absorbing_per_mille: u32,
    /// The mistake that is made.
    pub sabotage: Sabotage,
}

impl Settings {
    /// Power cuts and kills alone.
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

    /// The slow drive goes and comes back, and has forgotten what was not stable. Nothing passes by the journal: that would
    /// be the owner's to write again.
    pub fn forgetful(seed: u64) -> Settings {
        let base = if seed % 5 < 2 { Settings::quiet(seed) } else { Settings::all_at_once(seed) };
        Settings { absences_per_mille: 20, absorbing_per_mille: NEVER_PASSED_BY, ..base }
    }

    /// Everything that can happen, in some mixture.
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

/// What came of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Equal for equal seeds.
    pub trace_hash: u64,
    /// Requests that were acknowledged.
    pub acknowledged: u64,
    /// Requests that failed.
    pub failed: u64,
    /// Power cuts and kills that were survived.
    pub crashes: u64,
    /// Records that were written.
    pub records: u64,
    /// Operations that brought something to slow files.
    pub destaged: u64,
    /// Writes that passed by.
    pub passed_by: u64,
    /// Times that the tail was moved.
    pub tail_moves: u64,
    /// Steps in which changes waited for space.
    pub full: u64,
    /// Files that failed.
    pub files_failed: u64,
    /// Files that were forgotten.
    pub forgotten: u64,
    /// Journals that failed.
    pub journals_failed: u64,
    /// Times that the slow drive forgot what was not stable in a file.
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
    /// One more whenever it is made anew.
    incarnation: u32,
    /// The slow drive has failed it.
    has_failed: bool,
    /// The slow drive went away, or is not yet known to be back.
    is_away: bool,
    /// It is durably on record that its content does not count.
    is_pending_deletion: bool,
    /// What that led to is awaited.
    is_forgetting: bool,
}

/// A client's read, which takes several steps.
#[derive(Debug)]
struct Read {
    file: usize,
    incarnation: u32,
    block: u32,
    began: u64,
    /// What is still to be read: where in the buffer, from where, how many blocks; the journal is the file
    /// `None`.
    parts: Vec<(u32, Option<usize>, u32, u32)>,
    buffer: Vec<Stamp>,
    pin: Option<Pin>,
}

struct World {
    settings: Settings,
    random: Random,
    now: u64,
    geometry: Geometry,
    identity: u8,
    journal: Journal,
    journal_file: File<Cell>,
    slow: Vec<Slow>,
    pending: Vec<Pending>,
    /// What a killed daemon had asked for and may still be carried out, if the start did not wait for it.
    unfenced: Vec<Pending>,
    in_flight: BTreeMap<Ticket, InFlight>,
    next_ticket: u64,
    next_stamp: Stamp,
    has_journal_failed: bool,
    report: Report,
}

fn file_key(index: usize) -> FileKey {
    FileKey { extent: index as u32 / 2, replica: index as u8 % 2 }
}

/// Runs one world to its end: the journal is emptied, and then the slow files have everything.
///
/// # Errors
/// Says which promise was broken.
pub fn run(settings: Settings) -> Result<Report, String> {
    let mut world = World::new(settings)?;
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

impl World {
    fn new(settings: Settings) -> Result<World, String> {
        let geometry = Geometry::tiny(settings.log_blocks).absorbing(settings.absorbing_per_mille);
        let mut journal_file = File::default();
        let journal = journal_file::make(&mut journal_file, geometry, 1)?;
        let mut world = World {
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

    /// Does whatever chance has it do.
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

    /// Answers everything that is under way.
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

    /// Brings everything to the slow files, and looks whether they have it without the journal.
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

    /// Files that have failed are put on record, and then forgotten.
    fn forget_failed(&mut self) -> Result<(), String> {
        for index in 0..self.slow.len() {
            if self.slow[index].has_failed && !self.slow[index].is_forgetting {
                self.forget(index)?;
            }
        }
        Ok(())
    }

    /// The slow drive goes away from a file, or is found to be back: without what was not stable in it.
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

    /// Files that a nearly full journal waits for are given up now and then: others have what they have.
    fn give_up_what_is_in_the_way(&mut self) -> Result<(), String> {
        let in_the_way = self.journal.in_the_way();
        if in_the_way.is_empty() || !self.random.chance(1, 50) {
            return Ok(());
        }
        let is_meant = |index: &usize| in_the_way.contains(&file_key(*index));
        let meant: Vec<usize> = (0..self.slow.len()).filter(is_meant).collect();
        meant.into_iter().try_for_each(|index| self.forget(index))
    }

    /// The slow drive is found to be back, wherever it was away.
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

    /// A file is made anew, under the same name.
    fn renew(&mut self, index: usize) -> Result<(), String> {
        let id = self.open(index)?;
        // The file before it is gone, and what is still under way goes there.
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
        // This hasher is the same in every process.
        let mut hasher = DefaultHasher::new();
        (self.report.trace_hash, self.now, what).hash(&mut hasher);
        self.report.trace_hash = hasher.finish();
    }
}
