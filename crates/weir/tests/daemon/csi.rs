//! The CSI driver from outside: the calls that Kubernetes makes for a pod, each twice, while daemon and driver are killed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Mutex;

use prost::Message;
use serde_json::json;
use weir_csi::wire::*;

use crate::common::attached::{alone, assert_nothing_left, can_be_tested};
use crate::common::daemon::{Daemon, State, WEIR};
use crate::common::program::has;
use crate::common::wait_until;

const MIB: i64 = 1 << 20;

/// A driver that runs.
struct Driver {
    child: Mutex<Child>,
    socket: PathBuf,
}

impl Driver {
    fn start(daemon: &Daemon) -> Driver {
        let socket = daemon.state().beside("csi.sock");
        let child = Mutex::new(Driver::spawn(daemon, &socket));
        Driver { child, socket }
    }

    fn spawn(daemon: &Daemon, socket: &Path) -> Child {
        let _ = fs::remove_file(socket);
        let server = format!("unix:{}", daemon.state().path().join("api.sock").display());
        let mut command = Command::new(WEIR);
        command.args(["csi", "--server", &server, "--endpoint"]);
        command.arg(format!("unix://{}", socket.display()));
        let child = command.arg("--kubelet").arg(daemon.state().beside("kubelet")).spawn().unwrap();
        wait_until("the driver listens", || std::os::unix::net::UnixStream::connect(socket).is_ok());
        child
    }

    /// Kills the driver. Another one goes on.
    fn kill(&self, daemon: &Daemon) {
        let mut child = self.child.lock().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        *child = Driver::spawn(daemon, &self.socket);
    }

    /// Lets the driver end in order.
    fn end(&self) {
        let mut child = self.child.lock().unwrap();
        let process = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(process, rustix::process::Signal::TERM).unwrap();
        assert!(child.wait().unwrap().success());
    }

    /// Makes a call, and returns its answer, or the number of its status and what it says.
    fn call<A: Message + Default>(&self, method: &str, request: &impl Message) -> Result<A, (u32, String)> {
        call_at(&self.socket, &format!("csi.v1.{method}"), request)
    }

    /// Makes a call twice, as Kubernetes does after a crash, and returns its answer.
    fn twice<A: Message + Default + PartialEq + std::fmt::Debug>(
        &self,
        method: &str,
        request: &impl Message,
    ) -> A {
        let first = self.call::<A>(method, request).unwrap();
        let second = self.call::<A>(method, request).unwrap();
        assert!(first == second, "{method}: {first:?} {second:?}");
        second
    }
}

/// Makes a call at a socket, and returns its answer, or the number of its status and what it says.
fn call_at<A: Message + Default>(
    socket: &Path,
    path: &str,
    request: &impl Message,
) -> Result<A, (u32, String)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (body, status) = runtime.block_on(exchange(socket, path, request.encode_to_vec()));
    match status {
        (0, _) => Ok(A::decode(&body[5..]).unwrap()),
        status => Err(status),
    }
}

/// Sends a message as gRPC does, on a connection of its own. Returns what comes back, and the status behind it.
async fn exchange(socket: &Path, path: &str, message: Vec<u8>) -> (Vec<u8>, (u32, String)) {
    let stream = tokio::net::UnixStream::connect(socket).await.unwrap();
    let (mut client, connection) = h2::client::handshake(stream).await.unwrap();
    let connection = tokio::spawn(connection);
    let request = http::Request::post(format!("http://localhost/{path}"));
    let exchanged = exchange_on(&mut client, request, message).await;
    connection.abort();
    exchanged
}

