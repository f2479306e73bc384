//! Operations in flight in the simulated machine, and their buffers. They know neither drives nor the mirror.

use std::collections::BTreeMap;

use weir_types::ExtentIndex;
use weir_volume::mirror::MirrorId;
use weir_volume::{Action, OperationId};

use super::work::Pending;
use crate::Stamp;

/// Slot and operation of a replica.
type ReplicaOperation = (usize, OperationId);

/// Operations that will be answered, in no order.
#[derive(Debug, Default)]
pub(in crate::mirrored) struct Operations {
    pending: Vec<Pending>,
    /// Request or step that each replica operation belongs to, from the first action of the operation to its
    /// end.
    contexts: BTreeMap<ReplicaOperation, MirrorId>,
    buffers: BTreeMap<ReplicaOperation, Vec<Stamp>>,
}

impl Operations {
    pub fn add(&mut self, pending: Pending) {
        self.pending.push(pending);
    }

    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    pub fn count(&self) -> usize {
        self.pending.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Pending> {
        self.pending.iter()
    }

    pub fn at(&self, index: usize) -> &Pending {
        &self.pending[index]
    }

    pub fn take_at(&mut self, index: usize) -> Pending {
        self.pending.swap_remove(index)
    }

    /// Takes the operations that are meant, in the order in which they were asked for.
    pub fn take_those(&mut self, is_meant: impl Fn(&Pending) -> bool) -> Vec<Pending> {
        self.pending.extract_if(.., |pending| is_meant(pending)).collect()
    }

    /// Takes all operations. Buffers stay.
    pub fn take_all(&mut self) -> Vec<Pending> {
        std::mem::take(&mut self.pending)
    }

    /// Forgets all operations and their buffers.
    pub fn clear(&mut self) {
        *self = Operations::default();
    }

    /// True if an operation is in flight on an extent replica.
    pub fn touches(&self, extent: ExtentIndex, slot: usize) -> bool {
        self.pending.iter().any(|pending| pending.touches(extent, slot))
    }

    /// True if an action on the content of an extent replica's file is in flight. Neither a sync nor an allocation
    /// is one: that of a removed file changes nothing.
    pub fn is_using(&self, extent: ExtentIndex, slot: usize) -> bool {
        let is_content = |pending: &&Pending| match pending {
            Pending::Action(.., action) => !matches!(action, Action::Allocate { .. }),
            _ => false,
        };
        self.pending.iter().filter(is_content).any(|pending| pending.touches(extent, slot))
    }

    /// True if the record that the last replica of an extent failed is not written yet.
    pub fn has_failure(&self, extent: ExtentIndex) -> bool {
        self.pending.iter().any(|pending| matches!(pending, Pending::Failure(of) if *of == extent))
    }

    /// Begins a replica operation, unless it began with an earlier action.
    pub fn begin(&mut self, operation: ReplicaOperation, owner: MirrorId) {
        self.contexts.entry(operation).or_insert(owner);
    }

    pub fn has_begun(&self, operation: ReplicaOperation) -> bool {
        self.contexts.contains_key(&operation)
    }

    /// Ends a replica operation.
    pub fn end(&mut self, operation: ReplicaOperation) {
        self.contexts.remove(&operation);
        self.buffers.remove(&operation);
    }

    pub fn buffer(&self, operation: ReplicaOperation) -> Option<&Vec<Stamp>> {
        self.buffers.get(&operation)
    }

    pub fn buffer_mut(&mut self, operation: ReplicaOperation) -> Option<&mut Vec<Stamp>> {
        self.buffers.get_mut(&operation)
    }

    /// Fills the buffer of an operation that has none yet.
    pub fn fill_buffer(&mut self, operation: ReplicaOperation, content: impl FnOnce() -> Vec<Stamp>) {
        self.buffers.entry(operation).or_insert_with(content);
    }

    pub fn take_buffer(&mut self, operation: ReplicaOperation) -> Option<Vec<Stamp>> {
        self.buffers.remove(&operation)
    }
}
