//! Tests of control against a real catalogue and real files in a temporary folder.

mod apply;
mod background;
mod classes;
mod coalesced_flushes;
mod drain;
mod engine_faults;
mod formats;
mod io_profile;
mod journal_drives;
mod lost_writes;
mod measurements;
mod policies;
mod pools;
mod record_backups;
mod replicas;
mod returning;
mod snapshots;
mod templates;
mod versions;

use std::path::{Path, PathBuf};

use weir_types::bounds::{EXTENT_BYTES, VOLUME_SIZE_BYTES_MAX};
use weir_types::{Class, ExtentIndex, Name, Throughput, VolumeId};

use super::catalogue::SqliteCatalogue;
use super::records::{VolumeState, keys};
use super::*;
use crate::catalogue::{Catalogue, Transaction};
use crate::records::VolumeRecord;
pub(crate) use crate::testing::*;
pub(crate) use weir_testkit::wait::{origin, wait_until};
use weir_types::DriveId;

const GIB: u64 = 1 << 30;

impl Control {
    /// All volumes, or those of one tenant, by tenant and name.
    fn volumes(&self, tenant: Option<&Name>) -> Outcome<Vec<VolumeView>> {
        Ok(self.views.volume_views(&self.views.volume_ids(tenant)?))
    }
}

pub(super) fn state() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    (folder, path)
}

fn group(tenant: Option<&str>, text: &str, iops: u64, is_shared: bool) -> CreatePolicyGroup {
    let total = Some(Throughput { iops: Some(iops), bytes_per_second: None });
    let limits = LimitsChange { total, ..LimitsChange::default() };
    let change = TermsChange { limits, ..TermsChange::default() };
    CreatePolicyGroup { tenant: tenant.map(name), name: name(text), change, is_shared, parent: None }
}

fn bind(text: &str) -> ModifyVolume {
    ModifyVolume { policy: Some(PolicyChange::Bind(GroupKind::Fixed, name(text))), ..ModifyVolume::default() }
}

/// The files of the drive in the state folder.
fn default_store(control: &Control) -> weir_store::Store {
    control.core.store(DriveId::DEFAULT).unwrap()
}

/// The faults of extents of a volume on a drive.
pub(super) fn check_extents(
    extents: &Path,
    indices: impl Iterator<Item = ExtentIndex>,
) -> Vec<weir_store::ExtentFault> {
    indices.filter_map(|index| weir_store::extent_fault(extents, index)).collect()
}

fn folders(state: &Path) -> usize {
    std::fs::read_dir(state.join("drive/volumes")).unwrap().count()
}

pub(super) fn error<T>(outcome: Outcome<T>) -> (ErrorKind, String) {
    let error = outcome.err().expect("an error");
    (error.kind, error.message)
}

#[test]
fn volume_is_created_listed_and_deleted() {
    let (_folder, state) = state();
    let world = World::start(&state);
    let view = world.control.volumes.create_volume(volume(None, "vol1", 2 * GIB)).unwrap();
    assert_eq!((view.record.io_priority, view.record.state), (Class::Low, VolumeState::Online));
    let export = world.exports.find("vol1").unwrap();
    assert_eq!((export.size_bytes, export.volume), (2 * GIB, view.record.id));
    assert_eq!(world.control.volumes(None).unwrap().len(), 1);
    world.control.volumes.delete_volume(None, &name("vol1"), DeleteVolume::default()).unwrap();
    assert_eq!(world.exports.find("vol1"), None);
    settle(&world.control);
    assert_eq!(folders(&state), 0);
    assert_eq!(error(world.control.views.volume(None, &name("vol1"))).0, ErrorKind::NotFound);
}

#[test]
fn bad_size_is_refused_with_nearest_accepted_sizes() {
    let (_folder, state) = state();
    let world = World::start(&state);
    for (size, words) in [
        (0, "size 0 is not accepted; the smallest volume has 4096 bytes"),
        (5000, "size 5000B is not a multiple of 4096 bytes; 4096B or 8192B would be accepted"),
        (1, "size 1B is not a multiple of 4096 bytes; 4096B would be accepted"),
        (VOLUME_SIZE_BYTES_MAX + 4096, "is beyond the largest volume of 64TiB"),
        (u64::MAX, "is beyond the largest volume of 64TiB"),
    ] {
        let (kind, message) = error(world.control.volumes.create_volume(volume(None, "vol1", size)));
        assert!(kind == ErrorKind::Invalid && message.contains(words), "{message}");
    }
    world.control.volumes.create_volume(volume(None, "vol1", GIB)).unwrap();
    let (_, message) = error(world.control.volumes.resize_volume(None, &name("vol1"), 0, true, None));
    assert!(message.contains("size 0"), "{message}");
    let (kind, message) = error(world.control.volumes.resize_volume(None, &name("vol1"), 4096, false, None));
    assert!(kind == ErrorKind::Refused && message.contains("has 1GiB; shrinking it to 4KiB"), "{message}");
}

