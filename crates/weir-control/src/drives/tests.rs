//! Tests of drives in real directories.

use std::fs;
use std::path::Path;

use super::super::records::VolumeRecord;
use super::super::tests::{World, error, inventory, name, settle, state, volume};
use super::super::{CreateVolume, DeleteVolume, ErrorKind};
use super::*;
use crate::Control;
use crate::engine::fake::FakeEngine;
use crate::testing::configuration;

const GIB: u64 = 1 << 30;

fn add(path: &Path, text: Option<&str>) -> AddDrive {
    AddDrive { name: text.map(name), ..AddDrive::new(path.to_owned()) }
}

fn volume_on(drive: &str, text: &str) -> CreateVolume {
    CreateVolume { drive: Some(name(drive)), ..volume(None, text, GIB) }
}

/// A new folder beside the state folder's drive.
fn folder(state: &Path, text: &str) -> PathBuf {
    let path = state.join(text);
    fs::create_dir(&path).unwrap();
    path
}

fn forget_catalogue(state: &Path) {
    for file in ["catalogue.sqlite", "catalogue.sqlite-wal", "catalogue.sqlite-shm"] {
        let _ = fs::remove_file(state.join(file));
    }
}

#[test]
fn removed_drive_leaves_no_files() {
    let (_folder, state) = state();
    let World { control, .. } = &World::start(&state);
    let path = folder(&state, "fast");
    let view = control.drives.add_drive(add(&path, None)).unwrap();
    assert_eq!((view.record.name.as_str(), view.volumes, view.usage.is_ok()), ("fast", 0, true));
    let made = control.volumes.create_volume(volume_on("fast", "vol1")).unwrap();
    assert_eq!(made.drives[0].name, name("fast"));
    assert!(made.used_bytes.is_some());
    assert!(path.join("volumes").join(made.record.id.to_string()).join("extents/00000000").exists());
    control.volumes.resize_volume(None, &name("vol1"), 2 * GIB, false, None).unwrap();
    assert_eq!(control.drives.drive(&name("fast")).unwrap().provisioned_bytes, 2 * GIB);
    control.volumes.delete_volume(None, &name("vol1"), DeleteVolume::default()).unwrap();
    settle(control);
    control.drives.remove_drive(&name("fast"), None).unwrap();
    assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
    assert_eq!(error(control.drives.drive(&name("fast"))).0, ErrorKind::NotFound);
    assert_eq!(error(control.drives.remove_drive(&name("default"), None)).0, ErrorKind::Refused);
    assert_eq!(error(control.volumes.create_volume(volume_on("fast", "vol1"))).0, ErrorKind::NotFound);
}

#[test]
fn space_on_a_new_drive_counts_before_a_volume_is_there() {
    let (_folder, state) = state();
    let engine = Arc::new(FakeEngine::default());
    let control = Control::start(&configuration(&state), engine.clone(), Arc::default()).unwrap();
    let drive = control.drives.add_drive(add(&folder(&state, "beside"), None)).unwrap();
    assert_eq!(engine.is_counted(drive.record.id), Some(true), "it shares the state folder's filesystem");
}

#[test]
fn unsuitable_directories_are_refused_with_reason() {
    let (_folder, state) = state();
    let (_other_folder, other_state) = self::state();
    let World { control, .. } = &World::start(&state);
    let other = World::start(&other_state);
    let used = folder(&state, "used");
    fs::create_dir(used.join("inner")).unwrap();
    control.drives.add_drive(add(&used, None)).unwrap();
    std::os::unix::fs::symlink(&used, state.join("link")).unwrap();
    fs::write(state.join("file"), "").unwrap();
    other.control.drives.add_drive(add(&folder(&other_state, "theirs"), None)).unwrap();
    fs::write(folder(&state, "garbled").join(MARKER), "{").unwrap();
    let free = folder(&state, "free");
    for (path, text, kind, words) in [
        (Path::new("relative"), None, ErrorKind::Invalid, "'relative' is not an absolute path"),
        (&state.join("nowhere"), None, ErrorKind::Invalid, "does not exist"),
        (&state.join("file"), None, ErrorKind::Invalid, "is not a directory"),
        (&used, Some("again"), ErrorKind::Conflict, "is drive 'used' already"),
        (&used.join("../used/."), Some("again"), ErrorKind::Conflict, "is drive 'used' already"),
        (&state.join("link"), Some("again"), ErrorKind::Conflict, "is drive 'used' already"),
        (&used.join("inner"), None, ErrorKind::Refused, "is inside of drive 'used'"),
        (&state.join("drive/volumes"), None, ErrorKind::Refused, "is inside of drive 'default'"),
        (&state, Some("all"), ErrorKind::Refused, "holds drive 'default'"),
        (&other_state, Some("all"), ErrorKind::Refused, "is the state folder of another installation"),
        (&other_state.join("drive"), None, ErrorKind::Refused, "holds 'volumes' that may be of another"),
        (&other_state.join("theirs"), None, ErrorKind::Refused, "is a drive of another installation"),
        (&state.join("garbled"), None, ErrorKind::Internal, "cannot understand"),
        (&free, Some("used"), ErrorKind::Conflict, "drive 'used' exists already"),
        (&free, Some("default"), ErrorKind::Conflict, "drive 'default' exists already"),
    ] {
        let (found, message) = error(control.drives.add_drive(add(path, text)));
        assert!(found == kind && message.contains(words), "{}: {found:?} {message}", path.display());
    }
    assert_eq!(fs::read_dir(&free).unwrap().count(), 0, "a refusal leaves nothing behind");
}

const MARKER: &str = weir_store::MARKER_FILE;

