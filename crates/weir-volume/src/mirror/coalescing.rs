//! Flush coalescing of a mirror, as its executor runs it.

use super::Mirror;
use super::effect::Effect;
use super::flushes::Purpose;

/// Access to the flushes of a mirror that are owed ([`Mirror::coalescing`]).
pub struct Coalescing<'a>(pub(super) &'a mut Mirror);

impl Coalescing<'_> {
    /// Lets flushes be owed, or lets none be owed any more: then what is owed is paid now. The first flush is owed
    /// once everything is stable that changed before this call.
    pub fn set_on(self, is_on: bool, effects: &mut Vec<Effect>) {
        let parts = &mut self.0.parts;
        let has_work = is_on && !parts.coalescing.is_on() || parts.coalescing.has_unpaid();
        parts.coalescing.set_on(is_on);
        if has_work {
            self.flush(effects);
        }
    }

    /// Pays the flushes that are owed, if there are any; ends with [`Effect::FlushesPaid`]. The executor calls this at
    /// the end of the window that begins with the first of them. While others are being paid, these are paid after
    /// them, and none is owed meanwhile: drives that flush slowly hold up their clients.
    pub fn end_window(self, effects: &mut Vec<Effect>) {
        if self.0.parts.coalescing.window_ended() {
            self.flush(effects);
        }
    }

    /// Pays the flushes that are owed at once, if there are any.
    pub(super) fn pay(self, effects: &mut Vec<Effect>) {
        if self.0.parts.coalescing.has_unpaid() {
            self.flush(effects);
        }
    }

    /// True if a flush would be owed now.
    pub fn may_owe(self) -> bool {
        self.0.parts.coalescing.may_owe(&self.0.parts.extents)
    }

    /// True if flushes are owed that no flush under way pays.
    pub fn has_unpaid(self) -> bool {
        self.0.parts.coalescing.has_unpaid()
    }

    fn flush(self, effects: &mut Vec<Effect>) {
        let number = self.0.parts.flushes.add(Purpose::Owed);
        self.0.begin_flush(number, effects);
    }
}
