//! Tests of draining and removing drives against real files.

use std::os::unix::fs::FileExt;

use weir_types::{BackgroundKind, ExtentIndex};
use weir_volume::mirror::ReplicaState;

use super::*;
use crate::drives::AddDrive;
use crate::engine::Engine;
use crate::records::VolumeRecord;

pub(super) fn add(world: &World, state: &Path, text: &str, class: Class) -> DriveId {
    let path = state.join(text);
    std::fs::create_dir_all(&path).unwrap();
    let request = AddDrive { class: Some(class), ..AddDrive::new(path) };
    world.control.drives.add_drive(request).unwrap().record.id
}

pub(super) fn high(world: &World, state: &Path, names: &[&str]) -> Vec<DriveId> {
    names.iter().map(|text| add(world, state, text, Class::High)).collect()
}

/// Makes a volume of class high with this number of replicas.
pub(super) fn make(world: &World, text: &str, extents: u64, replicas: u8) -> VolumeRecord {
    let request = volume(None, text, extents * GIB);
    let request = CreateVolume { io_priority: Some(Class::High), replicas: Some(replicas), ..request };
    world.control.volumes.create_volume(request).unwrap().record
}

pub(super) fn record(world: &World, text: &str) -> VolumeRecord {
    world.control.views.volume(None, &name(text)).unwrap().record
}

fn extents_on(world: &World, text: &str, drive: DriveId) -> usize {
    let record = record(world, text);
    record.placement.extents_on(drive, record.size_bytes).count()
}

/// Removes a drive. Answers its view, unless it is gone.
pub(super) fn remove(world: &World, text: &str) -> Outcome<Option<DriveView>> {
    world.control.drives.remove_drive(&name(text), None)?;
    Ok(world.control.drives.drive(&name(text)).ok())
}

pub(super) fn is_gone(world: &World, text: &str) -> bool {
    world.control.drives.drive(&name(text)).is_err()
}

/// Does the work of the daemon's threads until a condition holds.
pub(super) fn go_on_until(world: &World, mut condition: impl FnMut() -> bool) {
    wait_until("the condition holds", || {
        world.control.settle_moves();
        world.control.reclaims.settle_background();
        world.control.returns.look_for_returns();
        condition()
    });
}

/// Stops resync.
fn hold_up(world: &World) {
    let ceiling = Some(Throughput { iops: None, bytes_per_second: Some(1) });
    let change = BackgroundPolicyChange { ceiling, ..BackgroundPolicyChange::default() };
    world.control.background.modify_background_policy(BackgroundKind::Resync, &change, None).unwrap();
}

fn go_on(world: &World) {
    world.control.background.reset_background_policy(BackgroundKind::Resync, None).unwrap();
}

/// The content of an extent in these tests.
fn content(extent: ExtentIndex) -> Vec<u8> {
    vec![extent.0 as u8 + 1; 64 << 10]
}

/// Writes the content into all replicas of some extents, as if it had been there before the daemon started.
fn fill(world: &World, volume: &VolumeRecord, extents: impl Iterator<Item = ExtentIndex>) {
    for extent in extents {
        for (_, drive) in volume.placement.replicas_of(extent) {
            let path =
                world.control.core.store(drive).unwrap().extents(volume.id).join(format!("{extent:08}"));
            let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
            file.write_all_at(&content(extent), 512 << 20).unwrap();
        }
    }
}

/// Checks that all replicas of some extents hold the content.
fn assert_filled(world: &World, text: &str, extents: impl Iterator<Item = ExtentIndex>) {
    let volume = record(world, text);
    for extent in extents {
        for (_, drive) in volume.placement.replicas_of(extent) {
            let path =
                world.control.core.store(drive).unwrap().extents(volume.id).join(format!("{extent:08}"));
            let mut found = content(extent);
            found.fill(0);
            std::fs::File::open(path).unwrap().read_exact_at(&mut found, 512 << 20).unwrap();
            assert!(found == content(extent), "extent {extent} of {text}");
        }
    }
}

