//! Tests of drive measurements and of the records about them.

use std::io;

use weir_engine_interface::measure::MeasureError;
use weir_types::{Class, ClassThreshold, ClassThresholds, MeasuredDirection, Measurement};

use super::*;
use crate::alarms::AlarmSource;

/// A daemon whose threshold for class `high` is this number of operations per second.
fn world(state: &Path, high_iops: u64) -> World {
    let threshold = |iops| ClassThreshold { iops, latency_ns: 1_000_000_000 };
    let classes = ClassThresholds { high: threshold(high_iops), medium: threshold(50) };
    World::with_classes(state, classes).unwrap()
}

/// Ends all measurements. The drives reach 1000 operations per second, at a latency of 1 ms.
fn measure(world: &World) {
    let direction = MeasuredDirection { iops: 1000, latency_ns: 1_000_000, ..MeasuredDirection::default() };
    let found = Measurement { read: direction, write: direction, is_direct: true, ..Measurement::default() };
    world.engine.end_measurements(|| Ok(found));
    world.control.measurements.settle_measurements();
}

/// Adds a drive that is measured.
fn add(control: &Control, state: &Path, request: impl FnOnce(AddDrive) -> AddDrive) -> DriveView {
    let path = state.join("d1");
    std::fs::create_dir(&path).unwrap();
    control.drives.add_drive(request(AddDrive { measure: true, ..AddDrive::new(path) })).unwrap()
}

fn class(change: ClassChange) -> ModifyDrive {
    ModifyDrive { class: Some(change), ..ModifyDrive::default() }
}

fn seen(control: &Control) -> (Option<Class>, String) {
    let view = control.drives.drive(&name("d1")).unwrap();
    (view.record.class, view.class_reason)
}

fn alarms(control: &Control) -> Vec<String> {
    let alarms = control.alarms.alarms().into_iter().filter(|alarm| alarm.source == AlarmSource::Measurement);
    alarms.map(|alarm| alarm.message).collect()
}

#[test]
fn new_drive_is_used_during_measurement_and_class_survives_restart() {
    let (_folder, state) = state();
    let world = self::world(&state, 100);
    let control = &world.control;
    let view = add(control, &state, |request| request);
    assert!(view.record.class.is_none() && view.progress.is_some(), "{view:?}");
    let made = CreateVolume { drive: Some(name("d1")), ..volume(None, "vol1", GIB) };
    control.volumes.create_volume(made).unwrap();
    let (kind, message) = error(control.drives.measure_drive(&name("d1")));
    assert!(kind == ErrorKind::Conflict && message.contains("is being measured already"), "{message}");
    measure(&world);
    let (class, reason) = seen(control);
    assert_eq!(class, Some(Class::High), "{reason}");
    let measured = control.drives.drive(&name("d1")).unwrap().record.measured;
    assert!(measured.latest.is_some() && alarms(control).is_empty());
    world.end();
    let world = self::world(&state, 100);
    assert_eq!(seen(&world.control), (class, reason));
    world.end();
    // The backup of the list of drives is the only record that is left.
    for file in ["catalogue.sqlite", "catalogue.sqlite-wal", "catalogue.sqlite-shm"] {
        let _ = std::fs::remove_file(state.join(file));
    }
    let world = self::world(&state, 100);
    assert_eq!(world.control.drives.drive(&name("d1")).unwrap().record.measured, measured);
}

#[test]
fn class_below_threshold_raises_alarm_until_met() {
    let (_folder, state) = state();
    let first = self::world(&state, 100);
    add(&first.control, &state, |request| request);
    measure(&first);
    drop(first);
    // The drive is as fast as before, but the threshold of the class is higher.
    let world = self::world(&state, 10_000);
    let control = &world.control;
    let found = alarms(control);
    assert!(found.len() == 1 && found[0].contains("drive 'd1' is recorded as high"), "{found:?}");
    control.drives.measure_drive(&name("d1")).unwrap();
    measure(&world);
    assert_eq!((seen(control).0, alarms(control).len()), (Some(Class::High), 1));
    control.drives.modify_drive(&name("d1"), class(ClassChange::Measured)).unwrap();
    assert_eq!((seen(control).0, alarms(control)), (Some(Class::Medium), vec![]));
    let made = CreateVolume { drive: Some(name("d1")), ..volume(None, "vol1", GIB) };
    control.volumes.create_volume(made).unwrap();
    let (kind, message) = error(control.drives.modify_drive(&name("d1"), class(ClassChange::To(Class::Low))));
    let words = "drive 'd1' is medium and cannot become low while it has the volumes: vol1";
    assert!(kind == ErrorKind::Refused && message.starts_with(words), "{message}");
    control.drives.modify_drive(&name("d1"), class(ClassChange::To(Class::Medium))).unwrap();
    assert!(seen(control).1.starts_with("chosen by hand; measured as medium"), "{}", seen(control).1);
}

#[test]
fn chosen_class_overrides_measurement() {
    let (_folder, state) = state();
    let world = self::world(&state, 100);
    let control = &world.control;
    let view = add(control, &state, |request| AddDrive { class: Some(Class::Low), ..request });
    assert_eq!(view.record.class, Some(Class::Low));
    measure(&world);
    let (class, reason) = seen(control);
    assert!(class == Some(Class::Low) && reason.starts_with("chosen by hand; measured as high"), "{reason}");
    assert_eq!(alarms(control), [""; 0]);
}

