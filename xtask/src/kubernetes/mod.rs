//! Volumes in a real Kubernetes cluster (`cargo xtask kubernetes`): control plane, kubelet and the helpers of CSI drivers,
//! all built from their Go modules, with `weir csi` and the objects below `deploy/`.
//!
//! It needs root and Go, and takes most of an hour the first time. So it is no part of the tests.

mod cluster;
mod pods;
mod programs;

use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::arguments::Arguments;
use crate::report::Report;
use crate::repository::repository_root;
use crate::world::daemon::Daemon;
use crate::world::folder::Folder;
use crate::world::http;
use crate::world::process::Process;
use crate::world::tools;
use cluster::Cluster;
use programs::Programs;

/// Name of the CSI driver.
const DRIVER: &str = "csi.weir";
/// The class of the document whose volumes have no journal, and the other one.
const CLASS: &str = "px-nojournal-repl1";
const JOURNAL_CLASS: &str = "px-journal-repl1";
/// Limit of the policy group that a volume is changed to, in operations per second.
const LIMIT_IOPS: u64 = 200;
/// Time after which the rate must be the limit, and time in which it is measured then.
const REACTION: Duration = Duration::from_secs(1);
const JUDGED: Duration = Duration::from_secs(5);
/// Largest difference of the rate and the limit.
const OFF_MAX: f64 = 0.05;

/// The daemon, its driver, and the cluster that uses them. What is used ends last.
struct Stage {
    cluster: Cluster,
    driver: Option<Process>,
    daemon: Daemon,
    binary: PathBuf,
    folder: Folder,
}

/// Builds the programs, starts the cluster, and goes through the life of volumes.
pub fn run(mut arguments: Arguments) -> Result<()> {
    let is_built_only = arguments.flag("--build-only");
    arguments.finish()?;
    let programs = Programs::build()?;
    if is_built_only {
        return Ok(());
    }
    ensure!(rustix::process::geteuid().is_root(), "this needs root: volumes are attached and mounted");
    tools::require(&["openssl", "setpriv", "dockerd", "fio", "busybox"])?;
    let mut report = Report::new("kubernetes");
    let mut stage = Stage::start(programs)?;
    stage.check_chart(&mut report)?;
    stage.bind_claims(&mut report)?;
    stage.run_pod(&mut report)?;
    stage.change_policy(&mut report)?;
    stage.kill_programs(&mut report)?;
    stage.expand(&mut report)?;
    stage.duplicate(&mut report)?;
    drop(stage);
    report.finish(None)
}

impl Stage {
    fn start(programs: Programs) -> Result<Stage> {
        let root = repository_root();
        let binary = tools::weir_binary(&root)?;
        let folder = Folder::on_disk(None, &root, "weir-kubernetes")?;
        let daemon = Daemon::start(&binary, &folder.path().join("state"), &[])?;
        let journals = folder.path().join("journals");
        std::fs::create_dir(&journals)?;
        daemon.run(&format!("journal add {} --no-measurement", journals.display()))?;
        println!("starting the cluster in {}", folder.path().display());
        let cluster = Cluster::start(programs, folder.path())?;
        let mut stage = Stage { cluster, driver: None, daemon, binary, folder };
        stage.start_driver()?;
        stage.cluster.start_helpers(&stage.socket())?;
        let examples = root.join("deploy/examples");
        for file in ["storage-classes.yaml", "volume-attributes-classes.yaml", "snapshot-classes.yaml"] {
            let path = examples.join(file);
            let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            stage.cluster.apply_text(&text, &[])?;
        }
        Ok(stage)
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("csi.sock")
    }

    fn start_driver(&mut self) -> Result<()> {
        let socket = self.socket();
        let arguments = [
            "csi".to_owned(),
            format!("--server={}", self.daemon.server()),
            format!("--endpoint=unix://{}", socket.display()),
            format!("--kubelet={}", self.cluster.kubelet_folder().display()),
        ];
        let program = self.binary.display().to_string();
        let mut driver = Process::start("driver", self.folder.path(), &program, &arguments)?;
        driver.wait_until(|_| UnixStream::connect(&socket).is_ok())?;
        self.driver = Some(driver);
        self.cluster.wait("the kubelet knows the driver", |cluster| {
            let drivers = cluster.get(&["csinode", cluster::NODE])["spec"]["drivers"].clone();
            drivers.as_array().into_iter().flatten().any(|driver| driver["name"] == DRIVER)
        })
    }

