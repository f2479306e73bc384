//! Drive queue leaves and paces of background work for served volumes.
//!
//! There is one leaf per volume, drive and kind of work, and one pace per drive and kind of work. This
//! module does not know the work itself.

use weir_qos::{NodeId, Pace};
use weir_types::{BackgroundKind, BackgroundPolicy, Terms};

use super::plant;
use crate::locks::locked;
use crate::reactor::Reactor;
use crate::served_volume::Home;
use crate::sharing::{DriveQueueState, without_ceilings};
use crate::token::VolumeIndex;

impl Reactor {
    /// The leaf of a kind of work for a volume, in the queue of one of the volume's drives.
    pub(crate) fn background_leaf(
        &mut self,
        index: VolumeIndex,
        home: usize,
        kind: BackgroundKind,
    ) -> NodeId {
        let (now_ns, terms) = (self.io.now_ns, self.background.policy(kind).terms(None));
        let home = &mut self.volumes[index].homes[home];
        *home.background_leaves.entry(kind).or_insert_with(|| {
            let node = plant(&home.queue_entry.drive_queue, kind, &terms, now_ns);
            locked(&home.queue_entry.drive_queue).queue.tree.add_leaf(node, &Terms::default(), now_ns)
        })
    }

    /// Changes the policy of a kind of work for volumes.
    pub(super) fn change_work_for_volumes(&mut self, kind: BackgroundKind, policy: BackgroundPolicy) {
        let (now_ns, terms) = (self.io.now_ns, without_ceilings(&policy.terms(None)));
        for (_, volume) in &self.volumes {
            for home in volume.homes.iter().filter(|home| home.background_leaves.contains_key(&kind)) {
                let mut state = locked(&home.queue_entry.drive_queue);
                let DriveQueueState { queue, background, .. } = &mut *state;
                background.change(&mut queue.tree, &kind, &terms, now_ns);
            }
        }
        self.wake_resync();
        self.wake_scrubs();
    }
}

impl Home {
    /// Removes the leaves of the volume's background work from this drive queue.
    pub fn leave_background(&mut self) {
        for (kind, leaf) in std::mem::take(&mut self.background_leaves) {
            let mut state = locked(&self.queue_entry.drive_queue);
            let DriveQueueState { queue, background, .. } = &mut *state;
            queue.tree.remove(leaf);
            background.uproot(&mut queue.tree, &[kind]);
        }
    }

    /// The pace of a kind of work on this drive, shared by all volumes on the drive.
    pub fn with_pace<T>(
        &self,
        kind: BackgroundKind,
        policy: BackgroundPolicy,
        now_ns: u64,
        act: impl FnOnce(&mut Pace) -> T,
    ) -> T {
        let mut state = locked(&self.queue_entry.drive_queue);
        let pace = state.paces.entry(kind).or_insert_with(|| Pace::new(policy, now_ns));
        if *pace.policy() != policy {
            pace.change(policy, now_ns);
        }
        act(pace)
    }
}
