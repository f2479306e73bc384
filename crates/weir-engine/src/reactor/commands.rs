//! Commands: carrying out what control tells a reactor to do.

use std::sync::mpsc::SyncSender;

use weir_engine_interface::{OpenVolume, ScrubEnd, VolumeSpec};
use weir_types::{BackgroundKind, BackgroundPolicy, VolumeId};
use weir_volume::geometry::extent_count;

use super::Reactor;
use crate::clients::NewClient;
use crate::command::{Command, PolicyBinding};
use crate::token::VolumeIndex;
use crate::volumes::command::{NewJournal, VolumeCommand};
use crate::volumes::lifecycle::{NewSize, answer};
use crate::volumes::volume_files::NewHome;
use weir_host::line_gate::LineGate;

/// Time that clients have to read outstanding replies when the daemon stops, in nanoseconds.
const STOP_TIMEOUT_NS: u64 = 5_000_000_000;
/// Rate limit of log lines about refused connections.
static REFUSALS: LineGate = LineGate::new();

impl Reactor {
    pub(crate) fn take_command(&mut self, command: Command) {
        match command {
            Command::Open { spec, homes, journals, open, done } => {
                self.open_volume(spec, (homes, journals), open);
                answer(done);
            }
            Command::Close { volume, done } => self.close_volume(volume, done),
            Command::Resize { volume, resizing, done } => self.resize(volume, resizing, done),
            Command::SetReadOnly { volume, is_read_only, done } => {
                self.set_read_only(volume, is_read_only, done);
            }
            Command::Bind { volume, binding, done } => self.bind(volume, &binding, done),
            Command::LookAtPolicyTrees { done } => {
                let released = self.ceilings.release_all(self.io.now_ns);
                released.into_iter().for_each(|admitted| self.admitted(admitted));
                answer(done);
            }
            Command::Tap { volume, tap, done } => {
                if let Some(index) = self.volumes.index_of(volume) {
                    self.clients.set_tap(index, tap);
                }
                answer(done);
            }
            Command::Reclaim(new) => {
                let policy = self.volumes.schedules.policies.of(BackgroundKind::Reclaim);
                self.background.begin_reclaim(&mut self.io, &mut self.volumes.queues, *new, policy);
            }
            Command::ChangeBackground { kind, policy, done } => {
                self.change_background(kind, policy);
                answer(done);
            }
            Command::SetAway { drive, is_away } => {
                for index in self.volumes.indices() {
                    if let Some(home) = self.volumes[index].files.home_on(drive) {
                        self.go_on(index, |volume, desk| volume.set_away(home, is_away, desk));
                    }
                }
            }
            Command::OpenFiles { drive, done } => {
                // The caller may have stopped waiting.
                let _ = done.send(self.volumes.open_files(drive));
            }
            Command::Volume { volume, command } => self.take_volume_command(volume, command),
            Command::Serve { volume, client } => _ = self.serve(volume, *client),
            Command::ServeAttached { volume, client, done } => {
                let client = NewClient::attached(*client);
                let client = client.inspect_err(|error| {
                    tracing::error!(%volume, %error, "the requests of a block device cannot be mapped");
                });
                // The caller may have stopped waiting.
                let _ = done.send(client.is_ok_and(|client| self.serve(volume, client)));
            }
            Command::EndAttached { volume, done } => {
                let attached = self.volumes.index_of(volume).map(|index| self.clients.attached_to(index));
                attached.into_iter().flatten().for_each(|connection| self.close_connection(connection));
                answer(done);
            }
            Command::Stop => self.stop(),
        }
    }

    fn take_volume_command(&mut self, volume: VolumeId, command: VolumeCommand) {
        let Some(index) = self.volumes.index_of(volume) else { return command.refuse() };
        if let VolumeCommand::SetFlushWindow { window, .. } = &command {
            self.clients.set_flush_window(index, *window);
        }
        let reply = self.carry_out_all(index, |volume, desk| volume.take_command(command, desk));
        self.settle_volume(index);
        reply.send();
    }

    fn open_volume(
        &mut self,
        spec: VolumeSpec,
        (homes, journals): (Vec<NewHome>, Vec<NewJournal>),
        open: OpenVolume,
    ) {
        let flush_window = spec.flush_window;
        let index = self.volumes.open(&mut self.io, spec, (homes, journals), open.clone());
        self.clients.open_volume(index, open);
        if self.volumes[index].mirror.has_replicas() {
            self.go_on(index, |volume, desk| volume.begin_resync(desk));
        }
        if let Some(window) = flush_window {
            self.clients.set_flush_window(index, flush_window);
            self.go_on(index, |volume, _| {
                volume.flush_window.set(Some(window.length), &mut volume.mirror, &mut volume.effects)
            });
        }
    }

    /// Serves a new client. False if the volume takes no further client.
    fn serve(&mut self, volume: VolumeId, new: NewClient) -> bool {
        let open = self.volumes.index_of(volume).filter(|index| !self.volumes[*index].life.is_closing());
        let Some(index) = open else {
            note_refusal(volume, "a client chose a volume that has just been closed");
            return false;
        };
        if !self.has_place_for(index) || self.io.is_stopping {
            return false;
        }
        let served = &self.volumes[index];
        let is_told_more = new.told_size_bytes().is_some_and(|told_bytes| told_bytes > served.size_bytes);
        if served.life.is_resizing() || is_told_more {
            note_refusal(volume, "a client that was told a size from before a shrink has to come again");
            return false;
        }
        if served.life.is_read_only() && new.may_write() {
            note_refusal(volume, "a client that came before its volume was made read-only has to come again");
            return false;
        }
        let connection = self.clients.add(new, index);
        let (served, desk) = self.volumes.at(&mut self.io, index);
        let homes = served.files.homes.iter().map(|home| &home.queue);
        desk.queues.join(desk.io.now_ns, (connection, index), homes);
        self.ceilings.join(self.io.now_ns, index, connection);
        self.parse(connection);
        true
    }

