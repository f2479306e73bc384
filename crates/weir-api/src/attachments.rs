//! Handlers of `/v1/attachments`, and of a volume's attachments.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use uuid::Uuid;

use super::answer::{Answer, Body, Path, Query};
use super::error::ApiError;
use super::{Context, convert};
use crate::convert::{FromControl, IntoApi};
use crate::paging::{Page, key};
use weir_api_types::{Attachment, AttachmentCreate, AttachmentList, PageQuery, TenantQuery};
use weir_control::{AttachVolume, ControlError};
use weir_types::AttachmentId;

/// Longest description of a consumer, in characters.
const CONSUMER_CHARACTERS_MAX: usize = 255;

/// List attachments: volumes that are block devices or files.
#[utoipa::path(
    get, path = "/v1/attachments", tag = "volumes", operation_id = "listAttachments", params(TenantQuery),
    responses((status = 200, description = "All attachments, or those of one tenant", body = AttachmentList))
)]
pub(super) async fn list(
    State(context): State<Context>,
    Query(query): Query<TenantQuery>,
) -> Answer<AttachmentList> {
    let page = Page::of(query.page_size, query.page_token.as_deref())?;
    let tenant = convert::optional_name(query.tenant.as_deref())?;
    let views = context.run(|control| Ok::<_, ControlError>(control.attachments.attachments())).await?;
    let wanted = views.into_iter().filter(|view| tenant.as_ref().is_none_or(|tenant| *tenant == view.tenant));
    let mut items: Vec<Attachment> = wanted.map(Attachment::from_control).collect();
    items.sort_by_cached_key(page_key);
    let (items, next_page_token) = page.cut(items, page_key);
    Ok(Json(AttachmentList { items, next_page_token }))
}

/// Show an attachment.
#[utoipa::path(
    get, path = "/v1/attachments/{attachment}", tag = "volumes", operation_id = "getAttachment",
    params(("attachment" = Uuid, Path, description = "ID of the attachment")),
    responses((status = 200, description = "The attachment", body = Attachment))
)]
pub(super) async fn inspect(State(context): State<Context>, Path(id): Path<Uuid>) -> Answer<Attachment> {
    let view = context.run(move |control| control.attachments.attachment(AttachmentId(id))).await?;
    Ok(Json(view.into_api()))
}

/// Detach a volume whose block device or file is not in use.
#[utoipa::path(
    delete, path = "/v1/attachments/{attachment}", tag = "volumes", operation_id = "deleteAttachment",
    params(("attachment" = Uuid, Path, description = "ID of the attachment")),
    responses((status = 204, description = "It is gone"))
)]
pub(super) async fn delete(
    State(context): State<Context>,
    Path(id): Path<Uuid>,
) -> Result<StatusCode, ApiError> {
    context.run(move |control| control.attachments.detach(AttachmentId(id))).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// List the attachments of a volume.
#[utoipa::path(
    get, path = "/v1/tenants/{tenant}/volumes/{volume}/attachments", tag = "volumes",
    operation_id = "listVolumeAttachments",
    params(("tenant" = String, Path, description = "Tenant of the volume"), ("volume" = String, Path, description = "Name of the volume"), PageQuery),
    responses((status = 200, description = "The attachments", body = AttachmentList))
)]
pub(super) async fn list_of_volume(
    State(context): State<Context>,
    Path((tenant, name)): Path<(String, String)>,
    Query(query): Query<PageQuery>,
) -> Answer<AttachmentList> {
    let page = Page::of(query.page_size, query.page_token.as_deref())?;
    let (tenant, name) = (Some(convert::name(&tenant)?), convert::name(&name)?);
    let look =
        move |control: &weir_control::Control| control.attachments.attachments_of(tenant.as_ref(), &name);
    let views = context.run(look).await?;
    let (items, next_page_token) = page.cut(views.into_iter().map(Attachment::from_control), page_key);
    Ok(Json(AttachmentList { items, next_page_token }))
}

/// Attach a volume: make it a block device or a file of this host.
///
/// The block device or file stays while the daemon restarts: its I/O waits meanwhile.
#[utoipa::path(
    post, path = "/v1/tenants/{tenant}/volumes/{volume}/attachments", tag = "volumes",
    operation_id = "attachVolume", request_body = AttachmentCreate,
    params(("tenant" = String, Path, description = "Tenant of the volume"), ("volume" = String, Path, description = "Name of the volume")),
    responses((status = 201, description = "The new attachment", body = Attachment))
)]
pub(super) async fn create(
    State(context): State<Context>,
    Path((tenant, name)): Path<(String, String)>,
    Body(request): Body<AttachmentCreate>,
) -> Result<(StatusCode, Json<Attachment>), ApiError> {
    let (tenant, name) = (Some(convert::name(&tenant)?), convert::name(&name)?);
    let consumer = request.consumer.unwrap_or_default();
    let is_too_long = consumer.chars().count() > CONSUMER_CHARACTERS_MAX;
    if is_too_long || consumer.chars().any(char::is_control) {
        let message = format!("a consumer has at most {CONSUMER_CHARACTERS_MAX} characters, all printable");
        return Err(ControlError::invalid(message).of_field("consumer").into());
    }
    let method = request.method.map(convert::method_asked);
    let request = AttachVolume { method, is_read_only: request.read_only, consumer };
    let attach =
        move |control: &weir_control::Control| control.attachments.attach(tenant.as_ref(), &name, request);
    let view = context.run(attach).await?;
    Ok((StatusCode::CREATED, Json(view.into_api())))
}

fn page_key(attachment: &Attachment) -> String {
    format!("{}/{}", key(&attachment.tenant, &attachment.volume), attachment.id)
}