    /// The chart's objects are valid for the API server. The driver's own is the cluster's.
    fn check_chart(&mut self, report: &mut Report) -> Result<()> {
        let rendered = self.cluster.rendered(&repository_root().join("deploy/helm/weir"))?;
        let valid = self.cluster.apply_text(&rendered, &["--dry-run=server"]);
        let found = valid.as_ref().map_or_else(|error| format!("{error:#}"), |()| "valid".to_owned());
        report.claim("the API server takes all objects of the chart", found, valid.is_ok());
        // Without them, a snapshot finds no filesystem to freeze, and succeeds.
        let daemon = rendered.split("- name: ").find(|container| container.starts_with("daemon\n"));
        let sees_mounts = daemon.is_some_and(|daemon| daemon.contains("mountPropagation: HostToContainer"));
        report.claim("the chart's daemon sees the kubelet's mounts", sees_mounts.to_string(), sees_mounts);
        let is_driver = |document: &&str| document.contains("kind: CSIDriver");
        let driver = rendered.split("\n---").find(is_driver).context("the chart has no CSIDriver")?;
        self.cluster.apply_text(driver, &[])
    }

    /// A claim of each class of the document.
    fn bind_claims(&mut self, report: &mut Report) -> Result<()> {
        self.cluster.apply(&pods::claim("data", CLASS, "1Gi"))?;
        let begun = Instant::now();
        let bound = self.cluster.bound("data");
        let found = bound.map_or_else(|error| format!("{error:#}"), |_| "bound".to_owned());
        let seconds = begun.elapsed().as_secs_f64();
        let is_bound = found == "bound";
        report.claim(
            format!("a claim of {CLASS} is bound"),
            format!("{found} after {seconds:.1} s"),
            is_bound,
        );
        self.cluster.apply(&pods::claim("journal", JOURNAL_CLASS, "1Gi"))?;
        let (found, is_bound) = self.fate_of("journal")?;
        report.claim(format!("a claim of {JOURNAL_CLASS} is bound"), found, is_bound);
        Ok(())
    }

    /// What has become of a claim: its phase, or why it has no volume; and whether it has one.
    fn fate_of(&self, claim: &str) -> Result<(String, bool)> {
        let events = |cluster: &Cluster| {
            let name = format!("involvedObject.name={claim}");
            let events = cluster.get(&["events", "--field-selector", &name])["items"].clone();
            let mut events = events.as_array().cloned().unwrap_or_default();
            events.retain(|event| event["reason"] == "ProvisioningFailed");
            events.last().map(|event| event["message"].as_str().unwrap_or_default().to_owned())
        };
        let is_bound = |cluster: &Cluster| cluster.get(&["pvc", claim])["status"]["phase"] == "Bound";
        self.cluster.wait(&format!("claim {claim} has a fate"), |cluster| {
            is_bound(cluster) || events(cluster).is_some()
        })?;
        Ok(match is_bound(&self.cluster) {
            true => ("bound".to_owned(), true),
            false => (events(&self.cluster).unwrap_or_default(), false),
        })
    }

    /// A pod writes to the volume and verifies what it wrote, until it is told to end.
    fn run_pod(&mut self, report: &mut Report) -> Result<()> {
        self.cluster.apply(&pods::writer("writer", "data"))?;
        let ran = self.cluster.pod_is("writer", "Running");
        let found = ran.as_ref().map_or_else(|error| format!("{error:#}"), |()| "running".to_owned());
        report.claim("a pod mounts the volume", found, ran.is_ok());
        self.cluster.wait("the pod writes", |_| self.operations("data").is_ok_and(|(count, _)| count > 1000))
    }

    /// Operations of a claim's volume so far, and the name of its policy group.
    fn operations(&self, claim: &str) -> Result<(u64, String)> {
        let handle = self.cluster.bound(claim)?;
        self.operations_of(&handle)
    }

