//! Tests of templates and the volumes that follow them, against real files.

use std::collections::BTreeSet;

use weir_types::bounds::REPLICA_SLOTS_MAX;
use weir_types::{BackgroundKind, ClassPolicy, ExtentIndex};
use weir_volume::mirror::ReplicaState;

use super::*;
use crate::drives::AddDrive;
use crate::records::VolumeRecord;

use Class::{High, Low, Medium};

/// Adds drives with these names and classes.
fn add_drives(world: &World, state: &Path, drives: &[(&str, Class)]) {
    for (text, class) in drives {
        let path = state.join(text);
        std::fs::create_dir_all(&path).unwrap();
        world.control.drives.add_drive(AddDrive { class: Some(*class), ..AddDrive::new(path) }).unwrap();
    }
}

/// A world with three drives of class low and three of class high.
fn mixed(state: &Path) -> World {
    let world = World::start(state);
    let drives = [("l1", Low), ("l2", Low), ("l3", Low), ("h1", High), ("h2", High), ("h3", High)];
    add_drives(&world, state, &drives);
    world
}

fn following(template: &str, text: &str, size_bytes: u64) -> CreateVolume {
    CreateVolume { template: Some(name(template)), ..volume(None, text, size_bytes) }
}

fn to(template: &str) -> ModifyVolume {
    let template = Some(template).filter(|text| *text != "none").map(name);
    ModifyVolume { template: Some(template), ..ModifyVolume::default() }
}

fn template(text: &str, replicas: &[Class], read_from: Option<Class>) -> CreateTemplate {
    CreateTemplate { name: name(text), replicas: replicas.to_vec(), read_from, policy_group: None }
}

fn record(world: &World) -> VolumeRecord {
    world.control.views.volume(None, &name("vol1")).unwrap().record
}

fn modify(world: &World, request: ModifyVolume) -> Outcome<VolumeView> {
    world.control.volumes.modify_volume(None, &name("vol1"), request)
}

/// The classes of the replicas of each extent, in the order of the replicas.
fn classes(world: &World, record: &VolumeRecord) -> Vec<Vec<Class>> {
    let model = world.control.core.model();
    let of = |extent| {
        let drives: Vec<DriveId> = record.placement.replicas_of(extent).map(|(_, drive)| drive).collect();
        let distinct: BTreeSet<DriveId> = drives.iter().copied().collect();
        assert_eq!(distinct.len(), drives.len(), "replicas are on distinct drives");
        drives.iter().map(|drive| model.drives[drive].record.class.unwrap()).collect()
    };
    ExtentIndex::all_of(record.size_bytes).map(of).collect()
}

/// The classes of the replicas of each extent, sorted, because moves change the order.
fn sorted_classes(world: &World) -> Vec<Vec<Class>> {
    let mut all = classes(world, &record(world));
    all.iter_mut().for_each(|classes| classes.sort());
    all
}

/// The number of in-sync replicas of the extent that has the fewest.
fn fewest_good(world: &World) -> usize {
    let model = world.control.core.model();
    let replica_states = model.open[&record(world).id].status().replica_states;
    let good = |replicas: &[ReplicaState; REPLICA_SLOTS_MAX]| {
        replicas.iter().filter(|replica| **replica == ReplicaState::InSync).count()
    };
    replica_states.iter().map(good).min().unwrap_or(1)
}

/// Continues moves until all replicas are at their targets. At no time has an extent fewer than `least`
/// in-sync replicas.
fn move_on(world: &World, least: usize) {
    let id = record(world).id;
    wait_until("all replicas are where they should be", || {
        world.control.settle_moves();
        assert!(fewest_good(world) >= least, "a good replica went too early");
        world.control.moves.moves_of(id).is_none()
    });
}

