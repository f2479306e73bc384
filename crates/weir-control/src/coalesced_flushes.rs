//! Coalesced flushes: which volumes may answer a flush before it is carried out, and for how long.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use weir_engine_interface::FlushWindow;
use weir_plan::failure_domain::FailureDomain;
use weir_types::{DriveId, ExtentIndex, FlushTerms, IoProfile, VolumeId};

use crate::core::Core;
use crate::error::{ControlError, Outcome};
use crate::journals::Journals;
use crate::model::Model;
use crate::records::{DriveRecord, VolumeRecord};

/// Fewest replicas of a volume that may owe flushes.
pub(crate) const REPLICAS_MIN: u8 = 2;

/// Windows of coalesced flushes, as the data plane was told them.
pub(crate) struct CoalescedFlushes {
    core: Arc<Core>,
    journals: Arc<Journals>,
    told: Mutex<Told>,
}

#[derive(Default)]
struct Told {
    /// Windows of the volumes that are served.
    windows: BTreeMap<VolumeId, Option<FlushWindow>>,
    /// Number of changes of the model before the last look.
    model_changes: Option<u64>,
}

impl CoalescedFlushes {
    pub(crate) fn new(core: Arc<Core>, journals: Arc<Journals>) -> CoalescedFlushes {
        CoalescedFlushes { core, journals, told: Mutex::default() }
    }

    /// How long flushes of a volume may be owed; `None` if they may not.
    pub(crate) fn window(&self, model: &Model, volume: &VolumeRecord) -> Option<FlushWindow> {
        if !volume.coalesces_flushes() {
            return None;
        }
        // Where nobody asked for it by name, nothing is taken for granted.
        let may_owe = volume.is_promised_coalescing() || is_apart_by_name(model, volume);
        if may_owe { self.window_or_why(model, volume).ok() } else { None }
    }

    /// Why flushes of a volume may not be owed, although its I/O profile promises it.
    pub(crate) fn broken_promise(&self, model: &Model, volume: &VolumeRecord) -> Option<&'static str> {
        if volume.is_promised_coalescing() { self.window_or_why(model, volume).err() } else { None }
    }

    /// The I/O profile that a volume has in effect.
    pub(crate) fn derived_profile(&self, model: &Model, volume: &VolumeRecord) -> IoProfile {
        match volume.io_profile {
            IoProfile::Auto => chosen_profile(self.window(model, volume)),
            requested => requested,
        }
    }

    /// The window of a volume that owes flushes, or why it may not.
    ///
    /// A replica behind a write journal fails with the journal's drive too, and its flushes are fast.
    fn window_or_why(&self, model: &Model, volume: &VolumeRecord) -> Result<FlushWindow, &'static str> {
        let terms = volume.flush_terms;
        if self.journals.has_bindings(volume.id) {
            return Err("its flushes wait for the drives: replicas are behind write journals");
        }
        if !terms.may_share_failure_domain && shares_failure_domain(model, volume) {
            return Err("its flushes wait for the drives: replicas share a zone and rack");
        }
        Ok(FlushWindow {
            length: Duration::from_millis(terms.window_ms.into()),
            covers_fua: terms.covers_fua,
        })
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The window of a volume that is about to be served.
    pub(crate) fn window_to_serve(&self, volume: &VolumeRecord) -> Option<FlushWindow> {
        let window = self.window(&self.core.model(), volume);
        self.told().windows.insert(volume.id, window);
        window
    }

    /// Tells the data plane the window of a volume with this record, if that is another one now. The caller has the
    /// change of the volume.
    ///
    /// # Errors
    /// If the data plane does not answer.
    pub(crate) fn put(&self, volume: &VolumeRecord) -> Outcome<()> {
        self.tell(volume.id, self.window(&self.core.model(), volume))
    }

    /// Has each flush of a volume carried out before its answer, until the next look.
    ///
    /// # Errors
    /// If the data plane does not answer.
    pub(crate) fn close_window(&self, volume: VolumeId) -> Outcome<()> {
        self.tell(volume, None)
    }

    fn tell(&self, volume: VolumeId, window: Option<FlushWindow>) -> Outcome<()> {
        let known = self.told().windows.get(&volume).copied();
        if known == Some(window) || !self.core.model().open.contains_key(&volume) {
            return Ok(());
        }
        self.core.engine.set_flush_window(volume, window)?;
        let mut told = self.told();
        told.windows.insert(volume, window);
        // The record may not come about: the next look sees.
        told.model_changes = None;
        Ok(())
    }

    /// Follows changes of placements and failure domains. A volume that is being changed is left for the next look.
    pub(crate) fn look(&self) {
        let now = self.core.model_changes();
        if self.told().model_changes == Some(now) {
            return;
        }
        let left = self.different().into_iter().filter(|id| !self.look_at(*id)).count();
        self.told().model_changes = (left == 0).then_some(now);
    }

    /// The I/O profile in effect of each served volume with several replicas that leaves it to Weir.
    pub(crate) fn automatic_profiles(&self, model: &Model) -> Vec<(VolumeId, IoProfile)> {
        let told = self.told();
        let in_effect = |(id, window): (&VolumeId, &Option<FlushWindow>)| {
            let record = &model.volumes.get(id)?.record;
            let is_automatic = record.io_profile == IoProfile::Auto && record.coalesces_flushes();
            is_automatic.then_some((*id, chosen_profile(*window)))
        };
        told.windows.iter().filter_map(in_effect).collect()
    }

    /// Volumes that are to have another window than the data plane was told.
    fn different(&self) -> Vec<VolumeId> {
        // In this order: a volume that is told of later is in a model that is newer.
        let mut told = self.told();
        let model = self.core.model();
        told.windows.retain(|id, _| model.volumes.contains_key(id));
        let windows = told.windows.clone();
        drop(told);
        let differs = |(id, window): (VolumeId, Option<FlushWindow>)| {
            (self.window(&model, &model.volumes[&id].record) != window).then_some(id)
        };
        windows.into_iter().filter_map(differs).collect()
    }

    /// False if the volume must be looked at again.
    fn look_at(&self, id: VolumeId) -> bool {
        let Some(mut change) = self.core.try_volume_change(&[id], &[]) else { return false };
        let Some(record) = self.core.model().volumes.get(&id).map(|volume| volume.record.clone()) else {
            return true;
        };
        let put = change.beside(|| self.put(&record));
        if let Err(error) = &put {
            tracing::warn!(volume = %id, %error, "the flush window could not be changed yet");
        }
        put.is_ok()
    }
}

