//! Replica: the state machine of one replica of a volume and its extents.

use weir_types::ExtentIndex;
use weir_types::bounds::BLOCK_BYTES;

use crate::action::{Action, Content, Fault, Generation, Kind, OperationId, Remains, Request};
use crate::extent::{AllocationMap, Extent, State, piece_of};
use crate::flush::{Flushes, Join};
use crate::geometry::extent_count;
use crate::operation::{Operation, Operations, Stage};

/// One replica of a volume.
///
/// An operation passes these stages: `Waiting` → `HeadEdge` → `TailEdge` → `Running` → done. It waits for its
/// extent to open, for its range or for space. Only unaligned writes have edges. In an open extent, reads go
/// straight to `Running`, as do aligned writes into allocated space.
#[derive(Debug)]
pub struct Replica {
    extents: Vec<Extent>,
    operations: Operations,
    flushes: Flushes,
    /// Extents that a flush must sync.
    touched: Vec<ExtentIndex>,
    /// True if an acknowledged write can no longer be made stable: every later flush must fail.
    has_lost_writes: bool,
    /// Generation of the newest replacement files.
    last_generation: Generation,
}

impl Replica {
    /// A volume of `size_bytes` whose extent files all exist.
    pub fn new(size_bytes: u64) -> Replica {
        let extents = (0..extent_count(size_bytes)).map(|_| Extent::new(Generation::default())).collect();
        Replica {
            extents,
            operations: Operations::default(),
            flushes: Flushes::default(),
            touched: Vec::new(),
            has_lost_writes: false,
            last_generation: Generation::default(),
        }
    }

    /// A new generation for files, so that a removed and re-added extent is not taken for its old file.
    fn next_generation(&mut self) -> Generation {
        self.last_generation.0 = self.last_generation.0.wrapping_add(1);
        self.last_generation
    }

    /// True if the file of an extent has this generation.
    pub fn is_current(&self, extent: ExtentIndex, generation: Generation) -> bool {
        self.extents.get(extent.index()).is_some_and(|extent| extent.generation == generation)
    }

    /// Changes the size. No operation may be under way in removed extents.
    pub fn resize(&mut self, size_bytes: u64) {
        let count = extent_count(size_bytes) as usize;
        assert!(self.extents.len() <= count || self.operations.len() == 0, "shrinking needs a quiet volume");
        let generation = self.next_generation();
        self.extents.resize_with(count, || Extent::new(generation));
        self.touched.retain(|&extent| extent.index() < count);
    }

    /// Number of extents.
    pub fn extents(&self) -> u32 {
        self.extents.len() as u32
    }

    /// Number of operations under way.
    pub fn operations(&self) -> usize {
        self.operations.len()
    }

    /// True if the range is known to hold no data. An extent that is not open returns false.
    pub fn is_hole(&self, extent: ExtentIndex, offset: u32, length: u32) -> bool {
        let extent = &self.extents[extent.index()];
        extent.state == State::Ready && extent.map.is_hole(offset, length)
    }

    /// True if every operation on the extent fails.
    pub fn has_failed(&self, extent: ExtentIndex) -> bool {
        self.extents.get(extent.index()).is_some_and(|extent| extent.state == State::Failed)
    }

    /// Starts an operation. It ends with an [`Action::Done`], in this call or later.
    pub fn start(&mut self, request: Request, actions: &mut Vec<Action>) -> OperationId {
        assert!(request.length > 0, "an empty request needs no operation");
        let id = self.operations.insert(request);
        let Some(extent) = self.extents.get_mut(request.extent.index()) else {
            self.finish(id, Err(Fault::OutOfRange), actions);
            return id;
        };
        let operation = self.operations.get(id);
        if operation.is_exclusive() {
            extent.exclusive += 1;
        }
        match extent.state {
            State::Ready => self.proceed(id, actions),
            State::Opening => extent.waiting.push_back(id),
            State::Closed => {
                extent.state = State::Opening;
                extent.waiting.push_back(id);
                let generation = extent.generation;
                actions.push(Action::Open { extent: request.extent, generation });
            }
            State::Failed => self.finish(id, Err(Fault::Broken), actions),
        }
        id
    }

    /// Moves a waiting operation forward as far as possible now; if it cannot move, it waits again.
    fn proceed(&mut self, id: OperationId, actions: &mut Vec<Action>) {
        let operation = *self.operations.get(id);
        if operation.is_read() {
            return self.start_read(id, operation, actions);
        }
        if self.conflicts(id, &operation) || self.needs_space(&operation, actions) {
            return self.extents[operation.request.extent.index()].waiting.push_back(id);
        }
        self.extents[operation.request.extent.index()].writing.push(id);
        match operation.request.kind {
            Kind::Write { .. } => self.start_write(id, operation, actions),
            _ => self.start_placement(id, operation, actions),
        }
    }

