//! The bodies that concern scrubs.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;
use weir_types::bounds::{BLOCK_BYTES, SECTION_BYTES};

use crate::control::bounds::DAMAGED_RANGES_SHOWN_MAX;
use crate::control::{self, ScrubView, offset_of};
use crate::statistics::ChecksumCounters;

/// Where a scrub stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ScrubState {
    /// The volume was never scrubbed to an end.
    Never,
    /// It waits until others are done.
    Waiting,
    /// It goes on as its policy and the drives allow it.
    Running,
    /// All was examined.
    Completed,
    /// Somebody gave it up.
    Cancelled,
    /// The volume became smaller or was closed meanwhile.
    Interrupted,
}

/// A range of a volume of which no replica is known to be good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DamagedRange {
    /// Where in the volume, in bytes.
    pub offset: u64,
    /// How many bytes.
    pub length: u64,
    /// True if replicas differ and nobody can tell which is right; else no replica has what was written there.
    pub is_undecided: bool,
}

/// The scrub of a volume that goes on, or else its last one, and what is known of the volume at rest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Scrub {
    /// The volume's identity.
    pub id: Uuid,
    /// The volume's tenant.
    pub tenant: String,
    /// The volume.
    pub volume: String,
    /// Where it stands.
    pub state: ScrubState,
    /// When it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub begun_at: Option<Timestamp>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub ended_at: Option<Timestamp>,
    /// Bytes of the volume that are done, while it goes on.
    pub bytes_done: u64,
    /// Bytes of the volume that are left, while it goes on.
    pub bytes_left: u64,
    /// Bytes of replicas that were examined, per second in the mean, while it goes on.
    pub bytes_per_second: f64,
    /// Blocks of replicas that were examined, of 4096 bytes each.
    pub blocks_checked: u64,
    /// Blocks of replicas that were not as they should be.
    pub blocks_found: u64,
    /// Blocks of these that were given what another replica has.
    pub blocks_repaired: u64,
    /// Blocks of which no replica was known to be good.
    pub blocks_unrepairable: u64,
    /// Extents of which no replica could be read.
    pub extents_passed_over: u64,
    /// Bytes of the volume for which checksums are kept that count, now.
    pub checksummed_bytes: u64,
    /// Blocks of which no replica is known to be good, now.
    pub damaged_blocks: u64,
    /// The first ranges of these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub damaged: Vec<DamagedRange>,
}

/// What is known of volumes at rest.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ScrubList {
    /// All volumes, or those of one tenant, by tenant and name.
    pub scrubs: Vec<Scrub>,
}

impl From<control::ScrubState> for ScrubState {
    fn from(state: control::ScrubState) -> ScrubState {
        match state {
            control::ScrubState::Never => ScrubState::Never,
            control::ScrubState::Waiting => ScrubState::Waiting,
            control::ScrubState::Running => ScrubState::Running,
            control::ScrubState::Completed => ScrubState::Completed,
            control::ScrubState::Cancelled => ScrubState::Cancelled,
            control::ScrubState::Interrupted => ScrubState::Interrupted,
        }
    }
}

impl From<ScrubView> for Scrub {
    fn from(view: ScrubView) -> Scrub {
        let counted = view.counted;
        let rate =
            |elapsed_ns: u64| (counted.blocks_checked * BLOCK_BYTES) as f64 * 1e9 / elapsed_ns.max(1) as f64;
        Scrub {
            id: view.volume.0,
            tenant: view.tenant.into(),
            volume: view.name.into(),
            state: view.state.into(),
            begun_at: view.begun_at,
            ended_at: view.ended_at,
            bytes_done: counted.sections_done * SECTION_BYTES,
            bytes_left: counted.sections_left * SECTION_BYTES,
            bytes_per_second: counted.elapsed_ns.map_or(0.0, rate),
            blocks_checked: counted.blocks_checked,
            blocks_found: counted.blocks_found,
            blocks_repaired: counted.blocks_repaired,
            blocks_unrepairable: counted.blocks_damaged,
            extents_passed_over: counted.extents_passed_over,
            checksummed_bytes: view.checksums.checksummed_bytes,
            damaged_blocks: view.checksums.damaged.values().map(|damaged| damaged.len() as u64).sum(),
            damaged: ranges(&view.checksums),
        }
    }
}

/// The first ranges of damaged blocks, as long as they can be told.
fn ranges(rest: &ChecksumCounters) -> Vec<DamagedRange> {
    let mut ranges: Vec<DamagedRange> = Vec::new();
    for (extent, damaged) in
        rest.damaged.iter().flat_map(|(extent, all)| all.iter().map(move |one| (extent, one)))
    {
        let (offset, is_undecided) = (offset_of(*extent, damaged.block), damaged.expected.is_none());
        let count = ranges.len();
        match ranges.last_mut() {
            Some(last) if last.offset + last.length == offset && last.is_undecided == is_undecided => {
                last.length += BLOCK_BYTES;
            }
            _ if count == DAMAGED_RANGES_SHOWN_MAX => break,
            _ => ranges.push(DamagedRange { offset, length: BLOCK_BYTES, is_undecided }),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_volume::mirror::Damaged;

    #[test]
    fn damaged_blocks_in_a_row_are_one_range() {
        let block = |block, expected| Damaged { block, expected };
        let mut rest = ChecksumCounters::default();
        rest.damaged.insert(0, vec![block(1, Some(7)), block(2, Some(8)), block(3, None)]);
        rest.damaged.insert(1, vec![block(0, Some(1))]);
        let found: Vec<_> =
            ranges(&rest).iter().map(|range| (range.offset, range.length, range.is_undecided)).collect();
        assert_eq!(found, [(4096, 8192, false), (12_288, 4096, true), (1 << 30, 4096, false)]);
        rest.damaged.insert(2, (0..100).map(|number| block(2 * number, Some(1))).collect());
        assert_eq!(ranges(&rest).len(), DAMAGED_RANGES_SHOWN_MAX);
    }
}
