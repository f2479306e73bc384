//! Tests of volumes whose replicas are behind write journals on journal drives, against real files.

use weir_types::{DriveRole, IoProfile};

use super::drain::{add, assert_whole, go_on_until, is_gone, record, remove};
use super::*;
use crate::records::VolumeRecord;
use crate::{CloneVolume, CreateSnapshots};

fn add_journal(world: &World, state: &Path, text: &str) -> DriveId {
    let path = state.join(text);
    std::fs::create_dir_all(&path).unwrap();
    let request = AddDrive { role: DriveRole::Journal, class: Some(Class::High), ..AddDrive::new(path) };
    world.control.drives.add_drive(request).unwrap().record.id
}

/// A world with some data drives of class low.
fn with_drives(state: &Path, names: &[&str]) -> World {
    let world = World::start(state);
    names.iter().for_each(|text| _ = add(&world, state, text, Class::Low));
    world
}

fn journaled(text: &str, replicas: u8) -> CreateVolume {
    CreateVolume {
        io_priority: Some(Class::Low),
        replicas: Some(replicas),
        io_profile: IoProfile::Journal,
        ..volume(None, text, 2 * GIB)
    }
}

fn make(world: &World, text: &str, replicas: u8) -> VolumeRecord {
    world.control.volumes.create_volume(journaled(text, replicas)).unwrap().record
}

/// The drives of the journals of a volume, one for each extent replica.
fn journals_of(world: &World, volume: &VolumeRecord) -> Vec<DriveId> {
    world.control.journals.bindings(volume.id).into_values().collect()
}

#[test]
fn each_replica_has_a_journal_on_another_journal_drive() {
    let (_folder, state) = state();
    let world = with_drives(&state, &["s1", "s2"]);
    let (kind, message) = error(world.control.volumes.create_volume(journaled("vol1", 1)));
    assert!(kind == ErrorKind::Full && message.contains("'weir journal add' adds a drive"), "{message}");
    let one = add_journal(&world, &state, "j1");
    let single = make(&world, "single", 1);
    assert_eq!(journals_of(&world, &single), [one, one]);
    let (kind, message) = error(world.control.volumes.create_volume(journaled("double", 2)));
    assert!(kind == ErrorKind::Full && message.contains("no journal drive has room"), "{message}");
    assert!(world.control.views.volume(None, &name("double")).is_err(), "nothing is left of it");
    let two = add_journal(&world, &state, "j2");
    let mut of_double = journals_of(&world, &make(&world, "double", 2));
    of_double.sort();
    let mut expected = [one, one, two, two];
    expected.sort();
    assert_eq!(of_double, expected);
}

#[test]
fn journal_drive_is_in_no_pool_and_takes_no_replica() {
    let (_folder, state) = state();
    let world = with_drives(&state, &["s1"]);
    let journal = add_journal(&world, &state, "j1");
    let pools = world.control.pools.pools();
    assert!(pools.iter().all(|pool| pool.drives.iter().all(|drive| drive.record.id != journal)));
    let high = CreateVolume { io_priority: Some(Class::High), ..volume(None, "fast", GIB) };
    assert_eq!(error(world.control.volumes.create_volume(high)).0, ErrorKind::Full);
    let on = CreateVolume { drive: Some(name("j1")), ..volume(None, "fast", GIB) };
    let (kind, message) = error(world.control.volumes.create_volume(on));
    assert!(kind == ErrorKind::Refused && message.contains("write journals"), "{message}");
}

#[test]
fn journals_are_found_again_at_the_next_start() {
    let (_folder, state) = state();
    let world = with_drives(&state, &["s1"]);
    let journal = add_journal(&world, &state, "j1");
    let made = make(&world, "vol1", 1);
    drop(world);
    let world = World::start(&state);
    assert_eq!(record(&world, "vol1").io_profile, IoProfile::Journal);
    assert_eq!(journals_of(&world, &made), [journal, journal]);
    assert_whole(&world, "vol1", 1);
}

