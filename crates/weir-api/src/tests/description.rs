//! The description is complete, its examples are valid, and answers are as it says.

use reqwest::header::HeaderMap;
use serde_json::{Value, json};

use crate::openapi_document;

/// Each place with a schema and an example: where it is, the schema, the example.
fn examples(document: &Value) -> Vec<(String, Value, Option<Value>)> {
    let mut found = Vec::new();
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let place = format!("{method} {path}");
            let request = operation["requestBody"]["content"].as_object().into_iter().flatten();
            let answers = operation["responses"].as_object().unwrap().iter();
            let answers = answers.filter(|(status, _)| status.starts_with('2'));
            let answers = answers.flat_map(|(_, answer)| answer["content"].as_object().into_iter().flatten());
            let json = request.chain(answers).filter(|(kind, _)| *kind == "application/json");
            found.extend(json.map(|(_, content)| {
                (place.clone(), content["schema"].clone(), content.get("example").cloned())
            }));
        }
    }
    for (name, answer) in document["components"]["responses"].as_object().unwrap() {
        let content = &answer["content"]["application/problem+json"];
        let examples = content["examples"].as_object().into_iter().flatten().map(|(_, example)| example);
        let one = |example: &Value| (name.clone(), content["schema"].clone(), Some(example["value"].clone()));
        found.extend(examples.map(one));
    }
    found
}

#[test]
fn every_example_is_valid() {
    let document: Value = serde_json::from_str(&openapi_document().unwrap()).unwrap();
    for (place, mut schema, example) in examples(&document) {
        if place == "get /openapi.json" {
            continue;
        }
        let example = example.unwrap_or_else(|| panic!("{place} has no example"));
        schema["components"] = document["components"].clone();
        let validator = jsonschema::validator_for(&schema).unwrap();
        let faults: Vec<_> = validator.iter_errors(&example).map(|error| error.to_string()).collect();
        assert_eq!(json!(faults), json!([]), "{place}: {example:#}");
    }
}

/// Checks that the answer to an operation is as its description says.
pub(super) fn check_answer(
    document: &Value,
    (method, path): (&str, &str),
    status: u16,
    headers: &HeaderMap,
    answer: &Value,
) {
    let place = &format!("{method} {path}");
    let operation = &document["paths"][path][method.to_ascii_lowercase()];
    assert!(operation.is_object(), "{place} is not described");
    let described = operation["responses"].get(status.to_string());
    let described =
        described.unwrap_or_else(|| panic!("{place} answers {status}, which its description does not have"));
    let described = match described["$ref"].as_str() {
        Some(reference) => document.pointer(reference.trim_start_matches('#')).unwrap(),
        None => described,
    };
    check_headers(place, described, headers, answer);
    check_body(document, place, described, answer);
}

/// Checks that an answer has each header of its description, and that an `ETag` is the version in the body.
fn check_headers(place: &str, described: &Value, headers: &HeaderMap, answer: &Value) {
    for (name, _) in described["headers"].as_object().into_iter().flatten() {
        assert!(headers.contains_key(name), "{place}: its answer has no header '{name}'");
    }
    if let Some(tag) = headers.get("etag") {
        assert!(described["headers"]["ETag"].is_object(), "{place}: its description has no ETag");
        assert_eq!(tag.to_str().unwrap(), format!("\"{}\"", answer["version"]), "{place}");
    }
}

fn check_body(document: &Value, place: &str, described: &Value, answer: &Value) {
    let Some(content) = described.get("content") else {
        assert_eq!(answer, &json!(""), "{place} should answer nothing");
        return;
    };
    let mut schema = content.as_object().unwrap().values().next().unwrap()["schema"].clone();
    schema["components"] = document["components"].clone();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let faults: Vec<_> = validator.iter_errors(answer).map(|error| error.to_string()).collect();
    assert!(faults.is_empty(), "{place}: {faults:?} in {answer:#}");
}
