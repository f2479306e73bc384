//! Tests of the admission of floors against a real catalogue and real files.

use weir_types::{AdaptiveTerms, Emulation};

use super::*;
use crate::alarms::AlarmSource;
use crate::records::PoolSettings;

/// A daemon with an emulated drive `d1` of 21 000 IOPS, of which floors may have 19 950, and a second drive
/// `d2`.
fn world(state: &Path) -> World {
    let world = World::start(state);
    for drive in ["d1", "d2"] {
        let path = state.join(drive);
        std::fs::create_dir(&path).unwrap();
        let emulation = Some(Emulation::even(21_000, Some(250_000_000), 0));
        let request = AddDrive { emulation, ..AddDrive::new(path) };
        world.control.drives.add_drive(request).unwrap();
    }
    world
}

fn on(drive: &str, text: &str) -> CreateVolume {
    CreateVolume { drive: Some(name(drive)), ..volume(None, text, GIB) }
}

fn bound_to(group: &str, request: CreateVolume) -> CreateVolume {
    CreateVolume { policy: Some(PolicyChange::Bind(GroupKind::Fixed, name(group))), ..request }
}

fn floor(text: &str) -> TermsChange {
    TermsChange { floor: Some(Throughput::parse(text).unwrap()), ..TermsChange::default() }
}

fn raised(text: &str) -> ModifyPolicyGroup {
    ModifyPolicyGroup { change: floor(text), ..ModifyPolicyGroup::default() }
}

/// Makes policy groups, each from its name, its floor, whether it is shared, and an optional parent.
fn make_groups(control: &Control, groups: &[(&str, &str, bool, Option<&str>)]) {
    for (text, rate, is_shared, parent) in groups {
        let request = CreatePolicyGroup {
            tenant: None,
            name: name(text),
            change: floor(rate),
            is_shared: *is_shared,
            parent: parent.map(name),
        };
        control.groups.create_policy_group(request).unwrap();
    }
}

/// All state that a refused change must leave unchanged.
fn everything(control: &Control) -> String {
    let ledgers: Vec<_> =
        control.pools.pools().into_iter().map(|pool| (pool.name, pool.settings, pool.ledger)).collect();
    format!(
        "{}{:?}{ledgers:?}{:?}",
        inventory(control),
        control.tenants.tenant_views(&control.tenants.tenant_names()),
        control.alarms.alarms()
    )
}

fn set_tenant(control: &Control, policy_group: Option<&str>, force: bool) -> Outcome<()> {
    let policy_group = Some(policy_group.map(name));
    let request = ModifyTenant { policy_group, force, ..ModifyTenant::default() };
    control.tenants.modify_tenant(&name("default"), request).map(|_| ())
}

/// The messages of the alarms about pools.
fn alarms(control: &Control) -> Vec<String> {
    let alarms = control.alarms.alarms().into_iter().filter(|alarm| alarm.source == AlarmSource::Ledger);
    alarms.map(|alarm| alarm.message).collect()
}

/// Checks that a change is refused without force and succeeds with force. The alarm after it must name the
/// same sum.
fn refuse_then_force(control: &Control, sum: &str, change: impl Fn(bool) -> Outcome<()>) {
    let before = everything(control);
    let (kind, message) = error(change(false));
    assert!(
        kind == ErrorKind::Refused && message.starts_with("pool 'd1' would be over-committed: "),
        "{message}"
    );
    assert!(message.contains(&format!(" are {sum}; its capacity of 21000IOPS")), "{message}");
    assert!(message.ends_with("--force records it as it is"), "{message}");
    assert_eq!(everything(control), before, "{message}");
    change(true).unwrap();
    let alarms = alarms(control);
    assert!(alarms.len() == 1 && alarms[0].starts_with("pool 'd1' is over-committed: "), "{alarms:?}");
    assert!(alarms[0].contains(&format!(" are {sum}; its capacity of 21000IOPS")), "{alarms:?}");
}

