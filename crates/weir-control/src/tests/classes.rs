//! Tests of volumes that are placed by class on pools of several drives, against real files.

use weir_types::{ClassPolicy, ExtentIndex};

use super::*;
use crate::drives::AddDrive;
use crate::records::Placement;

/// Adds a drive of a class, as if it had been measured.
fn drive(world: &World, state: &Path, text: &str, class: Class) -> DriveId {
    let path = state.join(text);
    std::fs::create_dir_all(&path).unwrap();
    let request = AddDrive::new(path);
    let id = world.control.drives.add_drive(request).unwrap().record.id;
    world.control.core.update(|model| {
        model.drives.get_mut(&id).unwrap().record.class = Some(class);
    });
    id
}

fn of_class(text: &str, size_bytes: u64, class: Class, policy: ClassPolicy) -> CreateVolume {
    CreateVolume { io_priority: Some(class), class_policy: Some(policy), ..volume(None, text, size_bytes) }
}

/// The extents of a volume that lie on a drive.
fn extents(world: &World, id: VolumeId, drive: DriveId) -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir(world.control.core.store(drive).unwrap().extents(id)) else {
        return vec![];
    };
    let index = |entry: std::io::Result<std::fs::DirEntry>| {
        entry.unwrap().file_name().to_str().unwrap().parse::<u32>().unwrap()
    };
    let mut found: Vec<u32> = entries.map(index).collect();
    found.sort_unstable();
    found
}

fn placement(world: &World, text: &str) -> Placement {
    world.control.views.volume(None, &name(text)).unwrap().record.placement
}

#[test]
fn extents_spread_over_drives_of_class_and_follow_resize() {
    let (_folder, state) = state();
    let world = World::start(&state);
    let (one, two) = (drive(&world, &state, "one", Class::High), drive(&world, &state, "two", Class::High));
    drive(&world, &state, "slow", Class::Low);
    let made =
        world.control.volumes.create_volume(of_class("vol1", 5 * GIB, Class::High, ClassPolicy::Strict));
    let made = made.unwrap();
    let id = made.record.id;
    assert_eq!((made.class, made.drives.len()), (Some(Class::High), 2));
    let all = |count: u32| {
        let (mut on_one, on_two) = (extents(&world, id, one), extents(&world, id, two));
        assert!(on_one.len().abs_diff(on_two.len()) <= 1, "{on_one:?} {on_two:?}");
        on_one.extend(on_two);
        on_one.sort_unstable();
        assert_eq!(on_one, (0..count).collect::<Vec<_>>());
    };
    all(5);
    let resize =
        |gib: u64| world.control.volumes.resize_volume(None, &name("vol1"), gib * GIB, true, None).unwrap();
    resize(8);
    all(8);
    let view = world.control.drives.drive(&name("one")).unwrap();
    assert_eq!((view.volumes, view.provisioned_bytes), (1, 4 * GIB));
    resize(3);
    let (on_one, on_two) = (extents(&world, id, one), extents(&world, id, two));
    assert_eq!(on_one.len() + on_two.len(), 3);
    settle(&world.control);
    world.control.check_extent_files();
    assert!(world.control.core.alarms.list_is_empty());
    world.control.volumes.delete_volume(None, &name("vol1"), DeleteVolume::default()).unwrap();
    settle(&world.control);
    for drive in [one, two] {
        assert_eq!(world.control.core.store(drive).unwrap().scan().unwrap().volumes, []);
    }
    assert!(world.control.core.catalogue.get(&keys::volume(id)).unwrap().is_none());
}

#[test]
fn volume_on_two_drives_is_served_only_with_both() {
    let (_folder, state) = state();
    let world = World::start(&state);
    let two = drive(&world, &state, "two", Class::High);
    drive(&world, &state, "one", Class::High);
    let made =
        world.control.volumes.create_volume(of_class("vol1", 4 * GIB, Class::High, ClassPolicy::Strict));
    let (id, before) = (made.unwrap().record.id, placement(&world, "vol1"));
    world.end();
    let world = World::start(&state);
    assert_eq!((placement(&world, "vol1"), world.exports.find("vol1").is_some()), (before.clone(), true));
    world.end();
    std::fs::rename(state.join("two"), state.join("away")).unwrap();
    let world = World::start(&state);
    assert!(world.exports.find("vol1").is_none());
    let (kind, message) =
        error(world.control.volumes.delete_volume(None, &name("vol1"), DeleteVolume::default()));
    assert!(kind == ErrorKind::Refused && message.contains("drive 'two'"), "{message}");
    world.end();
    std::fs::rename(state.join("away"), state.join("two")).unwrap();
    std::fs::remove_file(state.join("catalogue.sqlite")).unwrap();
    let world = World::try_start(&state, true).unwrap();
    assert_eq!(placement(&world, "vol1"), before, "the replicas say where it lies");
    let store = world.control.core.store(two).unwrap();
    assert_eq!(check_extents(&store.extents(id), before.extents_on(two, 4 * GIB)), []);
}

