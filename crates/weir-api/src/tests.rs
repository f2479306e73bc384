//! Tests of the API over its real socket: every operation is called, and every answer is checked against the
//! served description.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;

use reqwest::Method;
use reqwest::blocking::Client;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use serde_json::{Value, json};
use tokio::sync::watch;

mod cgroups;
mod description;
mod events;
mod idempotency;
mod operations;
mod pools;

use super::*;
use weir_control::testing::configuration;
use weir_engine::{DataPlane, DataPlaneConfig, IoMethod};
use weir_engine_interface::ExportTable;
use weir_host::token::Token;

/// A served API, and the operations that were called.
struct World {
    client: Client,
    base: String,
    description: Value,
    called: BTreeSet<String>,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
    data_plane: Arc<DataPlane>,
    control: Arc<Control>,
    history: Arc<History>,
    folder: tempfile::TempDir,
}

/// Token of the TCP listener, and its form in a request header.
const TOKEN: &str = "0123456789abcdef0123456789abcdef";
const SHOWN: &str = "Bearer 0123456789abcdef0123456789abcdef";

impl World {
    fn start(tcp: bool) -> World {
        let folder = tempfile::tempdir().unwrap();
        let data_plane =
            DataPlane::start(DataPlaneConfig { reactors: 1, io_method: IoMethod::Uring }).unwrap();
        let config = configuration(folder.path());
        let control = Control::start(&config, data_plane.clone(), Arc::new(ExportTable::default())).unwrap();
        let socket = folder.path().join("api.sock");
        let token = || Arc::new(Token::new(TOKEN.to_owned()));
        let address = tcp.then(|| ("127.0.0.1:0".parse().unwrap(), token()));
        let listeners = ApiListeners::bind(&socket, None, address).unwrap();
        let base = if tcp { listeners.addresses()[1].clone() } else { "http://localhost".to_owned() };
        let shown = (AUTHORIZATION, HeaderValue::from_static(SHOWN));
        let builder = Client::builder().no_proxy().default_headers(HeaderMap::from_iter([shown]));
        let client = if tcp { builder } else { builder.unix_socket(socket) }.build().unwrap();
        let (stop, stopped) = watch::channel(false);
        let history = Arc::new(History::begin());
        let (served, shown) = (control.clone(), history.clone());
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(serve(&listeners, served, Facts::default(), &shown, stopped)).unwrap();
        });
        let called = BTreeSet::new();
        let mut world = World {
            client,
            base,
            description: Value::Null,
            called,
            stop,
            thread: Some(thread),
            data_plane,
            control,
            history,
            folder,
        };
        world.description =
            world.client.get(format!("{}/openapi.json", world.base)).send().unwrap().json().unwrap();
        world
    }

    /// Calls an operation by its template path, requires a status, and checks the form of the answer. The
    /// name may be `TENANT/NAME`, or `VOLUME#BINDING`.
    fn call(&mut self, method: &str, template: &str, name: &str, body: Option<Value>, status: u16) -> Value {
        let (tenant, name) = name.split_once('/').unwrap_or(("default", name));
        let (name, binding) = name.split_once('#').unwrap_or((name, ""));
        let mut path =
            template.replace("{tenant}", if template.ends_with("{tenant}") { name } else { tenant });
        for noun in [
            "{volume}",
            "{policy_group}",
            "{drive}",
            "{pool}",
            "{template}",
            "{kind}",
            "{id}",
            "{attachment}",
        ] {
            path = path.replace(noun, name);
        }
        let path = path.replace("{snapshot}", SNAPSHOT).replace("{binding}", binding);
        let (template, _) = template.split_once('?').unwrap_or((template, ""));
        let request = self
            .client
            .request(Method::from_bytes(method.as_bytes()).unwrap(), format!("{}{path}", self.base));
        let request = match &body {
            Some(body) => request.json(body),
            None => request,
        };
        let response = request.send().unwrap();
        let found = response.status().as_u16();
        let headers = response.headers().clone();
        let text = response.text().unwrap();
        assert_eq!(found, status, "{method} {path} {body:?}: {text}");
        self.called.insert(format!("{method} {template}"));
        let answer = serde_json::from_str(&text).unwrap_or(Value::String(text));
        description::check_answer(&self.description, (method, template), status, &headers, &answer);
        answer
    }

    fn described(&self) -> BTreeSet<String> {
        let paths = self.description["paths"].as_object().unwrap();
        let of = |(path, operations): (&String, &Value)| {
            let methods = operations.as_object().unwrap().keys().map(|method| method.to_ascii_uppercase());
            methods.map(|method| format!("{method} {path}")).collect::<Vec<_>>()
        };
        paths.iter().flat_map(of).collect()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.send(true).unwrap();
        self.thread.take().unwrap().join().unwrap();
        self.data_plane.shutdown();
    }
}

const VOLUMES: &str = "/v1/tenants/{tenant}/volumes";
const VOLUME: &str = "/v1/tenants/{tenant}/volumes/{volume}";
const GROUPS: &str = "/v1/tenants/{tenant}/policy-groups";
const GROUP: &str = "/v1/tenants/{tenant}/policy-groups/{policy_group}";
const ADAPTIVE_GROUPS: &str = "/v1/tenants/{tenant}/adaptive-policy-groups";
const ADAPTIVE_GROUP: &str = "/v1/tenants/{tenant}/adaptive-policy-groups/{policy_group}";
const POLICIES: &str = "/v1/policies";
const TENANT: &str = "/v1/tenants/{tenant}";