#[test]
fn replicas_are_placed_and_grow_by_classes_of_template() {
    let (_folder, state) = state();
    let world = mixed(&state);
    let view = world.control.volumes.create_volume(following("hybrid", "vol1", 4 * GIB)).unwrap();
    assert_eq!((view.record.replicas, view.record.class_policy), (3, ClassPolicy::Any));
    assert_eq!(classes(&world, &view.record), vec![vec![Low, Low, High]; 4]);
    for gib in [7, 2, 5] {
        world.control.volumes.resize_volume(None, &name("vol1"), gib * GIB, true, None).unwrap();
        assert_eq!(classes(&world, &record(&world)), vec![vec![Low, Low, High]; gib as usize]);
    }
    settle(&world.control);
    assert_eq!(world.control.alarms.alarms(), []);
    for (built_in, expected) in [("nvme", [High; 3]), ("hdd", [Low; 3])] {
        let made =
            world.control.volumes.create_volume(following(built_in, built_in, 2 * GIB)).unwrap().record;
        assert_eq!(classes(&world, &made), vec![expected.to_vec(); 2]);
    }
    let view = world.control.templates.template(&name("hybrid")).unwrap();
    assert!(view.is_built_in && view.volumes == 1 && view.record.read_from == Some(High));
}

#[test]
fn template_replicas_are_in_different_zones_or_refused_or_forced() {
    let (_folder, state) = state();
    let world = mixed(&state);
    let put = |drive: &str, zone: &str| {
        let zone = Some(Some(name(zone)));
        world
            .control
            .drives
            .modify_drive(&name(drive), ModifyDrive { zone, ..ModifyDrive::default() })
            .unwrap();
    };
    // Only one placement has each replica in its own zone: class high must use zone c, although it could
    // use zone a.
    for (drive, zone) in [("l1", "a"), ("l2", "b"), ("l3", "b"), ("h1", "a"), ("h2", "b"), ("h3", "c")] {
        put(drive, zone);
    }
    let made = world.control.volumes.create_volume(following("hybrid", "vol1", 3 * GIB)).unwrap().record;
    let h3 = world.control.drives.drive(&name("h3")).unwrap().record.id;
    assert!(
        ExtentIndex::first(3).all(|extent| made.placement.replicas_of(extent).any(|(_, drive)| drive == h3))
    );
    put("h3", "b");
    let (kind, message) = error(world.control.volumes.create_volume(following("hybrid", "vol2", GIB)));
    assert!(kind == ErrorKind::Refused && message.contains("cannot be in different zones"), "{message}");
    assert!(message.contains("(low,low,high)") && message.contains("--force"), "{message}");
    let forced = CreateVolume { force: true, ..following("hybrid", "vol2", GIB) };
    assert!(world.control.volumes.create_volume(forced).is_ok());
}

#[test]
fn unavailable_class_is_refused_with_available_drives() {
    let (_folder, state) = state();
    let world = World::start(&state);
    add_drives(&world, &state, &[("l1", Low), ("l2", Low), ("h1", High)]);
    for (template, words) in [
        (
            "nvme",
            "3 replicas on distinct drives on class high, which cannot be had for 1GiB: there is pool 'default'",
        ),
        ("hdd", "pool 'low' with"),
    ] {
        let (kind, message) = error(world.control.volumes.create_volume(following(template, "vol1", GIB)));
        assert!(kind == ErrorKind::Full && message.contains(words), "{message}");
        assert!(message.contains("on 2 drives") && message.contains("on 1 drive"), "{message}");
    }
    let (kind, message) = error(world.control.volumes.create_volume(following("nothing", "vol1", GIB)));
    assert!(kind == ErrorKind::NotFound && message.ends_with("there are: hdd, hybrid, nvme"), "{message}");
    world.control.volumes.create_volume(following("hybrid", "vol1", GIB)).unwrap();
    let before = record(&world);
    let (kind, message) = error(modify(&world, to("nvme")));
    let words = "cannot have class high in 3 replicas: there are 1 such drives";
    assert!(kind == ErrorKind::Refused && message.contains(words), "{message}");
    assert_eq!((record(&world), world.control.volumes(None).unwrap().len()), (before, 1));
}

