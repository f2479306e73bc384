//! Attachments: volumes that are devices or files of this host.
//!
//! The record of an attachment comes first and goes last. In between are the mount, the engine that serves it, the
//! device and the link. So a daemon that is killed in between leaves a record that tells the next one what to
//! take over or to clear. This module does not know how the host makes any of them.

mod host;
mod offer;
#[cfg(test)]
mod tests;
mod ublk;

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use uuid::Uuid;
use weir_attach::in_words;
use weir_engine_interface::{AttachedClient, ServedFile};
use weir_types::control_bounds::ATTACHMENTS_MAX;
use weir_types::{AttachmentId, Name, VolumeId};

use crate::catalogue::{Revision, Transaction};
use crate::core::Core;
use crate::core::locks::Change;
use crate::error::{ControlError, Outcome};
use crate::health::{FailedExtents, VolumeCondition, health};
use crate::model::Versioned;
use crate::records::{AttachMethod, AttachmentRecord, VolumeRecord, VolumeState, keys};
use crate::serving::Serving;

pub use host::{Hold, Host, KernelHost};
pub use offer::{DeviceTerms, HostError};

/// Why a volume is attached in a way that was asked for.
const ASKED_FOR: &str = "asked for";

/// Block devices that an attachment tries at most, one after another, while other programs take them.
const DEVICE_ATTEMPTS_MAX: usize = 16;

/// Request for an attachment.
#[derive(Clone, Debug)]
pub struct AttachVolume {
    /// How the volume becomes a device; if `None`, in the best way that the host has.
    pub method: Option<AttachMethod>,
    /// Whether the device refuses writes.
    pub is_read_only: bool,
    /// Who asks, in the consumer's own words.
    pub consumer: String,
}

/// An attachment as the API shows it.
#[derive(Clone, Debug)]
pub struct AttachmentView {
    /// Its record.
    pub record: AttachmentRecord,
    /// Tenant of the volume.
    pub tenant: Name,
    /// Name of the volume.
    pub volume: Name,
}

/// Attaches and detaches volumes.
pub struct Attachments {
    core: Arc<Core>,
    serving: Arc<Serving>,
    host: Box<dyn Host>,
    /// Folder of the links to devices.
    links: PathBuf,
    /// Attachments whose files this daemon serves. The kernel is asked about no other: it would wait.
    served: Mutex<BTreeSet<AttachmentId>>,
    /// Held while a block device is chosen and made.
    choosing: Mutex<()>,
}

impl Attachments {
    pub(crate) fn new(
        core: Arc<Core>,
        serving: Arc<Serving>,
        host: Box<dyn Host>,
        links: PathBuf,
    ) -> Attachments {
        Attachments { core, serving, host, links, served: Mutex::default(), choosing: Mutex::default() }
    }

    fn served(&self) -> MutexGuard<'_, BTreeSet<AttachmentId>> {
        self.served.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All attachments, in order of their identities.
    pub fn attachments(&self) -> Vec<AttachmentView> {
        let model = self.core.model();
        let views = model.attachments.values().filter_map(|attachment| {
            let volume = &model.volumes.get(&attachment.record.volume)?.record;
            Some(view(&attachment.record, volume))
        });
        views.collect()
    }

    /// One attachment.
    ///
    /// # Errors
    /// Not found if there is none.
    pub fn attachment(&self, id: AttachmentId) -> Outcome<AttachmentView> {
        let model = self.core.model();
        let found = model.attachments.get(&id).and_then(|attachment| {
            let volume = &model.volumes.get(&attachment.record.volume)?.record;
            Some(view(&attachment.record, volume))
        });
        found.ok_or_else(|| ControlError::not_found(format!("there is no attachment '{id}'")))
    }

    /// The attachments of a volume.
    ///
    /// # Errors
    /// Not found if there is no such volume.
    pub fn attachments_of(&self, tenant: Option<&Name>, name: &Name) -> Outcome<Vec<AttachmentView>> {
        let model = self.core.model();
        let volume = &model.volume(tenant, name)?.record;
        Ok(model.attachments_of(volume.id).map(|attachment| view(&attachment.record, volume)).collect())
    }