    fn start_read(&mut self, id: OperationId, operation: Operation, actions: &mut Vec<Action>) {
        let Request { extent, .. } = operation.request;
        let (offset, length) = operation.blocks();
        if self.extents[extent.index()].map.is_hole(offset, length) {
            return self.finish(id, Ok(Content::Hole), actions);
        }
        self.operations.get_mut(id).stage = Stage::Running { done: 0 };
        actions.push(Action::Read { operation: id, extent, offset, buffer_offset: 0, length });
    }

    /// True if the operation must wait for an overlapping one that runs or waits ahead of it.
    fn conflicts(&self, id: OperationId, operation: &Operation) -> bool {
        let extent = &self.extents[operation.request.extent.index()];
        if extent.exclusive == 0 {
            return false;
        }
        let collides = |other: &OperationId| {
            let other_operation = self.operations.get(*other);
            let one_is_exclusive = operation.is_exclusive() || other_operation.is_exclusive();
            *other != id && one_is_exclusive && operation.overlaps(other_operation)
        };
        extent.writing.iter().chain(&extent.waiting).any(collides)
    }

    /// Asks for space if the write needs it; true if it must wait for the space.
    fn needs_space(&mut self, operation: &Operation, actions: &mut Vec<Action>) -> bool {
        let Request { extent: index, offset, .. } = operation.request;
        let (extent, piece) = (&mut self.extents[index.index()], piece_of(offset));
        let is_write = matches!(operation.request.kind, Kind::Write { .. });
        if !is_write || extent.map.may_hold_data(piece) {
            return false;
        }
        if !extent.allocating.contains(&piece) {
            extent.allocating.push(piece);
            actions.push(Action::Allocate { extent: index, generation: extent.generation, piece });
        }
        true
    }

    fn start_write(&mut self, id: OperationId, operation: Operation, actions: &mut Vec<Action>) {
        let extent = operation.request.extent;
        let (stage, edge) = match operation.stage {
            Stage::Waiting if operation.has_head_edge() => (Stage::HeadEdge, operation.head_edge()),
            Stage::Waiting | Stage::HeadEdge if operation.has_tail_edge() => {
                (Stage::TailEdge, operation.tail_edge())
            }
            _ => return self.write_rest(id, 0, actions),
        };
        self.operations.get_mut(id).stage = stage;
        actions.push(Action::ReadEdge { operation: id, extent, edge });
    }

    fn write_rest(&mut self, id: OperationId, done: u32, actions: &mut Vec<Action>) {
        let operation = self.operations.get_mut(id);
        operation.stage = Stage::Running { done };
        let (offset, length) = operation.blocks();
        let (extent, kind) = (operation.request.extent, operation.request.kind);
        let is_durable = kind == Kind::Write { is_durable: true };
        actions.push(Action::Write {
            operation: id,
            extent,
            offset: offset + done,
            buffer_offset: done,
            length: length - done,
            is_durable,
        });
    }

    fn start_placement(&mut self, id: OperationId, operation: Operation, actions: &mut Vec<Action>) {
        let Request { kind, extent, offset, length } = operation.request;
        self.operations.get_mut(id).stage = Stage::Running { done: 0 };
        let map = &mut self.extents[extent.index()].map;
        if kind == Kind::Zero {
            map.set_range(offset, length);
            actions.push(Action::Zero { operation: id, extent, offset, length });
        } else if map.is_hole(offset, length) {
            self.finish(id, Ok(Content::Data), actions);
        } else {
            actions.push(Action::Release { operation: id, extent, offset, length });
        }
    }

    /// Takes the answer to [`Action::Open`]. [`Fault::Broken`] fails the extent. With any other fault only
    /// the waiting operations fail, and the next operation opens the extent again.
    pub fn opened(
        &mut self,
        (extent, generation): (ExtentIndex, Generation),
        result: Result<AllocationMap, Fault>,
        actions: &mut Vec<Action>,
    ) {
        if !self.is_current(extent, generation) {
            return;
        }
        match result {
            Ok(map) => {
                let extent_state = &mut self.extents[extent.index()];
                if extent_state.state == State::Opening {
                    extent_state.state = State::Ready;
                    extent_state.map = map;
                }
                self.retry_waiting(extent, actions);
            }
            Err(Fault::Broken) => self.fail(extent, true, actions),
            Err(fault) => self.stay_closed(extent, fault, actions),
        }
    }

