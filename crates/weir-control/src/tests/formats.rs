//! Tests of on-disk formats: this version reads the formats of earlier versions and refuses those of newer
//! ones.

use serde_json::{Value, json};

use super::*;
use crate::catalogue::{Catalogue, Transaction};
use crate::drive_records::DRIVES_FILE;
use crate::records::RecordBackup;
use weir_store::format;
use weir_store::{MARKER_FILE, Marker, RECORD_FILE};

/// A catalogue, record backups, a marker and a list of drives as the first version wrote them.
fn fixture() -> Value {
    serde_json::from_str(include_str!("fixtures/catalogue-1.json")).unwrap()
}

/// Makes a catalogue of the fixture's entries and further ones.
fn write_catalogue(state: &Path, more: &[(&str, Value)]) {
    let catalogue = SqliteCatalogue::open(&state.join("catalogue.sqlite")).unwrap();
    let mut transaction = Transaction::default();
    for entry in fixture()["entries"].as_array().unwrap() {
        transaction = transaction.put(entry["key"].as_str().unwrap(), &entry["value"]).unwrap();
    }
    for (key, value) in more {
        transaction = transaction.put(*key, value).unwrap();
    }
    catalogue.commit(transaction).unwrap();
}

fn read_catalogue(state: &Path) -> Vec<(String, Value)> {
    let catalogue = SqliteCatalogue::open(&state.join("catalogue.sqlite")).unwrap();
    catalogue.range("").unwrap().into_iter().map(|entry| (entry.key, entry.value)).collect()
}

#[test]
fn first_version_catalogue_is_served_and_loses_nothing() {
    let (_folder, state) = state();
    write_catalogue(&state, &[]);
    let world = World::start(&state);
    let volumes: Vec<String> =
        world.control.volumes(None).unwrap().iter().map(|view| view.record.export_name()).collect();
    assert_eq!(volumes, ["vol3", "vol4", "vol5", "svm01/vol1"]);
    let tenant = world.control.tenants.tenant(&name("svm01")).unwrap();
    assert_eq!(tenant.policy_group.map(|group| group.name.to_string()).as_deref(), Some("gold"));
    let drives: Vec<String> =
        world.control.drives.drives().iter().map(|drive| drive.record.name.to_string()).collect();
    assert_eq!(drives, ["default", "d1", "d2"]);
    world.end();
    let after = read_catalogue(&state);
    for entry in fixture()["entries"].as_array().unwrap() {
        let found = after.iter().find(|(key, _)| *key == entry["key"]);
        assert_eq!(found.map(|(_, value)| value), Some(&entry["value"]), "{}", entry["key"]);
    }
    assert_eq!(
        after.iter().find(|(key, _)| key == keys::FORMAT).map(|(_, value)| value.clone()),
        Some(serde_json::to_value(format::FormatRecord::current()).unwrap())
    );
}

#[test]
fn first_version_record_backups_and_markers_are_read() {
    let fixture = fixture();
    for backup in fixture["backups"].as_array().unwrap() {
        let read: RecordBackup = format::read(backup).unwrap();
        assert_eq!(read.minimum_reader, 1);
    }
    let (_folder, state) = state();
    std::fs::write(state.join(MARKER_FILE), fixture["marker"].to_string()).unwrap();
    let marker = Marker::read(&state).unwrap().unwrap();
    assert_eq!(json!(marker.node), fixture["marker"]["node"]);
}

#[test]
fn newer_catalogue_is_refused_and_not_changed() {
    let key = fixture()["entries"].as_array().unwrap().iter().find_map(|entry| {
        entry["key"].as_str().filter(|key| key.starts_with(keys::VOLUMES)).map(str::to_owned)
    });
    let key = key.unwrap();
    let mut newer =
        fixture()["entries"].as_array().unwrap().iter().find(|e| e["key"] == key).unwrap()["value"].clone();
    newer["encryption"] = json!({"key": 7});
    for (more, words) in [
        (
            (keys::FORMAT, json!({"minimum_reader": 2, "written_by": "9.0.0"})),
            "readers of version 2 and later",
        ),
        ((key.as_str(), newer), "field 'encryption' is not known"),
    ] {
        let (_folder, state) = state();
        write_catalogue(&state, &[more]);
        let before = read_catalogue(&state);
        let (_, message) = error(World::try_start(&state, false));
        assert!(message.contains(words) && message.contains("start a Weir"), "{message}");
        let without_format = |all: Vec<(String, Value)>| {
            all.into_iter().filter(|(key, _)| key != keys::FORMAT).collect::<Vec<_>>()
        };
        assert_eq!(without_format(read_catalogue(&state)), without_format(before));
    }
}

#[test]
fn drive_of_newer_version_is_missing_with_remedy() {
    let (_folder, state) = state();
    let path = state.join("extra");
    std::fs::create_dir(&path).unwrap();
    let world = World::start(&state);
    world.control.drives.add_drive(AddDrive::new(path.clone())).unwrap();
    world.end();
    let mut marker: Value = serde_json::from_slice(&std::fs::read(path.join(MARKER_FILE)).unwrap()).unwrap();
    marker["minimum_reader"] = json!(2);
    std::fs::write(path.join(MARKER_FILE), marker.to_string()).unwrap();
    let world = World::start(&state);
    let drive = world.control.drives.drive(&name("extra")).unwrap();
    let reason = drive.usage.unwrap_err();
    assert!(reason.contains("readers of version 2 and later") && reason.contains("start a Weir"), "{reason}");
    let kept: Value = serde_json::from_slice(&std::fs::read(path.join(MARKER_FILE)).unwrap()).unwrap();
    assert_eq!(kept, marker, "it is not written over");
}

/// Changes a JSON file. Answers its new content.
fn edit(path: &Path, change: fn(&mut Value)) -> Value {
    let mut value: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    change(&mut value);
    std::fs::write(path, value.to_string()).unwrap();
    value
}

#[test]
fn rebuild_refuses_backups_of_newer_version() {
    for (is_record, change, words) in [
        (
            true,
            (|backup: &mut Value| backup["minimum_reader"] = json!(2)) as fn(&mut Value),
            "readers of version 2 and later",
        ),
        (true, |backup| backup["volume"]["encryption"] = json!(7), "field 'volume.encryption' is not known"),
        (false, |backup| backup["minimum_reader"] = json!(2), "readers of version 2 and later"),
        (false, |backup| backup["drives"][0]["led"] = json!(7), "field 'drives.0.led' is not known"),
    ] {
        let (_folder, state) = state();
        let world = World::start(&state);
        let id = world.control.volumes.create_volume(volume(None, "vol1", GIB)).unwrap().record.id;
        let record = default_store(&world.control).folder(id).join(RECORD_FILE);
        world.end();
        for file in ["catalogue.sqlite", "catalogue.sqlite-wal", "catalogue.sqlite-shm"] {
            let _ = std::fs::remove_file(state.join(file));
        }
        let path = if is_record { record } else { state.join(DRIVES_FILE) };
        let newer = edit(&path, change);
        let (_, message) = error(World::try_start(&state, true));
        let told = [words, "start a Weir that is at least as new", path.parent().unwrap().to_str().unwrap()];
        assert!(told.iter().all(|part| message.contains(part)), "{message}");
        assert_eq!(edit(&path, |_| {}), newer, "it is not written over");
    }
}
