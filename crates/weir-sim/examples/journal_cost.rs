//! Measures the processor time of the journal core: `cargo run --release -p weir-sim --example journal_cost`.
//!
//! All files answer at once, so the figures contain the journal's decisions alone. The load is writes of 4
//! KiB at random offsets in a thousand extents.

use std::collections::VecDeque;
use std::time::Instant;

use weir_journal::{Action, FileId, FileKey, Geometry, Journal, Kind, Recovery, Request, Step, Ticket};
use weir_types::random::Random;
use weir_types::{ExtentIndex, JournalId, VolumeId};

const FILES: u32 = 1000;
const WRITES: u64 = 1_000_000;
const BLOCK: u32 = 4096;

fn new_journal(bytes: u64) -> Result<Journal, Box<dyn std::error::Error>> {
    let journal = JournalId::from_bytes([1; 16]);
    let superblocks = weir_journal::superblock::format(journal, Geometry::of_file(bytes)?);
    let mut recovery = Recovery::new(journal, bytes)?;
    loop {
        match recovery.step() {
            Step::Sync => recovery.synced(),
            Step::Read { position_bytes: 0, .. } => recovery.read(superblocks.as_flattened())?,
            Step::Read { length, .. } => recovery.read(&vec![0; length as usize])?,
            Step::WriteSuperblock { .. } => recovery.superblock_written(),
            Step::Ready => return Ok(recovery.finish()),
        }
    }
}

struct Bench {
    journal: Journal,
    actions: Vec<Action>,
    asked: VecDeque<Action>,
    done: u64,
    header: weir_journal::Block,
}

impl Bench {
    /// Answers all actions of the journal.
    fn run(&mut self) {
        loop {
            self.asked.extend(self.actions.drain(..));
            let Some(action) = self.asked.pop_front() else { return };
            let (journal, actions) = (&mut self.journal, &mut self.actions);
            match action {
                Action::WriteRecord { .. } => {
                    journal.encode_record(&mut self.header);
                    journal.record_written(Ok::<(), ()>(()), actions);
                }
                Action::SyncJournal => journal.journal_synced(Ok::<(), ()>(()), actions),
                Action::WriteSuperblock { .. } => journal.superblock_written(Ok::<(), ()>(()), actions),
                Action::Destage { operation, .. } => journal.destaged(operation, Ok(()), actions),
                Action::SyncSlow { file } => journal.slow_synced(file, Ok::<(), ()>(()), actions),
                Action::PassBy { ticket, .. } => journal.passed_by(ticket, Ok(()), actions),
                Action::Done { .. } => self.done += 1,
                Action::Forgotten { .. } | Action::FileFailed { .. } | Action::JournalFailed => {}
            }
        }
    }
}

/// Nanoseconds per write over the given number of writes, after a warm-up of as many writes.
fn measure(journal_bytes: u64, writes: u64, at_a_time: u64) -> Result<f64, Box<dyn std::error::Error>> {
    let journal = new_journal(journal_bytes)?;
    let (actions, asked) = (Vec::new(), VecDeque::new());
    let mut bench = Bench { journal, actions, asked, done: 0, header: [0; BLOCK as usize] };
    let mut files: Vec<FileId> = Vec::new();
    for extent in 0..FILES {
        files.push(bench.journal.open(FileKey {
            volume: VolumeId::from_bytes([2; 16]),
            extent: ExtentIndex(extent),
            replica: 1,
        })?);
    }
    let mut random = Random::new(1);
    let mut begin = Instant::now();
    for number in 0..2 * writes {
        if number == writes {
            begin = Instant::now();
        }
        let file = files[random.below(FILES.into()) as usize];
        let offset = random.below(1 << 18) as u32 * BLOCK;
        let kind = Kind::Write { is_durable: false, checksum: number as u32 };
        let request = Request { ticket: Ticket(number), file, offset, length: BLOCK, kind };
        bench.journal.change(request, &mut bench.actions)?;
        if number % at_a_time == 0 {
            bench.run();
        }
    }
    bench.run();
    assert_eq!(bench.done, 2 * writes);
    Ok(begin.elapsed().as_nanos() as f64 / writes as f64)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for at_a_time in [1, 32] {
        // Destaging starts only once a quarter of the journal is used, so this run measures journaling alone.
        let alone = measure(16 << 30, 200_000, at_a_time)?;
        let whole = measure(1 << 30, WRITES, at_a_time)?;
        println!(
            "{at_a_time} at a time: {alone:.0} ns to journal a write, {whole:.0} ns with the way to its slow file"
        );
    }
    let payload = vec![7u8; BLOCK as usize];
    let begin = Instant::now();
    let sum: u64 =
        (0..WRITES).map(|_| u64::from(weir_journal::checksum(std::hint::black_box(&payload)))).sum();
    let each = begin.elapsed().as_nanos() as f64 / WRITES as f64;
    println!("the checksum of its payload: {each:.0} ns ({sum:x})");
    Ok(())
}
