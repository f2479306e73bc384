//! Alarms and events: what is wrong now, and what happened.

use std::io::{BufRead, BufReader};
use std::time::Duration;

use serde_json::{Value, json};

use super::World;

const STREAM: &str = "/v1/events/stream";
/// Longest time that a test follows events.
const TIMEOUT: Duration = Duration::from_secs(120);

/// The next events of a stream, each with its `id` and `event` fields.
fn next_events(lines: &mut impl BufRead, count: usize) -> Vec<(u64, String, Value)> {
    let (mut events, mut id, mut code) = (Vec::new(), 0, String::new());
    while events.len() < count {
        let mut line = String::new();
        assert!(lines.read_line(&mut line).unwrap() > 0, "the stream has ended");
        let line = line.trim_end();
        match line.split_once(": ") {
            Some(("id", value)) => id = value.parse().unwrap(),
            Some(("event", value)) => code = value.to_owned(),
            Some(("data", value)) => events.push((id, code.clone(), serde_json::from_str(value).unwrap())),
            _ => {}
        }
    }
    events
}

fn follow(api: &mut World, headers: &[(&'static str, String)]) -> impl BufRead + use<> {
    let request = api.client.get(format!("{}{STREAM}", api.base)).timeout(TIMEOUT);
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, value));
    let response = request.send().unwrap();
    assert_eq!(response.status().as_u16(), 200);
    api.called.insert(format!("GET {STREAM}"));
    BufReader::new(response)
}

fn events(api: &mut World, query: &str) -> Vec<Value> {
    let list = api.call("GET", &format!("/v1/events{query}"), "", None, 200);
    list["items"].as_array().unwrap().clone()
}

/// Calls the operations of alarms, of which there must be one, and of events.
pub(super) fn call_alarms_and_events(api: &mut World) {
    let alarms = api.call("GET", "/v1/alarms?severity=warning", "", None, 200)["items"].clone();
    assert_eq!((alarms.as_array().unwrap().len(), &alarms[0]["code"]), (1, &json!("class")));
    assert_eq!(alarms[0]["object"]["name"], "vol1");
    let id = alarms[0]["id"].as_str().unwrap();
    assert_eq!(api.call("GET", "/v1/alarms/{id}", id, None, 200), alarms[0]);
    api.call("GET", "/v1/alarms/{id}", "00000000-0000-0000-0000-000000000000", None, 404);
    assert_eq!(api.call("GET", "/v1/alarms?severity=critical", "", None, 200)["items"], json!([]));
    // The daemon looks in its own rhythm. Nothing is told twice.
    (0..2).for_each(|_| api.history.look(&api.control));
    let all = events(api, "");
    assert_eq!(all[0]["code"], "daemon_started");
    let raised: Vec<_> = all.iter().filter(|event| event["code"] == "alarm_raised").collect();
    assert_eq!((raised.len(), &raised[0]["object"]["name"]), (1, &json!("vol1")), "{all:?}");
    assert!(
        all.iter().any(|event| event["code"] == "changed" && event["object"]["name"] == "vol1"),
        "{all:?}"
    );
    let mut stream = follow(api, &[("last-event-id", all[0]["sequence"].to_string())]);
    let (number, code, event) = next_events(&mut stream, 1).remove(0);
    assert_eq!((json!(number), &json!(code), &event), (all[1]["sequence"].clone(), &all[1]["code"], &all[1]));
}

#[test]
fn change_is_an_event_that_followers_get_at_once() {
    let mut world = World::start(false);
    let api = &mut world;
    let mut stream = follow(api, &[]);
    api.call("POST", "/v1/tenants", "", Some(json!({"name": "acme"})), 201);
    api.call("POST", "/v1/tenants", "", Some(json!({"name": "acme"})), 409);
    api.call("DELETE", "/v1/tenants/{tenant}", "acme", None, 204);
    let seen = next_events(&mut stream, 2);
    let told = |index: usize| {
        let (_, code, event): &(u64, String, Value) = &seen[index];
        (code.clone(), event["message"].clone(), event["object"]["name"].clone())
    };
    let (changed, acme) = ("changed".to_owned(), json!("acme"));
    assert_eq!(told(0), (changed.clone(), json!("POST /v1/tenants"), acme.clone()));
    assert_eq!(told(1), (changed, json!("DELETE /v1/tenants/acme"), acme));
    assert!(seen[0].2["cause"].as_str().unwrap().starts_with("uid="), "{seen:?}");
    let listed = events(api, &format!("?after={}&page_size=1", seen[0].0));
    assert_eq!(listed, [seen[1].2.clone()]);
    assert_eq!(events(api, "?severity=critical"), Vec::<Value>::new());
}

#[test]
fn stream_tells_which_events_it_missed() {
    let mut world = World::start(false);
    let api = &mut world;
    let first = events(api, "")[0].clone();
    let mut stream = follow(api, &[("last-event-id", "1".to_owned())]);
    let seen = next_events(&mut stream, 2);
    assert_eq!((seen[0].1.as_str(), &seen[1].2), ("events_dropped", &first));
}

#[test]
fn raised_and_cleared_alarm_are_events() {
    let mut world = World::start(false);
    let api = &mut world;
    let mut stream = follow(api, &[]);
    let body = json!({"name": "v", "size_bytes": 4096, "io_priority": "high", "class_policy": "prefer"});
    api.call("POST", super::VOLUMES, "", Some(body), 201);
    api.history.look(&api.control);
    let seen = next_events(&mut stream, 2);
    assert_eq!((seen[0].1.as_str(), seen[1].1.as_str()), ("changed", "alarm_raised"));
    assert_eq!(seen[1].2["object"]["name"], "v");
    api.call("DELETE", super::VOLUME, "v", None, 204);
    api.history.look(&api.control);
    // Whether the reclaim is seen in progress depends on its speed.
    while next_events(&mut stream, 1)[0].1 != "alarm_cleared" {}
}

#[test]
fn number_of_followers_is_bounded() {
    let mut world = World::start(false);
    let api = &mut world;
    let streams: Vec<_> =
        (0..weir_types::control_bounds::EVENT_STREAMS_MAX).map(|_| follow(api, &[])).collect();
    api.call("GET", STREAM, "", None, 503);
    drop(streams);
    weir_testkit::wait::wait_until("a place is free again", || {
        api.client.get(format!("{}{STREAM}", api.base)).send().unwrap().status().as_u16() == 200
    });
}
