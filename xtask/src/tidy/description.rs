//! Linter of the API's description: one shape for all operations and all objects.
//!
//! A test of the crate that serves the API checks that the description is current, and that its examples are
//! valid.

use std::collections::BTreeSet;

use anyhow::Result;
use serde_json::Value;

use super::{Complaint, Tree};

/// Path of the description.
const PATH: &str = "docs/openapi.json";
/// Methods of operations.
const METHODS: [&str; 5] = ["get", "put", "post", "patch", "delete"];
/// Errors that every operation can give.
const ERRORS_OF_ALL: [&str; 6] = ["401", "403", "4XX", "500", "503", "5XX"];
/// Endings of names with a unit that is not a base unit.
const DERIVED_UNITS: [&str; 12] =
    ["_ms", "_us", "_kb", "_mb", "_gb", "_kib", "_mib", "_gib", "_minutes", "_hours", "_days", "_mbps"];

/// Complains about a missing or invalid description, and about each operation and object that differs from
/// the shape of all.
pub fn check(tree: &Tree) -> Result<Vec<Complaint>> {
    let text = std::fs::read_to_string(tree.root.join(PATH)).unwrap_or_default();
    Ok(lint(&text).into_iter().map(|fault| Complaint(format!("{PATH}: {fault}"))).collect())
}

fn lint(text: &str) -> Vec<String> {
    let document: Value = serde_json::from_str(text).unwrap_or_default();
    let (Some("3.1.0"), Some(paths)) = (document["openapi"].as_str(), document["paths"].as_object()) else {
        return vec!["there is no OpenAPI 3.1 description".to_owned()];
    };
    let mut faults = Vec::new();
    let mut ids = BTreeSet::new();
    for (path, operations) in paths {
        faults.extend(path_faults(path));
        for method in METHODS {
            let Some(operation) = operations.get(method) else { continue };
            let place = format!("{} {path}", method.to_uppercase());
            if !ids.insert(operation["operationId"].as_str().unwrap_or_default().to_owned()) {
                faults.push(format!("{place}: another operation has the same operationId"));
            }
            let operation = Operation { path, method, value: operation, document: &document };
            faults.extend(operation.faults().into_iter().map(|fault| format!("{place}: {fault}")));
        }
    }
    faults.extend(schema_faults(&document["components"]["schemas"]));
    faults
}

/// A path has lower-case words with hyphens, and parameters of lower-case words with underscores.
fn path_faults(path: &str) -> Option<String> {
    let is_word = |word: &str, joint: char| {
        !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == joint)
    };
    let is_good = |part: &str| match part.strip_prefix('{').and_then(|part| part.strip_suffix('}')) {
        Some(parameter) => is_word(parameter, '_'),
        None => is_word(part, '-') || part == "openapi.json",
    };
    let is_path_good = path.starts_with('/') && path.split('/').skip(1).all(is_good);
    (!is_path_good).then(|| format!("{path}: the path is not of lower-case words with hyphens"))
}

/// One operation.
struct Operation<'a> {
    path: &'a str,
    method: &'a str,
    value: &'a Value,
    document: &'a Value,
}

