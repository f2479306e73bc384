//! Tests of the actions of a journal, where their order or number matters.

mod support;

use std::collections::BTreeSet;

use weir_journal::{Action, DestageContent, DestageFault, Fault, FileId, Kind, Part, SlowFault};

use support::machine::{BLOCK, Machine, key};
use weir_types::ExtentIndex;

const LOG_BLOCKS: u32 = 1000;
const LARGE: u32 = 32;

fn records(machine: &Machine) -> usize {
    machine.asked.iter().filter(|action| matches!(action, Action::WriteRecord { .. })).count()
}

#[test]
fn requests_during_a_record_write_share_the_next_record() {
    let mut machine = Machine::new(LOG_BLOCKS);
    let file = machine.file(ExtentIndex(0));
    let tickets: Vec<u64> = (0..20).map(|n| machine.write(file, n, 1, 1 + n as u8, false)).collect();
    assert_eq!(records(&machine), 1);
    machine.run_one();
    assert!(machine.is_done(tickets[0]) && machine.ends.len() == 1);
    assert!(matches!(machine.asked[0], Action::WriteRecord { length, .. } if length as usize == 20 * BLOCK));
    machine.run_one();
    assert_eq!(machine.ends.len(), 20);
    assert!(machine.asked.is_empty());
    assert_eq!(machine.content(file, 0, 3), [1, 2, 3]);
}

#[test]
fn write_is_readable_only_after_its_record_is_written() {
    let mut machine = Machine::new(LOG_BLOCKS);
    let file = machine.file(ExtentIndex(0));
    machine.slow.insert((file, 5), 7);
    machine.write(file, 5, 1, 8, false);
    assert_eq!(machine.content(file, 5, 1), [7]);
    machine.run();
    assert_eq!(machine.content(file, 5, 1), [8]);
}

#[test]
fn single_durable_write_needs_no_sync() {
    let mut machine = Machine::new(LOG_BLOCKS);
    let file = machine.file(ExtentIndex(0));
    // The first sync of a file covers bypass writes of an earlier life.
    machine.sync(file);
    assert_eq!(machine.asked, [Action::SyncSlow { file }]);
    machine.run();
    let ticket = machine.write(file, 0, 1, 1, true);
    assert!(matches!(machine.asked[0], Action::WriteRecord { is_durable: true, .. }));
    machine.run_one();
    assert!(machine.is_done(ticket) && machine.asked.is_empty());
    // Nothing is unstable, so the sync ends at once.
    let sync = machine.sync(file);
    assert!(machine.is_done(sync));
}

#[test]
fn durable_write_after_an_unstable_one_waits_for_a_sync() {
    let mut machine = Machine::new(LOG_BLOCKS);
    let file = machine.file(ExtentIndex(0));
    machine.write(file, 0, 1, 1, false);
    let ticket = machine.write(file, 1, 1, 2, true);
    machine.run_one();
    assert!(matches!(machine.asked[0], Action::WriteRecord { is_durable: false, .. }));
    machine.run_one();
    assert!(!machine.is_done(ticket));
    assert_eq!(machine.asked, [Action::SyncJournal]);
    machine.run_one();
    assert!(machine.is_done(ticket));
}

#[test]
fn large_writes_bypass_unless_a_record_overlaps() {
    let mut machine = Machine::new(LOG_BLOCKS);
    let file = machine.file(ExtentIndex(0));
    machine.write(file, 0, LARGE, 1, false);
    assert!(matches!(machine.asked[0], Action::PassBy { .. }));
    machine.run();
    // Records that wait or are being written count as well.
    machine.write(file, 40, 1, 2, false);
    machine.write(file, 100, 1, 2, false);
    for start in [32, 96] {
        assert!(!machine.journal.passes_by(file, start * BLOCK as u32, LARGE * BLOCK as u32));
    }
    machine.run();
    assert!(!machine.journal.passes_by(file, 32 * BLOCK as u32, LARGE * BLOCK as u32));
    assert!(machine.journal.passes_by(file, 64 * BLOCK as u32, LARGE * BLOCK as u32));
    machine.write(file, 32, LARGE, 3, false);
    machine.run();
    assert_eq!(machine.content(file, 38, 4), [3, 3, 3, 3]);
    // The write may bypass the journal once the records are gone.
    machine.with(|journal, actions| journal.set_draining(true, actions));
    machine.run();
    assert!(machine.journal.is_empty());
    assert!(machine.journal.passes_by(file, 32 * BLOCK as u32, LARGE * BLOCK as u32));
    assert_eq!(machine.content(file, 38, 4), [3, 3, 3, 3]);
}