/// Detail and remedy of a problem.
fn message_of(answer: &Value) -> String {
    let problem: weir_api_types::Problem = serde_json::from_value(answer.clone()).unwrap();
    problem.message()
}

/// Adds, shows and removes an emulated drive.
fn call_drives(api: &mut World) {
    let folder = tempfile::tempdir().unwrap();
    let emulation = json!({"iops": 2000, "bytes_per_second": 5_000_000, "latency_ns": 10, "seek_ns": 0});
    let body = json!({"path": folder.path(), "name": "slow", "emulation": emulation, "measure": false});
    let drive = api.call("POST", "/v1/drives", "", Some(body), 201);
    assert_eq!((&drive["emulation"], &drive["state"]), (&emulation, &json!("online")));
    let drives = api.call("GET", "/v1/drives", "", None, 200);
    let names: Vec<_> = drives["items"].as_array().unwrap().iter().map(|drive| &drive["name"]).collect();
    assert_eq!(names, ["default", "slow"]);
    let volume = api.call("POST", VOLUMES, "", Some(volume_with("drive", "slow")), 201);
    assert_eq!(
        (&volume["drives"][0]["name"], &volume["drives"][0]["emulation"]),
        (&json!("slow"), &emulation)
    );
    assert_eq!(api.call("GET", "/v1/drives/{drive}", "slow", None, 200)["volumes"], 1);
    let metrics = api.call("GET", "/metrics", "", None, 200);
    let label = "drive=\"slow\",emulated=\"iops=2000,bandwidth=5MB/s,latency=10ns\"";
    assert!(metrics.as_str().unwrap().contains(&format!("weir_drive_volumes{{{label}}} 1.0")), "{metrics}");
    let drain = api.call("DELETE", "/v1/drives/{drive}", "slow", None, 202);
    let name = &drain["object"]["name"];
    assert_eq!((&drain["kind"], name, &drain["state"]), (&json!("drain"), &json!("slow"), &json!("running")));
    let left = |api: &mut World| {
        let drain = api.call("GET", "/v1/drives/{drive}", "slow", None, 200)["drain"].clone();
        json!([drain["extents_left"], drain["journals_left"], drain["deletions_left"]])
    };
    assert_eq!(left(api), json!([1, 0, 0]));
    let kept = api.call("DELETE", "/v1/drives/{drive}/drain", "slow", None, 200);
    assert_eq!(kept.get("drain"), None);
    api.call("DELETE", "/v1/drives/{drive}/drain", "none-such", None, 404);
    api.call("DELETE", VOLUME, "x", None, 204);
    let jobs = api.call("GET", "/v1/background-jobs", "", None, 200)["items"].clone();
    assert_eq!(
        (&jobs[0]["id"], &jobs[0]["drive"], &jobs[0]["kind"]),
        (&volume["id"], &json!("slow"), &json!("reclaim"))
    );
    let metrics = api.call("GET", "/metrics", "", None, 200);
    let series = "weir_background_jobs{kind=\"reclaim\",drive=\"slow\"} 1.0";
    assert!(metrics.as_str().unwrap().contains(series), "{metrics}");
    api.call("DELETE", "/v1/drives/{drive}", "slow", None, 202);
    assert_eq!(left(api), json!([0, 0, 1]));
    api.call("DELETE", "/v1/drives/{drive}/drain", "slow", None, 200);
    weir_control::testing::settle(&api.control);
    assert_eq!(api.call("GET", "/v1/background-jobs", "", None, 200)["items"], json!([]));
    let done = api.call("DELETE", "/v1/drives/{drive}", "slow", None, 202);
    assert_eq!((&done["state"], &done["id"]), (&json!("succeeded"), &drain["id"]));
}

/// Measures a drive and gives it another class.
fn call_measurements(api: &mut World) {
    const DRIVE: &str = "/v1/drives/{drive}";
    let folder = tempfile::tempdir().unwrap();
    let emulation = json!({"iops": 300, "latency_ns": 1_000_000});
    let body = json!({"path": folder.path(), "name": "m", "emulation": emulation});
    let added = api.call("POST", "/v1/drives", "", Some(body), 201);
    assert_eq!((added.get("class"), &added["class_reason"]), (None, &json!("being measured")));
    let refused = api.call("POST", "/v1/drives/{drive}/measure", "m", None, 409);
    assert!(message_of(&refused).contains("is being measured already"), "{refused}");
    weir_control::testing::settle_measurements(&api.control);
    let measured = api.call("GET", DRIVE, "m", None, 200);
    assert_eq!((&measured["class"], measured.get("measurement_progress")), (&json!("low"), None));
    assert!(measured["measurement"]["read"]["iops"].as_u64().unwrap() <= 310, "{measured}");
    let modified = api.call("PATCH", DRIVE, "m", Some(json!({"class": "high"})), 200);
    assert_eq!(modified["class"], "high");
    let modified = api.call("PATCH", DRIVE, "m", Some(json!({"class": "auto"})), 200);
    assert_eq!((&modified["class"], &modified["class_reason"]), (&json!("low"), &measured["class_reason"]));
    let again = api.call("POST", "/v1/drives/{drive}/measure", "m", None, 202);
    assert_eq!((&again["kind"], &again["progress"]["unit"]), (&json!("measurement"), &json!("percent")));
    api.call("PATCH", DRIVE, "m", Some(json!({"class": "fast"})), 400);
    api.call("DELETE", DRIVE, "m", None, 202);
    api.call("POST", "/v1/drives/{drive}/measure", "m", None, 404);
    let refused = api.call("POST", "/v1/drives/{drive}/accept", "default", None, 409);
    assert!(message_of(&refused).contains("there is nothing to accept"), "{refused}");
}

