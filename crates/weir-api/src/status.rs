//! Handler of `/v1/status`.

use crate::convert::FromControl;
use crate::convert::IntoApi;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;

use super::answer::Answer;
use super::{Context, Facts, alarms};
use weir_api_types::{Drive, Health, Pool, Status, VolumeSummary};
use weir_control::{Control, Outcome};
use weir_store::DriveUsage;
use weir_types::DriveRole;
use weir_types::control_bounds::{ALARMS_SHOWN_MAX, API_VOLUMES_PER_PIECE, JOBS_SHOWN_MAX};

/// Show the status of the daemon: its node, drives, volumes and alarms.
#[utoipa::path(
    get, path = "/v1/status", tag = "status", operation_id = "status",
    responses((status = 200, description = "How the daemon is", body = Status))
)]
pub(super) async fn status(State(context): State<Context>) -> Answer<Status> {
    let facts = context.facts.clone();
    Ok(Json(context.run(move |control| report(control, facts)).await?))
}

fn report(control: &Control, facts: Arc<Facts>) -> Outcome<Status> {
    let (alarms, drives) = (alarms::shown(control), control.drives.drives());
    let of_data = drives.iter().filter(|drive| drive.record.role == DriveRole::Data);
    let usage = DriveUsage::together(of_data.filter_map(|drive| drive.usage.as_ref().ok()));
    Ok(Status {
        status: if alarms.is_empty() { Health::Operational } else { Health::Degraded },
        version: env!("CARGO_PKG_VERSION").to_owned(),
        node_id: control.node(),
        host_name: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        cluster_id: facts.cluster_id.clone(),
        process_id: std::process::id(),
        uptime_ns: control.uptime_ns(),
        reactors: facts.reactors as u64,
        io_method: facts.io_method,
        io_method_reason: facts.io_method_reason.clone(),
        state_directory: facts.state_directory.clone(),
        api_listeners: facts.api_listeners.clone(),
        nbd_listeners: facts.nbd_listeners.clone(),
        zone: facts.zone.clone(),
        region: facts.region.clone(),
        drives: drives.into_iter().map(Drive::from_control).collect(),
        pools: control.pools.pools().into_iter().map(Pool::from_control).collect(),
        size_bytes: usage.size_bytes,
        used_bytes: usage.used_bytes,
        volumes: summary(control)?,
        background: control
            .background
            .background_jobs()
            .into_iter()
            .take(JOBS_SHOWN_MAX)
            .map(IntoApi::into_api)
            .collect(),
        alarm_count: alarms.len() as u64,
        alarms: alarms.into_iter().take(ALARMS_SHOWN_MAX).collect(),
        warnings: facts.warnings.clone(),
    })
}

/// Totals of all volumes. The volumes are looked up in pieces: all of them at once would take the memory of a
/// whole list, in each thread that answers.
fn summary(control: &Control) -> Outcome<VolumeSummary> {
    let ids = control.views.volume_ids(None)?;
    let pieces = ids.chunks(API_VOLUMES_PER_PIECE).map(|ids| control.views.volume_views(ids));
    Ok(pieces.flatten().fold(VolumeSummary::default(), |sum, view| VolumeSummary {
        count: sum.count + 1,
        provisioned_bytes: sum.provisioned_bytes + view.record.size_bytes,
        used_bytes: sum.used_bytes + view.used_bytes.unwrap_or(0),
        connections: sum.connections + view.counters.as_ref().map_or(0, |counters| counters.connections),
    }))
}