#[test]
fn sync_covers_bypass_writes() {
    let mut machine = Machine::new(LOG_BLOCKS);
    let file = machine.file(ExtentIndex(0));
    machine.write(file, 0, LARGE, 1, false);
    machine.run();
    let sync = machine.sync(file);
    assert_eq!(machine.asked, [Action::SyncSlow { file }]);
    machine.run();
    assert!(machine.is_done(sync));
}

#[test]
fn destage_waits_for_overlapping_bypass_write() {
    let mut machine = Machine::new(LOG_BLOCKS);
    let file = machine.file(ExtentIndex(0));
    machine.write(file, 0, LARGE, 1, false);
    let passing_by = machine.asked.pop_front().unwrap();
    machine.write(file, 5, 1, 2, false);
    machine.write(file, 40, 1, 3, false);
    machine.run();
    machine.with(|journal, actions| journal.set_draining(true, actions));
    assert!(machine.asked.is_empty(), "{:?}", machine.asked);
    machine.asked.push_back(passing_by);
    machine.run();
    assert!(machine.journal.is_empty());
    assert_eq!(machine.content(file, 4, 3), [1, 2, 1]);
}

#[test]
fn log_space_is_not_reused_during_a_read() {
    let mut machine = Machine::new(LOG_BLOCKS);
    let file = machine.file(ExtentIndex(0));
    machine.write(file, 0, 1, 1, false);
    machine.run();
    let mut parts = Vec::new();
    let pin = machine.journal.read(file, 0, BLOCK as u32, &mut parts).unwrap();
    machine.with(|journal, actions| journal.set_draining(true, actions));
    machine.run();
    assert!(!machine.journal.is_empty());
    // Later readers do not delay the drop.
    let mut others = Vec::new();
    let other = machine.journal.read(file, 0, BLOCK as u32, &mut others).unwrap();
    assert!(matches!((parts[0], others[0]), (Part::Journal { .. }, Part::Slow { .. })));
    machine.with(|journal, actions| journal.read_ended(pin, actions));
    machine.run();
    assert!(machine.journal.is_empty());
    machine.with(|journal, actions| journal.read_ended(other, actions));
}

/// Returns the writes to slow files that are requested at present, as file, block and number of blocks.
fn destages(machine: &Machine) -> Vec<(FileId, u32, u32)> {
    let destage = |action: &Action| match action {
        Action::Destage { file, offset, length, .. } => {
            Some((*file, offset / BLOCK as u32, length / BLOCK as u32))
        }
        _ => None,
    };
    machine.asked.iter().filter_map(destage).collect()
}

#[test]
fn destage_writes_newest_versions_sorted_and_merged() {
    let mut machine = Machine::new(LOG_BLOCKS);
    let (one, two) = (machine.file(ExtentIndex(0)), machine.file(ExtentIndex(1)));
    for block in [50, 3, 51, 90, 3, 52] {
        machine.write(two, block, 1, block as u8, false);
        machine.write(one, block * 2, 1, 1, false);
        machine.run();
    }
    machine.change(one, 200, 1000, Kind::Release);
    machine.run();
    assert!(machine.slow.is_empty(), "little is in the journal, so nothing is destaged");
    machine.with(|journal, actions| journal.set_draining(true, actions));
    let expected = [
        (one, 6, 1),
        (one, 100, 1),
        (one, 102, 1),
        (one, 104, 1),
        (one, 180, 1),
        (one, 200, 1000),
        (two, 3, 1),
        (two, 50, 3),
    ];
    assert_eq!(destages(&machine), expected);
    machine.run();
    assert_eq!(machine.slow[&(two, 3)], 3);
    assert!(machine.journal.is_empty());
}

#[test]
fn young_records_stay_while_the_log_has_room() {
    let mut machine = Machine::new(LOG_BLOCKS);
    let file = machine.file(ExtentIndex(0));
    let write_pass = |machine: &mut Machine, byte: u8| {
        for start in (0..400).step_by(8) {
            machine.write(file, start, 8, byte, false);
            machine.run();
        }
    };
    write_pass(&mut machine, 1);
    assert!((400..500).contains(&machine.journal.fullness_per_mille()));
    machine.with(|journal, actions| journal.interval_passed(actions));
    assert!(machine.asked.is_empty(), "{:?}", machine.asked);
    machine.with(|journal, actions| journal.interval_passed(actions));
    assert_eq!(destages(&machine), [(file, 0, 256)]);
    machine.run();
    assert!(machine.journal.fullness_per_mille() < 250);
    // A workload that rewrites not quite half of the log in passes replaces its oldest data before that data
    // is destaged.
    let mut machine = Machine::new(LOG_BLOCKS);
    assert_eq!(machine.file(ExtentIndex(0)), file);
    write_pass(&mut machine, 1);
    write_pass(&mut machine, 2);
    write_pass(&mut machine, 3);
    assert!(machine.slow.values().all(|byte| *byte == 0), "nothing was destaged in vain");
    assert_eq!(machine.content(file, 399, 1), [3]);
}

