//! Operations: work in progress is listed, waited for and cancelled, and a client need not wait for a request.

use serde_json::{Value, json};

use super::World;

const OPERATIONS: &str = "/v1/operations";
const OPERATION: &str = "/v1/operations/{id}";
const CANCEL: &str = "/v1/operations/{id}/cancel";

/// Sends a creation of a volume whose client prefers not to wait. Returns the status, where the operation is,
/// and the answer.
fn create(world: &World, preference: &str, body: &Value) -> (u16, Option<String>, Value) {
    let request = world.client.post(format!("{}/v1/tenants/default/volumes", world.base));
    let request = request.header("Prefer", preference).header("Idempotency-Key", preference_key(body));
    let response = request.json(body).send().unwrap();
    let place = response.headers().get("location").map(|place| place.to_str().unwrap().to_owned());
    (response.status().as_u16(), place, response.json().unwrap())
}

fn preference_key(body: &Value) -> String {
    format!("{}/{}", body["name"].as_str().unwrap(), body["size_bytes"])
}

fn id(operation: &Value) -> &str {
    operation["id"].as_str().unwrap()
}

fn waited(world: &mut World, id: &str) -> Value {
    world.call("GET", "/v1/operations/{id}?wait_seconds=60", id, None, 200)
}

fn on_new_drive(world: &mut World, folder: &tempfile::TempDir) -> Value {
    let body = json!({"path": folder.path(), "name": "d", "measure": false});
    world.call("POST", "/v1/drives", "", Some(body), 201);
    let body = json!({"name": "v", "size_bytes": 4096, "drive": "d"});
    world.call("POST", super::VOLUMES, "", Some(body), 201)
}

/// Calls each operation on operations, for the test of their descriptions.
pub(super) fn call_operations(world: &mut World) {
    let found = world.call("GET", OPERATIONS, "", None, 200);
    let ended = found["items"].as_array().unwrap().iter().find(|one| one["state"] == "succeeded").unwrap();
    assert_eq!(&world.call("GET", OPERATION, id(ended), None, 200), ended);
    world.call("POST", CANCEL, id(ended), None, 409);
    let unknown = "00000000-0000-0000-0000-000000000000";
    world.call("GET", OPERATION, unknown, None, 404);
    world.call("POST", CANCEL, unknown, None, 404);
    let refused = world.call("GET", "/v1/operations/{id}?wait_seconds=61", id(ended), None, 400);
    assert_eq!(refused["field"], "wait_seconds");
}

#[test]
fn drain_is_an_operation_until_the_drive_is_gone() {
    let (mut world, folder) = (World::start(false), tempfile::tempdir().unwrap());
    let api = &mut world;
    let volume = on_new_drive(api, &folder);
    let drain = api.call("DELETE", "/v1/drives/{drive}", "d", None, 202);
    assert_eq!(drain["progress"], json!({"unit": "extents", "left": 1}));
    let running = api.call("GET", "/v1/operations?kind=drain&state=running", "", None, 200);
    assert_eq!(running["items"], json!([drain]));
    let cancelled = api.call("POST", CANCEL, id(&drain), None, 200);
    let state = (&cancelled["state"], &cancelled["can_be_cancelled"], cancelled["ended_at"].is_string());
    assert_eq!(state, (&json!("cancelled"), &json!(false), true));
    let drive = api.call("GET", "/v1/drives/{drive}", "d", None, 200);
    assert_eq!(drive.get("drain"), None, "the drive stays");
    let again = api.call("DELETE", "/v1/drives/{drive}", "d", None, 202);
    assert_eq!((&again["id"], &again["state"]), (&drain["id"], &json!("running")));
    weir_testkit::wait::wait_until("the drive is gone", || {
        api.control.settle_moves();
        api.control.reclaims.settle_background();
        api.client.get(format!("{}/v1/drives/d", api.base)).send().unwrap().status() == 404
    });
    let done = waited(api, id(&drain));
    assert_eq!((&done["state"], done.get("reason")), (&json!("succeeded"), None));
    let moved = api.call("GET", &format!("/v1/operations?object_id={}", id(&volume)), "", None, 200);
    let kinds: Vec<_> = moved["items"].as_array().unwrap().iter().map(|one| &one["state"]).collect();
    assert!(kinds.iter().all(|state| **state == json!("succeeded")), "{moved}");
}