impl Operation<'_> {
    fn faults(&self) -> Vec<String> {
        let mut faults = self.words();
        faults.extend(self.parameters());
        faults.extend(self.answers());
        faults.extend(self.bodies());
        faults.extend(self.list());
        faults
    }

    fn words(&self) -> Vec<String> {
        let id = self.value["operationId"].as_str().unwrap_or_default();
        let is_id =
            id.starts_with(|c: char| c.is_ascii_lowercase()) && id.chars().all(|c| c.is_ascii_alphanumeric());
        let summary = self.value["summary"].as_str().unwrap_or_default();
        let is_summary = summary.starts_with(char::is_uppercase) && summary.ends_with('.');
        let tags = self.value["tags"].as_array().map_or(0, Vec::len);
        let found = [
            (!is_id, "the operationId is not in camel case"),
            (!is_summary, "the summary is not one sentence"),
            (tags != 1, "there is not exactly one tag"),
        ];
        found.into_iter().filter(|(is_fault, _)| *is_fault).map(|(_, fault)| fault.to_owned()).collect()
    }

    fn parameter(&self, place: &str, name: &str) -> Option<&Value> {
        let parameters = self.value["parameters"].as_array()?;
        parameters.iter().find(|parameter| parameter["in"] == place && parameter["name"] == name)
    }

    /// Each parameter of the path is described; a change can state a version, a creation a key.
    fn parameters(&self) -> Vec<String> {
        let mut faults = Vec::new();
        for parameter in self.value["parameters"].as_array().into_iter().flatten() {
            if parameter["description"].as_str().is_none_or(str::is_empty) {
                faults.push(format!("parameter {} has no description", parameter["name"]));
            }
            if parameter["schema"].to_string().contains("\"null\"") {
                faults.push(format!("parameter {} can be null, which no parameter can", parameter["name"]));
            }
        }
        let mut names = BTreeSet::new();
        let all = self.value["parameters"].as_array().into_iter().flatten();
        for twice in all.filter(|parameter| !names.insert(parameter["name"].to_string())) {
            faults.push(format!("two parameters have the name {}", twice["name"]));
        }
        let names = self.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
        for name in names.filter(|name| self.parameter("path", name).is_none()) {
            faults.push(format!("parameter '{name}' of the path is not described"));
        }
        if self.method == "post" && self.parameter("header", "Idempotency-Key").is_none() {
            faults.push("a POST accepts no Idempotency-Key".to_owned());
        }
        if self.method == "patch" && self.parameter("header", "If-Match").is_none() {
            faults.push("a PATCH accepts no If-Match".to_owned());
        }
        faults
    }

    /// Each operation describes the errors that all can give, and those that its input can cause.
    fn answers(&self) -> Vec<String> {
        let mut wanted: Vec<&str> = ERRORS_OF_ALL.to_vec();
        wanted.extend(self.path.contains('{').then_some("404"));
        wanted.extend((self.method != "get").then_some("409"));
        wanted.extend(self.parameter("header", "If-Match").map(|_| "412"));
        wanted.extend(self.parameter("header", "Idempotency-Key").map(|_| "422"));
        if self.value.get("requestBody").is_some() {
            wanted.extend(["400", "413", "415"]);
        }
        let answers = &self.value["responses"];
        let absent = wanted.into_iter().filter(|status| answers.get(*status).is_none());
        absent.map(|status| format!("the answer {status} is not described")).collect()
    }

    /// Bodies of JSON are named schemas with an example.
    fn bodies(&self) -> Vec<String> {
        let request = json_content(&self.value["requestBody"]);
        let answers = self.value["responses"].as_object().into_iter().flatten();
        let answers = answers
            .filter(|(status, _)| status.starts_with('2'))
            .filter_map(|(_, answer)| json_content(answer));
        let is_document = self.path == "/openapi.json";
        let mut faults = Vec::new();
        for content in request.into_iter().chain(answers).filter(|_| !is_document) {
            if content["schema"]["$ref"].as_str().is_none() {
                faults.push("a body has no named schema".to_owned());
            }
            if content.get("example").is_none() {
                faults.push("a body has no example".to_owned());
            }
        }
        faults
    }

    /// An operation whose name begins with `list` has pages of items.
    fn list(&self) -> Vec<String> {
        if !self.value["operationId"].as_str().is_some_and(|id| id.starts_with("list")) {
            return Vec::new();
        }
        let reference = json_content(&self.value["responses"]["200"])
            .and_then(|content| content["schema"]["$ref"].as_str())
            .unwrap_or_default();
        let schema = self.document.pointer(reference.trim_start_matches('#'));
        let has = |name: &str| schema.is_some_and(|schema| schema["properties"].get(name).is_some());
        let parameters = ["page_size", "page_token"].map(|name| self.parameter("query", name).is_some());
        match (parameters, has("items") && has("next_page_token")) {
            ([true, true], true) => Vec::new(),
            _ => vec!["a list has no pages (page_size, page_token, items, next_page_token)".to_owned()],
        }
    }
}

fn json_content(body: &Value) -> Option<&Value> {
    body["content"].get("application/json")
}

/// Properties have names of lower-case words, descriptions, base units, and times as RFC 3339.
fn schema_faults(schemas: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    for (name, schema) in schemas.as_object().into_iter().flatten() {
        let of_all = schema["allOf"].as_array().into_iter().flatten();
        for part in of_all.chain([schema]) {
            for (property, value) in part["properties"].as_object().into_iter().flatten() {
                let found = property_faults(property, value).into_iter();
                faults.extend(found.map(|fault| format!("{name}.{property}: {fault}")));
            }
        }
        if schema["description"].as_str().is_none_or(str::is_empty) {
            faults.push(format!("{name}: the schema has no description"));
        }
    }
    faults
}