#[test]
fn unmeasurable_drive_is_usable_and_reports_reason() {
    let (_folder, state) = state();
    let world = self::world(&state, 100);
    let control = &world.control;
    add(control, &state, |request| AddDrive { measure: false, ..request });
    assert!(seen(control).1.starts_with("not measured yet"));
    let (kind, message) = error(control.drives.modify_drive(&name("d1"), class(ClassChange::Measured)));
    assert!(kind == ErrorKind::Refused && message.contains("was not measured yet"), "{message}");
    control.drives.measure_drive(&name("d1")).unwrap();
    let (path, source) = (state.join("d1"), || io::ErrorKind::NotFound.into());
    let fault = || MeasureError::Scratch { action: "examine", path: path.clone(), source: source() };
    world.engine.end_measurements(|| Err(fault()));
    control.measurements.settle_measurements();
    let (class, reason) = seen(control);
    assert!(class.is_none() && reason.contains("failed: cannot examine"), "{reason}");
    let made = CreateVolume { drive: Some(name("d1")), ..volume(None, "vol1", GIB) };
    control.volumes.create_volume(made).unwrap();
    control.drives.measure_drive(&name("d1")).unwrap();
    measure(&world);
    assert_eq!(seen(control).0, Some(Class::High));
    assert_eq!(error(control.drives.measure_drive(&name("d2"))).0, ErrorKind::NotFound);
}

#[test]
fn drive_removed_during_measurement_leaves_nothing() {
    let (_folder, state) = state();
    let world = self::world(&state, 100);
    let control = &world.control;
    add(control, &state, |request| request);
    control.drives.remove_drive(&name("d1"), None).unwrap();
    control.measurements.settle_measurements();
    assert_eq!(std::fs::read_dir(state.join("d1")).unwrap().count(), 0);
    assert_eq!(error(control.drives.drive(&name("d1"))).0, ErrorKind::NotFound);
}

/// A freshly installed daemon. Its threshold for class `high` is this number of
/// operations per second, and one for `medium`.
fn fresh(state: &Path, high_iops: u64) -> World {
    let threshold = |iops, latency_ns| ClassThreshold { iops, latency_ns };
    let classes =
        ClassThresholds { high: threshold(high_iops, 9_000_000_000), medium: threshold(1, 10_000_000_000) };
    World::of(ControlConfig { classes, measure_default: true, ..configuration(state) }).unwrap()
}

fn of_class(text: &str, class: Class) -> CreateVolume {
    CreateVolume { io_priority: Some(class), ..volume(None, text, 8 * GIB) }
}

fn default_drive(control: &Control) -> DriveView {
    control.drives.drive(&name("default")).unwrap()
}

#[test]
fn volume_creation_waits_for_class_of_fresh_default_drive() {
    let (_folder, state) = state();
    let world = fresh(&state, 2);
    let control = &world.control;
    assert!(default_drive(control).progress.is_some(), "a new drive is measured at the first start");
    std::thread::scope(|scope| {
        let made = scope.spawn(|| control.volumes.create_volume(of_class("test-high", Class::High)));
        // A volume that waits for a class delays no other request.
        control.tenants.create_tenant(name("svm01")).unwrap();
        control.volumes.create_volume(volume(Some("svm01"), "any", GIB)).unwrap();
        measure(&world);
        assert_eq!(made.join().unwrap().unwrap().class, Some(Class::High));
    });
    let measured = default_drive(control).record.measured;
    world.end();
    let world = fresh(&state, 2);
    let again = default_drive(&world.control);
    assert!(again.progress.is_none() && again.record.measured == measured, "it is measured once");
}

#[test]
fn class_refusal_names_measured_values() {
    let (_folder, state) = state();
    let world = fresh(&state, u64::MAX);
    let control = &world.control;
    std::thread::scope(|scope| {
        let made = scope.spawn(|| control.volumes.create_volume(of_class("test-high", Class::High)));
        measure(&world);
        let (kind, message) = error(made.join().unwrap());
        assert_eq!(kind, ErrorKind::Full, "{message}");
        for words in ["class high cannot be had", "; drive 'default': medium and not high: ", "random "] {
            assert!(message.contains(words), "{words} in {message}");
        }
    });
    control.volumes.create_volume(of_class("test-medium", Class::Medium)).unwrap();
}

#[test]
fn default_drive_with_volumes_or_by_configuration_is_not_measured() {
    let (_folder, state) = state();
    let world = World::start(&state);
    assert!(default_drive(&world.control).progress.is_none());
    let (_, message) = error(world.control.volumes.create_volume(of_class("test-high", Class::High)));
    assert!(
        message.contains("; drive 'default': not measured yet; 'weir drive measure default'"),
        "{message}"
    );
    world.control.volumes.create_volume(volume(None, "v", GIB)).unwrap();
    world.end();
    let world = fresh(&state, 2);
    assert!(default_drive(&world.control).progress.is_none(), "volumes were placed without a class");
}
