//! Handlers of `/v1/journals`.

use crate::convert::FromControl;
use axum::Json;
use axum::extract::State;

use super::answer::{Answer, Query};
use super::{Context, convert};
use weir_api_types::{ErrorBody, Journal, JournalList, TenantQuery};
use weir_control::ControlError;

/// List write journals, which take the writes of replicas on slow drives.
#[utoipa::path(
    get, path = "/v1/journals", tag = "volumes", operation_id = "listJournals", params(TenantQuery),
    responses((status = 200, description = "Those of all volumes, or of those of one tenant", body = JournalList),
              (status = "default", description = "Not done", body = ErrorBody))
)]
pub(super) async fn list(
    State(context): State<Context>,
    Query(query): Query<TenantQuery>,
) -> Answer<JournalList> {
    let tenant = convert::optional_name(query.tenant.as_deref())?;
    let views =
        context.run(move |control| Ok::<_, ControlError>(control.journals.journals(tenant.as_ref()))).await?;
    Ok(Json(JournalList { journals: views.into_iter().map(Journal::from_control).collect() }))
}
