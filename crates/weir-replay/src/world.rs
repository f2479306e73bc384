//! Playing clients on a stage in virtual time: the real policy tree and drive queues, with simulated clients
//! and drives.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use weir_qos::{Cost, DriveModel, DriveQueue, Kind, Limit, NodeId, ROOT, Tree, Verdict};
use weir_types::bounds::{CONNECTION_BUFFER_BYTES_MAX, CONNECTION_REQUESTS_MAX, EXTENT_BYTES};
use weir_types::{Emulation, ExtentIndex, Terms};
use weir_volume::geometry::{Part, covering_blocks, next_piece};
use weir_volume::{EmulatedDrive, Position};

use super::Event;
use weir_types::random::Random;

/// Index of a request in the list of open requests.
type Ticket = usize;

/// A drive that workloads share.
#[derive(Clone, Copy, Debug)]
pub struct Drive {
    /// Performance that the scheduler assumes.
    pub model: DriveModel,
    /// Behaviour of the drive; `None` if each request names its own time.
    pub emulation: Option<Emulation>,
    /// Operations that the drive queue keeps in flight by an operator's choice; `None` if the queue has to
    /// find the number.
    pub queue_target: Option<u32>,
    /// Operations in flight that the drive queue found right before.
    pub in_flight: Option<u32>,
}

/// Role of a node in the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A node with children.
    Inner,
    /// A node with a client, and the drive that serves it. Without a drive, requests are answered as soon as
    /// their ceilings admit them.
    Leaf(Option<usize>),
}

/// A workload, or a parent of workloads.
#[derive(Clone, Copy, Debug)]
pub struct StageNode {
    /// Index of its parent, which comes before it; `None` directly below the root.
    pub parent: Option<usize>,
    /// Terms of the node.
    pub terms: Terms,
    /// Whether the node has a client.
    pub place: Place,
}

/// Nodes and drives that clients play on.
#[derive(Clone, Debug, Default)]
pub struct Stage {
    /// The nodes.
    pub nodes: Vec<StageNode>,
    /// The drives.
    pub drives: Vec<Drive>,
    /// Duration of the play, in nanoseconds.
    pub duration_ns: u64,
    /// Maximum delay of a wake-up of the scheduler, in nanoseconds.
    pub late_ns_max: u64,
    /// Seed of the random numbers.
    pub seed: u64,
}

/// Service that a request needs once its ceilings admit it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Turns of an emulated drive.
    Turns,
    /// A time of the drive, in nanoseconds.
    Time(u64),
    /// A time, in nanoseconds, without any drive, as for a read of a hole.
    Beside(u64),
}

/// A request of a client.
#[derive(Clone, Copy, Debug)]
pub struct Demand {
    /// The leaf.
    pub node: usize,
    /// Name of the request, chosen by the client.
    pub name: usize,
    /// Kind of the request.
    pub kind: Kind,
    /// Length in bytes.
    pub bytes: u32,
    /// Volume of the request. No place in one volume continues a place in another.
    pub volume: usize,
    /// Offset in the volume, in bytes.
    pub offset: u64,
    /// Service that the request needs.
    pub work: Work,
    /// Time from the end of the service to the answer, in nanoseconds.
    pub after_ns: u64,
}

/// The clients of a stage.
pub trait Clients {
    /// The first requests, with their instants.
    fn begin(&mut self) -> Vec<(u64, Demand)>;

    /// Called when the ceilings admit a request.
    fn admitted(&mut self, _at_ns: u64, _node: usize) {}

    /// Called when a request is answered, with its events and its name. Adds the requests that follow to
    /// `next`, with their instants.
    fn answered(&mut self, event: &Event, name: usize, next: &mut Vec<(u64, Demand)>);

    /// True if the play should stop.
    fn is_done(&self) -> bool {
        false
    }
}

