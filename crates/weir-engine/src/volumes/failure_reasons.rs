//! Failure reasons: why replicas fail, in words, from the answer that fails them until an operator is told.
//!
//! The mirror knows faults and no words. Its effects name the replicas that an answer failed, and each gets the
//! reason of that answer alone.

use std::collections::BTreeMap;

use weir_types::ExtentIndex;
use weir_volume::mirror::Effect;

/// Reasons of the failures that the mirror has decided and that are not carried out yet, by extent and slot.
#[derive(Debug, Default)]
pub struct FailureReasons(BTreeMap<(ExtentIndex, usize), String>);

impl FailureReasons {
    /// Notes the reasons of the replicas that these effects fail or do not add. True if there are any.
    pub fn note(&mut self, effects: &[Effect], reason_of: impl Fn(usize) -> Option<String>) -> bool {
        let mut is_any = false;
        for effect in effects {
            let (Effect::ReplicaFailed { slot, extent, .. } | Effect::Refused { slot, extent }) = *effect
            else {
                continue;
            };
            is_any = true;
            reason_of(slot).into_iter().for_each(|reason| _ = self.0.insert((extent, slot), reason));
        }
        is_any
    }

    /// Takes the reason of a failure that is carried out now.
    pub fn take(&mut self, extent: ExtentIndex, slot: usize) -> Option<String> {
        self.0.remove(&(extent, slot))
    }
}

/// Why parts of one request to several replicas failed, the newest last.
#[derive(Debug, Default)]
pub struct PartReasons(Vec<(Option<usize>, String)>);

impl PartReasons {
    /// Notes why the part of a replica failed, or a part that is no replica's.
    pub fn note(&mut self, slot: Option<usize>, reason: String) {
        self.0.retain(|(other, _)| *other != slot);
        self.0.push((slot, reason));
    }

    /// The reason of a replica: its own, or the newest if its own part did not fail.
    pub fn of(&self, slot: usize) -> Option<String> {
        let own = self.0.iter().find(|(other, _)| *other == Some(slot));
        own.or(self.0.last()).map(|(_, reason)| reason.clone())
    }

    /// The newest reason.
    pub fn newest(self) -> Option<String> {
        self.0.into_iter().next_back().map(|(_, reason)| reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_volume::Remains;

    #[test]
    fn reason_is_told_once_and_of_its_replica_alone() {
        let failed = |slot| Effect::ReplicaFailed { slot, extent: ExtentIndex(7), remains: Remains::Intact };
        let (mut reasons, mut parts) = (FailureReasons::default(), PartReasons::default());
        parts.note(Some(1), "is full".to_owned());
        parts.note(Some(2), "is gone".to_owned());
        assert!(reasons.note(&[failed(1), failed(2)], |slot| parts.of(slot)));
        assert_eq!(reasons.take(ExtentIndex(7), 2).as_deref(), Some("is gone"));
        assert_eq!(reasons.take(ExtentIndex(7), 1).as_deref(), Some("is full"));
        assert_eq!((reasons.take(ExtentIndex(7), 1), reasons.take(ExtentIndex(8), 2)), (None, None));
        assert!(!reasons.note(&[], |_| Some("is of nobody".to_owned())));
    }

    #[test]
    fn replica_without_reason_of_its_own_has_the_newest() {
        let mut parts = PartReasons::default();
        assert_eq!(parts.of(0), None);
        parts.note(None, "cannot be recorded".to_owned());
        parts.note(Some(1), "is full".to_owned());
        parts.note(None, "cannot be recorded again".to_owned());
        assert_eq!(parts.of(0).as_deref(), Some("cannot be recorded again"));
        assert_eq!(parts.of(1).as_deref(), Some("is full"));
        assert_eq!(parts.newest().as_deref(), Some("cannot be recorded again"));
    }
}
