//! Opening: taking the files of extent replicas that a helper thread has opened.

use weir_reactor::Descriptor;
use weir_types::ExtentIndex;
use weir_volume::Fault;
use weir_volume::mirror::Answer;

use super::Disk;
use crate::helper::{OpenError, OpenedExtent};
use crate::token::AskNumber;

impl Disk<'_> {
    /// Takes the answer to opening the file of an extent replica.
    pub fn opened(
        &mut self,
        (slot, number): (usize, AskNumber),
        extent: ExtentIndex,
        result: Result<OpenedExtent, OpenError>,
    ) {
        let Some(generation) = self.operations.answered(slot, number) else {
            // It did not wait in a drive queue, so it leaves no room there.
            self.end_orphan(slot, number);
            return;
        };
        self.operations.end();
        if !self.mirror.is_current(slot, extent, generation) {
            return;
        }
        let map = match result {
            Ok(OpenedExtent { file, mut map, identity }) => {
                self.journals.add_pieces(slot, extent, &mut map);
                let file = Descriptor::file(file);
                self.files.set_file(slot, extent, Some(file.clone()));
                self.files.set_file_identity(slot, extent, identity);
                let home = self.files.home_of(slot, extent);
                self.with_journals(|journals, desk| {
                    journals.opened((extent, slot), (home, &file), desk);
                });
                Ok(map)
            }
            Err(OpenError { message, fault: Fault::Broken }) => {
                self.reason = Some(message);
                Err(Fault::Broken)
            }
            Err(OpenError { message, fault }) => {
                tracing::warn!(volume = %self.id, extent = extent.0, "cannot be opened at present: {message}");
                Err(fault)
            }
        };
        self.tell(slot, Answer::Opened(extent, generation, map));
    }
}
