//! Tests of snapshots, clones and restoring: records, refusals, and recovery after a start.

use weir_types::ExtentIndex;

use super::drain::{add, go_on_until, is_gone, remove};
use super::*;
use crate::engine::fake::EngineCall;
use crate::{CloneVolume, CreateSnapshots, FlushTermsChange, SnapshotView};

fn snapshots(volumes: &[&str], of: &str) -> CreateSnapshots {
    CreateSnapshots {
        tenant: None,
        volumes: volumes.iter().map(|text| name(text)).collect(),
        name: name(of),
        freeze: false,
    }
}

fn clone_of(source: &str, snapshot: Option<&str>, of: &str) -> CloneVolume {
    CloneVolume {
        tenant: None,
        source: name(source),
        snapshot: snapshot.map(name),
        name: name(of),
        policy: None,
        io_profile: None,
        flush_terms: FlushTermsChange::default(),
        force: false,
    }
}

fn titles(views: &[SnapshotView]) -> Vec<String> {
    views.iter().map(|view| view.record.export_name()).collect()
}

/// A world with a volume of two extents and a snapshot of the volume.
fn with_snapshot(state: &Path) -> World {
    let world = World::start(state);
    world.control.volumes.create_volume(volume(None, "vol1", 2 * GIB)).unwrap();
    let made = world.control.snapshots.create_snapshots(&snapshots(&["vol1"], "one")).unwrap();
    assert_eq!(titles(&made), ["vol1@one"]);
    world
}

#[test]
fn snapshot_is_not_listed_as_volume_and_is_exported_read_only() {
    let (_folder, state) = state();
    let world = with_snapshot(&state);
    let control = &world.control;
    assert_eq!(control.volumes(None).unwrap().len(), 1);
    assert_eq!(control.views.volume(None, &name("vol1")).unwrap().snapshots, 1);
    assert_eq!(control.tenants.tenant_views(&control.tenants.tenant_names())[0].volumes, 1);
    let export = world.exports.find("vol1@one").unwrap();
    assert!(export.read_only && export.size_bytes == 2 * GIB);
    assert_eq!(error(control.views.volume(None, &name("one"))).0, ErrorKind::NotFound);
    assert_eq!(folders(&state), 2);
    world.end();
    let world = World::start(&state);
    assert_eq!(titles(&world.control.snapshots.snapshots(None, None).unwrap()), ["vol1@one"]);
    assert!(world.exports.find("vol1@one").is_some());
}

#[test]
fn impossible_snapshot_operations_are_refused_with_reason() {
    let (_folder, state) = state();
    let world = with_snapshot(&state);
    let control = &world.control;
    let again = error(control.snapshots.create_snapshots(&snapshots(&["vol1"], "one")));
    assert_eq!(again, (ErrorKind::Conflict, "volume 'vol1' has a snapshot 'one' already".to_owned()));
    let twice = error(control.snapshots.create_snapshots(&snapshots(&["vol1", "vol1"], "two")));
    assert_eq!(twice, (ErrorKind::Invalid, "volume 'vol1' is named twice".to_owned()));
    assert_eq!(error(control.snapshots.create_snapshots(&snapshots(&[], "two"))).0, ErrorKind::Invalid);
    assert_eq!(
        error(control.snapshots.create_snapshots(&snapshots(&["vol1", "no"], "two"))).0,
        ErrorKind::NotFound
    );
    let unknown = error(control.snapshots.delete_snapshot(None, &name("vol1"), &name("no"), false, None));
    assert_eq!(unknown.1, "unknown snapshot 'no' of volume 'vol1'; it has: one");
    let below = error(control.volumes.resize_volume(None, &name("vol1"), GIB, true, None));
    assert_eq!(below.0, ErrorKind::Refused);
    assert!(below.1.contains("had 2GiB when these snapshots of it were made: one"), "{}", below.1);
    let deletion = error(control.volumes.delete_volume(None, &name("vol1"), DeleteVolume::default()));
    assert!(deletion.1.contains("has snapshots: one") && deletion.1.contains("--with-snapshots"));
    let taken = error(control.clones.clone_volume(&clone_of("vol1", None, "vol1")));
    assert_eq!(taken.0, ErrorKind::Conflict);
    assert_eq!(
        (control.snapshots.snapshots(None, None).unwrap().len(), folders(&state)),
        (1, 2),
        "nothing is left"
    );
}

