//! Handlers of `/v1/alarms`: faults that exist now.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use uuid::Uuid;
use weir_api_types::{Alarm, AlarmList, AlarmQuery, ObjectKind, ObjectReference};
use weir_control::alarm_list::ShownAlarm;
use weir_control::{Control, ControlError, Outcome};
use weir_types::{DriveId, VolumeId};

use super::Context;
use super::answer::{Answer, Path, Query};
use super::convert::IntoApi;
use super::paging::Page;

/// Name space of the identities of alarms.
const NAME_SPACE: Uuid = Uuid::from_u128(0x8f1d_6c0a_52b7_4e39_9d64_01a7_c3e5_b208);

/// List alarms: faults that exist now.
#[utoipa::path(
    get, path = "/v1/alarms", tag = "alarms", operation_id = "listAlarms", params(AlarmQuery),
    responses((status = 200, description = "A page of the alarms that match, the most severe first", body = AlarmList))
)]
pub(super) async fn list(
    State(context): State<Context>,
    Query(query): Query<AlarmQuery>,
) -> Answer<AlarmList> {
    let page = Page::of(query.page_size, query.page_token.as_deref())?;
    let mut alarms = context.run(|control| Ok::<_, ControlError>(shown(control))).await?;
    alarms.retain(|alarm| {
        query.severity.is_none_or(|severity| alarm.severity == severity)
            && query.code.is_none_or(|code| alarm.code == code)
    });
    let key = |alarm: &Alarm| format!("{}\0{}", alarm.severity as u8, alarm.id);
    alarms.sort_by_key(key);
    let (items, next_page_token) = page.cut(alarms, key);
    Ok(Json(AlarmList { items, next_page_token }))
}

/// Show an alarm.
#[utoipa::path(
    get, path = "/v1/alarms/{id}", tag = "alarms", operation_id = "getAlarm",
    params(("id" = Uuid, Path, description = "Identity of the alarm")),
    responses((status = 200, description = "The alarm", body = Alarm))
)]
pub(super) async fn inspect(State(context): State<Context>, Path(id): Path<Uuid>) -> Answer<Alarm> {
    let find = move |control: &Control| -> Outcome<Alarm> {
        let found = shown(control).into_iter().find(|alarm| alarm.id == id);
        found.ok_or_else(|| {
            ControlError::not_found(format!("alarm {id} is not active; /v1/alarms lists those that are"))
        })
    };
    Ok(Json(context.run(find).await?))
}

/// The alarms as the API shows them, the most severe first.
pub(super) fn shown(control: &Control) -> Vec<Alarm> {
    let alarms = control.alarms.shown_alarms();
    // Nearly always there is none, and then no names are needed.
    if alarms.is_empty() {
        return Vec::new();
    }
    let drives =
        control.drives.drives().into_iter().map(|drive| (drive.record.id, drive.record.name.to_string()));
    let names = Names { volumes: control.views.export_names(), drives: drives.collect() };
    alarms.into_iter().map(|alarm| names.alarm(alarm)).collect()
}

/// Names of the objects of alarms.
struct Names {
    /// Export names of volumes.
    volumes: BTreeMap<VolumeId, String>,
    drives: BTreeMap<DriveId, String>,
}

impl Names {
    fn alarm(&self, ShownAlarm { alarm, severity, since, at_risk, remedy }: ShownAlarm) -> Alarm {
        let code = alarm.source.into_api();
        // Digits change while an alarm is active.
        let words: String = match alarm.extent {
            Some(_) => String::new(),
            None => alarm.message.chars().filter(|letter| !letter.is_ascii_digit()).collect(),
        };
        let cause = format!("{code:?}\0{:?}\0{:?}\0{words}", alarm.volume, alarm.drive);
        Alarm {
            id: Uuid::new_v5(&NAME_SPACE, cause.as_bytes()),
            code,
            severity: severity.into_api(),
            since,
            object: self.object(alarm.volume, alarm.drive),
            extent: alarm.extent.map(|extent| extent.0.into()),
            message: alarm.message,
            at_risk: at_risk.to_owned(),
            remedy: remedy.to_owned(),
        }
    }

    fn object(&self, volume: Option<VolumeId>, drive: Option<DriveId>) -> ObjectReference {
        match (volume, drive) {
            (Some(id), _) => {
                let name = self.volumes.get(&id).map(String::as_str);
                let (tenant, name) = match name.map(|name| name.split_once('/').unwrap_or((DEFAULT, name))) {
                    Some((tenant, name)) => (Some(tenant.to_owned()), Some(name.to_owned())),
                    None => (None, None),
                };
                ObjectReference { kind: ObjectKind::Volume, id: Some(id.0), tenant, name }
            }
            (None, Some(id)) => {
                let name = self.drives.get(&id).cloned();
                ObjectReference { kind: ObjectKind::Drive, id: Some(id.0), tenant: None, name }
            }
            (None, None) => ObjectReference::daemon(),
        }
    }
}

/// The tenant of export names without one.
const DEFAULT: &str = weir_types::name::DEFAULT_TENANT;