#[test]
fn log_full_of_largest_writes_makes_progress() {
    let mut machine = Machine::new(264);
    let file = machine.file(ExtentIndex(0));
    // The small change comes first, so that no large write bypasses the journal.
    machine.change(file, 0, 8192, Kind::Zero);
    let tickets: Vec<u64> =
        (0..200).map(|n| machine.write(file, n * LARGE, LARGE, 1 + n as u8, n % 3 == 0)).collect();
    machine.run();
    assert!(tickets.iter().all(|ticket| machine.is_done(*ticket)));
    for n in 0..200 {
        assert_eq!(machine.content(file, n * LARGE + 31, 1), [1 + n as u8]);
    }
}

#[test]
fn waiting_write_gets_all_free_space() {
    let mut machine = Machine::new(4 * LOG_BLOCKS);
    let (one, two) = (machine.file(ExtentIndex(0)), machine.file(ExtentIndex(1)));
    machine.change(one, 0, 8192, Kind::Zero);
    // The many entries take few blocks. The large writes after them need more space than the entries free.
    for n in 0..400 {
        machine.change(two, n * 2, 1, Kind::Zero);
    }
    let writes: Vec<u64> = (0..200).map(|n| machine.write(one, n * LARGE, LARGE, 1, false)).collect();
    assert!(run_log(&mut machine) > 50, "the slow drive answers nothing, so the journal is full");
    machine.run();
    assert!(writes.iter().all(|ticket| machine.is_done(*ticket)));
}

/// Runs the actions on the journal and none on slow files. Returns the number of waiting changes.
fn run_log(machine: &mut Machine) -> usize {
    let is_of_log = |action: &Action| matches!(action, Action::WriteRecord { .. } | Action::SyncJournal);
    while let Some(index) = machine.asked.iter().position(is_of_log) {
        machine.asked.swap(0, index);
        machine.run_one();
    }
    machine.journal.usage().waiting
}

#[test]
fn nearly_full_journal_accepts_writes_at_the_destage_rate() {
    let mut machine = Machine::new(2 * LOG_BLOCKS);
    let file = machine.file(ExtentIndex(0));
    // The blocks are not adjacent, so each is destaged by itself.
    for n in 0..4000 {
        machine.write(file, 2 * n, 1, 1, false);
    }
    let waiting = run_log(&mut machine);
    let usage = machine.journal.usage();
    assert!((750..800).contains(&(usage.used_blocks * 1000 / usage.log_blocks)), "{usage:?}");
    let mut left = vec![waiting];
    while left.len() < 100 {
        let destage = machine.asked.iter().position(|action| matches!(action, Action::Destage { .. }));
        machine.asked.swap(0, destage.expect("a batch is longer than this"));
        machine.run_one();
        left.push(run_log(&mut machine));
    }
    let went = left[0] - left[left.len() - 1];
    assert!((100..1600).contains(&went), "{went} writes went ahead while 100 were destaged");
    let longest = left.chunk_by(|one, next| one == next).map(<[usize]>::len).max();
    assert!(longest < Some(8), "at times nobody went ahead while {longest:?} were destaged");
    machine.run();
    assert_eq!(machine.ends.len(), 4000);
}

#[test]
fn entries_without_payload_count_towards_fullness() {
    let mut machine = Machine::new(264);
    let file = machine.file(ExtentIndex(0));
    for n in 0..2000 {
        machine.change(file, n * 2, 1, Kind::Zero);
    }
    run_log(&mut machine);
    let entries = machine.journal.usage().entries;
    assert!((198..=200 + 66).contains(&entries), "{entries}: what has none counts as an entry all the same");
    assert_eq!(machine.journal.fullness_per_mille() as usize, entries * 1000 / 264);
    machine.run();
    assert_eq!(machine.ends.len(), 2000);
    let usage = machine.journal.usage();
    assert!(usage.entries <= 264 && usage.pieces <= 2 * 264);
}

#[test]
fn zeroes_are_written_where_release_is_unsupported() {
    let mut machine = Machine::new(LOG_BLOCKS);
    let file = machine.file(ExtentIndex(0));
    machine.change(file, 0, 600, Kind::Release);
    machine.run();
    machine.with(|journal, actions| journal.set_draining(true, actions));
    let Some(Action::Destage { operation, content: DestageContent::Release, .. }) = machine.asked.pop_front()
    else {
        panic!("a release is tried first");
    };
    let unsupported = Err(DestageFault::Slow(SlowFault::Unsupported));
    machine.with(|journal, actions| journal.destaged(operation, unsupported, actions));
    assert!(matches!(machine.asked[0], Action::Destage { content: DestageContent::Zeroes, .. }));
    machine.run();
    assert!(machine.journal.is_empty());
    assert_eq!(machine.slow.len(), 600);
}

