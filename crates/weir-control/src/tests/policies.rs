//! Tests of nesting, tenants' policies, default policy groups and adaptive policies, against a real
//! catalogue and real files.

use crate::engine::fake::FakeEngine;
use std::sync::Arc;
use weir_engine_interface::ExportTable;
use weir_types::{AdaptiveTerms, Space};

use super::*;
use weir_types::Scope;

const GB: u64 = 1_000_000_000;
/// Smallest volume size of 100 GB or more, in bytes.
const HUNDRED_GB: u64 = 100_000_002_048;

fn rates(text: &str) -> Option<Throughput> {
    Some(Throughput::parse(text).unwrap())
}

fn total(text: &str) -> LimitsChange {
    LimitsChange { total: rates(text), ..LimitsChange::default() }
}

fn limited(text: &str) -> TermsChange {
    TermsChange { limits: total(text), ..TermsChange::default() }
}

fn under(parent: &str, request: CreatePolicyGroup) -> CreatePolicyGroup {
    CreatePolicyGroup { parent: Some(name(parent)), ..request }
}

fn with(change: TermsChange) -> ModifyPolicyGroup {
    ModifyPolicyGroup { change, ..ModifyPolicyGroup::default() }
}

fn moved(parent: &str) -> ModifyPolicyGroup {
    ModifyPolicyGroup { parent: Some(Some(name(parent))), ..ModifyPolicyGroup::default() }
}

fn adapt(text: &str) -> ModifyVolume {
    ModifyVolume {
        policy: Some(PolicyChange::Bind(GroupKind::Adaptive, name(text))),
        ..ModifyVolume::default()
    }
}

fn adaptive(text: &str, terms: AdaptiveTerms) -> CreateAdaptivePolicyGroup {
    CreateAdaptivePolicyGroup { tenant: None, name: name(text), terms }
}

/// The policy in ONTAP's document.
fn document() -> AdaptiveTerms {
    AdaptiveTerms { peak_space: Space::AllocatedSpace, ..AdaptiveTerms::new(1000, 1500) }
}

/// The levels of a volume, each as `scope name ceiling`.
fn levels(control: &Control, volume: &str) -> Vec<String> {
    let view = control.views.volume(None, &name(volume)).unwrap();
    let describe = |level: &Level| {
        let scope = match &level.scope {
            Scope::Tenant(_) => "tenant",
            Scope::Group(_) => "group",
            Scope::Volume(_) => "volume",
            Scope::Cgroup(_) => "cgroup",
        };
        format!("{scope} {} {}", level.name, level.terms.limits.total)
    };
    view.levels.iter().map(describe).collect()
}

fn ceiling(control: &Control, volume: &str) -> (Option<u64>, String) {
    let view = control.views.volume(None, &name(volume)).unwrap();
    let field = view.effective().into_iter().find(|field| field.name == "ceiling_iops").unwrap();
    (field.value.as_u64(), field.origin)
}

