//! Tests of volumes whose flushes may be owed, against real files.

use std::time::Duration;

use weir_types::{DriveRole, FlushTerms, IoProfile};

use super::drain::{go_on_until, remove};
use super::*;
use crate::alarms::AlarmSource;
use crate::engine::fake::EngineCall;
use crate::{CloneVolume, FlushTermsChange};

const WINDOW: Option<Duration> = Some(Duration::from_millis(100));

/// Adds a drive of class high in a zone, if it is in one.
fn add(world: &World, state: &Path, text: &str, zone: Option<&str>) -> DriveId {
    let path = state.join(text);
    std::fs::create_dir_all(&path).unwrap();
    let request = AddDrive { zone: zone.map(name), class: Some(Class::High), ..AddDrive::new(path) };
    world.control.drives.add_drive(request).unwrap().record.id
}

/// A world with one drive in each of these zones.
fn with_zones(state: &Path, zones: &[&str]) -> World {
    let world = World::start(state);
    for (at, zone) in zones.iter().enumerate() {
        add(&world, state, &format!("d{at}"), Some(zone));
    }
    world
}

fn owing(text: &str, replicas: u8) -> CreateVolume {
    CreateVolume {
        io_priority: Some(Class::High),
        replicas: Some(replicas),
        io_profile: IoProfile::DbRemote,
        ..volume(None, text, 2 * GIB)
    }
}

fn plain(text: &str) -> CreateVolume {
    CreateVolume { io_profile: IoProfile::None, ..owing(text, 2) }
}

fn in_shared_domain() -> FlushTermsChange {
    FlushTermsChange { may_share_failure_domain: Some(true), ..FlushTermsChange::default() }
}

fn modify(world: &World, text: &str, change: ModifyVolume) -> Outcome<VolumeView> {
    world.control.volumes.modify_volume(None, &name(text), change)
}

fn to(io_profile: IoProfile) -> ModifyVolume {
    ModifyVolume { io_profile: Some(io_profile), ..ModifyVolume::default() }
}

/// The window that the data plane was told.
fn window(world: &World, text: &str) -> Option<Duration> {
    let id = world.control.views.volume(None, &name(text)).unwrap().record.id;
    world.engine.flush_window(id).map(|window| window.length)
}

fn covering_fua() -> FlushTermsChange {
    FlushTermsChange { covers_fua: Some(true), ..FlushTermsChange::default() }
}

/// Whether the window that the data plane was told covers durable requests.
fn covers_fua(world: &World, text: &str) -> bool {
    let id = world.control.views.volume(None, &name(text)).unwrap().record.id;
    world.engine.flush_window(id).unwrap().covers_fua
}

/// The messages about coalesced flushes.
fn alarms(world: &World) -> Vec<String> {
    let alarms = world.control.alarms.alarms().into_iter();
    alarms.filter(|alarm| alarm.source == AlarmSource::CoalescedFlushes).map(|alarm| alarm.message).collect()
}

#[test]
fn replicas_must_fail_apart_unless_the_volume_allows_it() {
    let (_folder, state) = state();
    let world = with_zones(&state, &["a", "a"]);
    let forced = CreateVolume { force: true, ..owing("vol1", 2) };
    let (kind, message) = error(world.control.volumes.create_volume(forced.clone()));
    assert!(kind == ErrorKind::Refused && message.contains("--allow-shared-failure-domain"), "{message}");
    assert!(world.control.views.volume(None, &name("vol1")).is_err(), "nothing is left of it");
    let allowed = CreateVolume { flush_terms: in_shared_domain(), ..forced };
    world.control.volumes.create_volume(allowed).unwrap();
    assert_eq!((window(&world, "vol1"), alarms(&world)), (WINDOW, vec![]));
    world.control.volumes.create_volume(CreateVolume { force: true, ..plain("vol2") }).unwrap();
    assert_eq!(error(modify(&world, "vol2", to(IoProfile::DbRemote))).0, ErrorKind::Refused);
    let with_terms = ModifyVolume { flush_terms: in_shared_domain(), ..to(IoProfile::DbRemote) };
    modify(&world, "vol2", with_terms).unwrap();
    assert_eq!(window(&world, "vol2"), WINDOW);
    add(&world, &state, "d9", Some("b"));
    world.control.volumes.create_volume(owing("vol3", 2)).unwrap();
    assert_eq!(window(&world, "vol3"), WINDOW, "now there are drives in two zones");
}

