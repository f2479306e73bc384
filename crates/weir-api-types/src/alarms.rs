//! Alarms, and the objects that alarms and events are about.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

/// Stable code of an alarm: the part of the daemon that noticed the fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum), value(rename_all = "snake_case"))]
#[serde(rename_all = "snake_case")]
pub enum AlarmCode {
    /// The daemon, at its start or at a change.
    Control,
    /// The state folder, which cannot be written.
    Catalogue,
    /// The check that drives are present.
    Drive,
    /// A drive whose earlier writes could not be made durable.
    LostWrites,
    /// The check of extent files, every second, or more rarely if there are very many.
    ExtentCheck,
    /// An I/O that failed.
    DataPlane,
    /// The ledger of floors.
    Ledger,
    /// The class that a volume prefers.
    Class,
    /// The space of a pool.
    Space,
    /// The measurement of a drive.
    Measurement,
    /// The replicas of a volume.
    Replicas,
    /// Flushes of a volume that wait for drives although its I/O profile lets them be answered before.
    CoalescedFlushes,
    /// A scrub of a volume.
    Scrub,
    /// The fullness of a write journal, or the speed of a journal drive.
    Journal,
}

/// Severity of an alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum), value(rename_all = "snake_case"))]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Data is lost or cannot be reached.
    Critical,
    /// All data is served, but slower or less safely than it should be.
    Warning,
}

/// Kind of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ObjectKind {
    /// The daemon as a whole.
    Daemon,
    /// A drive.
    Drive,
    /// A pool.
    Pool,
    /// A template.
    Template,
    /// A tenant.
    Tenant,
    /// A volume.
    Volume,
    /// A snapshot.
    Snapshot,
    /// A policy group.
    PolicyGroup,
    /// An adaptive policy group.
    AdaptivePolicyGroup,
    /// The policy of a kind of background work.
    BackgroundPolicy,
    /// All policies, as a set.
    Policies,
}

/// The object that an alarm or an event is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ObjectReference {
    /// Kind of the object.
    pub kind: ObjectKind,
    /// Identity of the object, if it has one that stays through changes of its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<Uuid>,
    /// Tenant of the object, if it belongs to one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Name of the object: that of a snapshot is `VOLUME@SNAPSHOT`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// A current fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Alarm {
    /// Identity of the alarm: the same for the same cause at the same object, also after a restart.
    pub id: Uuid,
    /// Stable code, on which programs can act.
    pub code: AlarmCode,
    /// Severity.
    pub severity: Severity,
    /// Time when the fault was first seen.
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
    /// Object that the fault concerns.
    pub object: ObjectReference,
    /// Affected extent of the volume, or the first of several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extent: Option<u64>,
    /// Description of the fault.
    pub message: String,
    /// Risk while the fault lasts.
    pub at_risk: String,
    /// Remedy.
    pub remedy: String,
}

/// A page of the alarms, the most severe first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AlarmList {
    /// Alarms.
    pub items: Vec<Alarm>,
    /// Token of the next page, if this page is not the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_page_token: Option<String>,
}

/// Page of the alarms that match.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct AlarmQuery {
    /// Only alarms of this severity.
    pub severity: Option<Severity>,
    /// Only alarms with this code.
    pub code: Option<AlarmCode>,
    /// Largest number of items in the answer; 500 if absent.
    #[param(minimum = 1, maximum = 1000)]
    pub page_size: Option<u32>,
    /// Token of the page, from the answer before; the first page if absent.
    pub page_token: Option<String>,
}

impl ObjectReference {
    /// The daemon as a whole.
    pub fn daemon() -> ObjectReference {
        ObjectReference { kind: ObjectKind::Daemon, id: None, tenant: None, name: None }
    }
}

impl ObjectKind {
    /// The kind as a person writes it.
    pub fn words(self) -> &'static str {
        match self {
            ObjectKind::Daemon => "daemon",
            ObjectKind::Drive => "drive",
            ObjectKind::Pool => "pool",
            ObjectKind::Template => "template",
            ObjectKind::Tenant => "tenant",
            ObjectKind::Volume => "volume",
            ObjectKind::Snapshot => "snapshot",
            ObjectKind::PolicyGroup => "policy group",
            ObjectKind::AdaptivePolicyGroup => "adaptive policy group",
            ObjectKind::BackgroundPolicy => "background policy",
            ObjectKind::Policies => "policies",
        }
    }
}

impl std::fmt::Display for ObjectReference {
    /// Kind and name, such as `volume svm01/vol1`. The default tenant is left out, as in export names.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.kind.words())?;
        let name = self.name.clone().or(self.id.map(|id| id.to_string()));
        match (name, &self.tenant) {
            (None, _) => Ok(()),
            (Some(name), Some(tenant)) if tenant != weir_types::name::DEFAULT_TENANT => {
                write!(f, " {tenant}/{name}")
            }
            (Some(name), _) => write!(f, " {name}"),
        }
    }
}
