//! Conversion of control's view of scrubs to the API.

use super::{FromControl, IntoApi};
use weir_api_types::{DamagedRange, Scrub, ScrubState};
use weir_control::{ScrubView, offset_of};
use weir_engine_interface::statistics::ChecksumCounters;
use weir_types::bounds::{BLOCK_BYTES, SECTION_BYTES};
use weir_types::control_bounds::DAMAGED_RANGES_SHOWN_MAX;
impl FromControl<weir_control::ScrubState> for ScrubState {
    fn from_control(state: weir_control::ScrubState) -> ScrubState {
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

impl FromControl<ScrubView> for Scrub {
    fn from_control(view: ScrubView) -> Scrub {
        let counted = view.counted;
        let rate =
            |elapsed_ns: u64| (counted.blocks_checked * BLOCK_BYTES) as f64 * 1e9 / elapsed_ns.max(1) as f64;
        Scrub {
            id: view.volume.0,
            tenant: view.tenant.into(),
            volume: view.name.into(),
            state: view.state.into_api(),
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
    use weir_types::ExtentIndex;
    use weir_volume::mirror::Damaged;

    #[test]
    fn adjacent_damaged_blocks_form_one_range() {
        let block = |block, expected| Damaged { block, expected };
        let mut rest = ChecksumCounters::default();
        rest.damaged.insert(ExtentIndex(0), vec![block(1, Some(7)), block(2, Some(8)), block(3, None)]);
        rest.damaged.insert(ExtentIndex(1), vec![block(0, Some(1))]);
        let found: Vec<_> =
            ranges(&rest).iter().map(|range| (range.offset, range.length, range.is_undecided)).collect();
        assert_eq!(found, [(4096, 8192, false), (12_288, 4096, true), (1 << 30, 4096, false)]);
        rest.damaged.insert(ExtentIndex(2), (0..100).map(|number| block(2 * number, Some(1))).collect());
        assert_eq!(ranges(&rest).len(), DAMAGED_RANGES_SHOWN_MAX);
    }
}
