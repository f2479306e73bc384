//! A control core in a temporary folder, for tests. Its engine serves nobody.

#![allow(clippy::unwrap_used, missing_docs, reason = "tests alone use this")]

use std::path::Path;
use std::sync::Arc;

use weir_engine_interface::ExportTable;
use weir_testkit::wait::wait_until;
use weir_types::{ClassThresholds, IoProfile, Name};

use crate::engine::fake::FakeEngine;
use crate::{Control, ControlConfig, CreateVolume, FlushTermsChange, Outcome};

/// A control core and its state folder; the folder stays when the core ends.
pub struct World {
    pub control: Arc<Control>,
    pub exports: Arc<ExportTable>,
    pub engine: Arc<FakeEngine>,
}

impl World {
    pub fn start(state: &Path) -> World {
        World::try_start(state, false).unwrap()
    }

    pub fn try_start(state: &Path, rebuild_catalogue: bool) -> Outcome<World> {
        World::of(ControlConfig { rebuild_catalogue, ..configuration(state) })
    }

    /// A control core with these class thresholds.
    pub fn with_classes(state: &Path, classes: ClassThresholds) -> Outcome<World> {
        World::of(ControlConfig { classes, ..configuration(state) })
    }

    pub fn of(config: ControlConfig) -> Outcome<World> {
        let (engine, exports) = (Arc::new(FakeEngine::default()), Arc::new(ExportTable::default()));
        let control = Control::start(&config, engine.clone(), exports.clone());
        control.map(|control| World { control, exports, engine })
    }

    /// Ends the control core with all its threads. None of them holds the catalogue open behind it, so a test may
    /// change the files.
    pub fn end(self) {
        let core = Arc::downgrade(&self.control.core);
        drop(self);
        wait_until("the threads of the core end", || core.strong_count() == 0);
    }
}

/// The configuration that most tests use.
pub fn configuration(state: &Path) -> ControlConfig {
    ControlConfig {
        state: state.to_owned(),
        rebuild_catalogue: false,
        drives: Vec::new(),
        classes: Default::default(),
        journal_bytes: weir_types::bounds::JOURNAL_BYTES_MIN,
        measure_default: false,
        // The fill level of the disk under the tests must not matter.
        pool_full_percent: 100,
        zone: None,
        device_folder: state.join("devices"),
        has_io_uring: true,
        program: "weir".into(),
    }
}

pub fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

pub fn volume(tenant: Option<&str>, text: &str, size_bytes: u64) -> CreateVolume {
    CreateVolume {
        tenant: tenant.map(name),
        name: name(text),
        size_bytes,
        replicas: None,
        template: None,
        drive: None,
        io_profile: IoProfile::default(),
        flush_terms: FlushTermsChange::default(),
        io_priority: None,
        class_policy: None,
        policy: None,
        force: false,
    }
}

/// Waits until all deleted space is reclaimed.
pub fn settle(control: &Control) {
    wait_until("all space is given back", || {
        control.reclaims.settle_background();
        control.background.background_jobs().is_empty()
    });
}

/// Waits until all measurements have ended, and has their results recorded.
pub fn settle_measurements(control: &Control) {
    wait_until("all measurements have ended", || {
        control.measurements.settle_measurements();
        control.drives.drives().iter().all(|drive| drive.progress.is_none())
    });
}