/// An event of the simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    /// The drive has finished a piece.
    PieceDone(usize),
    /// A request is answered.
    Answer(Ticket),
    /// The scheduler wakes up.
    Wake,
    /// A client sends a request.
    Ask(Ticket),
}

/// A request without an answer yet.
#[derive(Clone, Copy)]
struct Open {
    demand: Demand,
    event: Event,
    /// Bytes for which pieces were made.
    position: u64,
    pieces_left: u32,
    /// Instant up to which the request's time is attributed.
    accounted_ns: u64,
}

/// A part of a request that the drive serves at once.
#[derive(Clone, Copy)]
struct Piece {
    ticket: Ticket,
    cost: Cost,
    /// Position of the piece, and the bytes of all blocks that it touches.
    place: (Position, u64),
    since_ns: u64,
    queue_ns: u64,
    floors_ns: u64,
}

/// Requests of a leaf in progress, within the bounds of a connection.
#[derive(Clone, Default)]
struct Line {
    requests: usize,
    /// Requests that are not read before others are answered.
    unread: VecDeque<Ticket>,
    held_bytes: u64,
    /// Admitted requests that need buffers to proceed.
    starving: VecDeque<Ticket>,
}

/// A list that reuses free places.
struct Places<T> {
    all: Vec<T>,
    free: Vec<usize>,
}

impl<T> Places<T> {
    fn new() -> Places<T> {
        Places { all: Vec::new(), free: Vec::new() }
    }

    fn insert(&mut self, value: T) -> usize {
        match self.free.pop() {
            Some(place) => {
                self.all[place] = value;
                place
            }
            None => {
                self.all.push(value);
                self.all.len() - 1
            }
        }
    }
}

/// A drive with its drive queue.
struct SharedDrive {
    queue: DriveQueue<usize>,
    leaves: Vec<Option<NodeId>>,
    emulated: Option<EmulatedDrive>,
}

struct World<'a, C> {
    stage: &'a Stage,
    clients: &'a mut C,
    random: Random,
    now_ns: u64,
    agenda: BTreeSet<(u64, u64, Happening)>,
    /// Sequence number that orders agenda entries of the same instant.
    entries: u64,
    wake_ns: Option<u64>,
    tree: Tree<Ticket>,
    leaves: Vec<Option<NodeId>>,
    lines: Vec<Line>,
    /// Node of the stage for each node of the tree.
    nodes: BTreeMap<NodeId, usize>,
    drives: Vec<SharedDrive>,
    open: Places<Open>,
    pieces: Places<Piece>,
}

/// Plays clients on a stage to its end. Returns the operations that each drive queue then keeps in flight.
pub fn play<C: Clients>(stage: &Stage, clients: &mut C) -> Vec<u32> {
    let mut world = World::new(stage, clients);
    while let Some((at_ns, _, happening)) = world.agenda.pop_first().filter(|next| next.0 < stage.duration_ns)
    {
        if world.clients.is_done() {
            break;
        }
        world.now_ns = at_ns;
        match happening {
            Happening::Ask(ticket) => world.ask(ticket),
            Happening::PieceDone(piece) => world.piece_done(piece),
            Happening::Answer(ticket) => world.answer(ticket),
            Happening::Wake => world.wake_ns = None,
        }
        // A daemon does nothing between two wake-ups, so due requests wait for a late one.
        if stage.late_ns_max == 0 || happening == Happening::Wake {
            world.release();
        }
        world.set_wake();
    }
    world.drives.iter().map(|drive| drive.queue.depth().operations()).collect()
}

