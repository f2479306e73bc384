//! The OpenAPI description of the API: what the handlers say of themselves, completed by what holds for all
//! operations.
//!
//! Handlers describe their parameters and successful answers. The errors that an operation can give follow
//! from its method and parameters, and are added here; so are examples and the header fields that many
//! operations share.

mod errors;
mod examples;
mod headers;

use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use utoipa::openapi::path::{HttpMethod, Operation, PathItem};
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::openapi::{OpenApi, SecurityRequirement, Server};

use super::error::ApiError;
use super::{Context, routes};
use weir_control::ControlError;

/// Name of the scheme of the token that TCP requests show.
const TOKEN: &str = "token";

/// The OpenAPI document as served; `docs/openapi.json` holds its snapshot.
///
/// # Errors
/// If the document has no JSON form, which would be a mistake in the handlers' annotations.
pub fn openapi_document() -> Result<String, serde_json::Error> {
    let mut document = routes().into_openapi();
    complete(&mut document);
    let mut text = document.to_pretty_json()?;
    text.push('\n');
    Ok(text)
}

/// Adds what holds for all operations.
fn complete(document: &mut OpenApi) {
    let components = document.components.get_or_insert_default();
    errors::define(components);
    let token = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
    components.security_schemes.insert(TOKEN.to_owned(), token.into());
    // The Unix socket asks the kernel who the sender is, and needs no token.
    let none = SecurityRequirement::default();
    document.security = Some(vec![none, SecurityRequirement::new(TOKEN, Vec::<String>::new())]);
    document.servers = Some(vec![Server::new("/")]);
    let schemas = components.schemas.clone();
    for (path, item) in &mut document.paths.paths {
        for (method, operation) in operations_of(item) {
            headers::add(operation, (&method, path), &schemas);
            errors::add(operation, &method, path);
            examples::add(operation);
        }
    }
}

/// The operations of a path, with their methods.
fn operations_of(item: &mut PathItem) -> impl Iterator<Item = (HttpMethod, &mut Operation)> {
    let all = [
        (HttpMethod::Get, &mut item.get),
        (HttpMethod::Put, &mut item.put),
        (HttpMethod::Post, &mut item.post),
        (HttpMethod::Patch, &mut item.patch),
        (HttpMethod::Delete, &mut item.delete),
    ];
    all.into_iter().filter_map(|(method, operation)| operation.as_mut().map(|operation| (method, operation)))
}

/// The OpenAPI document of this API.
#[utoipa::path(
    get, path = "/openapi.json", tag = "status", operation_id = "openapi",
    responses((status = 200, description = "The OpenAPI document", body = serde_json::Value))
)]
pub(super) async fn openapi(State(context): State<Context>) -> Result<impl IntoResponse, ApiError> {
    let document =
        context.run(|_| openapi_document().map_err(|error| ControlError::internal(error.to_string())));
    Ok(([(header::CONTENT_TYPE, "application/json")], document.await?))
}