#[test]
fn volume_with_inadmissible_floor_is_refused_unless_forced() {
    let (_folder, state) = state();
    let World { control, .. } = &world(&state);
    make_groups(control, &[("five", "5000IOPS", false, None), ("most", "18000IOPS", false, None)]);
    control.volumes.create_volume(bound_to("five", on("d1", "v1"))).unwrap();
    refuse_then_force(control, "24050IOPS", |force| {
        control.volumes.create_volume(CreateVolume { force, ..bound_to("most", on("d1", "v2")) }).map(|_| ())
    });
    // The bound volume stays as it is, and no further floor is admitted.
    let rename = ModifyVolume { name: Some(name("w2")), ..ModifyVolume::default() };
    control.volumes.modify_volume(None, &name("v2"), rename).unwrap();
    let (_, message) = error(control.volumes.create_volume(bound_to("five", on("d1", "v3"))));
    assert!(message.contains("floors of 23000IOPS bound there plus 5000IOPS asked for"), "{message}");
    control.volumes.create_volume(bound_to("five", on("d2", "v3"))).expect("another pool has room");
    control.volumes.create_volume(on("d1", "v4")).expect("it asks for nothing");
    control.volumes.delete_volume(None, &name("w2"), DeleteVolume::default()).unwrap();
    assert_eq!(alarms(control), Vec::<String>::new(), "gone with its cause");
    refuse_then_force(control, "24050IOPS", |force| {
        control.volumes.modify_volume(None, &name("v4"), ModifyVolume { force, ..bind("most") }).map(|_| ())
    });
    let release = ModifyVolume { policy: Some(PolicyChange::Release(None)), ..ModifyVolume::default() };
    control.volumes.modify_volume(None, &name("v4"), release).unwrap();
    assert_eq!(alarms(control), Vec::<String>::new());
    // A default policy group binds a volume as a named group does.
    let template = ModifyTenant { default_policy_group: Some(Some(name("most"))), ..ModifyTenant::default() };
    control.tenants.modify_tenant(&name("default"), template).expect("it binds nothing by itself");
    refuse_then_force(control, "24050IOPS", |force| {
        control.volumes.create_volume(CreateVolume { force, ..on("d1", "v5") }).map(|_| ())
    });
}

#[test]
fn group_change_with_inadmissible_floor_is_refused_unless_forced() {
    let (_folder, state) = state();
    let World { control, .. } = &world(&state);
    let groups = [("own", "5000IOPS", false, None), ("top", "12000IOPS", true, None)];
    make_groups(control, &groups);
    make_groups(
        control,
        &[("below", "8000IOPS", true, Some("top")), ("beside", "4000IOPS", false, Some("top"))],
    );
    for (text, group) in [("v1", "own"), ("v2", "below"), ("v3", "beside")] {
        control.volumes.create_volume(bound_to(group, on("d1", text))).unwrap();
    }
    let change = |group: &'static str, request: ModifyPolicyGroup| {
        move |force| {
            let request = ModifyPolicyGroup { force, ..request.clone() };
            control.groups.modify_policy_group(None, &name(group), request).map(|_| ())
        }
    };
    refuse_then_force(control, "21051IOPS", change("own", raised("8001IOPS")));
    let (_, message) = error(change("own", raised("8002IOPS"))(false));
    assert!(message.contains("floors of 20001IOPS bound there plus 1IOPS asked for"), "{message}");
    change("own", raised("7950IOPS"))(false).unwrap();
    assert_eq!(alarms(control), Vec::<String>::new());
    // The floor of a group below counts as a part of its parent's floor until the group is moved away.
    change("top", raised("12001IOPS"))(false).unwrap_err();
    let away = ModifyPolicyGroup { parent: Some(None), ..ModifyPolicyGroup::default() };
    refuse_then_force(control, "29000IOPS", change("below", away.clone()));
    let back = ModifyPolicyGroup { parent: Some(Some(name("top"))), ..ModifyPolicyGroup::default() };
    change("below", back)(false).unwrap();
    // A tenant's policy group covers all volumes of the tenant.
    set_tenant(control, Some("own"), false).expect_err("it is not shared");
    make_groups(control, &[("all", "19950IOPS", true, None)]);
    set_tenant(control, Some("all"), false).expect("all that is bound is a part of it");
    assert_eq!(control.pools.pool(&name("d1")).unwrap().ledger.claims.len(), 1);
    let raise = raised("20000IOPS");
    refuse_then_force(control, "21050IOPS", change("all", raise));
    set_tenant(control, None, false).unwrap();
    assert_eq!(alarms(control), Vec::<String>::new());
    refuse_then_force(control, "21050IOPS", |force| set_tenant(control, Some("all"), force));
}

