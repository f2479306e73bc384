//! The records of the catalogue, and the record backup beside a volume's extents.

mod attachment;
pub(crate) mod measured;
pub(crate) mod placement;

use std::fmt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;
use weir_engine_interface::DriveSpec;
use weir_qos::{DriveModel, DriveRates};
use weir_store::StoreError;
use weir_store::format::first_reader;
use weir_types::bounds::{QUEUE_TARGET_MAX, VOLUME_SIZE_BYTES_MAX};
use weir_types::control_bounds::{
    OVER_COMMIT_PERCENT, OVER_PROVISION_PERCENT, REPLICAS_MAX, RESERVE_PERCENT,
};
use weir_types::{
    AdaptiveTerms, Cgroup, CgroupBindingId, Class, ClassPolicy, DriveId, DriveRole, Emulation, ExtentIndex,
    FlushTerms, IoProfile, MeasuredDirection, Name, PolicyGroupId, Terms, VolumeId,
};

use crate::error::{ControlError, Outcome};

pub use attachment::{AttachMethod, AttachmentRecord};
pub use measured::{ClassChoice, DatedMeasurement, Measured, MeasurementFailure};
pub use placement::Placement;

/// Class of a volume that requests none: the lowest, as with Portworx, so that no fast drive is used unasked.
pub const DEFAULT_CLASS: Class = Class::Low;

/// Format version of [`RecordBackup`].
pub const BACKUP_FORMAT: u32 = 1;

/// An owner of volumes and policy groups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantRecord {
    /// Its name.
    pub name: Name,
    /// Shared policy group whose terms apply to the whole tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_group: Option<PolicyGroupId>,
    /// Default policy group: volumes that are created without a group are bound to it.
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
    /// Its number: small, unique on this daemon, never reused.
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
    /// Its parent: a shared group of the same tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<PolicyGroupId>,
    /// Parameters from which each member's terms are computed, if they depend on its size. A group never
    /// gains or loses them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adaptive: Option<AdaptiveTerms>,
    /// Number of changes, which tells the newest of several backups.
    pub generation: u64,
    /// Time of its creation.
    pub created_at: Timestamp,
}

/// Settings of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PoolSettings {
    /// Maximum for floors and the reserve together, in percent of the capacity.
    pub over_commit_percent: u32,
    /// Part of the capacity that is kept for background work, in percent.
    pub reserve_percent: u32,
    /// Maximum provisioned size in percent of the pool's size; `None` means no maximum.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub over_provision_percent: Option<u32>,
    /// Maximum number of operations in flight; if `None`, trials find it while volumes compete.
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

/// A drive: a directory that holds volumes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveRecord {
    /// Its identity; the drive in the state folder has [`DriveId::DEFAULT`].
    pub id: DriveId,
    /// Its name.
    pub name: Name,
    /// Its folder, without symbolic links. The folders of the default drive and of block devices lie in the
    /// state folder and follow it.
    pub path: PathBuf,
    /// The block device that is mounted there, if the drive is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<DeviceRecord>,
    /// Emulated performance, if the drive is emulated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub emulation: Option<Emulation>,
    /// What it is used for. Never changes.
    #[serde(default, skip_serializing_if = "DriveRole::is_default")]
    pub role: DriveRole,
    /// Its class, once known; data drives of one class are one pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<Class>,
    /// Results of its measurements, and whether its class was chosen by hand.
    #[serde(default, skip_serializing_if = "Measured::is_empty")]
    pub measured: Measured,
    /// True if the drive drains and accepts nothing more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_draining: bool,
    /// Settings of its pool. Records from before floors were admitted lack it.
    #[serde(default)]
    pub pool: PoolSettings,
    /// Its zone, which is a failure domain; if `None`, the zone of its node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<Name>,
    /// Its rack within the zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rack: Option<Name>,
    /// Time when it was added.
    pub created_at: Timestamp,
}

