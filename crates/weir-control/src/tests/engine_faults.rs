//! Tests of an engine that refuses a call, hangs in one, or reports a drive that fails; and of scrubs.

use weir_types::{BackgroundKind, ExtentIndex};

use super::drain::{assert_whole, high, make, record};
use super::*;
use crate::alarms::AlarmSource;
use crate::engine::fake::EngineCall;

/// The conditions and the numbers of missing replicas that a volume's view shows.
fn health(world: &World, text: &str) -> (VolumeCondition, u64) {
    let health = world.control.views.volume(None, &name(text)).unwrap().health;
    (health.condition, health.replicas.missing)
}

#[test]
fn refused_replica_is_reported_and_added_once_accepted() {
    let (_folder, state) = state();
    let world = World::start(&state);
    high(&world, &state, &["one", "two"]);
    make(&world, "vol1", 1, 1);
    world.engine.refuse(EngineCall::AddReplica, Some("no space for its metadata"));
    let two = ModifyVolume { replicas: Some(2), ..ModifyVolume::default() };
    let id = world.control.volumes.modify_volume(None, &name("vol1"), two.clone()).unwrap().record.id;
    world.control.settle_moves();
    let blocked = || world.control.moves.moves_of(id).and_then(|moves| moves.blocked_reason);
    let reason = format!("a replica of volume {id} cannot be added: no space for its metadata");
    assert_eq!(blocked(), Some(reason), "it says nothing of a record");
    assert_eq!(
        record(&world, "vol1").placement.replicas_of(ExtentIndex(0)).count(),
        1,
        "nothing was recorded"
    );
    let alarms = world.control.alarms.alarms();
    assert!(alarms.iter().any(|alarm| alarm.message.contains("no space for its metadata")), "{alarms:?}");
    world.engine.refuse(EngineCall::AddReplica, None);
    // A request is looked at without the pause that a blocked move takes.
    world.control.volumes.modify_volume(None, &name("vol1"), two).unwrap();
    super::drain::go_on_until(&world, || world.control.moves.moves_of(id).is_none());
    assert_whole(&world, "vol1", 2);
    assert_eq!(world.control.alarms.alarms(), []);
}

/// Fails if a change that waits for the engine holds up reads, or changes of other volumes.
#[test]
fn engine_that_hangs_in_one_volume_delays_no_read_and_no_other_change() {
    let (_folder, state) = state();
    let world = World::start(&state);
    let control = &world.control;
    control.volumes.create_volume(volume(None, "vol1", GIB)).unwrap();
    let held = world.engine.hold(EngineCall::Close);
    std::thread::scope(|scope| {
        let deletion =
            scope.spawn(|| control.volumes.delete_volume(None, &name("vol1"), DeleteVolume::default()));
        held.wait_until_called();
        let names = || control.volumes(None).unwrap().iter().map(|view| view.record.name.clone()).collect();
        let before: Vec<Name> = names();
        control.volumes.create_volume(volume(None, "other", GIB)).unwrap();
        control.volumes.resize_volume(None, &name("other"), 2 * GIB, false, None).unwrap();
        let after: Vec<Name> = names();
        assert_eq!(after.len(), before.len() + 1);
        drop(held);
        deletion.join().unwrap().unwrap();
    });
    assert_eq!(control.volumes(None).unwrap().len(), 1);
}

#[test]
fn drive_that_fails_degrades_volumes_until_its_replicas_are_back() {
    let (_folder, state) = state();
    let world = World::start(&state);
    let drives = high(&world, &state, &["one", "two"]);
    make(&world, "vol1", 3, 2);
    assert_eq!(health(&world, "vol1"), (VolumeCondition::Online, 0));
    world.engine.fail_drive(drives[0]);
    assert_eq!(health(&world, "vol1"), (VolumeCondition::Degraded, 3));
    let of_engine = || {
        let alarms = world.control.alarms.alarms().into_iter();
        alarms.filter(|alarm| alarm.source == AlarmSource::DataPlane).count()
    };
    assert_eq!(of_engine(), 3, "an alarm for each extent");
    world.control.returns.look_for_returns();
    assert_eq!((health(&world, "vol1"), of_engine()), ((VolumeCondition::Online, 0), 0));
    assert_whole(&world, "vol1", 2);
}

