//! Tests of recovery from damaged, foreign and torn journal files.

mod support;

use weir_journal::recovery::{Proof, RecordFault};
use weir_journal::superblock::BlockFault;
use weir_journal::{Geometry, Kind, Recovery, RecoveryError};
use weir_types::{ExtentIndex, JournalId};

use support::machine::{BLOCK, JOURNAL, Machine, new_file, recover};

const LOG_BLOCKS: u32 = 600;

fn geometry() -> Geometry {
    Geometry::tiny(LOG_BLOCKS)
}

fn error_of(mut file: Vec<u8>) -> RecoveryError {
    let recovery = Recovery::with_geometry(JOURNAL, geometry());
    recover(&mut file, recovery).expect_err("this is no journal that can be relied on")
}

/// Returns a journal with records of one block of payload each, every one synced. The first record is at
/// block 2 of the file.
fn synced_records(count: u8) -> Machine {
    let mut machine = Machine::new(LOG_BLOCKS);
    let file = machine.file(ExtentIndex(0));
    for byte in 1..=count {
        machine.write(file, u32::from(byte), 1, byte, false);
        machine.run();
        machine.sync(file);
        machine.run();
    }
    machine
}

#[test]
fn recovery_restores_written_data() {
    let mut machine = synced_records(5);
    let file = machine.file(ExtentIndex(1));
    machine.change(file, 7, 3, Kind::Zero);
    machine.run();
    let mut again = Machine::with_file(machine.geometry, machine.journal_file).unwrap();
    let (first, second) = (again.file(ExtentIndex(0)), again.file(ExtentIndex(1)));
    assert_eq!(again.content(first, 0, 7), [0, 1, 2, 3, 4, 5, 0]);
    again.slow.insert((second, 8), 9);
    assert_eq!(again.content(second, 7, 3), [0, 0, 0]);
    assert_eq!(again.journal.live(first).count(), 5);
    assert_eq!(again.journal.live(second).count(), 0);
}

#[test]
fn lost_foreign_and_resized_journals_are_distinguished() {
    let empty = vec![0; geometry().file_bytes() as usize];
    assert_eq!(error_of(empty), RecoveryError::Lost);

    let other = JournalId::from_bytes([9; 16]);
    let recovery = Recovery::with_geometry(other, geometry());
    let error = recover(&mut new_file(geometry()), recovery).unwrap_err();
    assert_eq!(error, RecoveryError::Foreign { found: JOURNAL, expected: other });
    assert!(error.to_string().contains("stale"), "{error}");

    let larger = Geometry::tiny(LOG_BLOCKS + 1);
    let recovery = Recovery::with_geometry(JOURNAL, larger);
    let error = recover(&mut new_file(geometry()), recovery).unwrap_err();
    let (found, expected) = (larger.file_bytes(), geometry().file_bytes());
    assert_eq!(error, RecoveryError::Size { found, expected });
}

#[test]
fn one_valid_superblock_is_enough() {
    // The newest superblock was torn: nothing was written since.
    let mut new = Machine::new(LOG_BLOCKS);
    new.journal_file[100] ^= 1;
    assert!(Machine::with_file(new.geometry, new.journal_file).is_ok());
    // The older superblock is damaged.
    let mut machine = synced_records(3);
    machine.journal_file[BLOCK + 100] ^= 1;
    let mut again = Machine::with_file(machine.geometry, machine.journal_file.clone()).unwrap();
    let file = again.file(ExtentIndex(0));
    assert_eq!(again.content(file, 1, 3), [1, 2, 3]);
    // Both superblocks are damaged.
    machine.journal_file[100] ^= 1;
    let error = error_of(machine.journal_file);
    let RecoveryError::Superblocks { first: BlockFault::Checksum { .. }, .. } = error else {
        panic!("{error}");
    };
}

