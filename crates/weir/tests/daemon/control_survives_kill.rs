//! API calls interrupted by kill -9, again and again.
//!
//! After the restart, exactly the changes that were answered with success exist: no half-made volume and no
//! folder without a volume.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use reqwest::Method;
use reqwest::blocking::Client;
use serde_json::{Value, json};

/// Rounds of running and killing the daemon.
const ROUNDS: u64 = 12;
/// Path of the tenant's volumes.
const VOLUMES: &str = "/v1/tenants/default/volumes";
/// Number of volume names that the calls use.
const NAMES: u64 = 6;
/// Extents of each volume: enough that creating and deleting them takes a while.
const EXTENTS: u64 = 40;

/// Daemon process that is killed when it goes out of scope.
struct Daemon(Child);

impl Daemon {
    fn start(state: &Path) -> Daemon {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command
            .args([
                "serve",
                "--reactors",
                "1",
                "--no-measurement",
                "--pool-full-percent=100",
                "--log-level",
                "warn",
                "--state",
            ])
            .arg(state);
        let mut daemon = Daemon(command.stdout(Stdio::piped()).spawn().unwrap());
        let mut line = String::new();
        BufReader::new(daemon.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("weir is ready: api unix:"), "{line}");
        daemon
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // The daemon may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Small random generator with a fixed seed, so that every run makes the same choices.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// Volumes by name, each with the policy group that it is bound to.
type Model = BTreeMap<String, Option<String>>;

/// API call: its method, path and body, and the volume that results from it.
struct Call {
    name: String,
    request: (Method, String, Value),
    outcome: Option<Option<String>>,
}

impl Call {
    fn choose(model: &Model, numbers: &mut Numbers) -> Call {
        let name = format!("vol{}", numbers.below(NAMES));
        let volume = format!("{VOLUMES}/{name}");
        if !model.contains_key(&name) {
            let body = json!({"name": name, "size_bytes": EXTENTS << 30});
            return Call { name, request: (Method::POST, VOLUMES.into(), body), outcome: Some(None) };
        }
        let bind = |policy: &str| (Method::PATCH, volume.clone(), json!({"qos_policy_group": policy}));
        match numbers.below(3) {
            0 => Call { name, request: (Method::DELETE, volume, Value::Null), outcome: None },
            1 => Call { request: bind("policy1"), outcome: Some(Some("policy1".into())), name },
            _ => Call { request: bind("none"), outcome: Some(None), name },
        }
    }

    /// Returns true if the daemon confirmed the change, and false if the daemon no longer answered.
    fn make(&self, client: &Client) -> bool {
        let (method, path, body) = &self.request;
        let request = client.request(method.clone(), format!("http://localhost{path}"));
        let request = if body.is_null() { request } else { request.json(body) };
        let Ok(response) = request.send() else { return false };
        let is_done = response.status().is_success();
        match response.text() {
            Ok(text) => assert!(is_done, "{path} {body}: {text}"),
            Err(_) => return false,
        }
        true
    }

    fn apply(&self, model: &mut Model) {
        match &self.outcome {
            Some(policy) => model.insert(self.name.clone(), policy.clone()),
            None => model.remove(&self.name),
        };
    }
}

fn client(state: &Path) -> Client {
    Client::builder()
        .no_proxy()
        .timeout(crate::common::TIMEOUT)
        .unix_socket(state.join("api.sock"))
        .build()
        .unwrap()
}

/// Makes calls until the daemon is gone. Returns the confirmed volumes and the call without an answer.
fn call_until_gone(
    client: &Client,
    mut model: Model,
    seed: u64,
    killed: &AtomicBool,
    busy: Sender<()>,
) -> (Model, Call) {
    let mut numbers = Numbers(seed);
    loop {
        let call = Call::choose(&model, &mut numbers);
        // The receiver may be gone: it counts only the first calls.
        let _ = busy.send(());
        if !call.make(client) {
            assert!(killed.load(Ordering::SeqCst), "the daemon went away by itself");
            return (model, call);
        }
        call.apply(&mut model);
    }
}

fn list(client: &Client) -> Model {
    let answer: Value = client.get("http://localhost/v1/volumes").send().unwrap().json().unwrap();
    let volumes = answer["items"].as_array().unwrap();
    let text = |value: &Value| value.as_str().map(str::to_owned);
    volumes.iter().map(|v| (text(&v["name"]).unwrap(), text(&v["qos_policy_group"]["name"]))).collect()
}

/// Kills the daemon after `requests` API calls, once it has made `calls` system calls for the last one.
fn kill(mut daemon: Daemon, (requests, calls): (u64, u64), killed: &AtomicBool, busy: &Receiver<()>) {
    (0..requests).for_each(|_| busy.recv().unwrap());
    let process = daemon.0.id();
    let last = crate::common::program::calls(process) + calls;
    let is_next = || busy.try_recv().is_ok();
    crate::common::wait_until("the daemon goes on", || {
        crate::common::program::calls(process) >= last || is_next()
    });
    killed.store(true, Ordering::SeqCst);
    daemon.0.kill().unwrap();
}

#[test]
fn confirmed_calls_survive_kill_and_nothing_leaks() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path();
    let mut model = Model::new();
    for round in 0..ROUNDS {
        let daemon = Daemon::start(state);
        let client = client(state);
        if round == 0 {
            let policy = json!({"name": "policy1", "limits": {"total": {"iops": 1000}}});
            let request = client.post("http://localhost/v1/tenants/default/policy-groups").json(&policy);
            assert!(request.send().unwrap().status().is_success());
        }
        let (killed, (busy, is_busy)) = (AtomicBool::new(false), channel());
        let mut numbers = Numbers(round);
        let after = (1 + numbers.below(8), numbers.below(40));
        let (confirmed, open) = std::thread::scope(|scope| {
            let confirmed = model.clone();
            let calls = scope.spawn(|| call_until_gone(&client, confirmed, round, &killed, busy));
            kill(daemon, after, &killed, &is_busy);
            calls.join().unwrap()
        });
        model = verify(state, confirmed, &open, round);
    }
    assert!(!model.is_empty(), "the rounds did too little to mean anything");
}

/// Waits until the space of deleted and unfinished volumes is reclaimed.
fn wait_for_space(client: &Client) {
    crate::common::wait_until("all space is given back", || {
        let answer: Value = client.get("http://localhost/v1/background-jobs").send().unwrap().json().unwrap();
        answer["items"] == json!([])
    });
}

/// Starts the daemon again and compares its volumes. The unconfirmed call may or may not have taken effect.
fn verify(state: &Path, confirmed: Model, open: &Call, round: u64) -> Model {
    let _daemon = Daemon::start(state);
    let client = client(state);
    let found = list(&client);
    let mut done = confirmed.clone();
    open.apply(&mut done);
    assert!(
        found == confirmed || found == done,
        "round {round}: {found:?} is neither {confirmed:?} nor {done:?}"
    );
    wait_for_space(&client);
    let folders = std::fs::read_dir(state.join("drive/volumes")).unwrap().count();
    assert_eq!(folders, found.len(), "round {round}: a folder without a volume, or the other way round");
    let status: Value = client.get("http://localhost/v1/status").send().unwrap().json().unwrap();
    assert_eq!(status["alarms"], json!([]), "round {round}");
    found
}
