//! Handlers of `/v1/journals`.

use crate::convert::FromControl;
use crate::paging::{Page, key};
use axum::Json;
use axum::extract::State;

use super::answer::{Answer, Path, Query};
use super::{Context, convert};
use weir_api_types::{Journal, JournalList, PageQuery, TenantQuery};
use weir_control::{Control, ControlError, JournalView, Outcome};

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
    Ok(Json(cut(&page, views)))
}

/// List the write journals of a volume.
#[utoipa::path(
    get, path = "/v1/tenants/{tenant}/volumes/{volume}/journals", tag = "volumes",
    operation_id = "listJournalsOfVolume",
    params(("tenant" = String, Path, description = "Tenant of the volume"), ("volume" = String, Path, description = "Name of the volume"), PageQuery),
    responses((status = 200, description = "Its journals, one for each drive that has one", body = JournalList))
)]
pub(super) async fn list_of_volume(
    State(context): State<Context>,
    Path((tenant, name)): Path<(String, String)>,
    Query(query): Query<PageQuery>,
) -> Answer<JournalList> {
    let page = Page::of(query.page_size, query.page_token.as_deref())?;
    let (tenant, name) = (convert::name(&tenant)?, convert::name(&name)?);
    let views = move |control: &Control| -> Outcome<Vec<JournalView>> {
        let volume = control.views.volume(Some(&tenant), &name)?.record;
        let mut views = control.journals.journals(Some(&volume.tenant));
        views.retain(|view| view.volume.id == volume.id);
        Ok(views)
    };
    Ok(Json(cut(&page, context.run(views).await?)))
}

fn cut(page: &Page, views: Vec<JournalView>) -> JournalList {
    let items = views.into_iter().map(Journal::from_control);
    let (items, next_page_token) =
        page.cut(items, |journal| format!("{}\0{}", key(&journal.tenant, &journal.volume), journal.drive));
    JournalList { items, next_page_token }
}
