use weir_engine_interface::{CgroupLimit, PolicyLevel};
use weir_qos::Kind;
use weir_types::{Limits, Terms, Throughput, VolumeId};

use super::*;

const MIB: u32 = 1 << 20;
const SECOND_NS: u64 = 1_000_000_000;
const VOLUME: VolumeIndex = 0;
const CONNECTION: ConnectionIndex = 0;
const ALL: [ConnectionIndex; 1] = [CONNECTION];
/// The bindings of two cgroups.
const FIRST: CgroupBindingId = CgroupBindingId::from_bytes([1; 16]);
const SECOND: CgroupBindingId = CgroupBindingId::from_bytes([2; 16]);

fn limited(text: &str) -> Terms {
    Terms::limited(Limits { total: Throughput::parse(text).unwrap(), ..Limits::default() })
}

/// A volume with a limit, and cgroups with limits below it.
fn policy(volume: &str, cgroups: &[(CgroupBindingId, &str)]) -> VolumePolicy {
    let own = PolicyLevel { scope: Scope::Volume(VolumeId::from_bytes([9; 16])), terms: limited(volume) };
    let cgroup = |&(binding, text): &(CgroupBindingId, &str)| CgroupLimit {
        binding,
        cgroup: weir_types::Cgroup { controllers: String::new(), path: "/limited".to_owned() },
        terms: limited(text),
    };
    VolumePolicy { path: vec![own], cgroups: cgroups.iter().map(cgroup).collect() }
}

/// The ceilings of a reactor with one volume and one connection.
struct World {
    ceilings: Ceilings,
    policy_tree: Arc<PolicyTree>,
    tickets: usize,
}

impl World {
    fn new(policy: &VolumePolicy) -> World {
        let shared_state = Arc::new(SharedState::new(1));
        let policy_tree = Arc::new(PolicyTree::new(Arc::clone(&shared_state), 0));
        let mut world = World { ceilings: Ceilings::new(shared_state, 0), policy_tree, tickets: 0 };
        world.ceilings.join(0, VOLUME, CONNECTION);
        assert_eq!(world.bind(0, policy), 0);
        world
    }

    /// Puts the volume under a policy. Returns how many requests that releases.
    fn bind(&mut self, now_ns: u64, policy: &VolumePolicy) -> usize {
        let tree = Arc::clone(&self.policy_tree);
        self.ceilings.bind(now_ns, VOLUME, (Some(&tree), policy), &ALL).len()
    }

    /// Writes 1 MiB. True if that runs at once.
    fn write(&mut self, now_ns: u64, cgroup: Option<CgroupBindingId>) -> bool {
        self.tickets += 1;
        let asker = Asker { connection: CONNECTION, cgroup };
        let ticket = (CONNECTION, self.tickets);
        self.ceilings.arrive(now_ns, VOLUME, (asker, ticket), Cost::of(Kind::Write, MIB))
    }
}

#[test]
fn change_of_cgroups_forgives_the_volume_nothing() {
    let mut world = World::new(&policy("1MiB/s", &[]));
    assert!(world.write(0, None), "the first request runs, and its cost is paid off");
    world.bind(1, &policy("1MiB/s", &[(FIRST, "100MiB/s")]));
    assert!(!world.write(2, None));
    assert!(!world.write(3, Some(FIRST)));
}

#[test]
fn change_of_one_cgroup_forgives_another_nothing() {
    let both = [(FIRST, "1MiB/s"), (SECOND, "1MiB/s")];
    let mut world = World::new(&policy("100MiB/s", &both));
    assert!(world.write(0, Some(SECOND)));
    world.bind(1, &policy("100MiB/s", &both[1..]));
    assert!(!world.write(SECOND_NS / 10, Some(SECOND)));
    world.bind(SECOND_NS / 5, &policy("100MiB/s", &both));
    assert!(!world.write(SECOND_NS / 4, Some(SECOND)));
}

#[test]
fn requests_of_a_cgroup_that_loses_its_limit_go_on_under_the_volume() {
    let mut world = World::new(&policy("100MiB/s", &[(FIRST, "1MiB/s")]));
    assert!(world.write(0, Some(FIRST)));
    assert!(!world.write(1, Some(FIRST)));
    assert_eq!(world.bind(SECOND_NS / 2, &policy("100MiB/s", &[])), 1);
}

#[test]
fn nothing_stays_in_a_tree_that_a_volume_has_left() {
    let mut world = World::new(&policy("1MiB/s", &[(FIRST, "1MiB/s"), (SECOND, "1MiB/s")]));
    for (now_ns, cgroup) in [(0, None), (1, Some(FIRST)), (2, Some(SECOND))] {
        world.write(now_ns, cgroup);
    }
    world.bind(3, &policy("1MiB/s", &[(SECOND, "2MiB/s")]));
    world.ceilings.forget(4, VOLUME, CONNECTION);
    world.ceilings.leave(5, VOLUME, CONNECTION);
    world.ceilings.remove_volume(6, VOLUME);
    assert!(world.policy_tree.is_empty());
    assert!(world.ceilings.cgroup_leaves.is_empty() && world.ceilings.trees.is_empty());
}
