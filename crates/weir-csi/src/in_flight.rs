//! Calls in flight: one at a time for each object. Kubernetes calls again when an answer takes long, and the first call goes
//! on.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tonic::Status;

use crate::rpc::Answer;

/// The objects that calls are about now, by name or identity.
#[derive(Default)]
pub struct InFlight(Mutex<BTreeSet<String>>);

/// An object while a call is about it.
struct Held<'a> {
    all: &'a InFlight,
    object: &'a str,
}

impl InFlight {
    fn objects(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves a call about an object, unless another one is served.
    pub fn alone<A>(&self, object: &str, serve: impl FnOnce() -> Answer<A>) -> Answer<A> {
        if !self.objects().insert(object.to_owned()) {
            return Err(Status::aborted(format!("another call about '{object}' is under way; try again")));
        }
        let _held = Held { all: self, object };
        serve()
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.all.objects().remove(self.object);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_call_about_an_object_is_aborted() {
        let calls = InFlight::default();
        let inner = calls.alone("v", || {
            assert!(calls.alone("w", || Ok(())).is_ok());
            calls.alone("v", || Ok(()))
        });
        assert_eq!(inner.unwrap_err().code(), tonic::Code::Aborted);
        assert!(calls.alone("v", || Ok(())).is_ok());
    }
}