#[test]
fn snapshot_follows_volume_rename_and_is_deleted() {
    let (_folder, state) = state();
    let world = with_snapshot(&state);
    let control = &world.control;
    let rename = ModifyVolume { name: Some(name("new")), ..ModifyVolume::default() };
    control.volumes.modify_volume(None, &name("vol1"), rename).unwrap();
    assert_eq!(titles(&control.snapshots.snapshots(None, Some(&name("new"))).unwrap()), ["new@one"]);
    assert!(world.exports.find("vol1@one").is_none() && world.exports.find("new@one").is_some());
    control.snapshots.create_snapshots(&snapshots(&["new"], "two")).unwrap();
    control.snapshots.delete_snapshot(None, &name("new"), &name("one"), false, None).unwrap();
    assert_eq!(titles(&control.snapshots.snapshots(None, None).unwrap()), ["new@two"]);
    let with_snapshots = DeleteVolume { with_snapshots: true, ..DeleteVolume::default() };
    control.volumes.delete_volume(None, &name("new"), with_snapshots).unwrap();
    settle(control);
    assert_eq!((control.snapshots.snapshots(None, None).unwrap().len(), folders(&state)), (0, 0));
}

#[test]
fn clone_is_independent_of_volume_and_snapshot() {
    let (_folder, state) = state();
    let world = with_snapshot(&state);
    let control = &world.control;
    let of_snapshot = control.clones.clone_volume(&clone_of("vol1", Some("one"), "old")).unwrap();
    let of_volume = control.clones.clone_volume(&clone_of("vol1", None, "now")).unwrap();
    assert_eq!(of_snapshot.record.cloned_from.as_deref(), Some("vol1@one"));
    assert_eq!(of_volume.record.cloned_from.as_deref(), Some("vol1"));
    assert!(!of_snapshot.record.is_read_only && of_snapshot.record.snapshot.is_none());
    let with_snapshots = DeleteVolume { with_snapshots: true, ..DeleteVolume::default() };
    control.volumes.delete_volume(None, &name("vol1"), with_snapshots).unwrap();
    settle(control);
    world.end();
    let world = World::start(&state);
    let names: Vec<String> =
        world.control.volumes(None).unwrap().iter().map(|view| view.record.name.to_string()).collect();
    assert_eq!(names, ["now", "old"]);
    assert!(world.control.alarms.alarms().is_empty());
}

#[test]
fn restore_resets_size_and_keeps_snapshots() {
    let (_folder, state) = state();
    let world = with_snapshot(&state);
    let control = &world.control;
    control.volumes.resize_volume(None, &name("vol1"), 3 * GIB, false, None).unwrap();
    let before = control.views.volume(None, &name("vol1")).unwrap().record;
    let restored =
        control.snapshots.restore_snapshot(None, &name("vol1"), &name("one"), false, None).unwrap().record;
    assert_eq!((restored.size_bytes, &restored.name), (2 * GIB, &before.name));
    assert_ne!(restored.id, before.id, "another volume took its place");
    assert_eq!(titles(&control.snapshots.snapshots(None, Some(&name("vol1"))).unwrap()), ["vol1@one"]);
    settle(control);
    assert_eq!(folders(&state), 2);
    world.end();
    let world = World::start(&state);
    assert_eq!(world.control.views.volume(None, &name("vol1")).unwrap().record.id, restored.id);
    assert_eq!(titles(&world.control.snapshots.snapshots(None, Some(&name("vol1"))).unwrap()), ["vol1@one"]);
}

/// Fails if the end of a reclaim takes the record of a volume that is new in the catalogue and not served yet. A drive
/// that has no part of the snapshot gives back what was made there while the volume takes its place.
#[test]
fn restored_volume_stays_though_a_part_of_it_is_given_back() {
    let (_folder, state) = state();
    let world = with_snapshot(&state);
    let control = &world.control;
    let known: Vec<VolumeId> = control.core.model().volumes.keys().copied().collect();
    let held = world.engine.hold(EngineCall::Close);
    let restored = std::thread::scope(|scope| {
        let restore = scope
            .spawn(|| control.snapshots.restore_snapshot(None, &name("vol1"), &name("one"), false, None));
        held.wait_until_called();
        let records = control.core.catalogue.range(keys::VOLUMES).unwrap();
        let mut records = records.iter().map(|entry| entry.decode::<VolumeRecord>().unwrap());
        let new = records.find(|record| !known.contains(&record.id)).unwrap();
        control.reclaims.give_back_part(new.id, DriveId::DEFAULT, "a snapshot of", &new);
        settle(control);
        drop(held);
        restore.join().unwrap().unwrap().record
    });
    settle(control);
    let is_recorded = |id| control.core.catalogue.get(&keys::volume(id)).unwrap().is_some();
    assert!(is_recorded(restored.id), "the record of a volume that is served is gone");
    assert!(known.iter().any(|id| !is_recorded(*id)), "the record of the volume that it replaced is gone");
}

