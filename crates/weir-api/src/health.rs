//! Handlers of `/livez`, `/readyz` and `/v1/logging`.
//!
//! A supervisor restarts a daemon that is not alive, and sends no clients to one that is not ready.

use axum::Json;
use axum::extract::State;

use super::Context;
use super::answer::{Answer, Body};
use super::error::ApiError;
use weir_api_types::{Logging, Problem};
use weir_control::ControlError;
use weir_host::logging;

/// Check that the daemon is alive.
#[utoipa::path(
    get, path = "/livez", tag = "status", operation_id = "livez",
    responses((status = 200, description = "The daemon answers requests", body = String, content_type = "text/plain"))
)]
pub(super) async fn livez() -> &'static str {
    "ok\n"
}

/// Check that the daemon is ready for use.
#[utoipa::path(
    get, path = "/readyz", tag = "status", operation_id = "readyz",
    responses((status = 200, description = "The records can be read, and volumes are served", body = String,
               content_type = "text/plain"))
)]
pub(super) async fn readyz(State(context): State<Context>) -> Result<&'static str, ApiError> {
    context.run(|control| Ok::<_, ControlError>(control.counts())).await?;
    Ok("ready\n")
}

/// Show the log level.
#[utoipa::path(
    get, path = "/v1/logging", tag = "status", operation_id = "logging",
    responses((status = 200, description = "What is logged", body = Logging),
              (status = 409, description = "The daemon was started without a log that can be changed", body = Problem, content_type = "application/problem+json"))
)]
pub(super) async fn logging() -> Answer<Logging> {
    let level = logging::level().ok_or_else(|| ControlError::refused("this process writes no log"))?;
    Ok(Json(Logging { level }))
}

/// Change the log level until the daemon ends.
#[utoipa::path(
    put, path = "/v1/logging", tag = "status", operation_id = "setLogging", request_body = Logging,
    responses((status = 200, description = "What is logged from now on", body = Logging))
)]
pub(super) async fn set_logging(Body(request): Body<Logging>) -> Answer<Logging> {
    logging::set_level(&request.level).map_err(ControlError::invalid)?;
    Ok(Json(request))
}