/// Shows, changes and resets the policy of a kind of background work.
fn call_background_policies(api: &mut World) {
    const POLICIES: &str = "/v1/background-policies";
    const POLICY: &str = "/v1/background-policies/{kind}";
    let list = |api: &mut World| api.call("GET", POLICIES, "", None, 200)["items"][0].clone();
    let built_in = list(api);
    assert_eq!(api.call("GET", POLICY, "reclaim", None, 200), built_in);
    api.call("GET", POLICY, "backup", None, 404);
    assert_eq!((&built_in["weight"], &built_in["is_built_in"]), (&json!(10), &json!(true)));
    let change = json!({"weight": 7, "ceiling": {"iops": 100}, "deadline_seconds": 60});
    let changed = api.call("PATCH", POLICY, "reclaim", Some(change), 200);
    assert_eq!((&changed, &changed["deadline_seconds"]), (&list(api), &json!(60)));
    let none = json!({"ceiling": {}, "deadline_seconds": 0});
    let changed = api.call("PATCH", POLICY, "reclaim", Some(none), 200);
    assert_eq!((&changed["weight"], changed.get("deadline_seconds")), (&json!(7), None));
    for (kind, body, status, words) in [
        ("backup", json!({"weight": 7}), 404, "there are: reclaim"),
        ("reclaim", json!({"weight": 0}), 400, "weight 0 is not accepted; 1 to 10000 is"),
        ("reclaim", json!({"deadline_seconds": 2_592_001}), 400, "1 to 2592000 seconds"),
        ("reclaim", json!({"ceiling": {"iops": 0}}), 400, "rate 0IOPS is not accepted"),
        ("reclaim", json!({"floor": {"iops": 10}}), 400, "unknown field `floor`"),
    ] {
        let answer = api.call("PATCH", POLICY, kind, Some(body), status);
        assert!(message_of(&answer).contains(words), "{answer}");
    }
    api.call("DELETE", POLICY, "reclaim", None, 204);
    assert_eq!(list(api), built_in);
}

/// Name of the snapshot in all calls that need one.
const SNAPSHOT: &str = "s1";

/// Creates snapshots and a clone, and restores.
fn call_snapshots(api: &mut World) {
    const OF_VOLUME: &str = "/v1/tenants/{tenant}/volumes/{volume}/snapshots/{snapshot}";
    api.call("POST", VOLUMES, "", Some(json!({"name": "x", "size_bytes": 1u64 << 30})), 201);
    let wanted = json!({"name": SNAPSHOT, "volumes": ["x"]});
    let made = api.call("POST", "/v1/tenants/{tenant}/snapshots", "", Some(wanted.clone()), 201);
    assert_eq!(made["items"][0]["export_name"], "x@s1");
    api.call("POST", "/v1/tenants/{tenant}/snapshots", "", Some(wanted), 409);
    api.call("POST", "/v1/tenants/{tenant}/snapshots", "", Some(json!({"name": "s2", "volumes": []})), 400);
    assert_eq!(api.call("GET", "/v1/snapshots?volume=x", "", None, 200), made);
    let of_volume = "/v1/tenants/{tenant}/volumes/{volume}/snapshots";
    assert_eq!(api.call("GET", of_volume, "x", None, 200), made);
    assert_eq!(api.call("GET", OF_VOLUME, "x", None, 200), made["items"][0]);
    let clone = json!({"name": "twin", "snapshot": SNAPSHOT});
    let clone = api.call("POST", "/v1/tenants/{tenant}/volumes/{volume}/clones", "x", Some(clone), 201);
    assert_eq!(clone["cloned_from"], "x@s1");
    let restored = api.call("POST", &format!("{OF_VOLUME}/restore"), "x", Some(json!({})), 200);
    assert_eq!((&restored["name"], &restored["snapshots"]), (&json!("x"), &json!(1)));
    api.call("DELETE", VOLUME, "x", None, 409);
    api.call("DELETE", OF_VOLUME, "x", None, 204);
    api.call("DELETE", OF_VOLUME, "x", None, 404);
    for volume in ["x", "twin"] {
        api.call("DELETE", VOLUME, volume, None, 204);
    }
    weir_control::testing::settle(&api.control);
}

/// Asks for attachments. Those that exist need a host, and are tested with the daemon.
fn call_attachments(api: &mut World) {
    const ATTACHMENTS: &str = "/v1/tenants/{tenant}/volumes/{volume}/attachments";
    const ATTACHMENT: &str = "/v1/attachments/{attachment}";
    let nobody = "84892b7a-92b2-4ffd-911b-ea172c30e8b4";
    api.call("POST", VOLUMES, "", Some(json!({"name": "attached", "size_bytes": 1u64 << 20})), 201);
    assert_eq!(api.call("GET", "/v1/attachments", "", None, 200), json!({"items": []}));
    assert_eq!(api.call("GET", ATTACHMENTS, "attached", None, 200), json!({"items": []}));
    api.call("POST", ATTACHMENTS, "attached", Some(json!({"consumer": "c".repeat(256)})), 400);
    api.call("GET", ATTACHMENT, nobody, None, 404);
    api.call("DELETE", ATTACHMENT, nobody, None, 404);
    api.call("DELETE", VOLUME, "attached", None, 204);
}