#[test]
fn snapshot_in_progress_is_undone_at_next_start() {
    let (_folder, state) = state();
    let world = with_snapshot(&state);
    let control = &world.control;
    let of = control.snapshots.snapshots(None, None).unwrap().remove(0).record;
    let half = VolumeRecord { id: VolumeId(uuid::Uuid::new_v4()), state: VolumeState::Creating, ..of };
    let key = keys::volume(half.id);
    control.core.catalogue.commit(Transaction::default().put(&key, &half).unwrap()).unwrap();
    default_store(control).begin_snapshot(half.id, &[0, 1].map(ExtentIndex)).unwrap();
    world.end();
    let world = World::start(&state);
    settle(&world.control);
    assert_eq!(titles(&world.control.snapshots.snapshots(None, None).unwrap()), ["vol1@one"]);
    assert_eq!(folders(&state), 2);
    assert_eq!(world.control.core.catalogue.get(&key).unwrap().map(|entry| entry.revision), None);
}

#[test]
fn rebuild_restores_snapshots_from_record_backups() {
    let (_folder, state) = state();
    let world = with_snapshot(&state);
    world.control.clones.clone_volume(&clone_of("vol1", Some("one"), "one")).unwrap();
    world.end();
    for file in ["catalogue.sqlite", "catalogue.sqlite-wal", "catalogue.sqlite-shm"] {
        let _ = std::fs::remove_file(state.join(file));
    }
    let world = World::try_start(&state, true).unwrap();
    assert_eq!(titles(&world.control.snapshots.snapshots(None, None).unwrap()), ["vol1@one"]);
    assert_eq!(world.control.volumes(None).unwrap().len(), 2);
}

#[test]
fn attached_snapshot_prevents_deletion_of_volume_with_snapshots() {
    let (_folder, state) = state();
    let world = with_snapshot(&state);
    let control = &world.control;
    let of = control.snapshots.snapshots(None, None).unwrap().remove(0).record.id;
    world.engine.attach_clients(of, 1);
    control.snapshots.create_snapshots(&snapshots(&["vol1"], "two")).unwrap();
    let with_snapshots = DeleteVolume { with_snapshots: true, ..DeleteVolume::default() };
    let refused = error(control.volumes.delete_volume(None, &name("vol1"), with_snapshots));
    assert!(refused.1.contains("snapshot 'vol1@one' has 1 open connections"), "{}", refused.1);
    assert_eq!(control.snapshots.snapshots(None, None).unwrap().len(), 2);
    world.engine.attach_clients(of, 0);
    control.volumes.delete_volume(None, &name("vol1"), with_snapshots).unwrap();
}

#[test]
fn failed_restore_leaves_volume_attachable() {
    let (_folder, state) = state();
    let world = with_snapshot(&state);
    let control = &world.control;
    let id = control.views.volume(None, &name("vol1")).unwrap().record.id;
    let of = control.snapshots.snapshots(None, None).unwrap().remove(0).record;
    // An extent file of the snapshot is missing, so the restore cannot take its data.
    std::fs::remove_file(default_store(control).extents(of.id).join("00000001")).unwrap();
    let refused = error(control.snapshots.restore_snapshot(None, &name("vol1"), &name("one"), false, None));
    assert_eq!(refused.0, ErrorKind::Refused, "{}", refused.1);
    assert_eq!(world.exports.find("vol1").map(|export| export.volume), Some(id));
    settle(control);
    assert_eq!(folders(&state), 2);
}

#[test]
fn volume_grows_regardless_of_snapshots() {
    let (_folder, state) = state();
    let world = World::start(&state);
    let control = &world.control;
    control.volumes.create_volume(volume(None, "vol1", GIB)).unwrap();
    control.snapshots.create_snapshots(&snapshots(&["vol1"], "small")).unwrap();
    control.volumes.resize_volume(None, &name("vol1"), 3 * GIB, false, None).unwrap();
    control.snapshots.create_snapshots(&snapshots(&["vol1"], "large")).unwrap();
    control.snapshots.restore_snapshot(None, &name("vol1"), &name("small"), false, None).unwrap();
    control.volumes.resize_volume(None, &name("vol1"), 2 * GIB, false, None).unwrap();
}

/// Fails if what is reclaimed on the drive counts as what is left of a deleted volume.
#[test]
fn clone_without_its_replica_on_a_missing_drive_outlives_the_drive() {
    let (_folder, state) = state();
    let world = World::start(&state);
    ["s1", "s2", "s3"].iter().for_each(|text| _ = add(&world, &state, text, Class::Low));
    let two =
        CreateVolume { io_priority: Some(Class::Low), replicas: Some(2), ..volume(None, "vol1", 2 * GIB) };
    world.control.volumes.create_volume(two).unwrap();
    world.end();
    std::fs::remove_dir_all(state.join("s2")).unwrap();
    let world = World::start(&state);
    world.control.clones.clone_volume(&clone_of("vol1", None, "vol2")).unwrap();
    remove(&world, "s2").unwrap();
    go_on_until(&world, || is_gone(&world, "s2"));
    world.end();
    let world = World::start(&state);
    assert!(world.exports.find("vol2").is_some());
}