/// The I/O profile that a volume with this window has if it leaves the choice to Weir.
fn chosen_profile(window: Option<FlushWindow>) -> IoProfile {
    if window.is_some() { IoProfile::DbRemote } else { IoProfile::None }
}

/// Why flushes of changes to some extents of a volume wait for drives.
pub(crate) fn words_if_alone(extents_alone: u64) -> Option<String> {
    (extents_alone > 0).then(|| {
        format!("flushes of changes to {extents_alone} of its extents wait for the drives: they have one replica in sync")
    })
}

/// Refuses a volume that would owe flushes without several replicas that fail apart, unless that is allowed.
///
/// # Errors
/// * Invalid for too few replicas, a window that no volume can have, and terms without the profile.
/// * Refused if replicas share a failure domain.
pub(crate) fn check(model: &Model, volume: &VolumeRecord) -> Outcome<()> {
    let FlushTerms { window_ms, may_share_failure_domain, .. } = volume.flush_terms;
    if volume.io_profile != IoProfile::DbRemote {
        return match volume.flush_terms.is_default() {
            true => Ok(()),
            false => Err(ControlError::invalid(
                "the options of coalesced flushes belong to the I/O profile 'db_remote'".to_owned(),
            )),
        };
    }
    if !(1..=FlushTerms::WINDOW_MS_MAX).contains(&window_ms) {
        let max = FlushTerms::WINDOW_MS_MAX;
        return Err(ControlError::invalid(format!(
            "a flush window of {window_ms} ms is not accepted; 1 to {max} ms are"
        )));
    }
    if volume.replicas < REPLICAS_MIN {
        return Err(ControlError::invalid(format!(
            "the I/O profile 'db_remote' needs 2 or 3 replicas, and {} has {}",
            volume.title(),
            volume.replicas
        )));
    }
    if !may_share_failure_domain && shares_failure_domain(model, volume) {
        return Err(ControlError::refused(format!(
            "replicas of {} share a zone and rack, whose failure could lose the flushes of the last {window_ms} ms; \
             --allow-shared-failure-domain accepts that",
            volume.title()
        )));
    }
    Ok(())
}

/// The drives of a volume, each with the number of its failure domain.
fn numbered_domains(model: &Model, volume: &VolumeRecord) -> BTreeMap<DriveId, usize> {
    let drives: Vec<(DriveId, FailureDomain)> =
        model.drives_of(volume).map(|drive| (drive.id, model.domain_of(drive))).collect();
    let number = |domain: &FailureDomain| drives.iter().position(|(_, other)| other == domain);
    drives.iter().filter_map(|(drive, domain)| Some((*drive, number(domain)?))).collect()
}

/// True if replicas of an extent fail together. Drives without a zone and a rack are in those of the node.
fn shares_failure_domain(model: &Model, volume: &VolumeRecord) -> bool {
    let domains = numbered_domains(model, volume);
    let domain_of = |(slot, drive): (usize, DriveId)| (slot, domains.get(&drive));
    let shares = |extent| {
        let replicas = || volume.placement.replicas_of(extent).map(domain_of);
        // What is not known may be anywhere.
        let is_near = |(slot, domain): (usize, Option<&usize>)| {
            domain.is_none() || replicas().any(|(other, same)| other > slot && same == domain)
        };
        replicas().any(is_near)
    };
    ExtentIndex::all_of(volume.size_bytes).any(shares)
}

/// True if each extent has several replicas, and an operator named a zone or rack of each of their drives.
fn is_apart_by_name(model: &Model, volume: &VolumeRecord) -> bool {
    let is_named = |drive: &DriveRecord| drive.zone.is_some() || drive.rack.is_some();
    let has_several = |extent| volume.placement.replicas_of(extent).count() >= usize::from(REPLICAS_MIN);
    model.drives_of(volume).all(is_named) && ExtentIndex::all_of(volume.size_bytes).all(has_several)
}