/// Scrubs a volume and shows the result.
fn call_scrubs(api: &mut World) {
    const SCRUB: &str = "/v1/tenants/{tenant}/volumes/{volume}/scrub";
    api.call("POST", VOLUMES, "", Some(json!({"name": "x", "size_bytes": 1u64 << 30})), 201);
    let list = |api: &mut World| api.call("GET", "/v1/scrubs", "", None, 200)["items"][0].clone();
    assert_eq!((&list(api)["volume"], &list(api)["state"]), (&json!("x"), &json!("never")));
    api.call("POST", SCRUB, "x", None, 200);
    weir_testkit::wait::wait_until("the scrub has ended", || {
        api.control.scrubs.settle_scrubs();
        list(api)["state"] == "completed"
    });
    let volume = api.call("GET", VOLUME, "x", None, 200);
    assert_eq!((&volume["scrub"], &volume["scrub"]["blocks_found"]), (&list(api), &json!(0)));
    let metrics = api.call("GET", "/metrics", "", None, 200);
    let series = "weir_volume_scrub_found_blocks_total{tenant=\"default\",volume=\"x\"} 0.0";
    assert!(metrics.as_str().unwrap().contains(series), "{metrics}");
    assert_eq!(api.call("DELETE", SCRUB, "x", None, 200), list(api));
    assert_eq!(api.call("GET", SCRUB, "x", None, 200), list(api));
    let journals = "/v1/tenants/{tenant}/volumes/{volume}/journals";
    assert_eq!(api.call("GET", journals, "x", None, 200), json!({"items": []}));
    api.call("GET", journals, "none-such", None, 404);
    api.call("GET", SCRUB, "none-such", None, 404);
    api.call("POST", SCRUB, "none-such", None, 404);
    api.call("DELETE", SCRUB, "none-such", None, 404);
    api.call("DELETE", VOLUME, "x", None, 204);
    weir_control::testing::settle(&api.control);
}

#[test]
fn drive_kind_and_its_parameters_are_equivalent() {
    let mut api = World::start(false);
    let mut add = |name: &str, emulation: Value| {
        let folder = tempfile::tempdir().unwrap();
        let body = json!({"path": folder.path(), "name": name, "emulation": emulation});
        let drive = api.call("POST", "/v1/drives", "", Some(body), 201);
        api.call("DELETE", "/v1/drives/{drive}", name, None, 202);
        drive["emulation"].clone()
    };
    let nvme = json!({
        "kind": "nvme", "iops": 400_000, "bytes_per_second": 3_000_000_000_u64, "latency_ns": 77_500,
        "seek_ns": 0, "flush_ns": 20_000,
    });
    assert_eq!(add("d1", json!({"kind": "nvme"})), nvme);
    assert_eq!(add("d2", nvme.clone()), nvme);
    let changed = add("d3", json!({"kind": "nvme", "latency_ns": 5, "seek_ns": 6, "parallel": 7}));
    let expected = json!({
        "iops": 400_000, "bytes_per_second": 3_000_000_000_u64, "latency_ns": 5, "seek_ns": 6,
        "flush_ns": 20_000, "parallel": 7,
    });
    assert_eq!(changed, expected);
}

#[test]
fn invalid_drive_error_names_the_value() {
    let mut api = World::start(false);
    let emulated = |emulation| json!({"path": "/", "emulation": emulation});
    let post = |body, status, kind, words| ("POST", "/v1/drives", "", body, status, kind, words);
    check_refused(
        &mut api,
        [
            post(json!({"path": "srv"}), 400, "invalid", "'srv' is not an absolute path"),
            post(json!({"path": "/dev/null"}), 400, "invalid", "'/dev/null' is not a directory"),
            post(json!({"path": "/no/such/place"}), 400, "invalid", "'/no/such/place' does not exist"),
            post(emulated(json!({"iops": 0})), 400, "invalid", "'iops=0' is not from 1 to"),
            post(emulated(json!({"latency_ns": 5})), 400, "invalid", "required unless a kind is told"),
            post(emulated(json!({"kind": "tape"})), 400, "invalid", "expected one of `ebs-io1`"),
            post(
                emulated(json!({"kind": "nvme", "parallel": 0})),
                400,
                "invalid",
                "'parallel=0' is not from",
            ),
            post(json!({"path": "/", "name": "a b"}), 400, "invalid", "character ' '"),
            post(json!({"path": "/"}), 400, "invalid", "name the drive with --name"),
            ("GET", "/v1/drives/{drive}", "x", Value::Null, 404, "not_found", "there are: default"),
            (
                "PATCH",
                "/v1/drives/{drive}",
                "x",
                json!({"class": "low"}),
                404,
                "not_found",
                "unknown drive 'x'",
            ),
            (
                "PATCH",
                "/v1/drives/{drive}",
                "default",
                json!({"class": "auto"}),
                409,
                "refused",
                "was not measured",
            ),
            ("DELETE", "/v1/drives/{drive}", "default", Value::Null, 409, "refused", "always exists"),
            ("POST", VOLUMES, "", volume_with("drive", "x"), 404, "not_found", "unknown drive 'x'"),
        ],
    );
}

