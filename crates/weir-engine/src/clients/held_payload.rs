//! Held payloads: writes that wait for the limit of a cgroup keep their payloads in memory of their own.
//!
//! The pooled buffers of a connection are few. Were they held while such a write waits, all other processes that use
//! the same file would wait for them too.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use weir_types::bounds::{HELD_PAYLOAD_BYTES_MAX, HELD_PAYLOAD_BYTES_OF_FILE_MAX};

/// Memory that held payloads use, in bytes: all of a reactor, or all of a file.
#[derive(Clone, Default)]
pub struct HeldBytes(Arc<AtomicUsize>);

/// A payload that is held. Its memory is free once it is dropped.
pub struct HeldPayload {
    payload: Vec<u8>,
    counted_in: [HeldBytes; 2],
}

impl HeldBytes {
    // Only the reactor's thread adds to it.
    fn has_room(&self, bytes: usize, bytes_max: usize) -> bool {
        self.0.load(Relaxed) + bytes <= bytes_max
    }
}

impl HeldPayload {
    /// Holds a payload, if there is memory for it.
    pub fn hold(payload: &[u8], of_reactor: &HeldBytes, of_file: &HeldBytes) -> Option<HeldPayload> {
        let bytes = payload.len();
        let has_room = of_reactor.has_room(bytes, HELD_PAYLOAD_BYTES_MAX)
            && of_file.has_room(bytes, HELD_PAYLOAD_BYTES_OF_FILE_MAX);
        if !has_room {
            return None;
        }
        let counted_in = [of_reactor.clone(), of_file.clone()];
        counted_in.iter().for_each(|held| _ = held.0.fetch_add(bytes, Relaxed));
        Some(HeldPayload { payload: payload.to_vec(), counted_in })
    }

    /// The payload.
    pub fn bytes(&self) -> &[u8] {
        &self.payload
    }
}

impl Drop for HeldPayload {
    fn drop(&mut self) {
        self.counted_in.iter().for_each(|held| _ = held.0.fetch_sub(self.payload.len(), Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_bounded_and_comes_back() {
        let (of_reactor, of_file) = (HeldBytes::default(), HeldBytes::default());
        let half = vec![7; HELD_PAYLOAD_BYTES_OF_FILE_MAX / 2];
        let hold = |payload: &[u8]| HeldPayload::hold(payload, &of_reactor, &of_file);
        let (first, second) = (hold(&half).unwrap(), hold(&half).unwrap());
        assert!(hold(&[1]).is_none());
        assert_eq!(first.bytes(), half);
        let of_other_file = HeldBytes::default();
        assert!(HeldPayload::hold(&[1], &of_reactor, &of_other_file).is_some(), "it has memory of its own");
        drop(first);
        assert!(hold(&[1]).is_some());
        drop(second);
        assert_eq!((of_reactor.0.load(Relaxed), of_file.0.load(Relaxed)), (0, 0));
    }
}
