//! Handlers of `/v1/journals`.

use crate::convert::FromControl;
use crate::paging::{Page, key};
use axum::Json;
use axum::extract::State;

use super::answer::{Answer, Query};
use super::{Context, convert};
use weir_api_types::{Journal, JournalList, TenantQuery};
use weir_control::ControlError;

/// List write journals, which take the writes of replicas on slow drives.
#[utoipa::path(
    get, path = "/v1/journals", tag = "volumes", operation_id = "listJournals", params(TenantQuery),
    responses((status = 200, description = "Those of all volumes, or of those of one tenant", body = JournalList))
)]
pub(super) async fn list(
    State(context): State<Context>,
    Query(query): Query<TenantQuery>,
) -> Answer<JournalList> {
    let page = Page::of(query.page_size, query.page_token.as_deref())?;
    let tenant = convert::optional_name(query.tenant.as_deref())?;
    let views =
        context.run(move |control| Ok::<_, ControlError>(control.journals.journals(tenant.as_ref()))).await?;
    let items = views.into_iter().map(Journal::from_control);
    let (items, next_page_token) =
        page.cut(items, |journal| format!("{}\0{}", key(&journal.tenant, &journal.volume), journal.drive));
    Ok(Json(JournalList { items, next_page_token }))
}
