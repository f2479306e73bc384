//! A Kubernetes cluster of one node on this machine: control plane, kubelet, containerd, and the programs beside a CSI driver.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use weir_testkit::docker::{Engine, IMAGE};

use super::programs::Programs;
use crate::world::process::Process;

/// Name of the node.
pub const NODE: &str = "node";
/// The image of all containers, as the cluster names it.
pub const CLUSTER_IMAGE: &str = "docker.io/weir-test/fio:latest";
/// Token with which everything here calls the API.
const TOKEN: &str = "administrator";
/// Longest time until something that the cluster was told is so.
const SETTLED_MAX: Duration = Duration::from_secs(180);
/// Pause between two looks.
const LOOK_PAUSE: Duration = Duration::from_millis(50);

/// A running cluster. Its processes end with it.
pub struct Cluster {
    programs: Programs,
    folder: PathBuf,
    kubeconfig: PathBuf,
    /// The last one to start ends first.
    processes: Vec<Process>,
    /// The programs that call the CSI driver.
    helpers: Vec<Process>,
}

impl Cluster {
    /// Starts all but the CSI driver and its helpers.
    pub fn start(programs: Programs, folder: &Path) -> Result<Cluster> {
        let kubeconfig = folder.join("kubeconfig");
        let mut cluster = Cluster {
            programs,
            folder: folder.to_owned(),
            kubeconfig,
            processes: Vec::new(),
            helpers: Vec::new(),
        };
        let [etcd_port, etcd_peer_port, api_port] = free_ports()?;
        cluster.start_etcd(etcd_port, etcd_peer_port)?;
        cluster.start_api(etcd_port, api_port)?;
        cluster.start_controllers()?;
        cluster.start_containerd()?;
        cluster.start_kubelet()?;
        Ok(cluster)
    }

    /// Folder of the kubelet.
    pub fn kubelet_folder(&self) -> PathBuf {
        self.folder.join("kubelet")
    }