#[test]
fn volume_levels_are_tenant_parents_group_and_volume() {
    let (_folder, state) = state();
    let World { control, .. } = &World::start(&state);
    control.volumes.create_volume(volume(None, "vol1", GIB)).unwrap();
    assert_eq!(levels(control, "vol1"), ["volume vol1 none"]);
    control.groups.create_policy_group(group(None, "top", 9000, true)).unwrap();
    control.groups.create_policy_group(group(None, "middle", 5000, true)).unwrap();
    control.groups.create_policy_group(under("middle", group(None, "own", 7000, false))).unwrap();
    control.volumes.modify_volume(None, &name("vol1"), bind("own")).unwrap();
    assert_eq!(levels(control, "vol1"), ["group middle 5000IOPS", "volume vol1 7000IOPS"]);
    assert_eq!(ceiling(control, "vol1"), (Some(5000), "parent policy group middle".to_owned()));
    let tenant = ModifyTenant {
        policy_group: Some(Some(name("top"))),
        default_policy_group: None,
        ..ModifyTenant::default()
    };
    control.tenants.modify_tenant(&name("default"), tenant).unwrap();
    let all = ["tenant default 9000IOPS", "group middle 5000IOPS", "volume vol1 7000IOPS"];
    assert_eq!(levels(control, "vol1"), all);
    control.groups.modify_policy_group(None, &name("top"), with(limited("100IOPS"))).unwrap();
    assert_eq!(ceiling(control, "vol1"), (Some(100), "policy group top of tenant default".to_owned()));
    // A volume that is bound to the tenant's own group has that level once. A shared group is a level of
    // its own.
    control.volumes.modify_volume(None, &name("vol1"), bind("top")).unwrap();
    assert_eq!(levels(control, "vol1"), ["tenant default 100IOPS", "volume vol1 none"]);
    control.volumes.modify_volume(None, &name("vol1"), bind("middle")).unwrap();
    let shared = ["tenant default 100IOPS", "group middle 5000IOPS", "volume vol1 none"];
    assert_eq!(levels(control, "vol1"), shared);
    let before = inventory(control);
    let release =
        ModifyTenant { policy_group: Some(None), default_policy_group: None, ..ModifyTenant::default() };
    control.tenants.modify_tenant(&name("default"), release).unwrap();
    assert_eq!(levels(control, "vol1"), ["group middle 5000IOPS", "volume vol1 none"]);
    assert_eq!(inventory(control), before, "nothing else changed");
}

#[test]
fn invalid_nesting_is_refused_and_changes_nothing() {
    let (_folder, state) = state();
    let World { control, .. } = &World::start(&state);
    control.tenants.create_tenant(name("svm01")).unwrap();
    control.groups.create_policy_group(group(None, "a", 10, true)).unwrap();
    control.groups.create_policy_group(under("a", group(None, "b", 10, true))).unwrap();
    control.groups.create_policy_group(group(None, "own", 10, false)).unwrap();
    control.groups.create_policy_group(group(Some("svm01"), "elsewhere", 10, true)).unwrap();
    let before = inventory(control);
    for (group, parent, words) in [
        ("a", "b", "stand under themselves: a under b under a"),
        ("a", "a", "a under a"),
        ("a", "own", "'own' is not shared, so 'a' cannot stand under it"),
        ("a", "elsewhere", "unknown policy group 'elsewhere' in tenant 'default'; there is one in: svm01"),
        ("a", "extreme", "'extreme' is adaptive"),
        ("a", "nowhere", "unknown policy group 'nowhere'"),
    ] {
        let (_, message) = error(control.groups.modify_policy_group(None, &name(group), moved(parent)));
        assert!(message.contains(words), "{message}");
    }
    let (kind, message) = error(control.groups.delete_policy_group(GroupKind::Fixed, None, &name("a"), None));
    assert_eq!(kind, ErrorKind::Refused);
    assert!(message.contains("'a' is the parent of: b; release them first"), "{message}");
    assert_eq!(inventory(control), before);
    let free = ModifyPolicyGroup { parent: Some(None), ..ModifyPolicyGroup::default() };
    control.groups.modify_policy_group(None, &name("b"), free).unwrap();
    control.groups.delete_policy_group(GroupKind::Fixed, None, &name("a"), None).unwrap();
}

#[test]
fn nesting_is_bounded_by_depth() {
    let (_folder, state) = state();
    let World { control, .. } = &World::start(&state);
    control.groups.create_policy_group(group(None, "g1", 10, true)).unwrap();
    for depth in 2..=weir_types::control_bounds::GROUP_DEPTH_MAX {
        let parent = format!("g{}", depth - 1);
        control
            .groups
            .create_policy_group(under(&parent, group(None, &format!("g{depth}"), 10, true)))
            .unwrap();
    }
    let (_, message) = error(control.groups.create_policy_group(under("g12", group(None, "g13", 10, true))));
    assert_eq!(message, "policy group 'g13' would be 13 groups deep; 12 is the most");
    control.volumes.create_volume(volume(None, "vol1", GIB)).unwrap();
    control.volumes.modify_volume(None, &name("vol1"), bind("g12")).unwrap();
    assert_eq!(levels(control, "vol1").len(), 13);
}

