//! Templates in the model: built-in ones and those of the catalogue.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_types::Name;

use crate::catalogue::Revision;
use crate::error::{ControlError, Outcome, list_names};
use crate::model::built_in_templates::{self, is_built_in};
use crate::model::{Model, Versioned};
use crate::records::{TemplateRecord, VolumeRecord};

/// All templates.
#[derive(Clone)]
pub struct KnownTemplates(pub(crate) BTreeMap<Name, Versioned<TemplateRecord>>);

impl Default for KnownTemplates {
    fn default() -> KnownTemplates {
        KnownTemplates(
            built_in_templates::records().map(|template| (template.record.name.clone(), template)).collect(),
        )
    }
}

impl KnownTemplates {
    /// Adds or replaces a template. A built-in template is never replaced.
    pub fn put(&mut self, record: TemplateRecord, revision: Revision) {
        if !is_built_in(&record.name) {
            self.0.insert(record.name.clone(), Versioned { record, revision });
        }
    }
}

impl Model {
    /// The template with this name.
    pub(crate) fn template(&self, name: &Name) -> Outcome<&Versioned<TemplateRecord>> {
        self.templates.0.get(name).ok_or_else(|| {
            let known = list_names(self.templates.0.keys());
            ControlError::not_found(format!("unknown template '{name}'; there are: {known}"))
        })
    }

    /// The template that a volume follows.
    pub(crate) fn template_of(&self, volume: &VolumeRecord) -> Option<&TemplateRecord> {
        self.templates.0.get(volume.template.as_ref()?).map(|template| &template.record)
    }

    /// The template that belongs in the backups of a volume's record; built-in templates need no backup.
    pub(crate) fn template_to_back_up(&self, volume: &VolumeRecord) -> Option<&TemplateRecord> {
        self.template_of(volume).filter(|template| !is_built_in(&template.name))
    }

    /// The volumes that follow a template, without snapshots.
    pub(crate) fn followers(&self, name: &Name) -> impl Iterator<Item = &Versioned<VolumeRecord>> {
        let plain = self.volumes.values().map(Arc::as_ref).filter(|volume| volume.record.snapshot.is_none());
        plain.filter(move |volume| volume.record.template.as_ref() == Some(name))
    }
}