#[test]
fn every_operation_matches_its_description() {
    let mut world = World::start(false);
    let api = &mut world;
    api.call("POST", "/v1/tenants", "", Some(json!({"name": "svm01"})), 201);
    api.call("POST", "/v1/tenants", "", Some(json!({"name": "gone"})), 201);
    api.call("DELETE", "/v1/tenants/{tenant}", "gone", None, 204);
    call_drives(api);
    call_measurements(api);
    call_background_policies(api);
    assert_eq!(api.call("GET", "/v1/journals", "", None, 200), json!({"items": []}));
    call_scrubs(api);
    call_attachments(api);
    call_snapshots(api);
    let tenants = api.call("GET", "/v1/tenants", "", None, 200);
    assert_eq!(tenants["items"].as_array().unwrap().len(), 2);
    let volume = call_groups_and_a_volume(api);
    call_volumes(api, &volume);
    call_state_of_daemon(api);
    events::call_alarms_and_events(api);
    operations::call_operations(api);
    let body = json!({"tenant": "svm01", "volumes": ["vol1"], "seconds": 1});
    let trace = api.call("POST", "/v1/recordings", "", Some(body), 200);
    assert!(trace.as_str().unwrap().starts_with("WEIRTRCE"), "{trace}");
    api.call("POST", "/v1/recordings", "", Some(json!({"volumes": [], "seconds": 1})), 400);
    adapt(api);
    export_and_apply(api);
    cgroups::call_cgroups(api);
    pools::call_pools(api);
    call_templates(api);
    api.call("DELETE", VOLUME, "svm01/vol1", None, 204);
    api.call("DELETE", GROUP, "svm01/gold", None, 204);
    assert_eq!(api.called, api.described(), "called and described operations differ");
}

/// Creates a policy group and a volume of it, and returns the volume.
fn call_groups_and_a_volume(api: &mut World) -> Value {
    let limits = json!({"total": {"iops": 10000, "bytes_per_second": 300_000_000}});
    let body = json!({"name": "policy1", "tenant": "svm01", "limits": limits, "is_shared": false});
    api.call("POST", GROUPS, "", Some(body.clone()), 400);
    assert_eq!(api.call("POST", GROUPS, "svm01/", Some(body), 201)["number"], 1);
    let body = json!({"name": "vol1", "size_bytes": 1u64 << 30,
        "io_priority": "high", "class_policy": "prefer"});
    let volume = api.call("POST", VOLUMES, "svm01/", Some(body), 201);
    assert_eq!(volume["export_name"], "svm01/vol1");
    let bound = api.call("PATCH", VOLUME, "svm01/vol1", Some(json!({"qos_policy_group": "policy1"})), 200);
    assert_eq!(bound["qos_policy_group"]["limits"]["total"]["iops"], 10000);
    let body = json!({"limits": {"total": {"iops": 1000}, "read": {"bytes_per_second": 5}}});
    let group = api.call("PATCH", GROUP, "svm01/policy1", Some(body), 200);
    assert_eq!((&group["limits"]["total"], &group["workloads"]), (&json!({"iops": 1000}), &json!(1)));
    let (path, body) = (GROUP, json!({"name": "gold"}));
    api.call("PATCH", path, "svm01/policy1", Some(body), 200);
    assert_eq!(api.call("GET", GROUP, "svm01/gold", None, 200)["name"], "gold");
    assert_eq!(api.call("GET", "/v1/policy-groups", "", None, 200)["items"].as_array().unwrap().len(), 1);
    let explained = api.call(
        "GET",
        "/v1/tenants/{tenant}/volumes/{volume}/explanation?interval_ns=100000000",
        "svm01/vol1",
        None,
        200,
    );
    assert_eq!((&explained["cause"], &explained["operations"]), (&json!("idle"), &json!(0)));
    api.call(
        "GET",
        "/v1/tenants/{tenant}/volumes/{volume}/explanation?interval_ns=1",
        "svm01/vol1",
        None,
        400,
    );
    volume
}

fn call_volumes(api: &mut World, volume: &Value) {
    api.call("PATCH", VOLUME, "svm01/vol1", Some(json!({"size_bytes": 2u64 << 30})), 200);
    assert_eq!(api.call("GET", VOLUME, "svm01/vol1", None, 200)["size_bytes"], 2u64 << 30);
    assert_eq!(api.call("GET", "/v1/volumes?tenant=default", "", None, 200)["items"], json!([]));
    assert_eq!(api.call("GET", VOLUMES, "svm01/", None, 200)["items"].as_array().unwrap().len(), 1);
    for (filter, count) in [("name=vol1", 1), ("name=vol2", 0), ("template=x", 0), ("health=online", 1)] {
        let found = api.call("GET", &format!("/v1/volumes?{filter}"), "", None, 200);
        assert_eq!(found["items"].as_array().unwrap().len(), count, "{filter}");
    }
    let id = volume["id"].as_str().unwrap();
    assert_eq!(api.call("GET", "/v1/volumes/{id}", id, None, 200)["name"], "vol1");
    let named = api.call("PATCH", "/v1/volumes/{id}", id, Some(json!({"read_only": true})), 200);
    assert_eq!(named["read_only"], true);
    api.call("PATCH", "/v1/volumes/{id}", id, Some(json!({"read_only": false})), 200);
    api.call("DELETE", "/v1/volumes/{id}", "00000000-0000-0000-0000-000000000000", None, 404);
}

