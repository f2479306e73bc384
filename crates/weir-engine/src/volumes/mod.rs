//! Volumes: the served volumes of a reactor by number and identity, and what they share.
//!
//! * [`served_volume`] is one volume: the mirror, whose effects it gives to the parts below.
//! * [`volume_files`], [`operations`], [`replica_io`], [`journals`] reach the files: where they are, what is under way,
//!   and how an action is carried out. [`space_permission`], [`refusals`], [`orphans`] and [`missing_answers`] are what
//!   can come between.
//! * [`replica_metadata`], [`checksums`], [`resync`], [`snapshot`] and [`scrubbing`] keep replicas equal and
//!   sound; [`replicas`] and [`failure_reasons`] are who waits for a change, and why a replica failed.
//! * [`command`] and [`lifecycle`] are the commands of control.
//! * [`volume_desk`] is what volumes share: the drive queues, [`deferred_answers`] and [`schedules`].
//!
//! It knows neither clients nor ceilings.

mod checksums;
pub mod coalesced_flushes;
pub mod command;
mod deferred_answers;
mod failure_reasons;
pub mod journals;
pub mod lifecycle;
pub mod missing_answers;
pub mod operations;
pub mod orphans;
mod refusals;
mod replica_io;
mod replica_metadata;
pub mod replicas;
mod resync;
mod schedules;
pub mod scrubbing;
pub mod served_volume;
pub mod snapshot;
pub mod space_permission;
pub mod volume_desk;
pub mod volume_files;

use std::collections::BTreeMap;
use std::ops::{Index, IndexMut};

use slab::Slab;
use weir_engine_interface::{OpenFile, OpenVolume, VolumeSpec};
use weir_types::{BackgroundKind, BackgroundPolicy, DriveId, VolumeId};

use crate::drive_queue::DriveQueues;
use crate::io::Io;
use crate::token::{ConnectionIndex, Token, VolumeIndex};
use command::NewJournal;
use deferred_answers::DeferredAnswers;
use schedules::Schedules;
use served_volume::ServedVolume;
use volume_desk::Desk;
use volume_files::NewHome;

/// The volumes of a reactor.
pub struct Volumes {
    served: Slab<ServedVolume>,
    by_id: BTreeMap<VolumeId, VolumeIndex>,
    /// The reactor's use of drive queues.
    pub queues: DriveQueues,
    /// Answers of drives that are passed on later.
    pub answers: DeferredAnswers,
    /// When volumes have work to do although nothing happened.
    pub schedules: Schedules,
}

impl Volumes {
    pub fn new(queues: DriveQueues) -> Volumes {
        let (served, by_id) = (Slab::new(), BTreeMap::new());
        Volumes {
            served,
            by_id,
            queues,
            answers: DeferredAnswers::default(),
            schedules: Schedules::default(),
        }
    }

