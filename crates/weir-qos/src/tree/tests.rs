//! Tests of the tree of workloads.

use super::*;
use crate::ceiling::Dimension;
use crate::cost::Kind;
use weir_types::{Limits, Throughput, Weight};

const READ: Cost = Cost { kind: Kind::Read, is_first: true, bytes: 4096, drive_ns: 0 };
const WRITE: Cost = Cost { kind: Kind::Write, is_first: true, bytes: 4096, drive_ns: 0 };
const SECOND_NS: u64 = 1_000_000_000;

fn rates(total: &str) -> Throughput {
    Throughput::parse(total).unwrap()
}

fn limited(total: &str) -> Terms {
    Terms::limited(Limits { total: rates(total), ..Limits::default() })
}

fn weighing(weight: u32) -> Terms {
    Terms { weight: Weight(weight), ..Terms::default() }
}

/// A group with these terms and leaves below it, each of which keeps `depth` reads waiting.
struct Group {
    tree: Tree<usize>,
    group: NodeId,
    leaves: Vec<NodeId>,
}

impl Group {
    fn new(terms: &Terms, members: &[(Terms, usize)]) -> Group {
        let mut tree = Tree::new(0);
        let group = tree.add_inner(ROOT, terms, 0);
        let leaves: Vec<_> = members.iter().map(|(terms, _)| tree.add_leaf(group, terms, 0)).collect();
        for (index, (_, depth)) in members.iter().enumerate() {
            (0..*depth).for_each(|_| tree.wait(0, leaves[index], index, READ));
        }
        Group { tree, group, leaves }
    }

    /// Serves until an instant, waking up `late_ns(n)` after each instant of the tree. Returns how many
    /// requests each leaf was served.
    fn serve(&mut self, until_ns: u64, late_ns: impl Fn(u64) -> u64) -> Vec<u64> {
        let mut served = vec![0; self.leaves.len()];
        let mut wakes = 0;
        while let Some(next_ns) = self.tree.next_ns().filter(|next_ns| *next_ns < until_ns) {
            wakes += 1;
            let now_ns = next_ns + late_ns(wakes);
            while let Some(released) = self.tree.release(now_ns) {
                served[released.ticket] += 1;
                self.tree.wait(now_ns, released.leaf, released.ticket, READ);
            }
        }
        served
    }
}

#[test]
fn group_members_get_equal_shares_at_any_queue_depth() {
    let members = [(Terms::default(), 2), (Terms::default(), 512)];
    let served = Group::new(&limited("3000IOPS"), &members).serve(10 * SECOND_NS, |_| 0);
    assert!(served[0].abs_diff(served[1]) <= 1, "{served:?}");
    assert!((served[0] + served[1]).abs_diff(30_000) <= 1, "{served:?}");
}

#[test]
fn group_members_share_by_weight() {
    let members = [(weighing(400), 8), (weighing(200), 8), (weighing(100), 8)];
    let served = Group::new(&limited("7000IOPS"), &members).serve(SECOND_NS, |_| 0);
    for (served, wanted) in served.into_iter().zip([4000, 2000, 1000]) {
        assert!(served.abs_diff(wanted) <= 4, "{served} of {wanted}");
    }
}

#[test]
fn unused_share_goes_to_other_members() {
    let members = [(limited("500IOPS"), 8), (Terms::default(), 8)];
    let served = Group::new(&limited("3000IOPS"), &members).serve(SECOND_NS, |_| 0);
    assert!(served[0].abs_diff(500) <= 1 && served[1].abs_diff(2500) <= 2, "{served:?}");
}

#[test]
fn floor_is_served_before_shares() {
    let claiming = Terms { floor: rates("2000IOPS"), ..weighing(1) };
    let members = [(claiming, 8), (weighing(10_000), 8)];
    let served = Group::new(&limited("3000IOPS"), &members).serve(SECOND_NS, |_| 0);
    assert!(served[0].abs_diff(2000) <= 3 && served[1].abs_diff(1000) <= 3, "{served:?}");
}