#[test]
fn floors_above_parent_are_refused_on_bind_create_and_modify() {
    let (_folder, state) = state();
    let World { control, .. } = &World::start(&state);
    let floor = |text| TermsChange { floor: rates(text), ..TermsChange::default() };
    control.groups.create_policy_group(group(None, "top", 2000, true)).unwrap();
    control.groups.modify_policy_group(None, &name("top"), with(floor("1000IOPS"))).unwrap();
    control.groups.create_policy_group(under("top", group(None, "own", 700, false))).unwrap();
    control.groups.modify_policy_group(None, &name("own"), with(floor("600IOPS"))).unwrap();
    let (_, message) = error(control.groups.modify_policy_group(None, &name("own"), with(floor("701IOPS"))));
    assert!(message.contains("floor 701IOPS is above the ceiling 700IOPS"), "{message}");
    for text in ["vol1", "vol2"] {
        control.volumes.create_volume(volume(None, text, GIB)).unwrap();
    }
    control.volumes.modify_volume(None, &name("vol1"), bind("own")).unwrap();
    // A second member would claim the floor a second time.
    let (_, message) = error(control.volumes.modify_volume(None, &name("vol2"), bind("own")));
    assert!(message.contains("(own) are 1200IOPS together, which is above its floor 1000IOPS"), "{message}");
    let policy = Some(PolicyChange::Bind(GroupKind::Fixed, name("own")));
    let (_, message) =
        error(control.volumes.create_volume(CreateVolume { policy, ..volume(None, "vol3", GIB) }));
    assert!(message.contains("1200IOPS together"), "{message}");
    // A lower floor of the parent would break the same rule.
    let (_, message) = error(control.groups.modify_policy_group(None, &name("top"), with(floor("599IOPS"))));
    assert!(message.contains("floor 600IOPS of policy group 'own' is above the floor 599IOPS"), "{message}");
    control.volumes.modify_volume(None, &name("vol1"), bind("own")).expect("it is bound already");
}

#[test]
fn tenant_policy_is_shared_and_fixed_and_default_group_is_for_new_volumes() {
    let (_folder, state) = state();
    let world = World::start(&state);
    let control = &world.control;
    control.groups.create_policy_group(group(None, "own", 50, false)).unwrap();
    control.volumes.create_volume(volume(None, "before", GIB)).unwrap();
    let set = |policy_group: Option<&str>, template: Option<&str>| {
        let change = |text: Option<&str>| text.map(|text| Some(text).filter(|t| *t != "none").map(name));
        let request = ModifyTenant {
            policy_group: change(policy_group),
            default_policy_group: change(template),
            ..ModifyTenant::default()
        };
        control.tenants.modify_tenant(&name("default"), request)
    };
    let (_, message) = error(set(Some("own"), None));
    assert!(message.contains("'own' is not shared, so it cannot be a tenant's"), "{message}");
    let (_, message) = error(set(Some("extreme"), None));
    assert!(message.contains("'extreme' is adaptive"), "{message}");
    for template in ["own", "value"] {
        set(None, Some(template)).unwrap();
        control.volumes.create_volume(volume(None, &format!("with-{template}"), GIB)).unwrap();
    }
    let none = Some(PolicyChange::Release(None));
    control.volumes.create_volume(CreateVolume { policy: none, ..volume(None, "without", GIB) }).unwrap();
    set(None, Some("none")).unwrap();
    control.volumes.create_volume(volume(None, "after", GIB)).unwrap();
    let policies = || {
        let policy =
            |text: &str| control.views.volume(None, &name(text)).unwrap().policy.map(|p| p.name.to_string());
        ["before", "with-own", "with-value", "without", "after"].map(policy)
    };
    let expected = [None, Some("own".to_owned()), Some("value".to_owned()), None, None];
    assert_eq!(policies(), expected);
    set(None, Some("own")).unwrap();
    for text in ["with-own", "with-value"] {
        control.volumes.delete_volume(None, &name(text), DeleteVolume::default()).unwrap();
    }
    let (_, message) = error(control.groups.delete_policy_group(GroupKind::Fixed, None, &name("own"), None));
    assert!(
        message.contains("is that of tenant 'default'; release it first with 'tenant modify"),
        "{message}"
    );
}

