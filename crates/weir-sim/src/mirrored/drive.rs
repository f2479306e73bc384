//! Drives of the imagined machine.

use weir_volume::mirror::{Account, MetadataFault};

use super::rest::SumsFile;
use crate::disk::File;

/// An imagined drive with a copy of each extent.
#[derive(Clone, Debug, Default)]
pub(super) struct Drive {
    pub files: Vec<File>,
    pub accounts: Vec<Option<Account>>,
    pub sums: Vec<SumsFile>,
    /// Which extents' files there are.
    pub is_made: Vec<bool>,
    /// Everything on it fails until the next start, or until it is brought back.
    pub is_broken: bool,
    /// It answers nobody for now.
    pub is_silent: bool,
    /// It was either, since the last start.
    pub has_failed: bool,
    /// Replica metadata cannot be written there, for now.
    pub metadata_fault: Option<MetadataFault>,
}

impl Drive {
    /// True if nothing comes of what it is asked for.
    pub fn is_away(&self) -> bool {
        self.is_broken || self.is_silent
    }
}
