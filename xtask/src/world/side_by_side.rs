//! Side by side: a piece of work for each of some items, a few at once.

use std::sync::Mutex;
use std::thread;

/// Does the work for each item, in order, for at most `at_once` of them at a time.
pub fn work_on<T: Send>(items: impl IntoIterator<Item = T>, at_once: usize, work: &(dyn Fn(T) + Sync)) {
    let waiting = Mutex::new(items.into_iter().collect::<Vec<_>>().into_iter());
    let next = || waiting.lock().expect("nobody panics with the list in hand").next();
    thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                while let Some(item) = next() {
                    work(item);
                }
            });
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_item_is_worked_on_once() {
        let done = Mutex::new(Vec::new());
        work_on(0..50, 3, &|item| done.lock().unwrap().push(item));
        let mut done = done.into_inner().unwrap();
        done.sort_unstable();
        assert_eq!(done, (0..50).collect::<Vec<_>>());
    }
}
