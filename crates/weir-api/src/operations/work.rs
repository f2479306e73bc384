//! Control's operations as the API shows them.

use jiff::Timestamp;
use uuid::Uuid;
use weir_api_types::{
    ObjectKind, ObjectReference, Operation, OperationKind, OperationProgress, OperationState, ProgressUnit,
};
use weir_control::{OperationEnd, OperationKey, RunningOperation};
use weir_types::Name;

use super::registry::End;

/// Name space of the identities of operations.
const NAME_SPACE: Uuid = Uuid::from_u128(0x3c0e_71d9_8a44_4b1f_a2f6_5d08_9b7c_e613);

/// Identity of the operation with a key. It follows from the key alone, so it is the same after a restart.
pub fn id_of(key: OperationKey) -> Uuid {
    let (object, drive) = match key {
        OperationKey::Drain(drive) | OperationKey::Measurement(drive) => (drive.0, None),
        OperationKey::Move(volume) | OperationKey::Scrub(volume) | OperationKey::Resync(volume) => {
            (volume.0, None)
        }
        OperationKey::Reclaim(volume, drive) => (volume.0, Some(drive.0)),
    };
    let place = drive.map(|drive| format!(" on {drive}")).unwrap_or_default();
    Uuid::new_v5(&NAME_SPACE, format!("{} {object}{place}", word_of(key)).as_bytes())
}

/// The word for a kind in identities. It never changes, because clients may keep an identity.
fn word_of(key: OperationKey) -> &'static str {
    match key {
        OperationKey::Drain(_) => "drain",
        OperationKey::Measurement(_) => "measurement",
        OperationKey::Move(_) => "move",
        OperationKey::Scrub(_) => "scrub",
        OperationKey::Resync(_) => "resync",
        OperationKey::Reclaim(..) => "reclaim",
    }
}

fn kind_of(key: OperationKey) -> OperationKind {
    match key {
        OperationKey::Drain(_) => OperationKind::Drain,
        OperationKey::Measurement(_) => OperationKind::Measurement,
        OperationKey::Move(_) => OperationKind::Move,
        OperationKey::Scrub(_) => OperationKind::Scrub,
        OperationKey::Resync(_) => OperationKind::Resync,
        OperationKey::Reclaim(..) => OperationKind::Reclaim,
    }
}

/// An operation in progress.
pub fn shown(running: RunningOperation, now: Timestamp) -> Operation {
    let state = match running.blocked_reason {
        Some(_) => OperationState::Blocked,
        None => OperationState::Running,
    };
    Operation {
        id: id_of(running.key),
        kind: kind_of(running.key),
        object: object_of(&running),
        message: running.what,
        state,
        reason: running.blocked_reason,
        progress: running.progress.map(progress),
        can_be_cancelled: running.key.can_be_cancelled(),
        begun_at: running.begun_at.unwrap_or(now),
        ended_at: None,
        request: None,
        result: None,
        problem: None,
    }
}

/// How an operation ended.
pub fn shown_end(end: OperationEnd) -> End {
    match end {
        OperationEnd::Succeeded => (OperationState::Succeeded, None),
        OperationEnd::Failed(why) => (OperationState::Failed, Some(why)),
        OperationEnd::Cancelled => (OperationState::Cancelled, None),
    }
}

fn object_of(running: &RunningOperation) -> ObjectReference {
    let (kind, id) = match running.key {
        OperationKey::Drain(drive) | OperationKey::Measurement(drive) => (ObjectKind::Drive, drive.0),
        OperationKey::Move(volume)
        | OperationKey::Scrub(volume)
        | OperationKey::Resync(volume)
        | OperationKey::Reclaim(volume, _) => (ObjectKind::Volume, volume.0),
    };
    let text = |name: &Option<Name>| name.as_ref().map(Name::to_string);
    ObjectReference { kind, id: Some(id), tenant: text(&running.tenant), name: text(&running.name) }
}

fn progress(progress: weir_control::OperationProgress) -> OperationProgress {
    use weir_control::OperationProgress::{Bytes, Extents, Percent};
    match progress {
        Extents { left } => OperationProgress { unit: ProgressUnit::Extents, done: None, left },
        Bytes { done, left } => OperationProgress { unit: ProgressUnit::Bytes, done: Some(done), left },
        Percent { done } => OperationProgress {
            unit: ProgressUnit::Percent,
            done: Some(done.into()),
            left: 100_u32.saturating_sub(done).into(),
        },
    }
}

#[cfg(test)]
mod tests {
    use weir_types::{DriveId, VolumeId};

    use super::*;

    #[test]
    fn identity_of_an_operation_stays() {
        let (drive, volume) = (DriveId(Uuid::from_u128(1)), VolumeId(Uuid::from_u128(2)));
        let identities = [
            OperationKey::Drain(drive),
            OperationKey::Measurement(drive),
            OperationKey::Move(volume),
            OperationKey::Reclaim(volume, drive),
        ];
        let expected = [
            "c6e42cd3-b222-5952-afc7-273156adaddf",
            "989d493f-7c9a-504a-9e00-f13f5ca06c2a",
            "8e4c9660-8ded-5d97-bbcd-6629df750b90",
            "2564b9eb-b9e5-540e-9f0c-97d857921459",
        ];
        assert_eq!(identities.map(|key| id_of(key).to_string()), expected);
    }
}
