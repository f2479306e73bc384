//! Tests of volumes whose replicas are behind write journals on journal drives, against real files.

use std::collections::BTreeSet;

use jiff::Timestamp;
use weir_engine_interface::statistics::JournalUsage;
use weir_types::{DriveRole, IoProfile, MeasuredDirection, Measurement};

use super::drain::{add, assert_whole, go_on_until, is_gone, record, remove};
use super::*;
use weir_volume::mirror::{ReplicaState, ReplicaStates};

use crate::alarms::AlarmSource;
use crate::records::{DatedMeasurement, VolumeRecord};
use crate::snapshots::Pair;
use crate::{CloneVolume, CreateSnapshots, FlushTermsChange};

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

fn make_plain(world: &World, text: &str, replicas: u8) -> VolumeRecord {
    let plain = CreateVolume { io_profile: IoProfile::None, ..journaled(text, replicas) };
    world.control.volumes.create_volume(plain).unwrap().record
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
    world.end();
    let world = World::start(&state);
    assert_eq!(record(&world, "vol1").io_profile, IoProfile::Journal);
    assert_eq!(journals_of(&world, &made), [journal, journal]);
    assert_whole(&world, "vol1", 1);
}

fn clone_of(source: &str, of: &str, io_profile: Option<IoProfile>) -> CloneVolume {
    CloneVolume {
        tenant: None,
        source: name(source),
        snapshot: None,
        name: name(of),
        policy: None,
        io_profile,
        flush_terms: FlushTermsChange::default(),
        force: false,
    }
}

fn take_snapshot(world: &World, of: &str) {
    let snapshots =
        CreateSnapshots { tenant: None, volumes: vec![name(of)], name: name("one"), freeze: false };
    world.control.snapshots.create_snapshots(&snapshots).unwrap();
}

#[test]
fn clones_have_journals_and_snapshots_have_none() {
    let (_folder, state) = state();
    let world = with_drives(&state, &["s1", "s2"]);
    let journals = ["j1", "j2"].map(|text| add_journal(&world, &state, text));
    make(&world, "vol1", 2);
    take_snapshot(&world, "vol1");
    let snapshot = world.control.snapshots.snapshots(None, None).unwrap()[0].record.clone();
    assert_eq!((snapshot.io_profile, journals_of(&world, &snapshot)), (IoProfile::Journal, Vec::new()));
    let clone = |request: CloneVolume| world.control.clones.clone_volume(&request).unwrap().record;
    let same = clone(clone_of("vol1", "same", None));
    let of_snapshot = clone(CloneVolume { snapshot: Some(name("one")), ..clone_of("vol1", "later", None) });
    let plain = clone(clone_of("vol1", "plain", Some(IoProfile::None)));
    let again = clone(clone_of("plain", "again", Some(IoProfile::Journal)));
    for made in [&same, &of_snapshot, &again] {
        let on: BTreeSet<DriveId> = journals_of(&world, made).into_iter().collect();
        assert_eq!((made.io_profile, on), (IoProfile::Journal, journals.into()));
        assert_whole(&world, made.name.as_str(), 2);
    }
    assert_eq!((plain.io_profile, journals_of(&world, &plain)), (IoProfile::None, Vec::new()));
    world.control.snapshots.restore_snapshot(None, &name("vol1"), &name("one"), false, None).unwrap();
    assert_eq!(journals_of(&world, &record(&world, "vol1")).len(), 4);
    world.end();
    let world = World::start(&state);
    for text in ["vol1", "same", "later", "again"] {
        assert_eq!(journals_of(&world, &record(&world, text)).len(), 4, "{text}");
        assert_whole(&world, text, 2);
    }
}

#[test]
fn clone_is_refused_while_no_journal_drive_has_room() {
    let (_folder, state) = state();
    let world = with_drives(&state, &["s1"]);
    make_plain(&world, "vol1", 1);
    let (kind, message) =
        error(world.control.clones.clone_volume(&clone_of("vol1", "vol2", Some(IoProfile::Journal))));
    assert!(kind == ErrorKind::Full && message.contains("'weir journal add' adds a drive"), "{message}");
    assert!(world.control.views.volume(None, &name("vol2")).is_err(), "nothing is left of it");
}