/// Adds the nodes of a stage to a tree. The tree of the ceilings gets all nodes; a drive's tree gets the
/// nodes that share the drive. Returns the tree nodes by their index on the stage.
fn plant<T: Copy>(tree: &mut Tree<T>, stage: &Stage, drive: Option<usize>) -> Vec<Option<NodeId>> {
    let mut ids: Vec<Option<NodeId>> = Vec::new();
    for node in &stage.nodes {
        let parent = node.parent.map_or(Some(ROOT), |parent| ids[parent]).expect("parents are inner nodes");
        let mut terms = node.terms;
        if drive.is_some() {
            (terms.limits, terms.burst) = (Default::default(), None);
        }
        ids.push(match node.place {
            Place::Inner => Some(tree.add_inner(parent, &terms, 0)),
            Place::Leaf(of) if drive.is_none() || of == drive => Some(tree.add_leaf(parent, &terms, 0)),
            Place::Leaf(_) => None,
        });
    }
    ids
}

impl SharedDrive {
    fn new(stage: &Stage, index: usize) -> SharedDrive {
        let Drive { model, emulation, queue_target, in_flight } = stage.drives[index];
        let mut queue = DriveQueue::new(model, queue_target, 0);
        in_flight.into_iter().for_each(|operations| queue.hold_depth(operations));
        let leaves = plant(&mut queue.tree, stage, Some(index));
        SharedDrive { queue, leaves, emulated: emulation.map(EmulatedDrive::new) }
    }
}

