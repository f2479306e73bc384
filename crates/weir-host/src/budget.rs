//! Budget: how many client connections a listener has at a time, and which idle one makes room for a new
//! one.
//!
//! A new guest never waits behind idle guests. If a listener is full, the peer with the most idle guests
//! loses its oldest idle guest. Only busy guests keep a new guest out. Favoured guests have reserved places
//! besides.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::peer::Peer;

/// The guests of one listener.
#[derive(Clone)]
pub struct Budget {
    guests: Arc<Mutex<Guests>>,
}

struct Guests {
    most: usize,
    reserve: usize,
    next: u64,
    /// Guests in order of arrival.
    present: BTreeMap<u64, Guest>,
}

struct Guest {
    peer: Peer,
    is_favoured: bool,
    is_busy: Arc<AtomicBool>,
    leave: Arc<Notify>,
}

/// The place of a guest. Dropping it frees the place.
pub struct Place {
    number: u64,
    guests: Arc<Mutex<Guests>>,
    is_busy: Arc<AtomicBool>,
    leave: Arc<Notify>,
}

impl Budget {
    /// A budget of `most` guests, and of `reserve` more for favoured guests.
    pub fn new(most: usize, reserve: usize) -> Budget {
        let guests = Guests { most, reserve, next: 0, present: BTreeMap::new() };
        Budget { guests: Arc::new(Mutex::new(guests)) }
    }

    /// A place for a new guest. `None` if busy guests have all places.
    pub fn enter(&self, peer: Peer, is_favoured: bool) -> Option<Place> {
        let mut guests = locked(&self.guests);
        if guests.present.len() >= guests.most && !guests.make_room(is_favoured) {
            let kept = if is_favoured { guests.reserve } else { 0 };
            if guests.present.len() >= guests.most + kept {
                return None;
            }
        }
        let number = guests.next;
        guests.next += 1;
        let (is_busy, leave) = (Arc::new(AtomicBool::new(false)), Arc::new(Notify::new()));
        let guest = Guest { peer, is_favoured, is_busy: is_busy.clone(), leave: leave.clone() };
        guests.present.insert(number, guest);
        Some(Place { number, guests: self.guests.clone(), is_busy, leave })
    }
}

impl Guests {
    /// Sends away the guest that is needed least. False if there is none.
    fn make_room(&mut self, is_for_favoured: bool) -> bool {
        let mut idle: BTreeMap<(bool, Peer), (usize, u64)> = BTreeMap::new();
        for (number, guest) in &self.present {
            if !guest.is_busy.load(Ordering::Relaxed) && (is_for_favoured || !guest.is_favoured) {
                idle.entry((guest.is_favoured, guest.peer)).or_insert((0, *number)).0 += 1;
            }
        }
        let key = |((is_favoured, _), (count, oldest)): (&(bool, Peer), &(usize, u64))| {
            (!is_favoured, *count, std::cmp::Reverse(*oldest))
        };
        let Some((_, (_, oldest))) = idle.iter().max_by_key(|(who, what)| key((who, what))) else {
            return false;
        };
        if let Some(guest) = self.present.remove(oldest) {
            guest.leave.notify_one();
        }
        true
    }
}

impl Place {
    /// Sets whether the guest is busy. A busy guest is never sent away.
    pub fn set_busy(&self, is_busy: bool) {
        self.is_busy.store(is_busy, Ordering::Relaxed);
    }

    /// Waits until the guest has to leave for another guest.
    pub async fn sent_away(&self) {
        self.leave.notified().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        locked(&self.guests).present.remove(&self.number);
    }
}

/// No panic can leave the guests half changed.
fn locked(guests: &Mutex<Guests>) -> MutexGuard<'_, Guests> {
    guests.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_sent_away(place: &Place) -> bool {
        !locked(&place.guests).present.contains_key(&place.number)
    }

    #[test]
    fn peer_with_most_idle_guests_loses_oldest() {
        let budget = Budget::new(4, 0);
        let quiet = budget.enter(Peer::User(1), false).unwrap();
        let greedy: Vec<_> = (0..3).map(|_| budget.enter(Peer::User(2), false).unwrap()).collect();
        let next = budget.enter(Peer::User(3), false).unwrap();
        assert!(is_sent_away(&greedy[0]) && !is_sent_away(&greedy[1]));
        let after = budget.enter(Peer::User(2), false).unwrap();
        assert!(is_sent_away(&greedy[1]));
        assert!(![&quiet, &greedy[2], &next, &after].into_iter().any(is_sent_away));
    }

    #[test]
    fn busy_guests_stay_and_favoured_have_reserve() {
        let budget = Budget::new(2, 1);
        let busy: Vec<_> = (0..2).map(|_| budget.enter(Peer::User(7), false).unwrap()).collect();
        busy.iter().for_each(|place| place.set_busy(true));
        assert!(budget.enter(Peer::User(8), false).is_none());
        let root = budget.enter(Peer::User(0), true).unwrap();
        root.set_busy(true);
        assert!(budget.enter(Peer::User(0), true).is_none());
        assert!(!busy.iter().any(is_sent_away));
        drop(busy);
        let stranger = budget.enter(Peer::User(8), false).unwrap();
        root.set_busy(false);
        assert!(budget.enter(Peer::User(0), true).is_some());
        assert!(is_sent_away(&stranger) && !is_sent_away(&root), "strangers leave before the favoured");
    }

    #[test]
    fn idle_favoured_guest_never_leaves_for_stranger() {
        let budget = Budget::new(1, 0);
        let root = budget.enter(Peer::User(0), true).unwrap();
        assert!(budget.enter(Peer::User(8), false).is_none() && !is_sent_away(&root));
    }
}