/// Checks that each extent has this number of in-sync replicas on known drives, and that there are no
/// faults.
pub(super) fn assert_whole(world: &World, text: &str, replicas: usize) {
    let record = record(world, text);
    let replica_states = world.control.core.model().open[&record.id].status().replica_states;
    for extent in ExtentIndex::all_of(record.size_bytes) {
        let found: Vec<_> = record.placement.replicas_of(extent).collect();
        assert_eq!(found.len(), replicas, "extent {extent}");
        for (slot, drive) in found {
            assert!(world.control.core.model().is_there(drive));
            let told = replica_states
                .get(extent.index())
                .filter(|all| all.iter().any(|s| *s != ReplicaState::Absent));
            assert!(told.is_none_or(|all| all[slot] == ReplicaState::InSync), "extent {extent}: {told:?}");
        }
    }
    assert!(world.control.serving.extents.extent_faults(record.id).is_empty());
}

#[test]
fn drained_drive_is_removed_without_a_trace() {
    let (_folder, state) = state();
    let world = World::start(&state);
    let drives = high(&world, &state, &["one", "two", "three", "four"]);
    make(&world, "single", 5, 1);
    make(&world, "double", 4, 2);
    let held = || ["single", "double"].map(|text| extents_on(&world, text, drives[0]));
    let before: usize = held().into_iter().sum();
    assert!(before > 0);
    let view = remove(&world, "one").unwrap().expect("it holds something");
    let drain = view.drain.expect("it is being emptied");
    assert_eq!((drain.extents_left, drain.journals_left, drain.blocked_reason), (before as u64, 0, None));
    assert!(view.record.is_draining);
    assert!(remove(&world, "one").unwrap().is_some(), "asking again changes nothing");
    go_on_until(&world, || is_gone(&world, "one"));
    assert_eq!(std::fs::read_dir(state.join("one")).unwrap().count(), 0);
    for (text, replicas) in [("single", 1), ("double", 2)] {
        assert_whole(&world, text, replicas);
        let placement = record(&world, text).placement;
        assert!(!placement.names(drives[0]) && placement.gone_count() == 1, "its place stays empty");
    }
    // The running daemon leaves the slot of the removed drive empty; the next daemon closes the gap.
    world.control.volumes.resize_volume(None, &name("single"), 9 * GIB, false, None).unwrap();
    assert!(remove(&world, "two").unwrap().is_some());
    go_on_until(&world, || is_gone(&world, "two"));
    let before = ["single", "double"].map(|text| record(&world, text).placement.compacted());
    assert_whole(&world, "single", 1);
    assert_eq!(world.control.alarms.alarms(), []);
    world.end();
    let world = World::start(&state);
    assert_eq!(["single", "double"].map(|text| record(&world, text).placement), before);
    assert_whole(&world, "single", 1);
    assert_whole(&world, "double", 2);
    assert_eq!((world.control.alarms.alarms(), world.control.drives.drives().len()), (vec![], 3));
    world.end();
    std::fs::remove_file(state.join("catalogue.sqlite")).unwrap();
    let world = World::try_start(&state, true).unwrap();
    assert_eq!(["single", "double"].map(|text| record(&world, text).placement), before, "from the replicas");
    assert_eq!(world.control.alarms.alarms(), []);
}

#[test]
fn drain_without_room_elsewhere_is_refused_with_reason() {
    let (_folder, state) = state();
    let world = World::start(&state);
    high(&world, &state, &["one"]);
    add(&world, &state, "slow", Class::Low);
    make(&world, "vol1", 2, 1);
    let refused = |text: &str, words: &str| {
        let (kind, message) = error(remove(&world, text));
        assert!(kind == ErrorKind::Refused && message.contains(words), "{kind:?} {message}");
        assert_eq!(world.control.drives.drive(&name(text)).unwrap().drain, None);
    };
    refused("default", "always exists and cannot be removed");
    refused(
        "one",
        "drive 'one' cannot be emptied: the replicas of volume 'vol1' need 1 drives of class high, and without this \
         one there are 0; add a drive first",
    );
    assert_eq!(error(remove(&world, "nothing")).0, ErrorKind::NotFound);
    high(&world, &state, &["two"]);
    make(&world, "vol2", 1, 2);
    refused("one", "volume 'vol2' need 2 drives of class high, and without this one there are 1;");
    high(&world, &state, &["three"]);
    assert!(remove(&world, "one").unwrap().is_some());
    // Drives that are draining count as no place for replicas.
    refused("two", "and without this one there are 1;");
    go_on_until(&world, || is_gone(&world, "one"));
    refused("two", "and without this one there are 1;");
    world.control.volumes.delete_volume(None, &name("vol2"), DeleteVolume::default()).unwrap();
    let (io_priority, class_policy) = (Some(Class::High), Some(weir_types::ClassPolicy::Prefer));
    let prefer = ModifyVolume { io_priority, class_policy, ..ModifyVolume::default() };
    world.control.volumes.modify_volume(None, &name("vol1"), prefer).unwrap();
    add(&world, &state, "other", Class::Medium);
    assert!(remove(&world, "two").unwrap().is_some());
    assert!(remove(&world, "three").unwrap().is_some(), "a class that is preferred is not insisted on");
    go_on_until(&world, || is_gone(&world, "two") && is_gone(&world, "three"));
    assert_whole(&world, "vol1", 1);
}

