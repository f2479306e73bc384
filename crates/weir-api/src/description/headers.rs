//! Header fields that many operations share: the idempotency key of a request, the `ETag` of an answer.

use std::collections::BTreeMap;

use utoipa::openapi::path::{HttpMethod, Operation, Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::openapi::{Content, Header, HeaderBuilder, RefOr, Required, Response};

use crate::idempotency;
use weir_types::control_bounds::IDEMPOTENCY_KEY_CHARACTERS_MAX;

/// Adds the header fields of an operation.
pub(super) fn add(operation: &mut Operation, method: &HttpMethod, schemas: &BTreeMap<String, RefOr<Schema>>) {
    if matches!(method, HttpMethod::Post) {
        operation.parameters.get_or_insert_default().push(idempotency_key().into());
    }
    for response in operation.responses.responses.values_mut() {
        let RefOr::T(response) = response else { continue };
        if has_version(response, schemas) {
            response.headers.insert("ETag".to_owned(), entity_tag().into());
        }
    }
}

/// True if an operation has a header parameter.
pub(super) fn has_header(operation: &Operation, name: &str) -> bool {
    operation.parameters.iter().flatten().any(|parameter| match parameter {
        RefOr::T(Parameter { name: found, parameter_in: ParameterIn::Header, .. }) => found == name,
        _ => false,
    })
}

fn idempotency_key() -> Parameter {
    let text = ObjectBuilder::new()
        .schema_type(Type::String)
        .min_length(Some(1))
        .max_length(Some(IDEMPOTENCY_KEY_CHARACTERS_MAX));
    ParameterBuilder::new()
        .name(idempotency::KEY_NAME)
        .parameter_in(ParameterIn::Header)
        .required(Required::False)
        .description(Some(
            "A key that the client chooses, such as a UUID. A request that is sent again with its key \
             happens once, and gets the same answer.",
        ))
        .schema(Some(text))
        .build()
}

fn entity_tag() -> Header {
    let text = ObjectBuilder::new().schema_type(Type::String).examples(["\"12\""]);
    HeaderBuilder::new()
        .schema(Some(text.build()))
        .description(Some("Version of the object, for `If-Match` in a later change"))
        .build()
}

/// Name of the schema of a content.
pub(super) fn schema_name(content: &RefOr<Content>) -> Option<&str> {
    match content {
        RefOr::T(Content { schema: Some(RefOr::Ref(reference)), .. }) => {
            reference.ref_location.rsplit('/').next()
        }
        _ => None,
    }
}

/// True if an answer is an object with a version.
fn has_version(response: &Response, schemas: &BTreeMap<String, RefOr<Schema>>) -> bool {
    let mut names = response.content.values().filter_map(schema_name);
    names.any(|name| match schemas.get(name) {
        Some(RefOr::T(Schema::Object(object))) => object.properties.contains_key("version"),
        _ => false,
    })
}
