//! Snapshots of a mirror, as its executor takes them.

use super::Mirror;
use super::effect::Effect;
use super::slots::Slots;
use super::snapshot_in_progress::NothingToSnapshot;

/// Access to the snapshot in progress of a mirror ([`Mirror::snapshots`]).
pub struct Snapshots<'a>(pub(super) &'a mut Mirror);

impl Snapshots<'_> {
    /// Quiesces the volume: no change begins until [`Snapshots::release`] or [`Snapshots::begin`].
    pub fn quiesce(self) {
        self.0.parts.snapshot.quiesce();
    }

    /// Ends quiescing: changes may begin again.
    pub fn release(self, effects: &mut Vec<Effect>) {
        self.0.parts.snapshot_work(effects).release();
        self.0.run(effects);
    }

    /// Begins a snapshot of the volume's present data: everything acknowledged, and the changes that have
    /// begun, if they succeed. It continues by [`Effect::Snapshot`] and ends with [`Effect::SnapshotEnded`]. One
    /// snapshot is in progress at a time.
    ///
    /// # Errors
    /// If an extent has no replica that a snapshot could be taken from; then nothing was begun. In either
    /// case the volume is no longer quiesced.
    pub fn begin(self, effects: &mut Vec<Effect>) -> Result<(), NothingToSnapshot> {
        let begun = self.0.parts.snapshot_work(effects).begin();
        self.0.run(effects);
        begun
    }

    /// Takes the executor's progress on [`Effect::Snapshot`]: whole regions from its offset up to `end`, an
    /// offset in the extent. The `failed` replicas have none of it.
    pub fn step_done(self, end: u32, failed: Slots, effects: &mut Vec<Effect>) {
        self.0.parts.snapshot_work(effects).step_done(end, failed);
        self.0.run(effects);
    }

    /// Abandons the snapshot in progress, if there is one, so that no change waits for it.
    pub fn abandon(self, effects: &mut Vec<Effect>) {
        self.0.parts.snapshot_work(effects).abandon();
        self.0.run(effects);
    }
}