/// A template: named volume settings that say where each replica lives, and which replicas are read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TemplateRecord {
    /// Its name, which never changes.
    pub name: Name,
    /// The class of each replica in the order of the slots; 1 to
    /// [`REPLICAS_MAX`](weir_types::control_bounds::REPLICAS_MAX) of them.
    pub replicas: Vec<Class>,
    /// Class of the replicas that are read while one of them has everything; the fastest if `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_from: Option<Class>,
    /// Policy group that new volumes with this template are bound to, in the tenant of each volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_group: Option<Name>,
    /// Number of changes, which tells the newest of several backups.
    pub generation: u64,
    /// Time of its creation.
    pub created_at: Timestamp,
}

/// Lifecycle state of a volume.
///
/// | from | to | cause |
/// |---|---|---|
/// | creating | online | all of its files are there |
/// | creating | deleting | its creation failed, or was interrupted by a stop |
/// | online | deleting | it is deleted, or a restored volume takes its place |
///
/// [`VolumeState::can_become`] is this table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VolumeState {
    /// Its files are being created. The next start undoes an unfinished creation.
    Creating,
    /// It can be used.
    Online,
    /// It is deleted. Its space is reclaimed in the background, if necessary by the next daemon.
    Deleting,
}

impl VolumeState {
    /// True if a volume in this state can come into the next.
    pub fn can_become(self, next: VolumeState) -> bool {
        use VolumeState::{Creating, Deleting, Online};
        matches!((self, next), (Creating, Online | Deleting) | (Online, Deleting))
    }
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
    /// Placement of its extents. Records from before there were several drives lack it, and later ones named
    /// one drive.
    #[serde(default, alias = "drive")]
    pub placement: Placement,
    /// Desired number of replicas of each extent. Records from before there could be several lack it.
    #[serde(default = "one_replica")]
    pub replicas: u8,
    /// Template that sets the number and class of replicas, and which replicas are read. Records from before
    /// there were templates lack it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<Name>,
    /// Requested class.
    pub io_priority: Class,
    /// Behaviour if that class is not available. Records from before volumes were placed by class lack it.
    #[serde(default)]
    pub class_policy: ClassPolicy,
    /// Where its writes are stable first.
    #[serde(default, skip_serializing_if = "IoProfile::is_default")]
    pub io_profile: IoProfile,
    /// How its flushes are owed, if its I/O profile says that they are.
    #[serde(default, skip_serializing_if = "FlushTerms::is_default")]
    pub flush_terms: FlushTerms,
    /// Number of changes, which tells the newest of several backups. Records from before there could be
    /// several lack it.
    #[serde(default)]
    pub generation: u64,
    /// The policy group that it is bound to.
    pub policy_group: Option<PolicyGroupId>,
    /// The cgroups with limits of their own on it. Records from before there were any lack it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cgroups: Vec<CgroupBindingRecord>,
    /// Whether clients may only read it. Records from before this setting existed lack it.
    #[serde(default)]
    pub is_read_only: bool,
    /// The origin, if it is a snapshot: then its name is unique among the snapshots of that volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<SnapshotOf>,
    /// The volume or snapshot that it was cloned from, under its name at that time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cloned_from: Option<String>,
    /// Its lifecycle state.
    pub state: VolumeState,
    /// Time of its creation.
    pub created_at: Timestamp,
    /// Time of its deletion, if it is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deleted_at: Option<Timestamp>,
    /// Drives that were missing when it was deleted, and that may have a write journal of it. The journals are removed
    /// when the drives are back.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub absent_journals: Vec<DriveId>,
}

/// A cgroup that is bound to a policy group, for what its processes do to a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CgroupBindingRecord {
    /// Identity of the binding.
    pub id: CgroupBindingId,
    /// The cgroup.
    pub cgroup: Cgroup,
    /// The folder of the cgroup, as it was given.
    pub folder: PathBuf,
    /// The policy group, which is not shared.
    pub policy_group: PolicyGroupId,
    /// Time of its creation.
    pub created_at: Timestamp,
}

