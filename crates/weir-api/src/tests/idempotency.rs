//! A request that is sent again with the same key happens once.

use std::io::Write;

use serde_json::{Value, json};

use super::World;

/// Sends a creation with a key. Returns the status, whether the answer is an earlier one, and the answer.
fn create(world: &World, key: &str, body: &Value) -> (u16, bool, Value) {
    let request = world.client.post(format!("{}/v1/tenants/default/volumes", world.base));
    let response = request.header("Idempotency-Key", key).json(body).send().unwrap();
    let is_replayed = response.headers().contains_key("idempotency-replayed");
    (response.status().as_u16(), is_replayed, response.json().unwrap())
}

fn count(world: &mut World) -> usize {
    world.call("GET", "/v1/volumes", "", None, 200)["items"].as_array().unwrap().len()
}

#[test]
fn creation_that_is_retried_with_its_key_happens_once() {
    let mut world = World::start(false);
    let body = json!({"name": "v", "size_bytes": 4096});
    let (status, is_replayed, made) = create(&world, "\"one\"", &body);
    assert_eq!((status, is_replayed), (201, false));
    assert_eq!(create(&world, "one", &body), (201, true, made.clone()), "the quotes are not of the key");
    assert_eq!(create(&world, "two", &body).0, 409, "another request finds the name taken");
    let other = create(&world, "one", &json!({"name": "w", "size_bytes": 4096}));
    assert_eq!((other.0, &other.2["code"]), (422, &json!("idempotency_key_reused")));
    assert_eq!(count(&mut world), 1);
    world.call("DELETE", super::VOLUME, "v", None, 204);
    assert_eq!(create(&world, "one", &body), (201, true, made), "a late retry creates nothing");
    assert_eq!(count(&mut world), 0);
}

#[test]
fn refused_creation_can_be_retried_with_its_key() {
    let world = World::start(false);
    assert_eq!(create(&world, "one", &json!({"name": "v", "size_bytes": 0})).0, 400);
    assert_eq!(create(&world, "one", &json!({"name": "v", "size_bytes": 4096})).0, 201);
    let refused = create(&world, "a b", &json!({"name": "w", "size_bytes": 4096}));
    assert_eq!((refused.0, &refused.2["field"]), (400, &json!("Idempotency-Key")));
}

#[test]
fn creation_sent_twice_at_once_happens_once() {
    let world = World::start(false);
    let body = json!({"name": "v", "size_bytes": 4096});
    let answers = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| create(&world, "one", &body))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    let fresh = answers.iter().filter(|(status, is_replayed, _)| *status == 201 && !is_replayed);
    assert_eq!(fresh.count(), 1, "{answers:?}");
    for (status, is_replayed, answer) in &answers {
        let is_waiting = *status == 409 && answer["detail"].as_str().unwrap().contains("in progress");
        assert!(*status == 201 || is_waiting, "{status} {is_replayed} {answer}");
    }
}

/// Sends a creation with a key and leaves before the answer.
fn create_and_leave(world: &World, name: &str) {
    let socket = world.folder.path().join("api.sock");
    let mut stream = std::os::unix::net::UnixStream::connect(socket).unwrap();
    let body = json!({"name": name, "size_bytes": 4096}).to_string();
    let head =
        "POST /v1/tenants/default/volumes HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json";
    let length = body.len();
    write!(stream, "{head}\r\nIdempotency-Key: {name}\r\nContent-Length: {length}\r\n\r\n{body}").unwrap();
}

#[test]
fn creation_whose_client_left_is_answered_to_the_retry() {
    let world = World::start(false);
    for number in 0..20 {
        let name = format!("v{number}");
        create_and_leave(&world, &name);
        weir_testkit::wait::wait_until("the retry is answered", || {
            let (status, _, answer) = create(&world, &name, &json!({"name": name, "size_bytes": 4096}));
            let is_waiting = status == 409 && answer["detail"].as_str().unwrap().contains("in progress");
            assert!(status == 201 || is_waiting, "{name}: {answer}");
            status == 201
        });
    }
}
