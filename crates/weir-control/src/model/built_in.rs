//! Built-in policy groups: every tenant can use them, no client can change them, and no catalogue stores
//! them.

use std::collections::BTreeMap;

use jiff::Timestamp;
use weir_types::adaptive::BUILT_IN;
use weir_types::name::DEFAULT_TENANT;
use weir_types::{Name, PolicyGroupId, Terms};

use crate::catalogue::Revision;
use crate::error::{ControlError, Outcome};
use crate::model::Versioned;
use crate::records::PolicyGroupRecord;

/// First identity of the built-in groups. The identities are equal on every daemon, because records refer to
/// them.
const FIRST_ID: u128 = 0x7765_6972_0000_4000_8000_0000_0000_0001;

/// Built-in policy groups by identity.
#[derive(Clone)]
pub struct BuiltInGroups(BTreeMap<PolicyGroupId, Versioned<PolicyGroupRecord>>);

impl Default for BuiltInGroups {
    fn default() -> BuiltInGroups {
        let records = BUILT_IN.iter().zip(0..).filter_map(|(built_in, index)| {
            let record = PolicyGroupRecord {
                id: PolicyGroupId(uuid::Uuid::from_u128(FIRST_ID + index)),
                number: 0,
                tenant: Name::new(DEFAULT_TENANT).ok()?,
                name: Name::new(built_in.name).ok()?,
                terms: Terms::default(),
                is_shared: false,
                parent: None,
                adaptive: Some(built_in.terms),
                generation: 0,
                created_at: Timestamp::UNIX_EPOCH,
            };
            Some((record.id, Versioned { record, revision: Revision::ABSENT }))
        });
        BuiltInGroups(records.collect())
    }
}

impl BuiltInGroups {
    /// Returns the group of this identity.
    pub fn by_id(&self, id: PolicyGroupId) -> Option<&Versioned<PolicyGroupRecord>> {
        self.0.get(&id)
    }

    /// Returns the group of this name.
    pub fn named(&self, name: &Name) -> Option<&Versioned<PolicyGroupRecord>> {
        self.0.values().find(|group| group.record.name == *name)
    }

    /// Records of all built-in groups.
    pub fn records(&self) -> impl Iterator<Item = &PolicyGroupRecord> {
        self.0.values().map(|group| &group.record)
    }
}

/// True if this is the identity of a built-in group.
pub fn is_built_in(id: PolicyGroupId) -> bool {
    (FIRST_ID..FIRST_ID + BUILT_IN.len() as u128).contains(&id.0.as_u128())
}

/// Refuses a name that a built-in group has, without regard to case.
pub fn refuse_built_in_name(name: &Name) -> Outcome<()> {
    match BUILT_IN.iter().find(|built_in| built_in.name.eq_ignore_ascii_case(name.as_str())) {
        Some(built_in) => Err(ControlError::conflict(format!(
            "policy group '{}' is built in and exists for every tenant; another name is accepted",
            built_in.name
        ))),
        None => Ok(()),
    }
}

/// Refuses to change a built-in group.
pub fn refuse_built_in(record: &PolicyGroupRecord) -> Outcome<()> {
    if is_built_in(record.id) {
        return Err(ControlError::refused(format!(
            "adaptive policy group '{}' is built in and cannot be changed; make another with its terms",
            record.name
        )));
    }
    Ok(())
}
