//! The records that the catalogue keeps, and the replica that lies beside a volume's extents.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use weir_types::{
    AdaptiveTerms, Class, ClassPolicy, DriveId, Emulation, Name, PolicyGroupId, Terms, VolumeId,
};

use super::placement::Placement;
use weir_store::format::first_reader;

pub use super::drives::{ClassChoice, DatedMeasurement, DeviceRecord, Measured, MeasurementFailure};

/// Name of the drive in the state folder, which always exists.
pub const DEFAULT_DRIVE: &str = "default";

/// Name of the tenant that always exists.
pub const DEFAULT_TENANT: &str = "default";

/// Class of a volume that asked for none: the lowest, as with Portworx, so that nothing fast is taken
/// unasked.
pub const DEFAULT_CLASS: Class = Class::Low;

/// Version of the form of [`RecordBackup`].
pub const BACKUP_FORMAT: u32 = 1;

/// An owner of volumes and policy groups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantRecord {
    /// Its name.
    pub name: Name,
    /// The shared policy group whose terms are those of the whole tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_group: Option<PolicyGroupId>,
    /// The policy group that volumes get which are made without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_policy_group: Option<PolicyGroupId>,
    /// When it was made.
    pub created_at: Timestamp,
}

/// Named terms.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyGroupRecord {
    /// Its identity, which survives a rename.
    pub id: PolicyGroupId,
    /// Its number: small, unique on this daemon, never used again.
    pub number: u64,
    /// The tenant that owns it.
    pub tenant: Name,
    /// Its name, unique within the tenant.
    pub name: Name,
    /// Its terms. Records from before floors and bursts have only ceilings.
    #[serde(flatten)]
    pub terms: Terms,
    /// True if all members share one budget, false if each has its own. Never changes.
    pub is_shared: bool,
    /// The shared group of the same tenant under which this one stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<PolicyGroupId>,
    /// What the terms of each member are computed from, if they follow its size. Never comes or goes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adaptive: Option<AdaptiveTerms>,
    /// Counts changes, so that the newest of several replicas is known.
    pub generation: u64,
    /// When it was made.
    pub created_at: Timestamp,
}

/// How a pool is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PoolSettings {
    /// How much of the capacity floors and the reserve may be together, in percent.
    pub over_commit_percent: u32,
    /// The part of the capacity that is kept for background work, in percent.
    pub reserve_percent: u32,
    /// How much of its size volumes may have together, in percent; `None` for any number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub over_provision_percent: Option<u32>,
    /// Most operations to keep in flight; if `None`, as many as trials find while volumes compete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_target: Option<u32>,
}

impl Default for PoolSettings {
    fn default() -> PoolSettings {
        PoolSettings {
            over_commit_percent: 100,
            reserve_percent: 5,
            over_provision_percent: None,
            queue_target: None,
        }
    }
}

/// A directory that holds volumes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveRecord {
    /// Its identity; that of the one in the state folder is [`DriveId::DEFAULT`].
    pub id: DriveId,
    /// Its name.
    pub name: Name,
    /// Its folder, without symbolic links. That of the default drive, and of a block device, follows the state folder.
    pub path: PathBuf,
    /// The block device that is mounted there, if the drive is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<DeviceRecord>,
    /// How it behaves, if it is emulated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub emulation: Option<Emulation>,
    /// The class of what it delivers, once that is known; drives of one class are one pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<Class>,
    /// What its measurements found, and whether its class was chosen instead.
    #[serde(default, skip_serializing_if = "Measured::is_empty")]
    pub measured: Measured,
    /// It is being emptied, and takes nothing more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_draining: bool,
    /// How its pool is used. Records from before floors were admitted lack it.
    #[serde(default)]
    pub pool: PoolSettings,
    /// The zone that it is in, if that is not its node's: what fails together with others there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<Name>,
    /// The rack within the zone that it is in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rack: Option<Name>,
    /// When it was added.
    pub created_at: Timestamp,
}

