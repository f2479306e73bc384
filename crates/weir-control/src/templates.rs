//! Templates: named sets of volume settings that say the class of each replica and the class to read from.
//!
//! A volume names the template that it follows. Placement and moves look the template up each time, so a
//! changed template moves its volumes. This module does not know how replicas are moved.

use std::sync::Arc;

use jiff::Timestamp;
use weir_types::control_bounds::TEMPLATES_MAX;
use weir_types::{Class, Name, VolumeId};

use crate::catalogue::{Revision, Transaction};
use crate::core::Core;
use crate::core::locks::Change;
use crate::error::{ControlError, Outcome, list_names};
use crate::extents::Extents;
use crate::model::built_in_templates::{is_built_in, refuse_built_in, refuse_built_in_name};
use crate::model::{Model, Versioned};
use crate::moves::Moves;
use crate::records::{TemplateRecord, VolumeRecord, keys};

/// Request for a new template.
#[derive(Clone, Debug)]
pub struct CreateTemplate {
    /// The name.
    pub name: Name,
    /// The class of each replica, 1 to [`REPLICAS_MAX`] of them.
    pub replicas: Vec<Class>,
    /// The class of the replicas that are read; the fastest if `None`.
    pub read_from: Option<Class>,
    /// The policy group that new volumes with this template are bound to.
    pub policy_group: Option<Name>,
}

/// Requested changes of a template; a field that is `None` stays.
#[derive(Clone, Debug, Default)]
pub struct ModifyTemplate {
    /// Other classes; the replicas of all followers are moved to drives with the new classes.
    pub replicas: Option<Vec<Class>>,
    /// Another class to read from; `Some(None)` means the fastest.
    pub read_from: Option<Option<Class>>,
    /// Another policy group for new volumes, or none.
    pub policy_group: Option<Option<Name>>,
    /// Refuse the change unless the template has this version.
    pub if_version: Option<u64>,
}

/// A template as the API shows it.
#[derive(Clone, Debug)]
pub struct TemplateView {
    /// The template's record.
    pub record: TemplateRecord,
    /// True if the template is built in and cannot be changed.
    pub is_built_in: bool,
    /// Number of volumes that follow the template.
    pub volumes: usize,
    /// The template's version; 0 for a built-in template.
    pub version: u64,
}

/// Refuses the name of an existing or built-in template, and any new template at the bound
/// [`TEMPLATES_MAX`].
fn refuse_name(model: &Model, name: &Name) -> Outcome<()> {
    refuse_built_in_name(name)?;
    let own = model.templates.0.keys().filter(|name| !is_built_in(name)).count();
    if model.templates.0.contains_key(name) {
        return Err(ControlError::conflict(format!("template '{name}' exists already")));
    }
    if own >= TEMPLATES_MAX {
        return Err(ControlError::full(format!(
            "there are {TEMPLATES_MAX} templates already, which is the most"
        )));
    }
    Ok(())
}

/// Operations on templates.
pub struct Templates {
    pub(crate) core: Arc<Core>,
    pub(crate) moves: Arc<Moves>,
    pub(crate) extents: Arc<Extents>,
}

impl Templates {
    /// All templates by name, including the built-in ones.
    pub fn templates(&self) -> Vec<TemplateView> {
        let model = self.core.model();
        model.templates.0.values().map(|template| view_of_template(&model, template)).collect()
    }

    /// One template.
    pub fn template(&self, name: &Name) -> Outcome<TemplateView> {
        let model = self.core.model();
        Ok(view_of_template(&model, model.template(name)?))
    }

    /// Creates a template. Drives of its classes need not exist yet.
    ///
    /// # Errors
    /// Conflict if the name is taken; full if the number of templates is at its bound. Invalid if the
    /// number of replicas is out of range, or if no replica has the class to read from.
    pub fn create_template(&self, request: CreateTemplate) -> Outcome<TemplateView> {
        let _change = self.core.begin_change();
        refuse_name(&self.core.model(), &request.name)?;
        let CreateTemplate { name, replicas, read_from, policy_group } = request;
        let created_at = Timestamp::now();
        let record = TemplateRecord { name, replicas, read_from, policy_group, generation: 1, created_at };
        record.check()?;
        let key = keys::template(&record.name);
        let revision = self
            .core
            .catalogue
            .commit(Transaction::default().compare(&key, Revision::ABSENT).put(&key, &record)?)?;
        self.core.update(|model| model.templates.put(record.clone(), revision));
        self.template(&record.name)
    }

