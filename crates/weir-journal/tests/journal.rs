//! What is asked of the files, and in which order, where order or number matter.

mod support;

use std::collections::BTreeSet;

use weir_journal::{Action, DestageContent, DestageFault, Fault, FileId, Kind, Part, SlowFault};

use support::machine::{BLOCK, Machine, key};

const LOG_BLOCKS: u32 = 1000;
const LARGE: u32 = 32;

fn records(machine: &Machine) -> usize {
    machine.asked.iter().filter(|action| matches!(action, Action::WriteRecord { .. })).count()
}

#[test]
fn what_comes_while_a_record_is_written_goes_together_into_the_next() {
    let mut machine = Machine::new(LOG_BLOCKS);
    let file = machine.file(0);
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
fn a_write_is_read_only_once_its_record_is_written() {
    let mut machine = Machine::new(LOG_BLOCKS);
    let file = machine.file(0);
    machine.slow.insert((file, 5), 7);
    machine.write(file, 5, 1, 8, false);
    assert_eq!(machine.content(file, 5, 1), [7]);
    machine.run();
    assert_eq!(machine.content(file, 5, 1), [8]);
}

#[test]
fn a_durable_write_alone_is_one_durable_record_and_no_sync() {
    let mut machine = Machine::new(LOG_BLOCKS);
    let file = machine.file(0);
    // The first sync of a file covers what passed by in an earlier life.
    machine.sync(file);
    assert_eq!(machine.asked, [Action::SyncSlow { file }]);
    machine.run();
    let ticket = machine.write(file, 0, 1, 1, true);
    assert!(matches!(machine.asked[0], Action::WriteRecord { is_durable: true, .. }));
    machine.run_one();
    assert!(machine.is_done(ticket) && machine.asked.is_empty());
    // Nothing is unstable, so there is nothing to wait for.
    let sync = machine.sync(file);
    assert!(machine.is_done(sync));
}

#[test]
fn a_durable_write_behind_an_unstable_one_waits_for_a_sync() {
    let mut machine = Machine::new(LOG_BLOCKS);
    let file = machine.file(0);
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
fn large_writes_pass_by_unless_a_record_has_a_block_of_theirs() {
    let mut machine = Machine::new(LOG_BLOCKS);
    let file = machine.file(0);
    machine.write(file, 0, LARGE, 1, false);
    assert!(matches!(machine.asked[0], Action::PassBy { .. }));
    machine.run();
    // One that waits or is being written counts as well.
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
    // Once the records are gone it may.
    machine.with(|journal, actions| journal.set_draining(true, actions));
    machine.run();
    assert!(machine.journal.is_empty());
    assert!(machine.journal.passes_by(file, 32 * BLOCK as u32, LARGE * BLOCK as u32));
    assert_eq!(machine.content(file, 38, 4), [3, 3, 3, 3]);
}

#[test]
fn a_sync_covers_what_passed_by() {
    let mut machine = Machine::new(LOG_BLOCKS);
    let file = machine.file(0);
    machine.write(file, 0, LARGE, 1, false);
    machine.run();
    let sync = machine.sync(file);
    assert_eq!(machine.asked, [Action::SyncSlow { file }]);
    machine.run();
    assert!(machine.is_done(sync));
}

#[test]
fn nothing_is_brought_over_a_write_that_is_passing_by() {
    let mut machine = Machine::new(LOG_BLOCKS);
    let file = machine.file(0);
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
fn space_is_not_used_again_while_somebody_reads_from_it() {
    let mut machine = Machine::new(LOG_BLOCKS);
    let file = machine.file(0);
    machine.write(file, 0, 1, 1, false);
    machine.run();
    let mut parts = Vec::new();
    let pin = machine.journal.read(file, 0, BLOCK as u32, &mut parts).unwrap();
    machine.with(|journal, actions| journal.set_draining(true, actions));
    machine.run();
    assert!(!machine.journal.is_empty());
    // Those who come later do not hold it up.
    let mut others = Vec::new();
    let other = machine.journal.read(file, 0, BLOCK as u32, &mut others).unwrap();
    assert!(matches!((parts[0], others[0]), (Part::Journal { .. }, Part::Slow { .. })));
    machine.with(|journal, actions| journal.read_ended(pin, actions));
    machine.run();
    assert!(machine.journal.is_empty());
    machine.with(|journal, actions| journal.read_ended(other, actions));
}

/// The writes to slow files that are asked for at present, as file, block and number of blocks.
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
fn slow_files_get_newest_versions_sorted_and_merged_and_only_when_there_is_much() {
    let mut machine = Machine::new(LOG_BLOCKS);
    let (one, two) = (machine.file(0), machine.file(1));
    for block in [50, 3, 51, 90, 3, 52] {
        machine.write(two, block, 1, block as u8, false);
        machine.write(one, block * 2, 1, 1, false);
        machine.run();
    }
    machine.change(one, 200, 1000, Kind::Release);
    machine.run();
    assert!(machine.slow.is_empty(), "little is in the journal, so nothing is brought");
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
fn what_is_young_stays_in_a_journal_that_has_room_for_it() {
    let mut machine = Machine::new(LOG_BLOCKS);
    let file = machine.file(0);
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
    // In passes over not quite half of the log, what is the oldest was replaced before it is its turn.
    let mut machine = Machine::new(LOG_BLOCKS);
    assert_eq!(machine.file(0), file);
    write_pass(&mut machine, 1);
    write_pass(&mut machine, 2);
    write_pass(&mut machine, 3);
    assert!(machine.slow.values().all(|byte| *byte == 0), "nothing was brought in vain");
    assert_eq!(machine.content(file, 399, 1), [3]);
}

#[test]
fn a_journal_that_is_full_of_the_largest_writes_goes_on() {
    let mut machine = Machine::new(264);
    let file = machine.file(0);
    // Small ones first, so that none of the large ones passes by.
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
fn whoever_waits_for_space_gets_all_that_is_free() {
    let mut machine = Machine::new(4 * LOG_BLOCKS);
    let (one, two) = (machine.file(0), machine.file(1));
    machine.change(one, 0, 8192, Kind::Zero);
    // Many entries in few blocks, and behind them so much that the next write has to wait for more than
    // theirs.
    for n in 0..400 {
        machine.change(two, n * 2, 1, Kind::Zero);
    }
    let writes: Vec<u64> = (0..200).map(|n| machine.write(one, n * LARGE, LARGE, 1, false)).collect();
    assert!(run_log(&mut machine) > 50, "the slow drive answers nothing, so the journal is full");
    machine.run();
    assert!(writes.iter().all(|ticket| machine.is_done(*ticket)));
}

/// Does what is to be done with the journal, and nothing with slow files; how many changes wait then.
fn run_log(machine: &mut Machine) -> usize {
    let is_of_log = |action: &Action| matches!(action, Action::WriteRecord { .. } | Action::SyncJournal);
    while let Some(index) = machine.asked.iter().position(is_of_log) {
        machine.asked.swap(0, index);
        machine.run_one();
    }
    machine.journal.usage().waiting
}

#[test]
fn a_nearly_full_journal_takes_in_about_what_is_brought_and_does_not_wait_for_the_batch() {
    let mut machine = Machine::new(2 * LOG_BLOCKS);
    let file = machine.file(0);
    // None of them is next to another, so each is brought by itself.
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
    assert!((100..1600).contains(&went), "{went} writes went ahead while 100 were brought");
    let longest = left.chunk_by(|one, next| one == next).map(<[usize]>::len).max();
    assert!(longest < Some(8), "at times nobody went ahead while {longest:?} were brought");
    machine.run();
    assert_eq!(machine.ends.len(), 4000);
}

#[test]
fn entries_without_payload_fill_a_journal_too() {
    let mut machine = Machine::new(264);
    let file = machine.file(0);
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
fn a_filesystem_that_cannot_release_gets_zeroes() {
    let mut machine = Machine::new(LOG_BLOCKS);
    let file = machine.file(0);
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
fn a_failed_file_keeps_its_records_until_it_is_forgotten() {
    let mut machine = Machine::new(LOG_BLOCKS);
    let (bad, good) = (machine.file(0), machine.file(1));
    machine.write(bad, 0, 1, 1, false);
    machine.write(good, 0, 1, 2, false);
    machine.run();
    machine.with(|journal, actions| journal.set_draining(true, actions));
    let Some(Action::Destage { operation, .. }) = machine.asked.pop_front() else {
        panic!("something is brought")
    };
    let broken = Err(DestageFault::Slow(SlowFault::Broken));
    machine.with(|journal, actions| journal.destaged(operation, broken, actions));
    assert!(machine.asked.contains(&Action::FileFailed { file: bad }));
    machine.run();
    assert!(!machine.journal.is_empty());
    let refused = machine.write(bad, 1, 1, 3, false);
    assert_eq!(machine.ends.last(), Some(&(refused, Err(Fault::File))));
    // Should the power fail now, it is all there.
    let mut again = Machine::with_file(machine.geometry, machine.journal_file.clone()).unwrap();
    let file = again.file(0);
    assert_eq!(again.content(file, 0, 1), [1]);

    machine.with(|journal, actions| journal.forget(bad, actions));
    let mut is_forgotten = false;
    while let Some(next) = machine.asked.front() {
        is_forgotten |= *next == Action::Forgotten { file: key(0) };
        machine.run_one();
    }
    assert!(is_forgotten && machine.journal.is_empty());
    let mut again = Machine::with_file(machine.geometry, machine.journal_file.clone()).unwrap();
    let file = again.file(0);
    assert_eq!(again.content(file, 0, 1), [0]);
}

#[test]
fn a_journal_that_fails_answers_everything_once() {
    let mut machine = Machine::new(LOG_BLOCKS);
    let file = machine.file(0);
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
    // What is still answered changes nothing.
    machine.with(|journal, actions| journal.journal_synced(Ok::<(), ()>(()), actions));
    assert_eq!(machine.ends.len(), expected.len());
    assert_eq!(machine.journal.read(file, 0, 4096, &mut Vec::new()), Err(Fault::Journal));
}

#[test]
fn only_what_the_oldest_records_wait_for_is_in_the_way() {
    let mut machine = Machine::new(LOG_BLOCKS);
    let (away, gone, idle) = (machine.file(0), machine.file(1), machine.file(2));
    for file in [away, gone, idle] {
        machine.with(|journal, actions| journal.suspend(file, actions));
    }
    machine.write(gone, 0, 1, 1, false);
    machine.write(away, 0, 1, 2, false);
    machine.run();
    assert_eq!(machine.journal.in_the_way(), BTreeSet::new(), "there is room");
    let writes: Vec<u64> = (1..100).map(|n| machine.write(away, n * 8, 8, 2, false)).collect();
    machine.run();
    assert_eq!(machine.journal.in_the_way(), BTreeSet::from([key(0), key(1)]));
    // Its entries are still in the records, and it is not any more.
    machine.with(|journal, actions| journal.forget(gone, actions));
    machine.run();
    assert_eq!(machine.journal.in_the_way(), BTreeSet::from([key(0)]));
    machine.with(|journal, actions| journal.resume(away, actions));
    machine.run();
    assert!(writes.iter().all(|ticket| machine.is_done(*ticket)));
    assert_eq!(machine.journal.in_the_way(), BTreeSet::new());
}