/// Sends a message on a connection. Returns what comes back, and the status behind it.
async fn exchange_on(
    client: &mut h2::client::SendRequest<bytes::Bytes>,
    request: http::request::Builder,
    message: Vec<u8>,
) -> (Vec<u8>, (u32, String)) {
    let request = request.header("content-type", "application/grpc").header("te", "trailers");
    let (answer, mut sender) = client.send_request(request.body(()).unwrap(), false).unwrap();
    // A message begins with a flag, that it is not compressed, and its length.
    let mut framed = vec![0];
    framed.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
    framed.extend(message);
    sender.send_data(bytes::Bytes::from(framed), true).unwrap();
    let answer = answer.await.unwrap();
    // An answer without a message has its status at once.
    let early = answer.headers().clone();
    let mut body = answer.into_body();
    let mut received = Vec::new();
    while let Some(chunk) = body.data().await {
        let chunk = chunk.unwrap();
        body.flow_control().release_capacity(chunk.len()).unwrap();
        received.extend(chunk);
    }
    let trailers = body.trailers().await.unwrap().unwrap_or(early);
    let text = |name| trailers.get(name).map(|value| value.to_str().unwrap()).unwrap_or_default();
    (received, (text("grpc-status").parse().unwrap(), text("grpc-message").to_owned()))
}

impl Drop for Driver {
    fn drop(&mut self) {
        let child = self.child.get_mut().unwrap();
        let _ = child.kill();
        let _ = child.wait();
        let _ = fs::remove_file(&self.socket);
    }
}

fn with_filesystem() -> VolumeCapability {
    VolumeCapability {
        access_type: Some(AccessType::Mount(MountVolume::default())),
        access_mode: Some(AccessMode { mode: Mode::SingleNodeMultiWriter.into() }),
    }
}

fn creation(name: &str, parameters: &[(&str, &str)]) -> CreateVolumeRequest {
    let parameters = parameters.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    CreateVolumeRequest {
        name: name.to_owned(),
        capacity_range: Some(CapacityRange { required_bytes: 320 * MIB, limit_bytes: 0 }),
        volume_capabilities: vec![with_filesystem()],
        parameters: parameters.collect(),
        ..CreateVolumeRequest::default()
    }
}

/// A volume as a pod has it.
struct Pod<'a> {
    driver: &'a Driver,
    volume: String,
    context: Map,
    staging: String,
}

impl Pod<'_> {
    /// Publishes and stages a volume.
    fn start<'a>(driver: &'a Driver, state: &State, volume: &Volume) -> Pod<'a> {
        let id = volume.volume_id.clone();
        let node: NodeGetInfoResponse = driver.twice("Node/NodeGetInfo", &Empty {});
        let published: ControllerPublishVolumeResponse = driver.twice(
            "Controller/ControllerPublishVolume",
            &ControllerPublishVolumeRequest {
                volume_id: id.clone(),
                node_id: node.node_id,
                volume_capability: Some(with_filesystem()),
                readonly: false,
            },
        );
        let staging = state.beside(&format!("staging-{id}")).display().to_string();
        let pod = Pod { driver, volume: id, context: published.publish_context, staging };
        let _: Empty = driver.twice(
            "Node/NodeStageVolume",
            &NodeStageVolumeRequest {
                volume_id: pod.volume.clone(),
                publish_context: pod.context.clone(),
                staging_target_path: pod.staging.clone(),
                volume_capability: Some(with_filesystem()),
                volume_context: volume.volume_context.clone(),
            },
        );
        pod
    }

    fn publish(&self, target: &Path, readonly: bool) {
        let request = NodePublishVolumeRequest {
            volume_id: self.volume.clone(),
            publish_context: self.context.clone(),
            staging_target_path: self.staging.clone(),
            target_path: target.display().to_string(),
            volume_capability: Some(with_filesystem()),
            readonly,
        };
        let _: Empty = self.driver.twice("Node/NodePublishVolume", &request);
    }

    fn remove(&self, method: &str, path: &str) {
        let request = NodeRemoveRequest { volume_id: self.volume.clone(), path: path.to_owned() };
        let _: Empty = self.driver.twice(method, &request);
    }

    fn end(&self, targets: &[&Path]) {
        for target in targets {
            self.remove("Node/NodeUnpublishVolume", target.to_str().unwrap());
            assert!(!target.exists());
        }
        self.remove("Node/NodeUnstageVolume", &self.staging);
        let request =
            ControllerUnpublishVolumeRequest { volume_id: self.volume.clone(), node_id: String::new() };
        let _: Empty = self.driver.twice("Controller/ControllerUnpublishVolume", &request);
    }
}