    fn has_place_for(&self, volume: VolumeIndex) -> bool {
        let (has_place, of_volume) = (self.clients.has_place_for(volume), self.clients.count_of(volume));
        if !has_place && let Some(left_out) = REFUSALS.pass() {
            let volume = self.volumes[volume].id;
            tracing::warn!(%volume, left_out, "a connection was refused: the volume has {of_volume} already");
        }
        has_place
    }

    fn close_volume(&mut self, id: VolumeId, done: SyncSender<()>) {
        let Some(index) = self.volumes.hide(id) else { return answer(done) };
        self.volumes[index].life.close(done);
        self.carry_out_all(index, |volume, desk| volume.end_snapshot("the volume was closed", desk));
        self.end_connections(index);
        self.carry_out_all(index, |volume, _| {
            volume.flush_window.set(None, &mut volume.mirror, &mut volume.effects)
        });
        self.go_on(index, |volume, desk| volume.end_scrub(ScrubEnd::Interrupted, desk));
    }

    fn end_connections(&mut self, volume: VolumeIndex) {
        for connection in self.clients.of_volume(volume) {
            self.close_connection(connection);
        }
        self.volumes.expedite(volume);
    }

    /// Resizes a volume. Growing changes nothing for open connections. Shrinking ends them, so that none
    /// writes beyond the new end, and is answered once they are gone.
    fn resize(&mut self, id: VolumeId, resizing: NewSize, done: SyncSender<()>) {
        let Some(index) = self.volumes.index_of(id) else { return answer(done) };
        self.carry_out_all(index, |volume, desk| volume.end_snapshot("the volume was resized", desk));
        let volume = &mut self.volumes[index];
        let size_bytes = resizing.size_bytes;
        let is_shrinking =
            extent_count(size_bytes) < volume.mirror.extents() || size_bytes < volume.size_bytes;
        volume.life.resize(resizing, done);
        if is_shrinking {
            self.end_connections(index);
            self.carry_out_all(index, |volume, desk| volume.end_scrub(ScrubEnd::Interrupted, desk));
        }
        self.settle_volume(index);
    }

    fn set_read_only(&mut self, id: VolumeId, is_read_only: bool, done: SyncSender<()>) {
        let Some(index) = self.volumes.index_of(id) else { return answer(done) };
        if let Some(done) = self.volumes[index].life.set_read_only(is_read_only, done) {
            return answer(done);
        }
        self.end_connections(index);
        self.settle_volume(index);
    }

    fn bind(&mut self, id: VolumeId, binding: &PolicyBinding, done: SyncSender<()>) {
        if let Some(index) = self.volumes.index_of(id) {
            let PolicyBinding { policy, policy_tree } = binding;
            self.clients.set_cgroups(index, &policy.cgroups);
            let (volume, desk) = self.volumes.at(&mut self.io, index);
            let homes = volume.files.homes.iter_mut().map(|home| &mut home.queue).collect();
            desk.queues.bind(desk.io.now_ns, index, homes, &policy.path);
            let homes = self.volumes[index].files.homes.iter();
            let queues: Vec<_> = homes.map(|home| home.queue.shared().clone()).collect();
            queues.iter().for_each(|drive_queue| self.release_drive_queue(drive_queue));
            let connections = self.clients.of_volume(index);
            let ceilings = (policy_tree.as_ref(), policy);
            let admitted = self.ceilings.bind(self.io.now_ns, index, ceilings, &connections);
            admitted.into_iter().for_each(|admitted| self.admitted(admitted));
        }
        answer(done);
    }

    /// Changes the policy of a kind of background work.
    fn change_background(&mut self, kind: BackgroundKind, policy: BackgroundPolicy) {
        let now_ns = self.io.now_ns;
        match kind {
            BackgroundKind::Reclaim => {
                self.volumes.schedules.policies.set(kind, policy);
                self.background.change(&mut self.io, &mut self.volumes.queues, (kind, policy));
            }
            _ => self.volumes.change_policy(kind, policy, now_ns),
        }
    }

    /// Answers received requests, refuses waiting ones, and stops.
    fn stop(&mut self) {
        self.stop_by_ns = Some(self.io.now_ns + STOP_TIMEOUT_NS);
        self.io.is_stopping = true;
        for step in self.background.stop(&self.io, &mut self.volumes.queues) {
            self.end_step(step);
        }
        for index in self.volumes.indices() {
            self.carry_out_all(index, |volume, desk| volume.end_snapshot("the daemon stops", desk));
        }
        for index in self.volumes.schedules.scrubs.all() {
            self.carry_out_all(index, |volume, desk| volume.end_scrub(ScrubEnd::Interrupted, desk));
        }
        for connection in self.clients.connections() {
            self.clients.cut_short(&mut self.io, connection);
            self.serve_clients();
        }
    }
}

fn note_refusal(volume: VolumeId, why: &str) {
    if let Some(left_out) = REFUSALS.pass() {
        tracing::info!(%volume, left_out, "{why}");
    }
}
