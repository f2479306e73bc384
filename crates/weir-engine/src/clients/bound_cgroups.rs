//! Bound cgroups: which limit of a volume's cgroups a process is under.
//!
//! The kernel is asked about each process at most ten times a second. Before Linux 6.8 it may answer only once a change of
//! any cgroup has ended, which delays the reactor. A process that has ended stays under what it was under.

use std::collections::BTreeMap;

use weir_engine_interface::CgroupLimit;
use weir_host::process_cgroups::cgroups_of;
use weir_types::{Cgroup, CgroupBindingId};

/// How long an answer of the kernel is used, in nanoseconds: a process that changes its cgroup is soon under the new
/// limit, and the number of a process is not used again in this time.
const KNOWN_NS_MAX: u64 = 100_000_000;
/// Answers that are kept. With more, all are forgotten.
const KNOWN_MAX: usize = 1024;

/// What is known of a process.
struct Known {
    until_ns: u64,
    binding: Option<CgroupBindingId>,
}

/// The cgroups of a volume that have limits.
#[derive(Default)]
pub struct BoundCgroups {
    cgroups: Vec<(Cgroup, CgroupBindingId)>,
    known: BTreeMap<u32, Known>,
}

impl BoundCgroups {
    pub fn of(limits: &[CgroupLimit]) -> BoundCgroups {
        let cgroups = limits.iter().map(|limit| (limit.cgroup.clone(), limit.binding)).collect();
        BoundCgroups { cgroups, known: BTreeMap::new() }
    }

    /// The binding that a process is under.
    pub fn binding_of(&mut self, process: u32, now_ns: u64) -> Option<CgroupBindingId> {
        if self.cgroups.is_empty() {
            return None;
        }
        if let Some(known) = self.known.get(&process).filter(|known| now_ns < known.until_ns) {
            return known.binding;
        }
        let binding = match cgroups_of(process) {
            Ok(cgroups) => self.binding_in(&cgroups),
            // It has ended, and has left requests that others wait for.
            Err(_) => self.known.get(&process).and_then(|known| known.binding),
        };
        if self.known.len() >= KNOWN_MAX {
            self.known.clear();
        }
        self.known.insert(process, Known { until_ns: now_ns + KNOWN_NS_MAX, binding });
        binding
    }

    /// The binding of a process in these cgroups. Control permits no two that contain each other.
    fn binding_in(&self, cgroups: &[Cgroup]) -> Option<CgroupBindingId> {
        let contains = |bound: &Cgroup| cgroups.iter().any(|cgroup| bound.contains(cgroup));
        self.cgroups.iter().find(|(bound, _)| contains(bound)).map(|(_, binding)| *binding)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_types::Terms;

    fn limit(line: &str, number: u8) -> CgroupLimit {
        let binding = CgroupBindingId::from_bytes([number; 16]);
        CgroupLimit { binding, cgroup: Cgroup::parse(line).unwrap(), terms: Terms::default() }
    }

    #[test]
    fn process_is_under_the_binding_of_its_cgroup_or_of_one_above() {
        let bound = BoundCgroups::of(&[limit("0::/a", 1), limit("0::/b/c", 2)]);
        for (lines, number) in [
            (["3:cpu:/a", "0::/a/x"], Some(1)),
            (["3:cpu:/b", "0::/b/c"], Some(2)),
            (["3:cpu:/a", "0::/b"], None),
        ] {
            let cgroups = lines.map(|line| Cgroup::parse(line).unwrap());
            let expected = number.map(|number| CgroupBindingId::from_bytes([number; 16]));
            assert_eq!(bound.binding_in(&cgroups), expected, "{lines:?}");
        }
    }

    #[test]
    fn answer_of_the_kernel_is_used_for_a_while() {
        let own = cgroups_of(std::process::id()).unwrap().pop().unwrap();
        let above = CgroupLimit { cgroup: Cgroup { path: "/".to_owned(), ..own }, ..limit("0::/", 1) };
        let mut bound = BoundCgroups::of(&[above]);
        assert!(bound.binding_of(std::process::id(), 0).is_some());
        assert_eq!(bound.binding_of(u32::MAX, 0), None, "there is no such process");
        bound.cgroups[0].0.path = "/elsewhere".to_owned();
        assert!(bound.binding_of(std::process::id(), KNOWN_NS_MAX - 1).is_some());
        assert_eq!(bound.binding_of(std::process::id(), KNOWN_NS_MAX), None);
    }
}
