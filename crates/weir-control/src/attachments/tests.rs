//! Tests on a host that makes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard};

use super::offer::Offer;
use super::*;
use crate::testing::*;
use crate::{AddDrive, Control, CreateVolume, ErrorKind};
use weir_types::Class;

/// What a host has, and what it refuses to do next.
#[derive(Default)]
struct Made {
    mounts: BTreeSet<AttachmentId>,
    /// Mounts that are in the mount table.
    visible: BTreeSet<AttachmentId>,
    devices: BTreeMap<AttachmentId, PathBuf>,
    /// Devices of other programs.
    others: BTreeSet<PathBuf>,
    /// The device that another program gets first.
    taken_first: Option<PathBuf>,
    /// Devices that go with their last user.
    leaving: BTreeSet<PathBuf>,
    links: BTreeSet<PathBuf>,
    /// Devices whose filesystems are frozen.
    frozen: BTreeSet<PathBuf>,
    /// They are thawed before the snapshot has begun.
    is_thawed_early: bool,
    /// Devices that have a server.
    with_server: BTreeSet<AttachmentId>,
    /// Devices that got another server.
    served_again: Vec<AttachmentId>,
    /// How often the host has booted.
    boots: u32,
    refused: Option<&'static str>,
}

impl Made {
    fn is_free(&self, number: usize) -> bool {
        let device = device(number);
        !self.devices.values().any(|other| *other == device) && !self.others.contains(&device)
    }
}

#[derive(Clone, Default)]
struct FakeHost(Arc<Mutex<Made>>);

impl FakeHost {
    fn made(&self) -> MutexGuard<'_, Made> {
        self.0.lock().unwrap()
    }

    fn refuse(&self, what: &'static str) {
        self.made().refused = Some(what);
    }

    fn check(&self, what: &'static str) -> Result<(), HostError> {
        match self.made().refused == Some(what) {
            true => Err(format!("no {what} today").into()),
            false => Ok(()),
        }
    }

    fn is_bare(&self) -> bool {
        let made = self.made();
        made.mounts.is_empty() && made.visible.is_empty() && made.devices.is_empty() && made.links.is_empty()
    }
}

fn some_file() -> OwnedFd {
    std::fs::File::open("/dev/null").unwrap().into()
}

struct FakeHold(FakeHost);

impl Hold for FakeHold {
    fn thaw(self: Box<Self>) -> bool {
        !self.0.made().is_thawed_early
    }
}

impl Drop for FakeHold {
    fn drop(&mut self) {
        self.0.made().frozen.clear();
    }
}

fn some_client() -> AttachedClient {
    let (socket, size_bytes, is_read_only) = (some_file(), 8 << 20, false);
    AttachedClient::Socket(weir_engine_interface::ServedSocket { socket, size_bytes, is_read_only })
}

impl Host for FakeHost {
    fn boot(&self) -> Result<String, HostError> {
        Ok(format!("boot {}", self.made().boots))
    }

    fn best_method(&self) -> (AttachMethod, String) {
        (AttachMethod::Ublk, "it is the best".to_owned())
    }

    fn is_leaving(&self, device: &std::path::Path) -> bool {
        self.made().leaving.contains(device)
    }

    fn mount(&self, attachment: AttachmentId, _name: &str) -> Result<OwnedFd, HostError> {
        self.check("mount")?;
        let mut made = self.made();
        made.mounts.insert(attachment);
        made.visible.insert(attachment);
        Ok(some_file())
    }

    fn take_over(&self, attachment: AttachmentId) -> Result<Option<OwnedFd>, HostError> {
        Ok(self.made().mounts.contains(&attachment).then(some_file))
    }

    fn place(&self, attachment: AttachmentId) -> PathBuf {
        PathBuf::from(format!("/state/{attachment}"))
    }

    fn identity(&self, attachment: AttachmentId) -> Result<String, HostError> {
        self.check("identity")?;
        Ok(attachment.to_string())
    }