fn call_state_of_daemon(api: &mut World) {
    let sample = api.call("GET", "/v1/statistics/volumes?volume=vol1&tenant=svm01", "", None, 200);
    assert_eq!(sample["volumes"][0]["qos_policy_group"], "gold");
    let sample = api.call("GET", "/v1/statistics/policy-groups", "", None, 200);
    assert_eq!(sample["policy_groups"][0]["workloads"], 1);
    let status = api.call("GET", "/v1/status", "", None, 200);
    assert_eq!((&status["status"], &status["volumes"]["count"]), (&json!("degraded"), &json!(1)));
    let alarm = "the class is not met: requested high, actual not known";
    assert_eq!((&status["alarms"][0]["message"], &status["alarm_count"]), (&json!(alarm), &json!(1)));
    let metrics = api.call("GET", "/metrics", "", None, 200);
    let series = "weir_volume_limit_iops{tenant=\"svm01\",volume=\"vol1\",direction=\"total\"} 1000.0";
    assert!(metrics.as_str().unwrap().contains(series), "{metrics}");
    api.call("GET", "/openapi.json", "", None, 200);
    assert_eq!(api.call("GET", "/livez", "", None, 200), "ok\n");
    assert_eq!(api.call("GET", "/readyz", "", None, 200), "ready\n");
    // This process writes no log.
    api.call("GET", "/v1/logging", "", None, 409);
    api.call("PUT", "/v1/logging", "", Some(json!({"level": "debug"})), 400);
}

fn call_templates(api: &mut World) {
    const TEMPLATES: &str = "/v1/templates";
    const TEMPLATE: &str = "/v1/templates/{template}";
    let folder = tempfile::tempdir().unwrap();
    let body = json!({"path": folder.path(), "name": "fast", "class": "high", "measure": false});
    api.call("POST", "/v1/drives", "", Some(body), 201);
    let body = json!({"name": "single", "replicas": ["high"], "read_from": "high"});
    let made = api.call("POST", TEMPLATES, "", Some(body.clone()), 201);
    assert_eq!((&made["read_from"], &made["built_in"]), (&json!("high"), &json!(false)));
    api.call("POST", TEMPLATES, "", Some(body), 409);
    let volume = api.call("POST", VOLUMES, "", Some(volume_with("template", "single")), 201);
    assert_eq!((&volume["template"], &volume["replicas"]), (&json!("single"), &json!(1)));
    let templates = api.call("GET", TEMPLATES, "", None, 200)["items"].clone();
    let names: Vec<_> = templates.as_array().unwrap().iter().map(|template| &template["name"]).collect();
    assert_eq!(names, [&json!("hdd"), &json!("hybrid"), &json!("nvme"), &json!("single")]);
    let body = json!({"read_from": "fastest", "qos_policy_group": "gold"});
    let changed = api.call("PATCH", TEMPLATE, "single", Some(body), 200);
    assert_eq!((&changed["read_from"], &changed["qos_policy_group"]), (&json!("fastest"), &json!("gold")));
    assert_eq!(api.call("GET", TEMPLATE, "single", None, 200)["volumes"], 1);
    let mut both = volume_with("template", "single");
    both["replicas"] = json!(2);
    let post = |body, status, kind, words| ("POST", TEMPLATES, "", body, status, kind, words);
    check_refused(
        api,
        [
            ("POST", VOLUMES, "", both, 400, "invalid", "--replicas"),
            ("PATCH", VOLUME, "x", json!({"replicas": 2}), 409, "refused", "follows template 'single'"),
            ("PATCH", VOLUME, "x", json!({"template": "no"}), 404, "not_found", "there are: hdd, hybrid"),
            ("PATCH", VOLUME, "x", json!({"template": "hdd"}), 409, "refused", "class low in 3 replicas"),
            ("DELETE", TEMPLATE, "single", Value::Null, 409, "refused", "the volumes: x"),
            ("PATCH", TEMPLATE, "hybrid", json!({"read_from": "low"}), 409, "refused", "built in"),
            post(json!({"name": "n", "replicas": []}), 400, "invalid", "0 replicas; 1 to 3"),
            post(json!({"name": "n", "replicas": ["best"]}), 400, "invalid", "best"),
        ],
    );
    let released = api.call("PATCH", VOLUME, "x", Some(json!({"template": "none"})), 200);
    assert_eq!((released.get("template"), &released["class_policy"]), (None, &json!("any")));
    api.call("DELETE", TEMPLATE, "single", None, 204);
    api.call("DELETE", VOLUME, "x", None, 204);
    weir_control::testing::settle(&api.control);
    api.call("DELETE", "/v1/drives/{drive}", "fast", None, 202);
}

/// Exports all policies, changes them, and applies the export.
fn export_and_apply(api: &mut World) {
    let exported = api.call("GET", POLICIES, "", None, 200);
    assert_eq!(exported["policy_groups"][0]["name"], "gold");
    api.call("POST", GROUPS, "", Some(json!({"name": "surplus"})), 201);
    let difference = api.call(
        "PUT",
        POLICIES,
        "",
        Some(json!({"policies": exported, "dry_run": true, "prune": true, "force": true})),
        200,
    );
    assert_eq!(difference["changes"], json!(["- policy group default/surplus"]));
    api.call("GET", GROUP, "surplus", None, 200);
    assert_eq!(
        api.call("PUT", POLICIES, "", Some(json!({"policies": exported, "prune": true, "force": true})), 200),
        difference
    );
    api.call("GET", GROUP, "surplus", None, 404);
    let again =
        api.call("PUT", POLICIES, "", Some(json!({"policies": exported, "prune": true, "force": true})), 200);
    assert_eq!(again["changes"], json!([]));
}

