//! The execution order of effects: one after the other, in the order of their requests.
//!
//! An effect may request more effects, and may even enter the execution again. An effect must not run before
//! an earlier one, because the mirror assumes their order. For example, the number of an operation is reused
//! as soon as its end is requested. That end must be carried out before any effect of the new operation.

use super::Effect;

/// State of the execution of effects.
#[derive(Debug, Default)]
pub struct Agenda {
    is_carried_out: bool,
    /// An empty list for reuse.
    spare: Vec<Effect>,
}

impl Agenda {
    /// Takes the requested effects. The caller carries out all of them, in this order. `None` if there are
    /// none, or if effects are being carried out already. In the second case the running execution takes the
    /// new effects afterwards.
    pub fn begin(&mut self, asked: &mut Vec<Effect>) -> Option<Vec<Effect>> {
        if self.is_carried_out || asked.is_empty() {
            return None;
        }
        self.is_carried_out = true;
        Some(std::mem::replace(asked, std::mem::take(&mut self.spare)))
    }

    /// Ends the execution of a list, which is empty now. Effects that were requested in between can begin.
    pub fn end(&mut self, emptied: Vec<Effect>) {
        debug_assert!(emptied.is_empty(), "what was begun is carried out to its end");
        self.spare = emptied;
        self.is_carried_out = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flushed(flush: u32) -> Effect {
        Effect::Flushed { flush, result: Ok(()), is_owed: false }
    }

    /// Carries out all effects. Each flush below 10 requests another one and enters the execution again, as
    /// careless executors do.
    fn carry_out(agenda: &mut Agenda, asked: &mut Vec<Effect>, done: &mut Vec<u32>) {
        while let Some(mut effects) = agenda.begin(asked) {
            for effect in effects.drain(..) {
                let Effect::Flushed { flush, .. } = effect else { unreachable!("nothing else is asked for") };
                if flush < 10 {
                    asked.push(flushed(flush + 10));
                    carry_out(agenda, asked, done);
                }
                done.push(flush);
            }
            agenda.end(effects);
        }
    }

    #[test]
    fn reentrant_execution_keeps_effects_in_order() {
        let (mut agenda, mut done) = (Agenda::default(), Vec::new());
        let mut asked = vec![flushed(1), flushed(2), flushed(3)];
        carry_out(&mut agenda, &mut asked, &mut done);
        assert_eq!(done, [1, 2, 3, 11, 12, 13]);
        asked.push(flushed(20));
        carry_out(&mut agenda, &mut asked, &mut done);
        assert_eq!(done.last(), Some(&20), "what has ended can be begun again");
    }
}