    fn free_device(&self) -> Result<PathBuf, HostError> {
        self.check("device")?;
        let made = self.made();
        let number = (0..).find(|number| made.is_free(*number)).expect("there are enough numbers");
        Ok(device(number))
    }

    fn make_device(
        &self,
        attachment: AttachmentId,
        device: &std::path::Path,
        _is_read_only: bool,
    ) -> Result<bool, HostError> {
        let mut made = self.made();
        if made.taken_first.take().is_some_and(|taken| taken == device) {
            made.others.insert(device.to_owned());
            return Ok(false);
        }
        made.devices.insert(attachment, device.to_owned());
        Ok(true)
    }

    fn hide(&self, attachment: AttachmentId) -> Result<(), HostError> {
        self.check("hiding")?;
        self.made().visible.remove(&attachment);
        Ok(())
    }

    fn file_of(&self, device: &std::path::Path) -> Result<Option<String>, HostError> {
        self.check("identity")?;
        let made = self.made();
        let on_device =
            made.devices.iter().find(|(_, found)| *found == device).map(|(attachment, _)| attachment);
        let in_sight = made.visible.iter().find(|attachment| self.place(**attachment) == device);
        Ok(on_device.or(in_sight).map(|attachment| attachment.to_string()))
    }

    fn resize_device(
        &self,
        _device: &std::path::Path,
        _file: &str,
        _size_bytes: u64,
    ) -> Result<(), HostError> {
        self.check("resize")
    }

    fn offer(
        &self,
        attachment: AttachmentId,
        _method: AttachMethod,
        _terms: DeviceTerms,
    ) -> Result<Offer, HostError> {
        self.check("offer")?;
        let host = self.clone();
        let complete = move || {
            let device = host.free_device()?;
            host.made().devices.insert(attachment, device.clone());
            host.made().with_server.insert(attachment);
            Ok(device)
        };
        Ok(Offer { client: some_client(), complete: Box::new(complete) })
    }

    fn offer_again(
        &self,
        attachment: AttachmentId,
        device: &std::path::Path,
        _terms: DeviceTerms,
    ) -> Result<Option<Offer>, HostError> {
        self.check("offer")?;
        let (host, device) = (self.clone(), device.to_owned());
        let complete = move || {
            host.made().served_again.push(attachment);
            Ok(device)
        };
        Ok(Some(Offer { client: some_client(), complete: Box::new(complete) }))
    }

    fn link(&self, link: &std::path::Path, _device: &std::path::Path) -> Result<(), HostError> {
        self.check("link")?;
        self.made().links.insert(link.to_owned());
        Ok(())
    }

    fn unlink(&self, link: &std::path::Path, _device: &std::path::Path) {
        self.made().links.remove(link);
    }

    fn freeze(&self, devices: &[PathBuf]) -> Result<Option<Box<dyn Hold>>, HostError> {
        self.check("freezing")?;
        self.made().frozen.extend(devices.iter().cloned());
        Ok((!devices.is_empty()).then(|| Box::new(FakeHold(self.clone())) as Box<dyn Hold>))
    }

    fn remove_device(&self, device: &std::path::Path, _file: &str) -> Result<(), HostError> {
        self.check("removal")?;
        let mut made = self.made();
        made.devices.retain(|_, found| found != device);
        made.visible.retain(|attachment| self.place(*attachment) != device);
        Ok(())
    }

    fn let_go(&self, attachment: AttachmentId) -> Result<(), HostError> {
        self.check("keeper")?;
        self.made().mounts.remove(&attachment);
        Ok(())
    }

    fn clear(&self, attachment: AttachmentId, device: Option<(&std::path::Path, &str)>) {
        let mut made = self.made();
        made.mounts.remove(&attachment);
        made.visible.remove(&attachment);
        // The kernel knows whose a device with a server is.
        if device.is_none() && made.with_server.contains(&attachment) {
            made.devices.remove(&attachment);
        }
        if let Some((device, file)) = device {
            made.devices.retain(|one, found| found != device || one.to_string() != file);
        }
    }
}