    fn operations_of(&self, handle: &str) -> Result<(u64, String)> {
        let (text, _) = http::get_all(&self.daemon.socket(), "/v1/statistics/volumes")?;
        let all: Value = serde_json::from_str(&text)?;
        let volumes = all["volumes"].as_array().context("there are no volumes")?;
        let volume = volumes.iter().find(|volume| volume["id"] == handle).context("no such volume")?;
        let count = |kind: &str| volume[kind]["operations"].as_u64().unwrap_or(0);
        let group = volume["qos_policy_group"].as_str().unwrap_or_default().to_owned();
        Ok((count("read") + count("write"), group))
    }

    /// A class of attributes changes the policy group of a volume in use.
    fn change_policy(&mut self, report: &mut Report) -> Result<()> {
        let limit = format!("qos policy-group create slow -max-throughput {LIMIT_IOPS}IOPS");
        self.daemon.run(&limit)?;
        let handle = self.cluster.bound("data")?;
        let patch = json!({"spec": {"volumeAttributesClassName": "slow"}}).to_string();
        self.cluster.kubectl(&["patch", "pvc", "data", "--patch", &patch])?;
        self.cluster.wait("the volume is in the policy group", |_| {
            self.operations_of(&handle).is_ok_and(|(_, group)| group == "slow")
        })?;
        std::thread::sleep(REACTION);
        let ((before, _), begun) = (self.operations_of(&handle)?, Instant::now());
        std::thread::sleep(JUDGED);
        let (after, _) = self.operations_of(&handle)?;
        let iops = (after - before) as f64 / begun.elapsed().as_secs_f64();
        let is_near = (iops / LIMIT_IOPS as f64 - 1.0).abs() <= OFF_MAX;
        let what = format!("a class of attributes limits the volume in use to {LIMIT_IOPS} IOPS, 1 s later");
        report.claim(what, format!("{iops:.1} IOPS over {} s", JUDGED.as_secs()), is_near);
        self.cluster.wait("the claim shows its class", |cluster| {
            cluster.get(&["pvc", "data"])["status"]["currentVolumeAttributesClassName"] == "slow"
        })?;
        let patch = json!({"spec": {"volumeAttributesClassName": "unlimited"}}).to_string();
        self.cluster.kubectl(&["patch", "pvc", "data", "--patch", &patch])?;
        self.cluster.wait("the volume is in no policy group", |_| {
            self.operations_of(&handle).is_ok_and(|(_, group)| group.is_empty())
        })
    }

    /// Kills the driver, and then the daemon, under the pod.
    fn kill_programs(&mut self, report: &mut Report) -> Result<()> {
        drop(self.driver.take());
        self.goes_on(report, "the driver is killed while a pod writes: it goes on")?;
        self.start_driver()?;
        let state = self.folder.path().join("state");
        self.daemon.process().signal(rustix::process::Signal::KILL);
        while !self.daemon.process().has_ended()? {
            std::thread::sleep(Duration::from_millis(10));
        }
        self.daemon = Daemon::start(&self.binary, &state, &[])?;
        self.goes_on(report, "the daemon is killed and started while a pod writes: it goes on")?;
        self.cluster.start_helpers(&self.socket())
    }

    fn goes_on(&self, report: &mut Report, what: &str) -> Result<()> {
        let handle = self.cluster.bound("data")?;
        let (before, _) = self.operations_of(&handle)?;
        self.cluster
            .wait(what, |_| self.operations_of(&handle).is_ok_and(|(count, _)| count > before + 1000))?;
        let phase = self.cluster.get(&["pod", "writer"])["status"]["phase"].clone();
        report.claim(what, format!("{} more operations, {phase}", 1000), phase == "Running");
        Ok(())
    }