    fn stay_closed(&mut self, extent: ExtentIndex, fault: Fault, actions: &mut Vec<Action>) {
        let state = &mut self.extents[extent.index()];
        if state.state == State::Opening {
            state.state = State::Closed;
            for id in std::mem::take(&mut state.waiting) {
                self.finish(id, Err(fault), actions);
            }
        }
    }

    /// Takes the answer to [`Action::Allocate`]. Writes are tried even if no space could be reserved. A part
    /// of the piece may have space, and the drive's own answer is the truth.
    pub fn allocated(
        &mut self,
        (extent, generation): (ExtentIndex, Generation),
        piece: u32,
        actions: &mut Vec<Action>,
    ) {
        if !self.is_current(extent, generation) {
            return;
        }
        let state = &mut self.extents[extent.index()];
        state.allocating.retain(|&other| other != piece);
        state.map.set(piece);
        self.retry_waiting(extent, actions);
    }

    /// Takes the other answer to [`Action::Allocate`]: the piece gets no space, or not now. Writes that wait
    /// for it fail.
    pub fn refused(
        &mut self,
        (extent, generation): (ExtentIndex, Generation),
        piece: u32,
        fault: Fault,
        actions: &mut Vec<Action>,
    ) {
        if !self.is_current(extent, generation) {
            return;
        }
        let state = &mut self.extents[extent.index()];
        state.allocating.retain(|&other| other != piece);
        let needs_it = |id: &OperationId| {
            let request = self.operations.get(*id).request;
            matches!(request.kind, Kind::Write { .. }) && piece_of(request.offset) == piece
        };
        let waiting = std::mem::take(&mut state.waiting);
        let (failing, waiting): (Vec<OperationId>, Vec<OperationId>) =
            waiting.into_iter().partition(needs_it);
        state.waiting = waiting.into();
        failing.into_iter().for_each(|id| self.finish(id, Err(fault), actions));
        self.retry_waiting(extent, actions);
    }

    /// The [`Action::Zero`] of a running zero operation, for executors that need more than one step.
    pub fn zeroing(&self, id: OperationId) -> Option<Action> {
        let Request { kind, extent, offset, length } = self.operations.get(id).request;
        (kind == Kind::Zero).then_some(Action::Zero { operation: id, extent, offset, length })
    }

    /// Takes the answer to an action that names an operation: bytes moved (for reads and writes), or a fault.
    pub fn completed(&mut self, id: OperationId, result: Result<u32, Fault>, actions: &mut Vec<Action>) {
        let operation = *self.operations.get(id);
        let extent = operation.request.extent;
        match result {
            Ok(bytes) => self.advance(id, operation, bytes, actions),
            Err(fault) => {
                // The extent fails first, so that the operation ends on a failed extent. No acknowledged data
                // is lost by that.
                if fault == Fault::Broken {
                    let is_running = matches!(operation.stage, Stage::Running { .. });
                    self.fail(extent, operation.is_read() || !is_running, actions);
                }
                self.end(id, operation, Err(fault), actions);
            }
        }
    }

    fn advance(&mut self, id: OperationId, operation: Operation, bytes: u32, actions: &mut Vec<Action>) {
        let Stage::Running { done } = operation.stage else {
            if bytes != BLOCK_BYTES as u32 {
                return self.completed(id, Err(Fault::Broken), actions);
            }
            return self.start_write(id, operation, actions);
        };
        if matches!(operation.request.kind, Kind::Release | Kind::Zero) {
            return self.end(id, operation, Ok(Content::Data), actions);
        }
        let (offset, length) = operation.blocks();
        let done = done + bytes;
        if done >= length {
            self.end(id, operation, Ok(Content::Data), actions);
        } else if bytes == 0 || !bytes.is_multiple_of(BLOCK_BYTES as u32) {
            // The file ends within the extent: it was shortened from outside.
            self.completed(id, Err(Fault::Broken), actions);
        } else if operation.is_read() {
            self.operations.get_mut(id).stage = Stage::Running { done };
            let (extent, offset, length) = (operation.request.extent, offset + done, length - done);
            actions.push(Action::Read { operation: id, extent, offset, buffer_offset: done, length });
        } else {
            self.write_rest(id, done, actions);
        }
    }

