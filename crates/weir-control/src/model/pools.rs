//! Pools in the model: the drives of one class are a pool, named after the class. A drive of unknown class is a pool
//! of its own, under its own name. Journal drives are in no pool.

use weir_types::{Class, DriveId, DriveRole, Name};

use crate::error::{ControlError, Outcome, list_names};
use crate::model::Model;
use crate::records::{DriveRecord, PoolSettings, VolumeRecord, VolumeState};

/// A pool in the records.
pub(crate) struct Pool<'a> {
    pub name: Name,
    pub class: Option<Class>,
    /// At least one drive, in the order in which they were added.
    pub drives: Vec<&'a DriveRecord>,
    pub settings: PoolSettings,
}

impl<'a> Pool<'a> {
    fn of(drive: &'a DriveRecord) -> Pool<'a> {
        let name = drive.class.map_or_else(|| drive.name.clone(), name_of);
        Pool { name, class: drive.class, drives: vec![drive], settings: drive.pool }
    }

    pub(crate) fn holds(&self, volume: &VolumeRecord) -> bool {
        // A volume that is being deleted cannot be used any more.
        let is_there = || self.drives.iter().any(|drive| volume.placement.names(drive.id));
        volume.state != VolumeState::Deleting && is_there()
    }
}

/// The name of the pool of a class.
fn name_of(class: Class) -> Name {
    Name::new(class.to_string()).expect("the name of a class is a name")
}

/// All pools, in the order in which their first drives were added.
pub(crate) fn pools_in(model: &Model) -> Vec<Pool<'_>> {
    let drives = model.drives.values().map(|drive| &drive.record);
    let mut drives: Vec<_> = drives.filter(|drive| drive.role == DriveRole::Data).collect();
    drives.sort_by_key(|drive| (drive.created_at, drive.id));
    let mut pools: Vec<Pool<'_>> = Vec::new();
    for drive in drives {
        let known = pools.iter_mut().find(|pool| pool.class.is_some() && pool.class == drive.class);
        match known {
            Some(pool) => pool.drives.push(drive),
            None => pools.push(Pool::of(drive)),
        }
    }
    pools
}

pub(crate) fn pool_named<'a>(model: &'a Model, name: &Name) -> Outcome<Pool<'a>> {
    pools_in(model).into_iter().find(|pool| pool.name == *name).ok_or_else(|| {
        let known = list_names(pools_in(model).iter().map(|pool| &pool.name));
        ControlError::not_found(format!("unknown pool '{name}'; there are: {known}"))
    })
}

/// A drive's record with the settings of the pool that it joins.
pub(crate) fn joined(model: &Model, mut drive: DriveRecord) -> DriveRecord {
    let is_other = |pool: &Pool<'_>| pool.drives.iter().any(|known| known.id != drive.id);
    let pool = pools_in(model).into_iter().find(|pool| pool.class.is_some() && pool.class == drive.class);
    if let Some(pool) = pool.filter(is_other) {
        // The number of operations in flight is each drive's own setting.
        drive.pool = PoolSettings { queue_target: drive.pool.queue_target, ..pool.settings };
    }
    drive
}

/// The pool that a drive is in.
pub(crate) fn pool_of(model: &Model, drive: DriveId) -> Option<Pool<'_>> {
    pools_in(model).into_iter().find(|pool| pool.drives.iter().any(|known| known.id == drive))
}

/// The version of a pool: that of its most recently changed drive.
pub(crate) fn pool_version(model: &Model, pool: &Pool<'_>) -> u64 {
    let versions = pool.drives.iter().filter_map(|drive| model.drives.get(&drive.id));
    versions.map(|drive| drive.revision.0).max().unwrap_or(0)
}
