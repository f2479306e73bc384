//! Conversion of control's view of pools to the API.

use super::{FromControl, IntoApi};
use weir_api_types::{
    DriveDevice, DriveEmulation, DriveState, InFlightOrigin, IoPriority, Pool, PoolClaim, PoolDrive,
    PoolInFlight, PoolRates, PoolState,
};
use weir_control::{Amount, Claim, DriveView, PoolView};
use weir_engine_interface::DriveQueueDepth;
use weir_qos::DepthOrigin;
use weir_types::Rate;
impl FromControl<Amount> for PoolRates {
    fn from_control(amount: Amount) -> PoolRates {
        PoolRates { iops: amount.iops, bytes_per_second: amount.bytes_per_second }
    }
}

impl FromControl<DriveView> for PoolDrive {
    fn from_control(view: DriveView) -> PoolDrive {
        let (record, usage) = (view.record, view.usage.ok());
        PoolDrive {
            id: record.id.0,
            name: record.name.into(),
            path: record.path.display().to_string(),
            device: record.device.map(DriveDevice::from_control),
            emulation: record.emulation.map(DriveEmulation::from),
            state: state(usage.is_some()),
            size_bytes: usage.map(|usage| usage.size_bytes),
            used_bytes: usage.map(|usage| usage.used_bytes),
            provisioned_bytes: view.provisioned_bytes,
            scanned_at: view.scanned_at,
        }
    }
}

fn state(is_online: bool) -> DriveState {
    if is_online { DriveState::Online } else { DriveState::Missing }
}

fn pool_state(pool: &PoolView) -> PoolState {
    match pool.drives_online() {
        0 => PoolState::Missing,
        online if online < pool.drives.len() => PoolState::Degraded,
        _ => PoolState::Online,
    }
}

impl FromControl<Claim> for PoolClaim {
    fn from_control(claim: Claim) -> PoolClaim {
        let (iops, bytes_per_second) = match claim.rate {
            Rate::Iops(iops) => (Some(iops), None),
            Rate::BytesPerSecond(bytes_per_second) => (None, Some(bytes_per_second)),
        };
        PoolClaim {
            tenant: claim.tenant.into(),
            scope: (&claim.scope).into(),
            name: claim.name.into(),
            origin: claim.origin,
            iops,
            bytes_per_second,
        }
    }
}

impl FromControl<DriveQueueDepth> for PoolInFlight {
    fn from_control(depth: DriveQueueDepth) -> PoolInFlight {
        let origin = match depth.origin {
            DepthOrigin::Chosen => InFlightOrigin::Chosen,
            DepthOrigin::Held => InFlightOrigin::Held,
            DepthOrigin::Found => InFlightOrigin::Found,
            DepthOrigin::Sought => InFlightOrigin::Sought,
        };
        PoolInFlight { operations: depth.operations, origin }
    }
}

impl FromControl<PoolView> for Pool {
    fn from_control(view: PoolView) -> Pool {
        let (ledger, usage) = (&view.ledger, view.summed_usage());
        Pool {
            number: view.number as u64,
            version: view.version,
            class: view.class.map(IoPriority::from),
            state: pool_state(&view),
            size_bytes: usage.size_bytes,
            used_bytes: usage.used_bytes,
            available_bytes: usage.available_bytes,
            provisioned_bytes: view.provisioned_bytes(),
            over_provision_percent: view.settings.over_provision_percent,
            has_metadata: view.has_metadata,
            summary: view.summary(),
            name: view.name.into(),
            drives: view.drives.into_iter().map(PoolDrive::from_control).collect(),
            capacity: ledger.measure.capacity.map(PoolRates::from_control),
            over_commit_percent: view.settings.over_commit_percent,
            reserve_percent: view.settings.reserve_percent,
            floors: ledger.bound().into_api(),
            reserve: ledger.reserve().map(PoolRates::from_control),
            limit: ledger.limit().map(PoolRates::from_control),
            free: ledger.free().map(PoolRates::from_control),
            is_over_committed: !ledger.fits(),
            queue_target: view.settings.queue_target,
            in_flight: view.depth.map(PoolInFlight::from_control),
            claims: view.ledger.claims.into_iter().map(PoolClaim::from_control).collect(),
        }
    }
}