#[test]
fn draining_drive_takes_no_replicas_and_offers_no_room() {
    let (_folder, state) = state();
    let world = World::start(&state);
    let drives = high(&world, &state, &["one", "two"]);
    make(&world, "vol1", 4, 1);
    let over_provision = ModifyPool { over_provision_percent: Some(Some(100)), ..ModifyPool::default() };
    world.control.pools.modify_pool(&name("high"), over_provision).unwrap();
    assert_eq!(
        world.control.volumes.placing.rooms().iter().filter(|room| drives.contains(&room.drive)).count(),
        2
    );
    assert!(remove(&world, "one").unwrap().is_some());
    let rooms = world.control.volumes.placing.rooms();
    assert!(rooms.iter().all(|room| room.drive != drives[0]));
    let on_one = CreateVolume { drive: Some(name("one")), ..volume(None, "vol2", GIB) };
    let (kind, message) = error(world.control.volumes.create_volume(on_one));
    let words =
        "drive 'one' is being emptied, to be removed, and takes nothing more; 'drive remove one --cancel'";
    assert!(kind == ErrorKind::Refused && message.contains(words), "{message}");
    let made = make(&world, "vol2", 4, 1);
    assert_eq!(made.placement.drives(), [drives[1]]);
    let before = extents_on(&world, "vol1", drives[0]);
    let grown =
        world.control.volumes.resize_volume(None, &name("vol1"), 8 * GIB, false, None).unwrap().record;
    assert_eq!(grown.placement.extents_on(drives[0], 8 * GIB).count(), before);
    // Extents that have to leave the drained drive count as provisioned on the remaining drives.
    let size_bytes = world.control.pools.pool(&name("high")).unwrap().summed_usage().size_bytes;
    let left = size_bytes / 100 * 100 - 12 * GIB;
    let request =
        CreateVolume { io_priority: Some(Class::High), ..volume(None, "vol3", (left + GIB) / GIB * GIB) };
    assert_eq!(error(world.control.volumes.create_volume(request)).0, ErrorKind::Full);
    let (_, message) = error(world.control.volumes.create_volume(CreateVolume {
        io_priority: Some(Class::High),
        replicas: Some(2),
        ..volume(None, "vol3", GIB)
    }));
    assert!(message.contains("on 1 drive"), "{message}");
    go_on_until(&world, || is_gone(&world, "one"));
    assert_whole(&world, "vol1", 1);
}

#[test]
fn cancelled_drain_keeps_remaining_extents() {
    let (_folder, state) = state();
    let world = World::start(&state);
    let drives = high(&world, &state, &["one", "two"]);
    let made = make(&world, "vol1", 12, 1);
    let before = extents_on(&world, "vol1", drives[0]);
    fill(&world, &made, ExtentIndex(6).onward(12));
    hold_up(&world);
    assert!(remove(&world, "one").unwrap().is_some());
    let id = made.id;
    // Some replicas move, so that there is a state between all and none.
    world.control.settle_moves();
    world.engine.let_through(BackgroundKind::Resync, 2);
    go_on_until(&world, || extents_on(&world, "vol1", drives[0]) < before);
    let kept = world.control.drives.keep_drive(&name("one"), None).unwrap();
    assert!(kept.drain.is_none() && !kept.record.is_draining);
    assert!(
        world.control.drives.keep_drive(&name("one"), None).is_ok(),
        "taking it back twice changes nothing"
    );
    go_on(&world);
    go_on_until(&world, || world.control.moves.moves_of(id).is_none());
    let stayed = extents_on(&world, "vol1", drives[0]);
    assert!(stayed > 0 && stayed < before, "{stayed} of {before}");
    assert_whole(&world, "vol1", 1);
    assert_filled(&world, "vol1", ExtentIndex(6).onward(12));
    assert!(!is_gone(&world, "one"));
    assert!(remove(&world, "one").unwrap().is_some());
    go_on_until(&world, || is_gone(&world, "one"));
    assert_whole(&world, "vol1", 1);
    assert_filled(&world, "vol1", ExtentIndex(6).onward(12));
}

