//! Alarms about missing replicas, and about replicas that would fail together.

use std::collections::BTreeMap;

use weir_plan::failure_domain::{FailureDomain, count_failure_domains};
use weir_types::{DriveId, ExtentIndex};

use crate::error::list_names;
use crate::model::Model;
use crate::records::VolumeRecord;

/// The number of a volume's extent replicas on missing drives, in words, if there are any.
pub(crate) fn missing_replicas(model: &Model, volume: &VolumeRecord) -> Option<String> {
    let placement = &volume.placement;
    let missing: Vec<DriveId> =
        placement.drives().into_iter().filter(|drive| !model.is_there(*drive)).collect();
    if missing.is_empty() {
        return None;
    }
    let on = |drive: &DriveId| placement.extents_on(*drive, volume.size_bytes).count();
    let replicas: usize = missing.iter().map(on).sum();
    let all: usize = placement.drives().iter().map(on).sum();
    let drives = model.drives_of(volume).filter(|drive| missing.contains(&drive.id));
    let names = list_names(drives.map(|drive| &drive.name));
    (replicas > 0)
        .then(|| format!("{replicas} of the {all} replicas of its extents are missing, on: {names}"))
}

/// The number of extents whose replicas share a zone or a rack, in words, if drives have zones or racks.
pub(crate) fn close_replicas(model: &Model, volume: &VolumeRecord) -> Option<String> {
    let drives: BTreeMap<DriveId, FailureDomain> =
        model.drives_of(volume).map(|drive| (drive.id, model.domain_of(drive))).collect();
    let has_zones = model.drives_of(volume).any(|drive| drive.zone.is_some());
    let has_racks = model.drives_of(volume).any(|drive| drive.rack.is_some());
    if !has_zones && !has_racks {
        return None;
    }
    // Even among very many extents, most have their replicas on the same few drives.
    let mut homes: BTreeMap<Vec<DriveId>, u64> = BTreeMap::new();
    for extent in ExtentIndex::all_of(volume.size_bytes) {
        let home = volume.placement.replicas_of(extent).map(|(_, drive)| drive).collect();
        *homes.entry(home).or_default() += 1;
    }
    let (mut share_zone, mut share_rack) = (0, 0);
    for (home, count) in homes {
        let (zones, racks) = count_failure_domains(home.iter().filter_map(|drive| drives.get(drive)));
        share_zone += if has_zones && zones < home.len() { count } else { 0 };
        share_rack += if has_racks && racks < home.len() { count } else { 0 };
    }
    let close = [(share_zone, "zone"), (share_rack, "rack")].into_iter().find(|(count, _)| *count > 0);
    let (count, what) = close?;
    Some(format!("replicas of {count} of its extents share a {what} and would fail together"))
}