fn device(number: usize) -> PathBuf {
    PathBuf::from(format!("/dev/loop{number}"))
}

/// A control with volumes on a host that makes nothing.
struct Scene {
    world: World,
    host: FakeHost,
    attachments: Attachments,
    /// It goes last.
    _state: tempfile::TempDir,
}

impl Scene {
    /// Starts with volumes of 8 MiB.
    fn with(volumes: &[&str]) -> Scene {
        let state = tempfile::tempdir().unwrap();
        let (world, host) = (World::start(state.path()), FakeHost::default());
        let attachments = attachments(&world.control, &host);
        let scene = Scene { world, host, attachments, _state: state };
        volumes.iter().for_each(|volume| scene.create(volume));
        scene
    }

    fn create(&self, volume: &str) {
        self.world.control.volumes.create_volume(crate::testing::volume(None, volume, 8 << 20)).unwrap();
    }

    fn id(&self, volume: &str) -> VolumeId {
        self.world.control.core.model().volume(None, &name(volume)).unwrap().record.id
    }

    /// The attachments of the next daemon.
    fn next(&self) -> Attachments {
        attachments(&self.world.control, &self.host)
    }
}

fn attachments(control: &Control, host: &FakeHost) -> Attachments {
    let (core, serving) = (control.core.clone(), control.serving.clone());
    Attachments::new(core, serving, Box::new(host.clone()), PathBuf::from("/dev/weir"))
}

fn asked() -> AttachVolume {
    AttachVolume { method: Some(AttachMethod::Fuse), is_read_only: false, consumer: "a test".to_owned() }
}

fn attach(attachments: &Attachments, volume: &str) -> Outcome<AttachmentView> {
    attachments.attach(None, &name(volume), asked())
}

#[test]
fn volume_is_attached_once_and_detached() {
    let scene = Scene::with(&["vol1"]);
    let (host, attachments) = (&scene.host, &scene.attachments);
    let first = attach(attachments, "vol1").unwrap();
    assert_eq!(first.record.device, Some("/dev/loop0".into()));
    assert_eq!(first.record.link, PathBuf::from("/dev/weir/default/vol1"));
    let second = attach(attachments, "vol1").unwrap_err();
    assert_eq!(second.kind, ErrorKind::Refused);
    assert!(second.to_string().contains("attached as /dev/weir/default/vol1"), "{second}");
    attachments.detach(first.record.id).unwrap();
    assert!(host.is_bare() && attachments.attachments().is_empty());
    assert_eq!(attachments.detach(first.record.id).unwrap_err().kind, ErrorKind::NotFound);
    attach(attachments, "vol1").unwrap();
}

#[test]
fn volume_is_attached_while_the_drive_of_one_replica_is_missing() {
    let scene = Scene::with(&[]);
    let control = &scene.world.control;
    let path = |drive: &str| scene._state.path().join(drive);
    for drive in ["one", "two"] {
        std::fs::create_dir(path(drive)).unwrap();
        let request = AddDrive { class: Some(Class::High), ..AddDrive::new(path(drive)) };
        control.drives.add_drive(request).unwrap();
    }
    for (volume, replicas) in [("double", 2), ("single", 1)] {
        let request = crate::testing::volume(None, volume, 3 << 30);
        let request = CreateVolume { io_priority: Some(Class::High), replicas: Some(replicas), ..request };
        control.volumes.create_volume(request).unwrap();
    }
    let of_single = control.core.model().volume(None, &name("single")).unwrap().record.placement.drives();
    let lost = control.core.model().drives[&of_single[0]].record.path.clone();
    std::fs::rename(&lost, path("away")).unwrap();
    control.returns.absences.look_for_absences();
    attach(&scene.attachments, "double").unwrap();
    let refused = attach(&scene.attachments, "single").unwrap_err();
    assert!(refused.to_string().contains(&lost.display().to_string()), "{refused}");
}

