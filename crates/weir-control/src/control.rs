//! The object with all components of control. It only puts them together.
//!
//! Components are made in layers. Each has references to components below it, and knows none above it.

use std::sync::Arc;

use crate::absences::Absences;
use crate::alarm_list::{AlarmList, OfRecords, Since};
use crate::apply::PolicySets;
use weir_attach::cgroup_folder::cgroup_at;

use crate::attachments::{Attachments, KernelHost};
use crate::background::Background;
use crate::bindings::Bindings;
use crate::cgroups::Cgroups;
use crate::clones::Clones;
use crate::coalesced_flushes::CoalescedFlushes;
use crate::configuration::ControlConfig;
use crate::core::Core;
use crate::credits::BurstCredits;
use crate::devices::Devices;
use crate::drains::Drains;
use crate::drive_records::DriveRecords;
use crate::drives::Drives;
use crate::extents::Extents;
use crate::figures::Figures;
use crate::journals::Journals;
use crate::measurements::Measurements;
use crate::moves::Moves;
use crate::operations::Operations;
use crate::placing::Placing;
use crate::policies::PolicyGroups;
use crate::pools::Pools;
use crate::reasons::Reasons;
use crate::reclaims::Reclaims;
use crate::recording::Recordings;
use crate::returns::Returns;
use crate::scrubs::Scrubs;
use crate::serving::Serving;
use crate::snapshots::{SnapshotMaker, Snapshots};
use crate::space::StateSpace;
use crate::statistics::Statistics;
use crate::templates::Templates;
use crate::tenants::Tenants;
use crate::volume_views::VolumeViews;
use crate::volumes::Volumes;

/// All components.
pub struct Control {
    /// What all components share.
    pub(crate) core: Arc<Core>,
    /// Space figures of all drives and volumes, as they were last seen.
    pub figures: Arc<Figures>,
    /// The filesystem of the state folder, as it was last seen.
    pub space: Arc<StateSpace>,
    /// Writes the records of drives to the catalogue, and keeps their backup up to date.
    pub(crate) drive_records: Arc<DriveRecords>,
    /// Operations on pools, and the admission of floors.
    pub pools: Arc<Pools>,
    /// Puts the policies of volumes into effect.
    pub bindings: Arc<Bindings>,
    /// Measures drives, and decides their class.
    pub measurements: Arc<Measurements>,
    /// Starts reclaims and records their end.
    pub reclaims: Arc<Reclaims>,
    /// Binds replicas to write journals.
    pub journals: Arc<Journals>,
    /// Moves extent replicas to the drives where they belong.
    pub moves: Arc<Moves>,
    coalesced_flushes: Arc<CoalescedFlushes>,
    /// Starts scrubs and records their results.
    pub scrubs: Arc<Scrubs>,
    /// Opens volumes for their clients and takes them down.
    pub(crate) serving: Arc<Serving>,
    /// Makes volumes devices of this host.
    pub attachments: Arc<Attachments>,
    /// Binds cgroups to policy groups.
    pub cgroups: Arc<Cgroups>,
    /// Empties drives.
    pub(crate) drains: Arc<Drains>,
    /// Operations on drives.
    pub drives: Arc<Drives>,
    /// Takes drives and extent replicas back into use.
    pub returns: Arc<Returns>,
    /// Reads volumes.
    pub views: Arc<VolumeViews>,
    /// Creates, changes and deletes volumes.
    pub volumes: Arc<Volumes>,
    /// Operations on snapshots.
    pub snapshots: Arc<Snapshots>,
    /// Makes clones.
    pub clones: Arc<Clones>,
    /// Operations on policy groups.
    pub groups: Arc<PolicyGroups>,
    /// Operations on tenants.
    pub tenants: Arc<Tenants>,
    /// Operations on templates.
    pub templates: Arc<Templates>,
    /// Applies policy sets.
    pub policy_sets: Arc<PolicySets>,
    /// Starts recordings.
    pub recordings: Arc<Recordings>,
    /// Reads statistics.
    pub statistics: Arc<Statistics>,
    /// Explains the latency of volumes.
    pub reasons: Arc<Reasons>,
    /// Operations on the policies of background work, and the list of its jobs.
    pub background: Arc<Background>,
    /// Lists and cancels long work, whatever its kind.
    pub operations: Arc<Operations>,
    /// Saves and restores burst credit.
    pub credits: Arc<BurstCredits>,
    /// Collects the alarms of all components.
    pub alarms: Arc<AlarmList>,
}

