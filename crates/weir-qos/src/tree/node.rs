//! One node of the tree: what it may do, where it stands, and its requests or its children.

use std::collections::VecDeque;

use weir_types::Terms;
use weir_types::bounds::WEIGHT_MAX;

use crate::ceiling::Ceiling;
use crate::cost::{Cost, Counting, Direction};
use crate::floor::Floor;
use crate::heap::{Heap, NOWHERE};

/// Reads and writes may have ceilings of their own anywhere in the tree: those that wait are kept apart.
pub(super) const CLASSES: usize = 2;

/// Index of a node.
pub(super) type Index = u32;

/// Where a node stands in its parent's heaps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub timer: u32,
    pub ready: [u32; CLASSES],
    pub due: [u32; CLASSES],
}

impl Place {
    pub const NONE: Place = Place { timer: NOWHERE, ready: [NOWHERE; CLASSES], due: [NOWHERE; CLASSES] };

    pub fn is_ready(&self, class: usize) -> bool {
        self.ready[class] != NOWHERE
    }
}

/// A request that waits, named by a ticket of the caller's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting<T> {
    pub ticket: T,
    pub cost: Cost,
    pub arrived_ns: u64,
}

/// The requests of a leaf. They are made with the first one that waits.
pub(super) type Lanes<T> = [VecDeque<Waiting<T>>; CLASSES];

/// What a node holds.
#[derive(Debug)]
pub(super) enum Body<T> {
    /// Requests, in the order of their arrival; by class, if the tree tells them apart.
    Leaf(Option<Box<Lanes<T>>>),
    /// Other nodes.
    Inner(Box<Children>),
    /// Nothing: the index is free.
    Free,
}

/// The children of a node that have something waiting.
#[derive(Debug, Default)]
pub(super) struct Children {
    /// The share tag of the child that was served last on its share.
    pub virtual_time: u64,
    /// When to look at a child again.
    pub timers: Heap,
    /// Children that may be served now, by share tag.
    pub ready: [Heap; CLASSES],
    /// Of these, those that have a floor on them or below, by the instant at which it falls due.
    pub due: [Heap; CLASSES],
    /// How many nodes there are below.
    pub count: u32,
}

/// What few nodes have.
#[derive(Debug)]
struct Extras {
    floor: Option<Floor>,
    counting: Counting,
}

/// A node. With many of them a decision takes as long as fetching those that it needs from memory: a node is two
/// cache lines, and where nothing waits nothing else has to be fetched.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Node<T> {
    pub parent: Index,
    weight: u16,
    /// Requests that wait here, by class, if this is a leaf.
    pub waiting: [u16; CLASSES],
    /// How much of its parent it has had, by weight: the less, the sooner it is served.
    pub share_tag: u64,
    extras: Option<Box<Extras>>,
    pub body: Body<T>,
    pub ceiling: Ceiling,
}

impl<T> Node<T> {
    pub fn new(parent: Index, terms: &Terms, now_ns: u64, body: Body<T>) -> Node<T> {
        Node {
            parent,
            weight: weight(terms),
            waiting: [0; CLASSES],
            share_tag: 0,
            extras: Extras::new(Floor::new(terms.floor, now_ns), counting(terms)),
            body,
            ceiling: Ceiling::new(terms, now_ns),
        }
    }

    pub fn weight(&self) -> f64 {
        f64::from(self.weight)
    }

    /// How requests count here.
    pub fn counting(&self) -> Counting {
        self.extras.as_ref().map_or_else(Counting::default, |extras| extras.counting)
    }

    pub fn floor(&mut self) -> Option<&mut Floor> {
        self.extras.as_mut()?.floor.as_mut()
    }

    pub fn change(&mut self, terms: &Terms, now_ns: u64) {
        self.weight = weight(terms);
        self.ceiling.change(terms, now_ns);
        let old = self.extras.take().and_then(|extras| extras.floor);
        self.extras = Extras::new(Floor::changed(old, terms.floor, now_ns), counting(terms));
    }