fn delete(driver: &Driver, method: &str, id: &str) {
    let _: Empty = driver.twice(method, &DeleteRequest { id: id.to_owned() });
}

/// The driver changes the authority of requests, which both ends of a connection keep in tables of bounded size.
#[test]
fn connection_goes_on_once_its_tables_of_headers_are_full() {
    let daemon = Daemon::fresh();
    let driver = Driver::start(&daemon);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for authority in ["a", "localhost", "a-name-that-is-longer-than-others"] {
        runtime.block_on(async {
            let stream = tokio::net::UnixStream::connect(&driver.socket).await.unwrap();
            let (mut client, connection) = h2::client::handshake(stream).await.unwrap();
            tokio::spawn(connection);
            for call in 0..300 {
                let uri = format!("http://{authority}/csi.v1.Identity/GetPluginCapabilities");
                let request = http::Request::post(uri).header("x-call", format!("{call}"));
                let (_, status) = exchange_on(&mut client, request, Vec::new()).await;
                assert_eq!(status, (0, String::new()), "call {call} to '{authority}'");
            }
        });
    }
}

#[test]
fn volume_goes_its_way_through_kubernetes_while_daemon_and_driver_are_killed() {
    if !can_be_tested() {
        return;
    }
    let _alone = alone();
    let daemon = State::new().start(&[]);
    let driver = Driver::start(&daemon);
    let request =
        creation("pvc-1", &[("repl", "1"), ("io_profile", "auto"), ("journal", "false"), ("fs", "xfs")]);
    let volume = driver.twice::<CreateVolumeResponse>("Controller/CreateVolume", &request).volume.unwrap();
    assert_eq!(volume.capacity_bytes, 320 * MIB);
    let pod = Pod::start(&driver, daemon.state(), &volume);
    let (writer, reader) = (daemon.state().beside("pods/writer"), daemon.state().beside("pods/reader"));
    pod.publish(&writer, false);
    pod.publish(&reader, true);
    fs::write(writer.join("file"), "content").unwrap();
    assert!(fs::write(reader.join("file"), "other").is_err());
    // The volume in use is not detached, and not deleted.
    let unpublish =
        ControllerUnpublishVolumeRequest { volume_id: volume.volume_id.clone(), node_id: String::new() };
    let refused = driver.call::<Empty>("Controller/ControllerUnpublishVolume", &unpublish).unwrap_err();
    assert_eq!(refused.0, 9, "{refused:?}");
    let daemon = daemon.kill().start(&[]);
    fs::write(writer.join("late"), "more").unwrap();
    driver.kill(&daemon);
    assert_eq!(fs::read_to_string(reader.join("late")).unwrap(), "more");
    // The snapshot has what nobody synchronised.
    fs::write(writer.join("unsynchronised"), "cached").unwrap();
    let snapshot = CreateSnapshotRequest {
        source_volume_id: volume.volume_id.clone(),
        name: "snap-1".to_owned(),
        parameters: Map::new(),
    };
    let taken =
        driver.twice::<CreateSnapshotResponse>("Controller/CreateSnapshot", &snapshot).snapshot.unwrap();
    pod.end(&[&writer, &reader]);
    // A volume of the snapshot is larger, and so is its filesystem.
    let source = Source::Snapshot(SourceId { id: taken.snapshot_id.clone() });
    let restoration = CreateVolumeRequest {
        volume_content_source: Some(VolumeContentSource { source: Some(source) }),
        capacity_range: Some(CapacityRange { required_bytes: 512 * MIB, limit_bytes: 0 }),
        ..creation("pvc-2", &[])
    };
    let restored =
        driver.twice::<CreateVolumeResponse>("Controller/CreateVolume", &restoration).volume.unwrap();
    assert_eq!(restored.capacity_bytes, 512 * MIB);
    let pod = Pod::start(&driver, daemon.state(), &restored);
    pod.publish(&reader, true);
    assert_eq!(fs::read_to_string(reader.join("file")).unwrap(), "content");
    assert_eq!(fs::read_to_string(reader.join("unsynchronised")).unwrap(), "cached");
    pod.end(&[&reader]);
    delete(&driver, "Controller/DeleteVolume", &restored.volume_id);
    delete(&driver, "Controller/DeleteSnapshot", &taken.snapshot_id);
    delete(&driver, "Controller/DeleteVolume", &volume.volume_id);
    drop(driver);
    assert_nothing_left(&daemon);
}