    /// Ends an operation that was carried out.
    fn end(
        &mut self,
        id: OperationId,
        operation: Operation,
        result: Result<Content, Fault>,
        actions: &mut Vec<Action>,
    ) {
        let Request { extent: index, kind, offset, length } = operation.request;
        let extent = &mut self.extents[index.index()];
        let result = if extent.state == State::Failed { Err(Fault::Broken) } else { result };
        if kind == Kind::Release && result.is_ok() {
            extent.map.clear_within(offset, length);
        }
        // A failed change counts too, because a part of it may have been made.
        let is_stable = operation.is_read() || kind == Kind::Write { is_durable: true } && result.is_ok();
        if !is_stable && extent.state != State::Failed {
            extent.sync.is_dirty = true;
            self.touch(index);
        }
        self.finish(id, result, actions);
        self.retry_waiting(index, actions);
    }

    fn touch(&mut self, index: ExtentIndex) {
        if !std::mem::replace(&mut self.extents[index.index()].is_touched, true) {
            self.touched.push(index);
        }
    }

    fn untouch(&mut self, index: ExtentIndex) {
        if std::mem::take(&mut self.extents[index.index()].is_touched) {
            self.touched.retain(|&other| other != index);
        }
    }

    /// Removes an operation and reports its end.
    fn finish(&mut self, id: OperationId, result: Result<Content, Fault>, actions: &mut Vec<Action>) {
        let operation = self.operations.remove(id);
        if let Some(extent) = self.extents.get_mut(operation.request.extent.index()) {
            if let Some(index) = extent.writing.iter().position(|&other| other == id) {
                extent.writing.swap_remove(index);
            }
            extent.exclusive -= u32::from(operation.is_exclusive());
        }
        actions.push(Action::Done { operation: id, result });
    }

    /// Notes that the executor has acted on an operation's [`Action::Done`]: its number may be used again
    /// from now on.
    pub fn forget(&mut self, id: OperationId) {
        self.operations.release(id);
    }

    /// Lets every waiting operation try again, in order; those that still cannot run wait again. While an
    /// operation tries, only operations ahead of it are in the waiting list.
    fn retry_waiting(&mut self, extent: ExtentIndex, actions: &mut Vec<Action>) {
        let extent = &mut self.extents[extent.index()];
        if extent.state != State::Ready || extent.waiting.is_empty() {
            return;
        }
        for id in std::mem::take(&mut extent.waiting) {
            self.proceed(id, actions);
        }
    }

    /// Makes all acknowledged writes stable; ends with [`Action::Flushed`].
    pub fn flush(&mut self, flush: u32, actions: &mut Vec<Action>) {
        self.flush_those(flush, |_| true, actions);
    }

    /// Makes all acknowledged writes of an extent stable; ends with [`Action::Flushed`].
    pub fn flush_extent(&mut self, flush: u32, extent: ExtentIndex, actions: &mut Vec<Action>) {
        self.flush_those(flush, |index| index == extent, actions);
    }

    fn flush_those(&mut self, flush: u32, is_meant: impl Fn(ExtentIndex) -> bool, actions: &mut Vec<Action>) {
        let mut waits = 0;
        for &index in self.touched.iter().filter(|index| is_meant(**index)) {
            match self.extents[index.index()].sync.join(flush) {
                Join::Clean => continue,
                Join::Wait => {}
                Join::Begin => {
                    let generation = self.extents[index.index()].generation;
                    actions.push(Action::Sync { extent: index, generation });
                }
            }
            waits += 1;
        }
        if waits == 0 {
            actions.push(Action::Flushed { flush, result: self.flush_result(true) });
        } else {
            self.flushes.begin(flush, waits);
        }
    }

    fn flush_result(&self, succeeded: bool) -> Result<(), Fault> {
        if succeeded && !self.has_lost_writes { Ok(()) } else { Err(Fault::Broken) }
    }

    /// Takes the answer to [`Action::Sync`]. A failed sync is never tried again: the data that it covered may
    /// be gone, so the extent is failed.
    pub fn synced(
        &mut self,
        (extent, generation): (ExtentIndex, Generation),
        result: Result<(), Fault>,
        actions: &mut Vec<Action>,
    ) {
        if !self.is_current(extent, generation) {
            return;
        }
        if result.is_err() {
            self.extents[extent.index()].sync.is_dirty = true;
            self.fail(extent, false, actions);
            return;
        }
        let (served, is_next_wanted) = self.extents[extent.index()].sync.ended();
        if is_next_wanted {
            actions.push(Action::Sync { extent, generation });
        }
        if !self.extents[extent.index()].sync.concerns_flush() {
            self.untouch(extent);
        }
        self.finish_flushes(served, true, actions);
    }

    fn finish_flushes(&mut self, served: Vec<u32>, succeeded: bool, actions: &mut Vec<Action>) {
        for flush in served {
            if let Some(all_succeeded) = self.flushes.extent_done(flush, succeeded) {
                actions.push(Action::Flushed { flush, result: self.flush_result(all_succeeded) });
            }
        }
    }