impl<'a, C: Clients> World<'a, C> {
    fn new(stage: &'a Stage, clients: &'a mut C) -> World<'a, C> {
        let mut tree = Tree::new(0);
        let leaves = plant(&mut tree, stage, None);
        let nodes = leaves.iter().enumerate().filter_map(|(index, id)| Some(((*id)?, index))).collect();
        let first = clients.begin();
        let mut world = World {
            stage,
            clients,
            random: Random::new(stage.seed),
            now_ns: 0,
            agenda: BTreeSet::new(),
            entries: 0,
            wake_ns: None,
            tree,
            leaves,
            lines: vec![Line::default(); stage.nodes.len()],
            nodes,
            drives: (0..stage.drives.len()).map(|index| SharedDrive::new(stage, index)).collect(),
            open: Places::new(),
            pieces: Places::new(),
        };
        first.into_iter().for_each(|(at_ns, demand)| world.expect(at_ns, demand));
        world
    }

    fn enter(&mut self, at_ns: u64, happening: Happening) {
        self.entries += 1;
        self.agenda.insert((at_ns, self.entries, happening));
    }

    /// Schedules a future request.
    fn expect(&mut self, at_ns: u64, demand: Demand) {
        let event = Event { node: demand.node, bytes: demand.bytes.into(), ..Event::default() };
        let ticket = self.open.insert(Open { demand, event, position: 0, pieces_left: 0, accounted_ns: 0 });
        self.enter(at_ns, Happening::Ask(ticket));
    }

    fn ask(&mut self, ticket: Ticket) {
        let open = &mut self.open.all[ticket];
        let line = &mut self.lines[open.demand.node];
        if line.requests >= CONNECTION_REQUESTS_MAX {
            return line.unread.push_back(ticket);
        }
        line.requests += 1;
        open.event.asked_ns = self.now_ns;
        let Demand { node, kind, bytes, .. } = open.demand;
        let leaf = self.leaves[node].expect("every leaf is under the ceilings");
        let cost = Cost::of(kind, bytes_of(kind, bytes));
        if kind == Kind::Flush {
            // The data that a flush makes stable is admitted and written already.
            self.tree.pass(self.now_ns, leaf, cost);
            self.admitted(ticket, None);
        } else if self.tree.arrive(self.now_ns, leaf, ticket, cost) == Verdict::Run {
            self.admitted(ticket, None);
        }
    }

    fn release(&mut self) {
        while let Some(released) = self.tree.release(self.now_ns) {
            let bound_by = released.bound_by.and_then(|(node, limit)| Some((*self.nodes.get(&node)?, limit)));
            self.admitted(released.ticket, bound_by);
        }
    }

    fn set_wake(&mut self) {
        let Some(next_ns) = self.tree.next_ns() else { return };
        if self.wake_ns.is_some_and(|wake_ns| wake_ns <= next_ns.max(self.now_ns)) {
            return;
        }
        let late_ns = match self.stage.late_ns_max {
            0 => 0,
            max => self.random.below(max),
        };
        let at_ns = next_ns.max(self.now_ns) + late_ns;
        self.wake_ns = Some(at_ns);
        self.enter(at_ns, Happening::Wake);
    }

    fn admitted(&mut self, ticket: Ticket, bound_by: Option<(usize, Limit)>) {
        let now_ns = self.now_ns;
        let open = &mut self.open.all[ticket];
        open.accounted_ns = now_ns;
        (open.event.admitted_ns, open.event.started_ns, open.event.bound_by) = (now_ns, now_ns, bound_by);
        let demand = open.demand;
        self.clients.admitted(now_ns, demand.node);
        let drive = match self.stage.nodes[demand.node].place {
            Place::Leaf(drive) => drive,
            Place::Inner => unreachable!("only leaves ask"),
        };
        let end_ns = match (demand.work, drive) {
            (Work::Beside(ns), _) => Some(now_ns.saturating_add(ns)),
            (_, None) => Some(now_ns),
            (Work::Time(ns), _) if demand.kind == Kind::Flush => Some(now_ns.saturating_add(ns)),
            (Work::Turns, Some(drive)) if demand.kind == Kind::Flush => {
                Some(self.drives[drive].emulated.as_mut().map_or(now_ns, |emulated| emulated.flush(now_ns)))
            }
            _ => None,
        };
        match (end_ns, drive) {
            (None, Some(drive)) => {
                self.lines[demand.node].starving.push_back(ticket);
                self.feed(demand.node, drive);
            }
            (end_ns, _) => {
                let end_ns = end_ns.unwrap_or(now_ns).saturating_add(demand.after_ns);
                self.enter(end_ns, Happening::Answer(ticket));
            }
        }
    }

    /// Puts as many pieces of a leaf's requests into the drive queue as the bounds allow.
    fn feed(&mut self, node: usize, drive: usize) {
        while let Some(&ticket) = self.lines[node].starving.front() {
            let Open { demand, position, .. } = self.open.all[ticket];
            let length = u64::from(bytes_of(demand.kind, demand.bytes));
            let part = next_piece(demand.offset, length, position);
            let bytes = part.map_or(0, |part| part.length);
            let line = &mut self.lines[node];
            if line.held_bytes + u64::from(bytes) > CONNECTION_BUFFER_BYTES_MAX as u64 {
                return;
            }
            line.held_bytes += u64::from(bytes);
            let next = position + u64::from(bytes);
            if next >= length {
                line.starving.pop_front();
            }
            let open = &mut self.open.all[ticket];
            open.position = next;
            open.pieces_left += 1;
            let cost = self.drives[drive].queue.cost(demand.kind, bytes, position == 0);
            let (place, since_ns) = (demand.place(part), self.now_ns);
            self.enqueue(drive, Piece { ticket, cost, place, since_ns, queue_ns: 0, floors_ns: 0 });
        }
    }

    fn enqueue(&mut self, drive: usize, piece: Piece) {
        let node = self.open.all[piece.ticket].demand.node;
        let shared_drive = &mut self.drives[drive];
        let leaf = shared_drive.leaves[node].expect("a leaf waits in the queue of its drive");
        let index = self.pieces.insert(piece);
        if shared_drive.queue.arrive(self.now_ns, leaf, index, piece.cost) == Verdict::Run {
            self.start(drive, index);
        }
    }

    fn start(&mut self, drive: usize, piece: usize) {
        let now_ns = self.now_ns;
        let Piece { ticket, cost, place: (position, bytes), .. } = self.pieces.all[piece];
        self.pieces.all[piece].since_ns = now_ns;
        let open = &mut self.open.all[ticket];
        open.event.started_ns = now_ns;
        let end_ns = match (open.demand.work, &mut self.drives[drive].emulated) {
            (Work::Time(ns) | Work::Beside(ns), _) => now_ns.saturating_add(ns),
            (Work::Turns, Some(emulated)) => emulated.submit(now_ns, position, bytes),
            (Work::Turns, None) => now_ns + u64::from(cost.drive_ns),
        };
        self.enter(end_ns, Happening::PieceDone(piece));
    }

    fn piece_done(&mut self, index: usize) {
        let now_ns = self.now_ns;
        let piece = self.pieces.all[index];
        self.pieces.free.push(index);
        self.open.all[piece.ticket].metadata(now_ns, &piece);
        let node = self.open.all[piece.ticket].demand.node;
        let Place::Leaf(Some(drive)) = self.stage.nodes[node].place else {
            unreachable!("only drives serve pieces")
        };
        self.lines[node].held_bytes -= u64::from(piece.cost.bytes);
        // As in the daemon, a completion releases pieces only if some were waiting.
        if self.drives[drive].queue.completed(now_ns, piece.cost) {
            while let Some(granted) = self.drives[drive].queue.release(now_ns) {
                let piece = &mut self.pieces.all[granted.ticket];
                (piece.queue_ns, piece.floors_ns) = (granted.waited_ns, granted.waited_for_floors_ns);
                self.start(drive, granted.ticket);
            }
        }
        self.feed(node, drive);
        let open = &mut self.open.all[piece.ticket];
        open.pieces_left -= 1;
        if open.pieces_left == 0 && open.position >= u64::from(bytes_of(open.demand.kind, open.demand.bytes))
        {
            match open.demand.after_ns {
                0 => self.answer(piece.ticket),
                after_ns => self.enter(now_ns.saturating_add(after_ns), Happening::Answer(piece.ticket)),
            }
        }
    }

    fn answer(&mut self, ticket: Ticket) {
        let Open { demand, mut event, .. } = self.open.all[ticket];
        self.open.free.push(ticket);
        event.answered_ns = self.now_ns;
        let mut next = Vec::new();
        self.clients.answered(&event, demand.name, &mut next);
        next.into_iter().for_each(|(at_ns, demand)| self.expect(at_ns, demand));
        let line = &mut self.lines[demand.node];
        line.requests -= 1;
        if let Some(unread) = line.unread.pop_front() {
            self.ask(unread);
        }
    }
}