    /// Makes a volume a block device or a file of this host.
    ///
    /// # Errors
    /// Refused if the volume is attached, if NBD clients have it and the device would be writable, or if the host has
    /// no way to make a device. Full if there are [`ATTACHMENTS_MAX`] attachments. Nothing stays on the host then.
    pub fn attach(
        &self,
        tenant: Option<&Name>,
        name: &Name,
        request: AttachVolume,
    ) -> Outcome<AttachmentView> {
        if !request.is_read_only {
            let volume = self.core.model().volume(tenant, name)?.record.clone();
            // The connection of an attachment is no NBD client's.
            self.core.model().refuse_attached(&volume)?;
            // Two writers that do not know each other would destroy a filesystem. Clients that leave get a moment.
            self.serving.refuse_attached(&volume)?;
        }
        let mut change = self.core.begin_change_of_volume(tenant, name)?;
        let volume = self.core.model().volume(tenant, name)?.record.clone();
        self.refuse_attach(&volume, &request)?;
        let mut record = self.begin(&volume, request)?;
        match change.beside(|| self.make(&mut record, &volume)) {
            Ok(()) => Ok(view(&record.record, &volume)),
            Err(error) => {
                change.beside(|| self.clear(&record.record));
                self.end(&record)?;
                Err(error)
            }
        }
    }

    fn refuse_attach(&self, volume: &VolumeRecord, request: &AttachVolume) -> Outcome<()> {
        let model = self.core.model();
        model.refuse_attached(volume)?;
        if !request.is_read_only {
            self.serving.refuse_attached_now(volume)?;
        }
        // A missing drive is no obstacle while each extent has another replica.
        if health(&model, volume, &FailedExtents::new()).condition == VolumeCondition::Offline {
            self.core.refuse_missing(volume)?;
        }
        if volume.state != VolumeState::Online {
            return Err(ControlError::refused(format!("{} is being deleted", volume.title())));
        }
        if volume.is_read_only && !request.is_read_only {
            return Err(ControlError::refused(format!(
                "{} is read-only; it can be attached with --read-only",
                volume.title()
            )));
        }
        let link = self.link_of(volume);
        if let Some(other) = model.attachments.values().find(|other| other.record.link == link) {
            let other = model.volumes.get(&other.record.volume).map(|other| other.record.title());
            return Err(ControlError::refused(format!(
                "{} leads to {}, which had this name; detach that first",
                link.display(),
                other.unwrap_or_default()
            )));
        }
        if model.attachments.len() >= ATTACHMENTS_MAX {
            return Err(ControlError::full(format!(
                "there are {ATTACHMENTS_MAX} attachments already, which is the most"
            )));
        }
        Ok(())
    }

    fn link_of(&self, volume: &VolumeRecord) -> PathBuf {
        self.links.join(volume.tenant.to_string()).join(volume.name.to_string())
    }

    /// Records an attachment before anything of it exists.
    fn begin(&self, volume: &VolumeRecord, request: AttachVolume) -> Outcome<Versioned<AttachmentRecord>> {
        let asked = request.method.map(|method| (method, ASKED_FOR.to_owned()));
        let (method, method_reason) = asked.unwrap_or_else(|| self.host.best_method());
        let record = AttachmentRecord {
            id: AttachmentId(Uuid::new_v4()),
            volume: volume.id,
            node: self.core.node,
            method,
            method_reason,
            is_read_only: request.is_read_only,
            consumer: request.consumer,
            device: None,
            file: None,
            is_made: false,
            boot: self.host.boot().map_err(|error| host_error(volume, &error))?,
            link: self.link_of(volume),
            created_at: Timestamp::now(),
        };
        self.put(record, Revision::ABSENT)
    }

    fn put(&self, record: AttachmentRecord, before: Revision) -> Outcome<Versioned<AttachmentRecord>> {
        let key = keys::attachment(record.id);
        let said = Transaction::default().compare(&key, before).put(&key, &record)?;
        let revision = self.core.catalogue.commit(said)?;
        let versioned = Versioned { record, revision };
        self.core.update(|model| model.attachments.insert(versioned.record.id, versioned.clone()));
        Ok(versioned)
    }

