//! The copy of what drives there are, beside the catalogue: where a lost catalogue is rebuilt from is known
//! from it, and whose the drives' markers are.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::super::catalogue::{Catalogue, Transaction};
use super::super::error::{ControlError, Outcome};
use super::super::records::{DriveRecord, NodeRecord, keys};
use crate::format;
use crate::store::write_file_durably;

/// Name of the copy in the state folder.
pub const DRIVES_FILE: &str = "drives.json";
/// Version of the form of [`DrivesCopy`].
const FORMAT: u32 = 1;

/// What the copy says.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct DrivesCopy {
    format: u32,
    #[serde(default = "format::first_reader")]
    minimum_reader: u32,
    node: NodeRecord,
    drives: Vec<DriveRecord>,
}

/// Brings the copy up to date.
pub fn write(state: &Path, node: uuid::Uuid, drives: Vec<DriveRecord>) -> Outcome<()> {
    let copy = DrivesCopy {
        format: FORMAT,
        minimum_reader: format::MINIMUM_READER,
        node: NodeRecord { id: node },
        drives,
    };
    let path = state.join(DRIVES_FILE);
    let content = serde_json::to_vec_pretty(&copy)
        .map_err(|error| ControlError::internal(format!("cannot write {}: {error}", path.display())))?;
    if std::fs::read(&path).is_ok_and(|old| old == content) {
        return Ok(());
    }
    Ok(write_file_durably(&path, &content)?)
}

/// Gives a catalogue that is new, because there is none yet or it was lost, what the copy says.
///
/// # Errors
/// Invalid if the copy cannot be read.
pub fn restore_lost(state: &Path, catalogue: &dyn Catalogue) -> Outcome<()> {
    if catalogue.get(keys::NODE)?.is_some() {
        return Ok(());
    }
    let path = state.join(DRIVES_FILE);
    let unusable = |why: String| {
        let path = path.display();
        ControlError::invalid(format!(
            "{path}, the copy of the list of drives, cannot be used: {why}; \
             move it away to start with the default drive alone"
        ))
    };
    let content = match std::fs::read(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        result => result.map_err(|error| unusable(error.to_string()))?,
    };
    let value: serde_json::Value =
        serde_json::from_slice(&content).map_err(|error| unusable(error.to_string()))?;
    let copy: DrivesCopy = format::read(&value).map_err(unusable)?;
    if copy.format != FORMAT {
        return Err(unusable(format!("it has format {}, not {FORMAT}", copy.format)));
    }
    tracing::warn!(
        drives = copy.drives.len(),
        "the catalogue is new: the list of drives is taken from its copy"
    );
    let mut transaction = Transaction::default().compare(keys::NODE, 0).put(keys::NODE, &copy.node)?;
    for drive in &copy.drives {
        transaction = transaction.put(keys::drive(drive.id), drive)?;
    }
    catalogue.commit(transaction)?;
    Ok(())
}