#[test]
fn request_whose_client_does_not_wait_is_an_operation() {
    let mut world = World::start(false);
    let api = &mut world;
    let body = json!({"name": "v", "size_bytes": 4096});
    let (status, place, operation) = create(api, "respond-async", &body);
    assert_eq!((status, place.unwrap()), (202, format!("/v1/operations/{}", id(&operation))));
    assert_eq!((&operation["object"]["name"], &operation["kind"]), (&json!("v"), &json!("request")));
    let done = waited(api, id(&operation));
    let volume = api.call("GET", super::VOLUME, "v", None, 200);
    assert_eq!((&done["state"], &done["result"]["id"]), (&json!("succeeded"), &volume["id"]));
    let (status, _, again) = create(api, "respond-async", &body);
    assert_eq!((status, &again["id"]), (202, &operation["id"]), "the retry has the same key");
    let (_, _, refused) = create(api, "respond-async", &json!({"name": "v", "size_bytes": 8192}));
    let refused = waited(api, id(&refused));
    assert_eq!((&refused["state"], &refused["problem"]["code"]), (&json!("failed"), &json!("conflict")));
}

#[test]
fn answer_that_comes_in_time_leaves_no_operation() {
    let mut world = World::start(false);
    let (status, _, volume) =
        create(&world, "respond-async, wait=60", &json!({"name": "v", "size_bytes": 4096}));
    assert_eq!((status, &volume["name"]), (201, &json!("v")));
    assert_eq!(world.call("GET", OPERATIONS, "", None, 200)["items"], json!([]));
}

#[test]
fn scrub_is_an_operation_that_can_be_waited_for() {
    let mut world = World::start(false);
    let api = &mut world;
    let body = json!({"name": "v", "size_bytes": 4096});
    api.call("POST", super::VOLUMES, "", Some(body), 201);
    api.call("POST", "/v1/tenants/{tenant}/volumes/{volume}/scrub", "v", None, 200);
    let found = api.call("GET", "/v1/operations?kind=scrub", "", None, 200);
    let scrub = found["items"][0].clone();
    assert_eq!(scrub["object"]["name"], "v", "{found}");
    weir_control::testing::settle(&api.control);
    assert_eq!(
        api.call("GET", OPERATION, id(&scrub), None, 200)["state"],
        "running",
        "the end is not recorded"
    );
    api.control.scrubs.settle_scrubs();
    assert_eq!(waited(api, id(&scrub))["state"], "succeeded");
}

#[test]
fn drain_of_an_empty_drive_began_and_succeeded() {
    let (mut world, folder) = (World::start(false), tempfile::tempdir().unwrap());
    let api = &mut world;
    let body = json!({"path": folder.path(), "name": "d", "measure": false});
    api.call("POST", "/v1/drives", "", Some(body), 201);
    let drain = api.call("DELETE", "/v1/drives/{drive}", "d", None, 202);
    assert_eq!((&drain["state"], drain["ended_at"].is_string()), (&json!("succeeded"), true), "{drain}");
    let events = api.call("GET", "/v1/events", "", None, 200);
    let cause = format!("operation {}", id(&drain));
    let events = events["items"].as_array().unwrap().iter().filter(|event| event["cause"] == cause);
    let codes: Vec<&Value> = events.map(|event| &event["code"]).collect();
    assert_eq!(codes, ["operation_begun", "operation_ended"]);
}

#[test]
fn recording_is_waited_for_whatever_its_client_prefers() {
    let mut world = World::start(false);
    world.call("POST", super::VOLUMES, "", Some(json!({"name": "v", "size_bytes": 4096})), 201);
    let request = world.client.post(format!("{}/v1/recordings", world.base));
    let body = json!({"volumes": ["v"], "seconds": 1});
    let response = request.header("Prefer", "respond-async").json(&body).send().unwrap();
    assert_eq!(response.status().as_u16(), 200);
    assert!(response.bytes().unwrap().starts_with(b"WEIRTRCE"));
    assert_eq!(world.call("GET", OPERATIONS, "", None, 200)["items"], json!([]));
}