#[test]
fn snapshots_and_clones_of_journaled_volumes_are_refused() {
    let (_folder, state) = state();
    let world = with_drives(&state, &["s1"]);
    add_journal(&world, &state, "j1");
    make(&world, "vol1", 1);
    let snapshots =
        CreateSnapshots { tenant: None, volumes: vec![name("vol1")], name: name("one"), freeze: false };
    let (kind, message) = error(world.control.snapshots.create_snapshots(&snapshots));
    assert!(kind == ErrorKind::Refused && message.contains("I/O profile journal"), "{message}");
    let clone = CloneVolume {
        tenant: None,
        source: name("vol1"),
        snapshot: None,
        name: name("vol2"),
        policy: None,
        force: false,
    };
    assert_eq!(error(world.control.clones.clone_volume(&clone)).0, ErrorKind::Refused);
}

#[test]
fn journal_drive_is_drained_if_another_can_take_its_journals() {
    let (_folder, state) = state();
    let world = with_drives(&state, &["s1", "s2"]);
    add_journal(&world, &state, "j1");
    let made = make(&world, "vol1", 1);
    let (kind, message) = error(remove(&world, "j1"));
    assert!(kind == ErrorKind::Refused && message.contains("cannot be emptied"), "{message}");
    let other = add_journal(&world, &state, "j2");
    remove(&world, "j1").unwrap();
    go_on_until(&world, || is_gone(&world, "j1"));
    assert_eq!(journals_of(&world, &made), [other, other]);
    assert_whole(&world, "vol1", 1);
}

/// Fails if stale data of the slow files is served, or if the only journal with the newest writes may be given up.
#[test]
fn volume_waits_for_its_missing_journal_drive() {
    let (_folder, state) = state();
    let world = with_drives(&state, &["s1"]);
    let journal = add_journal(&world, &state, "j1");
    let made = make(&world, "vol1", 1);
    drop(world);
    std::fs::rename(state.join("j1"), state.join("away")).unwrap();
    let world = World::start(&state);
    assert!(world.exports.find("vol1").is_none());
    let alarms = world.control.alarms.alarms();
    let words = "the write journal is missing or lost";
    assert!(alarms.iter().any(|alarm| alarm.message.contains(words)), "{alarms:?}");
    let (kind, message) = error(remove(&world, "j1"));
    assert!(kind == ErrorKind::Refused && message.contains("no replica has everything without"), "{message}");
    std::fs::rename(state.join("away"), state.join("j1")).unwrap();
    go_on_until(&world, || world.exports.find("vol1").is_some());
    assert_eq!(journals_of(&world, &made), [journal, journal]);
    assert_eq!(world.control.alarms.alarms(), []);
}

#[test]
fn volume_whose_only_journal_is_lost_is_not_served() {
    let (_folder, state) = state();
    let world = with_drives(&state, &["s1"]);
    add_journal(&world, &state, "j1");
    make(&world, "vol1", 1);
    drop(world);
    std::fs::remove_dir_all(state.join("j1/journals")).unwrap();
    let world = World::start(&state);
    assert!(world.exports.find("vol1").is_none());
    world.control.volumes.delete_volume(None, &name("vol1"), DeleteVolume::default()).unwrap();
}

#[test]
fn journaled_replica_keeps_a_journal_when_it_moves() {
    let (_folder, state) = state();
    let world = with_drives(&state, &["s1"]);
    let journal = add_journal(&world, &state, "j1");
    let made = make(&world, "vol1", 1);
    let fast = add(&world, &state, "f1", Class::High);
    let change = ModifyVolume { io_priority: Some(Class::High), ..ModifyVolume::default() };
    world.control.volumes.modify_volume(None, &name("vol1"), change).unwrap();
    go_on_until(&world, || record(&world, "vol1").placement.holders(2 * GIB) == [fast]);
    assert_eq!(journals_of(&world, &made), [journal, journal]);
    assert_whole(&world, "vol1", 1);
}

#[test]
fn more_replicas_than_journal_drives_are_refused() {
    let (_folder, state) = state();
    let world = with_drives(&state, &["s1", "s2"]);
    add_journal(&world, &state, "j1");
    make(&world, "vol1", 1);
    let change = ModifyVolume { replicas: Some(2), ..ModifyVolume::default() };
    let (kind, message) = error(world.control.volumes.modify_volume(None, &name("vol1"), change));
    assert!(kind == ErrorKind::Refused && message.contains("needs 2 journal drives"), "{message}");
}