#[test]
fn adaptive_policy_follows_resize_at_once() {
    let (_folder, state) = state();
    let World { control, .. } = &World::start(&state);
    control.groups.create_adaptive_policy_group(adaptive("adaptive-policy2", document())).unwrap();
    control.volumes.create_volume(volume(None, "vol2", HUNDRED_GB)).unwrap();
    let view = control.volumes.modify_volume(None, &name("vol2"), adapt("adaptive-policy2")).unwrap();
    assert_eq!(view.policy_limits().unwrap().total, rates("150IOPS").unwrap());
    assert_eq!(ceiling(control, "vol2"), (Some(150), "adaptive policy group adaptive-policy2".to_owned()));
    control.volumes.resize_volume(None, &name("vol2"), 10_000 * GB, false, None).unwrap();
    assert_eq!(ceiling(control, "vol2").0, Some(15_000));
    let change = AdaptiveChange { peak_iops_per_tb: Some(1000), ..AdaptiveChange::default() };
    control.groups.modify_adaptive_policy_group(None, &name("adaptive-policy2"), change, None).unwrap();
    assert_eq!(ceiling(control, "vol2").0, Some(10_000));
    control.volumes.resize_volume(None, &name("vol2"), HUNDRED_GB, true, None).unwrap();
    assert_eq!(levels(control, "vol2"), ["volume vol2 100IOPS"]);
}

#[test]
fn adaptive_policy_follows_used_space() {
    let (_folder, state) = state();
    let world = World::start(&state);
    let control = &world.control;
    let terms =
        AdaptiveTerms { expected_space: Space::UsedSpace, ..AdaptiveTerms::new(1_000_000, 1_000_000) };
    control.groups.create_adaptive_policy_group(adaptive("by-use", terms)).unwrap();
    let id = control.volumes.create_volume(volume(None, "vol1", GIB)).unwrap().record.id;
    control.volumes.modify_volume(None, &name("vol1"), adapt("by-use")).unwrap();
    assert_eq!(ceiling(control, "vol1").0, Some(1));
    let extent = default_store(control).extents(id).join("00000000");
    let file = std::fs::OpenOptions::new().write(true).open(extent).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &vec![7; 8 << 20], 0).unwrap();
    file.sync_all().unwrap();
    let used = default_store(control).used_bytes(id).unwrap();
    assert!(used >= 8 << 20);
    control.bindings.follow_used_space();
    assert_eq!(ceiling(control, "vol1").0, terms.terms(GIB, used).limits.total.iops);
    // A volume that is released or deleted is no longer followed.
    let release = PolicyChange::Release(Some(GroupKind::Adaptive));
    let release = ModifyVolume { policy: Some(release), ..ModifyVolume::default() };
    control.volumes.modify_volume(None, &name("vol1"), release).unwrap();
    assert!(control.core.model().adapted.is_empty());
    control.bindings.follow_used_space();
}