/// The components that volumes and drives share.
struct Storage {
    figures: Arc<Figures>,
    drive_records: Arc<DriveRecords>,
    pools: Arc<Pools>,
    bindings: Arc<Bindings>,
    measurements: Arc<Measurements>,
    placing: Arc<Placing>,
    reclaims: Arc<Reclaims>,
    journals: Arc<Journals>,
    absences: Arc<Absences>,
    extents: Arc<Extents>,
    moves: Arc<Moves>,
    coalesced_flushes: Arc<CoalescedFlushes>,
    scrubs: Arc<Scrubs>,
    serving: Arc<Serving>,
    attachments: Arc<Attachments>,
}

/// The components of drives.
struct DriveParts {
    drains: Arc<Drains>,
    drives: Arc<Drives>,
    returns: Arc<Returns>,
}

/// The components of volumes and their policies.
struct VolumeParts {
    views: Arc<VolumeViews>,
    volumes: Arc<Volumes>,
    snapshots: Arc<Snapshots>,
    clones: Arc<Clones>,
}

fn storage(core: &Arc<Core>, config: &ControlConfig) -> Storage {
    let figures = Arc::new(Figures::new(core.clone()));
    let drive_records = Arc::new(DriveRecords::new(core.clone()));
    let pools = Arc::new(Pools {
        core: core.clone(),
        figures: figures.clone(),
        drive_records: drive_records.clone(),
    });
    let bindings = Arc::new(Bindings { core: core.clone(), figures: figures.clone() });
    let measurements = Arc::new(Measurements::new(core.clone(), drive_records.clone()));
    let placing = Arc::new(Placing {
        core: core.clone(),
        figures: figures.clone(),
        measurements: measurements.clone(),
        pool_full_percent: config.pool_full_percent,
    });
    let reclaims = Arc::new(Reclaims { core: core.clone() });
    let journals = Arc::new(Journals::new(core.clone(), config.journal_bytes));
    let absences = Arc::new(Absences::new(core.clone()));
    let extents = Arc::new(Extents {
        core: core.clone(),
        journals: journals.clone(),
        reclaims: reclaims.clone(),
        absences: absences.clone(),
    });
    let coalesced_flushes = Arc::new(CoalescedFlushes::new(core.clone(), journals.clone()));
    let moves = Arc::new(Moves::new(
        core.clone(),
        figures.clone(),
        placing.clone(),
        journals.clone(),
        extents.clone(),
        absences.clone(),
        coalesced_flushes.clone(),
    ));
    let scrubs = Arc::new(Scrubs::new(core.clone()));
    let serving = Arc::new(Serving {
        core: core.clone(),
        journals: journals.clone(),
        extents: extents.clone(),
        bindings: bindings.clone(),
        scrubs: scrubs.clone(),
        reclaims: reclaims.clone(),
        coalesced_flushes: coalesced_flushes.clone(),
    });
    let host = Box::new(KernelHost::new(&core.state, config.program.clone(), config.has_io_uring));
    let attachments =
        Arc::new(Attachments::new(core.clone(), serving.clone(), host, config.device_folder.clone()));
    Storage {
        figures,
        drive_records,
        pools,
        bindings,
        measurements,
        placing,
        reclaims,
        journals,
        absences,
        extents,
        moves,
        coalesced_flushes,
        scrubs,
        serving,
        attachments,
    }
}