    /// A volume, and what it may use.
    pub fn at<'a>(&'a mut self, io: &'a mut Io, index: VolumeIndex) -> (&'a mut ServedVolume, Desk<'a>) {
        let Volumes { served, queues, answers, schedules, .. } = self;
        (&mut served[index], Desk { io, queues, answers, schedules })
    }

    /// The number of an open volume.
    pub fn index_of(&self, id: VolumeId) -> Option<VolumeIndex> {
        self.by_id.get(&id).copied()
    }

    /// True if there is a volume with this number.
    pub fn contains(&self, index: VolumeIndex) -> bool {
        self.served.contains(index)
    }

    /// The numbers of all volumes.
    pub fn indices(&self) -> Vec<VolumeIndex> {
        self.served.iter().map(|(index, _)| index).collect()
    }

    /// Opens a volume with its homes and journals.
    pub fn open(
        &mut self,
        io: &mut Io,
        spec: VolumeSpec,
        (homes, journals): (Vec<NewHome>, Vec<NewJournal>),
        open: OpenVolume,
    ) -> VolumeIndex {
        let (id, size_bytes, index) = (spec.id, spec.size_bytes, self.served.vacant_key());
        self.served.insert(ServedVolume::new(index, spec, open));
        let (volume, mut desk) = self.at(io, index);
        let mut disk = volume.disk(&mut desk);
        homes.into_iter().for_each(|home| disk.add_home(home));
        journals.into_iter().for_each(|journal| disk.add_journal(journal, size_bytes));
        self.by_id.insert(id, index);
        index
    }

    /// Lets nobody find a volume any more, because it is closed. Answers its number.
    pub fn hide(&mut self, id: VolumeId) -> Option<VolumeIndex> {
        self.by_id.remove(&id)
    }

    /// Removes a volume that is closed. Callers that still wait for changes of its replicas learn that.
    pub fn remove(&mut self, io: &mut Io, index: VolumeIndex) {
        let (volume, mut desk) = self.at(io, index);
        volume.leave(&mut desk);
        let ServedVolume { mut life, .. } = self.served.remove(index);
        life.take_closing().into_iter().for_each(lifecycle::answer);
    }

    /// Until when the emulated drive of a volume holds back an answer, in nanoseconds.
    pub fn held_until_ns(&mut self, token: &Token) -> Option<u64> {
        let volume = &mut self.served[crate::emulation::volume_of(token)?];
        let due_ns = volume.emulated.take_due_ns(token)?;
        (!volume.is_ending()).then_some(due_ns)
    }

    /// True if an emulated drive holds back an answer to a volume.
    pub fn is_held_back(&self, io: &Io, index: VolumeIndex, due_ns: u64) -> bool {
        due_ns > io.now_ns && !io.is_stopping && !self.served[index].is_ending()
    }

    /// Removes a quiet connection from the drive queues. The caller settles the volume.
    pub fn quit(&mut self, io: &Io, connection: ConnectionIndex, index: VolumeIndex) {
        let volume = &mut self.served[index];
        let homes = volume.files.homes.iter().map(|home| &home.queue);
        for (replica, number) in self.queues.quit(io.now_ns, connection, homes) {
            let io = volume.operations.end_orphan(replica.slot, number);
            debug_assert!(io.is_some(), "only what was given up waits for nobody");
        }
    }

    /// Lets a volume become quiet without waiting for its emulated drives.
    pub fn expedite(&mut self, index: VolumeIndex) {
        if self.served[index].emulated.is_any() {
            self.answers.expedite(index);
        }
    }

    /// Changes the policy of the volumes' background work.
    pub fn change_policy(&mut self, kind: BackgroundKind, policy: BackgroundPolicy, now_ns: u64) {
        self.schedules.policies.set(kind, policy);
        for (_, volume) in &self.served {
            volume.files.homes.iter().for_each(|home| home.queue.change_policy(kind, policy, now_ns));
        }
        self.schedules.resyncs.wake_at(now_ns);
        self.schedules.scrubs.wake_at(now_ns);
    }

    /// The files that are open on a drive.
    pub fn open_files(&self, drive: DriveId) -> Vec<OpenFile> {
        let of_volume = |(_, volume): (usize, &ServedVolume)| {
            let log = volume.journals.log_on(drive);
            volume.files.open_on(drive, volume.id).into_iter().chain(log).collect::<Vec<_>>()
        };
        self.served.iter().flat_map(of_volume).collect()
    }

    /// True if no flush is owed.
    pub fn are_flushes_paid(&self) -> bool {
        let mut served = self.served.iter();
        self.schedules.coalesced_flushes.is_empty()
            && served.all(|(_, volume)| !volume.mirror.is_paying_flushes())
    }

    /// Begins no further operation of any journal, because the daemon stops. True if no operation is under
    /// way.
    pub fn stop_journals(&mut self) -> bool {
        self.served.iter_mut().fold(true, |is_quiet, (_, volume)| volume.journals.stop() && is_quiet)
    }

    /// True if nothing is under way on the volumes with several replicas.
    pub fn are_replicas_quiet(&self) -> bool {
        let resynced = self.schedules.resyncs.volumes();
        resynced.into_iter().all(|index| self.served[index].operations.is_quiet())
    }
}

impl Index<VolumeIndex> for Volumes {
    type Output = ServedVolume;

    fn index(&self, index: VolumeIndex) -> &ServedVolume {
        &self.served[index]
    }
}

impl IndexMut<VolumeIndex> for Volumes {
    fn index_mut(&mut self, index: VolumeIndex) -> &mut ServedVolume {
        &mut self.served[index]
    }
}