#[test]
fn stray_extents_are_reclaimed_unless_newer_than_catalogue() {
    let (_folder, state) = state();
    let world = World::start(&state);
    let two = drive(&world, &state, "two", Class::High);
    let made = world.control.volumes.create_volume(volume(None, "vol1", GIB)).unwrap().record;
    let stray = |generation: u64| {
        let mut record = made.clone();
        record.generation = generation;
        let replica = world.control.core.record_backup(&record).unwrap();
        world
            .control
            .core
            .store(two)
            .unwrap()
            .create(made.id, &[ExtentIndex(7)], &replica.content, None)
            .unwrap();
    };
    stray(0);
    world.control.serving.extents.delete_strays(&made).unwrap();
    settle(&world.control);
    assert_eq!(extents(&world, made.id, two), [0_u32; 0]);
    assert_eq!(
        world.control.views.volume(None, &name("vol1")).unwrap().record.id,
        made.id,
        "the volume lives on"
    );
    stray(1);
    world.control.serving.extents.delete_strays(&made).unwrap();
    assert_eq!(extents(&world, made.id, two), [7], "the catalogue may be out of date");
    world.end();
    let world = World::start(&state);
    let alarms = world.control.alarms.alarms();
    assert!(alarms.iter().any(|alarm| alarm.message.contains("are not in the catalogue")), "{alarms:?}");
}

#[test]
fn unavailable_class_is_refused_or_reported() {
    let (_folder, state) = state();
    let world = World::start(&state);
    drive(&world, &state, "slow", Class::Low);
    let strict = of_class("vol1", GIB, Class::High, ClassPolicy::Strict);
    let (kind, message) = error(world.control.volumes.create_volume(strict));
    assert!(kind == ErrorKind::Full && message.contains("pool 'low' with"), "{message}");
    let preferred = of_class("vol1", GIB, Class::High, ClassPolicy::Prefer);
    let view = world.control.volumes.create_volume(preferred).unwrap();
    assert_eq!((view.record.io_priority, view.class), (Class::High, Some(Class::Low)));
    let alarms = world.control.alarms.alarms();
    assert!(
        alarms.len() == 1 && alarms[0].message == "the class is not met: requested high, actual low",
        "{alarms:?}"
    );
    let named =
        CreateVolume { drive: Some(name("slow")), ..of_class("vol2", GIB, Class::High, ClassPolicy::Strict) };
    let (kind, message) = error(world.control.volumes.create_volume(named));
    assert!(kind == ErrorKind::Refused && message.contains("drive 'slow' has class low"), "{message}");
    let unasked = world.control.volumes.create_volume(volume(None, "vol3", GIB)).unwrap();
    assert_eq!(unasked.drives[0].name.as_str(), "slow");
}

#[test]
fn pool_of_two_drives_has_limits_of_its_own() {
    let (_folder, state) = state();
    let world = World::start(&state);
    drive(&world, &state, "one", Class::Medium);
    drive(&world, &state, "two", Class::Medium);
    let pools = world.control.pools.pools();
    let names: Vec<_> = pools.iter().map(|pool| (pool.number, pool.name.to_string())).collect();
    assert_eq!(names, [(0, "default".to_owned()), (1, "medium".to_owned())]);
    let (drives, usage) = (&pools[1].drives, pools[1].summed_usage());
    assert_eq!(drives.len(), 2);
    assert_eq!(usage.size_bytes, drives[0].usage.as_ref().unwrap().size_bytes, "one filesystem counts once");
    let limit = ModifyPool { over_provision_percent: Some(Some(100)), ..ModifyPool::default() };
    world.control.pools.modify_pool(&name("medium"), limit).unwrap();
    let too_much = of_class("vol1", 64 << 40, Class::Medium, ClassPolicy::Strict);
    let (kind, message) = error(world.control.volumes.create_volume(too_much));
    assert!(kind == ErrorKind::Full && message.contains("provisionable"), "{message}");
    let twice = of_class("vol1", usage.size_bytes / GIB * GIB * 3 / 2, Class::Medium, ClassPolicy::Strict);
    let on_one = CreateVolume { drive: Some(name("one")), ..twice.clone() };
    for larger_than_the_filesystem in [twice, on_one] {
        let (kind, message) = error(world.control.volumes.create_volume(larger_than_the_filesystem));
        assert!(kind == ErrorKind::Full && message.contains("provisionable"), "{message}");
    }
    let wrong = ModifyPool { over_provision_percent: Some(Some(50)), ..ModifyPool::default() };
    assert_eq!(error(world.control.pools.modify_pool(&name("medium"), wrong)).0, ErrorKind::Invalid);
}