fn drive_parts(core: &Arc<Core>, space: &Arc<StateSpace>, storage: &Storage) -> DriveParts {
    let devices = Arc::new(Devices::new(core.clone()));
    let drains = Arc::new(Drains::new(
        core.clone(),
        storage.drive_records.clone(),
        storage.measurements.clone(),
        storage.journals.clone(),
        storage.absences.clone(),
        storage.extents.clone(),
        storage.moves.clone(),
    ));
    let drives = Arc::new(Drives {
        core: core.clone(),
        space: space.clone(),
        figures: storage.figures.clone(),
        drive_records: storage.drive_records.clone(),
        measurements: storage.measurements.clone(),
        drains: drains.clone(),
        reclaims: storage.reclaims.clone(),
        devices: devices.clone(),
    });
    let returns = Arc::new(Returns {
        core: core.clone(),
        space: space.clone(),
        attachments: storage.attachments.clone(),
        figures: storage.figures.clone(),
        journals: storage.journals.clone(),
        absences: storage.absences.clone(),
        extents: storage.extents.clone(),
        reclaims: storage.reclaims.clone(),
        moves: storage.moves.clone(),
        serving: storage.serving.clone(),
        drives: drives.clone(),
    });
    DriveParts { drains, drives, returns }
}

fn volume_parts(core: &Arc<Core>, storage: &Storage) -> VolumeParts {
    let maker = Arc::new(SnapshotMaker {
        core: core.clone(),
        extents: storage.extents.clone(),
        moves: storage.moves.clone(),
        journals: storage.journals.clone(),
    });
    let views = Arc::new(VolumeViews {
        core: core.clone(),
        figures: storage.figures.clone(),
        moves: storage.moves.clone(),
        scrubs: storage.scrubs.clone(),
        coalesced_flushes: storage.coalesced_flushes.clone(),
    });
    let volumes = Arc::new(Volumes {
        core: core.clone(),
        pools: storage.pools.clone(),
        placing: storage.placing.clone(),
        measurements: storage.measurements.clone(),
        bindings: storage.bindings.clone(),
        journals: storage.journals.clone(),
        extents: storage.extents.clone(),
        moves: storage.moves.clone(),
        coalesced_flushes: storage.coalesced_flushes.clone(),
        serving: storage.serving.clone(),
        attachments: storage.attachments.clone(),
        views: views.clone(),
    });
    let snapshots = Arc::new(Snapshots {
        core: core.clone(),
        figures: storage.figures.clone(),
        maker: maker.clone(),
        attachments: storage.attachments.clone(),
        serving: storage.serving.clone(),
        views: views.clone(),
    });
    let clones = Arc::new(Clones {
        core: core.clone(),
        pools: storage.pools.clone(),
        placing: storage.placing.clone(),
        maker: maker.clone(),
        serving: storage.serving.clone(),
        views: views.clone(),
    });
    VolumeParts { views, volumes, snapshots, clones }
}

/// The components of policies: who may use how much.
struct PolicyParts {
    groups: Arc<PolicyGroups>,
    cgroups: Arc<Cgroups>,
    tenants: Arc<Tenants>,
    templates: Arc<Templates>,
    policy_sets: Arc<PolicySets>,
}

fn policy_parts(core: &Arc<Core>, storage: &Storage) -> PolicyParts {
    let groups = Arc::new(PolicyGroups {
        core: core.clone(),
        pools: storage.pools.clone(),
        bindings: storage.bindings.clone(),
    });
    let cgroups =
        Arc::new(Cgroups { core: core.clone(), bindings: storage.bindings.clone(), find: cgroup_at });
    let tenants = Arc::new(Tenants {
        core: core.clone(),
        pools: storage.pools.clone(),
        bindings: storage.bindings.clone(),
    });
    let templates = Arc::new(Templates {
        core: core.clone(),
        moves: storage.moves.clone(),
        extents: storage.extents.clone(),
    });
    let policy_sets = Arc::new(PolicySets {
        core: core.clone(),
        bindings: storage.bindings.clone(),
        groups: groups.clone(),
    });
    PolicyParts { groups, cgroups, tenants, templates, policy_sets }
}

