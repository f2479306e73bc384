//! Order of changes: which changes of an extent run, and which wait for them.
//!
//! Two changes of the same blocks never run together if the extent has several replicas or a scrub compares it. Those that
//! wait run in the order of their arrival.
//! Resync steps and pieces of a scrub count as changes. This module does not know why a change waits.

use std::collections::VecDeque;

use weir_types::ExtentIndex;

use super::mirror_id::MirrorId;
use super::operation::{Operation, Operations};
use super::regions::{RegionSet, regions_of};
use crate::action::Request;
use crate::geometry::covering_blocks;

/// Changes of one extent.
#[derive(Debug, Default)]
struct ExtentOrder {
    /// Changes in progress.
    running: Vec<MirrorId>,
    /// Changes that wait for others, in order.
    waiting: VecDeque<MirrorId>,
    /// Reads that wait until the authoritative replica is recorded.
    reads: Vec<MirrorId>,
}

/// Changes of all extents.
#[derive(Debug)]
pub(super) struct ChangeOrder {
    extents: Vec<ExtentOrder>,
}

impl ChangeOrder {
    /// No changes of this number of extents.
    pub fn new(extents: usize) -> ChangeOrder {
        ChangeOrder { extents: (0..extents).map(|_| ExtentOrder::default()).collect() }
    }

    /// Changes the number of extents.
    pub fn resize(&mut self, extents: usize) {
        self.extents.resize_with(extents, ExtentOrder::default);
    }

    fn at(&mut self, extent: ExtentIndex) -> &mut ExtentOrder {
        &mut self.extents[extent.index()]
    }

    /// Begins a change.
    pub fn begin_change(&mut self, extent: ExtentIndex, id: MirrorId) {
        self.at(extent).running.push(id);
    }

    /// Ends a change.
    pub fn end_change(&mut self, extent: ExtentIndex, id: MirrorId) {
        self.at(extent).running.retain(|other| *other != id);
    }

    /// Lets a change wait behind all others.
    pub fn line_up(&mut self, extent: ExtentIndex, id: MirrorId) {
        self.at(extent).waiting.push_back(id);
    }

    /// True if a change waits.
    pub fn has_waiting(&self, extent: ExtentIndex) -> bool {
        !self.extents[extent.index()].waiting.is_empty()
    }

    /// Takes all changes that wait, in order.
    pub fn take_waiting(&mut self, extent: ExtentIndex) -> impl Iterator<Item = MirrorId> {
        self.at(extent).waiting.drain(..)
    }

    /// Changes that wait, in order.
    pub fn waiting(&self, extent: ExtentIndex) -> impl Iterator<Item = MirrorId> {
        self.extents[extent.index()].waiting.iter().copied()
    }

    /// Changes in progress.
    pub fn running(&self, extent: ExtentIndex) -> impl Iterator<Item = MirrorId> {
        self.extents[extent.index()].running.iter().copied()
    }

    /// Running and waiting changes.
    fn under_way<'a>(
        &'a self,
        extent: ExtentIndex,
        operations: &'a Operations,
    ) -> impl Iterator<Item = &'a Operation> {
        let order = &self.extents[extent.index()];
        let ids = order.running.iter().chain(&order.waiting);
        ids.filter_map(|id| operations.known(*id))
    }

    /// Lets a read wait until the authoritative replica is recorded.
    pub fn hold_read(&mut self, extent: ExtentIndex, id: MirrorId) {
        self.at(extent).reads.push(id);
    }

    /// Takes all reads that wait.
    pub fn take_reads(&mut self, extent: ExtentIndex) -> impl Iterator<Item = MirrorId> {
        self.at(extent).reads.drain(..)
    }

    /// True if a running or waiting change overlaps a range.
    pub fn is_busy(&self, request: &Request, operations: &Operations) -> bool {
        let range = (request.offset, request.length);
        self.under_way(request.extent, operations).any(|other| overlap(range, other.range()))
    }

    /// True if a resync step of a replica's region is running or waiting.
    pub fn is_resyncing(
        &self,
        extent: ExtentIndex,
        slot: usize,
        region: u32,
        operations: &Operations,
    ) -> bool {
        let mut steps = self.under_way(extent, operations).filter_map(Operation::resync_step);
        steps.any(|step| step.slot == slot && step.region == region)
    }

    /// Regions in which a change is running or waiting.
    pub fn regions_under_way(&self, extent: ExtentIndex, operations: &Operations) -> RegionSet {
        self.under_way(extent, operations).flat_map(touched).collect()
    }

    /// Regions in which changes run that concern all replicas. Resync steps change only stale ones.
    pub fn changing_regions(&self, extent: ExtentIndex, operations: &Operations) -> RegionSet {
        let running = self.running(extent).filter_map(|id| operations.known(id));
        running.filter(|change| change.resync_step().is_none()).flat_map(touched).collect()
    }
}

/// Regions that an operation touches.
fn touched(operation: &Operation) -> std::ops::Range<u32> {
    regions_of(operation.request.offset, operation.request.length)
}

/// True if two ranges have a block in common.
fn overlap(one: (u32, u32), other: (u32, u32)) -> bool {
    let ((one, one_length), (other, other_length)) =
        (covering_blocks(one.0, one.1), covering_blocks(other.0, other.1));
    one < other + other_length && other < one + one_length
}
