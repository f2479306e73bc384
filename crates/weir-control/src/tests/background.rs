//! Tests of reclaims and their background policies against real files.

use weir_types::{BackgroundKind, ExtentIndex};

use super::*;

fn delete(control: &Control, text: &str) {
    control.volumes.delete_volume(None, &name(text), DeleteVolume::default()).unwrap();
}

/// Stops reclaims.
fn hold_up(control: &Control) {
    let ceiling = Some(Throughput { iops: None, bytes_per_second: Some(1) });
    let change = BackgroundPolicyChange { ceiling, ..BackgroundPolicyChange::default() };
    control.background.modify_background_policy(BackgroundKind::Reclaim, &change, None).unwrap();
}

/// Makes a volume with a block of data in each extent.
fn filled(control: &Control, text: &str, extents: u64) -> VolumeId {
    let id = control.volumes.create_volume(volume(None, text, extents * GIB)).unwrap().record.id;
    fill(&default_store(control), id, extents);
    id
}

fn fill(store: &weir_store::Store, id: VolumeId, extents: u64) {
    for extent in 0..extents {
        let path = store.extents(id).join(format!("{extent:08}"));
        let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &[7; 4096], 0).unwrap();
    }
}

/// Deletes a volume whose second extent file was replaced by a folder, so that the reclaim fails.
fn fail_reclaim(control: &Control, text: &str, extents: &std::path::Path) {
    let extent = extents.join("00000001");
    std::fs::remove_file(&extent).unwrap();
    std::fs::create_dir(&extent).unwrap();
    delete(control, text);
    control.reclaims.settle_background();
}

#[test]
fn deleted_name_is_free_at_once_and_next_daemon_continues_reclaim() {
    let (_folder, state) = state();
    let world = World::start(&state);
    hold_up(&world.control);
    let old = filled(&world.control, "vol1", 20);
    let kept = filled(&world.control, "kept", 2);
    delete(&world.control, "vol1");
    assert_eq!(error(world.control.views.volume(None, &name("vol1"))).0, ErrorKind::NotFound);
    let new = filled(&world.control, "vol1", 3);
    world.engine.let_through(BackgroundKind::Reclaim, 2);
    world.control.reclaims.settle_background();
    let job = world.control.background.background_jobs().remove(0);
    assert!(job.progress.is_some_and(|progress| progress.bytes_done > 0));
    assert_eq!((job.id, job.what.as_str(), job.drive.as_str()), (old, "deleted volume vol1", "default"));
    world.end();
    let world = World::start(&state);
    world.engine.let_through(BackgroundKind::Reclaim, 2);
    let again = world.control.background.background_jobs().remove(0);
    assert_eq!((again.id, again.begun_at), (old, job.begun_at));
    let left = again.progress.unwrap().operations_left;
    assert!((10..19).contains(&left), "{left} of 20 extents are left after two daemons have begun");
    world.control.background.reset_background_policy(BackgroundKind::Reclaim, None).unwrap();
    settle(&world.control);
    assert_eq!(folders(&state), 2);
    let store = default_store(&world.control);
    for (id, extents) in [(kept, 2), (new, 3)] {
        assert_eq!(super::check_extents(&store.extents(id), ExtentIndex::first(extents as u32)), []);
    }
    world.end();
    assert!(World::start(&state).control.background.background_jobs().is_empty());
}

#[test]
fn failed_reclaim_raises_alarm_and_is_retried() {
    let (_folder, state) = state();
    let world = World::start(&state);
    let id = filled(&world.control, "vol1", 3);
    fail_reclaim(&world.control, "vol1", &default_store(&world.control).extents(id));
    let alarms = world.control.alarms.alarms();
    let words = "the space of the deleted volume vol1 cannot be given back yet: cannot remove";
    assert!(alarms.len() == 1 && alarms[0].message.contains(words), "{alarms:?}");
    let (kind, message) = error(world.control.drives.remove_drive(&name("default"), None));
    assert_eq!(kind, ErrorKind::Refused, "{message}");
    world.end();
    let pending_deletion = state.join(format!("drive/volumes/{id}.deleted/extents"));
    let left: Vec<_> =
        std::fs::read_dir(&pending_deletion).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["00000001"], "the others are gone");
    std::fs::remove_dir(pending_deletion.join("00000001")).unwrap();
    let world = World::start(&state);
    settle(&world.control);
    assert_eq!((world.control.alarms.alarms(), folders(&state)), (vec![], 0));
}

