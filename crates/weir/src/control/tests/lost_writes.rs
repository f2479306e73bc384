//! Drives on which writes of an earlier daemon were lost.

use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use jiff::Timestamp;
use weir_volume::mirror::Standing;

use super::*;
use crate::control::catalogue::{Catalogue, Transaction};
use crate::control::drives::{AddDrive, LostWrites};
use crate::control::records::DriveRecord;
use crate::store::journal::read_marker;
use crate::store::{MARKER_FILE, extent_file_name};

/// A file of a kind that cannot be made durable: the filesystem of processes refuses it.
const NEVER_DURABLE: &str = "/proc/version";
const BLOCK: usize = 4096;
/// Where a replica has what nobody else has.
const STALE_OFFSET: u64 = 12_345 * BLOCK as u64;

fn why_missing(control: &Control, drive: &str) -> Option<String> {
    let model = control.model();
    let drive = model.drives.values().find(|known| known.record.name == name(drive)).unwrap();
    drive.store.as_ref().err().cloned()
}

#[test]
fn drive_whose_first_sync_failed_stays_out_of_use_until_it_is_accepted() {
    let (_folder, state) = state();
    World::start(&state).control.create_volume(volume(None, "vol1", GIB)).unwrap();
    let marker = state.join("drive").join(MARKER_FILE);
    std::os::unix::fs::symlink(NEVER_DURABLE, &marker).unwrap();
    let world = World::start(&state);
    let why = why_missing(&world.control, "default").expect("it is not used");
    assert!(why.starts_with("acknowledged writes to it may be lost, which was found at "), "{why}");
    drop(world);
    // The system says it once.
    std::fs::remove_file(&marker).unwrap();
    let world = World::start(&state);
    assert_eq!(why_missing(&world.control, "default"), Some(why));
    world.control.look_for_returns();
    assert!(why_missing(&world.control, "default").is_some() && world.exports.find("vol1").is_none());
    let alarms = world.control.missing_drive_alarms();
    assert!(alarms[0].message.contains("'weir drive accept default' uses it as it is"), "{alarms:?}");
    world.control.accept_drive(&name("default")).unwrap();
    assert!(why_missing(&world.control, "default").is_none() && world.exports.find("vol1").is_some());
    let (kind, message) = error(world.control.accept_drive(&name("default")));
    assert!(kind == ErrorKind::Refused && message.contains("nothing to accept"), "{message}");
    drop(world);
    assert_eq!(why_missing(&World::start(&state).control, "default"), None);
}

/// Has the catalogue say that writes to a drive were lost.
fn lose_writes(state: &Path, drive: &str) {
    let catalogue = SqliteCatalogue::open(&state.join("catalogue.sqlite")).unwrap();
    let entries = catalogue.range(keys::DRIVES).unwrap();
    for entry in entries {
        let mut record: DriveRecord = entry.decode().unwrap();
        if record.name == name(drive) {
            let lost = LostWrites { message: "input/output error".to_owned(), found_at: Timestamp::now() };
            record.lost_writes = Some(lost);
            catalogue.commit(Transaction::default().put(&entry.key, &record).unwrap()).unwrap();
        }
    }
}

/// Adds drives and answers their identities.
fn add(world: &World, state: &Path, names: &[&str], class: Class) -> Vec<DriveId> {
    let add = |text: &&str| {
        std::fs::create_dir_all(state.join(text)).unwrap();
        let request = AddDrive { class: Some(class), ..AddDrive::new(state.join(text)) };
        world.control.add_drive(request).unwrap().record.id
    };
    names.iter().map(add).collect()
}

fn file_on(world: &World, drive: DriveId, volume: VolumeId) -> PathBuf {
    world.control.store(drive).unwrap().extents(volume).join(extent_file_name(0))
}

/// Loses writes to a drive while the daemon is down, and changes a replica: what it has is not what was written last, and
/// nothing but a copy of all of it finds that. Answers the daemon that starts then.
fn lose(world: World, state: &Path, drive: &str, path: &Path) -> World {
    drop(world);
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(&[7; BLOCK], STALE_OFFSET).unwrap();
    lose_writes(state, drive);
    World::start(state)
}

fn accept_and_wait_until_alike(world: &World, drive: &str, volume: VolumeId, path: &Path) {
    assert!(world.exports.find("vol1").is_some(), "others serve the volume");
    world.control.accept_drive(&name(drive)).unwrap();
    wait_until("all replicas are in sync again, and alike", || {
        world.control.look_for_returns();
        world.control.settle_moves();
        let open = world.control.model().open.get(&volume).cloned().unwrap();
        let is_there = |standing: &&Standing| **standing != Standing::Absent;
        let standings = open.copies.snapshot().standings;
        let are_in_sync = standings[0].iter().filter(is_there).all(|standing| *standing == Standing::InSync);
        let mut block = [1; BLOCK];
        let file = std::fs::File::open(path);
        let is_read = file.is_ok_and(|file| file.read_exact_at(&mut block, STALE_OFFSET).is_ok());
        are_in_sync && is_read && block == [0; BLOCK]
    });
}

#[test]
fn replicas_on_a_drive_that_lost_writes_are_made_anew_once_it_is_accepted() {
    let (_folder, state) = state();
    let world = World::start(&state);
    let drives = add(&world, &state, &["one", "two", "three"], Class::High);
    let request = CreateVolume { replicas: Some(3), ..volume(None, "vol1", GIB) };
    let request = CreateVolume { io_priority: Some(Class::High), ..request };
    let made = world.control.create_volume(request).unwrap().record;
    let path = file_on(&world, drives[1], made.id);
    let world = lose(world, &state, "two", &path);
    accept_and_wait_until_alike(&world, "two", made.id, &path);
}

#[test]
fn replicas_behind_a_journal_that_lost_writes_are_made_anew_once_its_drive_is_accepted() {
    let (_folder, state) = state();
    let world = World::start(&state);
    add(&world, &state, &["f1", "f2", "f3"], Class::High);
    let slow = add(&world, &state, &["s1", "s2"], Class::Low);
    let request = CreateVolume { template: Some(name("hybrid")), ..volume(None, "vol1", GIB) };
    let made = world.control.create_volume(request).unwrap().record;
    let path = file_on(&world, slow[0], made.id);
    let behind = read_marker(path.parent().unwrap(), 0).unwrap().expect("it is behind a journal");
    let drive = world.control.model().drives[&behind.drive].record.name.to_string();
    let world = lose(world, &state, &drive, &path);
    accept_and_wait_until_alike(&world, &drive, made.id, &path);
}