    /// Records a change of an attachment.
    fn change(
        &self,
        attachment: &mut Versioned<AttachmentRecord>,
        change: impl FnOnce(&mut AttachmentRecord),
    ) -> Outcome<()> {
        let mut record = attachment.record.clone();
        change(&mut record);
        *attachment = self.put(record, attachment.revision)?;
        Ok(())
    }

    /// Removes the record of an attachment of which nothing is left.
    fn end(&self, attachment: &Versioned<AttachmentRecord>) -> Outcome<()> {
        let key = keys::attachment(attachment.record.id);
        let said = Transaction::freeing_space().compare(&key, attachment.revision).delete(&key);
        self.core.catalogue.commit(said)?;
        self.core.update(|model| model.attachments.remove(&attachment.record.id));
        Ok(())
    }

    /// Lets the engine serve the kernel, and makes the device and its link.
    fn make(&self, attachment: &mut Versioned<AttachmentRecord>, volume: &VolumeRecord) -> Outcome<()> {
        let failed = |error: HostError| host_error(volume, &error);
        let device = match attachment.record.method {
            AttachMethod::Fuse => {
                let file = self.make_mount(&attachment.record, volume)?;
                self.make_device(attachment, file, failed)?
            }
            AttachMethod::FuseFile => {
                let file = self.make_mount(&attachment.record, volume)?;
                self.make_file(attachment, file)?
            }
            AttachMethod::Nbd | AttachMethod::Ublk => self.make_served_device(attachment, volume)?,
        };
        self.hide_below_device(&attachment.record).map_err(failed)?;
        self.host.link(&attachment.record.link, &device).map_err(failed)?;
        self.change(attachment, |record| record.is_made = true)
    }

    /// Makes the mount, which the engine serves. Returns the identity of its file.
    fn make_mount(&self, attachment: &AttachmentRecord, volume: &VolumeRecord) -> Outcome<String> {
        let failed = |error: HostError| host_error(volume, &error);
        let mount = self.host.mount(attachment.id, &volume.export_name()).map_err(failed)?;
        self.serve_mount(attachment, volume, mount, false)?;
        self.host.identity(attachment.id).map_err(failed)
    }

    /// Makes a device that the kernel hands to a server. The host finds it by the attachment, so it is recorded
    /// afterwards.
    fn make_served_device(
        &self,
        attachment: &mut Versioned<AttachmentRecord>,
        volume: &VolumeRecord,
    ) -> Outcome<PathBuf> {
        let failed = |error: HostError| host_error(volume, &error);
        let AttachmentRecord { id, method, .. } = attachment.record;
        let offer = self.host.offer(id, method, terms(&attachment.record, volume)).map_err(failed)?;
        self.serve(id, volume.id, offer.client)?;
        let device = (offer.complete)().map_err(failed)?;
        let file = self.host.file_of(&device).map_err(failed)?;
        self.change(attachment, |record| (record.device, record.file) = (Some(device.clone()), file))?;
        Ok(device)
    }

    /// Makes the device. Each one is recorded before it is tried: a daemon that is killed then leaves none that
    /// nobody knows.
    fn make_device(
        &self,
        attachment: &mut Versioned<AttachmentRecord>,
        file: String,
        failed: impl Fn(HostError) -> ControlError,
    ) -> Outcome<PathBuf> {
        // Attachments that are made at the same time would all choose the same device.
        let _choosing = self.choosing.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..DEVICE_ATTEMPTS_MAX {
            let device = self.host.free_device().map_err(&failed)?;
            self.change(attachment, |record| {
                record.device = Some(device.clone());
                record.file = Some(file.clone());
            })?;
            let (id, is_read_only) = (attachment.record.id, attachment.record.is_read_only);
            if self.host.make_device(id, &device, is_read_only).map_err(&failed)? {
                return Ok(device);
            }
        }
        Err(failed("other programs got every block device first".into()))
    }

    /// Records the file that takes the place of a device.
    fn make_file(&self, attachment: &mut Versioned<AttachmentRecord>, file: String) -> Outcome<PathBuf> {
        let place = self.host.place(attachment.record.id);
        self.change(attachment, |record| {
            record.device = Some(place.clone());
            record.file = Some(file);
        })?;
        Ok(place)
    }

