//! Tests of drives on which writes of an earlier daemon were lost.

use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use jiff::Timestamp;
use weir_volume::mirror::ReplicaState;

use super::*;
use crate::catalogue::{Catalogue, Transaction};
use crate::drives::{AddDrive, ModifyDrive};
use crate::records::LostWrites;
use crate::records::VolumeRecord;
use weir_store::journal::read_marker;
use weir_store::{MARKER_FILE, extent_file_name};
use weir_types::ExtentIndex;

/// A file that cannot be made durable, because procfs refuses to sync.
const NEVER_DURABLE: &str = "/proc/version";
const BLOCK: usize = 4096;
/// Offset at which a changed replica differs from all others, in bytes.
const STALE_OFFSET: u64 = 12_345 * BLOCK as u64;

fn why_missing(control: &Control, drive: &str) -> Option<String> {
    let model = control.core.model();
    let drive = model.drives.values().find(|known| known.record.name == name(drive)).unwrap();
    drive.store.as_ref().err().cloned()
}

#[test]
fn drive_with_failed_first_sync_is_unused_until_accepted() {
    let (_folder, state) = state();
    World::start(&state).control.volumes.create_volume(volume(None, "vol1", GIB)).unwrap();
    let marker = state.join("drive").join(MARKER_FILE);
    std::os::unix::fs::symlink(NEVER_DURABLE, &marker).unwrap();
    let world = World::start(&state);
    let why = why_missing(&world.control, "default").expect("it is not used");
    assert!(why.starts_with("acknowledged writes to it may be lost, which was found at "), "{why}");
    world.end();
    // The operating system reports a lost write only once.
    std::fs::remove_file(&marker).unwrap();
    let world = World::start(&state);
    assert_eq!(why_missing(&world.control, "default"), Some(why));
    world.control.returns.look_for_returns();
    assert!(why_missing(&world.control, "default").is_some() && world.exports.find("vol1").is_none());
    let alarms = world.control.drives.missing_drive_alarms();
    assert!(alarms[0].message.contains("'weir drive accept default' uses it as it is"), "{alarms:?}");
    world.control.returns.accept_drive(&name("default")).unwrap();
    assert!(why_missing(&world.control, "default").is_none() && world.exports.find("vol1").is_some());
    let (kind, message) = error(world.control.returns.accept_drive(&name("default")));
    assert!(kind == ErrorKind::Refused && message.contains("nothing to accept"), "{message}");
    world.end();
    assert_eq!(why_missing(&World::start(&state).control, "default"), None);
}

/// Makes a volume with replicas on drives of class high.
fn make(world: &World, extents: u64, replicas: u8) -> VolumeRecord {
    let request = CreateVolume { replicas: Some(replicas), ..volume(None, "vol1", extents * GIB) };
    let request = CreateVolume { io_priority: Some(Class::High), ..request };
    world.control.volumes.create_volume(request).unwrap().record
}

/// Records in the catalogue that writes to a drive were lost.
fn lose_writes(state: &Path, drive: DriveId) {
    let catalogue = SqliteCatalogue::open(&state.join("catalogue.sqlite")).unwrap();
    let lost = LostWrites { message: "input/output error".to_owned(), found_at: Timestamp::now() };
    catalogue.commit(Transaction::default().put(keys::lost_writes(drive), &lost).unwrap()).unwrap();
}

/// Adds drives. Answers their identities.
fn add(world: &World, state: &Path, names: &[&str], class: Class) -> Vec<DriveId> {
    let add = |text: &&str| {
        std::fs::create_dir_all(state.join(text)).unwrap();
        let request = AddDrive { class: Some(class), ..AddDrive::new(state.join(text)) };
        world.control.drives.add_drive(request).unwrap().record.id
    };
    names.iter().map(add).collect()
}

fn file_on(world: &World, drive: DriveId, volume: VolumeId, extent: ExtentIndex) -> PathBuf {
    world.control.core.store(drive).unwrap().extents(volume).join(extent_file_name(extent))
}

fn name_of(world: &World, drive: DriveId) -> Name {
    world.control.core.model().drives[&drive].record.name.clone()
}

/// Changes a replica as if a write was lost; only a full resync finds the difference.
fn change(path: &Path) {
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(&[7; BLOCK], STALE_OFFSET).unwrap();
}

fn is_changed(path: &Path) -> bool {
    let mut block = [1; BLOCK];
    let file = std::fs::File::open(path);
    !file.is_ok_and(|file| file.read_exact_at(&mut block, STALE_OFFSET).is_ok()) || block != [0; BLOCK]
}

fn wait_until_in_sync(world: &World, volume: VolumeId, is_done: impl Fn() -> bool) {
    wait_until("all replicas are in sync again, and alike", || {
        world.control.returns.look_for_returns();
        world.control.settle_moves();
        let open = world.control.core.model().open.get(&volume).cloned();
        let replica_states = open.map(|open| open.status().replica_states).unwrap_or_default();
        let is_settled = |replica_state: &ReplicaState| {
            matches!(replica_state, ReplicaState::InSync | ReplicaState::Absent)
        };
        !replica_states.is_empty() && replica_states.iter().flatten().all(is_settled) && is_done()
    });
}

