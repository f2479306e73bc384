//! Background policies: the policy of each kind of background work.

use std::collections::BTreeMap;

use weir_types::{BackgroundKind, BackgroundPolicy};

/// The policies, by kind of work. A kind without a policy has the default one.
#[derive(Debug, Default)]
pub struct BackgroundPolicies(BTreeMap<BackgroundKind, BackgroundPolicy>);

impl BackgroundPolicies {
    /// The policy of a kind of work.
    pub fn of(&self, kind: BackgroundKind) -> BackgroundPolicy {
        self.0.get(&kind).copied().unwrap_or_default()
    }

    /// Takes another policy.
    pub fn set(&mut self, kind: BackgroundKind, policy: BackgroundPolicy) {
        self.0.insert(kind, policy);
    }
}