    /// A mount is hidden below its block device. A file stays in sight for its users.
    fn hide_below_device(&self, attachment: &AttachmentRecord) -> Result<(), HostError> {
        match attachment.method {
            AttachMethod::Fuse => self.host.hide(attachment.id),
            AttachMethod::FuseFile | AttachMethod::Nbd | AttachMethod::Ublk => Ok(()),
        }
    }

    fn serve_mount(
        &self,
        attachment: &AttachmentRecord,
        volume: &VolumeRecord,
        device: OwnedFd,
        is_taken_over: bool,
    ) -> Outcome<()> {
        let is_read_only = attachment.is_read_only;
        let file = ServedFile { device, size_bytes: volume.size_bytes, is_read_only, is_taken_over };
        self.serve(attachment.id, volume.id, AttachedClient::File(file))
    }

    fn serve(&self, attachment: AttachmentId, volume: VolumeId, client: AttachedClient) -> Outcome<()> {
        self.core.engine.serve_attached(volume, client)?;
        self.served().insert(attachment);
        Ok(())
    }

    /// Ends an attachment that nobody uses.
    ///
    /// # Errors
    /// Not found if there is none. Refused if its device is in use; the message says where it is mounted.
    pub fn detach(&self, id: AttachmentId) -> Outcome<()> {
        let seen = self.attachment(id)?;
        let mut change = self.core.begin_volume_change(&[seen.record.volume])?;
        let attachment = self.core.model().attachments.get(&id).cloned();
        let mut attachment =
            attachment.ok_or_else(|| ControlError::not_found(format!("there is no attachment '{id}'")))?;
        let was_made = attachment.record.is_made;
        // From now on the device may become another program's at any time.
        self.change(&mut attachment, |record| record.is_made = false)?;
        if let Err(error) = change.beside(|| self.unmake(&attachment.record)) {
            self.stays(attachment, was_made)?;
            let volume = format!("{}/{}", seen.tenant, seen.volume);
            let message = format!("volume '{volume}' cannot be detached: {}", in_words(&*error));
            return Err(ControlError::refused(message));
        }
        self.end(&attachment)
    }

    /// An attachment could not be ended. Its device is its own as before, unless it goes with its last user: then, it
    /// may become another program's.
    fn stays(&self, mut attachment: Versioned<AttachmentRecord>, was_made: bool) -> Outcome<()> {
        let Some(device) = attachment.record.device.clone() else { return Ok(()) };
        if self.host.is_leaving(&device) {
            self.host.unlink(&attachment.record.link, &device);
        } else if was_made && self.has_device(&attachment.record).unwrap_or(true) {
            self.change(&mut attachment, |record| record.is_made = true)?;
        }
        Ok(())
    }

    fn unmake(&self, attachment: &AttachmentRecord) -> Result<(), HostError> {
        let is_served = self.served().contains(&attachment.id);
        if !is_served && !self.take_over(attachment)? {
            self.clear(attachment);
            return Ok(());
        }
        if let (Some(device), Some(file)) = (&attachment.device, &attachment.file) {
            if self.has_device(attachment)? {
                self.host.remove_device(device, file)?;
            }
            self.host.unlink(&attachment.link, device);
        }
        self.host.hide(attachment.id)?;
        self.host.let_go(attachment.id)?;
        self.end_service(attachment);
        Ok(())
    }

    /// True if the device of an attachment, which is served, is still on its file. Another user may have got the
    /// device since.
    fn has_device(&self, attachment: &AttachmentRecord) -> Result<bool, HostError> {
        let (Some(device), Some(file)) = (&attachment.device, &attachment.file) else { return Ok(false) };
        Ok(self.host.file_of(device)?.as_ref() == Some(file))
    }

    /// Ends whatever is left of an attachment.
    fn clear(&self, attachment: &AttachmentRecord) {
        if let Some(device) = &attachment.device {
            self.host.unlink(&attachment.link, device);
        }
        let device = attachment.device.as_deref().zip(attachment.file.as_deref());
        let device = device.filter(|_| self.is_of_this_boot(attachment));
        match attachment.method {
            // What serves it holds the mount too.
            AttachMethod::Fuse | AttachMethod::FuseFile => {
                self.end_service(attachment);
                self.host.clear(attachment.id, device);
            }
            // The kernel waits for the requests of a device before it ends it.
            AttachMethod::Nbd | AttachMethod::Ublk => {
                self.host.clear(attachment.id, device);
                self.end_service(attachment);
            }
        }
    }

