//! Playing a plan.

use std::collections::BTreeSet;

use weir_qos::{Cost, MediaModel, MediaRates, NodeId, Pool, ROOT, Tree, Verdict};

use super::{Event, History, Load, Media, Plan};
use crate::random::Random;

/// A request by its number.
type Ticket = usize;

/// What happens at an instant; in this order, if several do at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    /// The media answer.
    Answer(Ticket),
    /// The scheduler wakes up.
    Wake,
    /// A client asks.
    Ask(usize),
}

struct World<'a> {
    plan: &'a Plan,
    random: Random,
    now_ns: u64,
    agenda: BTreeSet<(u64, u64, Happening)>,
    /// Distinguishes entries of the agenda that are otherwise equal.
    entries: u64,
    wake_ns: Option<u64>,
    tree: Tree<Ticket>,
    leaves: Vec<NodeId>,
    pool: Option<(Pool<Ticket>, Vec<NodeId>)>,
    costs: Vec<Cost>,
    requests: Vec<Event>,
    media_free_at: f64,
    history: History,
}

/// Plays a plan to its end.
pub fn run(plan: &Plan) -> History {
    let mut world = World::new(plan);
    while let Some((at_ns, _, happening)) = world.agenda.pop_first().filter(|next| next.0 < plan.duration_ns)
    {
        world.now_ns = at_ns;
        match happening {
            Happening::Ask(node) => world.ask(node),
            Happening::Answer(ticket) => world.answer(ticket),
            Happening::Wake => world.wake_ns = None,
        }
        // A daemon does nothing between two wake-ups: if it is late, what is due waits for it.
        if plan.late_ns_max == 0 || happening == Happening::Wake {
            world.release();
        }
        world.set_wake();
    }
    if let Some((pool, _)) = &world.pool {
        world.history.depth = pool.depth().operations();
    }
    world.history
}

/// Enters all nodes of a plan in a tree.
fn plant<T: Copy>(tree: &mut Tree<T>, plan: &Plan, without_ceilings: bool) -> Vec<NodeId> {
    let mut ids: Vec<NodeId> = Vec::new();
    for node in &plan.nodes {
        let parent = node.parent.map_or(ROOT, |parent| ids[parent]);
        let mut terms = node.terms;
        if without_ceilings {
            (terms.limits, terms.burst) = (Default::default(), None);
        }
        ids.push(match node.load {
            Some(_) => tree.add_leaf(parent, &terms, 0),
            None => tree.add_inner(parent, &terms, 0),
        });
    }
    ids
}

impl<'a> World<'a> {
    fn new(plan: &'a Plan) -> World<'a> {
        let mut tree = Tree::new(0);
        let leaves = plant(&mut tree, plan, false);
        let pool = plan.media.map(|media| {
            let rates = MediaRates { iops: media.iops, bytes_per_second: media.bytes_per_second };
            let mut pool = Pool::new(MediaModel::even(rates), media.queue_target, 0);
            let leaves = plant(&mut pool.tree, plan, true);
            (pool, leaves)
        });
        let mut world = World {
            plan,
            random: Random::new(plan.seed),
            now_ns: 0,
            agenda: BTreeSet::new(),
            entries: 0,
            wake_ns: None,
            tree,
            leaves,
            pool,
            costs: Vec::new(),
            requests: Vec::new(),
            media_free_at: 0.0,
            history: History::default(),
        };
        for (node, planned) in plan.nodes.iter().enumerate() {
            let load = planned.load.iter();
            for (from_ns, depth) in load.flat_map(|load| load.active.iter().map(|a| (a.0, load.depth))) {
                (0..depth).for_each(|_| world.enter(from_ns, Happening::Ask(node)));
            }
        }
        world
    }

    fn enter(&mut self, at_ns: u64, happening: Happening) {
        self.entries += 1;
        self.agenda.insert((at_ns, self.entries, happening));
    }

    fn load(&self, node: usize) -> &'a Load {
        self.plan.nodes[node].load.as_ref().expect("only nodes with a load ask")
    }

    fn ask(&mut self, node: usize) {
        let load = self.load(node);
        let now_ns = self.now_ns;
        let ticket = self.requests.len();
        let nothing =
            Event { node, asked_ns: now_ns, admitted_ns: 0, started_ns: 0, answered_ns: 0, floors_ns: 0 };
        self.requests.push(nothing);
        let cost = Cost::of(load.kind, load.bytes);
        self.costs.push(cost);
        if self.tree.arrive(now_ns, self.leaves[node], ticket, cost) == Verdict::Run {
            self.admitted(ticket);
        }
    }

    fn release(&mut self) {
        while let Some(released) = self.tree.release(self.now_ns) {
            self.admitted(released.ticket);
        }
    }

    fn set_wake(&mut self) {
        let Some(next_ns) = self.tree.next_ns() else { return };
        if self.wake_ns.is_some_and(|wake_ns| wake_ns <= next_ns.max(self.now_ns)) {
            return;
        }
        let late_ns = match self.plan.late_ns_max {
            0 => 0,
            max => self.random.below(max),
        };
        let at_ns = next_ns.max(self.now_ns) + late_ns;
        self.wake_ns = Some(at_ns);
        self.enter(at_ns, Happening::Wake);
    }

    fn admitted(&mut self, ticket: Ticket) {
        let now_ns = self.now_ns;
        let node = self.requests[ticket].node;
        self.requests[ticket].admitted_ns = now_ns;
        self.history.admissions.push((now_ns, node));
        let Some((pool, leaves)) = &mut self.pool else {
            self.requests[ticket].started_ns = now_ns;
            return self.enter(now_ns, Happening::Answer(ticket));
        };
        let load = self.plan.nodes[node].load.as_ref().expect("only nodes with a load ask");
        let cost = pool.cost(load.kind, load.bytes, true);
        self.costs[ticket] = cost;
        if pool.arrive(now_ns, leaves[node], ticket, cost) == Verdict::Run {
            self.start(ticket);
        }
    }

    fn start(&mut self, ticket: Ticket) {
        let Media { latency_ns, .. } = self.plan.media.expect("only media start operations");
        self.requests[ticket].started_ns = self.now_ns;
        let from = self.media_free_at.max(self.now_ns as f64);
        self.media_free_at = from + f64::from(self.costs[ticket].media_ns);
        self.enter(self.media_free_at as u64 + latency_ns, Happening::Answer(ticket));
    }

    fn answer(&mut self, ticket: Ticket) {
        let now_ns = self.now_ns;
        self.requests[ticket].answered_ns = now_ns;
        self.history.events.push(self.requests[ticket]);
        if let Some((pool, _)) = &mut self.pool {
            pool.completed(now_ns, self.costs[ticket]);
            while let Some(granted) = self.pool.as_mut().and_then(|(pool, _)| pool.release(now_ns)) {
                self.requests[granted.ticket].floors_ns = granted.waited_for_floors_ns;
                self.start(granted.ticket);
            }
        }
        let node = self.requests[ticket].node;
        let load = self.load(node);
        let again_ns = now_ns + load.think_ns;
        if load.active.iter().any(|&(from_ns, until_ns)| (from_ns..until_ns).contains(&again_ns)) {
            self.enter(again_ns, Happening::Ask(node));
        }
    }
}
