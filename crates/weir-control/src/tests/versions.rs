//! Tests of object versions: of two changes that were decided on the same version, only one succeeds.

use std::sync::Barrier;

use weir_types::BackgroundKind;

use super::*;
use crate::drives::AddDrive;

type ChangeAt<'a> = Box<dyn Fn(Option<u64>) -> Outcome<u64> + Sync + 'a>;

/// A volume, a policy group of each kind, a tenant, a template, a pool, a drive and a background policy,
/// all of which take changes.
fn world(state: &Path) -> World {
    let world = World::start(state);
    let control = &world.control;
    std::fs::create_dir(state.join("d1")).unwrap();
    let path = state.join("d1");
    control.drives.add_drive(AddDrive { class: Some(Class::Low), ..AddDrive::new(path) }).unwrap();
    control.tenants.create_tenant(name("t")).unwrap();
    control.groups.create_policy_group(group(None, "p", 100, true)).unwrap();
    let terms = weir_types::AdaptiveTerms::new(1000, 1500);
    let adaptive = CreateAdaptivePolicyGroup { tenant: None, name: name("a"), terms };
    control.groups.create_adaptive_policy_group(adaptive).unwrap();
    control.groups.create_policy_group(group(Some("t"), "shared", 100, true)).unwrap();
    let (name, replicas) = (name("m"), vec![Class::Low]);
    control
        .templates
        .create_template(CreateTemplate { name, replicas, read_from: None, policy_group: None })
        .unwrap();
    control.volumes.create_volume(volume(None, "v", GIB)).unwrap();
    control
        .background
        .modify_background_policy(BackgroundKind::Scrub, &BackgroundPolicyChange::default(), None)
        .unwrap();
    world
}

/// A change for each kind of object, different at each call; each answers the version that the object has
/// after it.
fn changes(control: &Control) -> Vec<(&'static str, ChangeAt<'_>)> {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let next = || NEXT.fetch_add(1, Ordering::Relaxed);
    let volume = move |if_version| {
        let size_bytes = GIB + next() * 4096;
        control.volumes.resize_volume(None, &name("v"), size_bytes, true, if_version).map(|view| view.version)
    };
    let access = move |if_version| {
        let is_read_only = Some(!control.views.volume(None, &name("v"))?.record.is_read_only);
        let change = ModifyVolume { is_read_only, if_version, ..ModifyVolume::default() };
        control.volumes.modify_volume(None, &name("v"), change).map(|view| view.version)
    };
    let fixed = move |if_version| {
        let change = group(None, "p", 100 + next(), true).change;
        let change = ModifyPolicyGroup { change, if_version, ..ModifyPolicyGroup::default() };
        control.groups.modify_policy_group(None, &name("p"), change).map(|view| view.version)
    };
    let adaptive = move |if_version| {
        let change =
            AdaptiveChange { expected_iops_per_tb: Some(1000 + next()), ..AdaptiveChange::default() };
        let changed = control.groups.modify_adaptive_policy_group(None, &name("a"), change, if_version);
        changed.map(|view| view.version)
    };
    let tenant = move |if_version| {
        let has_one = control.tenants.tenant(&name("t"))?.default_policy_group.is_some();
        let template = Some(Some(name("shared")).filter(|_| !has_one));
        let change = ModifyTenant { default_policy_group: template, if_version, ..ModifyTenant::default() };
        control.tenants.modify_tenant(&name("t"), change).map(|view| view.version)
    };
    let template = move |if_version| {
        let policy_group = Some(Some(name(&format!("g{}", next()))));
        let change = ModifyTemplate { policy_group, if_version, ..ModifyTemplate::default() };
        control.templates.modify_template(&name("m"), change).map(|view| view.version)
    };
    let pool = move |if_version| {
        let reserve_percent = Some((next() % 50) as u32);
        let change = ModifyPool { reserve_percent, if_version, ..ModifyPool::default() };
        control.pools.modify_pool(&name("low"), change).map(|view| view.version)
    };
    let drive = move |if_version| {
        let rack = Some(Some(name(&format!("r{}", next()))));
        let change = ModifyDrive { rack, if_version, ..ModifyDrive::default() };
        control.drives.modify_drive(&name("d1"), change).map(|view| view.version)
    };
    let background = move |if_version| {
        let change =
            BackgroundPolicyChange { weight: Some(next() as u32), ..BackgroundPolicyChange::default() };
        let changed = control.background.modify_background_policy(BackgroundKind::Scrub, &change, if_version);
        changed.map(|view| view.version)
    };
    vec![
        ("volume's size", Box::new(volume)),
        ("volume", Box::new(access)),
        ("policy group", Box::new(fixed)),
        ("adaptive policy group", Box::new(adaptive)),
        ("tenant", Box::new(tenant)),
        ("template", Box::new(template)),
        ("pool", Box::new(pool)),
        ("drive", Box::new(drive)),
        ("background policy", Box::new(background)),
    ]
}

