//! Following a template: which settings of a volume its template decides, at creation and at modification.

use weir_types::{ClassPolicy, Name, PolicyGroupId};

use crate::error::{ControlError, Outcome};
use crate::model::Model;
use crate::records::{DEFAULT_CLASS, TemplateRecord, VolumeRecord};
use crate::volume_requests::{CreateVolume, ModifyVolume};

/// Refuses options that the template already decides for a volume that follows it.
fn refuse_beside(template: &Name, options: &[(bool, &str)]) -> Outcome<()> {
    match options.iter().find(|(is_given, _)| *is_given) {
        None => Ok(()),
        Some((_, option)) => Err(ControlError::invalid(format!(
            "template '{template}' says how many replicas there are and of which class each is; {option} does not go \
             with it"
        ))),
    }
}

impl Model {
    /// The template that a new volume is to follow.
    ///
    /// # Errors
    /// Not found for an unknown template; invalid if the request also asks for a setting that the template
    /// decides.
    pub(crate) fn template_for_new(&self, request: &CreateVolume) -> Outcome<Option<TemplateRecord>> {
        let Some(name) = &request.template else { return Ok(None) };
        let record = self.template(name)?.record.clone();
        refuse_beside(
            name,
            &[
                (request.replicas.is_some(), "a number of replicas (--replicas)"),
                (request.io_priority.is_some(), "a class (--class)"),
                (request.class_policy.is_some(), "a class policy (--class-policy)"),
                (request.drive.is_some(), "a drive (--drive)"),
            ],
        )?;
        Ok(Some(record))
    }

    /// The policy group that a template binds a tenant's new volumes to.
    ///
    /// # Errors
    /// Not found if the tenant does not have this policy group.
    pub(crate) fn group_by_template(
        &self,
        template: &TemplateRecord,
        tenant: &Name,
    ) -> Outcome<Option<PolicyGroupId>> {
        let Some(name) = &template.policy_group else { return Ok(None) };
        let binds = format!("template '{}' binds its volumes to a policy group", template.name);
        let group = self.group(Some(tenant), name).map_err(|error| error.within(binds))?;
        Ok(Some(group.record.id))
    }

    /// Makes a volume follow another template, or none, if the request asks for that.
    ///
    /// # Errors
    /// Not found for an unknown template. Invalid if the request also asks for a setting that the new
    /// template decides. Refused if the request asks for a setting that the volume's current template
    /// decides and the volume keeps the template.
    pub(crate) fn follow(&self, volume: &mut VolumeRecord, request: &ModifyVolume) -> Outcome<()> {
        let is_asked = request.replicas.is_some() || request.io_priority.is_some();
        match (&request.template, &volume.template) {
            (Some(None), _) => volume.template = None,
            (Some(Some(name)), _) => {
                refuse_beside(
                    name,
                    &[
                        (request.replicas.is_some(), "a number of replicas (--replicas)"),
                        (request.io_priority.is_some(), "a class (--class)"),
                        (request.class_policy.is_some(), "a class policy (--class-policy)"),
                    ],
                )?;
                volume.replicas = self.template(name)?.record.replica_count();
                (volume.io_priority, volume.class_policy) = (DEFAULT_CLASS, ClassPolicy::Any);
                volume.template = Some(name.clone());
            }
            (None, Some(template)) if is_asked => {
                return Err(ControlError::refused(format!(
                    "volume '{}' follows template '{template}', which says how many replicas it has and of which class \
                     each is; --template none beside it releases the volume, --template NAME has it follow another",
                    volume.name
                )));
            }
            (None, _) => {}
        }
        Ok(())
    }
}