#[test]
fn excessive_floors_do_not_starve_others() {
    let claiming = Terms { floor: rates("2000IOPS"), ..Terms::default() };
    let members = [(claiming, 8), (Terms::default(), 8)];
    let served = Group::new(&limited("1000IOPS"), &members).serve(2 * SECOND_NS, |_| 0);
    assert!(served[1] >= 5 && served[1] <= 20, "{served:?}");
}

#[test]
fn late_wake_ups_cost_no_throughput() {
    let members = [(Terms::default(), 128), (Terms::default(), 128)];
    let late_ns = |wake: u64| wake.wrapping_mul(6_364_136_223_846_793_005) >> 33 & 0xf_ffff;
    let served = Group::new(&limited("3000IOPS"), &members).serve(10 * SECOND_NS, late_ns);
    assert!((served[0] + served[1]).abs_diff(30_000) <= 30, "{served:?}");
    assert!(served[0].abs_diff(served[1]) <= 1, "{served:?}");
}

#[test]
fn waiting_requests_catch_up_after_a_stall() {
    let mut group = Group::new(&limited("1000IOPS"), &[(Terms::default(), 10_000)]);
    let mut released_by = |now_ns: u64| {
        let mut count = 0;
        while group.tree.release(now_ns).is_some() {
            count += 1;
        }
        count
    };
    let served: u64 = (1..=100).map(|stall| released_by(stall * 50_000_000)).sum();
    assert_eq!(served, 5001);
    // The stall is longer than the time that is caught up.
    let more = released_by(7 * SECOND_NS);
    assert!((100..=115).contains(&more), "{more}");
}

#[test]
fn throttled_read_does_not_delay_a_write() {
    let mut tree = Tree::new(0);
    let read = rates("1IOPS");
    let leaf = tree.add_leaf(ROOT, &Terms::limited(Limits { read, ..Limits::default() }), 0);
    assert_eq!(tree.arrive(0, leaf, 1, READ), Verdict::Run);
    assert_eq!(tree.arrive(0, leaf, 2, READ), Verdict::Wait);
    assert_eq!(tree.arrive(0, leaf, 3, WRITE), Verdict::Run);
    assert_eq!(tree.next_ns(), Some(SECOND_NS));
    assert_eq!(tree.release(SECOND_NS - 1), None);
    let released = tree.release(SECOND_NS).unwrap();
    assert_eq!((released.ticket, released.waited_ns), (2, SECOND_NS));
    assert_eq!(released.bound_by.map(|(_, limit)| limit.dimension), Some(Dimension::ReadOperations));
}

#[test]
fn binding_limit_is_reported_with_its_node() {
    let mut tree = Tree::new(0);
    let group = tree.add_inner(ROOT, &limited("10IOPS"), 0);
    let slow = tree.add_leaf(group, &limited("1IOPS"), 0);
    let free = tree.add_leaf(group, &Terms::default(), 0);
    assert_eq!(tree.arrive(0, slow, 1, READ), Verdict::Run);
    tree.wait(0, slow, 2, READ);
    tree.wait(0, free, 3, READ);
    let bound = |tree: &mut Tree<usize>, now_ns| {
        tree.release(now_ns).map(|released| (released.ticket, released.bound_by.map(|(node, _)| node)))
    };
    assert_eq!(bound(&mut tree, SECOND_NS / 10), Some((3, Some(group))));
    assert_eq!(bound(&mut tree, SECOND_NS / 10), None);
    assert_eq!(bound(&mut tree, SECOND_NS), Some((2, Some(slow))));
}

#[test]
fn member_at_its_own_ceiling_is_bound_by_it() {
    let members = [(limited("100IOPS"), 8), (limited("5000IOPS"), 8), (Terms::default(), 8)];
    let mut group = Group::new(&limited("3000IOPS"), &members);
    group.serve(SECOND_NS, |_| 0);
    let mut bound = [[0; 2]; 3];
    while let Some(next_ns) = group.tree.next_ns().filter(|next_ns| *next_ns < 2 * SECOND_NS) {
        while let Some(released) = group.tree.release(next_ns) {
            let by = released.bound_by.map(|(node, _)| node);
            bound[released.ticket][usize::from(by == Some(group.group))] += 1;
            group.tree.wait(next_ns, released.leaf, released.ticket, READ);
        }
    }
    // Bound by its own ceiling, bound by its group.
    assert_eq!(bound[0][1], 0, "{bound:?}");
    assert_eq!((bound[1][0], bound[2][0]), (0, 0), "{bound:?}");
}