#[test]
fn missing_drive_is_an_alarm_and_affects_no_other_drive() {
    let (_folder, state) = state();
    let path = folder(&state, "removable");
    let world = World::start(&state);
    world.control.drives.add_drive(add(&path, None)).unwrap();
    let id = world.control.volumes.create_volume(volume_on("removable", "away")).unwrap().record.id;
    world.control.volumes.create_volume(volume(None, "here", GIB)).unwrap();
    let before = inventory(&world.control);
    world.end();
    // The folder is now empty, like the mount point of a filesystem that is not mounted.
    let elsewhere = state.join("elsewhere");
    fs::rename(&path, &elsewhere).unwrap();
    fs::create_dir(&path).unwrap();
    let world = World::start(&state);
    let alarms = world.control.alarms.alarms();
    let has = |words: &str| alarms.iter().any(|alarm| alarm.message.contains(words));
    assert!(has("drive 'removable' at") && has("is its filesystem mounted?"), "{alarms:?}");
    assert!(has("volumes out of service: 1") && alarms.iter().any(|a| a.volume == Some(id)), "{alarms:?}");
    assert!(world.exports.find("here").is_some() && world.exports.find("away").is_none());
    assert_eq!(fs::read_dir(&path).unwrap().count(), 0, "nothing is made where the drive should be");
    world.control.check_extent_files();
    let (kind, message) =
        error(world.control.volumes.delete_volume(None, &name("away"), DeleteVolume::default()));
    assert!(kind == ErrorKind::Refused && message.contains("is missing"), "{message}");
    assert_eq!(
        error(world.control.volumes.create_volume(volume_on("removable", "more"))).0,
        ErrorKind::Refused
    );
    assert_eq!(
        error(world.control.volumes.resize_volume(None, &name("away"), 2 * GIB, false, None)).0,
        ErrorKind::Refused
    );
    assert!(world.control.drives.drive(&name("removable")).unwrap().usage.is_err());
    world.end();
    fs::remove_dir(&path).unwrap();
    fs::rename(&elsewhere, &path).unwrap();
    let world = World::start(&state);
    assert_eq!((inventory(&world.control), world.control.alarms.alarms()), (before, vec![]));
    assert!(world.exports.find("away").is_some());
}

#[test]
fn lost_catalogue_is_rebuilt_from_all_drives() {
    let (_folder, state) = state();
    let path = folder(&state, "second");
    let world = World::start(&state);
    let emulation = Some(Emulation::even(5000, None, 7));
    world.control.drives.add_drive(AddDrive { emulation, ..add(&path, None) }).unwrap();
    world.control.volumes.create_volume(volume_on("second", "vol2")).unwrap();
    world.control.volumes.create_volume(volume(None, "vol1", GIB)).unwrap();
    let (before, node) = (inventory(&world.control), world.control.node());
    world.end();
    forget_catalogue(&state);
    let world = World::start(&state);
    let alarms = world.control.alarms.alarms();
    assert_eq!(
        alarms.iter().filter(|alarm| alarm.message.contains("1 volume folders")).count(),
        2,
        "{alarms:?}"
    );
    world.end();
    fs::rename(&path, state.join("gone")).unwrap();
    let (kind, message) = error(World::try_start(&state, true));
    assert!(kind == ErrorKind::Refused && message.contains("drive 'second' at"), "{message}");
    fs::rename(state.join("gone"), &path).unwrap();
    forget_catalogue(&state);
    let doubled = fs::read_dir(path.join("volumes")).unwrap().next().unwrap().unwrap();
    let copied = state.join("drive/volumes").join(doubled.file_name());
    fs::create_dir(&copied).unwrap();
    fs::copy(doubled.path().join("record.json"), copied.join("record.json")).unwrap();
    let (kind, message) = error(World::try_start(&state, true));
    assert!(kind == ErrorKind::Invalid && message.contains("lies on two drives"), "{message}");
    fs::remove_dir_all(&copied).unwrap();
    let world = World::try_start(&state, true).unwrap();
    assert_eq!((inventory(&world.control), world.control.node()), (before, node));
    assert_eq!(world.control.drives.drive(&name("second")).unwrap().record.emulation, emulation);
    assert_eq!(world.control.alarms.alarms(), []);
}

#[test]
fn re_added_directory_keeps_identity_and_unknown_files() {
    let (_folder, state) = state();
    let path = folder(&state, "second");
    let world = World::start(&state);
    let id = world.control.drives.add_drive(add(&path, None)).unwrap().record.id;
    let stranger = path.join("volumes").join(uuid::Uuid::new_v4().to_string());
    fs::create_dir(&stranger).unwrap();
    world.control.drives.remove_drive(&name("second"), None).unwrap();
    assert!(stranger.exists() && path.join(MARKER).exists());
    let again = world.control.drives.add_drive(add(&path, Some("again"))).unwrap();
    assert_eq!(again.record.id, id);
}

#[test]
fn records_without_placement_are_on_the_default_drive() {
    let (_folder, state) = state();
    let World { control, .. } = &World::start(&state);
    let view = control.volumes.create_volume(volume(None, "vol1", GIB)).unwrap();
    let mut old = serde_json::to_value(&view.record).unwrap();
    let placement = old.as_object_mut().unwrap().remove("placement").unwrap();
    let record: VolumeRecord = serde_json::from_value(old.clone()).unwrap();
    old.as_object_mut().unwrap().insert("drive".to_owned(), placement);
    assert_eq!(serde_json::from_value::<VolumeRecord>(old).unwrap(), record, "as it was called then");
    assert_eq!((record.placement.drives(), record == view.record), (vec![DriveId::DEFAULT], true));
    assert_eq!(view.drives[0].path, state.join("drive"));
}
