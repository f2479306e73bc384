//! How the extents of a volume with several copies begin, and what an operator must know of its copies.
//!
//! Files are looked at here; what follows from what is found is decided by `weir-volume`. A volume that never had more
//! than one copy has no accounts and no witnesses, and nothing is read for it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::PathBuf;

use weir_types::{DriveId, VolumeId};
use weir_volume::mirror::{Account, Beginning, Found, Standing, Witness, epoch_record};

use super::Control;
use super::alarms::{AlarmSource, StandingAlarm};
use super::error::{ControlError, Outcome};
use super::journals::{Copy, Place};
use super::model::{Model, list_names};
use super::records::{VolumeRecord, VolumeState};
use super::spread::{Domain, count_domains};
use crate::store::account::{self, account_file_name};
use crate::store::{ExtentFault, Faults, extent_count, extent_fault, witness};

/// Folder of all witnesses in the state folder.
const WITNESSES_FOLDER: &str = "witnesses";
/// What an operator is told of an extent that stays out of service.
const FAILED_BEFORE: &str = "fails every request: its last copy in sync had a failed write or sync before this start, so \
    nobody knows what it holds; restore a snapshot, or accept it as it is by removing the volume's file of witnesses \
    while the daemon is stopped and all its drives are there";

/// The account beside each copy of an extent that is new, with its first epoch: all copies have everything. `None` if there
/// is only one.
pub(super) fn first_account(volume: &VolumeRecord, epoch: u64) -> Option<Account> {
    let copies = usize::from(volume.replicas);
    let standing = |slot: usize| if slot < copies { Standing::InSync } else { Standing::Absent };
    let standings = std::array::from_fn(standing);
    (copies > 1).then(|| Account::first(epoch, standings))
}

/// A look at all copies of a volume's extents.
#[derive(Default)]
struct Look {
    /// The folders of the drives that are there.
    folders: BTreeMap<DriveId, PathBuf>,
    /// The accounts of copies that are behind a journal, if that is ready.
    journaled: BTreeMap<Copy, Option<PathBuf>>,
    /// Extent files that are not as they must be.
    files: Faults,
    /// Accounts that are not as they must be.
    accounts: Faults,
}

impl Look {
    fn at(&mut self, extent: u32, copies: impl Iterator<Item = (usize, DriveId)>) -> Vec<(usize, Found)> {
        let found: Vec<_> =
            copies.map(|(slot, drive)| (slot, drive, self.at_copy((extent, slot), drive))).collect();
        if found.len() > 1 {
            let bare = found.iter().filter(|(_, _, found)| matches!(found, Found::Bare));
            bare.for_each(|(_, drive, _)| self.miss_account(extent, *drive));
        }
        found.into_iter().map(|(slot, _, found)| (slot, found)).collect()
    }

    fn at_copy(&mut self, (extent, slot): Copy, drive: DriveId) -> Found {
        let Some(folder) = self.folders.get(&drive) else { return Found::Nothing };
        if let Some(fault) = extent_fault(folder, extent) {
            self.files.push(fault);
            return Found::Nothing;
        }
        let path = match self.journaled.get(&(extent, slot)) {
            None => folder.join(account_file_name(extent.into())),
            Some(Some(path)) => path.clone(),
            Some(None) => return Found::Nothing,
        };
        match account::read(&path) {
            Ok(Some(account)) => Found::Accounted(account),
            Ok(None) => Found::Bare,
            Err(error) => {
                let message = format!("a copy is not used, because its account is of no use: {error}");
                self.accounts.push(ExtentFault { extent: extent.into(), message });
                Found::Nothing
            }
        }
    }

    fn miss_account(&mut self, extent: u32, drive: DriveId) {
        let path = self.folders.get(&drive).map(|folder| folder.join(account_file_name(extent.into())));
        let path = path.unwrap_or_default();
        let message = format!("a copy is not used, because its account {} is missing", path.display());
        self.accounts.push(ExtentFault { extent: extent.into(), message });
    }
}

impl Control {
    /// The file of a volume's witnesses.
    pub(super) fn witnesses(&self, volume: VolumeId) -> PathBuf {
        self.state.join(WITNESSES_FOLDER).join(volume.to_string())
    }

    /// The first epoch of extents that are to be made, from this one on.
    pub(super) fn first_epoch(&self, volume: &VolumeRecord, first: u64) -> Outcome<u64> {
        let witnesses = witness::read_all(&self.witnesses(volume.id), extent_count(volume.size_bytes))?;
        let first = usize::try_from(first).unwrap_or(usize::MAX);
        Ok(epoch_record::first_epoch(witnesses.get(first..).unwrap_or_default()))
    }