    /// True if an extent has no operation under way and nothing that an operation waits for, so that it may
    /// be renewed. Other answers to a failed extent may arrive later; they are not taken for answers of the
    /// next file.
    pub fn is_idle(&self, index: ExtentIndex) -> bool {
        let Some(extent) = self.extents.get(index.index()) else { return true };
        let is_allocating = extent.state != State::Failed && !extent.allocating.is_empty();
        let is_busy = extent.state == State::Opening || extent.sync.is_running() || is_allocating;
        !is_busy && !self.operations.iter().any(|operation| operation.request.extent == index)
    }

    /// Resets an extent whose file was replaced. No operation may be under way in it.
    pub fn renew(&mut self, index: ExtentIndex) {
        self.untouch(index);
        let generation = self.next_generation();
        let extent = &mut self.extents[index.index()];
        assert!(extent.writing.is_empty() && extent.waiting.is_empty(), "what was begun has been answered");
        *extent = Extent::new(generation);
    }

    /// Fails an extent: all waiting and all later operations on it fail.
    pub fn fail_replica(&mut self, index: ExtentIndex, actions: &mut Vec<Action>) {
        self.fail(index, true, actions);
    }

    /// Fails an extent. `is_unchanged` is true if the operation that failed is known to have changed nothing.
    fn fail(&mut self, index: ExtentIndex, is_unchanged: bool, actions: &mut Vec<Action>) {
        let Some(extent) = self.extents.get_mut(index.index()) else { return };
        if extent.state == State::Failed {
            return;
        }
        extent.state = State::Failed;
        // A change or sync that is still under way may fail too, and its failure is no longer reported.
        let is_unchanged = is_unchanged && extent.writing.is_empty() && !extent.sync.is_running();
        self.has_lost_writes |= extent.sync.concerns_flush();
        let remains = match (is_unchanged, extent.sync.concerns_flush()) {
            (false, _) => Remains::Unknown,
            (true, true) => Remains::Unsynced,
            (true, false) => Remains::Intact,
        };
        let waiting = std::mem::take(&mut extent.waiting);
        let flushes = extent.sync.abandon();
        self.untouch(index);
        actions.push(Action::FailReplica { extent: index, remains });
        for id in waiting {
            self.finish(id, Err(Fault::Broken), actions);
        }
        self.finish_flushes(flushes, false, actions);
    }
}

#[cfg(test)]
mod tests {
    use weir_types::bounds::EXTENT_BYTES;

    use super::*;

    const FIRST: ExtentIndex = ExtentIndex(0);

    /// Completes a write to the file of a generation, and begins a flush.
    fn write_and_flush(volume: &mut Replica, generation: Generation, flush: u32) -> Vec<Action> {
        let (file, mut actions) = ((FIRST, generation), Vec::new());
        let kind = Kind::Write { is_durable: false };
        let id = volume.start(Request { kind, extent: FIRST, offset: 0, length: 4096 }, &mut actions);
        assert_eq!(actions, [Action::Open { extent: FIRST, generation }]);
        volume.opened(file, Ok(AllocationMap::default()), &mut actions);
        volume.allocated(file, 0, &mut actions);
        volume.completed(id, Ok(4096), &mut actions);
        volume.forget(id);
        actions.clear();
        volume.flush(flush, &mut actions);
        actions
    }

    #[test]
    fn late_answer_is_not_applied_to_the_next_file() {
        let mut volume = Replica::new(EXTENT_BYTES);
        let (first, second) = (Generation(0), Generation(1));
        let sync = |generation| vec![Action::Sync { extent: FIRST, generation }];
        assert_eq!(write_and_flush(&mut volume, first, 1), sync(first));
        volume.fail_replica(FIRST, &mut Vec::new());
        assert!(volume.is_idle(FIRST), "nothing waits for the sync any more");
        volume.renew(FIRST);
        assert_eq!(write_and_flush(&mut volume, second, 2), sync(second));
        let mut actions = Vec::new();
        volume.synced((FIRST, first), Ok(()), &mut actions);
        assert_eq!(actions, [], "what the next file has is not stable yet");
        volume.synced((FIRST, first), Err(Fault::Broken), &mut actions);
        volume.opened((FIRST, first), Err(Fault::Broken), &mut actions);
        volume.allocated((FIRST, first), 7, &mut actions);
        assert!(actions.is_empty() && !volume.has_failed(FIRST) && volume.is_hole(FIRST, 7 << 20, 4096));
        volume.synced((FIRST, second), Ok(()), &mut actions);
        assert!(matches!(actions[..], [Action::Flushed { flush: 2, .. }]));
    }
}