#[test]
fn failed_file_keeps_its_records_until_forgotten() {
    let mut machine = Machine::new(LOG_BLOCKS);
    let (bad, good) = (machine.file(ExtentIndex(0)), machine.file(ExtentIndex(1)));
    machine.write(bad, 0, 1, 1, false);
    machine.write(good, 0, 1, 2, false);
    machine.run();
    machine.with(|journal, actions| journal.set_draining(true, actions));
    let Some(Action::Destage { operation, .. }) = machine.asked.pop_front() else {
        panic!("something is destaged")
    };
    let broken = Err(DestageFault::Slow(SlowFault::Broken));
    machine.with(|journal, actions| journal.destaged(operation, broken, actions));
    assert!(machine.asked.contains(&Action::FileFailed { file: bad }));
    machine.run();
    assert!(!machine.journal.is_empty());
    let refused = machine.write(bad, 1, 1, 3, false);
    assert_eq!(machine.ends.last(), Some(&(refused, Err(Fault::File))));
    // If the power fails now, all data is still in the journal.
    let mut again = Machine::with_file(machine.geometry, machine.journal_file.clone()).unwrap();
    let file = again.file(ExtentIndex(0));
    assert_eq!(again.content(file, 0, 1), [1]);

    machine.with(|journal, actions| journal.forget(bad, actions));
    let mut is_forgotten = false;
    while let Some(next) = machine.asked.front() {
        is_forgotten |= *next == Action::Forgotten { file: key(ExtentIndex(0)) };
        machine.run_one();
    }
    assert!(is_forgotten && machine.journal.is_empty());
    let mut again = Machine::with_file(machine.geometry, machine.journal_file.clone()).unwrap();
    let file = again.file(ExtentIndex(0));
    assert_eq!(again.content(file, 0, 1), [0]);
}

#[test]
fn failed_journal_answers_every_request_once() {
    let mut machine = Machine::new(LOG_BLOCKS);
    let file = machine.file(ExtentIndex(0));
    machine.write(file, 0, 1, 1, false);
    machine.run();
    let mut expected = vec![
        machine.sync(file),
        machine.write(file, 200, LARGE, 1, false),
        machine.write(file, 1, 1, 1, true),
        machine.write(file, 2, 1, 1, false),
    ];
    machine.ends.clear();
    let before = machine.asked.len();
    machine.with(|journal, actions| journal.record_written(Err(()), actions));
    expected.push(machine.sync(file));
    expected.push(machine.write(file, 3, 1, 1, false));
    let mut failed: Vec<u64> = machine.ends.iter().map(|(ticket, _)| *ticket).collect();
    failed.sort_unstable();
    assert_eq!(failed, expected);
    assert!(machine.ends.iter().all(|(_, result)| *result == Err(Fault::Journal)));
    assert_eq!(machine.asked.iter().skip(before).collect::<Vec<_>>(), [&Action::JournalFailed]);
    // Later answers change nothing.
    machine.with(|journal, actions| journal.journal_synced(Ok::<(), ()>(()), actions));
    assert_eq!(machine.ends.len(), expected.len());
    assert_eq!(machine.journal.read(file, 0, 4096, &mut Vec::new()), Err(Fault::Journal));
}

#[test]
fn only_files_of_the_oldest_records_are_in_the_way() {
    let mut machine = Machine::new(LOG_BLOCKS);
    let (away, gone, idle) =
        (machine.file(ExtentIndex(0)), machine.file(ExtentIndex(1)), machine.file(ExtentIndex(2)));
    for file in [away, gone, idle] {
        machine.with(|journal, actions| journal.suspend(file, actions));
    }
    machine.write(gone, 0, 1, 1, false);
    machine.write(away, 0, 1, 2, false);
    machine.run();
    assert_eq!(machine.journal.in_the_way(), BTreeSet::new(), "there is room");
    let writes: Vec<u64> = (1..100).map(|n| machine.write(away, n * 8, 8, 2, false)).collect();
    machine.run();
    assert_eq!(machine.journal.in_the_way(), BTreeSet::from([key(ExtentIndex(0)), key(ExtentIndex(1))]));
    // The records still have entries of the file, but the log no longer waits for the file.
    machine.with(|journal, actions| journal.forget(gone, actions));
    machine.run();
    assert_eq!(machine.journal.in_the_way(), BTreeSet::from([key(ExtentIndex(0))]));
    machine.with(|journal, actions| journal.resume(away, actions));
    machine.run();
    assert!(writes.iter().all(|ticket| machine.is_done(*ticket)));
    assert_eq!(machine.journal.in_the_way(), BTreeSet::new());
}