    /// Notes durably that extents from this one on are new, and their first epoch.
    pub(super) fn begin_witnesses(&self, volume: &VolumeRecord, first: u64, epoch: u64) -> Outcome<()> {
        if !self.has_accounts(volume) {
            return Ok(());
        }
        // A copy that is alone has no account, and no epoch counts there.
        let known = first_account(volume, epoch).map_or(0, |account| account.epoch);
        let new = Witness { reserved: epoch, known, is_failed: false };
        Ok(witness::begin(&self.witnesses(volume.id), extents(first, volume.size_bytes), new)?)
    }

    /// How the extents of a volume begin that were just made, with their first epoch; empty if none has, or had, several
    /// copies.
    pub(super) fn new_beginnings(&self, volume: &VolumeRecord, first: u64, epoch: u64) -> Vec<Beginning> {
        if !self.has_accounts(volume) {
            return Vec::new();
        }
        let beginning = || match first_account(volume, epoch) {
            None => Beginning::bare(0, epoch),
            Some(account) => Beginning::new(account),
        };
        extents(first, volume.size_bytes).map(|_| beginning()).collect()
    }

    /// True if any extent of a volume has, or had, several copies, also if the one that was added last is not recorded.
    pub(super) fn has_accounts(&self, volume: &VolumeRecord) -> bool {
        volume.placement.has_copies() || self.witnesses(volume.id).exists()
    }

    /// How the extents of a volume begin that is opened; empty if none ever had more than one copy. What is wrong with
    /// single copies is raised.
    ///
    /// # Errors
    /// Refused if an extent cannot be served from the copies that are there; the message says which, and why.
    pub(super) fn beginnings(&self, volume: &VolumeRecord) -> Outcome<Vec<Beginning>> {
        if !self.has_accounts(volume) {
            return Ok(Vec::new());
        }
        let witnesses = witness::read_all(&self.witnesses(volume.id), extent_count(volume.size_bytes))?;
        let mut look = self.look_at(volume);
        let (mut beginnings, mut first_fault, mut unservable) = (Vec::new(), None, 0_u64);
        for (extent, witness) in (0..).zip(witnesses) {
            let found = look.at(extent, volume.placement.copies_of(extent.into()));
            if witness.is_failed {
                look.files.push(ExtentFault { extent: extent.into(), message: FAILED_BEFORE.to_owned() });
            }
            match Beginning::find(found, witness) {
                Ok(beginning) => beginnings.push(beginning),
                Err(error) => {
                    first_fault.get_or_insert((extent, error));
                    unservable += 1;
                }
            }
        }
        self.alarms.set_extents(volume.id, look.files.into_vec());
        self.alarms.set_copies(volume.id, look.accounts.into_vec());
        let Some((extent, error)) = first_fault else { return Ok(beginnings) };
        let more = match unservable - 1 {
            0 => String::new(),
            more => format!(" (and {more} further extents cannot be served)"),
        };
        Err(ControlError::refused(format!("of extent {extent}, {error}{more}")))
    }

    /// All volumes with copies.
    pub(super) fn copied_volumes(&self) -> Vec<VolumeRecord> {
        let model = self.model();
        let all = model.volumes.values().map(|volume| &volume.record);
        all.filter(|volume| volume.placement.has_copies()).cloned().collect()
    }

    /// The extents of a volume with copies that those on drives that are there could serve, as their files say.
    pub(super) fn servable_extents(&self, volume: &VolumeRecord) -> Outcome<BTreeSet<u32>> {
        let witnesses = witness::read_all(&self.witnesses(volume.id), extent_count(volume.size_bytes))?;
        let mut look = self.look_at(volume);
        let mut is_servable = |(extent, witness): &(u32, Witness)| {
            let found = look.at(*extent, volume.placement.copies_of((*extent).into()));
            !witness.is_failed && Beginning::find(found, *witness).is_ok()
        };
        let servable = (0..).zip(witnesses).filter(|extent| is_servable(extent));
        Ok(servable.map(|(extent, _)| extent).collect())
    }

    fn look_at(&self, volume: &VolumeRecord) -> Look {
        let stores = self.stores_there(volume);
        let folders = stores.into_iter().map(|(drive, store)| (drive, store.extents(volume.id))).collect();
        Look { folders, journaled: self.journaled_accounts(volume), ..Look::default() }
    }

    /// The accounts of a volume's copies that are behind journals, as far as those are ready.
    fn journaled_accounts(&self, volume: &VolumeRecord) -> BTreeMap<Copy, Option<PathBuf>> {
        // What was decided when they were made ready counts, and not what a second look says.
        let seats = self.journals.seats(volume.id);
        let account = |extent: u32, slot: usize, drive: DriveId| {
            let account = match self.journal_of(volume.id, drive, (extent, slot)) {
                Place::Direct => return None,
                Place::Journaled(_, path) if seats.contains_key(&(extent, slot)) => Some(path),
                Place::Journaled(..) | Place::Waiting | Place::Lost => None,
            };
            Some(((extent, slot), account))
        };
        let of_extent = |extent: u32| {
            let copies = volume.placement.copies_of(extent.into());
            copies.filter_map(move |(slot, drive)| account(extent, slot, drive))
        };
        extents(0, volume.size_bytes).flat_map(of_extent).collect()
    }