#[test]
fn version_grows_with_each_change_and_older_version_is_refused() {
    let (_folder, state) = state();
    let world = world(&state);
    for (what, change) in changes(&world.control) {
        let first = change(None).unwrap();
        let second = change(Some(first)).unwrap();
        assert!(second > first && first > 0, "{what}: {first}, {second}");
        let (kind, message) = error(change(Some(first)));
        assert!(
            kind == ErrorKind::VersionMismatch && message.contains(&format!("version {second}")),
            "{message}"
        );
        assert!(message.contains(&format!("for version {first}")), "{what}: {message}");
        assert!(change(Some(second)).is_ok(), "{what}: what was refused changed nothing");
    }
}

#[test]
fn one_of_two_changes_for_same_version_succeeds() {
    let (_folder, state) = state();
    let world = world(&state);
    for (what, change) in changes(&world.control) {
        let seen = change(None).unwrap();
        let both_are_there = Barrier::new(2);
        let attempt = || {
            both_are_there.wait();
            change(Some(seen))
        };
        let outcomes: Vec<Outcome<u64>> = std::thread::scope(|scope| {
            let attempts = [scope.spawn(attempt), scope.spawn(attempt)];
            attempts.map(|attempt| attempt.join().unwrap()).into()
        });
        let (done, refused): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(Result::is_ok);
        assert_eq!((done.len(), refused.len()), (1, 1), "{what}");
        assert!(refused.into_iter().all(|outcome| error(outcome).0 == ErrorKind::VersionMismatch), "{what}");
    }
}

#[test]
fn object_changed_since_it_was_read_is_not_deleted() {
    let (_folder, state) = state();
    let world = world(&state);
    let control = &world.control;
    let request = CreateSnapshots { tenant: None, volumes: vec![name("v")], name: name("s"), freeze: false };
    let snapshot = control.snapshots.create_snapshots(&request).unwrap()[0].version;
    let seen: Vec<u64> = changes(control).iter().map(|(_, change)| change(None).unwrap()).collect();
    changes(control).iter().for_each(|(_, change)| _ = change(None).unwrap());
    let delete = |if_version| DeleteVolume { with_snapshots: true, if_version, ..DeleteVolume::default() };
    let fixed = GroupKind::Fixed;
    for (what, refused) in [
        ("volume", control.volumes.delete_volume(None, &name("v"), delete(Some(seen[1])))),
        (
            "snapshot",
            control.snapshots.delete_snapshot(None, &name("v"), &name("s"), false, Some(snapshot + 1)),
        ),
        (
            "restore",
            control
                .snapshots
                .restore_snapshot(None, &name("v"), &name("s"), false, Some(seen[1]))
                .map(|_| ()),
        ),
        ("group", control.groups.delete_policy_group(fixed, None, &name("p"), Some(seen[2]))),
        (
            "rename",
            control.groups.rename_policy_group(fixed, None, &name("p"), name("q"), Some(seen[2])).map(|_| ()),
        ),
        (
            "adaptive",
            control.groups.delete_policy_group(GroupKind::Adaptive, None, &name("a"), Some(seen[3])),
        ),
        ("tenant", control.tenants.delete_tenant(&name("t"), Some(seen[4]))),
        ("template", control.templates.delete_template(&name("m"), Some(seen[5]))),
        ("drive", control.drives.remove_drive(&name("d1"), Some(seen[7])).map(|_| ())),
        ("background", control.background.reset_background_policy(BackgroundKind::Scrub, Some(seen[8]))),
    ] {
        assert_eq!(error(refused).0, ErrorKind::VersionMismatch, "{what}");
    }
    let now = control.templates.template(&name("m")).unwrap().version;
    control.templates.delete_template(&name("m"), Some(now)).unwrap();
    control.snapshots.delete_snapshot(None, &name("v"), &name("s"), false, Some(snapshot)).unwrap();
    let now = control.views.volume(None, &name("v")).unwrap().version;
    control.volumes.delete_volume(None, &name("v"), delete(Some(now))).unwrap();
}