/// Settings of volumes by a name: where each replica lives, and which is read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TemplateRecord {
    /// Its name, which never changes.
    pub name: Name,
    /// The class of each replica, in the order of the replicas; 1 to [`REPLICAS_MAX`](super::bounds::REPLICAS_MAX) of them.
    pub replicas: Vec<Class>,
    /// The class of the replicas that are read, as long as one of them has everything; the fastest if `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_from: Option<Class>,
    /// The policy group that volumes are bound to which are made from it, of the tenant of each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_group: Option<Name>,
    /// Counts changes, so that the newest of several replicas is known.
    pub generation: u64,
    /// When it was made.
    pub created_at: Timestamp,
}

/// Where a volume is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VolumeState {
    /// Its files are being made; undone by the next start.
    Creating,
    /// It can be used.
    Online,
    /// It is deleted, and its space is given back in the background, by the next daemon if need be.
    Deleting,
}

/// A volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeRecord {
    /// Its identity: the name of its folder.
    pub id: VolumeId,
    /// The tenant that owns it.
    pub tenant: Name,
    /// Its name, unique within the tenant.
    pub name: Name,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// Where its extents lie. Records from before there were several drives lack it, and later ones named one.
    #[serde(default, alias = "drive")]
    pub placement: Placement,
    /// How many replicas of each extent there should be. Records from before there could be several lack it.
    #[serde(default = "one_replica")]
    pub replicas: u8,
    /// The template that says how many replicas there are, of which class each is and which is read. Records from before
    /// there were templates lack it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<Name>,
    /// The class that was asked for.
    pub io_priority: Class,
    /// What becomes of it if that class cannot be had. Records from before volumes were placed by it lack it.
    #[serde(default)]
    pub class_policy: ClassPolicy,
    /// Counts changes, so that the newest of several replicas is known. Records from before there could be several
    /// replicas lack it.
    #[serde(default)]
    pub generation: u64,
    /// The policy group that it is bound to.
    pub policy_group: Option<PolicyGroupId>,
    /// Whether clients are kept from changing its data. Records from before this could be asked for lack it.
    #[serde(default)]
    pub is_read_only: bool,
    /// What it is a snapshot of, if it is one: then its name is unique among those of that volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<SnapshotOf>,
    /// The volume or snapshot that it was cloned from, as that was called then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cloned_from: Option<String>,
    /// Where it is in its life.
    pub state: VolumeState,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was deleted, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deleted_at: Option<Timestamp>,
}

/// The volume that a snapshot shows as it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotOf {
    /// The volume.
    pub volume: VolumeId,
    /// Its name, which a snapshot is called by: it follows renames.
    pub volume_name: Name,
}

fn one_replica() -> u8 {
    1
}

/// The replica beside a volume's extents: enough to rebuild a lost catalogue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordBackup {
    /// Version of this form: [`BACKUP_FORMAT`].
    pub format: u32,
    /// The least version that a reader needs; see [`weir_store::format`].
    #[serde(default = "first_reader")]
    pub minimum_reader: u32,
    /// The volume.
    pub volume: VolumeRecord,
    /// Its tenant.
    pub tenant: TenantRecord,
    /// The policy group that it is bound to.
    pub policy_group: Option<PolicyGroupRecord>,
    /// The policy groups that this one stands under and that its tenant names. Replicas from before nesting lack
    /// them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_groups: Vec<PolicyGroupRecord>,
    /// The template that it follows, unless that is built in. Replicas from before there were templates lack it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<TemplateRecord>,
}

/// The node's own identity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRecord {
    /// Its identity.
    pub id: uuid::Uuid,
}

impl DriveRecord {
    /// Where it is for whoever gave it: its block device or its folder.
    pub fn place(&self) -> &Path {
        self.device.as_ref().map_or(&self.path, |device| &device.path)
    }
}

impl PolicyGroupRecord {
    /// The terms of a member of these sizes, as far as they are its own: a shared group's are not.
    pub fn own_terms(&self, allocated_bytes: u64, used_bytes: u64) -> Terms {
        match &self.adaptive {
            Some(adaptive) => adaptive.terms(allocated_bytes, used_bytes),
            None if self.is_shared => Terms::default(),
            None => self.terms,
        }
    }