#[test]
fn name_without_tenant_means_default_tenant() {
    let (_folder, state) = state();
    let World { control, .. } = &World::start(&state);
    for tenant in ["svm01", "svm02"] {
        control.tenants.create_tenant(name(tenant)).unwrap();
        control.volumes.create_volume(volume(Some(tenant), "both", GIB)).unwrap();
    }
    control.volumes.create_volume(volume(Some("svm02"), "only", GIB)).unwrap();
    let tenant_of = |tenant: Option<&str>, text: &str| {
        let found = control.views.volume(tenant.map(name).as_ref(), &name(text));
        found.map(|view| view.record.tenant.to_string())
    };
    assert_eq!(tenant_of(Some("svm01"), "both").unwrap(), "svm01");
    for (tenant, volume, words) in [
        (
            None,
            "only",
            "unknown volume 'only' in tenant 'default'; there is one in: svm02, which --tenant names",
        ),
        (None, "both", "unknown volume 'both' in tenant 'default'; there is one in: svm01, svm02, which"),
        (Some("svm01"), "only", "unknown volume 'only' in tenant 'svm01'; there is one in: svm02, which"),
    ] {
        let (kind, message) = error(tenant_of(tenant, volume));
        assert!(kind == ErrorKind::NotFound && message.contains(words), "{message}");
    }
    control.volumes.create_volume(volume(None, "both", GIB)).unwrap();
    assert_eq!(tenant_of(None, "both").unwrap(), "default");
    let (kind, message) = error(control.volumes.create_volume(volume(None, "both", GIB)));
    assert_eq!(
        (kind, message.as_str()),
        (ErrorKind::Conflict, "volume 'both' exists already in tenant 'default'")
    );
    let (kind, message) = error(control.volumes.create_volume(volume(Some("svm9"), "x", GIB)));
    assert_eq!(kind, ErrorKind::NotFound);
    assert_eq!(message, "unknown tenant 'svm9'; there are: default, svm01, svm02");
}

#[test]
fn tenant_with_volumes_or_groups_is_not_deleted() {
    let (_folder, state) = state();
    let World { control, .. } = &World::start(&state);
    control.tenants.create_tenant(name("svm01")).unwrap();
    assert_eq!(error(control.tenants.create_tenant(name("svm01"))).0, ErrorKind::Conflict);
    control.groups.create_policy_group(group(Some("svm01"), "policy1", 5, true)).unwrap();
    let (kind, message) = error(control.tenants.delete_tenant(&name("svm01"), None));
    assert_eq!((kind, message.contains("policy groups: policy1")), (ErrorKind::Refused, true), "{message}");
    control
        .groups
        .delete_policy_group(GroupKind::Fixed, Some(&name("svm01")), &name("policy1"), None)
        .unwrap();
    control.tenants.delete_tenant(&name("svm01"), None).unwrap();
    assert_eq!(error(control.tenants.delete_tenant(&name("default"), None)).0, ErrorKind::Refused);
    assert_eq!(error(control.tenants.delete_tenant(&name("svm01"), None)).0, ErrorKind::NotFound);
}