#[test]
fn settings_of_template_are_refused_beside_template() {
    let (_folder, state) = state();
    let world = mixed(&state);
    let plain = || following("hybrid", "vol1", GIB);
    for request in [
        CreateVolume { replicas: Some(3), ..plain() },
        CreateVolume { io_priority: Some(High), ..plain() },
        CreateVolume { drive: Some(name("h1")), ..plain() },
    ] {
        let (kind, message) = error(world.control.volumes.create_volume(request));
        assert!(kind == ErrorKind::Invalid && message.contains("does not go with it"), "{message}");
    }
    world.control.volumes.create_volume(plain()).unwrap();
    let replicas = || ModifyVolume { replicas: Some(2), ..ModifyVolume::default() };
    let class = ModifyVolume { io_priority: Some(Low), ..ModifyVolume::default() };
    for request in [replicas(), class] {
        let (kind, message) = error(modify(&world, request));
        assert!(kind == ErrorKind::Refused && message.contains("--template none"), "{message}");
    }
    let both = ModifyVolume { replicas: Some(2), ..to("nvme") };
    assert_eq!(error(modify(&world, both)).0, ErrorKind::Invalid);
    let released = modify(&world, ModifyVolume { replicas: Some(2), ..to("none") }).unwrap().record;
    assert_eq!((released.template, released.replicas, released.class_policy), (None, 2, ClassPolicy::Any));
    assert!(modify(&world, replicas()).is_ok());
}

#[test]
fn invalid_templates_and_changes_of_built_in_ones_are_refused() {
    let (_folder, state) = state();
    let world = mixed(&state);
    let control = &world.control;
    for (request, kind, words) in [
        (template("HYBRID", &[High], None), ErrorKind::Conflict, "'hybrid' is built in"),
        (template("t", &[], None), ErrorKind::Invalid, "0 replicas; 1 to 3"),
        (template("t", &[High; 4], None), ErrorKind::Invalid, "4 replicas; 1 to 3"),
        (template("t", &[High, Low], Some(Medium)), ErrorKind::Invalid, "class medium, of which none"),
    ] {
        let (found, message) = error(control.templates.create_template(request));
        assert!(found == kind && message.contains(words), "{message}");
    }
    control.templates.create_template(template("t", &[High, Low], Some(Low))).unwrap();
    assert_eq!(error(control.templates.create_template(template("t", &[High], None))).0, ErrorKind::Conflict);
    let replicas =
        |classes: &[Class]| ModifyTemplate { replicas: Some(classes.to_vec()), ..ModifyTemplate::default() };
    let (kind, message) = error(control.templates.modify_template(&name("t"), replicas(&[High])));
    assert!(kind == ErrorKind::Invalid && message.contains("class low, of which none"), "{message}");
    assert_eq!(
        error(control.templates.modify_template(&name("nvme"), replicas(&[Low]))).0,
        ErrorKind::Refused
    );
    assert_eq!(error(control.templates.delete_template(&name("nvme"), None)).0, ErrorKind::Refused);
    control.volumes.create_volume(following("t", "vol1", GIB)).unwrap();
    let (kind, message) = error(control.templates.delete_template(&name("t"), None));
    assert!(kind == ErrorKind::Refused && message.contains("the volumes: vol1;"), "{message}");
    let (kind, message) = error(control.templates.modify_template(&name("t"), replicas(&[Medium, Low])));
    assert!(
        kind == ErrorKind::Refused && message.contains("class medium in 1 replica: there are 0"),
        "{message}"
    );
    assert_eq!(
        control.templates.template(&name("t")).unwrap().record.replicas,
        [High, Low],
        "nothing changed"
    );
    modify(&world, to("none")).unwrap();
    control.templates.delete_template(&name("t"), None).unwrap();
    assert_eq!(error(control.templates.template(&name("t"))).0, ErrorKind::NotFound);
}