/// The origin of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotOf {
    /// The volume.
    pub volume: VolumeId,
    /// The volume's name, which is part of the snapshot's name and follows renames.
    pub volume_name: Name,
}

fn one_replica() -> u8 {
    1
}

/// The record backup beside a volume's extents: enough to rebuild a lost catalogue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordBackup {
    /// Format version: [`BACKUP_FORMAT`].
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
    /// The groups above this group, and those that its tenant names. Backups from before nesting lack them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_groups: Vec<PolicyGroupRecord>,
    /// The volume's template, unless it is built in. Backups from before there were templates lack it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<TemplateRecord>,
}

impl RecordBackup {
    /// Decodes the content of a backup's file.
    ///
    /// # Errors
    /// In words, if this version does not understand it, or no volume has the size that it names.
    pub fn decode(content: &[u8]) -> Result<RecordBackup, String> {
        let value = serde_json::from_slice(content).map_err(|error| error.to_string())?;
        let backup: RecordBackup = weir_store::format::read(&value)?;
        let size_bytes = backup.volume.size_bytes;
        if backup.format != BACKUP_FORMAT {
            return Err(format!("it has format {}, not {BACKUP_FORMAT}", backup.format));
        }
        if size_bytes > VOLUME_SIZE_BYTES_MAX {
            return Err(format!("its volume has {size_bytes} bytes; {VOLUME_SIZE_BYTES_MAX} are the most"));
        }
        Ok(backup)
    }
}

/// The identity of this node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRecord {
    /// Its identity.
    pub id: uuid::Uuid,
}

impl DriveRecord {
    /// Path of the drive as the operator gave it: its block device or its folder.
    pub fn place(&self) -> &Path {
        self.device.as_ref().map_or(&self.path, |device| &device.path)
    }
}

impl PolicyGroupRecord {
    /// The own terms of a member of these sizes. Members of a shared group have none of their own.
    pub fn own_terms(&self, allocated_bytes: u64, used_bytes: u64) -> Terms {
        match &self.adaptive {
            Some(adaptive) => adaptive.terms(allocated_bytes, used_bytes),
            None if self.is_shared => Terms::default(),
            None => self.terms,
        }
    }

    /// Its kind, in words.
    pub fn kind(&self) -> &'static str {
        if self.adaptive.is_some() { "adaptive policy group" } else { "policy group" }
    }
}

impl TenantRecord {
    /// A new tenant with default settings.
    pub fn new(name: Name, created_at: Timestamp) -> TenantRecord {
        TenantRecord { name, policy_group: None, default_policy_group: None, created_at }
    }
}

impl VolumeRecord {
    /// The name under which clients attach the volume: its name, with its tenant unless that is the default.
    ///
    /// A snapshot's name follows the name of its volume and `@`.
    pub fn export_name(&self) -> String {
        let name = match &self.snapshot {
            None => self.name.to_string(),
            Some(of) => format!("{}@{}", of.volume_name, self.name),
        };
        match self.tenant.as_str() {
            weir_types::name::DEFAULT_TENANT => name,
            tenant => format!("{tenant}/{name}"),
        }
    }

    /// Its kind and name, in words.
    pub fn title(&self) -> String {
        let what = if self.snapshot.is_some() { "snapshot" } else { "volume" };
        format!("{what} '{}'", self.export_name())
    }

    /// True if each of its replicas has to be behind a write journal on a journal drive. A snapshot is not written,
    /// and keeps the I/O profile only for the volumes that are made from it.
    pub fn is_promised_journals(&self) -> bool {
        self.io_profile == IoProfile::Journal && self.snapshot.is_none()
    }

    /// True if its flushes are answered before they are carried out, as far as its replicas allow.
    pub fn coalesces_flushes(&self) -> bool {
        let has_profile = match self.io_profile {
            IoProfile::DbRemote => true,
            IoProfile::Auto => self.replicas > 1,
            IoProfile::None | IoProfile::Journal => false,
        };
        has_profile && self.snapshot.is_none()
    }

