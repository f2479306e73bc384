//! One node of the tree: what it may do, where it stands, and its requests or its children.

use std::collections::VecDeque;

use weir_types::Terms;

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

/// What a node holds.
#[derive(Debug)]
pub(super) enum Body<T> {
    /// Requests, in the order of their arrival; by class, if the tree tells them apart.
    Leaf([VecDeque<Waiting<T>>; CLASSES]),
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

/// A node.
#[derive(Debug)]
pub(super) struct Node<T> {
    pub parent: Index,
    pub weight: u32,
    /// How much of its parent it has had, by weight: the less, the sooner it is served.
    pub share_tag: u64,
    pub ceiling: Ceiling,
    pub floor: Option<Box<Floor>>,
    pub counting: Counting,
    pub body: Body<T>,
}

impl<T> Node<T> {
    pub fn new(parent: Index, terms: &Terms, now_ns: u64, body: Body<T>) -> Node<T> {
        Node {
            parent,
            weight: terms.weight.0.max(1),
            share_tag: 0,
            ceiling: Ceiling::new(terms, now_ns),
            floor: Floor::new(terms.floor, now_ns).map(Box::new),
            counting: counting(terms),
            body,
        }
    }

    pub fn change(&mut self, terms: &Terms, now_ns: u64) {
        self.weight = terms.weight.0.max(1);
        self.ceiling.change(terms, now_ns);
        let old = self.floor.take().map(|floor| *floor);
        self.floor = Floor::changed(old, terms.floor, now_ns).map(Box::new);
        self.counting = counting(terms);
    }

    /// Charges an admitted request.
    pub fn charge(&mut self, now_ns: u64, cost: Cost, is_due: bool) {
        self.ceiling.charge(now_ns, cost, &self.counting);
        if let Some(floor) = &mut self.floor {
            floor.charge(now_ns, cost, &self.counting, is_due);
        }
    }

    /// True if something of the class could be served, were it not for the node's own ceilings.
    pub fn is_pending(&self, class: usize) -> bool {
        match &self.body {
            Body::Leaf(lanes) => !lanes[class].is_empty(),
            Body::Inner(children) => !children.ready[class].is_empty(),
            Body::Free => false,
        }
    }

    /// The instant at which a floor falls due, here or below.
    pub fn due_ns(&self, class: usize) -> u64 {
        let own_ns = self.floor.as_ref().map_or(u64::MAX, |floor| floor.due_ns());
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

    pub fn lanes(&mut self) -> &mut [VecDeque<Waiting<T>>; CLASSES] {
        match &mut self.body {
            Body::Leaf(lanes) => lanes,
            _ => unreachable!("only leaves hold requests"),
        }
    }
}

fn counting(terms: &Terms) -> Counting {
    Counting { operation_size: terms.operation_size, charges: terms.charges }
}

/// The direction whose ceilings hold a class.
pub(super) fn direction_of(class: usize) -> Direction {
    if class == 0 { Direction::Read } else { Direction::Write }
}