#[test]
fn kubelet_finds_the_driver_again_after_a_crash() {
    let daemon = State::new().start(&[]);
    let driver = Driver::start(&daemon);
    let socket = daemon.state().beside("kubelet/plugins_registry/csi.weir-reg.sock");
    for _ in 0..2 {
        // The kubelet sees the socket appear, and asks there.
        wait_until("the driver is announced", || std::os::unix::net::UnixStream::connect(&socket).is_ok());
        let info: PluginInfo =
            call_at(&socket, "pluginregistration.Registration/GetInfo", &Empty {}).unwrap();
        assert_eq!((info.kind.as_str(), info.name.as_str()), ("CSIPlugin", "csi.weir"));
        assert_eq!(Path::new(&info.endpoint), driver.socket);
        let named: GetPluginInfoResponse =
            call_at(Path::new(&info.endpoint), "csi.v1.Identity/GetPluginInfo", &Empty {}).unwrap();
        assert_eq!(named.name, info.name);
        let status = RegistrationStatus { plugin_registered: true, error: String::new() };
        let noted = "pluginregistration.Registration/NotifyRegistrationStatus";
        let _: Empty = call_at(&socket, noted, &status).unwrap();
        driver.kill(&daemon);
    }
    driver.end();
    assert!(!socket.exists() && !driver.socket.exists());
}

#[test]
fn options_of_flushes_go_their_way() {
    if !has(&["mkfs.ext4"]) {
        return;
    }
    let daemon = State::new().start(&[]);
    for drive in ["drive-1", "drive-2"] {
        let path = daemon.state().beside(drive);
        fs::create_dir_all(&path).unwrap();
        daemon.ok(&["drive", "add", path.to_str().unwrap(), "--class", "high", "--no-measurement"]);
    }
    let driver = Driver::start(&daemon);
    let profile = [("io_profile", "db_remote"), ("repl", "2"), ("io_priority", "high")];
    let shares = ("allow_shared_failure_domain", "true");
    let with =
        |window: &'static str| creation("v", &[&profile[..], &[shares, ("flush_window", window)]].concat());
    let create = "Controller/CreateVolume";
    let alone = driver.call::<CreateVolumeResponse>(create, &creation("v", &profile)).unwrap_err();
    assert!(alone.1.contains("allow-shared-failure-domain"), "{alone:?}");
    let made: CreateVolumeResponse = driver.twice(create, &with("50ms"));
    let terms = || daemon.json(&["volume", "show", "v"])["flush_coalescing"].clone();
    assert_eq!(
        terms(),
        json!({ "window_seconds": 0.05, "allow_shared_failure_domain": true, "coalesce_fua": false })
    );
    let other = driver.call::<CreateVolumeResponse>(create, &with("60ms")).unwrap_err();
    assert!(other.0 == 6 && other.1.contains("flush_window"), "{other:?}");
    let change = ControllerModifyVolumeRequest {
        volume_id: made.volume.unwrap().volume_id,
        mutable_parameters: Map::from([("flush_window".to_owned(), "20ms".to_owned())]),
    };
    let _: Empty = driver.twice("Controller/ControllerModifyVolume", &change);
    assert_eq!(terms()["window_seconds"], 0.02);
    // A volume of one that has neither the profile nor the replicas.
    let plain: CreateVolumeResponse = driver.twice(create, &creation("plain", &[("io_priority", "high")]));
    let source = Source::Volume(SourceId { id: plain.volume.unwrap().volume_id });
    let of_plain = CreateVolumeRequest {
        volume_content_source: Some(VolumeContentSource { source: Some(source) }),
        ..creation("of-plain", &[&profile[..], &[shares]].concat())
    };
    let _: CreateVolumeResponse = driver.twice(create, &of_plain);
    let made = daemon.json(&["volume", "show", "of-plain"]);
    assert_eq!((&made["io_profile"], &made["replicas"]), (&json!("db_remote"), &json!(2)));
    assert_eq!(made["flush_coalescing"]["allow_shared_failure_domain"], true);
    let lost = creation("w", &[("flush_window", "50ms")]);
    let refused = driver.call::<CreateVolumeResponse>(create, &lost).unwrap_err();
    assert!(refused.0 == 3 && refused.1.contains("db_remote"), "{refused:?}");
}