/// Calls the operations for adaptive policy groups and tenants' policies on a tenant with a volume, and
/// undoes the changes.
fn adapt(api: &mut World) {
    let terms =
        json!({"expected_iops_per_tb": 1000, "peak_iops_per_tb": 1500, "peak_space": "allocated-space"});
    let body = json!({"name": "adaptive-policy2", "tenant": "svm01", "terms": terms});
    let group = api.call("POST", ADAPTIVE_GROUPS, "svm01/", Some(body), 201);
    assert_eq!((&group["number"], &group["expected_space"]), (&json!(2), &json!("allocated-space")));
    let body = json!({"qos_policy_group": "none", "qos_adaptive_policy_group": "adaptive-policy2"});
    let volume = api.call("PATCH", VOLUME, "svm01/vol1", Some(body), 200);
    assert_eq!(volume["qos_adaptive_policy_group"]["limits"]["total"]["iops"], 3, "for 2 GiB");
    assert_eq!(volume["policy"]["effective"]["ceiling_iops"]["value"], 3);
    let origin = &volume["policy"]["effective"]["ceiling_iops"]["origin"];
    assert_eq!(origin, "adaptive policy group adaptive-policy2");
    api.call(
        "PATCH",
        ADAPTIVE_GROUP,
        "svm01/adaptive-policy2",
        Some(json!({"terms": {"absolute_iops_min": 75}})),
        200,
    );
    let volume = api.call("GET", VOLUME, "svm01/vol1", None, 200);
    assert_eq!(volume["policy"]["levels"][0]["terms"]["limits"]["total"]["iops"], 75);
    let path = ADAPTIVE_GROUP;
    api.call("PATCH", path, "svm01/adaptive-policy2", Some(json!({"name": "a2"})), 200);
    assert_eq!(api.call("GET", ADAPTIVE_GROUP, "svm01/a2", None, 200)["workloads"], 1);
    let groups = api.call("GET", "/v1/adaptive-policy-groups?tenant=svm01", "", None, 200);
    assert_eq!(groups["items"].as_array().unwrap().len(), 4, "with the built-in ones");
    let top = json!({"name": "top", "tenant": "svm01", "limits": {"total": {"iops": 9}}, "weight": 200});
    assert_eq!(api.call("POST", GROUPS, "svm01/", Some(top), 201)["weight"], 200);
    let body = json!({"qos_policy_group": "top", "default_policy_group": "extreme"});
    let tenant = api.call("PATCH", TENANT, "svm01", Some(body), 200);
    assert_eq!(
        (&tenant["qos_policy_group"], &tenant["default_policy_group"]),
        (&json!("top"), &json!("extreme"))
    );
    assert_eq!(api.call("GET", TENANT, "svm01", None, 200)["volumes"], 1);
    let effective = &api.call("GET", VOLUME, "svm01/vol1", None, 200)["policy"]["effective"];
    assert_eq!(effective["ceiling_iops"], json!({"value": 9, "origin": "policy group top of tenant svm01"}));
    let nothing = json!({"qos_policy_group": "none", "default_policy_group": "none"});
    api.call("PATCH", TENANT, "svm01", Some(nothing), 200);
    api.call("DELETE", GROUP, "svm01/top", None, 204);
    api.call("PATCH", VOLUME, "svm01/vol1", Some(json!({"qos_adaptive_policy_group": "none"})), 200);
    api.call("DELETE", ADAPTIVE_GROUP, "svm01/a2", None, 204);
}