#[test]
fn old_superblock_is_not_accepted_as_the_newest() {
    // The old superblock is of an earlier life, then of this life.
    let mut machine = synced_records(3);
    for drains in [false, true] {
        if drains {
            let file = machine.file(ExtentIndex(0));
            machine.with(|journal, actions| journal.set_draining(true, actions));
            for n in 0..100u32 {
                machine.write(file, n % 7 * 40, 10, n as u8, true);
                machine.run();
            }
            machine.with(|journal, actions| journal.set_draining(false, actions));
            machine.write(file, 0, 1, 1, true);
            machine.run();
        }
        let generation = |block: usize| machine.journal_file[block * BLOCK + 32];
        let newest = usize::from(generation(1) > generation(0));
        let mut file = machine.journal_file.clone();
        file[newest * BLOCK + 60] ^= 1;
        let error = error_of(file);
        let RecoveryError::OldSuperblock { found, expected, .. } = error else { panic!("{error}") };
        assert_eq!(found + 1, expected);
    }
}

#[test]
fn later_format_is_refused() {
    let mut file = new_file(geometry());
    file[8] = 3;
    let checksum = weir_journal::checksum(&file[..BLOCK - 4]);
    file[BLOCK - 4..BLOCK].copy_from_slice(&checksum.to_le_bytes());
    assert_eq!(error_of(file), RecoveryError::Format { found: 3, expected: 2 });
}

#[test]
fn damaged_record_is_reported_if_later_records_prove_it_stable() {
    let machine = synced_records(6);
    // Header and payload of the third record.
    for at in [(2 + 4) * BLOCK + 70, (2 + 5) * BLOCK + 4000] {
        let mut file = machine.journal_file.clone();
        file[at] ^= 1;
        let error = error_of(file);
        let RecoveryError::Damaged { sequence: 3, position: 4, proof: Proof::Record(4..), .. } = error else {
            panic!("{error}");
        };
        let words = error.to_string();
        assert!(words.contains("damaged") && words.contains("stale"), "{words}");
    }
    // Two records are damaged: damage is also found if the record after the damaged one is gone.
    let mut file = machine.journal_file.clone();
    file[(2 + 4) * BLOCK..(2 + 8) * BLOCK].fill(0);
    let error = error_of(file);
    let RecoveryError::Damaged { fault: RecordFault::Header(_), .. } = error else { panic!("{error}") };
}

#[test]
fn missing_record_is_reported_if_the_superblock_proves_it_stable() {
    let machine = synced_records(4);
    let again = Machine::with_file(machine.geometry, machine.journal_file).unwrap();
    let mut file = again.journal_file;
    // No record follows the last one, but a life has begun after it.
    file[(2 + 6) * BLOCK] ^= 1;
    let error = error_of(file);
    let RecoveryError::Damaged { sequence: 4, proof: Proof::Superblock, .. } = error else {
        panic!("{error}");
    };
}

#[test]
fn log_ends_at_a_torn_record() {
    let mut machine = Machine::new(LOG_BLOCKS);
    let file = machine.file(ExtentIndex(0));
    for byte in 1..=4 {
        machine.write(file, u32::from(byte), 1, byte, false);
        machine.run();
    }
    // The payload of the second record was not written. The other records were written, but never synced.
    machine.journal_file[(2 + 3) * BLOCK..(2 + 4) * BLOCK].fill(0);
    let mut again = Machine::with_file(machine.geometry, machine.journal_file).unwrap();
    let file = again.file(ExtentIndex(0));
    assert_eq!(again.content(file, 1, 4), [1, 0, 0, 0]);
    // A record of the same size takes the torn record's place. The records after it still do not count.
    again.write(file, 9, 1, 9, false);
    again.run();
    let mut again = Machine::with_file(again.geometry, again.journal_file).unwrap();
    let file = again.file(ExtentIndex(0));
    assert_eq!(again.content(file, 1, 9), [1, 0, 0, 0, 0, 0, 0, 0, 9]);
}