    /// An alarm for each volume with copies of which some are on drives that are missing, or closer together than what
    /// is said of where drives are. They follow from the records and the drives alone.
    pub(super) fn replica_alarms(&self) -> Vec<StandingAlarm> {
        let moving: BTreeSet<VolumeId> = self.moves.under_way();
        let model = self.model();
        let volumes = model.volumes.values().map(|volume| &volume.record);
        let copied =
            volumes.filter(|volume| volume.state == VolumeState::Online && volume.placement.has_copies());
        let messages = copied.flat_map(|volume| {
            // What a move passes through is not where copies stay.
            let is_moving = moving.contains(&volume.id);
            let close = if is_moving { None } else { close_copies(&model, volume) };
            let messages = [missing_copies(&model, volume), close];
            messages.into_iter().flatten().map(|message| (volume.id, message))
        });
        let alarm = |(volume, message)| StandingAlarm {
            source: AlarmSource::Replicas,
            drive: None,
            volume: Some(volume),
            extent: None,
            message,
        };
        messages.map(alarm).collect()
    }
}

/// The extents from one on of a volume of this size.
fn extents(first: u64, size_bytes: u64) -> Range<u32> {
    let number = |extents: u64| u32::try_from(extents).expect("a volume's size is bounded");
    number(first)..number(extent_count(size_bytes))
}

/// How many copies of a volume's extents are on drives that are missing, if any are.
fn missing_copies(model: &Model, volume: &VolumeRecord) -> Option<String> {
    let placement = &volume.placement;
    let missing: Vec<DriveId> =
        placement.drives().into_iter().filter(|drive| !model.is_there(*drive)).collect();
    if missing.is_empty() {
        return None;
    }
    let on = |drive: &DriveId| placement.extents_on(*drive, volume.size_bytes).count();
    let copies: usize = missing.iter().map(on).sum();
    let all: usize = placement.drives().iter().map(on).sum();
    let drives = model.drives_of(volume).filter(|drive| missing.contains(&drive.id));
    let names = list_names(drives.map(|drive| &drive.name));
    (copies > 0).then(|| format!("{copies} of the {all} copies of its extents are missing, on: {names}"))
}

/// Of how many extents copies share a zone, or a rack, if it is said where drives are.
fn close_copies(model: &Model, volume: &VolumeRecord) -> Option<String> {
    let drives: BTreeMap<DriveId, Domain> =
        model.drives_of(volume).map(|drive| (drive.id, model.domain_of(drive))).collect();
    let has_zones = model.drives_of(volume).any(|drive| drive.zone.is_some());
    let has_racks = model.drives_of(volume).any(|drive| drive.rack.is_some());
    if !has_zones && !has_racks {
        return None;
    }
    // Of very many extents most have their copies on the same few drives.
    let mut homes: BTreeMap<Vec<DriveId>, u64> = BTreeMap::new();
    for extent in 0..extent_count(volume.size_bytes) {
        let home = volume.placement.copies_of(extent).map(|(_, drive)| drive).collect();
        *homes.entry(home).or_default() += 1;
    }
    let (mut share_zone, mut share_rack) = (0, 0);
    for (home, count) in homes {
        let (zones, racks) = count_domains(home.iter().filter_map(|drive| drives.get(drive)));
        share_zone += if has_zones && zones < home.len() { count } else { 0 };
        share_rack += if has_racks && racks < home.len() { count } else { 0 };
    }
    let close = [(share_zone, "zone"), (share_rack, "rack")].into_iter().find(|(count, _)| *count > 0);
    let (count, what) = close?;
    Some(format!("copies of {count} of its extents share a {what} and would fail together"))
}

#[cfg(test)]
mod tests {
    use weir_types::bounds::COPIES_MAX;

    use super::*;

    fn accounted(epoch: u64, standings: [Standing; COPIES_MAX]) -> Found {
        Found::Accounted(Account { epoch, standings, ..Account::default() })
    }

    #[test]
    fn what_cannot_be_used_is_not_there() {
        let (both, known) = {
            use Standing::{Absent, InSync};
            ([InSync, InSync, Absent, Absent], Witness { reserved: 1, known: 1, is_failed: false })
        };
        for bad in [Found::Nothing, Found::Bare] {
            let beginning = Beginning::find(vec![(0, bad), (1, accounted(1, both))], known).unwrap();
            assert_eq!(beginning.is_there, [false, true, false, false]);
            assert_eq!(beginning.account.standings, both);
        }
        let whole = vec![(0, accounted(1, both)), (1, accounted(1, both))];
        assert_eq!(Beginning::find(whole, known).unwrap().is_there, [true, true, false, false]);
    }
}
