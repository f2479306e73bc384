//! Generates the client from the description of the API, as a program outside the project would.
//!
//! The generator reads OpenAPI 3.0, and the description is of OpenAPI 3.1. Both say the same of this API; the
//! difference is how they write that a value can be null ([`as_3_0`]). The generator also takes a problem document
//! only for JSON.

use std::path::PathBuf;
use std::{env, fs};

use serde_json::{Map, Value, json};

/// The description, from this folder.
const DESCRIPTION: &str = "../../docs/openapi.json";

fn main() {
    println!("cargo:rerun-if-changed={DESCRIPTION}");
    let text = fs::read_to_string(DESCRIPTION).expect("the description is in the repository");
    let mut document: Value = serde_json::from_str(&text).expect("the description is JSON");
    as_3_0(&mut document);
    document["openapi"] = json!("3.0.3");
    leave_out(&mut document);
    wait_for_answers(&mut document);
    let specification = serde_json::from_value(document).expect("the description is of OpenAPI 3.0");
    let mut generator = progenitor::Generator::default();
    let tokens = generator.generate_tokens(&specification).expect("a client can be generated");
    let file = syn::parse2(tokens).expect("the client is Rust");
    let folder = PathBuf::from(env::var_os("OUT_DIR").expect("cargo names the folder"));
    fs::write(folder.join("client.rs"), prettyplease::unparse(&file)).expect("the client can be written");
}

/// Writes a part of the description as OpenAPI 3.0 has it.
fn as_3_0(value: &mut Value) {
    match value {
        Value::Array(values) => values.iter_mut().for_each(as_3_0),
        Value::Object(fields) => {
            fields.values_mut().for_each(as_3_0);
            one_type(fields);
            one_variant(fields);
            if let Some(problem) = fields.remove("application/problem+json") {
                fields.insert("application/json".to_owned(), problem);
            }
            for only_3_1 in ["examples", "example", "propertyNames", "identifier"] {
                fields.remove(only_3_1);
            }
        }
        _ => {}
    }
}

/// `type: [X, null]` becomes `type: X, nullable: true`.
fn one_type(fields: &mut Map<String, Value>) {
    let Some(Value::Array(types)) = fields.get("type") else { return };
    let kept: Vec<Value> = types.iter().filter(|kind| *kind != "null").cloned().collect();
    if let [kind] = &kept[..] {
        let kind = kind.clone();
        fields.insert("type".to_owned(), kind);
        fields.insert("nullable".to_owned(), json!(true));
    }
}

/// `oneOf: [X, null]` becomes `allOf: [X], nullable: true`.
fn one_variant(fields: &mut Map<String, Value>) {
    let Some(Value::Array(variants)) = fields.get("oneOf") else { return };
    let is_null = |variant: &Value| *variant == json!({"type": "null"});
    if !variants.iter().any(is_null) {
        return;
    }
    let kept: Vec<Value> = variants.iter().filter(|variant| !is_null(variant)).cloned().collect();
    fields.remove("oneOf");
    fields.insert("allOf".to_owned(), Value::Array(kept));
    fields.insert("nullable".to_owned(), json!(true));
}

/// Operations that the generator has no form for: those that answer no JSON.
const LEFT_OUT: [(&str, &str); 5] = [
    ("/metrics", "get"),
    ("/livez", "get"),
    ("/readyz", "get"),
    ("/openapi.json", "get"),
    ("/v1/recordings", "post"),
];

/// Leaves out the operations that the generator has no form for.
fn leave_out(document: &mut Value) {
    for (path, method) in LEFT_OUT {
        let operations = document["paths"][path].as_object_mut();
        let removed = operations.and_then(|operations| operations.remove(method));
        assert!(removed.is_some(), "{method} {path} is no longer described: leave it out no more");
    }
}

/// Leaves out the preference not to wait: the generator has no form for operations with two kinds of answers.
fn wait_for_answers(document: &mut Value) {
    let paths = document["paths"].as_object_mut().expect("the description has paths");
    let operations = paths.values_mut().filter_map(Value::as_object_mut).flatten();
    for (_, operation) in operations {
        if let Some(parameters) = operation.get_mut("parameters").and_then(Value::as_array_mut) {
            parameters.retain(|parameter| parameter["name"] != "Prefer");
        }
        let answers = operation["responses"].as_object_mut().expect("an operation has answers");
        if answers.keys().filter(|status| status.starts_with('2')).count() > 1 {
            answers.remove("202");
        }
    }
}
