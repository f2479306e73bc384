//! Handler of `/v1/recordings`.

use std::time::Duration;

use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use tokio::time::{Instant, sleep};
use weir_types::Name;

use super::answer::Body;
use super::error::ApiError;
use super::{Context, convert};
use weir_api_types::{RecordingCreate, TraceFile};
use weir_control::{Outcome, RecordVolumes, RunningRecording};
use weir_types::control_bounds::TRACE_BYTES_DEFAULT;

/// Interval at which a recording's size is checked against its limit.
const LOOK: Duration = Duration::from_millis(50);

/// Record the requests to volumes, and answer with the trace.
///
/// The recording ends when its time is over, when the trace has reached its size limit, or when the client
/// disconnects.
#[utoipa::path(
    post, path = "/v1/recordings", tag = "volumes", operation_id = "recordVolumes", request_body = RecordingCreate,
    responses((status = 200, description = "The trace, in the form that docs/reference/trace-format.md describes", body = TraceFile,
               content_type = "application/octet-stream"))
)]
pub(super) async fn record(
    State(context): State<Context>,
    Body(request): Body<RecordingCreate>,
) -> Result<impl IntoResponse, ApiError> {
    let request = read(request)?;
    let end = Duration::from_secs(request.seconds.into());
    let recording = context.run(move |control| control.recordings.start_recording(&request)).await?;
    let end = Instant::now() + end;
    while Instant::now() < end && !recording.is_full() {
        sleep(LOOK.min(end - Instant::now())).await;
    }
    let TraceFile(trace) = context.run(move |_| RunningRecording::finish(recording).map(TraceFile)).await?;
    Ok(([(header::CONTENT_TYPE, "application/octet-stream")], trace))
}

fn read(request: RecordingCreate) -> Outcome<RecordVolumes> {
    let tenant = convert::optional_name(request.tenant.as_deref())?;
    let volume = |text: &String| -> Outcome<(Option<Name>, Name)> {
        match text.split_once('/') {
            Some((tenant, name)) => Ok((Some(convert::name(tenant)?), convert::name(name)?)),
            None => Ok((tenant.clone(), convert::name(text)?)),
        }
    };
    Ok(RecordVolumes {
        volumes: request.volumes.iter().map(volume).collect::<Outcome<_>>()?,
        seconds: request.seconds,
        bytes_max: request.limit_bytes.unwrap_or(TRACE_BYTES_DEFAULT),
    })
}