    /// True if this was asked for by name. A volume that leaves the choice to Weir (`auto`) is promised nothing.
    pub fn is_promised_coalescing(&self) -> bool {
        self.io_profile == IoProfile::DbRemote && self.coalesces_flushes()
    }

    /// False if it never had a write journal, so that no drive is searched for one. A volume that was changed may have
    /// had another template or I/O profile.
    pub fn may_have_journals(&self) -> bool {
        self.generation > 0 || self.template.is_some() || self.is_promised_journals()
    }
}

/// Keys of the catalogue.
pub mod keys {
    use weir_types::{AttachmentId, BackgroundKind, DriveId, Name, PolicyGroupId, VolumeId};

    /// Prefix of all tenants.
    pub const TENANTS: &str = "tenant/";
    /// Prefix of all policy groups.
    pub const POLICY_GROUPS: &str = "policy-group/";
    /// Prefix of all templates that are not built in.
    pub const TEMPLATES: &str = "template/";
    /// Prefix of all attachments.
    pub const ATTACHMENTS: &str = "attachment/";
    /// Prefix of all drives.
    pub const DRIVES: &str = "drive/";
    /// Prefix of drives on which writes were lost.
    pub const LOST_WRITES: &str = "lost-writes/";
    /// Prefix of the policies of background work that are not the built-in ones.
    pub const BACKGROUND_POLICIES: &str = "background-policy/";
    /// Prefix of filesystems that were begun on block devices and belong to no drive yet.
    pub const DEVICE_FORMATS: &str = "device-format/";
    /// Prefix of the results of each volume's last scrub.
    pub const SCRUBS: &str = "scrub/";
    /// Prefix of all volumes.
    pub const VOLUMES: &str = "volume/";
    /// The highest number that a policy group ever had.
    pub const POLICY_GROUP_NUMBER: &str = "counter/policy-group";
    /// The versions that may read the catalogue.
    pub const FORMAT: &str = "format/self";
    /// The identity of this node.
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

    /// Key of an attachment.
    pub fn attachment(id: AttachmentId) -> String {
        format!("{ATTACHMENTS}{id}")
    }

    /// Key of the policy of a kind of background work.
    pub fn background_policy(kind: BackgroundKind) -> String {
        format!("{BACKGROUND_POLICIES}{kind}")
    }

    /// Key of a drive's lost writes.
    pub fn lost_writes(id: DriveId) -> String {
        format!("{LOST_WRITES}{id}")
    }

    /// Key of the result of a volume's last scrub.
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

/// The block device of a drive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceRecord {
    /// Last known path of the device, for example `/dev/sdb`. The device is found by its filesystem, not by
    /// the path.
    pub path: PathBuf,
    /// UUID of the filesystem on the device.
    pub filesystem: Uuid,
    /// True if the device rotates, as far as the kernel knows.
    pub is_rotational: bool,
}

/// Record of lost writes on a drive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostWrites {
    /// Message of the system.
    pub message: String,
    /// Time when the loss was found.
    pub found_at: Timestamp,
}

impl LostWrites {
    /// The record of earlier writes that could not be made durable.
    pub(crate) fn found(error: &StoreError) -> LostWrites {
        LostWrites { message: error.to_string(), found_at: Timestamp::now() }
    }
}

impl fmt::Display for LostWrites {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LostWrites { message, found_at } = self;
        write!(f, "acknowledged writes to it may be lost, which was found at {found_at}: {message}")
    }
}

/// The two kinds of policy groups. Names are unique across both within a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupKind {
    /// The terms are constant.
    Fixed,
    /// The terms depend on the size of each volume.
    Adaptive,
}

/// A replica of an extent: its extent and its slot.
pub(crate) type ExtentReplica = (ExtentIndex, usize);

impl TemplateRecord {
    /// The classes of the replicas, in the form that the command line accepts.
    pub fn classes(&self) -> String {
        self.replicas.iter().map(|class| class.name()).collect::<Vec<_>>().join(",")
    }

    /// Number of replicas.
    pub fn replica_count(&self) -> u8 {
        u8::try_from(self.replicas.len()).expect("a template is checked before it is kept")
    }