#[test]
fn policy_groups_bind_within_tenant_and_are_deleted_only_unbound() {
    let (_folder, state) = state();
    let World { control, .. } = &World::start(&state);
    control.tenants.create_tenant(name("svm01")).unwrap();
    control.groups.create_policy_group(group(Some("svm01"), "policy1", 1000, false)).unwrap();
    control.volumes.create_volume(volume(Some("svm01"), "vol1", GIB)).unwrap();
    control.volumes.create_volume(volume(None, "vol2", GIB)).unwrap();
    let svm01 = name("svm01");
    let owner = Some(&svm01);
    let (kind, message) = error(control.volumes.modify_volume(None, &name("vol2"), bind("policy1")));
    assert_eq!(kind, ErrorKind::NotFound);
    assert_eq!(
        message,
        "unknown policy group 'policy1' in tenant 'default'; there is one in: svm01, which --tenant names"
    );
    let view = control.volumes.modify_volume(owner, &name("vol1"), bind("policy1")).unwrap();
    assert_eq!(view.policy.unwrap().name, name("policy1"));
    assert_eq!(control.groups.policy_group(GroupKind::Fixed, owner, &name("policy1")).unwrap().workloads, 1);
    let (kind, message) =
        error(control.groups.delete_policy_group(GroupKind::Fixed, owner, &name("policy1"), None));
    assert_eq!(
        (kind, message.contains("bound to the volumes: vol1;")),
        (ErrorKind::Refused, true),
        "{message}"
    );
    let release = ModifyVolume {
        policy: Some(PolicyChange::Release(Some(GroupKind::Fixed))),
        ..ModifyVolume::default()
    };
    control.volumes.modify_volume(owner, &name("vol1"), release).unwrap();
    control.groups.delete_policy_group(GroupKind::Fixed, owner, &name("policy1"), None).unwrap();
    let (_, message) = error(control.volumes.modify_volume(owner, &name("vol1"), bind("policy1")));
    assert_eq!(message, "unknown policy group 'policy1' in tenant 'svm01'");
}

#[test]
fn modify_policy_group_changes_only_given_fields_and_never_sharing() {
    let (_folder, state) = state();
    let World { control, .. } = &World::start(&state);
    control.groups.create_policy_group(group(None, "policy1", 1000, false)).unwrap();
    let read = Throughput { iops: None, bytes_per_second: Some(5_000_000) };
    let limits = LimitsChange { read: Some(read), ..LimitsChange::default() };
    let change = TermsChange { limits, ..TermsChange::default() };
    let change = ModifyPolicyGroup { change, is_shared: Some(false), ..ModifyPolicyGroup::default() };
    let limits =
        control.groups.modify_policy_group(None, &name("policy1"), change).unwrap().record.terms.limits;
    assert_eq!((limits.total.iops, limits.read), (Some(1000), read));
    let shared = ModifyPolicyGroup { is_shared: Some(true), ..ModifyPolicyGroup::default() };
    let (kind, message) = error(control.groups.modify_policy_group(None, &name("policy1"), shared));
    assert_eq!((kind, message.contains("cannot be changed")), (ErrorKind::Refused, true), "{message}");
    control.groups.create_policy_group(group(None, "policy2", 1000, true)).unwrap();
    assert_eq!(
        error(control.groups.rename_policy_group(
            GroupKind::Fixed,
            None,
            &name("policy1"),
            name("policy2"),
            None
        ))
        .0,
        ErrorKind::Conflict
    );
    let renamed = control
        .groups
        .rename_policy_group(GroupKind::Fixed, None, &name("policy1"), name("gold"), None)
        .unwrap();
    assert_eq!((renamed.record.number, renamed.record.terms.limits), (1, limits));
    assert_eq!(
        error(control.groups.policy_group(GroupKind::Fixed, None, &name("policy1"))).0,
        ErrorKind::NotFound
    );
    control.groups.delete_policy_group(GroupKind::Fixed, None, &name("policy2"), None).unwrap();
    let third = control.groups.create_policy_group(group(None, "policy3", 1, true)).unwrap();
    assert_eq!(third.record.number, 3, "numbers are not used again");
}

#[test]
fn resize_adds_and_removes_extents_and_updates_export() {
    let (_folder, state) = state();
    let world = World::start(&state);
    let id = world.control.volumes.create_volume(volume(None, "vol1", GIB)).unwrap().record.id;
    let extents = || std::fs::read_dir(default_store(&world.control).extents(id)).unwrap().count();
    world.control.volumes.resize_volume(None, &name("vol1"), 3 * GIB, false, None).unwrap();
    assert_eq!((extents(), world.exports.find("vol1").unwrap().size_bytes), (3, 3 * GIB));
    world.control.volumes.resize_volume(None, &name("vol1"), 4096, true, None).unwrap();
    assert_eq!((extents(), world.exports.find("vol1").unwrap().size_bytes), (1, 4096));
    let rename = ModifyVolume { name: Some(name("vol9")), ..ModifyVolume::default() };
    world.control.volumes.modify_volume(None, &name("vol1"), rename).unwrap();
    assert_eq!(world.exports.find("vol1"), None);
    assert_eq!(world.exports.find("vol9").unwrap().volume, id);
}