fn property_faults(name: &str, value: &Value) -> Vec<String> {
    let is_word = name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    let is_derived = DERIVED_UNITS.iter().any(|unit| name.ends_with(unit));
    let is_time = name.ends_with("_at") || name == "since";
    let has_words =
        variants(value).any(|value| value["description"].as_str().is_some_and(|text| !text.is_empty()));
    let found = [
        (!is_word, "the name is not of lower-case words with underscores"),
        (is_derived, "the unit is not a base unit"),
        (is_time && !is_date_time(value), "a time is not a text in the format date-time (RFC 3339)"),
        (!has_words, "the property has no description"),
    ];
    found.into_iter().filter(|(is_fault, _)| *is_fault).map(|(_, fault)| fault.to_owned()).collect()
}

fn is_date_time(value: &Value) -> bool {
    variants(value).any(|value| value["format"] == "date-time")
}

/// A property, and its variants: one that can be absent is described in a variant.
fn variants(value: &Value) -> impl Iterator<Item = &Value> {
    value["oneOf"].as_array().into_iter().flatten().chain([value])
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::*;

    /// A description that is good, with the errors that a creation can give.
    fn good() -> Value {
        let answer = json!({"description": "a problem"});
        let errors = ["400", "401", "403", "409", "413", "415", "422", "4XX", "500", "503", "5XX"];
        let mut responses: Map<String, Value> =
            errors.iter().map(|status| ((*status).to_owned(), answer.clone())).collect();
        let content =
            json!({"application/json": {"schema": {"$ref": "#/components/schemas/Thing"}, "example": {}}});
        responses.insert("201".to_owned(), json!({"description": "a thing", "content": content}));
        let key = json!({"in": "header", "name": "Idempotency-Key", "description": "a key"});
        json!({
            "openapi": "3.1.0",
            "paths": {"/v1/things": {"post": {
                "operationId": "createThing", "summary": "Create a thing.", "tags": ["things"],
                "parameters": [key], "requestBody": {"content": content}, "responses": responses,
            }}},
            "components": {"schemas": {"Thing": {
                "description": "A thing.",
                "properties": {"created_at": {"description": "Since.", "type": "string", "format": "date-time"}},
            }}},
        })
    }

    fn faults(change: impl Fn(&mut Value)) -> usize {
        let mut document = good();
        change(&mut document);
        lint(&document.to_string()).len()
    }

    #[test]
    fn only_a_description_passes() {
        assert_eq!((lint("").len(), lint("{}").len()), (1, 1));
        assert_eq!(lint(&good().to_string()), Vec::<String>::new());
    }

    #[test]
    fn each_rule_finds_its_fault() {
        let operation = "/paths/~1v1~1things/post";
        let changes: [(&str, &str, Value); 13] = [
            (operation, "operationId", json!("create_thing")),
            (operation, "summary", json!("create a thing")),
            (operation, "tags", json!([])),
            ("/paths/~1v1~1things/post/parameters/0", "description", json!("")),
            ("/paths/~1v1~1things/post/parameters/0", "name", json!("Key")),
            ("/paths/~1v1~1things/post/parameters/0", "schema", json!({"type": ["string", "null"]})),
            ("/paths/~1v1~1things/post/requestBody/content/application~1json", "schema", json!({})),
            ("/paths/~1v1~1things/post/responses/201/content/application~1json", "schema", json!({})),
            (operation, "operationId", json!("listThings")),
            ("/components/schemas/Thing", "description", json!("")),
            ("/components/schemas/Thing/properties/created_at", "format", json!("time")),
            ("/components/schemas/Thing/properties", "latency_ms", json!({"description": "Long."})),
            ("/components/schemas/Thing/properties", "Size", json!({"description": "Large."})),
        ];
        for (place, name, value) in changes {
            let count = faults(|document| document.pointer_mut(place).unwrap()[name] = value.clone());
            assert_eq!(count, 1, "{place} {name}");
        }
        for status in ["400", "401", "409", "422", "5XX"] {
            let answers = format!("{operation}/responses");
            let count = faults(|document| {
                document.pointer_mut(&answers).unwrap().as_object_mut().unwrap().remove(status).unwrap();
            });
            assert_eq!(count, 1, "{status}");
        }
        let count = faults(|document| {
            let parameters = document.pointer_mut("/paths/~1v1~1things/post/parameters").unwrap();
            let same = json!({"in": "query", "name": "Idempotency-Key", "description": "a key"});
            parameters.as_array_mut().unwrap().push(same);
        });
        assert_eq!(count, 1, "two parameters with one name");
        let moved = |path: &str| {
            let mut document = good();
            let item = document["paths"]["/v1/things"].take();
            document["paths"] = json!({ path: item });
            lint(&document.to_string()).len()
        };
        assert_eq!((moved("/v1/my_things"), moved("/v1/Things"), moved("/v1/{thing}")), (1, 1, 2));
    }
}
