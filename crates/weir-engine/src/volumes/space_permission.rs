//! Space: which actions may still take space on drives that share the filesystem of the state folder.
//!
//! Every write counts, even a write to an allocated block. A snapshot may share that block, or part of its
//! piece may have been given back. Most writes need no new space, so a used-up count refuses nothing yet.
//! Instead the action waits until a thread of the drive looks at the filesystem and at the range. The look
//! decides, and becomes the new count (`space_count`).

use std::io;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use weir_types::bounds::ALLOCATION_BYTES;
use weir_volume::{Action, Fault};

use crate::space_count::{SpaceAtHand, TakenSpace};

/// Whether a drive is on the filesystem of the state folder, so that its space counts.
#[derive(Debug, Default)]
pub struct IsCounted(AtomicBool);

/// Whether an action may run.
#[derive(Debug)]
pub enum Permission {
    /// The action may run, with the space that it takes if space counts.
    Granted(Option<TakenSpace>),
    Refused(Fault),
    /// A look has to find out whether there is space.
    AfterALook,
}

/// Bytes that a filesystem takes at a time for a write to an extent that another file shares. The value is
/// the default hint of XFS (32 blocks). Other filesystems take less.
const SHARED_PART_BYTES: u64 = 128 << 10;

/// Range of an extent's file for which an action may take space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpaceAsked {
    pub offset: u64,
    pub bytes: u64,
}

impl IsCounted {
    /// Sets whether space on the drive counts.
    pub fn set(&self, is_counted: bool) {
        self.0.store(is_counted, Relaxed);
    }

    /// Whether an action may run on the drive, before any look.
    pub fn permit(&self, space: &Rc<SpaceAtHand>, action: &Action) -> Permission {
        let asked = if self.0.load(Relaxed) { SpaceAsked::by(action) } else { None };
        match asked.map(|asked| space.take(asked.bytes_max())) {
            None => Permission::Granted(None),
            Some(Some(taken)) => Permission::Granted(Some(taken)),
            Some(None) => Permission::AfterALook,
        }
    }
}

impl Permission {
    /// Permission after a look. If the look found nothing out, the drive itself answers.
    pub fn after_a_look(
        space: &Rc<SpaceAtHand>,
        action: &Action,
        needed_bytes: &io::Result<u64>,
    ) -> Permission {
        let asked = SpaceAsked::of(action);
        let bytes = match (needed_bytes, action) {
            // The filesystem may free a zeroed range and allocate it again.
            (Ok(0), Action::Zero { .. }) => return Permission::Granted(Some(space.keep(asked.bytes))),
            (Err(_) | Ok(0), _) => return Permission::Granted(None),
            (Ok(bytes), Action::Allocate { .. }) => *bytes,
            (Ok(_), _) => asked.bytes_max(),
        };
        match space.take(bytes) {
            Some(taken) => Permission::Granted(Some(taken)),
            None => Permission::Refused(Fault::NoSpace),
        }
    }
}

impl SpaceAsked {
    fn by(action: &Action) -> Option<SpaceAsked> {
        match *action {
            Action::Allocate { piece, .. } => {
                Some(SpaceAsked { offset: u64::from(piece) * ALLOCATION_BYTES, bytes: ALLOCATION_BYTES })
            }
            Action::Write { offset, length, .. } | Action::Zero { offset, length, .. } => {
                Some(SpaceAsked { offset: offset.into(), bytes: length.into() })
            }
            _ => None,
        }
    }

    /// The range of an action that waits for a look.
    pub fn of(action: &Action) -> SpaceAsked {
        SpaceAsked::by(action).expect("only what takes space waits for a look")
    }

    /// Most space that the action takes, in bytes.
    fn bytes_max(self) -> u64 {
        let begin = self.offset / SHARED_PART_BYTES * SHARED_PART_BYTES;
        (self.offset + self.bytes).next_multiple_of(SHARED_PART_BYTES) - begin
    }
}

