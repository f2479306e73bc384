//! Tests of applying a policy file, which states all policies at once.

use weir_types::{AdaptiveTerms, BackgroundKind, BackgroundPolicy, Limits, Terms, Weight};

use super::*;

const PLAIN: ApplyPolicies = ApplyPolicies { is_dry_run: false, force: false, prune: true };
const DRY: ApplyPolicies = ApplyPolicies { is_dry_run: true, force: false, prune: true };

fn place(section: &'static str, number: usize) -> Place {
    Place { section, number, line: Some(number as u32 * 10) }
}

fn entry(number: usize, text: &str, iops: u64) -> GroupEntry {
    let total = Throughput { iops: Some(iops), bytes_per_second: None };
    GroupEntry {
        place: place("policy_groups", number),
        tenant: None,
        name: name(text),
        terms: Terms::limited(Limits { total, ..Limits::default() }),
        adaptive: None,
        is_shared: true,
        parent: None,
    }
}

fn by_size(number: usize, text: &str) -> GroupEntry {
    let adaptive = Some(AdaptiveTerms::new(1000, 1500));
    let place = place("adaptive_policy_groups", number);
    GroupEntry { place, terms: Terms::default(), adaptive, is_shared: false, ..entry(1, text, 1) }
}

fn binding(number: usize, text: &str, policy: Option<(GroupKind, &str)>) -> VolumeEntry {
    let policy = policy.map(|(kind, text)| (kind, name(text)));
    VolumeEntry { place: place("volumes", number), tenant: None, name: name(text), policy }
}

fn of_tenant(policy_group: Option<&str>, default_policy_group: Option<&str>) -> TenantEntry {
    let (policy_group, default_policy_group) = (policy_group.map(name), default_policy_group.map(name));
    TenantEntry { place: place("tenants", 1), name: name("default"), policy_group, default_policy_group }
}

/// A policy set with an entry of every kind, for two volumes.
fn set() -> PolicySet {
    use GroupKind::{Adaptive, Fixed};
    let below = GroupEntry { parent: Some(name("top")), is_shared: false, ..entry(2, "below", 500) };
    PolicySet {
        version: None,
        tenants: Some(vec![of_tenant(None, Some("by-size"))]),
        policy_groups: Some(vec![entry(1, "top", 1000), below]),
        adaptive_policy_groups: Some(vec![by_size(1, "by-size")]),
        volumes: Some(vec![
            binding(1, "vol1", Some((Fixed, "below"))),
            binding(2, "vol2", Some((Adaptive, "value"))),
        ]),
        background_policies: None,
    }
}

fn world(state: &Path) -> World {
    let world = World::start(state);
    for text in ["vol1", "vol2"] {
        world.control.volumes.create_volume(volume(None, text, GIB)).unwrap();
    }
    world
}

#[test]
fn policy_set_applies_as_a_whole_and_is_idempotent() {
    let (_folder, state) = state();
    let world = world(&state);
    let control = &world.control;
    control.groups.create_policy_group(group(None, "surplus", 1, true)).unwrap();
    control.volumes.modify_volume(None, &name("vol1"), bind("surplus")).unwrap();
    let before = inventory(control);
    let subjects = [
        "~ tenant default",
        "+ adaptive policy group default/by-size",
        "+ policy group default/below",
        "- policy group default/surplus",
        "+ policy group default/top",
        "~ volume vol1",
        "~ volume vol2",
    ];
    let expected = control.policy_sets.apply_policies(&set(), DRY).unwrap().changes;
    assert_eq!(expected.iter().map(|line| line.split(": ").next().unwrap()).collect::<Vec<_>>(), subjects);
    assert!(
        expected[2].contains("limits.total.iops 500, ") && expected[2].contains("parent top"),
        "{expected:?}"
    );
    for line in [
        "~ tenant default: default_policy_group none -> by-size",
        "~ volume vol1: qos_policy_group surplus -> below",
        "~ volume vol2: qos_policy_group none -> value",
    ] {
        assert!(expected.iter().any(|other| other == line), "{line} in {expected:?}");
    }
    assert_eq!(inventory(control), before, "a dry run changes nothing");
    assert_eq!(control.policy_sets.apply_policies(&set(), PLAIN).unwrap().changes, expected);
    let levels = control.views.volume(None, &name("vol1")).unwrap().levels;
    let names: Vec<_> = levels.iter().map(|level| level.name.to_string()).collect();
    assert_eq!(names, ["top", "vol1"]);
    assert_eq!(control.policy_sets.apply_policies(&set(), PLAIN).unwrap().changes, Vec::<String>::new());
    let after = inventory(control);
    let next = control.groups.create_policy_group(group(None, "next", 1, true)).unwrap();
    assert_eq!(next.record.number, 5, "numbers are not used again");
    control.groups.delete_policy_group(GroupKind::Fixed, None, &name("next"), None).unwrap();
    world.end();
    let world = World::start(&state);
    assert_eq!(inventory(&world.control), after);
}