#[test]
fn drive_joining_pool_takes_its_settings_and_keeps_queue_target() {
    let (_folder, state) = state();
    let world = World::start(&state);
    drive(&world, &state, "one", Class::Medium);
    let medium = name("medium");
    let limit = ModifyPool { over_provision_percent: Some(Some(300)), ..ModifyPool::default() };
    world.control.pools.modify_pool(&medium, limit).unwrap();
    let path = state.join("two");
    std::fs::create_dir(&path).unwrap();
    let two = AddDrive { class: Some(Class::Medium), queue_target: Some(32), ..AddDrive::new(path) };
    let pool = world.control.drives.add_drive(two).unwrap().record.pool;
    assert_eq!((pool.over_provision_percent, pool.queue_target), (Some(300), Some(32)));
    let settings = |drive: &str| {
        let pool = world.control.drives.drive(&name(drive)).unwrap().record.pool;
        (pool.reserve_percent, pool.queue_target)
    };
    let reserve = ModifyPool { reserve_percent: Some(10), ..ModifyPool::default() };
    world.control.pools.modify_pool(&medium, reserve).unwrap();
    assert_eq!((settings("one"), settings("two")), ((10, None), (10, Some(32))));
    let automatic = ModifyPool { queue_target: Some(None), ..ModifyPool::default() };
    world.control.pools.modify_pool(&medium, automatic).unwrap();
    assert_eq!(settings("two"), (10, None), "a target for the pool is one for each of its drives");
}

#[test]
fn changed_class_moves_volume_or_is_refused_or_reported() {
    let (_folder, state) = state();
    let world = World::start(&state);
    drive(&world, &state, "slow", Class::Low);
    for (text, asked, policy) in [
        ("any", None, None),
        ("strict", Some(Class::Low), Some(ClassPolicy::Strict)),
        ("preferred", Some(Class::Low), Some(ClassPolicy::Prefer)),
    ] {
        let request = CreateVolume { io_priority: asked, class_policy: policy, ..volume(None, text, GIB) };
        world.control.volumes.create_volume(request).unwrap();
    }
    let ask = |text: &str, class: Class| {
        let request = ModifyVolume { io_priority: Some(class), ..ModifyVolume::default() };
        world.control.volumes.modify_volume(None, &name(text), request)
    };
    for text in ["any", "strict"] {
        let (kind, message) = error(ask(text, Class::High));
        assert!(
            kind == ErrorKind::Refused && message.contains("cannot have class high in 1 replica"),
            "{message}"
        );
        assert_eq!(ask(text, Class::Low).unwrap().record.class_policy, ClassPolicy::Strict);
    }
    assert_eq!(world.control.alarms.alarms(), []);
    assert_eq!(ask("preferred", Class::High).unwrap().record.io_priority, Class::High);
    assert_eq!(world.control.alarms.alarms()[0].message, "the class is not met: requested high, actual low");
    drive(&world, &state, "fast", Class::High);
    for text in ["any", "strict", "preferred"] {
        ask(text, Class::High).unwrap();
    }
    let has_moved = |text: &str| {
        let view = world.control.views.volume(None, &name(text)).unwrap();
        view.moves.is_none() && view.class == Some(Class::High)
    };
    wait_until("volumes are moved to their class", || {
        world.control.settle_moves();
        ["any", "strict", "preferred"].iter().all(|text| has_moved(text))
    });
    assert_eq!(world.control.alarms.alarms(), []);
}

#[test]
fn class_name_is_refused_as_drive_name() {
    let (_folder, state) = state();
    let world = World::start(&state);
    let path = state.join("low");
    std::fs::create_dir(&path).unwrap();
    let request = AddDrive::new(path);
    let (kind, message) = error(world.control.drives.add_drive(request));
    assert!(kind == ErrorKind::Invalid && message.contains("choose another name"), "{message}");
}