#[test]
fn volume_has_fixed_or_adaptive_policy_and_errors_name_the_option() {
    let (_folder, state) = state();
    let World { control, .. } = &World::start(&state);
    control.groups.create_policy_group(group(None, "policy1", 1000, false)).unwrap();
    control.groups.create_adaptive_policy_group(adaptive("adaptive-policy2", document())).unwrap();
    control.volumes.create_volume(volume(None, "vol1", GIB)).unwrap();
    let (_, message) = error(control.volumes.modify_volume(None, &name("vol1"), bind("adaptive-policy2")));
    assert!(message.contains("is adaptive; 'adaptive-policy-group' and --adaptive-policy-group take it"));
    let (_, message) = error(control.volumes.modify_volume(None, &name("vol1"), adapt("policy1")));
    assert!(message.contains("is not adaptive; 'policy-group' and --policy-group take it"), "{message}");
    control.volumes.modify_volume(None, &name("vol1"), bind("policy1")).unwrap();
    control.volumes.modify_volume(None, &name("vol1"), adapt("adaptive-policy2")).unwrap();
    assert_eq!(control.groups.policy_group(GroupKind::Fixed, None, &name("policy1")).unwrap().workloads, 0);
    let release =
        |kind| ModifyVolume { policy: Some(PolicyChange::Release(kind)), ..ModifyVolume::default() };
    let (_, message) =
        error(control.volumes.modify_volume(None, &name("vol1"), release(Some(GroupKind::Fixed))));
    assert!(message.ends_with("'adaptive-policy2'; --adaptive-policy-group none releases it"), "{message}");
    let (_, message) =
        error(control.groups.delete_policy_group(GroupKind::Adaptive, None, &name("adaptive-policy2"), None));
    assert!(message.contains("--adaptive-policy-group none"), "{message}");
    control.volumes.modify_volume(None, &name("vol1"), release(None)).unwrap();
    control.groups.delete_policy_group(GroupKind::Adaptive, None, &name("adaptive-policy2"), None).unwrap();
    let (kind, _) = error(control.groups.create_adaptive_policy_group(adaptive("policy1", document())));
    assert_eq!(kind, ErrorKind::Conflict, "both kinds have one set of names");
}