#[test]
fn new_volumes_are_bound_to_policy_group_of_template() {
    let (_folder, state) = state();
    let world = mixed(&state);
    let control = &world.control;
    control.tenants.create_tenant(name("svm01")).unwrap();
    for tenant in [None, Some("svm01")] {
        control.groups.create_policy_group(group(tenant, "gold", 100, false)).unwrap();
    }
    control.groups.create_policy_group(group(None, "other", 100, false)).unwrap();
    let policy_group = Some(name("gold"));
    control
        .templates
        .create_template(CreateTemplate { policy_group, ..template("t", &[High], None) })
        .unwrap();
    let bound = |request: CreateVolume| {
        let policy = control.volumes.create_volume(request).unwrap().policy;
        policy.map(|group| (group.tenant.to_string(), group.name.to_string()))
    };
    let of = |tenant: &str, group: &str| Some((tenant.to_owned(), group.to_owned()));
    assert_eq!(bound(following("t", "v1", GIB)), of("default", "gold"));
    let elsewhere = CreateVolume { tenant: Some(name("svm01")), ..following("t", "v2", GIB) };
    assert_eq!(bound(elsewhere), of("svm01", "gold"));
    let policy = Some(PolicyChange::Bind(GroupKind::Fixed, name("other")));
    assert_eq!(bound(CreateVolume { policy, ..following("t", "v3", GIB) }), of("default", "other"));
    let policy = Some(PolicyChange::Release(None));
    assert_eq!(bound(CreateVolume { policy, ..following("t", "v4", GIB) }), None);
    control.tenants.create_tenant(name("svm02")).unwrap();
    let without = CreateVolume { tenant: Some(name("svm02")), ..following("t", "v5", GIB) };
    let (kind, message) = error(control.volumes.create_volume(without));
    assert!(kind == ErrorKind::NotFound && message.starts_with("template 't' binds"), "{message}");
}

#[test]
fn template_change_moves_volume_and_continues_after_restart() {
    let (_folder, state) = state();
    let mut world = mixed(&state);
    world.control.volumes.create_volume(following("nvme", "vol1", 3 * GIB)).unwrap();
    for (template, expected) in [("hybrid", [Low, Low, High]), ("hdd", [Low; 3]), ("nvme", [High; 3])] {
        let view = modify(&world, to(template)).unwrap();
        assert_eq!((view.record.template, view.moves.is_some()), (Some(name(template)), true));
        world.control.settle_moves();
        assert!(fewest_good(&world) >= 3);
        world.end();
        world = World::start(&state);
        move_on(&world, 3);
        assert_eq!(sorted_classes(&world), vec![expected.to_vec(); 3], "{template}");
    }
    settle(&world.control);
    assert_eq!(world.control.alarms.alarms(), []);
}

#[test]
fn move_interrupted_before_its_first_step_is_resumed() {
    let (_folder, state) = state();
    let world = mixed(&state);
    for (text, class) in [("slow", Low), ("fast", High)] {
        world.control.templates.create_template(template(text, &[class], None)).unwrap();
    }
    world.control.volumes.create_volume(following("slow", "vol1", 2 * GIB)).unwrap();
    modify(&world, to("fast")).unwrap();
    world.end();
    let world = World::start(&state);
    move_on(&world, 1);
    assert_eq!(sorted_classes(&world), [[High], [High]]);
}

#[test]
fn move_is_reversed_or_stopped_midway() {
    let (_folder, state) = state();
    let world = mixed(&state);
    world.control.volumes.create_volume(following("nvme", "vol1", 4 * GIB)).unwrap();
    let begin = || {
        modify(&world, to("hdd")).unwrap();
        world.control.settle_moves();
        let model = world.control.core.model();
        let lows = model.volumes.values().flat_map(|volume| model.drives_of(&volume.record));
        assert!(lows.into_iter().any(|drive| drive.class == Some(Low)), "it has begun");
    };
    begin();
    modify(&world, to("nvme")).unwrap();
    move_on(&world, 3);
    assert_eq!(sorted_classes(&world), [[High; 3]; 4]);
    begin();
    modify(&world, to("none")).unwrap();
    move_on(&world, 3);
    assert!(sorted_classes(&world).iter().all(|classes| classes.len() == 3), "it stays where it is");
    begin();
    let back = ModifyVolume { replicas: Some(2), io_priority: Some(High), ..to("none") };
    modify(&world, back).unwrap();
    move_on(&world, 2);
    assert_eq!(sorted_classes(&world), [[High; 2]; 4]);
    settle(&world.control);
    assert_eq!(world.control.alarms.alarms(), []);
}