/// Makes a tenant with a bound and a free volume. Answers the inventory, to be compared after a restart.
fn furnish(control: &Control) -> String {
    control.tenants.create_tenant(name("svm01")).unwrap();
    control.groups.create_policy_group(group(Some("svm01"), "policy1", 1000, true)).unwrap();
    control.volumes.create_volume(volume(Some("svm01"), "vol1", GIB)).unwrap();
    control.volumes.create_volume(volume(None, "vol2", 2 * GIB)).unwrap();
    let owner = name("svm01");
    control.volumes.modify_volume(Some(&owner), &name("vol1"), bind("policy1")).unwrap();
    control
        .groups
        .rename_policy_group(GroupKind::Fixed, Some(&owner), &name("policy1"), name("gold"), None)
        .unwrap();
    control.volumes.resize_volume(None, &name("vol2"), 4 * GIB, false, None).unwrap();
    inventory(control)
}

pub(super) fn inventory(control: &Control) -> String {
    let volumes: Vec<_> = control.volumes(None).unwrap().into_iter().map(|view| view.record).collect();
    let groups: Vec<_> = control
        .groups
        .policy_groups(GroupKind::Fixed, None)
        .unwrap()
        .into_iter()
        .map(|view| view.record)
        .collect();
    serde_json::to_string_pretty(&(control.tenants.tenant_names().len(), volumes, groups)).unwrap()
}

#[test]
fn restart_finds_and_serves_all_volumes() {
    let (_folder, state) = state();
    let world = World::start(&state);
    let before = furnish(&world.control);
    let node = world.control.node();
    world.end();
    let world = World::start(&state);
    assert_eq!((inventory(&world.control), world.control.node()), (before, node));
    assert_eq!(world.exports.list().len(), 2);
    assert_eq!(world.control.alarms.alarms(), []);
}

#[test]
fn lost_catalogue_is_rebuilt_from_record_backups() {
    let (_folder, state) = state();
    let world = World::start(&state);
    let before = furnish(&world.control);
    world.end();
    let (kind, message) = error(World::try_start(&state, true));
    assert_eq!((kind, message.contains("has 2 volumes")), (ErrorKind::Refused, true), "{message}");
    for file in ["catalogue.sqlite", "catalogue.sqlite-wal", "catalogue.sqlite-shm"] {
        let _ = std::fs::remove_file(state.join(file));
    }
    // Without the rebuild option, the daemon starts and reports the folders that it found.
    let world = World::start(&state);
    assert!(world.control.alarms.alarms()[0].message.contains("2 volume folders"));
    world.end();
    let world = World::try_start(&state, true).unwrap();
    assert_eq!(inventory(&world.control), before);
    assert_eq!(world.control.alarms.alarms(), []);
    let next = world.control.groups.create_policy_group(group(None, "next", 1, true)).unwrap();
    assert_eq!(next.record.number, 2, "numbers go on");
}

#[test]
fn damaged_catalogue_is_reported_and_set_aside_only_on_rebuild() {
    let (_folder, state) = state();
    let world = World::start(&state);
    let before = furnish(&world.control);
    world.end();
    for file in ["catalogue.sqlite-wal", "catalogue.sqlite-shm"] {
        let _ = std::fs::remove_file(state.join(file));
    }
    std::fs::write(state.join("catalogue.sqlite"), [7; 8192]).unwrap();
    let (_, message) = error(World::try_start(&state, false));
    assert!(message.contains("--rebuild-catalogue"), "{message}");
    let world = World::try_start(&state, true).unwrap();
    assert_eq!(inventory(&world.control), before);
    let names: Vec<_> =
        std::fs::read_dir(&state).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    assert!(names.iter().any(|name| name.starts_with("catalogue.sqlite.damaged-")), "{names:?}");
}

/// Puts the catalogue into the state that a crash between two steps leaves.
fn interrupt(state: &Path, id: VolumeId, volume_state: VolumeState) {
    let catalogue = SqliteCatalogue::open(&state.join("catalogue.sqlite")).unwrap();
    let entry = catalogue.get(&keys::volume(id)).unwrap().unwrap();
    let record = VolumeRecord { state: volume_state, ..entry.decode().unwrap() };
    catalogue.commit(Transaction::default().put(keys::volume(id), &record).unwrap()).unwrap();
}