#[cfg(test)]
mod tests {
    use weir_types::ExtentIndex;

    use std::sync::Arc;

    use super::*;
    use crate::space_count::SpaceCount;

    const EXTENT: ExtentIndex = ExtentIndex(0);

    const BLOCK: u64 = 4096;

    fn write(length: u64) -> Action {
        let (operation, length) = (weir_volume::OperationId(0), length as u32);
        Action::Write { operation, extent: EXTENT, offset: 0, buffer_offset: 0, length, is_durable: false }
    }

    fn space(left_bytes: u64) -> Rc<SpaceAtHand> {
        let count = Arc::new(SpaceCount::default());
        count.set_reserve(BLOCK);
        count.end_look(count.begin_look(), BLOCK + left_bytes);
        SpaceAtHand::new(&count)
    }

    #[test]
    fn space_on_other_filesystems_is_unlimited() {
        let permission = IsCounted::default().permit(&space(0), &write(BLOCK));
        assert!(matches!(permission, Permission::Granted(None)), "{permission:?}");
    }

    #[test]
    fn only_allocations_zeroes_and_writes_take_space() {
        let generation = weir_volume::Generation::default();
        let allocate = Action::Allocate { extent: EXTENT, generation, piece: 0 };
        let (counted, left) = (IsCounted(AtomicBool::new(true)), space(ALLOCATION_BYTES + SHARED_PART_BYTES));
        let permit = |action: &Action| counted.permit(&left, action);
        let _taken = [permit(&allocate), permit(&write(BLOCK))].map(|permission| {
            assert!(matches!(permission, Permission::Granted(Some(_))), "{permission:?}");
            permission
        });
        assert!(matches!(permit(&Action::Sync { extent: EXTENT, generation }), Permission::Granted(None)));
        assert!(matches!(permit(&write(BLOCK)), Permission::AfterALook));
        assert!(matches!(permit(&allocate), Permission::AfterALook));
    }

    #[test]
    fn look_refuses_only_actions_without_space() {
        let left = space(SHARED_PART_BYTES);
        let after_a_look = |bytes, needed| Permission::after_a_look(&left, &write(bytes), &needed);
        let larger = after_a_look(2 * SHARED_PART_BYTES, Ok(BLOCK));
        assert!(matches!(larger, Permission::Refused(Fault::NoSpace)), "{larger:?}");
        assert!(matches!(after_a_look(BLOCK, Ok(0)), Permission::Granted(None)), "it needs none");
        let untold = Err(io::Error::other("no answer"));
        assert!(matches!(after_a_look(BLOCK, untold), Permission::Granted(None)));
        let taken = after_a_look(BLOCK, Ok(BLOCK));
        assert!(matches!(taken, Permission::Granted(Some(_))), "{taken:?}");
        assert!(matches!(after_a_look(BLOCK, Ok(BLOCK)), Permission::Refused(Fault::NoSpace)));
    }

    #[test]
    fn zeroed_range_keeps_its_space_until_done() {
        let left = space(ALLOCATION_BYTES);
        let after_a_look = |action, needed| Permission::after_a_look(&left, &action, &Ok(needed));
        let generation = weir_volume::Generation::default();
        let allocate = Action::Allocate { extent: EXTENT, generation, piece: 0 };
        let (operation, length) = (weir_volume::OperationId(0), ALLOCATION_BYTES as u32);
        let zeroed = after_a_look(Action::Zero { operation, extent: EXTENT, offset: 0, length }, 0);
        assert!(matches!(zeroed, Permission::Granted(Some(_))), "{zeroed:?}");
        assert!(matches!(after_a_look(allocate, BLOCK), Permission::Refused(Fault::NoSpace)));
        drop(zeroed);
        left.hand_back();
        left.count().end_look(left.count().begin_look(), BLOCK + BLOCK);
        let piece = after_a_look(allocate, BLOCK);
        assert!(matches!(piece, Permission::Granted(Some(_))), "{piece:?}");
    }
}
