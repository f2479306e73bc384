//! Templates: named sets of volume settings that say the class of each replica and the class to read from.
//!
//! A volume names the template that it follows. Placement and moves look the template up each time, so a
//! changed template moves its volumes. This module does not know how replicas are moved.

mod built_in;
mod follow;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use weir_types::{Class, Name, VolumeId};

use super::Control;
use super::catalogue::Transaction;
use super::error::{ControlError, Outcome};
use super::model::{Model, Versioned, list_names};
use super::records::{TemplateRecord, VolumeRecord, keys};
use crate::locks::Change;
use built_in::{is_built_in, refuse_built_in, refuse_built_in_name};
use weir_types::control_bounds::{REPLICAS_MAX, TEMPLATES_MAX};

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

/// All templates.
#[derive(Clone)]
pub struct Templates(BTreeMap<Name, Versioned<TemplateRecord>>);

impl Default for Templates {
    fn default() -> Templates {
        Templates(built_in::records().map(|template| (template.record.name.clone(), template)).collect())
    }
}

impl Templates {
    /// Adds or replaces a template. A built-in template is never replaced.
    pub fn put(&mut self, record: TemplateRecord, revision: u64) {
        if !is_built_in(&record.name) {
            self.0.insert(record.name.clone(), Versioned { record, revision });
        }
    }
}

impl TemplateRecord {
    /// The classes of the replicas, in the form that the command line accepts.
    pub fn classes(&self) -> String {
        self.replicas.iter().map(|class| class.name()).collect::<Vec<_>>().join(",")
    }

    /// Number of replicas.
    pub fn count(&self) -> u8 {
        u8::try_from(self.replicas.len()).expect("a template is checked before it is kept")
    }

    /// Refuses a record with a bad number of replicas, or with a class to read from that no replica has.
    fn check(&self) -> Outcome<()> {
        let (name, count) = (&self.name, self.replicas.len());
        if !(1..=usize::from(REPLICAS_MAX)).contains(&count) {
            return Err(ControlError::invalid(format!(
                "template '{name}' would have {count} replicas; 1 to {REPLICAS_MAX} are accepted, each with its class"
            )));
        }
        match self.read_from.filter(|class| !self.replicas.contains(class)) {
            None => Ok(()),
            Some(class) => Err(ControlError::invalid(format!(
                "template '{name}' would read from class {class}, of which none of its replicas ({}) is; a class of \
                 theirs or 'fastest' is accepted",
                self.classes()
            ))),
        }
    }
}

impl Model {
    /// The template with this name.
    pub(super) fn template(&self, name: &Name) -> Outcome<&Versioned<TemplateRecord>> {
        self.templates.0.get(name).ok_or_else(|| {
            let known = list_names(self.templates.0.keys());
            ControlError::not_found(format!("unknown template '{name}'; there are: {known}"))
        })
    }

    /// The template that a volume follows.
    pub(super) fn template_of(&self, volume: &VolumeRecord) -> Option<&TemplateRecord> {
        self.templates.0.get(volume.template.as_ref()?).map(|template| &template.record)
    }

    /// The template that belongs in the backups of a volume's record; built-in templates need no backup.
    pub(super) fn template_to_back_up(&self, volume: &VolumeRecord) -> Option<&TemplateRecord> {
        self.template_of(volume).filter(|template| !is_built_in(&template.name))
    }

    /// The volumes that follow a template, without snapshots.
    fn followers(&self, name: &Name) -> impl Iterator<Item = &Versioned<VolumeRecord>> {
        let plain = self.volumes.values().map(Arc::as_ref).filter(|volume| volume.record.snapshot.is_none());
        plain.filter(move |volume| volume.record.template.as_ref() == Some(name))
    }

    fn view_of_template(&self, template: &Versioned<TemplateRecord>) -> TemplateView {
        let record = &template.record;
        TemplateView {
            record: record.clone(),
            is_built_in: is_built_in(&record.name),
            volumes: self.followers(&record.name).count(),
            version: template.revision,
        }
    }
}

impl Control {
    /// All templates by name, including the built-in ones.
    pub fn templates(&self) -> Vec<TemplateView> {
        let model = self.model();
        model.templates.0.values().map(|template| model.view_of_template(template)).collect()
    }

