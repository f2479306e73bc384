//! Examples of requests and answers, by the name of their schema; a test validates each against it.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::{Value, json};
use utoipa::openapi::path::Operation;
use utoipa::openapi::{Content, RefOr};

use super::headers::schema_name;

/// The examples.
static EXAMPLES: LazyLock<BTreeMap<String, Value>> =
    LazyLock::new(|| serde_json::from_str(include_str!("examples.json")).expect("a test reads the examples"));

/// Adds an example to the body of a request and to each answer.
pub(super) fn add(operation: &mut Operation) {
    if let Some(RefOr::T(body)) = &mut operation.request_body {
        body.content.values_mut().for_each(add_to);
    }
    for response in operation.responses.responses.values_mut() {
        if let RefOr::T(response) = response {
            response.content.values_mut().for_each(add_to);
        }
    }
}

fn add_to(content: &mut RefOr<Content>) {
    let example = schema_name(content).and_then(example_of);
    if let RefOr::T(content) = content {
        content.example = example.or(content.example.take());
    }
}

/// Example of a schema; a list has the example of its items.
fn example_of(schema: &str) -> Option<Value> {
    let item = || EXAMPLES.get(schema.strip_suffix("List")?);
    EXAMPLES.get(schema).cloned().or_else(|| Some(json!({"items": [item()?]})))
}