impl Demand {
    /// Position of a part of the request, and the bytes of all blocks that it touches. Without a part the
    /// request moves no bytes.
    fn place(&self, part: Option<Part>) -> (Position, u64) {
        let at = |extent, offset| Position { volume: self.volume as u128, extent, offset };
        part.map_or((at(ExtentIndex::holding(self.offset), self.offset % EXTENT_BYTES), 0), |part| {
            let (start, bytes) = covering_blocks(part.offset, part.length);
            (at(part.extent, start.into()), bytes.into())
        })
    }
}

impl Open {
    /// Attributes the time since the last piece ended to the piece that ends now. Pieces overlap, and no time
    /// counts twice. The data plane does the same.
    fn metadata(&mut self, now_ns: u64, piece: &Piece) {
        let since_ns = now_ns.saturating_sub(self.accounted_ns);
        let drive_ns = now_ns.saturating_sub(piece.since_ns).min(since_ns);
        let queue_ns = piece.queue_ns.min(since_ns - drive_ns);
        let floors_ns =
            u128::from(queue_ns) * u128::from(piece.floors_ns) / u128::from(piece.queue_ns.max(1));
        self.event.queue_ns += queue_ns;
        self.event.floors_ns += floors_ns as u64;
        self.accounted_ns = now_ns;
    }
}

/// Bytes that a request moves.
fn bytes_of(kind: Kind, bytes: u32) -> u32 {
    match kind {
        Kind::Read | Kind::Write => bytes,
        Kind::Discard | Kind::Zeroes | Kind::Flush => 0,
    }
}