#[test]
fn data_cut_off_by_failed_shrink_is_never_read_again() {
    let (_folder, state) = state();
    let world = World::start(&state);
    let extents = default_store(&world.control).extents(filled(&world.control, "vol1", 3));
    let (tail, aside) = (extents.join("00000001"), state.join("aside"));
    std::fs::rename(&tail, &aside).unwrap();
    std::fs::create_dir(&tail).unwrap();
    let resize =
        |size_bytes| world.control.volumes.resize_volume(None, &name("vol1"), size_bytes, true, None);
    let (_, message) = error(resize(GIB + (512 << 20)));
    assert!(message.contains("00000001"), "{message}");
    settle(&world.control);
    assert_eq!(folders(&state), 1, "what was cut off before the fault is given back");
    std::fs::remove_dir(&tail).unwrap();
    let file = std::fs::OpenOptions::new().read(true).write(true).open(&aside).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[7; 4096], 600 << 20).unwrap();
    std::fs::rename(&aside, &tail).unwrap();
    resize(3 * GIB).unwrap();
    let mut found = [1; 4096];
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut found, 600 << 20).unwrap();
    assert!(found.iter().all(|byte| *byte == 0), "what was cut off is read again");
}

#[test]
fn missing_drive_is_removed_with_its_pending_deletions() {
    let (_folder, state) = state();
    let (path, away) = (state.join("d2"), state.join("away"));
    std::fs::create_dir_all(&path).unwrap();
    let add = || AddDrive::new(path.clone());
    let world = World::start(&state);
    world.control.drives.add_drive(add()).unwrap();
    hold_up(&world.control);
    let on_drive = CreateVolume { drive: Some(name("d2")), ..volume(None, "vol1", 20 * GIB) };
    let id = world.control.volumes.create_volume(on_drive).unwrap().record.id;
    let store =
        world.control.drives.drive(&name("d2")).map(|view| world.control.core.store(view.record.id).unwrap());
    fill(&store.unwrap(), id, 20);
    delete(&world.control, "vol1");
    world.control.drives.remove_drive(&name("d2"), None).unwrap();
    let drain = world.control.drives.drive(&name("d2")).unwrap().drain;
    assert_eq!(drain.map(|drain| drain.extents_left), Some(0), "it goes once all is given back");
    world.control.settle_moves();
    assert!(world.control.drives.drive(&name("d2")).is_ok());
    world.control.drives.keep_drive(&name("d2"), None).unwrap();
    world.end();
    std::fs::rename(&path, &away).unwrap();
    let world = World::start(&state);
    world.control.drives.remove_drive(&name("d2"), None).unwrap();
    assert!(world.control.background.background_jobs().is_empty());
    std::fs::rename(&away, &path).unwrap();
    world.control.drives.add_drive(add()).unwrap();
    assert_eq!(world.control.background.background_jobs().len(), 1, "the drive tells itself what is to go");
    world.control.background.reset_background_policy(BackgroundKind::Reclaim, None).unwrap();
    settle(&world.control);
    world.control.drives.remove_drive(&name("d2"), None).unwrap();
}

#[test]
fn failed_reclaim_alarm_ends_when_drive_is_removed() {
    let (_folder, state) = state();
    let path = state.join("d2");
    std::fs::create_dir_all(&path).unwrap();
    let world = World::start(&state);
    let drive = world.control.drives.add_drive(AddDrive::new(path.clone())).unwrap().record.id;
    let on_drive = CreateVolume { drive: Some(name("d2")), ..volume(None, "vol1", 3 * GIB) };
    let id = world.control.volumes.create_volume(on_drive).unwrap().record.id;
    fail_reclaim(&world.control, "vol1", &world.control.core.store(drive).unwrap().extents(id));
    assert_eq!(world.control.alarms.alarms().len(), 1);
    std::fs::rename(&path, state.join("away")).unwrap();
    world.control.check_extent_files();
    world.control.drives.remove_drive(&name("d2"), None).unwrap();
    world.control.reclaims.settle_background();
    assert_eq!(world.control.alarms.alarms(), []);
}

