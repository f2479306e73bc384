//! Types of answer bodies for scrubs.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;
use weir_types::bounds::{BLOCK_BYTES, SECTION_BYTES};

use weir_control::{ScrubView, offset_of};
use weir_engine::statistics::ChecksumCounters;
use weir_types::control_bounds::DAMAGED_RANGES_SHOWN_MAX;

/// State of a scrub.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ScrubState {
    /// No scrub of the volume has ended.
    Never,
    /// The scrub waits until others are done.
    Waiting,
    /// The scrub runs as far as its policy and the drives allow.
    Running,
    /// The whole volume was examined.
    Completed,
    /// The scrub was cancelled.
    Cancelled,
    /// The volume was shrunk or closed during the scrub.
    Interrupted,
}

/// A range of a volume without any replica that is known to be good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DamagedRange {
    /// Offset in the volume in bytes.
    pub offset: u64,
    /// Length in bytes.
    pub length: u64,
    /// True if replicas differ and the correct one is unknown; otherwise no replica has the data that was
    /// written.
    pub is_undecided: bool,
}

/// The current or last scrub of a volume, and the known state of its data at rest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Scrub {
    /// ID of the volume.
    pub id: Uuid,
    /// Tenant of the volume.
    pub tenant: String,
    /// Name of the volume.
    pub volume: String,
    /// State of the scrub.
    pub state: ScrubState,
    /// Time when the scrub was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub begun_at: Option<Timestamp>,
    /// Time when the scrub ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub ended_at: Option<Timestamp>,
    /// Bytes of the volume that are done, while the scrub runs.
    pub bytes_done: u64,
    /// Bytes of the volume that are left, while the scrub runs.
    pub bytes_left: u64,
    /// Mean rate of examined bytes of all replicas, per second, while the scrub runs.
    pub bytes_per_second: f64,
    /// Number of 4096-byte blocks examined, in all replicas.
    pub blocks_checked: u64,
    /// Number of bad blocks found, in all replicas.
    pub blocks_found: u64,
    /// Number of bad blocks that were rewritten from another replica.
    pub blocks_repaired: u64,
    /// Number of blocks without any replica that was known to be good.
    pub blocks_unrepairable: u64,
    /// Number of extents without any readable replica.
    pub extents_passed_over: u64,
    /// Bytes of the volume that have valid checksums now.
    pub checksummed_bytes: u64,
    /// Number of blocks that have no replica known to be good now.
    pub damaged_blocks: u64,
    /// First ranges of these blocks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub damaged: Vec<DamagedRange>,
}

/// Known state of volumes at rest.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ScrubList {
    /// All volumes, or those of one tenant, ordered by tenant and name.
    pub scrubs: Vec<Scrub>,
}

impl From<weir_control::ScrubState> for ScrubState {
    fn from(state: weir_control::ScrubState) -> ScrubState {
        match state {
            weir_control::ScrubState::Never => ScrubState::Never,
            weir_control::ScrubState::Waiting => ScrubState::Waiting,
            weir_control::ScrubState::Running => ScrubState::Running,
            weir_control::ScrubState::Completed => ScrubState::Completed,
            weir_control::ScrubState::Cancelled => ScrubState::Cancelled,
            weir_control::ScrubState::Interrupted => ScrubState::Interrupted,
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

/// The first ranges of damaged blocks, as many as one answer shows.
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
    fn adjacent_damaged_blocks_form_one_range() {
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