#[test]
fn shared_floor_is_claimed_in_full_on_every_pool_of_members() {
    let (_folder, state) = state();
    let World { control, .. } = &world(&state);
    make_groups(control, &[("all", "12000IOPS", true, None), ("own", "9000IOPS", false, None)]);
    for (text, drive) in [("v1", "d1"), ("v2", "d1"), ("v3", "d2")] {
        control.volumes.create_volume(bound_to("all", on(drive, text))).unwrap();
    }
    for drive in ["d1", "d2"] {
        let ledger = control.pools.pool(&name(drive)).unwrap().ledger;
        assert_eq!(ledger.bound().iops, 12_000);
        let claim = &ledger.claims[0];
        assert_eq!((claim.name.as_str(), claim.origin.as_deref()), ("all", Some("policy group all")));
        let (_, message) = error(control.volumes.create_volume(bound_to("own", on(drive, "v4"))));
        assert!(message.contains(&format!("pool '{drive}' would be over-committed")), "{message}");
    }
    // A change that would over-commit two pools changes neither.
    let before = everything(control);
    assert!(control.groups.modify_policy_group(None, &name("all"), raised("20000IOPS")).is_err());
    assert_eq!(everything(control), before);
    let force = ModifyPolicyGroup { force: true, ..raised("20000IOPS") };
    control.groups.modify_policy_group(None, &name("all"), force).unwrap();
    assert_eq!(alarms(control).len(), 2);
}

#[test]
fn no_floors_or_unknown_capacity_is_always_admitted() {
    let (_folder, state) = state();
    let World { control, .. } = &world(&state);
    make_groups(control, &[("vast", "1000000000IOPS", false, None)]);
    let made = control.volumes.create_volume(bound_to("vast", volume(None, "v1", GIB))).unwrap();
    assert_eq!(made.drives[0].name.as_str(), "default");
    let pool = control.pools.pool(&name("default")).unwrap();
    assert_eq!((pool.ledger.measure.capacity, pool.ledger.bound().iops), (None, 1_000_000_000));
    assert_eq!(pool.summary(), "its capacity is not measured, so floors on it are not guaranteed");
    assert_eq!(alarms(control), Vec::<String>::new());
    // Adaptive policies have ceilings and no floors. Binding them, changing them and resizing their volumes
    // claim nothing.
    let adaptive = Some(PolicyChange::Bind(GroupKind::Adaptive, name("by-size")));
    let terms = AdaptiveTerms::new(1_000_000, 1_000_000).at_least(1_000_000);
    let request = CreateAdaptivePolicyGroup { tenant: None, name: name("by-size"), terms };
    control.groups.create_adaptive_policy_group(request).unwrap();
    control.volumes.create_volume(CreateVolume { policy: adaptive, ..on("d1", "v2") }).unwrap();
    control.volumes.resize_volume(None, &name("v2"), 100 * GIB, false, None).unwrap();
    let change = AdaptiveChange { absolute_iops_min: Some(900_000_000), ..AdaptiveChange::default() };
    control.groups.modify_adaptive_policy_group(None, &name("by-size"), change, None).unwrap();
    control.bindings.follow_used_space();
    assert_eq!(control.pools.pool(&name("d1")).unwrap().ledger.claims, []);
}

fn pool(over_commit: u32, reserve: u32) -> ModifyPool {
    ModifyPool {
        over_commit_percent: Some(over_commit),
        reserve_percent: Some(reserve),
        ..ModifyPool::default()
    }
}