#[test]
fn nothing_stays_of_an_attachment_that_fails() {
    let scene = Scene::with(&["vol1"]);
    let (host, attachments) = (&scene.host, &scene.attachments);
    for what in ["mount", "device", "identity", "hiding", "link"] {
        host.refuse(what);
        let error = attach(attachments, "vol1").unwrap_err();
        assert!(error.to_string().ends_with(&format!("cannot be attached: no {what} today")), "{error}");
        assert!(host.is_bare() && attachments.attachments().is_empty(), "{what}");
    }
    host.made().refused = None;
    attach(attachments, "vol1").unwrap();
}

#[test]
fn device_that_another_program_takes_first_is_not_ours() {
    let scene = Scene::with(&["vol1"]);
    let (host, attachments) = (&scene.host, &scene.attachments);
    host.made().taken_first = Some(device(0));
    let attached = attach(attachments, "vol1").unwrap();
    assert_eq!(attached.record.device, Some(device(1)));
    assert!(host.made().visible.is_empty());
    attachments.detach(attached.record.id).unwrap();
    assert!(host.is_bare());
}

#[test]
fn next_daemon_completes_a_device_whose_daemon_was_killed_as_it_made_it() {
    let scene = Scene::with(&["vol1"]);
    let (host, attachments) = (&scene.host, &scene.attachments);
    let attached = attach(attachments, "vol1").unwrap();
    let next = scene.next();
    // The device was made, and the steps behind it were not.
    host.made().links.clear();
    host.made().visible.insert(attached.record.id);
    let id = attached.record.id;
    let half = next.core.model().attachments[&id].clone();
    next.change(&mut half.clone(), |record| record.is_made = false).unwrap();
    next.take_over_all();
    assert!(next.attachment(id).unwrap().record.is_made);
    assert!(host.made().visible.is_empty());
    assert_eq!((next.attachments().len(), host.made().links.len()), (1, 1));
    next.detach(attached.record.id).unwrap();
    assert!(host.is_bare());
}

#[test]
fn device_that_goes_with_its_last_user_is_shown_no_more() {
    let scene = Scene::with(&["vol1"]);
    let (host, attachments) = (&scene.host, &scene.attachments);
    let attached = attach(attachments, "vol1").unwrap().record;
    assert!(attached.is_made);
    host.refuse("removal");
    host.made().leaving.insert(device(0));
    assert!(attachments.detach(attached.id).is_err());
    assert!(!attachments.attachment(attached.id).unwrap().record.is_made && host.made().links.is_empty());
    // The user has gone, and another program has got the device.
    host.made().refused = None;
    host.made().devices.clear();
    host.made().others.insert(device(0));
    attachments.detach(attached.id).unwrap();
    assert!(host.is_bare() && host.made().others.contains(&device(0)));
}

#[test]
fn numbers_of_an_earlier_boot_mean_nothing() {
    let scene = Scene::with(&["vol1"]);
    let (host, attachments) = (&scene.host, &scene.attachments);
    attach(attachments, "vol1").unwrap();
    // Another program has a device of the same number, on a file with the same identity.
    host.made().boots += 1;
    let next = scene.next();
    next.take_over_all();
    assert!(next.attachments().is_empty());
    assert_eq!(host.made().devices.len(), 1, "it is not ours to take away");
}

#[test]
fn device_in_use_stays_attached() {
    let scene = Scene::with(&["vol1"]);
    let (host, attachments) = (&scene.host, &scene.attachments);
    let attached = attach(attachments, "vol1").unwrap();
    for what in ["removal", "keeper"] {
        host.refuse(what);
        let error = attachments.detach(attached.record.id).unwrap_err();
        assert_eq!(error.to_string(), format!("volume 'default/vol1' cannot be detached: no {what} today"));
        assert_eq!(attachments.attachments().len(), 1);
    }
    host.made().refused = None;
    attachments.detach(attached.record.id).unwrap();
    assert!(host.is_bare());
}