#[test]
fn waiting_requests_keep_their_order_through_changes() {
    let mut tree = Tree::new(0);
    let leaf = tree.add_leaf(ROOT, &limited("1IOPS"), 0);
    for (ticket, cost) in [(0, READ), (1, WRITE), (2, READ), (3, WRITE)] {
        tree.arrive(ticket, leaf, ticket, cost);
    }
    let split = Limits { total: rates("1IOPS"), read: rates("1IOPS"), ..Limits::default() };
    for terms in [Terms::limited(split), limited("2IOPS")] {
        tree.change(leaf, &terms, 10);
    }
    let order: Vec<u64> = tree.drain(20, leaf).into_iter().map(|(ticket, ..)| ticket).collect();
    assert_eq!(order, [1, 2, 3]);
    assert_eq!((tree.waiting(), tree.next_ns()), (0, None));
}

#[test]
fn raised_limit_releases_waiting_requests() {
    let mut group = Group::new(&limited("1IOPS"), &[(Terms::default(), 3)]);
    assert!(group.tree.release(0).is_some());
    assert_eq!(group.tree.next_ns(), Some(SECOND_NS));
    group.tree.change(group.group, &limited("1000IOPS"), 0);
    assert_eq!(group.tree.next_ns(), Some(1_000_000));
    group.tree.change(group.group, &Terms::default(), 0);
    assert!(group.tree.release(0).is_some() && group.tree.release(0).is_some());
}

#[test]
fn requests_of_an_ended_connection_leave_no_charge() {
    let mut group = Group::new(&limited("1IOPS"), &[(Terms::default(), 4), (Terms::default(), 1)]);
    assert!(group.tree.release(0).is_some());
    group.tree.forget(0, group.leaves[0], |_| true);
    assert_eq!((group.tree.waiting(), group.tree.next_ns()), (1, Some(SECOND_NS)));
    assert_eq!(group.tree.release(SECOND_NS).map(|released| released.ticket), Some(1));
    group.tree.remove(group.leaves[0]);
    group.tree.remove(group.leaves[1]);
    assert_eq!(group.tree.children(group.group), 0);
    group.tree.remove(group.group);
}

#[test]
fn group_burst_is_one_credit_for_all_members() {
    let rates = Limits { total: rates("200IOPS"), ..Limits::default() };
    let burst = weir_types::Burst { rates, seconds: 10, initial_credit: weir_types::InitialCredit::Full };
    let terms = Terms { burst: Some(burst), ..limited("100IOPS") };
    let mut group = Group::new(&terms, &[(Terms::default(), 8), (Terms::default(), 8)]);
    let served: u64 = group.serve(10 * SECOND_NS, |_| 0).iter().sum();
    assert!(served.abs_diff(2000) <= 1, "{served}");
    assert_eq!(group.tree.credits(10 * SECOND_NS, group.group)[0].1 / 100_000_000, 0);
    let later: u64 = group.serve(20 * SECOND_NS, |_| 0).iter().sum();
    assert!(later.abs_diff(1000) <= 2, "{later}");
}

#[test]
fn virtual_time_is_set_back_before_it_overflows() {
    let members = [(weighing(1), 4), (weighing(10), 4)];
    let mut group = Group::new(&limited("11IOPS"), &members);
    // These tags correspond to some nineteen days at the least weight.
    for node in &mut group.tree.nodes {
        node.share_tag = (1 << 61) - (1 << 50);
    }
    group.tree.children_of(group.group.0).virtual_time = (1 << 61) - (1 << 50);
    group.leaves.clone().into_iter().for_each(|leaf| group.tree.refresh_up(leaf.0));
    let served = group.serve(1000 * SECOND_NS, |_| 0);
    assert!(served[0].abs_diff(1000) <= 4 && served[1].abs_diff(10_000) <= 20, "{served:?}");
    assert!(group.tree.children_of(group.group.0).virtual_time < 1 << 60);
}