#[test]
fn replica_on_accepted_drive_with_lost_writes_is_resynced() {
    let (_folder, state) = state();
    let world = World::start(&state);
    let drives = add(&world, &state, &["one", "two", "three"], Class::High);
    let made = make(&world, 1, 3);
    let path = file_on(&world, drives[1], made.id, ExtentIndex(0));
    world.end();
    change(&path);
    lose_writes(&state, drives[1]);
    let world = World::start(&state);
    assert!(world.exports.find("vol1").is_some(), "others serve the volume");
    // Another change of the drive's record does not accept the lost writes.
    let change = ModifyDrive { rack: Some(Some(name("r1"))), ..ModifyDrive::default() };
    world.control.drives.modify_drive(&name("two"), change).unwrap();
    world.control.returns.look_for_returns();
    assert!(why_missing(&world.control, "two").is_some());
    world.control.returns.accept_drive(&name("two")).unwrap();
    wait_until_in_sync(&world, made.id, || !is_changed(&path));
}

#[test]
fn replica_behind_journal_on_accepted_drive_is_resynced() {
    let (_folder, state) = state();
    let world = World::start(&state);
    add(&world, &state, &["f1", "f2", "f3"], Class::High);
    let slow = add(&world, &state, &["s1", "s2"], Class::Low);
    let request = CreateVolume { template: Some(name("hybrid")), ..volume(None, "vol1", GIB) };
    let made = world.control.volumes.create_volume(request).unwrap().record;
    let path = file_on(&world, slow[0], made.id, ExtentIndex(0));
    let behind =
        read_marker(path.parent().unwrap(), ExtentIndex(0)).unwrap().expect("it is behind a journal");
    world.end();
    change(&path);
    lose_writes(&state, behind.drive);
    let world = World::start(&state);
    assert!(world.exports.find("vol1").is_some(), "others serve the volume");
    world.control.returns.accept_drive(&name_of(&world, behind.drive)).unwrap();
    wait_until_in_sync(&world, made.id, || !is_changed(&path));
}

/// The drives that hold the replicas of an extent.
fn homes(volume: &VolumeRecord, extent: ExtentIndex) -> Vec<DriveId> {
    volume.placement.replicas_of(extent).map(|(_, drive)| drive).collect()
}

#[test]
fn replica_is_resynced_while_another_extent_is_unserved() {
    let (_folder, state) = state();
    let world = World::start(&state);
    add(&world, &state, &["one", "two", "three"], Class::High);
    let made = make(&world, 6, 2);
    // Extent 0 is only on the two drives that lost writes. Extent `shared` is on one of them and on another
    // drive.
    let both = homes(&made, ExtentIndex(0));
    let shared = ExtentIndex(1)
        .onward(6)
        .find(|extent| homes(&made, *extent).iter().filter(|home| both.contains(home)).count() == 1);
    let shared = shared.expect("extents are spread");
    let lost = homes(&made, shared).into_iter().find(|home| both.contains(home)).unwrap();
    let (path, alone) =
        (file_on(&world, lost, made.id, shared), file_on(&world, lost, made.id, ExtentIndex(0)));
    world.end();
    change(&path);
    change(&alone);
    both.iter().for_each(|drive| lose_writes(&state, *drive));
    let world = World::start(&state);
    assert!(world.exports.find("vol1").is_none(), "nobody has one of its extents");
    world.control.returns.accept_drive(&name_of(&world, lost)).unwrap();
    assert!(world.exports.find("vol1").is_some());
    let other = both.iter().find(|drive| **drive != lost).unwrap();
    world.control.returns.accept_drive(&name_of(&world, *other)).unwrap();
    let other = file_on(&world, *other, made.id, ExtentIndex(0));
    wait_until_in_sync(&world, made.id, || !is_changed(&path) && is_changed(&other));
    assert!(is_changed(&alone), "nobody else has it");
}

#[test]
fn missing_drive_with_only_complete_journal_is_not_removed() {
    let (_folder, state) = state();
    let world = World::start(&state);
    let fast = add(&world, &state, &["f1", "f2", "f3"], Class::High);
    add(&world, &state, &["s1", "s2"], Class::Low);
    let request = CreateVolume { template: Some(name("hybrid")), ..volume(None, "vol1", GIB) };
    let made = world.control.volumes.create_volume(request).unwrap().record;
    let home =
        homes(&made, ExtentIndex(0)).into_iter().find(|home| fast.contains(home)).expect("one is fast");
    let journaled = fast.iter().find(|drive| **drive != home).unwrap();
    let journal = name_of(&world, *journaled);
    world.end();
    fast.iter().for_each(|drive| lose_writes(&state, *drive));
    let world = World::start(&state);
    let (kind, message) = error(world.control.drives.remove_drive(&journal, None));
    assert_eq!(kind, ErrorKind::Refused, "{message}");
    assert!(message.contains("without the write journal on it, of: vol1"), "{message}");
    world.control.returns.accept_drive(&name_of(&world, home)).unwrap();
    world.control.drives.remove_drive(&journal, None).unwrap();
    assert!(world.control.drives.drive(&journal).is_err(), "another replica has everything");
}