    fn is_of_this_boot(&self, attachment: &AttachmentRecord) -> bool {
        self.host.boot().is_ok_and(|boot| boot == attachment.boot)
    }

    fn end_service(&self, attachment: &AttachmentRecord) {
        self.served().remove(&attachment.id);
        // A volume that is not open serves no file.
        let _ = self.core.engine.end_attached(attachment.volume);
    }

    /// Freezes the filesystems of this host that are mounted from these volumes; `None` if there are none.
    ///
    /// # Errors
    /// Refused if one of them cannot be frozen.
    pub(crate) fn freeze(&self, volumes: &[VolumeId]) -> Outcome<Option<Box<dyn Hold>>> {
        let served = self.served().clone();
        let devices: Vec<PathBuf> = {
            let model = self.core.model();
            let attached = volumes.iter().flat_map(|volume| model.attachments_of(*volume));
            let attached = attached.filter(|attachment| served.contains(&attachment.record.id));
            attached.filter_map(|attachment| attachment.record.device.clone()).collect()
        };
        self.host.freeze(&devices).map_err(|error| {
            ControlError::refused(format!("a filesystem cannot be frozen: {}", in_words(&*error)))
        })
    }

    /// Lets the devices of a volume that has grown be as large as it is. The volume is larger already, so a
    /// failure is only reported.
    pub(crate) fn grown(&self, volume: &VolumeRecord) {
        let model = self.core.model();
        let served = self.served().clone();
        for attachment in model.attachments_of(volume.id).filter(|one| served.contains(&one.record.id)) {
            let device = attachment.record.device.as_deref();
            let file = attachment.record.file.as_deref();
            let resized = device
                .zip(file)
                .map_or(Ok(()), |(device, file)| self.host.resize_device(device, file, volume.size_bytes));
            if let Err(error) = resized {
                let title = volume.title();
                tracing::warn!(error = in_words(&*error), "the device of {title} keeps its old size");
            }
        }
    }

    /// Takes over the attachments of an earlier daemon, and clears what is left of those that are gone.
    pub(crate) fn take_over_all(&self) {
        let mut change = self.core.begin_change();
        let all: Vec<_> = self.core.model().attachments.values().cloned().collect();
        all.iter().for_each(|attachment| self.take_over_or_forget(&mut change, attachment));
    }

    /// Takes over the attachments of a volume that could not be opened before.
    pub(crate) fn take_over_of(&self, change: &mut Change<'_>, volume: VolumeId) {
        let all: Vec<_> = self.core.model().attachments_of(volume).cloned().collect();
        let waiting = all.iter().filter(|attachment| !self.served().contains(&attachment.record.id));
        waiting.for_each(|attachment| self.take_over_or_forget(change, attachment));
    }

    fn take_over_or_forget(&self, change: &mut Change<'_>, attachment: &Versioned<AttachmentRecord>) {
        if attachment.record.node != self.core.node {
            return;
        }
        match change.beside(|| self.take_over(&attachment.record)) {
            Ok(true) => self.taken_over(attachment.clone()),
            Ok(false) => self.forget(change, attachment),
            Err(error) => {
                let link = attachment.record.link.display().to_string();
                tracing::error!(%error, link, "an attachment cannot be served: its I/O waits");
            }
        }
    }

    fn taken_over(&self, mut attachment: Versioned<AttachmentRecord>) {
        let id = attachment.record.id;
        tracing::info!(attachment = %id, "taken over");
        let Some(device) = attachment.record.device.clone() else { return };
        // The earlier daemon may have been killed before it had recorded this, or as it ended the attachment.
        let is_made = !self.host.is_leaving(&device);
        if !is_made {
            self.host.unlink(&attachment.record.link, &device);
        }
        let is_noted = attachment.record.is_made == is_made;
        let noted = is_noted || self.change(&mut attachment, |record| record.is_made = is_made).is_ok();
        if !noted {
            tracing::error!(attachment = %id, "the catalogue does not take the state of the attachment");
        }
    }

