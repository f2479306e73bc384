//! Handlers of `/v1/templates`.

use crate::answer::Query;
use crate::convert::FromControl;
use crate::convert::IntoApi;
use crate::paging::Page;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use weir_api_types::PageQuery;

use super::Context;
use super::answer::{Answer, Body, Path};
use super::convert;
use super::convert::policy as convert_policy;
use super::error::ApiError;
use super::versions::{IfVersion, Shown, Tagged};
use weir_api_types::{IfMatchHeader, IfVersionQuery, Template, TemplateCreate, TemplateList, TemplateModify};
use weir_control::{ControlError, CreateTemplate, ModifyTemplate};

/// List all templates, including the built-in ones.
#[utoipa::path(
    get, path = "/v1/templates", tag = "templates", operation_id = "listTemplates", params(PageQuery),
    responses((status = 200, description = "All templates", body = TemplateList))
)]
pub(super) async fn list(
    State(context): State<Context>,
    Query(query): Query<PageQuery>,
) -> Answer<TemplateList> {
    let page = Page::of(query.page_size, query.page_token.as_deref())?;
    let views = context.run(move |control| Ok::<_, ControlError>(control.templates.templates())).await?;
    let items = views.into_iter().map(Template::from_control);
    let (items, next_page_token) = page.cut(items, |template| template.name.clone());
    Ok(Json(TemplateList { items, next_page_token }))
}

/// Create a template.
#[utoipa::path(
    post, path = "/v1/templates", tag = "templates", operation_id = "createTemplate",
    request_body = TemplateCreate,
    responses((status = 201, description = "The new template", body = Template))
)]
pub(super) async fn create(
    State(context): State<Context>,
    Body(request): Body<TemplateCreate>,
) -> Result<(StatusCode, Tagged<Template>), ApiError> {
    let request = CreateTemplate {
        name: convert::name(&request.name)?,
        replicas: request.replicas.into_iter().map(Into::into).collect(),
        read_from: request.read_from.and_then(Into::into),
        policy_group: convert::optional_name(request.qos_policy_group.as_deref())?,
    };
    let view = context.run(|control| control.templates.create_template(request)).await?;
    Ok((StatusCode::CREATED, Tagged(view.into_api())))
}

/// Show a template.
#[utoipa::path(
    get, path = "/v1/templates/{template}", tag = "templates", operation_id = "getTemplate",
    params(("template" = String, Path, description = "Name of the template")),
    responses((status = 200, description = "The template", body = Template))
)]
pub(super) async fn inspect(State(context): State<Context>, Path(name): Path<String>) -> Shown<Template> {
    let name = convert::name(&name)?;
    Ok(Tagged(context.run(move |control| control.templates.template(&name)).await?.into_api()))
}

/// Change a template.
///
/// The replicas of the volumes that follow it move in the background.
#[utoipa::path(
    patch, path = "/v1/templates/{template}", tag = "templates", operation_id = "modifyTemplate",
    params(("template" = String, Path, description = "Name of the template"), IfVersionQuery, IfMatchHeader),
    request_body = TemplateModify,
    responses((status = 200, description = "The template as it is now", body = Template))
)]
pub(super) async fn modify(
    State(context): State<Context>,
    IfVersion(if_version): IfVersion,
    Path(name): Path<String>,
    Body(request): Body<TemplateModify>,
) -> Shown<Template> {
    let name = convert::name(&name)?;
    let request = ModifyTemplate {
        replicas: request.replicas.map(|replicas| replicas.into_iter().map(Into::into).collect()),
        read_from: request.read_from.map(Into::into),
        policy_group: convert_policy::name_or_none(request.qos_policy_group.as_deref())?,
        if_version,
    };
    Ok(Tagged(
        context.run(move |control| control.templates.modify_template(&name, request)).await?.into_api(),
    ))
}

/// Delete a template that no volume follows.
#[utoipa::path(
    delete, path = "/v1/templates/{template}", tag = "templates", operation_id = "deleteTemplate",
    params(("template" = String, Path, description = "Name of the template"), IfVersionQuery, IfMatchHeader),
    responses((status = 204, description = "It is gone"))
)]
pub(super) async fn delete(
    State(context): State<Context>,
    IfVersion(if_version): IfVersion,
    Path(name): Path<String>,
) -> Result<StatusCode, ApiError> {
    let name = convert::name(&name)?;
    context.run(move |control| control.templates.delete_template(&name, if_version)).await?;
    Ok(StatusCode::NO_CONTENT)
}
