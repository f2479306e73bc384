//! Receive coalescing: how long to let a deep client's requests gather in the socket before receiving them.
//!
//! A client with many requests in flight is busy with earlier replies while newer requests are served. If
//! its requests gather for a moment, they are received, served and answered together. That costs a fraction
//! of serving each request as it comes. The client loses nothing as long as it has replies left to read.
//!
//! A probe finds how many requests a client keeps in flight: rarely, its input is left alone until all of
//! them have arrived. Clients that are not deep are served as their requests come.
//!
//! Coalescing pays only where replies are ready at once. Requests do not gather while others are at a drive
//! or wait for admission. Writes never gather, because their payload would fill the client's socket buffer
//! and stop it. This module only decides; it knows neither a clock nor a socket.

/// Time that a probe leaves the input alone, in nanoseconds: long enough for any client for which gathering
/// pays.
const PROBE_NS: u64 = 200_000;
/// Number of requests that have to arrive during a probe for a client to count as deep.
const DEEP_REQUESTS: u32 = 24;
/// The first and the longest gathering time and the step between two times, in nanoseconds.
const GATHER_NS_START: u64 = 60_000;
const GATHER_NS_MAX: u64 = 100_000;
const STEP_NS: u64 = 5_000;
/// Number of inputs after which the gathering time is adapted.
const INPUTS_PER_STEP: u32 = 16;
/// Number of inputs between two probes, at least and at most.
const INPUTS_PER_PROBE_MIN: u32 = 1 << 10;
const INPUTS_PER_PROBE_MAX: u32 = 1 << 16;

/// State learnt about one client.
#[derive(Clone, Debug)]
pub struct ReceiveCoalescing {
    /// Requests without payload in the last input.
    requests: u32,
    /// Requests that the client is known to keep in flight, if it is deep.
    depth: u32,
    gather_ns: u64,
    is_probing: bool,
    inputs_until_probe: u32,
    inputs_per_probe: u32,
    /// Inputs and requests since the last step.
    step_inputs: u32,
    step_requests: u32,
}

impl Default for ReceiveCoalescing {
    fn default() -> Self {
        ReceiveCoalescing {
            requests: 0,
            depth: 0,
            gather_ns: 0,
            is_probing: false,
            inputs_until_probe: INPUTS_PER_PROBE_MIN,
            inputs_per_probe: INPUTS_PER_PROBE_MIN,
            step_inputs: 0,
            step_requests: 0,
        }
    }
}

impl ReceiveCoalescing {
    /// Counts a request without payload in the input.
    pub fn requested(&mut self) {
        self.requests += 1;
    }

    /// An input was consumed while the client had `open_requests` unanswered requests. Answers how long to
    /// let the next input gather, in nanoseconds.
    pub fn next_gather_ns(&mut self, open_requests: usize) -> u64 {
        let requests = std::mem::take(&mut self.requests);
        if open_requests > requests as usize {
            // Earlier requests are not served yet, or some are writes.
            self.gather_ns = 0;
            if std::mem::take(&mut self.is_probing) {
                self.probed(0);
            }
            return 0;
        }
        if std::mem::take(&mut self.is_probing) {
            self.probed(requests);
        } else if self.gather_ns > 0 {
            self.rested(requests);
        }
        self.inputs_until_probe -= 1;
        if self.inputs_until_probe == 0 {
            self.inputs_until_probe = self.inputs_per_probe;
            self.is_probing = true;
            return PROBE_NS;
        }
        self.gather_ns
    }

    fn probed(&mut self, requests: u32) {
        (self.step_inputs, self.step_requests) = (0, 0);
        if requests >= DEEP_REQUESTS {
            self.depth = requests;
            self.gather_ns = self.gather_ns.max(GATHER_NS_START);
            self.inputs_per_probe = INPUTS_PER_PROBE_MIN;
        } else {
            self.gather_ns = 0;
            self.inputs_per_probe = (self.inputs_per_probe * 2).min(INPUTS_PER_PROBE_MAX);
        }
        self.inputs_until_probe = self.inputs_per_probe;
    }

    /// Adapts the gathering time so that half of the requests in flight come together; the other half keeps
    /// the client busy.
    fn rested(&mut self, requests: u32) {
        self.step_inputs += 1;
        self.step_requests += requests;
        if self.step_inputs < INPUTS_PER_STEP {
            return;
        }
        let half = INPUTS_PER_STEP * self.depth / 2;
        if self.step_requests > half {
            self.gather_ns -= STEP_NS;
        } else if self.step_requests < half / 2 {
            // The client has become shallow, or slow.
            self.gather_ns = 0;
        } else if self.step_requests < half * 4 / 5 {
            self.gather_ns = (self.gather_ns + STEP_NS).min(GATHER_NS_MAX);
        }
        (self.step_inputs, self.step_requests) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client that keeps `depth` requests in flight and sends a new one `turn_ns` after each reply that
    /// it reads. Answers its gathering times after the learning phase.
    fn rests(depth: u32, turn_ns: u64) -> Vec<u64> {
        let mut coalescing = ReceiveCoalescing::default();
        let (mut gathered, mut rests) = (1, Vec::new());
        for input in 0..20_000 {
            (0..gathered).for_each(|_| coalescing.requested());
            let gather_ns = coalescing.next_gather_ns(gathered as usize);
            gathered = u32::try_from(gather_ns / turn_ns).unwrap().clamp(1, depth);
            if input > 10_000 && gather_ns != PROBE_NS {
                rests.push(gather_ns);
            }
        }
        rests
    }

    #[test]
    fn half_of_the_requests_of_a_deep_client_gather() {
        let rests = rests(32, 6_000);
        assert!(
            rests.iter().all(|&gather_ns| (75_000..=GATHER_NS_MAX).contains(&gather_ns)),
            "{:?}",
            &rests[..9]
        );
        assert!(rests.iter().all(|&gather_ns| gather_ns / 6_000 <= 16));
    }

    #[test]
    fn shallow_and_slow_clients_never_gather() {
        for (depth, turn_ns) in [(1, 6_000), (8, 6_000), (16, 6_000), (16, 1_000), (64, 50_000)] {
            assert!(rests(depth, turn_ns).iter().all(|&gather_ns| gather_ns == 0), "{depth} at {turn_ns} ns");
        }
    }

    #[test]
    fn probes_are_rare_for_shallow_clients() {
        let mut coalescing = ReceiveCoalescing::default();
        let probes = (0..1_000_000).filter(|_| {
            coalescing.requested();
            coalescing.next_gather_ns(1) > 0
        });
        assert!(probes.count() <= 22);
    }

    #[test]
    fn nothing_gathers_while_requests_are_under_way() {
        let mut coalescing = ReceiveCoalescing::default();
        for _ in 0..10 * INPUTS_PER_PROBE_MAX {
            coalescing.requested();
            assert_eq!(coalescing.next_gather_ns(2), 0);
        }
    }
}
