//! The ends of flushes: when a flush has ended, and what goes on then.

use super::effect::Effect;
use super::flushes::{EndedFlush, Purpose};
use super::parts::Parts;
use super::steps::Step;
use crate::action::Fault;

impl Parts {
    /// A replica has answered a flush.
    pub fn replica_flushed(
        &mut self,
        slot: usize,
        number: u32,
        result: Result<(), Fault>,
        effects: &mut Vec<Effect>,
    ) {
        let Parts { flushes, extents, .. } = self;
        if flushes.replica_answered(slot, number, result) {
            // Refused metadata is written again here: a flush that waits for it may be the only request.
            let unrecorded = flushes.unrecorded(extents);
            unrecorded.into_iter().for_each(|extent| extents.write_metadata(extent, effects));
        }
        self.end_flushes(effects);
    }

    /// Ends the flushes that all replicas have answered, once the failures of replicas are recorded.
    pub fn end_flushes(&mut self, effects: &mut Vec<Effect>) {
        if !self.flushes.unrecorded(&self.extents).is_empty() {
            return;
        }
        while let Some(ended) = self.flushes.take_answered(&self.extents) {
            self.end_flush(ended, effects);
        }
    }

    /// Ends a flush: whatever waited for it goes on.
    pub fn end_flush(&mut self, ended: EndedFlush, effects: &mut Vec<Effect>) {
        let EndedFlush { number, purpose, result } = ended;
        let paid = self.coalescing.ended(number, result.is_ok());
        match purpose {
            Purpose::Client(flush) => effects.push(Effect::Flushed { flush, result, is_owed: false }),
            Purpose::Tidy(extent) => self.metadata(effects).end_tidying(extent),
            Purpose::Promote(extent, slot, version) => {
                self.resync(effects).end_promotion(extent, slot, version);
            }
            Purpose::Scrub(extent) => self.scrub(effects).flushed(extent),
            Purpose::Owed | Purpose::Nothing => {}
        }
        if paid > 0 {
            effects.push(Effect::FlushesPaid { count: paid, result });
        }
        // If it failed, the executor pays later.
        if self.coalescing.take_late() && result.is_ok() {
            self.steps.add(Step::PayFlushes);
        }
    }
}