#[test]
fn pool_settings_change_within_bound_floors_and_survive_restart() {
    let (_folder, state) = state();
    let world = world(&state);
    let control = &world.control;
    make_groups(control, &[("own", "20000IOPS", false, None)]);
    let (_, message) = error(control.volumes.create_volume(bound_to("own", on("d1", "v1"))));
    assert!(
        message.contains("up to 19950IOPS more or an over-commit of 101% would be accepted"),
        "{message}"
    );
    control.pools.modify_pool(&name("d1"), pool(100, 4)).unwrap();
    control.volumes.create_volume(bound_to("own", on("d1", "v1"))).unwrap();
    for (request, words) in [
        (pool(100, 5), "floors of 20000IOPS bound there plus 1050IOPS reserved"),
        (pool(99, 4), "its capacity of 21000IOPS times an over-commit of 99% is 20790IOPS"),
        (pool(9, 4), "an over-commit of 9% is not accepted; 10% to 1000% is"),
        (pool(1001, 4), "an over-commit of 1001% is not accepted"),
        (pool(100, 51), "a reserve of 51% is not accepted; 0% to 50% is"),
        (ModifyPool { queue_target: Some(Some(0)), ..pool(100, 4) }, "a queue target of 0 operations is not"),
        (ModifyPool { queue_target: Some(Some(1025)), ..pool(100, 4) }, "1 to 1024 and 'auto' are"),
    ] {
        let before = everything(control);
        let (_, message) = error(control.pools.modify_pool(&name("d1"), request));
        assert!(message.contains(words), "{message}");
        assert_eq!(everything(control), before, "{message}");
    }
    let (kind, message) = error(control.pools.modify_pool(&name("d9"), pool(100, 4)));
    assert_eq!(
        (kind, message.as_str()),
        (ErrorKind::NotFound, "unknown pool 'd9'; there are: default, d1, d2")
    );
    refuse_then_force(control, "21050IOPS", |force| {
        control.pools.modify_pool(&name("d1"), ModifyPool { force, ..pool(100, 5) }).map(|_| ())
    });
    let target = ModifyPool { queue_target: Some(Some(7)), ..ModifyPool::default() };
    let view = control.pools.modify_pool(&name("d1"), target).expect("it has nothing to do with floors");
    assert_eq!(view.depth.unwrap().operations, 7, "it holds at once");
    let (expected, told) = (view.settings, alarms(control));
    assert_eq!(expected, PoolSettings { queue_target: Some(7), ..PoolSettings::default() });
    world.end();
    // The alarm and all pool settings follow from the records.
    let world = World::start(&state);
    let view = world.control.pools.pool(&name("d1")).unwrap();
    assert_eq!((view.settings, view.depth.unwrap().operations), (expected, 7));
    assert_eq!(alarms(&world.control), told);
    world.end();
    for file in ["catalogue.sqlite", "catalogue.sqlite-wal", "catalogue.sqlite-shm"] {
        let _ = std::fs::remove_file(state.join(file));
    }
    let world = World::try_start(&state, true).unwrap();
    let control = &world.control;
    assert_eq!((control.pools.pool(&name("d1")).unwrap().settings, alarms(control)), (expected, told));
    control.pools.modify_pool(&name("d1"), pool(101, 5)).unwrap();
    assert_eq!(alarms(control), Vec::<String>::new());
    let auto = ModifyPool { queue_target: Some(None), ..ModifyPool::default() };
    let depth = control.pools.modify_pool(&name("d1"), auto).unwrap().depth.unwrap();
    assert_ne!(depth.origin, weir_qos::DepthOrigin::Chosen);
}

#[test]
fn emulated_drive_capacity_is_its_random_iops() {
    let (_folder, state) = state();
    let World { control, .. } = &World::start(&state);
    for (text, parameters, most, capacity) in [
        ("disk", "hdd-7200", "76IOPS", "its capacity of 80IOPS"),
        ("served", "iops=1000,latency=3ms,parallel=2", "475IOPS", "its capacity of 500IOPS"),
        ("bytes", "iops=1000,bandwidth=100MB/s,seek=1310720ns", "47500kB/s", "its capacity of 50MB/s"),
    ] {
        let path = state.join(text);
        std::fs::create_dir(&path).unwrap();
        let emulation = Some(Emulation::parse(parameters).unwrap());
        control.drives.add_drive(AddDrive { emulation, ..AddDrive::new(path) }).unwrap();
        let volume = format!("v-{text}");
        make_groups(control, &[(text, most, false, None)]);
        control.volumes.create_volume(bound_to(text, on(text, &volume))).unwrap();
        let more = if most.ends_with("IOPS") { "1IOPS" } else { "1B/s" };
        let more_group = format!("more-{text}");
        make_groups(control, &[(&more_group, more, false, None)]);
        let (_, message) = error(control.volumes.create_volume(bound_to(&more_group, on(text, "w"))));
        assert!(message.contains(capacity), "{message}");
    }
}

#[test]
fn drive_is_added_with_queue_target() {
    let (_folder, state) = state();
    let World { control, .. } = &World::start(&state);
    let path = state.join("d3");
    std::fs::create_dir(&path).unwrap();
    let add = |queue_target| AddDrive { queue_target, ..AddDrive::new(path.clone()) };
    let (_, message) = error(control.drives.add_drive(add(Some(1025))));
    assert!(message.contains("a queue target of 1025 operations is not accepted"), "{message}");
    assert_eq!(std::fs::read_dir(&path).unwrap().count(), 0, "a refusal leaves nothing behind");
    control.drives.add_drive(add(Some(3))).unwrap();
    assert_eq!(control.pools.pool(&name("d3")).unwrap().depth, None, "nobody uses it yet");
    control.volumes.create_volume(on("d3", "v1")).unwrap();
    let depth = control.pools.pool(&name("d3")).unwrap().depth.unwrap();
    assert_eq!((depth.operations, depth.origin), (3, weir_qos::DepthOrigin::Chosen));
    control.volumes.delete_volume(None, &name("v1"), DeleteVolume::default()).unwrap();
    settle(control);
    control.drives.remove_drive(&name("d3"), None).unwrap();
    let (kind, _) = error(control.pools.pool(&name("d3")));
    assert_eq!(kind, ErrorKind::NotFound);
}