#[test]
fn interrupted_creation_is_undone_and_deletion_finished() {
    let (_folder, state) = state();
    let world = World::start(&state);
    let mut ids = Vec::new();
    for text in ["files-missing", "files-made", "half-removed", "to-remove", "stays"] {
        ids.push(world.control.volumes.create_volume(volume(None, text, GIB)).unwrap().record.id);
    }
    let store = default_store(&world.control);
    world.end();
    let folder = |index: usize| store.folder(ids[index]);
    std::fs::rename(folder(0), folder(0).with_extension("new")).unwrap();
    std::fs::rename(folder(2), folder(2).with_extension("deleted")).unwrap();
    for (index, volume_state) in
        [VolumeState::Creating, VolumeState::Creating, VolumeState::Deleting, VolumeState::Deleting]
            .into_iter()
            .enumerate()
    {
        interrupt(&state, ids[index], volume_state);
    }
    let world = World::start(&state);
    settle(&world.control);
    let left: Vec<_> =
        world.control.volumes(None).unwrap().into_iter().map(|view| view.record.name).collect();
    assert_eq!((left, folders(&state)), (vec![name("stays")], 1));
    assert_eq!(world.control.alarms.alarms(), []);
    world.control.volumes.create_volume(volume(None, "files-made", GIB)).unwrap();
}

#[test]
fn interrupted_resize_leaves_no_surplus_extents_or_old_data() {
    let (_folder, state) = state();
    let world = World::start(&state);
    let id = world.control.volumes.create_volume(volume(None, "vol1", 4096)).unwrap().record.id;
    let store = default_store(&world.control);
    world.end();
    // The growth has made its files but no record; the shrink has changed its record but left data behind.
    store.grow(id, &[1, 2].map(ExtentIndex), b"{}", None).unwrap();
    let extent = store.extents(id).join("00000000");
    let file = std::fs::OpenOptions::new().write(true).open(&extent).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[7; 4096], 4096).unwrap();
    let world = World::start(&state);
    assert_eq!(std::fs::read_dir(store.extents(id)).unwrap().count(), 1);
    let mut content = [9; 4096];
    std::os::unix::fs::FileExt::read_exact_at(&std::fs::File::open(&extent).unwrap(), &mut content, 4096)
        .unwrap();
    assert_eq!(content, [0; 4096]);
    world.end();
}

#[test]
fn faulty_extent_file_raises_alarm_until_repaired() {
    let (_folder, state) = state();
    let world = World::start(&state);
    let id = world.control.volumes.create_volume(volume(None, "vol1", 2 * GIB)).unwrap().record.id;
    let path = default_store(&world.control).extents(id).join("00000001");
    std::fs::remove_file(&path).unwrap();
    world.control.check_extent_files();
    let alarms: Vec<_> = world
        .control
        .alarms
        .alarms()
        .into_iter()
        .filter(|a| a.source == alarms::AlarmSource::ExtentCheck)
        .collect();
    assert_eq!((alarms.len(), alarms[0].volume, alarms[0].extent), (1, Some(id), Some(ExtentIndex(1))));
    assert!(alarms[0].message.contains("is missing"), "{}", alarms[0].message);
    std::fs::File::create(&path).unwrap().set_len(EXTENT_BYTES).unwrap();
    world.control.check_extent_files();
    assert!(world.control.core.alarms.list_is_empty());
    std::fs::remove_file(&path).unwrap();
    world.control.check_extent_files();
    world.control.volumes.delete_volume(None, &name("vol1"), DeleteVolume::default()).unwrap();
    assert!(world.control.core.alarms.list_is_empty());
}

#[test]
fn start_succeeds_without_the_folder_of_one_volume() {
    let (_folder, state) = state();
    let world = World::start(&state);
    let id = world.control.volumes.create_volume(volume(None, "vol1", GIB)).unwrap().record.id;
    world.control.volumes.create_volume(volume(None, "vol2", GIB)).unwrap();
    let gone = default_store(&world.control).folder(id);
    world.end();
    std::fs::remove_dir_all(gone).unwrap();
    let world = World::start(&state);
    let alarms = world.control.alarms.alarms();
    assert!(
        alarms.iter().any(|a| a.volume == Some(id) && a.message.contains("'vol1' cannot be served")),
        "{alarms:?}"
    );
    assert!(world.exports.find("vol2").is_some());
    world.control.volumes.delete_volume(None, &name("vol1"), DeleteVolume::default()).unwrap();
}