    /// Changes a template. Reads use the new class to read from as soon as this call returns. The replicas
    /// of its volumes are moved in the background. The policies of existing volumes stay.
    ///
    /// # Errors
    /// Refused for a built-in template, and if its volumes have replicas for which there are too few drives
    /// of a class. Invalid for the same reasons as a new template. Conflict if the template has another
    /// version than asked for.
    pub fn modify_template(&self, name: &Name, request: ModifyTemplate) -> Outcome<TemplateView> {
        let mut change = self.begin_change_of_followers(name)?;
        let title = format!("template '{name}'");
        let template = self.core.model().template(name)?.expect_version(title, request.if_version)?.clone();
        let Versioned { record: old, revision } = template;
        refuse_built_in(&old)?;
        let mut new = TemplateRecord {
            replicas: request.replicas.unwrap_or_else(|| old.replicas.clone()),
            read_from: request.read_from.unwrap_or(old.read_from),
            policy_group: request.policy_group.unwrap_or_else(|| old.policy_group.clone()),
            ..old.clone()
        };
        new.check()?;
        if new != old {
            new.generation += 1;
            let followers: Vec<_> = self.core.model().followers(name).cloned().collect();
            // All followers ask for the same classes, so checking one of them is enough.
            if let Some(follower) = followers.first().filter(|_| new.replicas != old.replicas) {
                self.moves.refuse_unreachable_by(&follower.record, &new)?;
            }
            let changed = self.save_template(&new, revision, followers)?;
            self.put_template_in_effect(&mut change, &changed)?;
        }
        self.template(name)
    }

    /// Begins a change of a template and of the records of all volumes that follow it.
    fn begin_change_of_followers(&self, name: &Name) -> Outcome<Change<'_>> {
        loop {
            let followers: Vec<VolumeId> =
                self.core.model().followers(name).map(|one| one.record.id).collect();
            let change = self.core.begin_record_change(&followers)?;
            if self.core.model().followers(name).all(|one| change.holds(one.record.id)) {
                return Ok(change);
            }
        }
    }

    /// Commits a changed template and the volumes that follow it in one transaction. Answers these volumes.
    fn save_template(
        &self,
        template: &TemplateRecord,
        revision: Revision,
        followers: Vec<Versioned<VolumeRecord>>,
    ) -> Outcome<Vec<VolumeRecord>> {
        let key = keys::template(&template.name);
        let mut transaction = Transaction::default().compare(&key, revision).put(&key, template)?;
        let mut changed = Vec::with_capacity(followers.len());
        for Versioned { mut record, revision } in followers {
            record.replicas = template.replica_count();
            record.generation += 1;
            let key = keys::volume(record.id);
            transaction = transaction.compare(&key, revision).put(&key, &record)?;
            changed.push(record);
        }
        let revision = self.core.catalogue.commit(transaction)?;
        self.core.update(|model| {
            model.templates.put(template.clone(), revision);
            changed.iter().for_each(|volume| model.put_volume(volume.clone(), revision));
        });
        Ok(changed)
    }

    fn put_template_in_effect(&self, change: &mut Change<'_>, followers: &[VolumeRecord]) -> Outcome<()> {
        followers.iter().for_each(|volume| self.moves.begin_moves(volume.id));
        self.core.write_record_backups(change.tickets(), followers);
        followers.iter().try_for_each(|volume| self.extents.put_read_costs(volume))
    }

    /// Deletes a template that no volume follows.
    ///
    /// # Errors
    /// Refused for a built-in template, and while volumes follow the template; the error names these
    /// volumes. Conflict if the template has another version than `if_version`.
    pub fn delete_template(&self, name: &Name, if_version: Option<u64>) -> Outcome<()> {
        let _change = self.core.begin_change();
        let title = format!("template '{name}'");
        let template = self.core.model().template(name)?.expect_version(title, if_version)?.clone();
        let Versioned { record, revision } = template;
        refuse_built_in(&record)?;
        let followers =
            list_names(self.core.model().followers(name).map(|volume| volume.record.export_name()));
        if !followers.is_empty() {
            return Err(ControlError::refused(format!(
                "template '{name}' is followed by the volumes: {followers}; release them first with \
                 'volume modify NAME --template none', or give them another"
            )));
        }
        let key = keys::template(name);
        self.core.catalogue.commit(Transaction::default().compare(&key, revision).delete(&key))?;
        self.core.update(|model| model.templates.0.remove(name));
        Ok(())
    }
}

fn view_of_template(model: &Model, template: &Versioned<TemplateRecord>) -> TemplateView {
    let record = &template.record;
    TemplateView {
        record: record.clone(),
        is_built_in: is_built_in(&record.name),
        volumes: model.followers(&record.name).count(),
        version: template.revision.0,
    }
}