    fn place(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    fn run(&mut self, name: &str, arguments: &[String]) -> Result<&mut Process> {
        let program = self.programs.path(name).display().to_string();
        self.processes.push(Process::start(name, &self.folder, &program, arguments)?);
        Ok(self.processes.last_mut().expect("it was just added"))
    }

    fn start_etcd(&mut self, port: u16, peer_port: u16) -> Result<()> {
        let (client, peer) = (format!("http://127.0.0.1:{port}"), format!("http://127.0.0.1:{peer_port}"));
        let arguments = [
            format!("--data-dir={}", self.place("etcd")),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster=default={peer}"),
            "--unsafe-no-fsync".to_owned(),
        ];
        let process = self.run("etcd", &arguments)?;
        process.wait_until(|_| std::net::TcpStream::connect(("127.0.0.1", port)).is_ok())
    }

    fn start_api(&mut self, etcd_port: u16, port: u16) -> Result<()> {
        let key = self.folder.join("accounts.key");
        let made = Command::new("openssl").args(["genrsa", "-out"]).arg(&key).arg("2048").output();
        ensure!(made.context("cannot run openssl")?.status.success(), "openssl makes no key");
        std::fs::write(
            self.folder.join("tokens.csv"),
            format!("{TOKEN},administrator,administrator,\"system:masters\"\n"),
        )?;
        std::fs::write(&self.kubeconfig, kubeconfig(port).to_string())?;
        let arguments = [
            format!("--etcd-servers=http://127.0.0.1:{etcd_port}"),
            format!("--secure-port={port}"),
            "--bind-address=127.0.0.1".to_owned(),
            // Nobody looks for the server inside the cluster.
            "--endpoint-reconciler-type=none".to_owned(),
            format!("--cert-dir={}", self.place("certificates")),
            "--service-cluster-ip-range=10.96.0.0/24".to_owned(),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            format!("--service-account-key-file={}", key.display()),
            format!("--service-account-signing-key-file={}", key.display()),
            format!("--token-auth-file={}", self.place("tokens.csv")),
            "--authorization-mode=RBAC".to_owned(),
            "--allow-privileged=true".to_owned(),
            // No resolver knows the name of the node.
            "--kubelet-preferred-address-types=InternalIP".to_owned(),
            // Pods here need no accounts.
            "--disable-admission-plugins=ServiceAccount".to_owned(),
        ];
        self.run("kube-apiserver", &arguments)?;
        self.wait("the API server answers", |cluster| {
            cluster.try_kubectl(&["get", "--raw", "/readyz"]).is_some_and(|answer| answer == "ok")
        })
    }

    fn start_controllers(&mut self) -> Result<()> {
        let kubeconfig = format!("--kubeconfig={}", self.kubeconfig.display());
        let [manager, scheduler] = free_ports()?;
        let common = |port: u16| {
            [kubeconfig.clone(), "--leader-elect=false".to_owned(), format!("--secure-port={port}")]
        };
        let mut arguments = common(manager).to_vec();
        arguments.push(format!("--cert-dir={}", self.place("certificates-manager")));
        arguments.push(format!("--service-account-private-key-file={}", self.place("accounts.key")));
        self.run("kube-controller-manager", &arguments)?;
        let mut arguments = common(scheduler).to_vec();
        arguments.push(format!("--cert-dir={}", self.place("certificates-scheduler")));
        self.run("kube-scheduler", &arguments)?;
        Ok(())
    }

    fn start_containerd(&mut self) -> Result<()> {
        let socket = self.folder.join("containerd.sock");
        let networks = self.folder.join("networks");
        std::fs::create_dir_all(&networks)?;
        // Pods use the network of the host; the node is ready only if it has another one too.
        let network = json!({"cniVersion": "0.4.0", "name": "none", "plugins": [{"type": "loopback"}]});
        std::fs::write(networks.join("none.conflist"), network.to_string())?;
        let configuration = format!(
            "version = 3\nroot = '{root}'\nstate = '{state}'\n\
             [grpc]\naddress = '{socket}'\n\
             [plugins.'io.containerd.cri.v1.images']\nsnapshotter = 'native'\n\
             [plugins.'io.containerd.cri.v1.images'.pinned_images]\nsandbox = '{CLUSTER_IMAGE}'\n\
             [plugins.'io.containerd.cri.v1.runtime']\nrestrict_oom_score_adj = true\n\
             [plugins.'io.containerd.cri.v1.runtime'.cni]\nconf_dir = '{networks}'\n",
            root = self.place("containerd"),
            state = self.place("containerd-state"),
            socket = socket.display(),
            networks = networks.display(),
        );
        std::fs::write(self.folder.join("containerd.toml"), configuration)?;
        // The shims are found by PATH.
        let path = std::env::var("PATH").unwrap_or_default();
        let arguments = [
            format!("PATH={}:{path}", self.programs.folder().display()),
            self.programs.path("containerd").display().to_string(),
            format!("--config={}", self.place("containerd.toml")),
        ];
        let mut containerd = Process::start("containerd", &self.folder, "env", &arguments)?;
        containerd.wait_until(|_| std::os::unix::net::UnixStream::connect(&socket).is_ok())?;
        self.processes.push(containerd);
        self.import_image(&socket)
    }

    /// Makes the image of all containers, and gives it to containerd. It has this machine's fio and busybox.
    fn import_image(&self, socket: &Path) -> Result<()> {
        let engine = Engine::try_start(&self.folder.join("docker"), &[]).map_err(anyhow::Error::msg)?;
        let archive = self.place("image.tar");
        // A sandbox of a pod runs the image's own command.
        let idle = engine.run(&["create", "--name=idle", IMAGE, "busybox", "sleep", "2147483647"]);
        ensure!(idle.status.success(), "docker makes no container: {}", engine.log_end());
        let command = "--change=CMD [\"busybox\", \"sleep\", \"2147483647\"]";
        let path = "--change=ENV PATH=/usr/local/bin:/usr/bin:/bin";
        for arguments in
            [&["commit", command, path, "idle", IMAGE][..], &["save", "--output", &archive, IMAGE]]
        {
            let output = engine.run(arguments);
            ensure!(output.status.success(), "docker: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        drop(engine);
        let ctr = self.programs.path("ctr");
        let mut command = Command::new(ctr);
        command.arg("--address").arg(socket).args([
            "--namespace=k8s.io",
            "images",
            "import",
            "--local",
            "--snapshotter=native",
        ]);
        let output = command.arg(archive).output()?;
        ensure!(output.status.success(), "ctr: {}", String::from_utf8_lossy(&output.stderr).trim());
        Ok(())
    }

    fn start_kubelet(&mut self) -> Result<()> {
        let folder = self.kubelet_folder();
        std::fs::create_dir_all(&folder)?;
        let [port, health_port] = free_ports()?;
        let configuration = json!({
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": "0.0.0.0",
            "port": port,
            "healthzPort": health_port,
            "authentication": {"anonymous": {"enabled": true}, "webhook": {"enabled": false}},
            "authorization": {"mode": "AlwaysAllow"},
            "containerRuntimeEndpoint": format!("unix://{}", self.place("containerd.sock")),
            "cgroupDriver": "cgroupfs",
            "cgroupsPerQOS": false,
            "enforceNodeAllocatable": [],
            "failCgroupV1": false,
            "failSwapOn": false,
            "localStorageCapacityIsolation": false,
            "evictionHard": {"memory.available": "1Mi", "nodefs.available": "0%", "imagefs.available": "0%"},
            "resolvConf": "",
            "volumePluginDir": folder.join("plugins-exec").display().to_string(),
            "podLogsDir": folder.join("logs").display().to_string(),
        });
        let file = self.folder.join("kubelet.json");
        std::fs::write(&file, configuration.to_string())?;
        let arguments = [
            format!("--config={}", file.display()),
            format!("--kubeconfig={}", self.kubeconfig.display()),
            format!("--root-dir={}", folder.display()),
            format!("--cert-dir={}", self.place("certificates-kubelet")),
            format!("--hostname-override={NODE}"),
        ];
        self.run("kubelet", &arguments)?;
        self.wait("the node is ready", |cluster| {
            let conditions = cluster.get(&["node", NODE])["status"]["conditions"].clone();
            let mut conditions = conditions.as_array().into_iter().flatten();
            conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
        })
    }

    /// Starts the programs of the Kubernetes project that call a CSI driver, instead of earlier ones: they end when their
    /// driver does, and are started again with it.
    pub fn start_helpers(&mut self, socket: &Path) -> Result<()> {
        let definitions = self.programs.snapshot_definitions()?;
        self.kubectl(&["apply", "--kustomize", &definitions.display().to_string()])?;
        self.helpers.clear();
        let kubeconfig = format!("--kubeconfig={}", self.kubeconfig.display());
        let socket = format!("--csi-address={}", socket.display());
        let common = [kubeconfig.clone(), socket];
        for (name, more) in [
            ("csi-provisioner", &["--extra-create-metadata"][..]),
            ("csi-attacher", &[]),
            ("csi-resizer", &[]),
            ("csi-snapshotter", &["--feature-gates=CSIVolumeGroupSnapshot=true"]),
        ] {
            let more = more.iter().map(|option| (*option).to_owned());
            self.run_helper(name, &common.iter().cloned().chain(more).collect::<Vec<_>>())?;
        }
        self.run_helper("snapshot-controller", &[kubeconfig, "--leader-election=false".to_owned()])
    }

    fn run_helper(&mut self, name: &str, arguments: &[String]) -> Result<()> {
        let program = self.programs.path(name).display().to_string();
        self.helpers.push(Process::start(name, &self.folder, &program, arguments)?);
        Ok(())
    }

    /// Renders the chart of a folder.
    pub fn rendered(&self, chart: &Path) -> Result<String> {
        let output =
            Command::new(self.programs.path("helm")).args(["template", "weir"]).arg(chart).output()?;
        ensure!(output.status.success(), "helm: {}", String::from_utf8_lossy(&output.stderr).trim());
        Ok(String::from_utf8(output.stdout)?)
    }

    fn kubectl_command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.programs.path("kubectl"));
        command.arg("--kubeconfig").arg(&self.kubeconfig).args(arguments).stdin(Stdio::null());
        command
    }

    /// Runs kubectl. Returns its output.
    pub fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        let output = self.kubectl_command(arguments).output().context("cannot run kubectl")?;
        if !output.status.success() {
            bail!("kubectl {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(String::from_utf8(output.stdout)?)
    }

    fn try_kubectl(&self, arguments: &[&str]) -> Option<String> {
        self.kubectl(arguments).ok()
    }

    /// Applies objects.
    pub fn apply(&self, objects: &Value) -> Result<()> {
        self.apply_text(&objects.to_string(), &[])
    }

    /// Applies objects in YAML, with more options of kubectl.
    pub fn apply_text(&self, objects: &str, more: &[&str]) -> Result<()> {
        let file = self.folder.join("objects.yaml");
        std::fs::write(&file, objects)?;
        let file = file.display().to_string();
        self.kubectl(&[&["apply", "--filename", &file], more].concat()).map(drop)
    }

    /// An object, or null if there is none.
    pub fn get(&self, object: &[&str]) -> Value {
        let text = self.try_kubectl(&[&["get", "--output=json"], object].concat());
        text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
    }

    /// Waits until something is so.
    pub fn wait(&self, what: &str, is_so: impl Fn(&Cluster) -> bool) -> Result<()> {
        let start = Instant::now();
        while !is_so(self) {
            if start.elapsed() > SETTLED_MAX {
                let events = self.try_kubectl(&["get", "events", "--all-namespaces"]).unwrap_or_default();
                bail!("not within {SETTLED_MAX:?}: {what}\n{events}");
            }
            std::thread::sleep(LOOK_PAUSE);
        }
        Ok(())
    }

    /// Waits until a claim has a volume. Returns the volume's handle, by which the driver knows it.
    pub fn bound(&self, claim: &str) -> Result<String> {
        self.wait(&format!("claim {claim} is bound"), |cluster| {
            cluster.get(&["pvc", claim])["status"]["phase"] == "Bound"
        })?;
        let volume = self.get(&["pvc", claim])["spec"]["volumeName"].clone();
        let volume = self.get(&["pv", volume.as_str().context("the claim names no volume")?]);
        let handle = volume["spec"]["csi"]["volumeHandle"].as_str();
        handle.map(str::to_owned).context("the volume has no handle")
    }

    /// Waits until a pod is in a phase.
    pub fn pod_is(&self, pod: &str, phase: &str) -> Result<()> {
        self.wait(&format!("pod {pod} is {phase}"), |cluster| {
            cluster.get(&["pod", pod])["status"]["phase"] == phase
        })
    }

    /// The output of a pod.
    pub fn log(&self, pod: &str) -> String {
        // The kubelet serves logs with a certificate of its own.
        self.try_kubectl(&["logs", "--insecure-skip-tls-verify-backend=true", pod]).unwrap_or_default()
    }
}

impl Drop for Cluster {
    /// Ends the pods while their volumes are served, and then all processes.
    fn drop(&mut self) {
        let _ = self.try_kubectl(&["delete", "pods", "--all", "--grace-period=1", "--timeout=60s"]);
        self.helpers.clear();
        while let Some(process) = self.processes.pop() {
            drop(process);
        }
        let folder = self.folder.display().to_string();
        let _ = Command::new("pkill").args(["-9", "-f", &format!("containerd-shim.*{folder}")]).status();
    }
}

fn kubeconfig(port: u16) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "administrator"}}],
        "clusters": [{"name": "here", "cluster": {
            "server": format!("https://127.0.0.1:{port}"), "insecure-skip-tls-verify": true,
        }}],
        "users": [{"name": "administrator", "user": {"token": TOKEN}}],
    })
}

/// Ports that nobody uses now.
fn free_ports<const COUNT: usize>() -> Result<[u16; COUNT]> {
    let listeners = [(); COUNT].map(|()| TcpListener::bind(("127.0.0.1", 0)));
    let mut ports = [0; COUNT];
    for (port, listener) in ports.iter_mut().zip(listeners) {
        *port = listener?.local_addr()?.port();
    }
    Ok(ports)
}