#[test]
fn background_policies_are_applied_with_the_others() {
    let (_folder, state) = state();
    let world = World::start(&state);
    let weighing = |weight, number| BackgroundEntry {
        place: place("background_policies", number),
        kind: BackgroundKind::Reclaim,
        policy: BackgroundPolicy { weight: Weight(weight), ..BackgroundPolicy::default() },
    };
    let applied = |entries: &[BackgroundEntry]| {
        let set = PolicySet { background_policies: Some(entries.to_vec()), ..PolicySet::default() };
        world.control.policy_sets.apply_policies(&set, PLAIN).map(|difference| difference.changes)
    };
    assert_eq!(applied(&[weighing(10, 1)]).unwrap(), Vec::<String>::new(), "it is the built-in one");
    assert_eq!(applied(&[weighing(50, 1)]).unwrap(), ["~ background policy reclaim: weight 10 -> 50"]);
    for (entries, words) in [
        (vec![weighing(0, 1)], "line 10 (background_policies entry 1): weight 0 is not accepted"),
        (
            vec![weighing(1, 1), weighing(2, 2)],
            "line 20 (background_policies entry 2): 'reclaim' is there twice",
        ),
    ] {
        let (_, message) = error(applied(&entries));
        assert!(message.contains(words), "{message}");
    }
    assert_eq!(
        world.control.policy_sets.apply_policies(&PolicySet::default(), PLAIN).unwrap().changes,
        Vec::<String>::new()
    );
    world.end();
    let world = World::start(&state);
    let policy = || world.control.background.background_policies().remove(0);
    assert_eq!((policy().policy.weight.0, policy().is_built_in), (50, false));
    let none = PolicySet { background_policies: Some(Vec::new()), ..PolicySet::default() };
    let difference = world.control.policy_sets.apply_policies(&none, PLAIN).unwrap().changes;
    assert_eq!(difference, ["~ background policy reclaim: weight 50 -> 10"]);
    assert!(policy().is_built_in);
}

#[test]
fn absent_sections_change_nothing() {
    let (_folder, state) = state();
    let world = world(&state);
    world.control.policy_sets.apply_policies(&set(), PLAIN).unwrap();
    let before = inventory(&world.control);
    assert_eq!(
        world.control.policy_sets.apply_policies(&PolicySet::default(), PLAIN).unwrap().changes,
        Vec::<String>::new()
    );
    let only = PolicySet { volumes: Some(Vec::new()), ..PolicySet::default() };
    assert_eq!(world.control.policy_sets.apply_policies(&only, PLAIN).unwrap().changes.len(), 2);
    assert_ne!(inventory(&world.control), before);
}

#[test]
fn one_bad_entry_among_a_hundred_is_named_and_nothing_changes() {
    let (_folder, state) = state();
    let world = world(&state);
    let control = &world.control;
    control.groups.create_policy_group(group(None, "old", 1, false)).unwrap();
    control.volumes.modify_volume(None, &name("vol1"), bind("old")).unwrap();
    let before = inventory(control);
    let hundred = || (1..=100).map(|number| entry(number, &format!("g{number}"), 1000)).collect::<Vec<_>>();
    let with = |number: usize, change: &dyn Fn(GroupEntry) -> GroupEntry| {
        let mut groups = hundred();
        groups[number - 1] = change(groups[number - 1].clone());
        PolicySet { policy_groups: Some(groups), volumes: Some(Vec::new()), ..PolicySet::default() }
    };
    let weightless = Terms { weight: weir_types::Weight(0), ..Terms::default() };
    let high_floor =
        Terms { floor: Throughput { iops: Some(2000), bytes_per_second: None }, ..Terms::default() };
    let binding = |entry| PolicySet { volumes: Some(vec![entry]), ..with(1, &|entry| entry) };
    for (set, words) in [
        (
            with(57, &|entry| GroupEntry { terms: weightless, ..entry }),
            "line 570 (policy_groups entry 57): weight 0",
        ),
        (
            with(99, &|entry| GroupEntry { name: name("g1"), ..entry }),
            "line 990 (policy_groups entry 99): policy group 'g1'",
        ),
        (
            with(3, &|entry| GroupEntry { name: name("value"), ..entry }),
            "line 30 (policy_groups entry 3): policy group 'value' is built in",
        ),
        (
            with(4, &|entry| GroupEntry { parent: Some(name("g4")), ..entry }),
            "line 40 (policy_groups entry 4): policy groups would stand under themselves",
        ),
        (
            with(5, &|entry| GroupEntry { parent: Some(name("g6")), terms: high_floor, ..entry }),
            "line 50 (policy_groups entry 5): floor 2000IOPS of policy group 'g5' is above the ceiling 1000IOPS of 'g6'",
        ),
        (
            with(6, &|entry| GroupEntry { parent: Some(name("nowhere")), ..entry }),
            "line 60 (policy_groups entry 6): there would be no policy group 'nowhere'",
        ),
        (
            with(7, &|entry| GroupEntry { tenant: Some(name("nobody")), ..entry }),
            "line 70 (policy_groups entry 7): unknown tenant 'nobody'",
        ),
        (
            with(8, &|entry| GroupEntry { name: name("old"), ..entry }),
            "line 80 (policy_groups entry 8): whether policy group 'old' is shared (false)",
        ),
        (binding(super::apply::binding(2, "vol9", None)), "line 20 (volumes entry 2): unknown volume 'vol9'"),
        (
            binding(super::apply::binding(1, "vol2", Some((GroupKind::Fixed, "extreme")))),
            "line 10 (volumes entry 1): policy group 'extreme' is adaptive",
        ),
        (
            PolicySet { volumes: None, ..with(1, &|entry| entry) },
            "policy group 'old' of tenant 'default' is not in the file and would be removed, but volume 'vol1' still has it",
        ),
    ] {
        let (_, message) = error(control.policy_sets.apply_policies(&set, PLAIN));
        assert!(message.contains(words), "{message}");
        assert_eq!(inventory(control), before, "{message}");
    }
}