#[test]
fn attached_volume_keeps_its_size_and_its_life() {
    let scene = Scene::with(&["vol1"]);
    let attachments = &scene.attachments;
    let attached = attach(attachments, "vol1").unwrap();
    let volumes = &scene.world.control.volumes;
    let vol1 = name("vol1");
    let refused = [
        volumes
            .delete_volume(None, &vol1, crate::DeleteVolume { force: true, ..Default::default() })
            .unwrap_err(),
        volumes.resize_volume(None, &vol1, 4 << 20, true, None).unwrap_err(),
    ];
    assert!(refused.iter().all(|error| error.to_string().contains("weir detach")), "{refused:?}");
    volumes.resize_volume(None, &vol1, 16 << 20, false, None).unwrap();
    attachments.detach(attached.record.id).unwrap();
}

#[test]
fn next_daemon_takes_over_what_is_there_and_clears_the_rest() {
    let volumes = ["there", "unmounted", "without-device"];
    let scene = Scene::with(&volumes);
    let (host, attachments) = (&scene.host, &scene.attachments);
    let ids = volumes.map(|volume| attach(attachments, volume).unwrap().record.id);
    host.made().mounts.remove(&ids[1]);
    host.made().devices.remove(&ids[2]);
    attachments.take_over_all();
    let left: Vec<_> = attachments.attachments().into_iter().map(|one| one.record.id).collect();
    assert_eq!(left, [ids[0]]);
    assert_eq!(host.made().mounts.len(), 1);
    assert_eq!(host.made().links.len(), 1);
    attachments.detach(ids[0]).unwrap();
    assert!(host.is_bare());
}

#[test]
fn attachment_that_cannot_be_examined_waits_and_is_never_cleared() {
    let scene = Scene::with(&["vol1"]);
    let (host, attachments) = (&scene.host, &scene.attachments);
    let attached = attach(attachments, "vol1").unwrap();
    // The next daemon cannot ask the kernel for a while.
    let next = scene.next();
    host.refuse("identity");
    next.take_over_all();
    assert_eq!((next.attachments().len(), host.made().mounts.len()), (1, 1));
    assert!(next.detach(attached.record.id).is_err());
    host.made().refused = None;
    next.detach(attached.record.id).unwrap();
    assert!(host.is_bare());
}

#[test]
fn link_leads_to_one_volume_alone() {
    let scene = Scene::with(&["vol1"]);
    let attachments = &scene.attachments;
    attach(attachments, "vol1").unwrap();
    let renamed = crate::ModifyVolume { name: Some(name("vol2")), ..Default::default() };
    scene.world.control.volumes.modify_volume(None, &name("vol1"), renamed).unwrap();
    scene.create("vol1");
    let error = attach(attachments, "vol1").unwrap_err().to_string();
    assert!(error.contains("/dev/weir/default/vol1 leads to volume 'vol2'"), "{error}");
}

#[test]
fn file_stays_in_sight_until_it_is_detached() {
    let scene = Scene::with(&["vol1"]);
    let (host, attachments) = (&scene.host, &scene.attachments);
    let asked = AttachVolume { method: Some(AttachMethod::FuseFile), ..asked() };
    let attached = attachments.attach(None, &name("vol1"), asked).unwrap().record;
    let id = attached.id;
    assert_eq!(attached.device, Some(host.place(id)));
    assert!(attached.is_made && host.made().visible.contains(&id) && host.made().devices.is_empty());
    scene.next().take_over_all();
    assert!(scene.next().attachment(id).unwrap().record.is_made && host.made().visible.contains(&id));
    host.refuse("removal");
    assert!(attachments.detach(id).is_err());
    assert!(attachments.attachment(id).unwrap().record.is_made && !host.made().links.is_empty());
    host.made().refused = None;
    attachments.detach(id).unwrap();
    assert!(host.is_bare());
}

