//! Tests of drives that come back while the daemon runs, against real files.

use std::fs;

use weir_types::DriveId;

use weir_volume::mirror::ReplicaState;

use super::drain::{assert_whole, go_on_until, is_gone, make, record, remove};
use super::*;
use crate::drives::AddDrive;
use crate::engine::Engine;

fn add(world: &World, path: PathBuf) -> DriveId {
    fs::create_dir_all(&path).unwrap();
    world
        .control
        .drives
        .add_drive(AddDrive { class: Some(Class::High), ..AddDrive::new(path) })
        .unwrap()
        .record
        .id
}

/// Fails if one drive's volumes answer EIO while another drive's volume is waited for and both drives show
/// as online.
#[test]
fn drive_is_online_once_its_own_volumes_are_served() {
    let (_folder, state) = state();
    let world = World::start(&state);
    let drives = ["one", "two"].map(|text| add(&world, state.join(text)));
    let volumes = ["one", "two"].map(|drive| {
        let request = CreateVolume { drive: Some(name(drive)), ..volume(None, drive, GIB) };
        world.control.volumes.create_volume(request).unwrap().record.id
    });
    let rename_all = |from: &str, to: &str| {
        for text in ["one", "two"] {
            fs::rename(state.join(text.to_owned() + from), state.join(text.to_owned() + to)).unwrap();
        }
    };
    rename_all("", ".away");
    world.control.returns.absences.look_for_absences();
    assert!(drives.iter().all(|drive| world.control.returns.absences.of(*drive).is_some()));
    rename_all(".away", "");
    std::thread::scope(|scope| {
        // A change of each volume holds up its return to service.
        let mut change = world.control.core.begin_volume_change(&volumes).unwrap();
        change.beside(|| {
            scope.spawn(|| world.control.returns.look_for_returns());
            let is_there = |drive: &DriveId| world.control.core.model().is_there(*drive);
            wait_until("both are there", || drives.iter().all(is_there));
            assert!(drives.iter().all(|drive| world.control.returns.absences.of(*drive).is_none()));
        });
    });
}

/// Fails if files that are out of place then count as replaced: replicas would be rebuilt, and the last
/// ones failed.
#[test]
fn drive_lost_again_while_returning_stays_missing() {
    let (_folder, state) = state();
    let world = World::start(&state);
    let drive = add(&world, state.join("one"));
    make(&world, "single", 1, 1);
    // The drive holds an extent of two replicas, so its file is open; then the second replica is removed.
    add(&world, state.join("two"));
    let replicas = |count| {
        let change = ModifyVolume { replicas: Some(count), ..ModifyVolume::default() };
        world.control.volumes.modify_volume(None, &name("single"), change).unwrap();
    };
    replicas(2);
    let is_in_sync = || {
        let id = record(&world, "single").id;
        let replica_states = world.control.core.model().open[&id].status().replica_states;
        replica_states
            .iter()
            .flatten()
            .filter(|replica_state| **replica_state == ReplicaState::InSync)
            .count()
            == 2
    };
    go_on_until(&world, is_in_sync);
    replicas(1);
    remove(&world, "two").unwrap();
    go_on_until(&world, || is_gone(&world, "two"));
    assert_eq!(world.engine.open_files(drive).len(), 1);
    let store = world.control.core.store(drive).unwrap();
    fs::rename(state.join("one"), state.join("one.away")).unwrap();
    world.control.returns.absences.look_for_absences();
    let why = world.control.returns.absences.go_on_with(drive, &store).unwrap_err();
    assert!(why.starts_with("there is no folder "), "{why}");
    assert!(
        world.control.returns.absences.of(drive).is_some() && !world.control.core.model().is_there(drive)
    );
    fs::rename(state.join("one.away"), state.join("one")).unwrap();
    world.control.returns.look_for_returns();
    assert!(world.control.returns.absences.of(drive).is_none() && world.control.core.model().is_there(drive));
    // A change asks the data plane, which knows by then whether it failed the replica.
    world.control.volumes.resize_volume(None, &name("single"), 2 * GIB, false, None).unwrap();
    assert_eq!(world.engine.alarms(), []);
    assert_whole(&world, "single", 1);
}
