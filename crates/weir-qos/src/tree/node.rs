//! One node of the tree: its terms, its position in the parent's heaps, and its requests or its children.

use weir_types::Terms;
use weir_types::bounds::WEIGHT_MAX;

use crate::ceiling::Ceiling;
use crate::cost::{Cost, Counting, Direction};
use crate::floor::Floor;
use crate::heap::{Heap, NOWHERE};

use super::queue::Queue;

/// Number of classes: reads and writes. Either may have ceilings of its own anywhere in the tree, so waiting
/// reads and writes are kept apart.
pub(super) const CLASSES: usize = 2;

/// Index of a node.
pub(super) type Index = u32;

/// Index of the children of an inner node.
pub(super) type ChildrenIndex = u32;

/// The positions of a node in its parent's heaps.
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

/// The content of a node.
#[derive(Clone, Copy, Debug)]
pub(super) enum Body {
    /// Requests, in the order of their arrival; by class, if the tree keeps classes apart.
    Leaf([Queue; CLASSES]),
    /// Other nodes.
    Inner(ChildrenIndex),
    /// Nothing: the index is free.
    Free,
}

impl Body {
    /// Body of a leaf at which nothing waits.
    pub const LEAF: Body = Body::Leaf([Queue::EMPTY; CLASSES]);
}

/// The children of a node that have requests waiting.
#[derive(Debug, Default)]
pub(super) struct Children {
    /// Share tag of the child that was served last on its share.
    pub virtual_time: u64,
    /// Children to check again later, by instant.
    pub timers: Heap,
    /// Children that may be served now, by share tag.
    pub ready: [Heap; CLASSES],
    /// Ready children with a floor on them or below, by the instant at which it falls due.
    pub due: [Heap; CLASSES],
    /// Number of child nodes.
    pub count: u32,
}

/// Parts that few nodes have.
#[derive(Debug)]
struct Extras {
    floor: Option<Floor>,
    counting: Counting,
}

/// A node. With many nodes, a decision takes as long as fetching the needed nodes from memory. A node is
/// therefore two cache lines, with everything that its parent needs for a choice.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Node {
    pub parent: Index,
    weight: u16,
    /// Whether the node has nothing to charge a request with, as most nodes; charging skips it.
    is_plain: bool,
    /// Positions in its parent's heaps.
    pub place: Place,
    pub body: Body,
    /// Share of the parent that the node has had, by weight: the less, the sooner it is served.
    pub share_tag: u64,
    extras: Option<Box<Extras>>,
    pub ceiling: Ceiling,
}

const _: () = assert!(size_of::<Node>() == 128);

impl Node {
    pub fn new(parent: Index, terms: &Terms, now_ns: u64, body: Body) -> Node {
        let mut node = Node {
            parent,
            weight: weight(terms),
            is_plain: false,
            place: Place::NONE,
            body,
            share_tag: 0,
            extras: Extras::new(Floor::new(terms.floor, now_ns), counting(terms)),
            ceiling: Ceiling::new(terms, now_ns),
        };
        node.is_plain = node.ceiling.is_empty() && node.extras.is_none();
        node
    }

    pub fn weight(&self) -> f64 {
        f64::from(self.weight)
    }

    /// Returns how requests count at this node.
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
        self.is_plain = self.ceiling.is_empty() && self.extras.is_none();
    }

    /// Returns the first instant at which its own ceilings let a request go.
    pub fn ready_ns(&self, direction: Direction) -> u64 {
        if self.is_plain { 0 } else { self.ceiling.ready_ns(direction).0 }
    }

    /// Charges an admitted request.
    pub fn charge(&mut self, now_ns: u64, cost: Cost, is_due: bool) {
        if self.is_plain {
            return;
        }
        let counting = self.counting();
        self.ceiling.charge(now_ns, cost, &counting);
        if let Some(floor) = self.floor() {
            floor.charge(now_ns, cost, &counting, is_due);
        }
    }

    /// Returns the instant at which its own floor falls due.
    pub fn own_due_ns(&self) -> u64 {
        let floor = self.extras.as_ref().and_then(|extras| extras.floor.as_ref());
        floor.map_or(u64::MAX, Floor::due_ns)
    }

    /// Returns the index of its children.
    pub fn inner(&self) -> ChildrenIndex {
        match self.body {
            Body::Inner(children) => children,
            _ => unreachable!("only inner nodes are parents"),
        }
    }

    /// Returns the queue of waiting requests of a class.
    pub fn queue(&mut self, class: usize) -> &mut Queue {
        match &mut self.body {
            Body::Leaf(queues) => &mut queues[class],
            _ => unreachable!("only leaves hold requests"),
        }
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

/// Returns the direction whose ceilings hold a class.
pub(super) fn direction_of(class: usize) -> Direction {
    if class == 0 { Direction::Read } else { Direction::Write }
}
