//! Orders: which of them a test has refused, or has held up until it says so.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// An order that a test can have refused or held up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Order {
    /// [`crate::engine::Engine::open`].
    Open,
    /// [`crate::engine::Engine::close`].
    Close,
    /// [`crate::engine::Engine::resize`].
    Resize,
    /// [`crate::engine::Engine::add_replica`].
    AddReplica,
    /// [`crate::engine::Engine::remove_replica`].
    RemoveReplica,
    /// [`crate::engine::Engine::snapshot`].
    Snapshot,
}

/// The orders that do not succeed at once.
#[derive(Default)]
pub struct Orders {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Why an order is refused, in words.
    refused: BTreeMap<Order, String>,
    /// The orders that are held up, with the number of callers that wait in each.
    held: BTreeMap<Order, usize>,
}

/// Holds an order up until it is dropped.
pub struct HeldOrder<'a> {
    orders: &'a Orders,
    order: Order,
}

impl Orders {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses an order from now on, for this reason, or accepts it again.
    pub fn refuse(&self, order: Order, reason: Option<&str>) {
        let refused = &mut self.state().refused;
        match reason {
            Some(reason) => _ = refused.insert(order, reason.to_owned()),
            None => _ = refused.remove(&order),
        }
    }

    /// Holds an order up: its callers wait.
    pub fn hold(&self, order: Order) -> HeldOrder<'_> {
        self.state().held.insert(order, 0);
        HeldOrder { orders: self, order }
    }

    /// Waits while an order is held up. Answers why it is refused, if it is.
    pub fn pass(&self, order: Order) -> Result<(), String> {
        let mut state = self.state();
        if let Some(waiting) = state.held.get_mut(&order) {
            *waiting += 1;
            self.changed.notify_all();
        }
        let is_held = |state: &mut State| state.held.contains_key(&order);
        let state = self.changed.wait_while(state, is_held).unwrap_or_else(PoisonError::into_inner);
        state.refused.get(&order).cloned().map_or(Ok(()), Err)
    }
}

impl HeldOrder<'_> {
    /// Waits until a caller of the order waits.
    pub fn wait_until_called(&self) {
        let state = self.orders.state();
        let is_idle = |state: &mut State| state.held.get(&self.order) == Some(&0);
        drop(self.orders.changed.wait_while(state, is_idle));
    }
}

impl Drop for HeldOrder<'_> {
    fn drop(&mut self) {
        self.orders.state().held.remove(&self.order);
        self.orders.changed.notify_all();
    }
}