#[test]
fn built_in_policy_groups_serve_every_tenant_and_cannot_change() {
    let (_folder, state) = state();
    let world = World::start(&state);
    let control = &world.control;
    control.tenants.create_tenant(name("svm01")).unwrap();
    control.volumes.create_volume(volume(None, "vol1", 1000 * GB)).unwrap();
    control.volumes.modify_volume(None, &name("vol1"), adapt("extreme")).unwrap();
    assert_eq!(ceiling(control, "vol1").0, Some(6144));
    let extreme = name("extreme");
    let refusals = [
        error(control.groups.create_policy_group(group(Some("svm01"), "Extreme", 1, true))),
        error(control.groups.create_adaptive_policy_group(adaptive("extreme", document()))),
        error(control.groups.modify_adaptive_policy_group(None, &extreme, AdaptiveChange::default(), None)),
        error(control.groups.delete_policy_group(GroupKind::Adaptive, None, &extreme, None)),
        error(control.groups.rename_policy_group(GroupKind::Adaptive, None, &extreme, name("x"), None)),
    ];
    refusals.iter().for_each(|(_, message)| assert!(message.contains("built in"), "{message}"));
    let names = |tenant: Option<&str>| {
        let views = control.groups.policy_groups(GroupKind::Adaptive, tenant.map(name).as_ref()).unwrap();
        views.into_iter().map(|view| view.record.name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(names(Some("svm01")), ["extreme", "performance", "value"]);
    assert!(control.core.catalogue.range(keys::POLICY_GROUPS).unwrap().is_empty(), "they are stored nowhere");
    world.end();
    let world = World::start(&state);
    assert_eq!(ceiling(&world.control, "vol1").0, Some(6144));
}

#[test]
fn group_statistics_survive_resize_and_modify() {
    let (_folder, state) = state();
    let World { control, .. } = &World::start(&state);
    control.groups.create_adaptive_policy_group(adaptive("adaptive-policy2", document())).unwrap();
    control.volumes.create_volume(volume(None, "vol1", GIB)).unwrap();
    control.volumes.modify_volume(None, &name("vol1"), adapt("adaptive-policy2")).unwrap();
    let served =
        weir_engine_interface::statistics::Served { bytes: 4096, latency_ns: 9, ..Default::default() };
    let id = control.views.volume(None, &name("vol1")).unwrap().record.id;
    control.core.model().open[&id].statistics().read.record(served);
    let operations = || {
        let samples = control.statistics.policy_group_samples(None, Some(&name("adaptive-policy2"))).unwrap();
        samples[0].totals.read.operations
    };
    assert_eq!(operations(), 1);
    control.volumes.resize_volume(None, &name("vol1"), 2 * GIB, false, None).unwrap();
    let change = AdaptiveChange { peak_iops_per_tb: Some(9000), ..AdaptiveChange::default() };
    control.groups.modify_adaptive_policy_group(None, &name("adaptive-policy2"), change, None).unwrap();
    assert_eq!(operations(), 1);
}

#[test]
fn rebuild_restores_parents_default_groups_and_tenant_policies() {
    let (_folder, state) = state();
    let world = World::start(&state);
    let control = &world.control;
    control.groups.create_policy_group(group(None, "tenants", 9000, true)).unwrap();
    control.groups.create_policy_group(group(None, "top", 9000, true)).unwrap();
    control.groups.create_policy_group(under("top", group(None, "own", 7000, false))).unwrap();
    control.groups.create_adaptive_policy_group(adaptive("template", document())).unwrap();
    control.volumes.create_volume(volume(None, "vol1", GIB)).unwrap();
    control.volumes.create_volume(volume(None, "vol2", GIB)).unwrap();
    control.volumes.modify_volume(None, &name("vol1"), bind("own")).unwrap();
    control.volumes.modify_volume(None, &name("vol2"), adapt("extreme")).unwrap();
    let template = Some(Some(name("template")));
    let tenant = ModifyTenant {
        policy_group: Some(Some(name("tenants"))),
        default_policy_group: template,
        ..ModifyTenant::default()
    };
    control.tenants.modify_tenant(&name("default"), tenant).unwrap();
    let weight = TermsChange { weight: Some(7), ..TermsChange::default() };
    control.groups.modify_policy_group(None, &name("top"), with(weight)).unwrap();
    let before = (
        inventory(control),
        control.tenants.tenant(&name("default")).unwrap().record,
        levels(control, "vol1"),
    );
    world.end();
    for file in ["catalogue.sqlite", "catalogue.sqlite-wal", "catalogue.sqlite-shm"] {
        let _ = std::fs::remove_file(state.join(file));
    }
    let world = World::of(ControlConfig { rebuild_catalogue: true, ..configuration(&state) }).unwrap();
    let control = &world.control;
    let after = (
        inventory(control),
        control.tenants.tenant(&name("default")).unwrap().record,
        levels(control, "vol1"),
    );
    assert_eq!(after, before);
    assert_eq!(control.groups.all_policy_groups(None).unwrap().len(), 4 + 3);
}

#[test]
fn engine_gets_changed_limits_of_a_group_for_all_its_volumes() {
    let (_folder, state) = state();
    let (engine, exports) = (Arc::new(FakeEngine::default()), Arc::new(ExportTable::default()));
    let control = Control::start(&configuration(&state), engine.clone(), exports).unwrap();
    control.groups.create_policy_group(group(None, "p", 100, true)).unwrap();
    let ids = ["vol1", "vol2"].map(|text| {
        control.volumes.create_volume(volume(None, text, GIB)).unwrap();
        control.volumes.modify_volume(None, &name(text), bind("p")).unwrap().record.id
    });
    let limits = |id| -> Vec<Option<u64>> {
        engine.terms_of(id).iter().map(|(_, terms)| terms.limits.total.iops).collect()
    };
    assert!(ids.iter().all(|id| limits(*id).contains(&Some(100))), "{:?}", limits(ids[0]));
    let change = group(None, "p", 200, true).change;
    let change = ModifyPolicyGroup { change, ..ModifyPolicyGroup::default() };
    control.groups.modify_policy_group(None, &name("p"), change).unwrap();
    assert!(ids.iter().all(|id| limits(*id).contains(&Some(200))), "{:?}", limits(ids[0]));
    assert!(!limits(ids[0]).contains(&Some(100)));
}
