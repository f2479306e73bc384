//! Attachments in the model.

use weir_types::VolumeId;

use crate::error::{ControlError, Outcome};
use crate::model::{Model, Versioned};
use crate::records::{AttachmentRecord, VolumeRecord};

impl Model {
    /// The attachments of a volume.
    pub(crate) fn attachments_of(
        &self,
        volume: VolumeId,
    ) -> impl Iterator<Item = &Versioned<AttachmentRecord>> + '_ {
        self.attachments.values().filter(move |attachment| attachment.record.volume == volume)
    }

    /// Refuses what would take a volume away from under its device.
    ///
    /// # Errors
    /// Refused if the volume is attached; the message names the first device.
    pub(crate) fn refuse_attached(&self, volume: &VolumeRecord) -> Outcome<()> {
        let Some(first) = self.attachments_of(volume.id).next() else { return Ok(()) };
        let (title, link, name) = (volume.title(), first.record.link.display(), volume.export_name());
        Err(ControlError::refused(format!(
            "{title} is attached as {link}; 'weir detach {name}' ends that first"
        )))
    }
}
