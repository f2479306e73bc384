//! The errors that an operation can give, by its method and its parameters.

use utoipa::openapi::path::{HttpMethod, Operation};
use utoipa::openapi::{Components, Content, ContentBuilder, Ref, RefOr, ResponseBuilder};

use super::headers::has_header;
use crate::idempotency;
use weir_api_types::{ErrorCode, Problem};

/// Content type of all errors.
const PROBLEM_JSON: &str = "application/problem+json";

/// An error answer: its name, its description, and a message of each of its codes.
type ErrorAnswer = (&'static str, &'static str, &'static [(ErrorCode, &'static str)]);

/// The errors of the API, by status.
const ERRORS: [ErrorAnswer; 12] = [
    (
        "Invalid",
        "A value is not accepted",
        &[(ErrorCode::Invalid, "a volume of 0 bytes is not accepted; 1 to 1125899906842624 are")],
    ),
    (
        "Unauthorized",
        "The request shows no valid token",
        &[(ErrorCode::Unauthorized, "a token is missing; every request over TCP shows the daemon's token")],
    ),
    (
        "Forbidden",
        "The sender may not administer the daemon",
        &[(ErrorCode::Forbidden, "user 1000 may not administer this daemon; root and its own user may")],
    ),
    (
        "NotFound",
        "The named object does not exist",
        &[(ErrorCode::NotFound, "unknown volume 'db' in tenant 'default'; there are: vol1, vol2")],
    ),
    (
        "Conflict",
        "The current state forbids the change",
        &[
            (ErrorCode::Conflict, "there is a volume 'vol1' in tenant 'default'; choose another name"),
            (ErrorCode::Refused, "volume 'vol1' has 2 clients attached; detach them or use --force"),
        ],
    ),
    (
        "VersionMismatch",
        "The object has another version than the request expects",
        &[(ErrorCode::VersionMismatch, "volume 'vol1' has version 8, not 7; read it again")],
    ),
    (
        "TooLarge",
        "The body is larger than a request may be",
        &[(ErrorCode::TooLarge, "length limit exceeded")],
    ),
    (
        "UnsupportedMediaType",
        "The request does not say that its body is JSON",
        &[(ErrorCode::UnsupportedMediaType, "expected request with `Content-Type: application/json`")],
    ),
    (
        "IdempotencyKeyReused",
        "The idempotency key was used for another request",
        &[(
            ErrorCode::IdempotencyKeyReused,
            "the idempotency key 'k1' was used for another request; each request has its own",
        )],
    ),
    (
        "Internal",
        "An operation failed inside Weir or below it",
        &[(ErrorCode::Internal, "cannot write the catalogue: Input/output error")],
    ),
    (
        "Busy",
        "Too many requests of this kind are in progress",
        &[(ErrorCode::Busy, "2 scrapes are in progress; ask again later")],
    ),
    (
        "Full",
        "There is no space, or the maximum number of objects is reached",
        &[(ErrorCode::Full, "pool 'default' has 3 GiB available, and 10 GiB are needed; add a drive")],
    ),
];

/// Name of the answer with an error of any code, for clients that do not tell them apart.
const ANY: &str = "Problem";

/// Defines the answers to which operations refer.
pub(super) fn define(components: &mut Components) {
    for (name, description, problems) in ERRORS {
        let examples = problems.iter().map(|(code, message)| {
            let value =
                serde_json::to_value(Problem::new(*code, message)).expect("a problem has a JSON form");
            (code.word(), utoipa::openapi::example::ExampleBuilder::new().value(Some(value)).build())
        });
        let content = ContentBuilder::new()
            .schema(Some(Ref::from_schema_name("Problem")))
            .examples_from_iter(examples)
            .build();
        define_answer(components, name, description, content);
    }
    let content = ContentBuilder::new().schema(Some(Ref::from_schema_name("Problem"))).build();
    define_answer(components, ANY, "The request was not done", content);
}

fn define_answer(components: &mut Components, name: &str, description: &str, content: Content) {
    let response = ResponseBuilder::new().description(description).content(PROBLEM_JSON, content);
    components.responses.insert(name.to_owned(), response.build().into());
}

/// Adds the errors that an operation can give.
pub(super) fn add(operation: &mut Operation, method: &HttpMethod, path: &str) {
    let is_change = !matches!(method, HttpMethod::Get);
    let parameters: Vec<_> = operation.parameters.iter().flatten().collect();
    let has_input = operation.request_body.is_some() || !parameters.is_empty();
    let body = operation.request_body.is_some();
    let creates = matches!(method, HttpMethod::Post | HttpMethod::Patch);
    let errors = [
        (has_input, "Invalid"),
        (true, "Unauthorized"),
        (true, "Forbidden"),
        (path.contains('{'), "NotFound"),
        (is_change, "Conflict"),
        (has_header(operation, "If-Match"), "VersionMismatch"),
        (body, "TooLarge"),
        (body, "UnsupportedMediaType"),
        (has_header(operation, idempotency::KEY_NAME), "IdempotencyKeyReused"),
        (true, "Internal"),
        (true, "Busy"),
        (creates, "Full"),
    ];
    for (_, name) in errors.into_iter().filter(|(can_happen, _)| *can_happen) {
        let status = status_of(name).to_string();
        operation.responses.responses.insert(status, RefOr::Ref(Ref::from_response_name(name)));
    }
    for range in ["4XX", "5XX"] {
        let other = RefOr::Ref(Ref::from_response_name(ANY));
        operation.responses.responses.insert(range.to_owned(), other);
    }
}

/// Status of an answer, by its first code.
fn status_of(name: &str) -> u16 {
    let found = ERRORS.iter().find(|(found, ..)| *found == name).and_then(|(_, _, codes)| codes.first());
    found.expect("each error of an operation is defined").0.status()
}
