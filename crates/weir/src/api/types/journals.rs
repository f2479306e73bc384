//! The bodies that concern write journals.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::control::JournalView;

/// The write journal of a volume on a drive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Journal {
    /// The volume's identity.
    pub id: Uuid,
    /// The volume's tenant.
    pub tenant: String,
    /// The volume.
    pub volume: String,
    /// The drive that the journal lies on.
    pub drive: String,
    /// Replicas of extents, on slower drives, that are behind it.
    pub replicas: u64,
    /// Bytes that it has for writes.
    pub size_bytes: u64,
    /// Bytes of these in use, a second ago or less.
    pub used_bytes: u64,
    /// It holds nothing that the replicas behind it have not.
    pub is_empty: bool,
    /// It has failed, and the replicas that were behind it are made anew.
    pub has_failed: bool,
}

/// A list of journals.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JournalList {
    /// The journals, by tenant, volume and drive.
    pub journals: Vec<Journal>,
}

impl From<JournalView> for Journal {
    fn from(view: JournalView) -> Journal {
        Journal {
            id: view.volume.id.0,
            tenant: view.volume.tenant.into(),
            volume: view.volume.name.into(),
            drive: view.drive.into(),
            replicas: view.replicas,
            size_bytes: view.usage.size_bytes,
            used_bytes: view.usage.used_bytes,
            is_empty: view.usage.is_empty,
            has_failed: view.usage.has_failed,
        }
    }
}
