//! The order in which effects are carried out: one after the other, as they were asked for.
//!
//! Carrying one out may ask for more, and may even enter the carrying out anew. An effect that is carried out before one
//! that was asked for earlier finds a world that the mirror did not mean: the number of an operation is given to another
//! one as soon as its end was asked for, which must have been carried out before anything under the new meaning is.

use super::Effect;

/// Effects that are being carried out.
#[derive(Debug, Default)]
pub struct Agenda {
    /// The next one comes last. Most often there is one, which costs nothing to put in order.
    due: Vec<Effect>,
    is_carried_out: bool,
}

impl Agenda {
    /// Begins to carry out. False if somebody does already, who comes to whatever was asked for meanwhile.
    pub fn begin(&mut self) -> bool {
        !std::mem::replace(&mut self.is_carried_out, true)
    }

    /// The next effect, of those that were begun with and then of those that were asked for since; the carrying out has
    /// ended if there is none.
    pub fn next(&mut self, asked: &mut Vec<Effect>) -> Option<Effect> {
        if self.due.is_empty() {
            std::mem::swap(&mut self.due, asked);
            self.due.reverse();
        }
        let next = self.due.pop();
        self.is_carried_out = next.is_some();
        next
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
        if !agenda.begin() {
            return;
        }
        while let Some(effect) = agenda.next(asked) {
            let Effect::Flushed { flush, .. } = effect else { unreachable!("nothing else is asked for") };
            if flush < 10 {
                asked.push(flushed(flush + 10));
                carry_out(agenda, asked, done);
            }
            done.push(flush);
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