#[test]
fn drain_continues_after_restart() {
    let (_folder, state) = state();
    let mut world = World::start(&state);
    let drives = high(&world, &state, &["one", "two", "three"]);
    let (single, double) = (make(&world, "single", 9, 1), make(&world, "double", 6, 2));
    fill(&world, &single, ExtentIndex::first(9));
    fill(&world, &double, ExtentIndex::first(6));
    hold_up(&world);
    assert!(remove(&world, "one").unwrap().is_some());
    for _ in 0..3 {
        // Both volumes have new replicas that are not in sync yet.
        let is_between = |world: &World, text: &str, replicas: usize| {
            let record = record(world, text);
            let mut extents = ExtentIndex::all_of(record.size_bytes);
            extents.any(|extent| record.placement.replicas_of(extent).count() > replicas)
        };
        go_on_until(&world, || is_between(&world, "single", 1) && is_between(&world, "double", 2));
        let view = world.control.drives.drive(&name("one")).unwrap();
        assert!(view.drain.is_some_and(|drain| drain.extents_left > 0));
        world.end();
        world = World::start(&state);
    }
    go_on(&world);
    go_on_until(&world, || is_gone(&world, "one"));
    assert_filled(&world, "single", ExtentIndex::first(9));
    assert_filled(&world, "double", ExtentIndex::first(6));
    for (text, replicas) in [("single", 1), ("double", 2)] {
        assert_whole(&world, text, replicas);
        assert!(!record(&world, text).placement.names(drives[0]));
    }
    assert_eq!(
        (world.control.alarms.alarms(), std::fs::read_dir(state.join("one")).unwrap().count()),
        (vec![], 0)
    );
}

#[test]
fn missing_drive_is_removed_unless_it_has_the_only_replica() {
    let (_folder, state) = state();
    let world = World::start(&state);
    high(&world, &state, &["one", "two", "three"]);
    make(&world, "double", 4, 2);
    make(&world, "single", 3, 1);
    world.end();
    std::fs::rename(state.join("one"), state.join("away")).unwrap();
    let world = World::start(&state);
    let (kind, message) = error(remove(&world, "one"));
    assert_eq!(kind, ErrorKind::Refused);
    let words = "it has the only replica that has everything of extents of: single; bring it back first";
    assert!(message.starts_with("drive 'one' at") && message.contains(words), "{message}");
    world.end();
    std::fs::rename(state.join("away"), state.join("one")).unwrap();
    let world = World::start(&state);
    world.control.volumes.delete_volume(None, &name("single"), DeleteVolume::default()).unwrap();
    settle(&world.control);
    world.end();
    std::fs::rename(state.join("one"), state.join("away")).unwrap();
    let world = World::start(&state);
    assert!(remove(&world, "one").unwrap().is_some());
    go_on_until(&world, || is_gone(&world, "one"));
    assert_whole(&world, "double", 2);
    assert_eq!(world.control.alarms.alarms(), []);
}

#[test]
fn missing_drives_are_no_replica_of_each_other() {
    let (_folder, state) = state();
    let world = World::start(&state);
    high(&world, &state, &["one", "two", "three", "four"]);
    make(&world, "vol1", 8, 2);
    world.end();
    for text in ["one", "two"] {
        std::fs::rename(state.join(text), state.join(format!("{text}-away"))).unwrap();
    }
    let world = World::start(&state);
    for text in ["one", "two"] {
        let (kind, message) = error(remove(&world, text));
        assert!(kind == ErrorKind::Refused && message.contains("only replica"), "{message}");
    }
}