#[test]
fn drives_without_zones_share_one() {
    let (_folder, state) = state();
    let world = World::start(&state);
    ["d1", "d2"].iter().for_each(|text| _ = add(&world, &state, text, None));
    assert_eq!(error(world.control.volumes.create_volume(owing("vol1", 2))).0, ErrorKind::Refused);
    let allowed = CreateVolume { flush_terms: in_shared_domain(), ..owing("vol1", 2) };
    assert!(world.control.volumes.create_volume(allowed).is_ok());
}

#[test]
fn terms_that_no_volume_can_have_are_refused() {
    let (_folder, state) = state();
    let world = with_zones(&state, &["a", "b"]);
    let (kind, message) = error(world.control.volumes.create_volume(owing("vol1", 1)));
    assert!(kind == ErrorKind::Invalid && message.contains("needs 2 or 3 replicas"), "{message}");
    for window_ms in [0, FlushTerms::WINDOW_MS_MAX + 1] {
        let flush_terms = FlushTermsChange { window_ms: Some(window_ms), ..FlushTermsChange::default() };
        let (kind, message) =
            error(world.control.volumes.create_volume(CreateVolume { flush_terms, ..owing("vol1", 2) }));
        assert!(kind == ErrorKind::Invalid && message.contains("1 to 10000 ms"), "{message}");
    }
    let (kind, message) = error(
        world
            .control
            .volumes
            .create_volume(CreateVolume { flush_terms: in_shared_domain(), ..plain("vol1") }),
    );
    assert!(kind == ErrorKind::Invalid && message.contains("'db_remote'"), "{message}");
    world.control.volumes.create_volume(owing("vol1", 2)).unwrap();
    let fewer = ModifyVolume { replicas: Some(1), ..ModifyVolume::default() };
    let (kind, message) = error(modify(&world, "vol1", fewer.clone()));
    assert!(kind == ErrorKind::Invalid && message.contains("needs 2 or 3 replicas"), "{message}");
    modify(&world, "vol1", ModifyVolume { io_profile: Some(IoProfile::None), ..fewer }).unwrap();
    assert_eq!(window(&world, "vol1"), None);
}

#[test]
fn profile_changes_at_once_and_begins_with_default_terms() {
    let (_folder, state) = state();
    let world = with_zones(&state, &["a", "b"]);
    world.control.volumes.create_volume(plain("vol1")).unwrap();
    assert_eq!(window(&world, "vol1"), None);
    modify(&world, "vol1", to(IoProfile::DbRemote)).unwrap();
    assert_eq!(window(&world, "vol1"), WINDOW);
    let flush_terms = FlushTermsChange { window_ms: Some(50), ..FlushTermsChange::default() };
    modify(&world, "vol1", ModifyVolume { flush_terms, ..ModifyVolume::default() }).unwrap();
    assert_eq!(window(&world, "vol1"), Some(Duration::from_millis(50)));
    world.end();
    let world = World::start(&state);
    assert_eq!(window(&world, "vol1"), Some(Duration::from_millis(50)), "the terms are in the record");
    modify(&world, "vol1", to(IoProfile::None)).unwrap();
    assert_eq!(window(&world, "vol1"), None);
    modify(&world, "vol1", to(IoProfile::DbRemote)).unwrap();
    assert_eq!(window(&world, "vol1"), WINDOW);
    let request = CloneVolume {
        tenant: None,
        source: name("vol1"),
        snapshot: None,
        name: name("twin"),
        policy: None,
        io_profile: None,
        flush_terms: covering_fua(),
        force: false,
    };
    world.control.clones.clone_volume(&request).unwrap();
    assert_eq!(window(&world, "twin"), WINDOW);
    assert!(covers_fua(&world, "twin") && !covers_fua(&world, "vol1"));
    world.end();
    let world = World::start(&state);
    assert!(covers_fua(&world, "twin") && !covers_fua(&world, "vol1"), "it is in the record");
    let fua = ModifyVolume { flush_terms: covering_fua(), ..ModifyVolume::default() };
    modify(&world, "vol1", fua).unwrap();
    assert!(covers_fua(&world, "vol1"), "the data plane is told of a change of this alone");
}