    /// A claim grows, and the pod sees it.
    fn expand(&mut self, report: &mut Report) -> Result<()> {
        self.cluster.apply(&pods::xfs_class("xfs"))?;
        self.cluster.apply(&pods::claim("growing", "xfs", "1Gi"))?;
        self.cluster.apply(&pods::idle("growing", "growing"))?;
        self.cluster.pod_is("growing", "Running")?;
        let patch = json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}}).to_string();
        self.cluster.kubectl(&["patch", "pvc", "growing", "--patch", &patch])?;
        let grown = self.cluster.wait("the claim has 2 GiB", |cluster| {
            cluster.get(&["pvc", "growing"])["status"]["capacity"]["storage"] == "2Gi"
        });
        let size = self.cluster.kubectl(&["exec", "growing", "--", "busybox", "df", "-m", pods::MOUNT]);
        let size = size.unwrap_or_else(|error| format!("{error:#}"));
        let mebibytes = size.split_whitespace().find_map(|word| word.parse::<u64>().ok());
        let is_seen = grown.is_ok() && mebibytes.is_some_and(|mebibytes| mebibytes > 1800);
        report.claim("a claim grows to 2 GiB, and the pod's filesystem with it", last_line(&size), is_seen);
        Ok(())
    }

    /// A snapshot, a volume of it, and a clone have what the pod wrote to a file.
    fn duplicate(&mut self, report: &mut Report) -> Result<()> {
        let told = self.cluster.kubectl(&["exec", "writer", "--", "busybox", "sh", "-c", pods::WRITE_MARK]);
        told.context("the pod writes no mark")?;
        self.cluster.apply(&pods::snapshot("before", "data"))?;
        self.cluster.wait("the snapshot is ready", |cluster| {
            cluster.get(&["volumesnapshot", "before"])["status"]["readyToUse"] == true
        })?;
        let restored =
            pods::with_source("restored", CLASS, ("snapshot.storage.k8s.io", "VolumeSnapshot", "before"));
        let clone = pods::with_source("clone", CLASS, ("", "PersistentVolumeClaim", "data"));
        for (claim, objects, what) in [
            ("restored", restored, "a claim of a snapshot has what was written before"),
            ("clone", clone, "a clone of a claim has what was written before"),
        ] {
            self.cluster.apply(&objects)?;
            self.cluster.apply(&pods::reader(claim, claim))?;
            let ended = self.cluster.pod_is(claim, "Succeeded");
            let log = self.cluster.log(claim);
            let is_same = ended.is_ok() && log.contains(pods::MARK);
            report.claim(what, last_line(&log), is_same);
        }
        self.end_writer(report)
    }

    /// The pod ends without an error, and all objects go.
    fn end_writer(&mut self, report: &mut Report) -> Result<()> {
        self.cluster.kubectl(&["exec", "writer", "--", "busybox", "touch", pods::END])?;
        let ended = self.cluster.pod_is("writer", "Succeeded");
        let log = self.cluster.log("writer");
        report.claim("fio in the pod ends without an error", last_line(&log), ended.is_ok());
        self.cluster.kubectl(&["delete", "pods", "--all", "--timeout=120s"])?;
        self.cluster.kubectl(&["delete", "volumesnapshot", "--all", "--timeout=120s"])?;
        self.cluster.kubectl(&["delete", "pvc", "--all", "--timeout=120s"])?;
        self.cluster.wait("all volumes are deleted", |cluster| {
            cluster.get(&["pv"])["items"].as_array().is_some_and(Vec::is_empty)
        })?;
        let left = self.daemon.json("volume list")?["items"].as_array().map_or(0, Vec::len);
        let attached = self.daemon.json("attachment list")?["items"].as_array().map_or(0, Vec::len);
        let found = format!("{left} volumes, {attached} attachments");
        report.claim("nothing is left after the claims are deleted", found, left + attached == 0);
        Ok(())
    }
}

fn last_line(text: &str) -> String {
    text.lines().last().unwrap_or_default().to_owned()
}

/// The chart and the examples are in the tree.
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_name_the_driver_and_the_classes_that_are_used() {
        let examples = repository_root().join("deploy/examples");
        let read = |name: &str| std::fs::read_to_string(examples.join(name)).unwrap();
        let classes = read("storage-classes.yaml");
        for class in [CLASS, JOURNAL_CLASS] {
            assert!(classes.contains(&format!("name: {class}\n")), "{class}");
        }
        assert_eq!(classes.matches(&format!("provisioner: {DRIVER}\n")).count(), 2);
        assert!(read("volume-attributes-classes.yaml").contains(&format!("driverName: {DRIVER}\n")));
        assert!(read("snapshot-classes.yaml").contains(&format!("driver: {DRIVER}\n")));
    }
}
