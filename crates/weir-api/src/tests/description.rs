//! The description is complete, and its examples are valid.

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