fn alarm_list(core: &Arc<Core>, space: &Arc<StateSpace>, storage: &Storage, parts: &DriveParts) -> AlarmList {
    AlarmList {
        core: core.clone(),
        space: space.clone(),
        drives: parts.drives.clone(),
        drive_records: storage.drive_records.clone(),
        drains: parts.drains.clone(),
        pools: storage.pools.clone(),
        measurements: storage.measurements.clone(),
        placing: storage.placing.clone(),
        moves: storage.moves.clone(),
        journals: storage.journals.clone(),
        coalesced_flushes: storage.coalesced_flushes.clone(),
        scrubs: storage.scrubs.clone(),
        extents: storage.extents.clone(),
        absences: storage.absences.clone(),
        since: Since::default(),
        of_records: OfRecords::default(),
    }
}

fn operations(
    core: &Arc<Core>,
    storage: &Storage,
    parts: &DriveParts,
    background: &Arc<Background>,
) -> Arc<Operations> {
    Arc::new(Operations {
        core: core.clone(),
        drives: parts.drives.clone(),
        moves: storage.moves.clone(),
        scrubs: storage.scrubs.clone(),
        background: background.clone(),
    })
}

impl Control {
    /// Puts the components together above the core.
    pub(crate) fn assemble(core: Arc<Core>, config: &ControlConfig) -> Control {
        let storage = storage(&core, config);
        let space = Arc::new(StateSpace::new(core.clone()));
        let parts = drive_parts(&core, &space, &storage);
        let volumes = volume_parts(&core, &storage);
        let policies = policy_parts(&core, &storage);
        let recordings = Arc::new(Recordings { core: core.clone(), figures: storage.figures.clone() });
        let (views, groups) = (volumes.views.clone(), policies.groups.clone());
        let statistics = Arc::new(Statistics { core: core.clone(), views, groups });
        let reasons = Arc::new(Reasons { core: core.clone(), figures: storage.figures.clone() });
        let background = Arc::new(Background { core: core.clone(), scrubs: storage.scrubs.clone() });
        let operations = operations(&core, &storage, &parts, &background);
        let credits = Arc::new(BurstCredits { core: core.clone() });
        let alarms = Arc::new(alarm_list(&core, &space, &storage, &parts));
        let Storage {
            figures,
            drive_records,
            pools,
            bindings,
            measurements,
            reclaims,
            journals,
            moves,
            coalesced_flushes,
            scrubs,
            serving,
            attachments,
            ..
        } = storage;
        let DriveParts { drains, drives, returns } = parts;
        let PolicyParts { groups, cgroups, tenants, templates, policy_sets } = policies;
        let VolumeParts { views, volumes, snapshots, clones } = volumes;
        Control {
            core,
            figures,
            space,
            drive_records,
            pools,
            bindings,
            measurements,
            reclaims,
            journals,
            moves,
            coalesced_flushes,
            scrubs,
            serving,
            attachments,
            cgroups,
            drains,
            drives,
            returns,
            views,
            volumes,
            snapshots,
            clones,
            groups,
            tenants,
            templates,
            policy_sets,
            recordings,
            statistics,
            reasons,
            background,
            operations,
            credits,
            alarms,
        }
    }

    /// The identity of this node, which survives restarts.
    pub fn node(&self) -> uuid::Uuid {
        self.core.node
    }

    /// Nanoseconds since control started: the clock of all statistics.
    pub fn uptime_ns(&self) -> u64 {
        self.core.uptime_ns()
    }

    /// Number of volumes and of drives. The numbers are known only if the records are readable.
    pub fn counts(&self) -> (usize, usize) {
        let model = self.core.model();
        (model.volumes.len(), model.drives.len())
    }

    /// Raises an alarm that lasts until the daemon ends.
    pub fn raise_alarm(&self, message: String) {
        self.core.alarms.raise(message);
    }

    /// Looks for drives that are away and for damaged extent files.
    pub fn check_extent_files(&self) {
        self.alarms.check_extent_files();
    }

    /// Carries moves on, and then whatever follows the replicas: flush windows and drains.
    pub fn settle_moves(&self) {
        self.moves.settle_moves();
        self.coalesced_flushes.look();
        self.drains.settle_drains();
    }

    /// Writes the backups of records again that could not be written.
    pub fn retry_record_backups(&self) {
        self.core.retry_record_backups();
        self.drive_records.retry_drive_list_backup();
    }
}
