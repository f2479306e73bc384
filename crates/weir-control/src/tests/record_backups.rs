//! Tests of record backups that cannot be written, against real files.

use super::*;
use crate::drive_records::DRIVES_FILE;
use crate::drives::AddDrive;

/// Waits until control raises, or no longer raises, the alarm about record backups.
fn wait_for_alarm(control: &Control, is_raised: bool) -> Option<String> {
    let mut alarms = Vec::new();
    wait_until("the backups are as they should be", || {
        control.retry_record_backups();
        alarms = control.core.record_backup_alarms();
        alarms.extend(control.drive_records.drive_list_backup_alarm());
        alarms.is_empty() != is_raised
    });
    alarms.into_iter().next().map(|alarm| alarm.message)
}

#[test]
fn committed_change_takes_effect_without_its_record_backup() {
    let (_folder, state) = state();
    let world = World::start(&state);
    for drive in ["one", "two"] {
        let path = state.join(drive);
        std::fs::create_dir_all(&path).unwrap();
        world.control.drives.add_drive(AddDrive { class: Some(Class::High), ..AddDrive::new(path) }).unwrap();
    }
    let request = CreateVolume { io_priority: Some(Class::High), ..volume(None, "vol1", GIB) };
    let record = world.control.volumes.create_volume(request).unwrap().record;
    let store = world.control.core.store(record.placement.drives()[0]).unwrap();
    // A folder blocks the new backup, as a full filesystem would.
    let obstacle = store.folder(record.id).join("record.json.new");
    std::fs::create_dir(&obstacle).unwrap();
    let two = ModifyVolume { replicas: Some(2), ..ModifyVolume::default() };
    let changed = world.control.volumes.modify_volume(None, &name("vol1"), two).unwrap();
    assert_eq!(changed.record.replicas, 2);
    assert!(changed.moves.is_some(), "the second replica is on its way");
    let message = wait_for_alarm(&world.control, true).unwrap();
    assert!(
        message.contains("1 volume records on drive") && message.contains("record.json.new"),
        "{message}"
    );
    std::fs::remove_dir(&obstacle).unwrap();
    wait_for_alarm(&world.control, false);
    let written = store.read_record(record.id).unwrap().unwrap();
    let current = world.control.views.volume(None, &name("vol1")).unwrap().record;
    assert_eq!(written, world.control.core.record_backup(&current).unwrap().content);
}

#[test]
fn committed_drive_change_succeeds_without_backup_of_drive_list() {
    let (_folder, state) = state();
    let world = World::start(&state);
    let path = state.join("one");
    std::fs::create_dir_all(&path).unwrap();
    world.control.drives.add_drive(AddDrive::new(path)).unwrap();
    let (list, obstacle) = (state.join(DRIVES_FILE), state.join("drives.new"));
    let is_copied = || std::fs::read_to_string(&list).unwrap().contains("\"zone\": \"west\"");
    // A folder blocks the new backup, as a full filesystem would.
    std::fs::create_dir(&obstacle).unwrap();
    let zone = Some(Some(name("west")));
    let change = ModifyDrive { zone, ..ModifyDrive::default() };
    world.control.drives.modify_drive(&name("one"), change).unwrap();
    let message = wait_for_alarm(&world.control, true).unwrap();
    assert!(message.contains("list of drives") && message.contains("drives.new"), "{message}");
    assert!(!is_copied());
    std::fs::remove_dir(&obstacle).unwrap();
    wait_for_alarm(&world.control, false);
    assert!(is_copied());
}