    /// Refuses a record with a bad number of replicas, or with a class to read from that no replica has.
    pub(crate) fn check(&self) -> Outcome<()> {
        let (name, count) = (&self.name, self.replicas.len());
        if !(1..=usize::from(REPLICAS_MAX)).contains(&count) {
            return Err(ControlError::invalid(format!(
                "template '{name}' would have {count} replicas; 1 to {REPLICAS_MAX} are accepted, each with its class"
            )));
        }
        match self.read_from.filter(|class| !self.replicas.contains(class)) {
            None => Ok(()),
            Some(class) => Err(ControlError::invalid(format!(
                "template '{name}' would read from class {class}, of which none of its replicas ({}) is; a class of \
                 theirs or 'fastest' is accepted",
                self.classes()
            ))),
        }
    }
}

pub(crate) fn snapshot_of(volume: &VolumeRecord) -> SnapshotOf {
    SnapshotOf { volume: volume.id, volume_name: volume.name.clone() }
}

impl PoolSettings {
    /// Refuses values that are not accepted.
    pub(crate) fn check(&self) -> Outcome<()> {
        let over_provision = self.over_provision_percent.unwrap_or(*OVER_PROVISION_PERCENT.end());
        let percents = [
            ("an over-commit", self.over_commit_percent, OVER_COMMIT_PERCENT),
            ("a reserve", self.reserve_percent, RESERVE_PERCENT),
            ("an over-provisioning", over_provision, OVER_PROVISION_PERCENT),
        ];
        for (what, percent, range) in percents {
            if !range.contains(&percent) {
                let (least, most) = (range.start(), range.end());
                return Err(ControlError::invalid(format!(
                    "{what} of {percent}% is not accepted; {least}% to {most}% is"
                )));
            }
        }
        match self.queue_target {
            Some(target) if !(1..=QUEUE_TARGET_MAX).contains(&target) => Err(ControlError::invalid(format!(
                "a queue target of {target} operations is not accepted; 1 to {QUEUE_TARGET_MAX} and 'auto' \
                 are"
            ))),
            _ => Ok(()),
        }
    }
}

impl DriveRecord {
    /// The drive's settings for the data plane.
    pub(crate) fn spec(&self) -> DriveSpec {
        let rates = |direction: MeasuredDirection| DriveRates {
            iops: direction.iops,
            bytes_per_second: direction.bytes_per_second,
        };
        let measured =
            self.measurement().map(|found| DriveModel { read: rates(found.read), write: rates(found.write) });
        let emulated = self.emulation.map(DriveModel::emulated);
        DriveSpec {
            id: self.id,
            emulation: self.emulation,
            model: emulated.or(measured).unwrap_or(DriveModel::UNKNOWN),
            queue_target: self.pool.queue_target,
        }
    }

    /// Relative cost of a read on this drive: first by class, then by measured latency.
    ///
    /// Latency counts on a logarithmic scale in steps of a factor of four, so that drives of one model share
    /// the reads.
    pub(crate) fn read_cost(&self) -> u32 {
        let rank = self.class.map_or(Class::ALL.len(), |class| Class::High as usize - class as usize);
        let latency_ns = self.measurement().map_or(0, |found| found.read.latency_ns);
        let quarters = latency_ns.checked_ilog2().unwrap_or(0) / 2;
        rank as u32 * u64::BITS + quarters
    }
}

impl DriveRecord {
    /// The record of a drive with default settings.
    pub(crate) fn new(id: DriveId, name: Name, path: PathBuf, pool: PoolSettings) -> DriveRecord {
        let created_at = Timestamp::now();
        DriveRecord {
            is_draining: false,
            id,
            name,
            path,
            device: None,
            emulation: None,
            role: DriveRole::default(),
            class: None,
            measured: Measured::default(),
            pool,
            zone: None,
            rack: None,
            created_at,
        }
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
    fn older_emulated_drive_records_round_trip_unchanged() {
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
    fn records_round_trip() {
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