#[test]
fn planned_move_between_classes_raises_no_alarm() {
    let (_folder, state) = state();
    let world = mixed(&state);
    for (drive, zone) in [("l1", "a"), ("l2", "b"), ("l3", "c"), ("h1", "a"), ("h2", "b"), ("h3", "c")] {
        let zone = Some(Some(name(zone)));
        world
            .control
            .drives
            .modify_drive(&name(drive), ModifyDrive { zone, ..ModifyDrive::default() })
            .unwrap();
    }
    let id = world.control.volumes.create_volume(following("nvme", "vol1", 4 * GIB)).unwrap().record.id;
    // New replicas stay stale, so the old replicas stay beside them.
    let resync = BackgroundKind::Resync;
    let ceiling = Some(Throughput { iops: None, bytes_per_second: Some(1) });
    let held_up = BackgroundPolicyChange { ceiling, ..BackgroundPolicyChange::default() };
    world.control.background.modify_background_policy(resync, &held_up, None).unwrap();
    modify(&world, to("hybrid")).unwrap();
    let settle_without_alarm = || {
        world.control.settle_moves();
        assert_eq!(world.control.alarms.alarms(), [], "a move passes through replicas that share a zone");
    };
    wait_until("an extent has four replicas in three zones", || {
        settle_without_alarm();
        classes(&world, &record(&world)).iter().any(|replicas| replicas.len() == 4)
    });
    world.control.background.reset_background_policy(resync, None).unwrap();
    wait_until("all replicas are where they should be", || {
        settle_without_alarm();
        world.control.moves.moves_of(id).is_none()
    });
    assert_eq!(sorted_classes(&world), [[Low, Low, High]; 4]);
    // A replica that remains in the wrong failure domain raises an alarm.
    let zone = Some(Some(name("a")));
    for drive in ["l1", "l2", "l3"] {
        let change = ModifyDrive { zone: zone.clone(), ..ModifyDrive::default() };
        world.control.drives.modify_drive(&name(drive), change).unwrap();
    }
    let alarms = world.control.alarms.alarms();
    assert!(alarms.len() == 1 && alarms[0].message.contains("share a zone"), "{alarms:?}");
}

#[test]
fn modified_template_moves_its_followers_only() {
    let (_folder, state) = state();
    let world = mixed(&state);
    world.control.templates.create_template(template("t", &[Low, Low], None)).unwrap();
    world.control.volumes.create_volume(following("t", "vol1", 2 * GIB)).unwrap();
    let other = world.control.volumes.create_volume(following("hdd", "other", 2 * GIB)).unwrap().record;
    let replicas = Some(vec![High, Low, High]);
    let changed = ModifyTemplate { replicas, ..ModifyTemplate::default() };
    let view = world.control.templates.modify_template(&name("t"), changed).unwrap();
    assert_eq!((view.volumes, record(&world).replicas), (1, 3));
    assert_eq!(world.control.moves.moves_of(other.id), None);
    move_on(&world, 2);
    assert_eq!(sorted_classes(&world), [[Low, High, High]; 2]);
    // The record backups beside the extents have the new template too.
    let before = (record(&world), world.control.templates.template(&name("t")).unwrap().record);
    settle(&world.control);
    world.end();
    std::fs::remove_file(state.join("catalogue.sqlite")).unwrap();
    let world = World::try_start(&state, true).unwrap();
    assert_eq!((record(&world), world.control.templates.template(&name("t")).unwrap().record), before);
    move_on(&world, 3);
    assert_eq!(record(&world), before.0, "nothing is left to do");
}

#[test]
fn replicas_of_read_from_class_are_read_first() {
    let (_folder, state) = state();
    let world = mixed(&state);
    world.control.templates.create_template(template("t", &[Low, High], Some(Low))).unwrap();
    world.control.volumes.create_volume(following("t", "vol1", GIB)).unwrap();
    let first = || {
        let homes = world.control.serving.extents.layout(&record(&world)).unwrap().homes;
        let cheapest = homes.iter().min_by_key(|home| home.read_cost).unwrap().drive.id;
        world.control.core.model().drives[&cheapest].record.class.unwrap()
    };
    assert_eq!(first(), Low);
    let fastest = ModifyTemplate { read_from: Some(None), ..ModifyTemplate::default() };
    world.control.templates.modify_template(&name("t"), fastest).unwrap();
    assert_eq!(first(), High);
    modify(&world, to("hybrid")).unwrap();
    assert_eq!(first(), High);
}