/// A call that must fail: method, path, name and body, then the status, kind and words of the error.
type Refused = (&'static str, &'static str, &'static str, Value, u16, &'static str, &'static str);

fn check_refused(api: &mut World, cases: impl IntoIterator<Item = Refused>) {
    for (method, path, name, body, status, code, words) in cases {
        let body = Some(body).filter(|body| !body.is_null());
        let answer = api.call(method, path, name, body, status);
        let message = message_of(&answer);
        assert!(answer["code"] == code && message.contains(words), "{method} {path}: {answer}");
    }
}

/// A body that creates a volume of 1 GiB, with one more field.
fn volume_with(field: &str, value: &str) -> Value {
    let mut body = json!({"name": "x", "size_bytes": 1u64 << 30});
    body[field] = value.into();
    body
}

#[test]
fn invalid_volume_error_names_the_value() {
    let mut api = World::start(false);
    api.call("POST", VOLUMES, "", Some(volume_with("name", "vol1")), 201);
    let post = |body, status, kind, words| ("POST", VOLUMES, "", body, status, kind, words);
    check_refused(
        &mut api,
        [
            post(volume_with("name", "vol1"), 409, "conflict", "'vol1' exists already"),
            post(volume_with("name", "a b"), 400, "invalid", "character ' '"),
            post(volume_with("name", ""), 400, "invalid", "must not be empty"),
            post(json!({"name": "x", "size_bytes": 0}), 400, "invalid", "size 0"),
            post(json!({"name": "x", "size_bytes": -1}), 400, "invalid", "-1"),
            post(json!({"name": "x", "size": 1}), 400, "invalid", "unknown field `size`"),
            ("POST", VOLUMES, "t/", volume_with("name", "y"), 404, "not_found", "unknown tenant 't'"),
            post(volume_with("qos_policy_group", "p"), 404, "not_found", "'p'"),
            post(volume_with("io_priority", "best"), 400, "invalid", "best"),
        ],
    );
    let smaller = json!({"size_bytes": 4096});
    let unbound = json!({"qos_policy_group": "p"});
    check_refused(
        &mut api,
        [
            ("PATCH", VOLUME, "vol1", smaller, 409, "refused", "--force"),
            ("PATCH", VOLUME, "vol1", unbound, 404, "not_found", "'p' in tenant 'default'"),
            ("GET", VOLUME, "nope", Value::Null, 404, "not_found", "unknown volume 'nope'"),
            ("GET", "/v1/volumes?tenat=x", "", Value::Null, 400, "invalid", "tenat"),
        ],
    );
}

#[test]
fn invalid_policy_or_tenant_error_names_the_value() {
    let mut api = World::start(false);
    let no_peak = json!({"name": "p", "terms": {"expected_iops_per_tb": 1}});
    let adaptive_tenant = json!({"qos_policy_group": "extreme"});
    let no_rate = json!({"name": "p", "limits": {"total": {"iops": 0}}});
    let too_fast = json!({"name": "p", "limits": {"read": {"bytes_per_second": u64::MAX}}});
    check_refused(
        &mut api,
        [
            ("POST", GROUPS, "", no_rate, 400, "invalid", "0IOPS"),
            ("POST", GROUPS, "", too_fast, 400, "invalid", "B/s"),
            ("PATCH", GROUP, "p", json!({}), 404, "not_found", "unknown policy group 'p'"),
            (
                "POST",
                GROUPS,
                "",
                json!({"name": "p", "weight": 0}),
                400,
                "invalid",
                "weight 0 is not accepted",
            ),
            ("POST", GROUPS, "", json!({"name": "p", "heavy": 0}), 400, "invalid", "unknown field `heavy`"),
            ("POST", GROUPS, "", json!({"name": "extreme"}), 409, "conflict", "'extreme' is built in"),
            ("PATCH", GROUP, "value", json!({}), 400, "invalid", "'value' is adaptive; 'adaptive-"),
            ("PATCH", ADAPTIVE_GROUP, "value", json!({}), 409, "refused", "built in and cannot be changed"),
            ("POST", ADAPTIVE_GROUPS, "", no_peak, 400, "invalid", "needs an expected and a peak rate"),
            ("PATCH", TENANT, "default", adaptive_tenant, 400, "invalid", "'extreme' is adaptive"),
            ("DELETE", "/v1/tenants/{tenant}", "default", Value::Null, 409, "refused", "always exists"),
        ],
    );
}

#[test]
fn missing_and_oversized_requests_get_the_error_form() {
    let world = World::start(false);
    let url = |path: &str| format!("{}{path}", world.base);
    let large = vec![b' '; weir_types::control_bounds::API_BODY_BYTES_MAX + 1];
    for (request, status) in [
        (world.client.get(url("/v2")), 404),
        (world.client.put(url("/v1/volumes")), 405),
        (world.client.post(url("/v1/tenants")).header("content-type", "application/json").body("{"), 400),
        (world.client.post(url("/v1/tenants")).body("{}"), 415),
        (world.client.post(url("/v1/tenants")).header("content-type", "application/json").body(large), 413),
    ] {
        let response = request.send().unwrap();
        assert_eq!(response.status().as_u16(), status);
        let body: weir_api_types::Problem = response.json().unwrap();
        assert!(!body.detail.is_empty());
    }
}

#[test]
fn tcp_requests_to_other_hosts_are_refused() {
    let world = World::start(true);
    let get = |host: &str| {
        let request = world.client.get(format!("{}/v1/status", world.base)).header("host", host);
        request.send().unwrap().status().as_u16()
    };
    assert_eq!((get("localhost:9001"), get("127.0.0.1"), get("evil.example:9001")), (200, 200, 403));
}

#[test]
fn non_loopback_address_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let bind = |address: &str| {
        let token = Arc::new(Token::new(TOKEN.to_owned()));
        ApiListeners::bind(&folder.path().join("a.sock"), None, Some((address.parse().unwrap(), token)))
    };
    let error = bind("0.0.0.0:0").err().unwrap().to_string();
    assert!(error.contains("0.0.0.0:0 is not loopback"), "{error}");
    assert!(bind("[::1]:0").is_ok() || bind("127.0.0.1:0").is_ok());
}

#[test]
fn socket_is_replaced_only_if_it_is_dead() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.sock");
    let first = ApiListeners::bind(&path, None, None).unwrap();
    let error = ApiListeners::bind(&path, None, None).err().unwrap().to_string();
    assert!(error.contains("another program answers"), "{error}");
    drop(first);
    assert!(path.exists(), "as after a crash");
    let second = ApiListeners::bind(&path, None, None).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&path).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    second.remove();
    assert!(!path.exists());
}

#[test]
fn openapi_snapshot_is_up_to_date() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
    let document = openapi_document().unwrap();
    if std::env::var_os("WEIR_WRITE_OPENAPI").is_some() {
        std::fs::write(&path, &document).unwrap();
    }
    let snapshot = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(snapshot == document, "docs/openapi.json is stale; 'weir openapi > docs/openapi.json' renews it");
}