    /// One template.
    pub fn template(&self, name: &Name) -> Outcome<TemplateView> {
        let model = self.model();
        Ok(model.view_of_template(model.template(name)?))
    }

    /// Creates a template. Drives of its classes need not exist yet.
    ///
    /// # Errors
    /// Conflict if the name is taken; full if the number of templates is at its bound. Invalid if the
    /// number of replicas is out of range, or if no replica has the class to read from.
    pub fn create_template(&self, request: CreateTemplate) -> Outcome<TemplateView> {
        let _change = self.begin_change();
        refuse_name(&self.model(), &request.name)?;
        let CreateTemplate { name, replicas, read_from, policy_group } = request;
        let created_at = Timestamp::now();
        let record = TemplateRecord { name, replicas, read_from, policy_group, generation: 1, created_at };
        record.check()?;
        let key = keys::template(&record.name);
        let revision = self.catalogue.commit(Transaction::default().compare(&key, 0).put(&key, &record)?)?;
        self.update(|model| model.templates.put(record.clone(), revision));
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
        let template = self.model().template(name)?.expect(title, request.if_version)?.clone();
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
            let followers: Vec<_> = self.model().followers(name).cloned().collect();
            // All followers ask for the same classes, so checking one of them is enough.
            if let Some(follower) = followers.first().filter(|_| new.replicas != old.replicas) {
                self.refuse_unreachable_by(&follower.record, &new)?;
            }
            let changed = self.save_template(&new, revision, followers)?;
            self.put_template_in_effect(&mut change, &changed)?;
        }
        self.template(name)
    }

    /// Begins a change of a template and of the records of all volumes that follow it.
    fn begin_change_of_followers(&self, name: &Name) -> Outcome<Change<'_>> {
        loop {
            let followers: Vec<VolumeId> = self.model().followers(name).map(|one| one.record.id).collect();
            let change = self.begin_record_change(&followers)?;
            if self.model().followers(name).all(|one| change.holds(one.record.id)) {
                return Ok(change);
            }
        }
    }

    /// Commits a changed template and the volumes that follow it in one transaction. Answers these volumes.
    fn save_template(
        &self,
        template: &TemplateRecord,
        revision: u64,
        followers: Vec<Versioned<VolumeRecord>>,
    ) -> Outcome<Vec<VolumeRecord>> {
        let key = keys::template(&template.name);
        let mut transaction = Transaction::default().compare(&key, revision).put(&key, template)?;
        let mut changed = Vec::with_capacity(followers.len());
        for Versioned { mut record, revision } in followers {
            record.replicas = template.count();
            record.generation += 1;
            let key = keys::volume(record.id);
            transaction = transaction.compare(&key, revision).put(&key, &record)?;
            changed.push(record);
        }
        let revision = self.catalogue.commit(transaction)?;
        self.update(|model| {
            model.templates.put(template.clone(), revision);
            changed.iter().for_each(|volume| model.put_volume(volume.clone(), revision));
        });
        Ok(changed)
    }

    fn put_template_in_effect(&self, change: &mut Change<'_>, followers: &[VolumeRecord]) -> Outcome<()> {
        followers.iter().for_each(|volume| self.begin_moves(volume.id));
        self.write_record_backups(change.tickets(), followers);
        followers.iter().try_for_each(|volume| self.put_read_costs(volume))
    }

    /// Deletes a template that no volume follows.
    ///
    /// # Errors
    /// Refused for a built-in template, and while volumes follow the template; the error names these
    /// volumes. Conflict if the template has another version than `if_version`.
    pub fn delete_template(&self, name: &Name, if_version: Option<u64>) -> Outcome<()> {
        let _change = self.begin_change();
        let title = format!("template '{name}'");
        let template = self.model().template(name)?.expect(title, if_version)?.clone();
        let Versioned { record, revision } = template;
        refuse_built_in(&record)?;
        let followers = list_names(self.model().followers(name).map(|volume| volume.record.export_name()));
        if !followers.is_empty() {
            return Err(ControlError::refused(format!(
                "template '{name}' is followed by the volumes: {followers}; release them first with \
                 'volume modify NAME --template none', or give them another"
            )));
        }
        let key = keys::template(name);
        self.catalogue.commit(Transaction::default().compare(&key, revision).delete(&key))?;
        self.update(|model| model.templates.0.remove(name));
        Ok(())
    }
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