    /// True if there is nothing to charge a request with, as at most nodes.
    fn is_plain(&self) -> bool {
        self.ceiling.is_empty() && self.extras.is_none()
    }

    /// Charges an admitted request.
    pub fn charge(&mut self, now_ns: u64, cost: Cost, is_due: bool) {
        if self.is_plain() {
            return;
        }
        let counting = self.counting();
        self.ceiling.charge(now_ns, cost, &counting);
        if let Some(floor) = self.floor() {
            floor.charge(now_ns, cost, &counting, is_due);
        }
    }

    /// True if something of the class could be served, were it not for the node's own ceilings.
    pub fn is_pending(&self, class: usize) -> bool {
        match &self.body {
            Body::Leaf(_) => self.waiting[class] > 0,
            Body::Inner(children) => !children.ready[class].is_empty(),
            Body::Free => false,
        }
    }

    /// The instant at which a floor falls due, here or below.
    pub fn due_ns(&self, class: usize) -> u64 {
        let floor = self.extras.as_ref().and_then(|extras| extras.floor.as_ref());
        let own_ns = floor.map_or(u64::MAX, Floor::due_ns);
        match &self.body {
            Body::Inner(children) => own_ns.min(children.due[class].first_key()),
            _ => own_ns,
        }
    }

    /// The first instant at which one of the children wants to be looked at.
    pub fn timer_ns(&self) -> u64 {
        match &self.body {
            Body::Inner(children) => children.timers.first_key(),
            _ => u64::MAX,
        }
    }

    pub fn children(&mut self) -> &mut Children {
        match &mut self.body {
            Body::Inner(children) => children,
            _ => unreachable!("only inner nodes are parents"),
        }
    }

    fn lanes(&mut self) -> &mut Lanes<T> {
        match &mut self.body {
            Body::Leaf(lanes) => lanes.get_or_insert_with(|| Box::new([VecDeque::new(), VecDeque::new()])),
            _ => unreachable!("only leaves hold requests"),
        }
    }

    /// Has a request wait at this leaf.
    pub fn push(&mut self, class: usize, waiting: Waiting<T>) {
        self.waiting[class] += 1;
        self.lanes()[class].push_back(waiting);
    }

    /// When the request that has waited longest in a class came, if one waits.
    pub fn first_arrival_ns(&self, class: usize) -> Option<u64> {
        match &self.body {
            Body::Leaf(Some(lanes)) => lanes[class].front().map(|waiting| waiting.arrived_ns),
            _ => None,
        }
    }

    /// Takes out the request that has waited longest in a class.
    pub fn pop(&mut self, class: usize) -> Option<Waiting<T>> {
        let first = self.lanes()[class].pop_front()?;
        self.waiting[class] -= 1;
        Some(first)
    }

    /// Takes out all requests that are wanted, class by class.
    pub fn take_out(&mut self, is_wanted: impl Fn(&Waiting<T>) -> bool) -> Vec<Waiting<T>> {
        let mut taken = Vec::new();
        for class in 0..CLASSES {
            for _ in 0..self.waiting[class] {
                let Some(waiting) = self.pop(class) else { break };
                if is_wanted(&waiting) {
                    taken.push(waiting);
                } else {
                    self.push(class, waiting);
                }
            }
        }
        taken
    }
}

impl Extras {
    fn new(floor: Option<Floor>, counting: Counting) -> Option<Box<Extras>> {
        let is_plain = floor.is_none() && counting == Counting::default();
        (!is_plain).then(|| Box::new(Extras { floor, counting }))
    }
}

fn weight(terms: &Terms) -> u16 {
    const _: () = assert!(WEIGHT_MAX <= u16::MAX as u32);
    terms.weight.0.clamp(1, WEIGHT_MAX) as u16
}

fn counting(terms: &Terms) -> Counting {
    Counting { operation_size: terms.operation_size, charges: terms.charges }
}

/// The direction whose ceilings hold a class.
pub(super) fn direction_of(class: usize) -> Direction {
    if class == 0 { Direction::Read } else { Direction::Write }
}
