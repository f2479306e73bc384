//! Tests of drives with write journals that go, come back, or come back as others, against real files.

use weir_types::ExtentIndex;
use weir_volume::mirror::ReplicaState;

use super::drain::{
    add, assert_whole, go_on_until, high, is_gone, journal_drive, make_hybrid, record, remove,
};
use super::*;
use crate::engine::Engine;
use crate::records::VolumeRecord;
use crate::templates::CreateTemplate;

/// A volume that follows the built-in template `hybrid`, with both slow replicas behind a journal. Also
/// answers a drive that holds one of the two journals and nothing else.
fn journaled(world: &World, state: &Path) -> (VolumeRecord, String) {
    high(world, state, &["f1", "f2", "f3", "f4"]);
    ["s1", "s2"].iter().for_each(|text| _ = add(world, state, text, Class::Low));
    let made = make_hybrid(world, "vol1");
    let drive = journal_drive(world, &made);
    (made, drive)
}

fn id_of(world: &World, drive: &str) -> DriveId {
    world.control.drives.drive(&name(drive)).unwrap().record.id
}

/// The slot of the replica of a volume's only extent that is behind the journal on a drive.
fn slot_behind(world: &World, volume: &VolumeRecord, drive: DriveId) -> usize {
    let bindings = world.control.journals.bindings(volume.id);
    let ((_, slot), _) = bindings.into_iter().find(|(_, on)| *on == drive).expect("one is behind it");
    slot
}

fn is_in_sync(world: &World, volume: &VolumeRecord) -> bool {
    let replica_states = world.control.core.model().open[&volume.id].status().replica_states;
    let extent = replica_states.first().expect("it has an extent");
    extent.iter().filter(|replica_state| **replica_state == ReplicaState::InSync).count() == 3
}

/// Puts a duplicate of a drive's folder in its place: another filesystem with the same marker and older
/// files.
fn replace(state: &Path, drive: &str) {
    let (here, away) = (state.join(drive), state.join(format!("{drive}.away")));
    std::fs::rename(&here, &away).unwrap();
    let copied = std::process::Command::new("cp").arg("-a").args([&away, &here]).status().unwrap();
    assert!(copied.success());
}

/// Fails if the data plane continues with the open log: the next start would take the older log as
/// complete.
#[test]
fn journal_is_invalidated_if_its_drive_was_replaced() {
    let (_folder, state) = state();
    let world = World::start(&state);
    let (volume, drive) = journaled(&world, &state);
    go_on_until(&world, || is_in_sync(&world, &volume));
    replace(&state, &drive);
    let has_failed = || {
        let open = world.control.core.model().open[&volume.id].clone();
        open.has_failed_journal(id_of(&world, &drive))
    };
    world.control.returns.absences.look_for_absences();
    world.control.returns.look_for_returns();
    assert!(world.control.core.model().is_there(id_of(&world, &drive)));
    wait_until("the journal is given up", has_failed);
    go_on_until(&world, || is_in_sync(&world, &record(&world, "vol1")) && !has_failed());
    assert_whole(&world, "vol1", 3);
}

/// Fails if the replica is shown as in sync while the only log of its newest writes is on a missing drive.
/// Also fails if the replica does not come back with that drive.
#[test]
fn replica_is_out_of_service_while_its_journal_drive_is_away() {
    let (_folder, state) = state();
    let world = World::start(&state);
    let (volume, drive) = journaled(&world, &state);
    go_on_until(&world, || is_in_sync(&world, &volume));
    let id = id_of(&world, &drive);
    let slot = slot_behind(&world, &volume, id);
    let is_away = || world.control.core.model().open[&volume.id].faults().is_away(ExtentIndex(0), slot);
    assert!(!is_away());
    let (here, away) = (state.join(&drive), state.join("away"));
    std::fs::rename(&here, &away).unwrap();
    world.control.returns.absences.look_for_absences();
    wait_until("the replica is out of service", is_away);
    world.control.returns.look_for_returns();
    assert!(is_away(), "its drive is there, and its journal is not");
    std::fs::rename(&away, &here).unwrap();
    go_on_until(&world, || is_in_sync(&world, &volume) && !is_away());
    assert_eq!(slot_behind(&world, &volume, id), slot, "nothing was made anew");
    assert_whole(&world, "vol1", 3);
}

/// Fails if the open volume looks for the journal at the old path of its drive.
#[test]
fn journal_is_invalidated_if_its_drive_is_removed_while_away() {
    let (_folder, state) = state();
    let world = World::start(&state);
    let (volume, drive) = journaled(&world, &state);
    go_on_until(&world, || is_in_sync(&world, &volume));
    let id = id_of(&world, &drive);
    std::fs::rename(state.join(&drive), state.join("elsewhere")).unwrap();
    world.control.returns.absences.look_for_absences();
    remove(&world, &drive).unwrap();
    go_on_until(&world, || is_gone(&world, &drive));
    assert_eq!(add(&world, &state, "elsewhere", Class::High), id, "it is known by its marker");
    go_on_until(&world, || is_in_sync(&world, &record(&world, "vol1")));
    assert_whole(&world, "vol1", 3);
    let files = world.engine.open_files(id);
    assert!(files.iter().all(|file| file.path.starts_with(state.join("elsewhere"))), "{files:?}");
}

/// Fails if a replica is removed in the second before the journal of the remaining replica is found to be
/// gone.
#[test]
fn replica_is_not_removed_while_journal_of_other_is_misplaced() {
    let (_folder, state) = state();
    let world = World::start(&state);
    high(&world, &state, &["f1", "f2"]);
    add(&world, &state, "s1", Class::Low);
    let template = |text: &str, replicas: &[Class]| {
        let (read_from, policy_group) = (None, None);
        let replicas = replicas.to_vec();
        let request = CreateTemplate { name: name(text), replicas, read_from, policy_group };
        world.control.templates.create_template(request).unwrap();
    };
    template("both", &[Class::Low, Class::High]);
    template("slow", &[Class::Low]);
    let request = CreateVolume { template: Some(name("both")), ..volume(None, "vol1", GIB) };
    let made = world.control.volumes.create_volume(request).unwrap().record;
    let replicas = || record(&world, "vol1").placement.replicas_of(ExtentIndex(0)).count();
    let change = ModifyVolume { template: Some(Some(name("slow"))), ..ModifyVolume::default() };
    world.control.volumes.modify_volume(None, &name("vol1"), change).unwrap();
    let drive = journal_drive(&world, &made);
    replace(&state, &drive);
    world.control.settle_moves();
    assert_eq!(replicas(), 2);
    let here = state.join(&drive);
    std::fs::remove_dir_all(&here).unwrap();
    std::fs::rename(state.join(format!("{drive}.away")), &here).unwrap();
    go_on_until(&world, || replicas() == 1);
    assert_whole(&world, "vol1", 1);
}