#[test]
fn changed_policy_group_is_reported_field_by_field() {
    let (_folder, state) = state();
    let world = world(&state);
    world.control.policy_sets.apply_policies(&set(), PLAIN).unwrap();
    let mut changed = set();
    let groups = changed.policy_groups.as_mut().unwrap();
    groups[1] = GroupEntry { parent: None, ..entry(2, "below", 700) };
    groups[1].is_shared = false;
    let told = world.control.policy_sets.apply_policies(&changed, DRY).unwrap().changes;
    assert_eq!(told, ["~ policy group default/below: limits.total.iops 500 -> 700, parent top -> none"]);
}

#[test]
fn apply_refuses_objects_changed_since_export_unless_forced() {
    let (_folder, state) = state();
    let world = world(&state);
    let control = &world.control;
    control.policy_sets.apply_policies(&set(), PLAIN).unwrap();
    let exported = PolicySet { version: Some(control.policy_sets.policies_version()), ..set() };
    let unversioned = set();
    let faster = TermsChange {
        limits: LimitsChange {
            total: Some(Throughput { iops: Some(7000), bytes_per_second: None }),
            ..LimitsChange::default()
        },
        ..TermsChange::default()
    };
    let change = ModifyPolicyGroup { change: faster, ..ModifyPolicyGroup::default() };
    let changed = control.groups.modify_policy_group(None, &name("top"), change).unwrap();
    for how in [PLAIN, DRY] {
        let (kind, message) = error(control.policy_sets.apply_policies(&exported, how));
        assert_eq!(kind, ErrorKind::VersionMismatch);
        assert!(
            message.contains("policy group 'top' was changed since the export: it has version"),
            "{message}"
        );
    }
    let terms = |text| control.groups.policy_group(GroupKind::Fixed, None, &name(text)).unwrap().record.terms;
    assert_eq!(terms("top"), changed.record.terms, "the newer change stays");
    // An object that did not change since the export is changed.
    let mut elsewhere = exported.clone();
    elsewhere.policy_groups = Some(vec![GroupEntry { is_shared: true, ..entry(1, "new", 5) }]);
    let left = ApplyPolicies { prune: false, ..PLAIN };
    let made = control.policy_sets.apply_policies(&elsewhere, left).unwrap().changes;
    assert!(made.len() == 1 && made[0].starts_with("+ policy group default/new"), "{made:?}");
    assert_eq!(
        control
            .policy_sets
            .apply_policies(&exported, ApplyPolicies { force: true, ..left })
            .unwrap()
            .changes
            .len(),
        1
    );
    assert_eq!(control.policy_sets.apply_policies(&unversioned, left).unwrap().changes, Vec::<String>::new());
}

#[test]
fn apply_without_prune_deletes_nothing_and_lists_leftovers() {
    let (_folder, state) = state();
    let world = world(&state);
    let control = &world.control;
    control.policy_sets.apply_policies(&set(), PLAIN).unwrap();
    let before = inventory(control);
    let nothing = PolicySet {
        version: None,
        tenants: Some(Vec::new()),
        policy_groups: Some(Vec::new()),
        adaptive_policy_groups: Some(Vec::new()),
        volumes: Some(Vec::new()),
        background_policies: Some(Vec::new()),
    };
    let difference =
        control.policy_sets.apply_policies(&nothing, ApplyPolicies { prune: false, ..PLAIN }).unwrap();
    assert_eq!(difference.changes, Vec::<String>::new());
    let mut left = difference.left;
    left.sort();
    let expected = [
        "adaptive policy group default/by-size",
        "binding of volume vol1",
        "binding of volume vol2",
        "policies of tenant default",
        "policy group default/below",
        "policy group default/top",
    ];
    assert_eq!(left, expected);
    assert_eq!(inventory(control), before);
    let pruned = control.policy_sets.apply_policies(&nothing, PLAIN).unwrap();
    assert_eq!((pruned.changes.len(), pruned.left.len()), (6, 0));
}
