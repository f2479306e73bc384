//! The calls of the protocol. Each can be repeated: Docker does so after faults of the transport.
//!
//! What is mounted is read from the kernel each time, and who has it from files: a plugin that starts again knows all
//! that the one before it knew.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_api_types::{Attachment, AttachmentCreate, ErrorCode, IoPriority, Volume};
use weir_attach::AttachError;
use weir_attach::filesystem::{self, FilesystemKind, MountOptions};
use weir_attach::mount_table;
use weir_client::{Client, ClientError, of_tenant};

use crate::callers::{self, Caller, Callers, Engine};
use crate::protocol::DockerVolume;
use crate::specification::{Specification, SpecificationError, name_of};

/// How the plugin names itself as the consumer of an attachment.
const CONSUMER: &str = "docker";
/// A folder of ext4's own in each new filesystem. Programs that want an empty folder, as databases do, refuse it;
/// e2fsck makes it when it is needed.
const LOST_AND_FOUND: &str = "lost+found";

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
    #[error("{}", .0.in_words())]
    Host(#[from] AttachError),
    /// The files of callers cannot be used.
    #[error("the folder of callers cannot be used: {0}")]
    Callers(#[from] io::Error),
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
    callers: Callers,
    /// One lock for each volume that a call is about.
    locks: Mutex<BTreeMap<String, Arc<Mutex<()>>>>,
}

impl DockerVolumes {
    /// The volumes of `tenant`, with mounts and callers below `folder`. A volume without a size gets this many bytes.
    pub fn new(client: Client, tenant: String, default_size_bytes: u64, folder: &Path) -> DockerVolumes {
        let (mounts, callers) = (folder.join("mounts"), Callers::new(folder.join("callers")));
        DockerVolumes { client, tenant, default_size_bytes, mounts, callers, locks: Mutex::default() }
    }

    /// Creates a volume with a filesystem. One that exists is no error, unless the options say otherwise.
    pub fn create(&self, name: &str, options: &BTreeMap<String, String>) -> Outcome<()> {
        let wanted = Specification::read(name, options)?;
        let lock = self.lock_of(&wanted.name);
        let _held = held(&lock);
        if let Some(volume) = self.find(&wanted.name)? {
            return refuse_other(&volume, &wanted);
        }
        let request = wanted.request(self.default_size_bytes);
        let volume: Volume = self.client.post(&of_tenant(Some(&self.tenant), "volumes", None), &request)?;
        let formatted = self.format(&volume, wanted.filesystem);
        if formatted.is_err() {
            // Nothing stays of what failed.
            self.client.delete(&self.path_of(&volume.name))?;
        }
        formatted
    }

    /// Makes the filesystem of a new volume.
    fn format(&self, volume: &Volume, kind: FilesystemKind) -> Outcome<()> {
        let attachment = self.attach(volume)?;
        let prepared = device_of(&attachment).and_then(|device| Ok(filesystem::prepare(device, Some(kind))?));
        self.detach(&attachment)?;
        prepared.map(drop)
    }

    /// Mounts a volume for a caller. Returns where.
    pub fn mount(&self, name: &str, caller: &Caller) -> Outcome<PathBuf> {
        let name = name_of(name)?;
        let lock = self.lock_of(&name);
        let _held = held(&lock);
        let volume = self.find(&name)?.ok_or_else(|| CallError::NoVolume(name.clone()))?;
        let place = self.mounts.join(&volume.name);
        // Whoever is recorded before the mount is not forgotten if the plugin ends in between.
        self.callers.add(&name, caller)?;
        let mounted = self.mount_at(&volume, &place);
        if mounted.is_err() {
            self.callers.remove(&name, &caller.id)?;
            self.settle(&name)?;
        }
        mounted.map(|()| place)
    }

    fn mount_at(&self, volume: &Volume, place: &Path) -> Outcome<()> {
        let attachment = match self.attachment_of(&volume.name)? {
            Some(own) if own.consumer == CONSUMER => own,
            Some(other) => {
                let (link, consumer) = (other.link, other.consumer);
                return Err(CallError::Refused(format!("it is attached as {link} by '{consumer}'")));
            }
            None if volume.connections > 0 => {
                let count = volume.connections;
                return Err(CallError::Refused(format!("{count} NBD connections use it")));
            }
            None => self.attach(volume)?,
        };
        let device = device_of(&attachment)?;
        // A volume that was created by other means has no filesystem yet. A read-only one cannot get any.
        let kind =
            (!volume.read_only && filesystem::probe(device)?.is_none()).then_some(FilesystemKind::Ext4);
        let found = filesystem::prepare(device, kind)?;
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
        self.callers.remove(&name, id)?;
        self.settle(&name)
    }

    /// Forgets stale callers of a volume, and unmounts it if none is left.
    fn settle(&self, name: &str) -> Outcome<()> {
        let place = self.mounts.join(name);
        let device = filesystem::mounted_at(&place)?;
        let is_used = device.is_some_and(|device| mount_table::is_mounted_elsewhere(device, &place));
        let all = self.callers.of(name)?;
        let stale = callers::stale(&all, Engine::is_alive, is_used);
        for caller in &stale {
            tracing::info!(volume = name, caller = caller.id, "a caller that has ended is forgotten");
            self.callers.remove(name, &caller.id)?;
        }
        if stale.len() < all.len() {
            return Ok(());
        }
        filesystem::unmount(&place)?;
        // It is not there if the volume was never mounted.
        let _ = std::fs::remove_dir(&place);
        match self.attachment_of(name) {
            Ok(Some(own)) if own.consumer == CONSUMER => self.detach(&own),
            Err(CallError::NoVolume(_)) | Ok(_) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Settles all volumes, as the first act of a plugin. A fault is only reported: it meets the next call again.
    pub fn settle_all(&self) {
        let mounted = std::fs::read_dir(&self.mounts).into_iter().flatten().flatten();
        let mounted = mounted.map(|entry| entry.file_name().to_string_lossy().into_owned());
        let mut names: Vec<String> = self.callers.volumes().unwrap_or_default();
        names.extend(mounted);
        names.sort();
        names.dedup();
        for name in names {
            let lock = self.lock_of(&name);
            let _held = held(&lock);
            if let Err(error) = self.settle(&name) {
                tracing::warn!(volume = name, %error, "what an earlier plugin left stays as it is");
            }
        }
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
            Err(error) if is_absent(&error) => Ok(()),
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
            Err(error) if is_absent(&error) => Ok(None),
            found => Ok(Some(found?)),
        }
    }

    fn attachment_of(&self, name: &str) -> Outcome<Option<Attachment>> {
        match self.client.list::<Attachment>(&format!("{}/attachments", self.path_of(name)), &[]) {
            Err(error) if is_absent(&error) => Err(CallError::NoVolume(name.to_owned())),
            found => Ok(found?.items.into_iter().next()),
        }
    }

    fn attach(&self, volume: &Volume) -> Outcome<Attachment> {
        let path = format!("{}/attachments", self.path_of(&volume.name));
        let request = AttachmentCreate { read_only: volume.read_only, consumer: Some(CONSUMER.to_owned()) };
        Ok(self.client.post(&path, &request)?)
    }

    fn detach(&self, attachment: &Attachment) -> Outcome<()> {
        match self.client.delete(&format!("/v1/attachments/{}", attachment.id)) {
            Err(error) if is_absent(&error) => Ok(()),
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

fn is_absent(error: &ClientError) -> bool {
    error.problem().is_some_and(|problem| problem.code == ErrorCode::NotFound)
}

fn device_of(attachment: &Attachment) -> Outcome<&Path> {
    let device = attachment.device.as_deref().map(Path::new);
    device.ok_or_else(|| CallError::Refused("its block device is being made".to_owned()))
}

/// Refuses to take an existing volume for one with other options.
fn refuse_other(volume: &Volume, wanted: &Specification) -> Outcome<()> {
    let differs = [
        ("size", wanted.size_bytes.is_some_and(|size| size != volume.size_bytes)),
        ("repl", wanted.replicas.is_some_and(|replicas| replicas != volume.replicas)),
        ("io_priority", wanted.io_priority.is_some_and(|priority| priority != volume.io_priority)),
        ("template", wanted.template.is_some() && wanted.template != volume.template),
    ];
    match differs.iter().find(|(_, differs)| *differs) {
        None => Ok(()),
        Some((key, _)) => {
            let name = &volume.name;
            Err(CallError::Refused(format!(
                "volume '{name}' exists with another '{key}'; 'weir volume modify' changes it"
            )))
        }
    }
}
