//! Header fields that many operations share: the idempotency key of a request, the preference not to wait for its
//! answer, the `ETag` of an answer.

use std::collections::BTreeMap;

use utoipa::openapi::path::{HttpMethod, Operation, Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::schema::{ObjectBuilder, Schema, SchemaType, Type};
use utoipa::openapi::{Content, Header, HeaderBuilder, Ref, RefOr, Required, Response, ResponseBuilder};

use crate::idempotency;
use crate::operations::requests;
use weir_types::control_bounds::IDEMPOTENCY_KEY_CHARACTERS_MAX;

/// Adds the header fields of an operation.
pub(super) fn add(
    operation: &mut Operation,
    (method, path): (&HttpMethod, &str),
    schemas: &BTreeMap<String, RefOr<Schema>>,
) {
    if !matches!(method, HttpMethod::Get) && path != requests::RECORDINGS {
        operation.parameters.get_or_insert_default().push(preference().into());
        let responses = &mut operation.responses.responses;
        responses.entry("202".to_owned()).or_insert_with(|| accepted().into());
    }
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

fn preference() -> Parameter {
    ParameterBuilder::new()
        .name(requests::PREFER_NAME)
        .parameter_in(ParameterIn::Header)
        .required(Required::False)
        .description(Some(
            "With `respond-async`, the client does not wait for the answer, but gets an operation. With \
             `respond-async, wait=SECONDS`, it waits so long first.",
        ))
        .schema(Some(ObjectBuilder::new().schema_type(Type::String).examples(["respond-async, wait=5"])))
        .build()
}

/// The answer for a client that does not wait longer.
fn accepted() -> Response {
    let place = ObjectBuilder::new().schema_type(Type::String);
    let place = HeaderBuilder::new().schema(Some(place.build())).description(Some("Path of the operation"));
    ResponseBuilder::new()
        .description("The request is in progress, and its client preferred not to wait")
        .content("application/json", Content::new(Some(Ref::from_schema_name("Operation"))))
        .header("Location", place.build())
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
    names.any(|name| schemas.get(name).is_some_and(is_versioned))
}

/// True for a schema whose objects always have a version that is a number. The version of the daemon is text, and an
/// exported set of policies may lack its version.
fn is_versioned(schema: &RefOr<Schema>) -> bool {
    match schema {
        RefOr::T(Schema::Object(object)) => {
            let version = object.properties.get("version");
            object.required.iter().any(|name| name == "version") && version.is_some_and(is_integer)
        }
        RefOr::T(Schema::AllOf(parts)) => parts.items.iter().any(is_versioned),
        _ => false,
    }
}

fn is_integer(schema: &RefOr<Schema>) -> bool {
    let RefOr::T(Schema::Object(object)) = schema else { return false };
    matches!(object.schema_type, SchemaType::Type(Type::Integer))
}