#[test]
fn volume_whose_last_replica_fails_is_offline() {
    let (_folder, state) = state();
    let world = World::start(&state);
    let drives = high(&world, &state, &["one"]);
    make(&world, "vol1", 2, 1);
    world.engine.fail_drive(drives[0]);
    let health = world.control.views.volume(None, &name("vol1")).unwrap().health;
    assert_eq!((health.condition, health.extents_offline), (VolumeCondition::Offline, 2));
}

#[test]
fn refused_snapshot_leaves_nothing_behind() {
    let (_folder, state) = state();
    let world = World::start(&state);
    world.control.volumes.create_volume(volume(None, "vol1", GIB)).unwrap();
    world.engine.refuse(EngineCall::Snapshot, Some("it could not be held for the same instant"));
    let request =
        CreateSnapshots { tenant: None, volumes: vec![name("vol1")], name: name("one"), freeze: false };
    let (kind, message) = error(world.control.snapshots.create_snapshots(&request));
    assert!(kind == ErrorKind::Refused && message.contains("held for the same instant"), "{message}");
    settle(&world.control);
    assert_eq!((world.control.snapshots.snapshots(None, None).unwrap().len(), folders(&state)), (0, 1));
    world.engine.refuse(EngineCall::Snapshot, None);
    world.control.snapshots.create_snapshots(&request).unwrap();
}

#[test]
fn snapshot_of_several_volumes_tries_again_when_the_host_is_busy() {
    let (_folder, state) = state();
    let world = World::start(&state);
    for of in ["vol1", "vol2"] {
        world.control.volumes.create_volume(volume(None, of, GIB)).unwrap();
    }
    let request = |of: &str| CreateSnapshots {
        tenant: None,
        volumes: vec![name("vol1"), name("vol2")],
        name: name(of),
        freeze: false,
    };
    world.engine.miss_instants(2);
    assert_eq!(world.control.snapshots.create_snapshots(&request("one")).unwrap().len(), 2);
    world.engine.miss_instants(3);
    let (kind, message) = error(world.control.snapshots.create_snapshots(&request("two")));
    assert!(kind == ErrorKind::Refused && message.contains("the host is busy"), "{message}");
    settle(&world.control);
    assert_eq!((world.control.snapshots.snapshots(None, None).unwrap().len(), folders(&state)), (2, 4));
}

/// Stops scrubs.
fn hold_scrubs_up(control: &Control) {
    let ceiling = Some(Throughput { iops: Some(1), bytes_per_second: None });
    let change = BackgroundPolicyChange { ceiling, ..BackgroundPolicyChange::default() };
    control.background.modify_background_policy(BackgroundKind::Scrub, &change, None).unwrap();
}

#[test]
fn result_of_last_scrub_survives_restart_and_goes_with_volume() {
    let (_folder, state) = state();
    let world = World::start(&state);
    world.control.volumes.create_volume(volume(None, "vol1", GIB)).unwrap();
    hold_scrubs_up(&world.control);
    let scrub = |world: &World| world.control.scrubs.scrubs(None).unwrap().remove(0);
    assert_eq!(scrub(&world).state, ScrubState::Never);
    let begun = world.control.scrubs.begin_scrub(None, &name("vol1")).unwrap();
    assert_eq!(begun.counted.sections_done, 0);
    let again = world.control.scrubs.begin_scrub(None, &name("vol1")).unwrap();
    assert_eq!(again.begun_at, begun.begun_at, "the running scrub continues");
    let cancelled = world.control.scrubs.cancel_scrub(None, &name("vol1")).unwrap();
    assert_eq!(cancelled.state, ScrubState::Cancelled);
    world.control.scrubs.begin_scrub(None, &name("vol1")).unwrap();
    world.engine.let_through(BackgroundKind::Scrub, 1);
    world.control.scrubs.settle_scrubs();
    let completed = scrub(&world);
    assert_eq!(completed.state, ScrubState::Completed);
    world.end();
    let world = World::start(&state);
    let found = scrub(&world);
    assert_eq!((found.state, found.ended_at), (ScrubState::Completed, completed.ended_at));
    world.control.scrubs.begin_scrub(None, &name("vol1")).unwrap();
    world.control.volumes.delete_volume(None, &name("vol1"), DeleteVolume::default()).unwrap();
    world.control.volumes.create_volume(volume(None, "vol1", GIB)).unwrap();
    assert_eq!(scrub(&world).state, ScrubState::Never);
}
