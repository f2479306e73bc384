//! The calls of the protocol. Each can be repeated: Docker does so after faults of the transport.
//!
//! What is mounted is read from the kernel each time, and who has it from files: a plugin that starts again knows all
//! that the one before it knew.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use weir_api_types::{AttachMethod, Attachment, AttachmentCreate, IoPriority, Volume, VolumeHealth};
use weir_attach::filesystem::{self, FilesystemKind, MountOptions};
use weir_attach::mount_table;
use weir_attach::{AttachError, in_words};
use weir_client::{Client, ClientError, of_tenant};

use crate::callers::{self, Caller, Callers, Engine};
use crate::protocol::DockerVolume;
use weir_volume_options::{Specification, SpecificationError, name_of};

/// How the plugin names itself as the consumer of an attachment.
const CONSUMER: &str = "docker";
/// A folder of ext4's own in each new filesystem. Programs that want an empty folder, as databases do, refuse it;
/// e2fsck makes it when it is needed.
const LOST_AND_FOUND: &str = "lost+found";

/// How long the mount namespace of a container that has ended may stay.
const CONTAINER_END_TIME_MAX: Duration = Duration::from_secs(2);
/// Pause between two looks at it.
const CONTAINER_END_PAUSE: Duration = Duration::from_millis(20);

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The name or an option is not accepted.
    #[error(transparent)]
    Specification(#[from] SpecificationError),
    /// The daemon refused, or there is none.
    #[error(transparent)]
    Daemon(#[from] ClientError),
    /// The host did not do it.
    #[error("{}", in_words(.0))]
    Host(#[from] AttachError),
    /// The plugin's own files cannot be used.
    #[error("the folder of the plugin cannot be used: {0}")]
    Folder(#[from] io::Error),
    /// The volume is not there.
    #[error("no such volume: {0}")]
    NoVolume(String),
    /// It cannot be done now.
    #[error("{0}")]
    Refused(String),
}

type Outcome<T> = Result<T, CallError>;

/// The volumes of a tenant, as Docker sees them.
pub struct DockerVolumes {
    client: Client,
    tenant: String,
    default_size_bytes: u64,
    mounts: PathBuf,
    /// Files of volumes whose filesystem is being made, each with the ID of the volume.
    formatting: PathBuf,
    callers: Callers,
    /// One lock for each volume that a call is about.
    locks: Mutex<BTreeMap<String, Arc<Mutex<()>>>>,
}

impl DockerVolumes {
    /// The volumes of `tenant`, with mounts and callers below `folder`. A volume without a size gets this many bytes.
    pub fn new(client: Client, tenant: String, default_size_bytes: u64, folder: &Path) -> DockerVolumes {
        let (mounts, callers) = (folder.join("mounts"), Callers::new(folder.join("callers")));
        let formatting = folder.join("formatting");
        DockerVolumes {
            client,
            tenant,
            default_size_bytes,
            mounts,
            formatting,
            callers,
            locks: Mutex::default(),
        }
    }

    /// Creates a volume with a filesystem. One that exists is no error, unless the options say otherwise.
    pub fn create(&self, name: &str, options: &BTreeMap<String, String>) -> Outcome<()> {
        let wanted = Specification::read(name, options)?;
        let lock = self.lock_of(&wanted.name);
        let _held = held(&lock);
        if let Some(volume) = self.find(&wanted.name)? {
            refuse_other(&volume, &wanted)?;
            // An earlier call may have been cut off before it made the filesystem.
            let is_new = self.is_new(&volume) && self.attachment_of(&volume.name)?.is_none();
            return if is_new { self.format(&volume, wanted.filesystem) } else { Ok(()) };
        }
        let request = wanted.request(self.default_size_bytes);
        let volume: Volume = self.client.post(&of_tenant(Some(&self.tenant), "volumes", None), &request)?;
        self.format(&volume, wanted.filesystem).inspect_err(|_| {
            // Nothing stays of what failed.
            if let Err(error) = self.client.delete(&self.path_of(&volume.name)) {
                tracing::warn!(volume = volume.name, %error, "a volume stays without a filesystem");
            }
        })
    }

    /// Makes the filesystem of a new volume.
    fn format(&self, volume: &Volume, kind: FilesystemKind) -> Outcome<()> {
        std::fs::create_dir_all(&self.formatting)?;
        std::fs::write(self.formatting.join(&volume.name), volume.id.to_string())?;
        let attachment = self.attach(volume)?;
        let prepared = device_of(&attachment).and_then(|device| Ok(filesystem::prepare(device, Some(kind))?));
        let detached = self.detach(&attachment);
        prepared.map(drop).and(detached).inspect(|()| self.formatted(&volume.name))
    }

    /// The filesystem of a volume is made.
    fn formatted(&self, name: &str) {
        // It is not there if the volume was not formatted here.
        let _ = std::fs::remove_file(self.formatting.join(name));
    }

    /// True if a filesystem may be made on a volume: it was never written, or by a call that was cut off as it made
    /// one. The space in use is not known for sure while a drive does not answer.
    fn is_new(&self, volume: &Volume) -> bool {
        let is_empty = volume.used_bytes == Some(0) && volume.health == VolumeHealth::Online;
        let begun = std::fs::read_to_string(self.formatting.join(&volume.name));
        !volume.read_only && (is_empty || begun.is_ok_and(|id| id == volume.id.to_string()))
    }

    /// Mounts a volume for a caller. Returns where.
    pub fn mount(&self, name: &str, caller: &Caller) -> Outcome<PathBuf> {
        let name = name_of(name)?;
        let lock = self.lock_of(&name);
        let _held = held(&lock);
        let volume = self.find(&name)?.ok_or_else(|| CallError::NoVolume(name.clone()))?;
        let place = self.mounts.join(&volume.name);
        let before = self.callers.of(&name)?.into_iter().find(|known| known.id == caller.id);
        // Whoever is recorded before the mount is not forgotten if the plugin ends in between.
        self.callers.put(&name, caller)?;
        match self.mount_at(&volume, &place) {
            Ok(()) => Ok(place),
            Err(error) => {
                match before {
                    Some(before) => self.callers.put(&name, &before)?,
                    None => self.callers.remove(&name, &caller.id)?,
                }
                if let Err(error) = self.settle(&name) {
                    tracing::warn!(volume = name, %error, "what is left of a failed mount stays for now");
                }
                Err(error)
            }
        }
    }

    fn mount_at(&self, volume: &Volume, place: &Path) -> Outcome<()> {
        let attachment = match self.attachment_of(&volume.name)? {
            Some(own) if own.consumer == CONSUMER => own,
            Some(other) => {
                let (name, link, consumer) = (&volume.name, other.link, other.consumer);
                return Err(CallError::Refused(format!(
                    "volume '{name}' is attached as {link} by '{consumer}'; 'weir detach {name}' ends that"
                )));
            }
            None => self.attach(volume)?,
        };
        let device = device_of(&attachment)?;
        let found = match filesystem::prepare(device, None) {
            // A volume that was created by other means has no filesystem yet.
            Err(AttachError::NoFilesystem { .. }) if self.is_new(volume) => {
                filesystem::prepare(device, Some(FilesystemKind::Ext4))?
            }
            Err(AttachError::NoFilesystem { .. }) => {
                let name = &volume.name;
                return Err(CallError::Refused(format!(
                    "volume '{name}' was written and has no filesystem; if its data are not needed, \
                     'weir attach {name} --mount DIR --fs ext4' makes one"
                )));
            }
            found => found?,
        };
        self.formatted(&volume.name);
        filesystem::mount(device, place, &found, MountOptions { is_read_only: volume.read_only })?;
        // One that is not empty stays.
        let _ = std::fs::remove_dir(place.join(LOST_AND_FOUND));
        Ok(())
    }

    /// Ends a caller's mount. The last one unmounts the volume.
    pub fn unmount(&self, name: &str, id: &str) -> Outcome<()> {
        let name = name_of(name)?;
        let lock = self.lock_of(&name);
        let _held = held(&lock);
        let all = self.callers.of(&name)?;
        if let Some(caller) = all.iter().find(|caller| caller.id == id) {
            self.callers.put(&name, &Caller { has_left: true, ..caller.clone() })?;
        }
        let is_last = all.iter().all(|caller| caller.id == id || caller.has_left);
        if is_last {
            self.wait_for_containers(&name)?;
        }
        self.settle(&name)
    }

    /// Waits a moment for the end of the mount namespaces of containers that have ended. If a container runs on,
    /// Docker has only copied a file.
    fn wait_for_containers(&self, name: &str) -> Outcome<()> {
        let until = Instant::now() + CONTAINER_END_TIME_MAX;
        while self.is_used(name)? && Instant::now() < until {
            std::thread::sleep(CONTAINER_END_PAUSE);
        }
        Ok(())
    }

    /// True if a container has the volume.
    fn is_used(&self, name: &str) -> Outcome<bool> {
        let place = self.mounts.join(name);
        let device = filesystem::mounted_at(&place)?;
        Ok(device.is_some_and(|device| mount_table::is_mounted_elsewhere(device, &place)))
    }

    /// Forgets stale callers of a volume, and unmounts it if none is left.
    fn settle(&self, name: &str) -> Outcome<()> {
        let all = self.callers.of(name)?;
        let is_used = self.is_used(name)?;
        let stale = callers::stale(&all, Engine::is_alive, is_used);
        if stale.len() < all.len() {
            return stale.iter().try_for_each(|caller| Ok(self.callers.remove(name, &caller.id)?));
        }
        // Without a daemon, the filesystem would wait for it here.
        let attachment = match self.attachment_of(name) {
            Err(CallError::NoVolume(_)) => None,
            found => found?.filter(|found| found.consumer == CONSUMER),
        };
        let place = self.mounts.join(name);
        filesystem::unmount(&place)?;
        attachment.map_or(Ok(()), |own| self.detach(&own))?;
        // What tells the next plugin of the mount goes last. The folder is not there if it was never mounted.
        let _ = std::fs::remove_dir(&place);
        stale.iter().try_for_each(|caller| Ok(self.callers.remove(name, &caller.id)?))
    }

    /// Settles all volumes: what earlier plugins left, and what Docker has forgotten. A fault is only reported: the
    /// next time meets it again.
    pub fn settle_all(&self) {
        let names = match self.unsettled() {
            Ok(names) => names,
            Err(error) => return tracing::warn!(%error, "what Docker has forgotten stays for now"),
        };
        for name in names {
            let lock = self.lock_of(&name);
            let _held = held(&lock);
            if let Err(error) = self.settle(&name) {
                tracing::warn!(volume = name, %error, "what Docker has forgotten of a volume stays for now");
            }
        }
    }

    /// Names of the volumes that have callers, a mount, or an attachment for Docker.
    fn unsettled(&self) -> Outcome<BTreeSet<String>> {
        let mut names: BTreeSet<String> = self.callers.volumes()?.into_iter().collect();
        let mounted = std::fs::read_dir(&self.mounts).into_iter().flatten().flatten();
        names.extend(mounted.map(|entry| entry.file_name().to_string_lossy().into_owned()));
        let attached: Vec<Attachment> =
            self.client.list("/v1/attachments", &[("tenant", Some(&self.tenant))])?.items;
        names.extend(attached.into_iter().filter(|one| one.consumer == CONSUMER).map(|one| one.volume));
        names.retain(|name| name_of(name).is_ok());
        Ok(names)
    }

    /// One volume; its name is answered as it was asked.
    pub fn get(&self, name: &str) -> Outcome<DockerVolume> {
        let own = name_of(name)?;
        let volume = self.find(&own)?.ok_or(CallError::NoVolume(own))?;
        Ok(DockerVolume { name: name.to_owned(), ..self.shown(&volume)? })
    }

    /// All volumes of the tenant.
    pub fn list(&self) -> Outcome<Vec<DockerVolume>> {
        let path = of_tenant(Some(&self.tenant), "volumes", None);
        self.client.list::<Volume>(&path, &[])?.items.iter().map(|volume| self.shown(volume)).collect()
    }

    /// Where a volume is mounted; empty if it is not.
    pub fn path(&self, name: &str) -> Outcome<String> {
        self.mountpoint_of(&name_of(name)?)
    }

    /// Deletes a volume that nobody has mounted.
    pub fn remove(&self, name: &str) -> Outcome<()> {
        let name = name_of(name)?;
        let lock = self.lock_of(&name);
        let _held = held(&lock);
        self.settle(&name)?;
        if let Some(caller) = self.callers.of(&name)?.first() {
            let id = &caller.id;
            return Err(CallError::Refused(format!("volume '{name}' is in use: it is mounted for {id}")));
        }
        match self.client.delete(&self.path_of(&name)) {
            // An earlier call has done it.
            Err(error) if error.is_not_found() => Ok(()),
            done => Ok(done?),
        }
    }

    fn shown(&self, volume: &Volume) -> Outcome<DockerVolume> {
        let word = |priority: IoPriority| match priority {
            IoPriority::Low => "low",
            IoPriority::Medium => "medium",
            IoPriority::High => "high",
        };
        let group = volume.qos_policy_group.as_ref().or(volume.qos_adaptive_policy_group.as_ref());
        let group = group.map(|bound| bound.name.clone());
        let status = [
            ("size_bytes", Some(volume.size_bytes.to_string())),
            ("used_bytes", volume.used_bytes.map(|bytes| bytes.to_string())),
            ("replicas", Some(volume.replicas.to_string())),
            ("class", volume.class.map(|class| word(class).to_owned())),
            ("policy_group", group),
            ("template", volume.template.clone()),
            ("health", Some(format!("{:?}", volume.health).to_lowercase())),
        ];
        Ok(DockerVolume {
            name: volume.name.clone(),
            mountpoint: self.mountpoint_of(&volume.name)?,
            created_at: volume.created_at.to_string(),
            status: status.into_iter().filter_map(|(key, value)| Some((key, value?))).collect(),
        })
    }

    fn mountpoint_of(&self, name: &str) -> Outcome<String> {
        let place = self.mounts.join(name);
        let is_mounted = filesystem::mounted_at(&place)?.is_some();
        Ok(if is_mounted { place.display().to_string() } else { String::new() })
    }

    fn path_of(&self, name: &str) -> String {
        of_tenant(Some(&self.tenant), "volumes", Some(name))
    }

    fn find(&self, name: &str) -> Outcome<Option<Volume>> {
        match self.client.get(&self.path_of(name), &[]) {
            Err(error) if error.is_not_found() => Ok(None),
            found => Ok(Some(found?)),
        }
    }

    fn attachment_of(&self, name: &str) -> Outcome<Option<Attachment>> {
        match self.client.list::<Attachment>(&format!("{}/attachments", self.path_of(name)), &[]) {
            Err(error) if error.is_not_found() => Err(CallError::NoVolume(name.to_owned())),
            found => Ok(found?.items.into_iter().next()),
        }
    }

    fn attach(&self, volume: &Volume) -> Outcome<Attachment> {
        let path = format!("{}/attachments", self.path_of(&volume.name));
        let request = AttachmentCreate {
            read_only: volume.read_only,
            consumer: Some(CONSUMER.to_owned()),
            ..AttachmentCreate::default()
        };
        Ok(self.client.post(&path, &request)?)
    }

    fn detach(&self, attachment: &Attachment) -> Outcome<()> {
        match self.client.delete(&format!("/v1/attachments/{}", attachment.id)) {
            Err(error) if error.is_not_found() => Ok(()),
            done => Ok(done?),
        }
    }

    fn lock_of(&self, name: &str) -> Arc<Mutex<()>> {
        let mut locks = held(&self.locks);
        // Those that no call holds are not needed.
        locks.retain(|_, lock| Arc::strong_count(lock) > 1);
        locks.entry(name.to_owned()).or_default().clone()
    }
}

fn held<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

fn device_of(attachment: &Attachment) -> Outcome<&Path> {
    if attachment.method == AttachMethod::FuseFile {
        let name = &attachment.volume;
        return Err(CallError::Refused(format!(
            "volume '{name}' is attached as a file; 'weir detach {name}' ends that"
        )));
    }
    let device = attachment.device.as_deref().map(Path::new);
    device.ok_or_else(|| {
        let name = &attachment.volume;
        CallError::Refused(format!("volume '{name}' is being attached or detached; try again"))
    })
}

/// Refuses to take an existing volume for one with other options.
fn refuse_other(volume: &Volume, wanted: &Specification) -> Outcome<()> {
    let differs = [
        ("size", wanted.size_bytes.is_some_and(|size| size != volume.size_bytes)),
        ("repl", wanted.replicas.is_some_and(|replicas| replicas != volume.replicas)),
        ("io_priority", wanted.io_priority.is_some_and(|priority| priority != volume.io_priority)),
        ("template", wanted.template.is_some() && wanted.template != volume.template),
    ];
    let other = differs.into_iter().find_map(|(key, differs)| differs.then_some(key));
    match other.or_else(|| wanted.other_profile_key(volume)) {
        None => Ok(()),
        Some(key) => {
            let name = &volume.name;
            let remedy = "'weir volume modify' changes it";
            Err(CallError::Refused(format!("volume '{name}' exists with another '{key}'; {remedy}")))
        }
    }
}