#[test]
fn drive_emptied_by_shrink_can_be_removed() {
    let (_folder, state) = state();
    let world = World::start(&state);
    let drives = high(&world, &state, &["one", "two"]);
    make(&world, "vol1", 4, 1);
    world.control.volumes.resize_volume(None, &name("vol1"), GIB, true, None).unwrap();
    settle(&world.control);
    let placement = record(&world, "vol1").placement;
    let (holder, emptied) = match placement.holders(GIB)[0] == drives[0] {
        true => ("one", "two"),
        false => ("two", "one"),
    };
    let view = remove(&world, emptied).unwrap().expect("the volume's folder is still there");
    assert_eq!(view.drain.map(|drain| drain.extents_left), Some(0));
    go_on_until(&world, || is_gone(&world, emptied));
    assert_eq!(std::fs::read_dir(state.join(emptied)).unwrap().count(), 0);
    assert!(world.control.drives.drive(&name(holder)).is_ok());
    assert_whole(&world, "vol1", 1);
}

#[test]
fn slots_of_removed_drives_count_until_next_start() {
    let (_folder, state) = state();
    let world = World::start(&state);
    high(&world, &state, &["kept", "next"]);
    let mut made = make(&world, "vol1", 1, 1);
    let revision = world.control.core.model().volumes[&made.id].revision;
    // As if drives had come and gone since the start.
    for number in 0..weir_types::control_bounds::DRIVES_MAX as u128 - 4 {
        let past = DriveId(uuid::Uuid::from_u128(number + 1));
        made.placement.set(1, (ExtentIndex(0), 1), Some(past));
        made.placement.set(1, (ExtentIndex(0), 1), None);
        assert!(made.placement.forget(1, past));
    }
    world.control.core.save_volume(&made, revision).unwrap();
    add(&world, &state, "last", Class::High);
    let path = state.join("more");
    std::fs::create_dir(&path).unwrap();
    let (kind, message) = error(world.control.drives.add_drive(AddDrive::new(path.clone())));
    assert!(kind == ErrorKind::Full && message.contains("251 more that were removed"), "{message}");
    world.end();
    let world = World::start(&state);
    world.control.drives.add_drive(AddDrive::new(path)).unwrap();
}

/// The name of the drive that has a write journal of a volume and no extent of the volume.
pub(super) fn journal_drive(world: &World, volume: &VolumeRecord) -> String {
    let journals = world.control.journals.journals(None);
    let holders = volume.placement.drives();
    let model = world.control.core.model();
    let is_free = |name: &&Name| {
        let drive = model.drives.values().find(|drive| drive.record.name == **name).unwrap();
        !holders.contains(&drive.record.id)
    };
    journals.iter().map(|journal| &journal.drive).find(is_free).expect("a journal lies there").to_string()
}

pub(super) fn make_hybrid(world: &World, text: &str) -> VolumeRecord {
    let request = CreateVolume { template: Some(name("hybrid")), ..volume(None, text, GIB) };
    world.control.volumes.create_volume(request).unwrap().record
}

#[test]
fn drain_is_refused_if_write_journal_has_no_other_drive() {
    let (_folder, state) = state();
    let world = World::start(&state);
    high(&world, &state, &["f1", "f2", "f3"]);
    ["s1", "s2"].iter().for_each(|text| _ = add(&world, &state, text, Class::Low));
    let made = make_hybrid(&world, "vol1");
    let drive = journal_drive(&world, &made);
    let (kind, message) = error(remove(&world, &drive));
    assert_eq!(kind, ErrorKind::Refused, "{message}");
    for words in [
        format!("drive '{drive}' cannot be emptied: the write journal of volume 'vol1' on it"),
        "no drive of class low is free".to_owned(),
        "add a drive of class low".to_owned(),
    ] {
        assert!(message.contains(&words), "{words} in {message}");
    }
    assert_eq!(world.control.drives.drive(&name(&drive)).unwrap().drain, None, "nothing has begun");
    // The remedy that the message names works.
    add(&world, &state, "s3", Class::Low);
    let view = remove(&world, &drive).unwrap().expect("a journal is there");
    let left = view.drain.expect("it is being emptied");
    assert_eq!((left.extents_left, left.journals_left), (0, 1), "what is in the way is told");
    go_on_until(&world, || is_gone(&world, &drive));
    assert_whole(&world, "vol1", 3);
}