    /// What kind of group it is, in words.
    pub fn kind(&self) -> &'static str {
        if self.adaptive.is_some() { "adaptive policy group" } else { "policy group" }
    }
}

impl TenantRecord {
    /// A new tenant that asks for nothing.
    pub fn new(name: Name, created_at: Timestamp) -> TenantRecord {
        TenantRecord { name, policy_group: None, default_policy_group: None, created_at }
    }
}

impl VolumeRecord {
    /// The name under which clients attach the volume: its name, with its tenant unless that is the default. That of a
    /// snapshot stands behind the name of its volume and `@`.
    pub fn export_name(&self) -> String {
        let name = match &self.snapshot {
            None => self.name.to_string(),
            Some(of) => format!("{}@{}", of.volume_name, self.name),
        };
        match self.tenant.as_str() {
            DEFAULT_TENANT => name,
            tenant => format!("{tenant}/{name}"),
        }
    }

    /// What it is, with its name, in words.
    pub fn title(&self) -> String {
        let what = if self.snapshot.is_some() { "snapshot" } else { "volume" };
        format!("{what} '{}'", self.export_name())
    }
}

/// Keys of the catalogue.
pub mod keys {
    use weir_types::{BackgroundKind, DriveId, Name, PolicyGroupId, VolumeId};

    /// Prefix of all tenants.
    pub const TENANTS: &str = "tenant/";
    /// Prefix of all policy groups.
    pub const POLICY_GROUPS: &str = "policy-group/";
    /// Prefix of all templates that are not built in.
    pub const TEMPLATES: &str = "template/";
    /// Prefix of all drives.
    pub const DRIVES: &str = "drive/";
    /// Prefix of drives on which writes were lost.
    pub const LOST_WRITES: &str = "lost-writes/";
    /// Prefix of the policies of background work that are not the built-in ones.
    pub const BACKGROUND_POLICIES: &str = "background-policy/";
    /// Prefix of filesystems that were begun on block devices and are no drive's yet.
    pub const DEVICE_FORMATS: &str = "device-format/";
    /// Prefix of how the last scrub of each volume ended.
    pub const SCRUBS: &str = "scrub/";
    /// Prefix of all volumes.
    pub const VOLUMES: &str = "volume/";
    /// The highest number that a policy group ever had.
    pub const POLICY_GROUP_NUMBER: &str = "counter/policy-group";
    /// Who may read the catalogue.
    pub const FORMAT: &str = "format/self";
    /// The node's own identity.
    pub const NODE: &str = "node/self";

    /// Key of a tenant.
    pub fn tenant(name: &Name) -> String {
        format!("{TENANTS}{name}")
    }

    /// Key of a policy group.
    pub fn policy_group(id: PolicyGroupId) -> String {
        format!("{POLICY_GROUPS}{id}")
    }

    /// Key of a template.
    pub fn template(name: &Name) -> String {
        format!("{TEMPLATES}{name}")
    }

    /// Key of the policy of a kind of background work.
    pub fn background_policy(kind: BackgroundKind) -> String {
        format!("{BACKGROUND_POLICIES}{kind}")
    }

    /// Key of that writes to a drive were lost.
    pub fn lost_writes(id: DriveId) -> String {
        format!("{LOST_WRITES}{id}")
    }

    /// Key of how the last scrub of a volume ended.
    pub fn scrub(id: VolumeId) -> String {
        format!("{SCRUBS}{id}")
    }

    /// Key of a drive.
    pub fn drive(id: DriveId) -> String {
        format!("{DRIVES}{id}")
    }

    /// Key of a filesystem that was begun.
    pub fn device_format(filesystem: uuid::Uuid) -> String {
        format!("{DEVICE_FORMATS}{filesystem}")
    }

