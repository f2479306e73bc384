//! How long to let a deep client's input gather before it is taken.
//!
//! A client with many requests in flight is busy with older answers while newer requests are served. If its
//! input is left to gather for a moment, many requests are taken, served and answered in one go, at a fraction
//! of what serving each as it comes costs; and the client loses nothing, as long as it has answers left to read
//! meanwhile. How many requests a client keeps in flight is found by a probe: rarely, its input is left alone
//! for so long that all of them come in. Clients that are not deep are served as their requests come.
//!
//! This holds only where answers are ready at once, so there is no rest while requests are under way at media
//! or wait for admission; and not for writes, whose payload would fill the client's socket buffer and stop it.
//! Decides only; knows no clock and no socket.

/// How long a probe leaves the input alone, in nanoseconds: long enough for any client that is worth it.
const PROBE_NS: u64 = 200_000;
/// Requests that have to come in during a probe for a client to count as deep.
const DEEP_REQUESTS: u32 = 24;
/// The first rest and the longest, in nanoseconds, and the steps between.
const GATHER_NS_START: u64 = 60_000;
const GATHER_NS_MAX: u64 = 100_000;
const STEP_NS: u64 = 5_000;
/// Inputs from which the next step follows.
const INPUTS_PER_STEP: u32 = 16;
/// Inputs between two probes, at least and at most.
const INPUTS_PER_PROBE_MIN: u32 = 1 << 10;
const INPUTS_PER_PROBE_MAX: u32 = 1 << 16;

/// What was learnt about one client.
#[derive(Clone, Debug)]
pub(super) struct ReceiveCoalescing {
    /// Requests without payload that were found in the last input.
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
    /// A request without payload was found in the input.
    pub fn requested(&mut self) {
        self.requests += 1;
    }

    /// All of an input was taken, while the client had `open_requests` that are not answered: how long to let
    /// the next one gather, in nanoseconds.
    pub fn next_gather_ns(&mut self, open_requests: usize) -> u64 {
        let requests = std::mem::take(&mut self.requests);
        if open_requests > requests as usize {
            // Older ones are not served yet, or some are writes.
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

    /// Half of what the client has in flight should come together: the other half keeps it busy.
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
            // It has become shallow, or slow.
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

    /// A client that keeps `depth` requests in flight and asks again `turn_ns` after each answer that it reads.
    /// Answers how long its inputs were left alone, after it has been learnt.
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
    fn half_of_a_deep_clients_requests_come_together() {
        let rests = rests(32, 6_000);
        assert!(
            rests.iter().all(|&gather_ns| (75_000..=GATHER_NS_MAX).contains(&gather_ns)),
            "{:?}",
            &rests[..9]
        );
        assert!(rests.iter().all(|&gather_ns| gather_ns / 6_000 <= 16));
    }

    #[test]
    fn shallow_and_slow_clients_are_served_as_they_come() {
        for (depth, turn_ns) in [(1, 6_000), (8, 6_000), (16, 6_000), (16, 1_000), (64, 50_000)] {
            assert!(rests(depth, turn_ns).iter().all(|&gather_ns| gather_ns == 0), "{depth} at {turn_ns} ns");
        }
    }

    #[test]
    fn probes_are_rare_for_those_who_would_not_gain() {
        let mut coalescing = ReceiveCoalescing::default();
        let probes = (0..1_000_000).filter(|_| {
            coalescing.requested();
            coalescing.next_gather_ns(1) > 0
        });
        assert!(probes.count() <= 22);
    }

    #[test]
    fn nobody_rests_while_requests_are_under_way() {
        let mut coalescing = ReceiveCoalescing::default();
        for _ in 0..10 * INPUTS_PER_PROBE_MAX {
            coalescing.requested();
            assert_eq!(coalescing.next_gather_ns(2), 0);
        }
    }
}