#[test]
fn flushes_wait_for_drives_while_replicas_share_a_failure_domain() {
    let (_folder, state) = state();
    let world = with_zones(&state, &["a", "b"]);
    world.control.volumes.create_volume(owing("vol1", 2)).unwrap();
    let zone = |text: &str| {
        let change = ModifyDrive { zone: Some(Some(name(text))), ..ModifyDrive::default() };
        world.control.drives.modify_drive(&name("d1"), change).unwrap();
        world.control.settle_moves();
    };
    zone("a");
    assert_eq!(window(&world, "vol1"), None);
    assert_eq!(alarms(&world), ["its flushes wait for the drives: replicas share a zone and rack"]);
    zone("c");
    assert_eq!((window(&world, "vol1"), alarms(&world)), (WINDOW, vec![]));
}

#[test]
fn auto_is_db_remote_while_replicas_fail_apart() {
    let (_folder, state) = state();
    let world = with_zones(&state, &["a", "b"]);
    let auto = |text: &str, replicas| CreateVolume { io_profile: IoProfile::Auto, ..owing(text, replicas) };
    world.control.volumes.create_volume(auto("vol1", 2)).unwrap();
    world.control.volumes.create_volume(auto("vol2", 1)).unwrap();
    let derived = |text: &str| {
        let view = world.control.views.volume(None, &name(text)).unwrap();
        assert_eq!(
            (view.record.io_profile, alarms(&world)),
            (IoProfile::Auto, vec![]),
            "nothing was promised"
        );
        (window(&world, text), view.derived_io_profile)
    };
    let zone = |text: &str| {
        let change = ModifyDrive { zone: Some(Some(name(text))), ..ModifyDrive::default() };
        world.control.drives.modify_drive(&name("d1"), change).unwrap();
        world.control.settle_moves();
    };
    assert_eq!(derived("vol1"), (WINDOW, IoProfile::DbRemote));
    assert_eq!(derived("vol2"), (None, IoProfile::None), "it has one replica");
    zone("a");
    assert_eq!(derived("vol1"), (None, IoProfile::None));
    zone("c");
    assert_eq!(derived("vol1"), (WINDOW, IoProfile::DbRemote));
    let seen = world.control.views.automatic_profiles();
    assert_eq!(seen.len(), 1, "the other one has nothing to choose");
    assert_eq!((seen[0].2.as_str(), seen[0].3), ("vol1", IoProfile::DbRemote));
    let fewer = ModifyVolume { replicas: Some(1), ..ModifyVolume::default() };
    modify(&world, "vol1", fewer).unwrap();
    assert_eq!(derived("vol1"), (None, IoProfile::None));
    let (kind, message) = error(modify(
        &world,
        "vol2",
        ModifyVolume { flush_terms: in_shared_domain(), ..ModifyVolume::default() },
    ));
    assert!(kind == ErrorKind::Invalid && message.contains("'db_remote'"), "{message}");
}

#[test]
fn auto_takes_no_place_for_granted() {
    let (_folder, state) = state();
    let world = World::start(&state);
    let rack = |drive: &str, text: &str| {
        let change = ModifyDrive { rack: Some(Some(name(text))), ..ModifyDrive::default() };
        world.control.drives.modify_drive(&name(drive), change).unwrap();
        world.control.settle_moves();
    };
    ["d1", "d2"].iter().for_each(|text| _ = add(&world, &state, text, None));
    let auto = |replicas| CreateVolume { io_profile: IoProfile::Auto, ..owing("vol1", replicas) };
    world.control.volumes.create_volume(auto(2)).unwrap();
    rack("d1", "r1");
    assert_eq!(window(&world, "vol1"), None, "nobody has said where the other drive is");
    rack("d2", "r1");
    assert_eq!(window(&world, "vol1"), None);
    rack("d2", "r2");
    assert_eq!(window(&world, "vol1"), WINDOW);
    world.control.volumes.delete_volume(None, &name("vol1"), DeleteVolume::default()).unwrap();
    world.control.volumes.create_volume(auto(1)).unwrap();
    let more = ModifyVolume { replicas: Some(2), ..ModifyVolume::default() };
    modify(&world, "vol1", more).unwrap();
    assert_eq!(window(&world, "vol1"), None, "each extent has one replica yet");
    go_on_until(&world, || window(&world, "vol1").is_some());
}

