//! The order in which effects are carried out: one after the other, as they were asked for.
//!
//! Carrying one out may ask for more, and may even enter the carrying out anew. An effect that is carried out before one
//! that was asked for earlier finds a world that the mirror did not mean: the number of an operation is given to another
//! one as soon as its end was asked for, which must have been carried out before anything under the new meaning is.

use super::Effect;

/// Whether effects are being carried out.
#[derive(Debug, Default)]
pub struct Agenda {
    is_carried_out: bool,
    /// An empty list for reuse.
    spare: Vec<Effect>,
}

impl Agenda {
    /// Takes the effects that were asked for; the caller carries out all of them, in this order. `None` if there are none, or
    /// if effects are being carried out already: whoever began that takes these afterwards.
    pub fn begin(&mut self, asked: &mut Vec<Effect>) -> Option<Vec<Effect>> {
        if self.is_carried_out || asked.is_empty() {
            return None;
        }
        self.is_carried_out = true;
        Some(std::mem::replace(asked, std::mem::take(&mut self.spare)))
    }

    /// All of that has been carried out, which left this list: what was asked for meanwhile can be begun.
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
        Effect::Flushed { flush, result: Ok(()) }
    }

    /// Carries out everything; each flush below 10 asks for another one and enters anew, as careless executors do.
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
    fn effects_are_carried_out_in_order_however_often_that_is_entered() {
        let (mut agenda, mut done) = (Agenda::default(), Vec::new());
        let mut asked = vec![flushed(1), flushed(2), flushed(3)];
        carry_out(&mut agenda, &mut asked, &mut done);
        assert_eq!(done, [1, 2, 3, 11, 12, 13]);
        asked.push(flushed(20));
        carry_out(&mut agenda, &mut asked, &mut done);
        assert_eq!(done.last(), Some(&20), "what has ended can be begun again");
    }
}
