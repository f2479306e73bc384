//! State shared between reactors: messages about requests that may run, credit that outlives a policy tree,
//! and the count of space.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use weir_qos::{Credits, Limit};
use weir_reactor::Waker;
use weir_types::Scope;

use crate::locks::locked;
use crate::space_count::SpaceCount;
use crate::token::{ConnectionIndex, Ticket};

/// The limit that delayed a request, and its level in the volume's path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bound {
    pub level: u8,
    pub limit: Limit,
}

/// A request that ceilings have delayed and that may run now.
#[derive(Clone, Copy, Debug)]
pub struct Admitted {
    pub ticket: Ticket,
    pub waited_ns: u64,
    pub bound_by: Option<Bound>,
}

/// An operation that waited in a drive queue and may run now.
#[derive(Clone, Copy, Debug)]
pub struct DriveGrant {
    /// Number of the operation among those of its reactor that wait.
    pub pending: usize,
    pub waited_ns: u64,
    pub waited_for_floors_ns: u64,
}

/// A message from one reactor to another about a request that may run.
pub enum Message {
    Admitted(Admitted),
    Granted(DriveGrant),
}

/// Messages for one reactor. The open requests of its connections bound their number.
#[derive(Default)]
struct Mailbox {
    messages: Mutex<Vec<Message>>,
    has_messages: AtomicBool,
    waker: OnceLock<Waker>,
}

/// Credit of a level at the time when it was last seen.
#[derive(Clone, Debug)]
struct Saved {
    credits: Credits,
    /// Time by the clock of reactors, in nanoseconds. Negative if the time was before this machine started.
    at_ns: i64,
}

impl Saved {
    fn ago_ns(&self, now_ns: u64) -> u64 {
        let now_ns = i64::try_from(now_ns).unwrap_or(i64::MAX);
        u64::try_from(now_ns.saturating_sub(self.at_ns)).unwrap_or(0)
    }
}

/// State that all reactors share.
pub struct SharedState {
    mailboxes: Vec<Mailbox>,
    saved: Mutex<BTreeMap<Scope, Saved>>,
    /// Space that all reactors take on the filesystem of the state folder.
    pub space: Arc<SpaceCount>,
}

impl SharedState {
    pub fn new(reactors: usize) -> SharedState {
        let mailboxes = (0..reactors).map(|_| Mailbox::default()).collect();
        SharedState { mailboxes, saved: Mutex::default(), space: Arc::default() }
    }

    /// Sets the waker of a reactor. Called once, before the reactor has volumes.
    pub fn introduce(&self, reactor: usize, waker: Waker) {
        let is_first = self.mailboxes[reactor].waker.set(waker).is_ok();
        assert!(is_first, "a reactor is introduced once");
    }

    /// Leaves a message for another reactor. [`SharedState::wake`] wakes that reactor.
    pub fn post(&self, reactor: usize, message: Message) {
        let mailbox = &self.mailboxes[reactor];
        locked(&mailbox.messages).push(message);
        mailbox.has_messages.store(true, Ordering::Release);
    }

    /// Wakes a reactor that has messages.
    pub fn wake(&self, reactor: usize) {
        if let Some(waker) = self.mailboxes[reactor].waker.get() {
            waker.wake();
        }
    }

    /// Removes the messages for the requests of a connection that ends.
    pub fn forget(&self, reactor: usize, connection: ConnectionIndex) {
        let is_others = |message: &Message| !matches!(message, Message::Admitted(admitted) if admitted.ticket.0 == connection);
        locked(&self.mailboxes[reactor].messages).retain(is_others);
    }

    /// Takes all messages for a reactor.
    pub fn collect(&self, reactor: usize) -> Vec<Message> {
        let mailbox = &self.mailboxes[reactor];
        if !mailbox.has_messages.load(Ordering::Acquire)
            || !mailbox.has_messages.swap(false, Ordering::AcqRel)
        {
            return Vec::new();
        }
        std::mem::take(&mut *locked(&mailbox.messages))
    }

    /// Saves the credits of levels whose policy tree may be removed.
    pub fn save_credits(&self, credits: Vec<(Scope, Credits)>, at_ns: i64) {
        let mut saved = locked(&self.saved);
        saved.extend(credits.into_iter().map(|(scope, credits)| (scope, Saved { credits, at_ns })));
    }

    /// Credit that a level had when it was last seen, and the nanoseconds since then.
    pub fn saved_credits(&self, scope: &Scope, now_ns: u64) -> Option<(Credits, u64)> {
        let saved = locked(&self.saved);
        saved.get(scope).map(|saved| (saved.credits.clone(), saved.ago_ns(now_ns)))
    }

    /// All saved credit, with the nanoseconds since it was seen.
    pub fn all_saved_credits(&self, now_ns: u64) -> Vec<(Scope, Credits, u64)> {
        let saved = locked(&self.saved);
        saved
            .iter()
            .map(|(scope, saved)| (scope.clone(), saved.credits.clone(), saved.ago_ns(now_ns)))
            .collect()
    }

    /// Forgets the credit of a removed level.
    pub fn forget_credits(&self, scope: &Scope) {
        locked(&self.saved).remove(scope);
    }
}