#[test]
fn replica_that_comes_into_a_shared_failure_domain_ends_the_window_before() {
    let (_folder, state) = state();
    let world = with_zones(&state, &["a", "b"]);
    world.control.volumes.create_volume(owing("vol1", 2)).unwrap();
    add(&world, &state, "d2", Some("a"));
    remove(&world, "d1").unwrap();
    go_on_until(&world, || window(&world, "vol1").is_none());
    let at_additions = world.engine.windows_at_additions();
    assert!(!at_additions.is_empty() && at_additions.iter().all(Option::is_none), "{at_additions:?}");
}

#[test]
fn alarm_says_that_too_few_replicas_are_in_sync() {
    let (_folder, state) = state();
    let world = with_zones(&state, &["a", "b"]);
    world.control.volumes.create_volume(owing("vol1", 2)).unwrap();
    assert!(alarms(&world).is_empty());
    let drive = world.control.views.volume(None, &name("vol1")).unwrap().record.placement.drives()[0];
    world.engine.fail_drive(drive);
    let alarms = alarms(&world);
    assert!(alarms.len() == 1 && alarms[0].contains("2 of its extents wait for the drives"), "{alarms:?}");
}

#[test]
fn flushes_wait_while_replicas_are_behind_journals() {
    let (_folder, state) = state();
    let world = with_zones(&state, &["a", "b"]);
    for text in ["j1", "j2"] {
        let path = state.join(text);
        std::fs::create_dir_all(&path).unwrap();
        let journal = AddDrive { role: DriveRole::Journal, class: Some(Class::High), ..AddDrive::new(path) };
        world.control.drives.add_drive(journal).unwrap();
    }
    let journaled = CreateVolume { io_profile: IoProfile::Journal, ..owing("vol1", 2) };
    world.control.volumes.create_volume(journaled).unwrap();
    add(&world, &state, "d2", Some("c"));
    modify(&world, "vol1", to(IoProfile::DbRemote)).unwrap();
    assert_eq!(window(&world, "vol1"), None);
    assert_eq!(alarms(&world), ["its flushes wait for the drives: replicas are behind write journals"]);
    go_on_until(&world, || window(&world, "vol1").is_some());
    assert!(alarms(&world).is_empty() && world.engine.windows_at_additions().iter().all(Option::is_none));
    modify(&world, "vol1", to(IoProfile::Journal)).unwrap();
    assert_eq!(window(&world, "vol1"), None);
}

#[test]
fn window_closes_even_if_a_later_step_of_the_change_fails() {
    let (_folder, state) = state();
    let world = with_zones(&state, &["a", "b"]);
    world.control.volumes.create_volume(owing("vol1", 2)).unwrap();
    world.engine.refuse(EngineCall::SetReadOnly, Some("it is busy"));
    let change = ModifyVolume { is_read_only: Some(true), ..to(IoProfile::None) };
    assert!(modify(&world, "vol1", change).is_err());
    assert_eq!(window(&world, "vol1"), None);
}

#[test]
fn records_from_before_keep_their_promise() {
    assert_eq!(IoProfile::default(), IoProfile::None, "a record that names no profile had this one");
    let terms = serde_json::json!({ "window_ms": 50, "may_share_failure_domain": true });
    let terms: FlushTerms = serde_json::from_value(terms).unwrap();
    assert!(!terms.covers_fua && terms.may_share_failure_domain && terms.window_ms == 50);
}
