//! Requests to create, change and delete volumes.

use weir_types::{Class, ClassPolicy, FlushTerms, IoProfile, Name};

use crate::records::GroupKind;

/// Request for a new volume.
#[derive(Clone, Debug)]
pub struct CreateVolume {
    /// The owner; the default tenant if `None`.
    pub tenant: Option<Name>,
    /// The name.
    pub name: Name,
    /// The size in bytes.
    pub size_bytes: u64,
    /// The class; [`DEFAULT_CLASS`] if `None`.
    pub io_priority: Option<Class>,
    /// The policy for an unavailable class; if `None`, the volume is refused.
    pub class_policy: Option<ClassPolicy>,
    /// Number of replicas of each extent; one if `None`.
    pub replicas: Option<u8>,
    /// The template to follow; it decides the class, the class policy and the number of replicas.
    pub template: Option<Name>,
    /// The drive to hold the volume; if `None`, any drive of the class.
    pub drive: Option<Name>,
    /// Where its writes are stable first.
    pub io_profile: IoProfile,
    /// How its flushes are owed; only with the I/O profile `db_remote`.
    pub flush_terms: FlushTermsChange,
    /// The initial policy; if `None`, the policy group of the template, or else the tenant's default policy
    /// group.
    pub policy: Option<PolicyChange>,
    /// Bind floors that the drive's pool cannot deliver, and let replicas share a zone or rack.
    pub force: bool,
}

/// Requested terms of coalesced flushes; a field that is `None` stays, or has its default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlushTermsChange {
    /// The window in milliseconds.
    pub window_ms: Option<u32>,
    /// Whether replicas may share a failure domain.
    pub may_share_failure_domain: Option<bool>,
    /// Whether a request that is to be durable by itself (FUA) counts as one without and a flush.
    pub covers_fua: Option<bool>,
}

impl FlushTermsChange {
    /// True if nothing is to change.
    pub fn is_empty(&self) -> bool {
        *self == FlushTermsChange::default()
    }

    /// The terms after the change.
    pub fn apply(&self, old: FlushTerms) -> FlushTerms {
        FlushTerms {
            window_ms: self.window_ms.unwrap_or(old.window_ms),
            may_share_failure_domain: self.may_share_failure_domain.unwrap_or(old.may_share_failure_domain),
            covers_fua: self.covers_fua.unwrap_or(old.covers_fua),
        }
    }
}

/// Requested change of a volume's policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicyChange {
    /// The volume is released from a policy of this kind, or of either kind.
    Release(Option<GroupKind>),
    /// The volume is bound to this policy group of its tenant, instead of any other.
    Bind(GroupKind, Name),
}

/// Requested changes of a volume; a field that is `None` stays.
#[derive(Clone, Debug, Default)]
pub struct ModifyVolume {
    /// Another name.
    pub name: Option<Name>,
    /// Another class; replicas are moved to drives of that class.
    pub io_priority: Option<Class>,
    /// Another policy for an unavailable class.
    pub class_policy: Option<ClassPolicy>,
    /// Another number of replicas.
    pub replicas: Option<u8>,
    /// Another I/O profile; replicas are moved behind write journals, or to where they need none.
    pub io_profile: Option<IoProfile>,
    /// How its flushes are owed.
    pub flush_terms: FlushTermsChange,
    /// Another template to follow. With `Some(None)`, the volume follows none and stays as it is.
    pub template: Option<Option<Name>>,
    /// Another policy, or none.
    pub policy: Option<PolicyChange>,
    /// Whether clients may only read.
    pub is_read_only: Option<bool>,
    /// End the connections of attached clients if the change needs that, and bind floors that the drive's
    /// pool cannot deliver.
    pub force: bool,
    /// Refuse the change unless the volume has this version.
    pub if_version: Option<u64>,
}

impl ModifyVolume {
    /// True if nothing is to change.
    pub fn is_empty(&self) -> bool {
        let ModifyVolume {
            name,
            io_priority,
            class_policy,
            replicas,
            io_profile,
            flush_terms,
            template,
            policy,
            is_read_only,
            ..
        } = self;
        let is_moved = io_priority.is_some()
            || class_policy.is_some()
            || replicas.is_some()
            || io_profile.is_some()
            || !flush_terms.is_empty()
            || template.is_some();
        !is_moved && name.is_none() && policy.is_none() && is_read_only.is_none()
    }
}

/// Options of a deletion.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeleteVolume {
    /// End the connections of attached clients.
    pub force: bool,
    /// Delete the volume's snapshots too.
    pub with_snapshots: bool,
    /// Refuse the deletion unless the volume has this version.
    pub if_version: Option<u64>,
}
