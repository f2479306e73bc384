//! What reactors leave for each other: requests that may go, and credit that outlives a tree.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use weir_qos::Credits;
use weir_reactor::Waker;
use weir_types::Scope;

use super::{Admitted, DriveGrant};
use crate::dataplane::locked;
use crate::dataplane::space::SpaceCount;
use crate::dataplane::token::ConnectionIndex;

/// Something that another reactor found may go.
pub(in crate::dataplane) enum Message {
    Admitted(Admitted),
    Granted(DriveGrant),
}

/// What is left for one reactor. Bounded by the requests that its connections have open.
#[derive(Default)]
struct Mailbox {
    messages: Mutex<Vec<Message>>,
    has_messages: AtomicBool,
    waker: OnceLock<Waker>,
}

/// Credit of a level when it was last seen.
#[derive(Clone, Debug)]
struct Saved {
    credits: Credits,
    /// By the clock of reactors; before its beginning if that was before this machine started.
    at_ns: i64,
}

impl Saved {
    fn ago_ns(&self, now_ns: u64) -> u64 {
        let now_ns = i64::try_from(now_ns).unwrap_or(i64::MAX);
        u64::try_from(now_ns.saturating_sub(self.at_ns)).unwrap_or(0)
    }
}

/// What all reactors see.
pub(in crate::dataplane) struct SharedState {
    mailboxes: Vec<Mailbox>,
    saved: Mutex<BTreeMap<Scope, Saved>>,
    /// The space that they take on the filesystem of the state folder.
    pub space: Arc<SpaceCount>,
}

impl SharedState {
    pub fn new(reactors: usize) -> SharedState {
        let mailboxes = (0..reactors).map(|_| Mailbox::default()).collect();
        SharedState { mailboxes, saved: Mutex::default(), space: Arc::default() }
    }

    /// Says how a reactor is woken; once, before it has volumes.
    pub fn introduce(&self, reactor: usize, waker: Waker) {
        let is_first = self.mailboxes[reactor].waker.set(waker).is_ok();
        assert!(is_first, "a reactor is introduced once");
    }

    /// Leaves something for another reactor, which is woken by [`SharedState::wake`].
    pub fn post(&self, reactor: usize, messages: Message) {
        let mailbox = &self.mailboxes[reactor];
        locked(&mailbox.messages).push(messages);
        mailbox.has_messages.store(true, Ordering::Release);
    }

    /// Wakes a reactor for which something was left.
    pub fn wake(&self, reactor: usize) {
        if let Some(waker) = self.mailboxes[reactor].waker.get() {
            waker.wake();
        }
    }

    /// Takes away what was left for the requests of a connection that ends.
    pub fn forget(&self, reactor: usize, connection: ConnectionIndex) {
        let is_others = |messages: &Message| !matches!(messages, Message::Admitted(admitted) if admitted.ticket.0 == connection);
        locked(&self.mailboxes[reactor].messages).retain(is_others);
    }

    /// Takes what was left for a reactor.
    pub fn collect(&self, reactor: usize) -> Vec<Message> {
        let mailbox = &self.mailboxes[reactor];
        if !mailbox.has_messages.load(Ordering::Acquire)
            || !mailbox.has_messages.swap(false, Ordering::AcqRel)
        {
            return Vec::new();
        }
        std::mem::take(&mut *locked(&mailbox.messages))
    }

    /// Keeps the credits of levels whose tree may go.
    pub fn save_credits(&self, credits: Vec<(Scope, Credits)>, at_ns: i64) {
        let mut saved = locked(&self.saved);
        saved.extend(credits.into_iter().map(|(scope, credits)| (scope, Saved { credits, at_ns })));
    }

    /// The credit that a level had when it was last seen, and how long ago that is, in nanoseconds.
    pub fn saved_credits(&self, scope: &Scope, now_ns: u64) -> Option<(Credits, u64)> {
        let saved = locked(&self.saved);
        saved.get(scope).map(|saved| (saved.credits.clone(), saved.ago_ns(now_ns)))
    }

    /// All credit that is kept, with how long ago it was seen, in nanoseconds.
    pub fn all_saved_credits(&self, now_ns: u64) -> Vec<(Scope, Credits, u64)> {
        let saved = locked(&self.saved);
        saved
            .iter()
            .map(|(scope, saved)| (scope.clone(), saved.credits.clone(), saved.ago_ns(now_ns)))
            .collect()
    }

    /// Forgets the credit of a level that is no more.
    pub fn forget_credits(&self, scope: &Scope) {
        locked(&self.saved).remove(scope);
    }
}
