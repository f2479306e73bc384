//! Effects: giving each effect of the mirror to the part of the volume that carries it out.

use weir_volume::mirror::{Effect, MirrorId};
use weir_volume::{Content, Fault, OperationId};

use super::ServedVolume;
use crate::token::Ticket;
use crate::volumes::operations::{Owner, Purpose};
use crate::volumes::volume_desk::Desk;

/// What the reactor has to do for a volume: tell a client of an end.
pub enum VolumeEffect {
    /// An operation of a client's request has ended.
    Ended { ticket: Ticket, owner: Owner, result: Result<Content, Fault> },
    /// A flush has ended.
    Flushed { ticket: Ticket, result: Result<(), Fault> },
}

impl ServedVolume {
    /// Carries out an effect of the mirror, except for what concerns clients.
    // Each request passes through here several times. What it needs is inlined into the reactor, and the rest is kept
    // apart, because its many locals would cost each request.
    #[inline(always)]
    pub fn take_effect(&mut self, effect: Effect, desk: &mut Desk<'_>) -> Option<VolumeEffect> {
        match effect {
            Effect::Act { slot, owner, action } => self.disk(desk).begin(slot, owner, action),
            Effect::Ended { slot, operation } => self.operations.end_operation(slot, operation),
            Effect::Done { operation, result, source } => {
                return self.end_operation(operation, source, result, desk);
            }
            Effect::Flushed { flush, result, is_owed } => {
                if is_owed {
                    self.open.statistics.replication.add_coalesced_flush();
                    let end_ns = self.flush_window.end_ns(desk.io.now_ns);
                    desk.schedules.coalesced_flushes.owe(self.index, end_ns);
                }
                let ticket = self.operations.end_flush(flush);
                return Some(VolumeEffect::Flushed { ticket, result });
            }
            other => self.take_rare_effect(other, desk),
        }
        None
    }

    #[inline(never)]
    fn take_rare_effect(&mut self, effect: Effect, desk: &mut Desk<'_>) {
        match effect {
            Effect::WriteMetadata(request) => self.begin_metadata(*request, desk),
            Effect::Examine { id, slot, operation, content } => {
                let (scrub, mut desk) = self.scrub(desk);
                scrub.examine(id, (slot, operation), content, &mut desk);
            }
            Effect::Zeroes { id } => self.operations.zero_memory(id),
            Effect::ChecksumWork { extent, work } => {
                let (checksums, mut desk) = self.checksums(desk.io);
                checksums.begin(extent, *work, &mut desk);
            }
            Effect::Scrubbed { extent, report } => {
                let (scrub, mut desk) = self.scrub(desk);
                scrub.section_ended(extent, &report, &mut desk);
            }
            Effect::Snapshot { extent, slots, offset, length } => {
                let (snapshot, mut desk) = self.snapshot(desk.io);
                snapshot.ask((extent, slots), (offset, length), &mut desk);
            }
            Effect::SnapshotEnded { replicas } => self.snapshot.ended(replicas),
            Effect::RecordFailure { extent } => {
                let (metadata, mut desk) = self.metadata(desk.io);
                metadata.record_failure(extent, &mut desk);
            }
            Effect::Refused { extent, slot } => self.addition_refused((extent, slot), desk),
            Effect::ReplicaFailed { slot, extent, .. } => self.replica_failed(slot, extent, desk),
            Effect::ReplicaStates { extent, replica_states, .. } => {
                self.states_changed(extent, replica_states, desk);
            }
            Effect::FlushesPaid { result: Ok(()), .. } => {
                self.open.statistics.replication.add_coalesced_flush_round();
            }
            Effect::FlushesPaid { count, .. } if self.life.is_closing() || desk.io.is_stopping => {
                tracing::error!(volume = %self.id, "{count} flushes were answered and could not be carried out");
            }
            Effect::FlushesPaid { .. } => {
                let retry_ns = self.flush_window.retry_ns(desk.io.now_ns);
                desk.schedules.coalesced_flushes.owe(self.index, retry_ns);
            }
            Effect::Act { .. } | Effect::Ended { .. } | Effect::Done { .. } | Effect::Flushed { .. } => {
                unreachable!("the caller takes these")
            }
        }
    }

    /// Gives the result of a mirror's operation to what it was for. For a read, `source` is the replica's
    /// operation that has the data.
    #[inline(always)]
    fn end_operation(
        &mut self,
        operation: MirrorId,
        source: Option<(usize, OperationId)>,
        result: Result<Content, Fault>,
        desk: &mut Desk<'_>,
    ) -> Option<VolumeEffect> {
        let owner = self.operations.take_owner(operation, source);
        self.mirror.forget(operation);
        if let Purpose::Client(ticket) = owner.purpose {
            return Some(VolumeEffect::Ended { ticket, owner, result });
        }
        self.end_own_operation(owner, result.is_ok(), desk);
        None
    }

    /// Gives the result of a mirror's operation to the volume's own work.
    #[inline(never)]
    fn end_own_operation(&mut self, owner: Owner, is_done: bool, desk: &mut Desk<'_>) {
        match owner.purpose {
            Purpose::Client(_) => unreachable!("the caller tells clients"),
            Purpose::Resync { extent, slot } => {
                drop(owner);
                let (resync, mut desk) = self.resync(desk);
                resync.region_ended((extent, slot), is_done, &mut desk);
            }
            Purpose::Scrubbing { extent } => {
                drop(owner);
                let (scrub, mut desk) = self.scrub(desk);
                scrub.piece_ended(extent, &mut desk);
            }
        }
    }
}