#[test]
fn calls_are_refused_with_the_codes_of_the_interface() {
    if !has(&["mkfs.ext4"]) {
        return;
    }
    let daemon = State::new().start(&[]);
    let driver = Driver::start(&daemon);
    let refused = |method: &str, request: &dyn Fn() -> CreateVolumeRequest, code: u32, words: &str| {
        let refused = driver.call::<CreateVolumeResponse>(method, &request()).unwrap_err();
        assert!(refused.0 == code && refused.1.contains(words), "{refused:?}");
    };
    let create = "Controller/CreateVolume";
    refused(create, &|| creation("", &[]), 3, "name");
    refused(create, &|| creation("v", &[("colour", "red")]), 3, "colour");
    refused(create, &|| creation("v", &[("io_profile", "db")]), 3, "io_profile");
    refused(create, &|| creation("v", &[("io_profile", "journal")]), 8, "journal");
    refused(create, &|| creation("v", &[("repl", "3")]), 8, "replicas");
    refused(create, &|| creation("v", &[("size", "1")]), 3, "size");
    refused("Controller/GetSnapshot", &|| creation("v", &[]), 12, "GetSnapshot");
    let made: CreateVolumeResponse = driver.twice(create, &creation("v", &[]));
    let larger = || CreateVolumeRequest {
        capacity_range: Some(CapacityRange { required_bytes: 512 * MIB, limit_bytes: 0 }),
        ..creation("v", &[])
    };
    refused(create, &larger, 6, "size");
    // A change of the class follows at once, and can be taken back.
    daemon.ok(&["policy-group", "create", "gold", "--max-throughput", "1000IOPS"]);
    let volume_id = made.volume.unwrap().volume_id;
    let change = |group: &str| ControllerModifyVolumeRequest {
        volume_id: volume_id.clone(),
        mutable_parameters: Map::from([("policy_group".to_owned(), group.to_owned())]),
    };
    let _: Empty = driver.twice("Controller/ControllerModifyVolume", &change("gold"));
    assert_eq!(daemon.json(&["volume", "show", "v"])["qos_policy_group"]["name"], "gold");
    let refused = driver.call::<Empty>("Controller/ControllerModifyVolume", &change("nobody")).unwrap_err();
    assert!(refused.0 == 3 && refused.1.contains("nobody"), "{refused:?}");
    // A call waits for a daemon that restarts.
    let state = daemon.kill();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| driver.call::<CreateVolumeResponse>(create, &creation("w", &[])));
        let daemon = state.start(&[]);
        assert!(waiting.join().unwrap().is_ok());
        drop(daemon);
    });
}
