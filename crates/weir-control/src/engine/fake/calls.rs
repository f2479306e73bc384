//! Calls: which of them a test has refused, or has held up until it says so.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// A call that a test can have refused or held up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EngineCall {
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
    /// [`crate::engine::Engine::set_read_only`].
    SetReadOnly,
    /// [`crate::engine::Engine::snapshot`].
    Snapshot,
}

/// The calls that do not succeed at once.
#[derive(Default)]
pub struct EngineCalls {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Why a call is refused, in words.
    refused: BTreeMap<EngineCall, String>,
    /// The calls that are held up, with the number of callers that wait in each.
    held: BTreeMap<EngineCall, usize>,
}

/// Holds a call up until it is dropped.
pub struct HeldCall<'a> {
    calls: &'a EngineCalls,
    call: EngineCall,
}

impl EngineCalls {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses a call from now on, for this reason, or accepts it again.
    pub fn refuse(&self, call: EngineCall, reason: Option<&str>) {
        let refused = &mut self.state().refused;
        match reason {
            Some(reason) => _ = refused.insert(call, reason.to_owned()),
            None => _ = refused.remove(&call),
        }
    }

    /// Holds a call up: its callers wait.
    pub fn hold(&self, call: EngineCall) -> HeldCall<'_> {
        self.state().held.insert(call, 0);
        HeldCall { calls: self, call }
    }

    /// Waits while a call is held up. Answers why it is refused, if it is.
    pub fn pass(&self, call: EngineCall) -> Result<(), String> {
        let mut state = self.state();
        if let Some(waiting) = state.held.get_mut(&call) {
            *waiting += 1;
            self.changed.notify_all();
        }
        let is_held = |state: &mut State| state.held.contains_key(&call);
        let state = self.changed.wait_while(state, is_held).unwrap_or_else(PoisonError::into_inner);
        state.refused.get(&call).cloned().map_or(Ok(()), Err)
    }
}

impl HeldCall<'_> {
    /// Waits until a caller is held up in it.
    pub fn wait_until_called(&self) {
        let state = self.calls.state();
        let is_idle = |state: &mut State| state.held.get(&self.call) == Some(&0);
        drop(self.calls.changed.wait_while(state, is_idle));
    }
}

impl Drop for HeldCall<'_> {
    fn drop(&mut self) {
        self.calls.state().held.remove(&self.call);
        self.calls.changed.notify_all();
    }
}