/// The place of an entry in a file, at a line of ten times its number.
fn at(section: &'static str, number: usize) -> Place {
    Place { section, number, line: Some(number as u32 * 10) }
}

fn group_entry(number: usize, text: &str, rate: &str, is_shared: bool) -> GroupEntry {
    GroupEntry {
        place: at("policy_groups", number),
        tenant: None,
        name: name(text),
        terms: floor(rate).applied(weir_types::Terms::default()),
        adaptive: None,
        is_shared,
        parent: None,
    }
}

fn binding(number: usize, text: &str, group: &str) -> VolumeEntry {
    let policy = Some((GroupKind::Fixed, name(group)));
    VolumeEntry { place: at("volumes", number), tenant: None, name: name(text), policy }
}

#[test]
fn policy_file_with_inadmissible_floors_is_refused_with_entry_and_line() {
    let (_folder, state) = state();
    let World { control, .. } = &world(&state);
    let kept = || vec![group_entry(1, "own", "6000IOPS", false), group_entry(2, "all", "9000IOPS", true)];
    let apply = |set: &PolicySet, is_dry_run, force| {
        let difference =
            control.policy_sets.apply_policies(set, ApplyPolicies { is_dry_run, force, prune: true });
        difference.map(|difference| difference.changes)
    };
    let groups = |groups| PolicySet { policy_groups: Some(groups), ..PolicySet::default() };
    apply(&groups(kept()), false, false).unwrap();
    control.volumes.create_volume(bound_to("own", on("d1", "v1"))).unwrap();
    for text in ["v2", "v3", "v4"] {
        control.volumes.create_volume(on("d1", text)).unwrap();
    }
    let bindings = |volumes| PolicySet { volumes: Some(volumes), ..PolicySet::default() };
    let raised = |number: usize, entry| {
        let mut all = kept();
        all[number] = entry;
        groups(all)
    };
    let all_of_it = TenantEntry {
        place: at("tenants", 3),
        name: name("default"),
        policy_group: Some(name("vast")),
        default_policy_group: None,
    };
    let vast = [kept(), vec![group_entry(4, "vast", "20000IOPS", true)]].concat();
    for (set, sum, place) in [
        // Of four equal entries, the refusal names the last in the file.
        (
            bindings((1..=4).map(|number| binding(number, &format!("v{number}"), "own")).collect()),
            "25050IOPS",
            "line 40 (volumes entry 4): ",
        ),
        // Existing bindings count first, wherever their entries are.
        (
            bindings(vec![binding(1, "v2", "own"), binding(2, "v3", "all"), binding(3, "v1", "own")]),
            "22050IOPS",
            "line 20 (volumes entry 2): ",
        ),
        (
            raised(0, group_entry(5, "own", "20000IOPS", false)),
            "21050IOPS",
            "line 50 (policy_groups entry 5): ",
        ),
        (
            PolicySet { tenants: Some(vec![all_of_it]), ..groups(vast) },
            "21050IOPS",
            "line 30 (tenants entry 3): ",
        ),
    ] {
        let before = everything(control);
        for is_dry_run in [true, false] {
            let (kind, message) = error(apply(&set, is_dry_run, false));
            assert_eq!(kind, ErrorKind::Refused);
            assert!(message.starts_with(&format!("{place}pool 'd1' would be over-committed: ")), "{message}");
            assert!(message.contains(&format!(" are {sum}; its capacity")), "{message}");
            assert_eq!(everything(control), before, "{message}");
        }
        assert!(!apply(&set, true, true).unwrap().is_empty());
        assert_eq!(everything(control), before, "a dry run changes nothing");
        apply(&set, false, true).unwrap();
        assert!(alarms(control)[0].contains(&format!(" are {sum}; ")), "{:?}", alarms(control));
        let undo = PolicySet { tenants: Some(Vec::new()), ..bindings(vec![binding(1, "v1", "own")]) };
        apply(&PolicySet { policy_groups: Some(kept()), ..undo }, false, false).unwrap();
        assert_eq!(alarms(control), Vec::<String>::new());
    }
}