#[test]
fn shrunk_and_regrown_volume_holds_no_old_data() {
    let (_folder, state) = state();
    let world = World::start(&state);
    hold_up(&world.control);
    let id = filled(&world.control, "vol1", 10);
    let resize = |size_bytes| {
        world.control.volumes.resize_volume(None, &name("vol1"), size_bytes, true, None).unwrap()
    };
    let store = default_store(&world.control);
    for round in 1..=3 {
        resize(GIB / 2);
        resize(10 * GIB);
        assert_eq!(super::check_extents(&store.extents(id), ExtentIndex::first(10)), []);
        let used = store.used_bytes(id).unwrap();
        assert!(used <= 64 << 10, "{used} bytes are in the volume, of which all but one block was cut off");
        assert_eq!(world.control.background.background_jobs().len(), round);
    }
    let what = world.control.background.background_jobs().remove(0).what;
    assert_eq!(what, "end cut off from volume vol1");
    world.end();
    let world = World::start(&state);
    assert_eq!(world.control.background.background_jobs().len(), 3);
    world.control.background.reset_background_policy(BackgroundKind::Reclaim, None).unwrap();
    settle(&world.control);
    assert_eq!((folders(&state), world.control.alarms.alarms()), (1, vec![]));
    assert_eq!(super::check_extents(&store.extents(id), ExtentIndex::first(10)), []);
}

#[test]
fn pending_deletion_with_id_of_live_volume_is_not_reclaimed() {
    let (_folder, state) = state();
    let world = World::start(&state);
    let id = filled(&world.control, "vol1", 1);
    let store = default_store(&world.control);
    world.end();
    let pending_deletion = state.join(format!("drive/volumes/{id}.deleted"));
    std::fs::create_dir(&pending_deletion).unwrap();
    let world = World::start(&state);
    assert!(world.control.background.background_jobs().is_empty());
    let alarms = world.control.alarms.alarms();
    assert!(alarms.len() == 1 && alarms[0].message.contains("is left alone"), "{alarms:?}");
    assert_eq!(super::check_extents(&store.extents(id), ExtentIndex::first(1)), []);
    assert!(pending_deletion.exists());
}

#[test]
fn background_policies_are_checked_and_persisted() {
    let (_folder, state) = state();
    let world = World::start(&state);
    let modify =
        |change| world.control.background.modify_background_policy(BackgroundKind::Reclaim, &change, None);
    let (kind, message) = error(modify(BackgroundPolicyChange { weight: Some(0), ..Default::default() }));
    assert_eq!((kind, message.as_str()), (ErrorKind::Invalid, "weight 0 is not accepted; 1 to 10000 is"));
    let change = BackgroundPolicyChange { deadline_seconds: Some(Some(3600)), ..Default::default() };
    modify(change).unwrap();
    let view = modify(BackgroundPolicyChange { weight: Some(50), ..Default::default() }).unwrap();
    assert_eq!(
        (view.policy.weight.0, view.policy.deadline_seconds, view.is_built_in),
        (50, Some(3600), false)
    );
    world.end();
    let world = World::start(&state);
    let views = world.control.background.background_policies();
    assert_eq!(views[0], view);
    assert!(views[1..].iter().all(|other| other.is_built_in), "{views:?}");
    let change = BackgroundPolicyChange { deadline_seconds: Some(Some(3600)), ..Default::default() };
    let (kind, message) =
        error(world.control.background.modify_background_policy(BackgroundKind::Resync, &change, None));
    assert!(kind == ErrorKind::Invalid && message.contains("takes no deadline"), "{message}");
    world.control.background.reset_background_policy(BackgroundKind::Reclaim, None).unwrap();
    let view = world.control.background.background_policies().remove(0);
    assert_eq!((view.policy, view.is_built_in), (weir_types::BackgroundPolicy::default(), true));
}