/// Fails if a drain takes the journal of a clone whose content is not complete for one of an unknown volume.
#[test]
fn drain_spares_the_journal_of_a_volume_that_is_being_made() {
    let (_folder, state) = state();
    let world = with_drives(&state, &["s1"]);
    let journal = add_journal(&world, &state, "j1");
    let made = make(&world, "vol1", 1);
    let target = VolumeRecord { id: VolumeId(uuid::Uuid::new_v4()), ..made.clone() };
    let begun = world
        .control
        .clones
        .maker
        .begin_snapshots(&[], || Ok(vec![Pair { source: made.clone(), target: target.clone() }]));
    let begun = begun.unwrap();
    let path = |volume: &VolumeRecord| state.join("j1/journals").join(volume.id.to_string());
    assert!(path(&target).exists());
    world.control.journals.empty_of_journals(journal).unwrap().1.unwrap();
    assert!(path(&target).exists() && path(&made).exists());
    world.control.clones.maker.abandon(&begun);
    drop(begun);
    world.control.journals.empty_of_journals(journal).unwrap().1.unwrap();
    assert!(!path(&target).exists() && path(&made).exists());
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
    world.end();
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
fn journal_of_a_deleted_volume_is_removed_when_its_drive_is_back() {
    let (_folder, state) = state();
    let world = with_drives(&state, &["s1"]);
    add_journal(&world, &state, "j1");
    let made = make(&world, "vol1", 1);
    world.end();
    std::fs::rename(state.join("j1"), state.join("away")).unwrap();
    let world = World::start(&state);
    world.control.volumes.delete_volume(None, &name("vol1"), DeleteVolume::default()).unwrap();
    world.end();
    // The next start still knows of the journal.
    let world = World::start(&state);
    let journal = state.join("away/journals").join(made.id.to_string());
    assert!(journal.exists());
    std::fs::rename(state.join("away"), state.join("j1")).unwrap();
    let journal = state.join("j1/journals").join(made.id.to_string());
    go_on_until(&world, || !journal.exists());
    go_on_until(&world, || world.control.core.model().reclaims.is_empty());
}

#[test]
fn volume_whose_only_journal_is_lost_is_not_served() {
    let (_folder, state) = state();
    let world = with_drives(&state, &["s1"]);
    add_journal(&world, &state, "j1");
    make(&world, "vol1", 1);
    world.end();
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

fn change_profile(world: &World, text: &str, io_profile: IoProfile) -> Outcome<VolumeView> {
    let change = ModifyVolume { io_profile: Some(io_profile), ..ModifyVolume::default() };
    world.control.volumes.modify_volume(None, &name(text), change)
}

#[test]
fn profile_changes_while_the_volume_is_in_use() {
    let (_folder, state) = state();
    let world = with_drives(&state, &["s1", "s2", "s3"]);
    let journals = ["j1", "j2"].map(|text| add_journal(&world, &state, text));
    for (text, replicas) in [("single", 1), ("double", 2)] {
        let made = make_plain(&world, text, replicas);
        change_profile(&world, text, IoProfile::Journal).unwrap();
        go_on_until(&world, || world.control.moves.moves_of(made.id).is_none());
        let bindings = world.control.journals.bindings(made.id);
        assert_eq!(bindings.len(), 2 * usize::from(replicas));
        assert!(bindings.values().all(|drive| journals.contains(drive)));
        for extent in [ExtentIndex(0), ExtentIndex(1)] {
            let of_extent = bindings.iter().filter(|((of, _), _)| *of == extent).map(|(_, drive)| drive);
            assert_eq!(of_extent.collect::<BTreeSet<_>>().len(), usize::from(replicas));
        }
        assert_whole(&world, text, replicas.into());
        change_profile(&world, text, IoProfile::None).unwrap();
        go_on_until(&world, || world.control.moves.moves_of(made.id).is_none());
        assert_eq!(journals_of(&world, &made), []);
        assert!(
            !["j1", "j2"].iter().any(|text| state
                .join(text)
                .join("journals")
                .join(made.id.to_string())
                .exists())
        );
        assert_whole(&world, text, replicas.into());
    }
}

#[test]
fn profile_that_no_other_drive_allows_is_refused() {
    let (_folder, state) = state();
    let world = with_drives(&state, &["s1"]);
    make_plain(&world, "vol1", 1);
    let (kind, message) = error(change_profile(&world, "vol1", IoProfile::Journal));
    assert!(kind == ErrorKind::Refused && message.contains("needs 1 journal drives"), "{message}");
    add_journal(&world, &state, "j1");
    let (kind, message) = error(change_profile(&world, "vol1", IoProfile::Journal));
    assert!(kind == ErrorKind::Refused && message.contains("'weir volume clone --io-profile'"), "{message}");
    assert_eq!(record(&world, "vol1").io_profile, IoProfile::None);
    add(&world, &state, "s2", Class::Low);
    change_profile(&world, "vol1", IoProfile::Journal).unwrap();
}

/// Fails if the profile of the record, and not the marker beside the file, says whether the file is complete.
#[test]
fn volume_on_its_way_from_a_journal_waits_for_the_missing_journal_drive() {
    let (_folder, state) = state();
    let world = with_drives(&state, &["s1", "s2"]);
    add_journal(&world, &state, "j1");
    make(&world, "vol1", 1);
    change_profile(&world, "vol1", IoProfile::None).unwrap();
    world.end();
    std::fs::rename(state.join("j1"), state.join("away")).unwrap();
    let world = World::start(&state);
    assert!(world.exports.find("vol1").is_none());
    let (kind, message) = error(remove(&world, "j1"));
    assert!(kind == ErrorKind::Refused && message.contains("no replica has everything without"), "{message}");
    std::fs::rename(state.join("away"), state.join("j1")).unwrap();
    go_on_until(&world, || world.exports.find("vol1").is_some());
    go_on_until(&world, || world.control.moves.moves_of(record(&world, "vol1").id).is_none());
    assert_eq!(journals_of(&world, &record(&world, "vol1")), []);
    assert_whole(&world, "vol1", 1);
}

fn has_two_good_replicas(world: &World, volume: &VolumeRecord) -> bool {
    let status = world.control.core.model().open[&volume.id].status();
    let good = |states: &ReplicaStates| states.iter().filter(|one| **one == ReplicaState::InSync).count();
    status.replica_states.len() == 2 && status.replica_states.iter().all(|states| good(states) == 2)
}

#[test]
fn replica_that_was_made_without_a_journal_gets_one_later() {
    let (_folder, state) = state();
    let world = with_drives(&state, &["s1", "s2", "s3"]);
    ["j1", "j2"].iter().for_each(|text| _ = add_journal(&world, &state, text));
    let made = make(&world, "vol1", 2);
    world.end();
    std::fs::remove_dir_all(state.join("j2")).unwrap();
    let world = World::start(&state);
    remove(&world, "j2").unwrap();
    // The redundancy of all extents comes before the journal of any.
    go_on_until(&world, || is_gone(&world, "j2") && has_two_good_replicas(&world, &made));
    assert_eq!(journals_of(&world, &made).len(), 2);
    world.control.settle_moves();
    let moving = world.control.moves.moves_of(made.id).unwrap();
    assert!(moving.blocked_reason.unwrap().contains("'weir journal add' adds a drive"));
    let again = add_journal(&world, &state, "j3");
    go_on_until(&world, || journals_of(&world, &made).contains(&again));
    go_on_until(&world, || world.control.moves.moves_of(made.id).is_none());
    assert_eq!(journals_of(&world, &made).len(), 4);
    assert_whole(&world, "vol1", 2);
}

fn measured(world: &World, drive: DriveId, iops: u64, bytes_per_second: u64) {
    let write = MeasuredDirection { iops, bytes_per_second, ..MeasuredDirection::default() };
    let found = Measurement { write, ..Measurement::default() };
    let latest = Some(DatedMeasurement { at: Timestamp::now(), found });
    world.control.core.update(|model| {
        model.drives.get_mut(&drive).unwrap().record.measured.latest = latest;
    });
}

#[test]
fn slow_journal_drive_and_full_journal_are_alarms() {
    let (_folder, state) = state();
    let world = World::start(&state);
    let (data, journal) = (add(&world, &state, "s1", Class::Low), add_journal(&world, &state, "j1"));
    let found = || -> Vec<String> {
        let alarms = world.control.alarms.alarms().into_iter();
        alarms.filter(|alarm| alarm.source == AlarmSource::Journal).map(|alarm| alarm.message).collect()
    };
    measured(&world, data, 10_000, 500_000_000);
    assert_eq!(found(), Vec::<String>::new(), "a drive that was not measured is not slow");
    measured(&world, journal, 9_000, 600_000_000);
    assert_eq!(found(), Vec::<String>::new(), "one drive measured twice differs as much");
    for (iops, bytes_per_second, words) in [
        (7_000, 600_000_000, "7000 writes per second and not 10000"),
        (90_000, 300_000_000, "300000000 bytes per second"),
    ] {
        measured(&world, journal, iops, bytes_per_second);
        assert!(found().len() == 1 && found()[0].contains(words), "{:?}", found());
    }
    measured(&world, journal, 90_000, 600_000_000);
    let made = make(&world, "vol1", 1);
    let usage = |full_per_mille| JournalUsage { full_per_mille, ..JournalUsage::default() };
    let tell = |full_per_mille| {
        let open = world.control.core.model().open[&made.id].clone();
        open.statistics().journals.is_used(journal, usage(full_per_mille));
    };
    tell(749);
    assert_eq!(found(), Vec::<String>::new());
    tell(750);
    assert!(found().len() == 1 && found()[0].contains("more than 75% full"), "{:?}", found());
}