#[test]
fn drain_blocked_by_write_journal_reports_reason_and_since_when() {
    let (_folder, state) = state();
    let world = World::start(&state);
    high(&world, &state, &["f1", "f2", "f3"]);
    ["s1", "s2", "s3"].iter().for_each(|text| _ = add(&world, &state, text, Class::Low));
    let made = make_hybrid(&world, "vol1");
    let drive = journal_drive(&world, &made);
    let begun = jiff::Timestamp::now();
    // The only drive that could take the replica behind the journal is empty and is removed.
    let holders = made.placement.drives();
    let spare = ["s1", "s2", "s3"].into_iter().find(|text| {
        let id = world.control.drives.drive(&name(text)).unwrap().record.id;
        !holders.contains(&id)
    });
    assert!(remove(&world, &drive).unwrap().is_some());
    assert!(remove(&world, spare.unwrap()).unwrap().is_none(), "it holds nothing");
    let drain = || world.control.drives.drive(&name(&drive)).unwrap().drain.expect("it is being emptied");
    go_on_until(&world, || drain().blocked_reason.is_some());
    let left = drain();
    assert!(
        left.blocked_reason.as_ref().unwrap().contains("volume 'vol1': no drive of class low is free"),
        "{left:?}"
    );
    assert_eq!(left.journals_left, 1);
    assert!(left.unchanged_since >= begun, "{left:?}");
    add(&world, &state, "s4", Class::Low);
    go_on_until(&world, || is_gone(&world, &drive));
    assert_whole(&world, "vol1", 3);
}

/// Fails if open volumes take the added drive for the one that is away, or look for its files at the old
/// path.
#[test]
fn drive_removed_while_away_is_used_at_its_new_path() {
    let (_folder, state) = state();
    let world = World::start(&state);
    let drives = high(&world, &state, &["one", "two", "three"]);
    let volume = make(&world, "double", 3, 2);
    std::fs::rename(state.join("one"), state.join("elsewhere")).unwrap();
    world.control.returns.absences.look_for_absences();
    remove(&world, "one").unwrap();
    go_on_until(&world, || is_gone(&world, "one"));
    assert_eq!(add(&world, &state, "elsewhere", Class::High), drives[0], "it is known by its marker");
    remove(&world, "two").unwrap();
    go_on_until(&world, || is_gone(&world, "two"));
    assert_whole(&world, "double", 2);
    assert_eq!(extents_on(&world, "double", drives[0]), 3);
    let files = world.engine.open_files(drives[0]);
    assert!(!files.is_empty() && files.iter().all(|file| file.path.starts_with(state.join("elsewhere"))));
    assert!(files.iter().all(|file| file.volume == volume.id));
}

/// Fails if a replica is removed in the second before the remaining replica is found not to be on its
/// drive.
#[test]
fn replica_is_not_removed_while_others_are_misplaced() {
    let (_folder, state) = state();
    let world = World::start(&state);
    high(&world, &state, &["one", "two"]);
    make(&world, "double", 1, 2);
    let replicas = || record(&world, "double").placement.replicas_of(ExtentIndex(0)).count();
    let one = ModifyVolume { replicas: Some(1), ..ModifyVolume::default() };
    world.control.volumes.modify_volume(None, &name("double"), one).unwrap();
    let places = ["one", "two"].map(|text| (state.join(text), state.join(format!("{text}.away"))));
    for (here, away) in &places {
        std::fs::rename(here, away).unwrap();
        // An older duplicate of the drive's folder lies where its filesystem was mounted.
        let copied = std::process::Command::new("cp").arg("-a").args([away, here]).status().unwrap();
        assert!(copied.success());
    }
    world.control.settle_moves();
    assert_eq!(replicas(), 2);
    for (here, away) in &places {
        std::fs::remove_dir_all(here).unwrap();
        std::fs::rename(away, here).unwrap();
    }
    go_on_until(&world, || replicas() == 1);
    assert_whole(&world, "double", 1);
}