    /// True if the attachment is served again. False if its mount is gone, or its device was never made.
    fn take_over(&self, attachment: &AttachmentRecord) -> Outcome<bool> {
        if !self.is_of_this_boot(attachment) {
            return Ok(false);
        }
        let Some(device) = &attachment.device else { return Ok(false) };
        let volume = self.core.model().volumes.get(&attachment.volume).map(|volume| volume.record.clone());
        let Some(volume) = volume else { return Ok(false) };
        let is_served = match attachment.method {
            AttachMethod::Fuse | AttachMethod::FuseFile => self.serve_again(attachment, &volume)?,
            AttachMethod::Nbd | AttachMethod::Ublk => self.serve_device_again(attachment, &volume, device)?,
        };
        if !is_served {
            return Ok(false);
        }
        let failed = |error: HostError| host_error(&volume, &error);
        // The earlier daemon may have been killed while it made these.
        self.hide_below_device(attachment).map_err(failed)?;
        if !self.host.is_leaving(device) {
            self.host.link(&attachment.link, device).map_err(failed)?;
        }
        Ok(true)
    }

    /// Serves the mount of an attachment again. False if it is gone, or its device.
    fn serve_again(&self, attachment: &AttachmentRecord, volume: &VolumeRecord) -> Outcome<bool> {
        let failed = |error: HostError| host_error(volume, &error);
        let Some(mount) = self.host.take_over(attachment.id).map_err(failed)? else { return Ok(false) };
        // The kernel asks the file for its identity, so the file is served before that.
        self.serve_mount(attachment, volume, mount, true)?;
        let (Some(device), Some(file)) = (&attachment.device, &attachment.file) else { return Ok(false) };
        if !self.has_device(attachment).map_err(failed)? {
            return Ok(false);
        }
        // The volume may have grown without its device.
        self.host.resize_device(device, file, volume.size_bytes).map_err(failed)?;
        Ok(true)
    }

    /// Serves the device of an attachment again. False if it is gone, or was never used.
    fn serve_device_again(
        &self,
        attachment: &AttachmentRecord,
        volume: &VolumeRecord,
        device: &Path,
    ) -> Outcome<bool> {
        let failed = |error: HostError| host_error(volume, &error);
        if !self.has_device(attachment).map_err(failed)? {
            return Ok(false);
        }
        // Nothing is asked of the kernel that would have to be taken back.
        if !self.core.model().open.contains_key(&volume.id) {
            return Err(ControlError::refused(format!(
                "{} is not open; its block device is served once it is",
                volume.title()
            )));
        }
        let terms = terms(attachment, volume);
        let Some(offer) = self.host.offer_again(attachment.id, device, terms).map_err(failed)? else {
            return Ok(false);
        };
        self.serve(attachment.id, volume.id, offer.client)?;
        (offer.complete)().map_err(failed)?;
        Ok(true)
    }

    fn forget(&self, change: &mut Change<'_>, attachment: &Versioned<AttachmentRecord>) {
        let AttachmentRecord { id, link, .. } = &attachment.record;
        tracing::warn!(attachment = %id, link = %link.display(), "an attachment is gone, and what is left of it is cleared");
        change.beside(|| self.clear(&attachment.record));
        if let Err(error) = self.end(attachment) {
            tracing::error!(attachment = %id, %error, "the record of an attachment that is gone stays");
        }
    }
}

fn terms(attachment: &AttachmentRecord, volume: &VolumeRecord) -> DeviceTerms {
    DeviceTerms { size_bytes: volume.size_bytes, is_read_only: attachment.is_read_only }
}

fn view(record: &AttachmentRecord, volume: &VolumeRecord) -> AttachmentView {
    AttachmentView { record: record.clone(), tenant: volume.tenant.clone(), volume: volume.name.clone() }
}

fn host_error(volume: &VolumeRecord, error: &HostError) -> ControlError {
    ControlError::refused(format!("{} cannot be attached: {}", volume.title(), in_words(&**error)))
}