#[test]
fn file_that_was_unmounted_is_an_attachment_no_more() {
    let scene = Scene::with(&["vol1"]);
    let asked = AttachVolume { method: Some(AttachMethod::FuseFile), ..asked() };
    let id = scene.attachments.attach(None, &name("vol1"), asked).unwrap().record.id;
    scene.host.made().visible.remove(&id);
    let next = scene.next();
    next.take_over_all();
    assert!(next.attachments().is_empty() && scene.host.is_bare());
}

#[test]
fn device_of_a_server_gets_another_one_from_the_next_daemon() {
    let scene = Scene::with(&["vol1"]);
    let (host, attachments) = (&scene.host, &scene.attachments);
    let asked = || AttachVolume { method: None, ..asked() };
    for what in ["offer", "device", "identity", "link"] {
        host.refuse(what);
        assert!(attachments.attach(None, &name("vol1"), asked()).is_err());
        assert!(host.is_bare() && attachments.attachments().is_empty(), "{what}");
    }
    host.made().refused = None;
    let attached = attachments.attach(None, &name("vol1"), asked()).unwrap().record;
    assert!(attached.is_made && host.made().mounts.is_empty());
    assert_eq!((attached.method, &*attached.method_reason), (AttachMethod::Ublk, "it is the best"));
    let next = scene.next();
    next.take_over_all();
    assert_eq!(host.made().served_again, [attached.id]);
    next.detach(attached.id).unwrap();
    assert!(host.is_bare());
    // A device that went with the host's power is an attachment no more.
    attachments.attach(None, &name("vol1"), asked()).unwrap();
    host.made().devices.clear();
    scene.next().take_over_all();
    assert!(scene.next().attachments().is_empty() && host.is_bare());
}

#[test]
fn filesystems_are_frozen_until_the_instant_of_a_snapshot() {
    let scene = Scene::with(&["vol1", "vol2", "vol3"]);
    let (host, attachments) = (&scene.host, Arc::new(scene.next()));
    for volume in ["vol1", "vol2"] {
        attach(&attachments, volume).unwrap();
    }
    let snapshots = &scene.world.control.snapshots;
    let snapshots = crate::snapshots::Snapshots {
        core: snapshots.core.clone(),
        figures: snapshots.figures.clone(),
        maker: snapshots.maker.clone(),
        attachments: attachments.clone(),
        serving: snapshots.serving.clone(),
        views: snapshots.views.clone(),
    };
    let request = |of: &str| crate::CreateSnapshots {
        tenant: None,
        volumes: ["vol1", "vol3"].map(name).to_vec(),
        name: name(of),
        freeze: true,
    };
    // The other attached volume is not concerned.
    let held = attachments.freeze(&[scene.id("vol1"), scene.id("vol3")]).unwrap();
    assert_eq!(host.made().frozen, BTreeSet::from([device(0)]));
    drop(held);
    assert!(attachments.freeze(&[scene.id("vol3")]).unwrap().is_none());
    assert_eq!(snapshots.create_snapshots(&request("s1")).unwrap().len(), 2);
    assert!(host.made().frozen.is_empty());
    host.refuse("freezing");
    let error = snapshots.create_snapshots(&request("s2")).unwrap_err();
    assert_eq!(error.to_string(), "a filesystem cannot be frozen: no freezing today");
    host.made().refused = None;
    host.made().is_thawed_early = true;
    let error = snapshots.create_snapshots(&request("s2")).unwrap_err();
    assert!(error.to_string().contains("frozen for long enough"), "{error}");
    assert_eq!(snapshots.snapshots(None, Some(&name("vol1"))).unwrap().len(), 1);
}