    /// Key of a volume.
    pub fn volume(id: VolumeId) -> String {
        format!("{VOLUMES}{id}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_from_before_floors_and_nesting_are_read() {
        let group = serde_json::json!({
            "id": uuid::Uuid::from_u128(1), "number": 7, "tenant": "svm01", "name": "policy1",
            "limits": {"total": {"iops": 1000}, "read": {}, "write": {"bytes_per_second": 5}},
            "is_shared": true, "generation": 3, "created_at": "2025-01-01T00:00:00Z",
        });
        let group: PolicyGroupRecord = serde_json::from_value(group).unwrap();
        assert_eq!((group.terms.limits.total.iops, group.parent, group.adaptive), (Some(1000), None, None));
        assert_eq!(group.terms, Terms::limited(group.terms.limits), "everything else is as it was");
        let tenant = serde_json::json!({"name": "svm01", "created_at": "2025-01-01T00:00:00Z"});
        let tenant: TenantRecord = serde_json::from_value(tenant).unwrap();
        assert_eq!((tenant.policy_group, tenant.default_policy_group), (None, None));
    }

    #[test]
    fn records_from_before_floors_were_admitted_are_read() {
        let drive = serde_json::json!({
            "id": uuid::Uuid::from_u128(1), "name": "d1", "path": "/srv/d1",
            "created_at": "2025-01-01T00:00:00Z",
        });
        let mut drive: DriveRecord = serde_json::from_value(drive).unwrap();
        assert_eq!(drive.pool, PoolSettings::default());
        drive.pool = PoolSettings {
            over_commit_percent: 150,
            reserve_percent: 0,
            over_provision_percent: Some(300),
            queue_target: Some(8),
        };
        let value = serde_json::to_value(&drive).unwrap();
        assert_eq!(serde_json::from_value::<DriveRecord>(value).unwrap(), drive);
    }

    #[test]
    fn emulated_drives_from_before_seeks_flushes_and_parallelism_are_read_and_written_as_they_were() {
        for (before, parameters) in [
            (r#"{"iops":2000,"latency_ns":0}"#, "iops=2000"),
            (r#"{"iops":7,"bytes_per_second":5000000,"latency_ns":9}"#, "iops=7,bandwidth=5MB/s,latency=9ns"),
        ] {
            let drive = serde_json::json!({
                "id": uuid::Uuid::from_u128(1), "name": "d1", "path": "/srv/d1",
                "emulation": serde_json::from_str::<serde_json::Value>(before).unwrap(),
                "created_at": "2025-01-01T00:00:00Z",
            });
            let drive: DriveRecord = serde_json::from_value(drive).unwrap();
            assert_eq!(drive.emulation, Some(Emulation::parse(parameters).unwrap()), "{before}");
            assert_eq!(serde_json::to_string(&drive.emulation).unwrap(), before);
        }
        let without_latency: Emulation = serde_json::from_str(r#"{"iops":5}"#).unwrap();
        assert_eq!(without_latency, Emulation::even(5, None, 0));
        let all = Emulation::parse("iops=5,bandwidth=1MB/s,latency=1ms,seek=2ms,flush=0,parallel=3").unwrap();
        let written = serde_json::to_value(all).unwrap();
        assert_eq!(serde_json::from_value::<Emulation>(written).unwrap(), all);
    }

    #[test]
    fn records_are_read_as_they_were_written() {
        let terms = Terms {
            operation_size: weir_types::OperationSize::Bytes(4096),
            weight: weir_types::Weight(7),
            ..Terms::default()
        };
        let group = PolicyGroupRecord {
            id: PolicyGroupId(uuid::Uuid::from_u128(1)),
            number: 1,
            tenant: Name::new("svm01").unwrap(),
            name: Name::new("policy1").unwrap(),
            terms,
            is_shared: false,
            parent: Some(PolicyGroupId(uuid::Uuid::from_u128(2))),
            adaptive: Some(AdaptiveTerms::new(1000, 1500)),
            generation: 1,
            created_at: Timestamp::UNIX_EPOCH,
        };
        let value = serde_json::to_value(&group).unwrap();
        assert_eq!(serde_json::from_value::<PolicyGroupRecord>(value).unwrap(), group);
    }
}
