//! Tests on a host whose every folder is a cgroup of version 2, but for those in `/cpu`.

use weir_types::VolumeId;

use super::*;
use crate::testing::*;
use crate::{CreatePolicyGroup, ErrorKind, TermsChange};

fn find(folder: &Path) -> Result<Cgroup, AttachError> {
    let (controllers, path) = match folder.strip_prefix("/cpu") {
        Ok(inside) => ("cpu", inside),
        Err(_) if folder.starts_with("/home") => {
            return Err(AttachError::NoCgroup { folder: folder.to_owned() });
        }
        Err(_) => ("", folder),
    };
    Ok(Cgroup { controllers: controllers.to_owned(), path: path.display().to_string() })
}

/// A control with the volume `vol1` and the policy groups `slow` and `shared`.
struct Scene {
    world: World,
    cgroups: Cgroups,
    volume: VolumeId,
    /// It goes last.
    _state: tempfile::TempDir,
}

impl Scene {
    fn new() -> Scene {
        let state = tempfile::tempdir().unwrap();
        let world = World::start(state.path());
        let control = &world.control;
        let made = control.volumes.create_volume(crate::testing::volume(None, "vol1", 8 << 20)).unwrap();
        for (group, is_shared) in [("slow", false), ("shared", true)] {
            control.groups.create_policy_group(group_of(group, is_shared, 100)).unwrap();
        }
        let cgroups = Cgroups { core: control.core.clone(), bindings: control.bindings.clone(), find };
        Scene { cgroups, volume: made.record.id, world, _state: state }
    }

    fn bind(&self, folder: &str, group: &str) -> Outcome<CgroupBindingView> {
        let request = BindCgroup { folder: folder.into(), policy_group: name(group) };
        self.cgroups.bind_cgroup(None, &name("vol1"), request)
    }

    /// Paths of the cgroups with limits in the data plane, with their IOPS.
    fn limits(&self) -> Vec<(String, Option<u64>)> {
        let limits = self.world.engine.cgroups(self.volume);
        limits.into_iter().map(|limit| (limit.cgroup.path, limit.terms.limits.total.iops)).collect()
    }
}

fn group_of(group: &str, is_shared: bool, iops: u64) -> CreatePolicyGroup {
    CreatePolicyGroup { tenant: None, name: name(group), change: iops_of(iops), is_shared, parent: None }
}

fn iops_of(iops: u64) -> TermsChange {
    let total = weir_types::Throughput { iops: Some(iops), bytes_per_second: None };
    let limits = crate::LimitsChange { total: Some(total), ..Default::default() };
    TermsChange { limits, ..TermsChange::default() }
}

#[test]
fn limit_of_a_cgroup_follows_its_policy_group() {
    let scene = Scene::new();
    let bound = scene.bind("/a", "slow").unwrap().record;
    assert_eq!(scene.limits(), [("/a".to_owned(), Some(100))]);
    let modified = crate::ModifyPolicyGroup { change: iops_of(200), ..Default::default() };
    let groups = &scene.world.control.groups;
    groups.modify_policy_group(None, &name("slow"), modified).unwrap();
    assert_eq!(scene.limits(), [("/a".to_owned(), Some(200))]);
    groups.create_policy_group(group_of("slower", false, 50)).unwrap();
    let of_volume = (None, &name("vol1"));
    scene.cgroups.rebind_cgroup(of_volume, bound.id, &name("slower"), None).unwrap();
    assert_eq!(scene.limits(), [("/a".to_owned(), Some(50))]);
    let deleted = groups.delete_policy_group(crate::GroupKind::Fixed, None, &name("slower"), None);
    assert!(deleted.unwrap_err().to_string().contains("limits cgroups on the volumes: vol1"));
    let outdated = scene.cgroups.unbind_cgroup(of_volume, bound.id, Some(0)).unwrap_err();
    assert_eq!(outdated.kind, ErrorKind::VersionMismatch);
    scene.cgroups.unbind_cgroup(of_volume, bound.id, None).unwrap();
    assert!(scene.limits().is_empty());
    let error = scene.cgroups.unbind_cgroup(of_volume, bound.id, None).unwrap_err();
    assert_eq!(error.kind, ErrorKind::NotFound);
    groups.delete_policy_group(crate::GroupKind::Fixed, None, &name("slower"), None).unwrap();
}

#[test]
fn process_never_has_two_limits() {
    let scene = Scene::new();
    scene.bind("/a/b", "slow").unwrap();
    scene.bind("/a/bc", "slow").unwrap();
    for (folder, group, kind, why) in [
        ("/a/b", "slow", ErrorKind::Conflict, "is bound already"),
        ("/a/b/c", "slow", ErrorKind::Refused, "is above this one"),
        ("/a", "slow", ErrorKind::Refused, "is below this one"),
        ("/cpu/x", "slow", ErrorKind::Refused, "is in another hierarchy"),
        ("/home/x", "slow", ErrorKind::Invalid, "/home/x is no cgroup"),
        ("/x", "shared", ErrorKind::Refused, "is shared"),
        ("/x", "nobody", ErrorKind::NotFound, "unknown policy group"),
    ] {
        let error = scene.bind(folder, group).unwrap_err();
        assert_eq!(error.kind, kind, "{folder}: {error}");
        assert!(error.to_string().contains(why), "{folder}: {error}");
    }
    for number in 2..CGROUP_BINDINGS_MAX {
        scene.bind(&format!("/more/{number}"), "slow").unwrap();
    }
    assert_eq!(scene.bind("/more/last", "slow").unwrap_err().kind, ErrorKind::Full);
}

#[test]
fn bindings_hold_after_a_restart_and_snapshots_have_none() {
    let Scene { world, cgroups, volume, _state: state } = Scene::new();
    let request = BindCgroup { folder: "/a".into(), policy_group: name("slow") };
    cgroups.bind_cgroup(None, &name("vol1"), request).unwrap();
    drop(cgroups);
    world.end();
    let world = World::start(state.path());
    assert_eq!(world.engine.cgroups(volume).len(), 1);
    let snapshot = crate::CreateSnapshots {
        tenant: None,
        volumes: vec![name("vol1")],
        name: name("before"),
        freeze: false,
    };
    let made = world.control.snapshots.create_snapshots(&snapshot).unwrap();
    assert!(made[0].record.cgroups.is_empty());
}

#[test]
fn group_that_limits_a_cgroup_stays_and_gets_no_parent() {
    let scene = Scene::new();
    scene.bind("/a", "slow").unwrap();
    let control = &scene.world.control;
    let parent = crate::ModifyPolicyGroup { parent: Some(Some(name("shared"))), ..Default::default() };
    let error = control.groups.modify_policy_group(None, &name("slow"), parent).unwrap_err();
    assert!(error.to_string().contains("such a group has no parent"), "{error}");
    // A file that does not name the group would remove it.
    let nothing = crate::PolicySet { policy_groups: Some(Vec::new()), ..Default::default() };
    let pruned = crate::ApplyPolicies { is_dry_run: false, force: true, prune: true };
    let error = control.policy_sets.apply_policies(&nothing, pruned).unwrap_err();
    assert!(error.to_string().contains("a cgroup on volume 'vol1'"), "{error}");
    assert_eq!(scene.limits(), [("/a".to_owned(), Some(100))]);
}
