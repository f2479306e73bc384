//! A volume with several replicas in a simulated machine: failing drives, power cuts, moves, resyncs and scrubs.
//!
//! Three layers own the state, and none knows one above it:
//!
//! * the [`machine`]: drives, files, the journal's device, and the operations in flight, which end by chance;
//! * the [`daemon`]: the production code that serves the volume, and the executor of its effects on the machine;
//! * the world, in the other modules. It chooses by chance what happens next, and begins what the daemon's other threads
//!   would: moves, resizes, scrubs, resyncs, and the return of drives. `settling` lets all of it come to rest.

mod absence;
mod background;
mod comparing;
mod crash;
mod daemon;
mod journal_upkeep;
mod machine;
mod moving;
mod report;
mod resizing;
mod scrubbing;
mod settings;
mod settling;
mod stalling;
mod swapping;

use crate::requests::random_slot;
use daemon::Daemon;
use daemon::coalesced_flushes::{check_coalesced_flushes, check_paid};
pub use report::Report;
pub use settings::{Abilities, Rot, Sabotage, Settings};

struct MirrorWorld {
    daemon: Daemon,
    /// True while no new work begins, until the volume is resized.
    is_resizing: bool,
}

/// Runs one world to its end: all replicas that can be resynced are, and then they are alike.
///
/// # Errors
/// Names the promise that was broken.
pub fn run(settings: Settings) -> Result<Report, String> {
    let mut world = MirrorWorld { daemon: Daemon::new(settings), is_resizing: false };
    world.daemon.set_flush_coalescing(settings.coalesces_flushes)?;
    for _ in 0..settings.steps {
        world.step()?;
    }
    world.settle()?;
    world.pay_all()?;
    world.rot_some()?;
    world.crash()?;
    world.make_up()?;
    if settings.is_moved {
        world.finish_moves()?;
    }
    if settings.scrubs_per_mille > 0 {
        world.scrub_all()?;
    }
    world.compare()?;
    Ok(world.daemon.machine.report)
}

impl MirrorWorld {
    /// Takes one random step.
    fn step(&mut self) -> Result<(), String> {
        self.daemon.machine.now += 1;
        if self.is_power_failing() {
            return self.crash();
        }
        let machine = &mut self.daemon.machine;
        let settings = machine.settings;
        if machine.random.chance(settings.breaks_per_ten_thousand, 10_000) {
            let slot = random_slot(&mut machine.random);
            machine.drives[slot].break_down();
        }
        machine.change_metadata_faults();
        self.keep_older_states()?;
        if self.is_by_chance(1, 40) {
            self.daemon.retry_metadata()?;
        }
        if self.is_by_chance(10 * settings.breaks_per_ten_thousand, 10_000)
            // A drive that had an error is used again.
            || settings.errors_per_mille > 0 && self.is_by_chance(1, 40)
        {
            let slot = random_slot(&mut self.daemon.machine.random);
            return self.take_back(slot);
        }
        if self.is_by_chance(settings.moves_per_mille, 1000) {
            return self.change_replicas();
        }
        if settings.coalesces_flushes {
            self.work_on_coalesced_flushes()?;
        }
        self.daemon.machine.carry_out_unfenced();
        self.go_and_return()?;
        self.look_at_journal()?;
        if settings.stalls_per_ten_thousand > 0 && self.stall()? || self.resize_sometimes()? {
            return Ok(());
        }
        if settings.is_moved && self.is_by_chance(1, 15) {
            return self.move_replicas();
        }
        if settings.snapshots_per_mille > 0 && self.is_by_chance(settings.snapshots_per_mille, 1000) {
            self.daemon.quiesce_for_snapshot();
        }
        if settings.scrubs_per_mille > 0 && self.is_by_chance(settings.scrubs_per_mille, 1000) {
            return self.scrub_some();
        }
        if settings.rot == Rot::Always && self.is_by_chance(1, 300) {
            self.daemon.machine.rot_a_block();
        }
        if self.is_by_chance(1, settings.steps_between_background) {
            return self.work_in_the_background();
        }
        let has_room = self.daemon.clients.unanswered() < settings.depth;
        if has_room && !self.is_journal_left_alone() && self.is_by_chance(1, 2) {
            return self.daemon.accept_request();
        }
        self.daemon.answer_one()
    }

    /// Ends the window of coalesced flushes at rest: all of them are paid then.
    fn pay_all(&mut self) -> Result<(), String> {
        self.daemon.pay_flushes()?;
        self.settle()?;
        check_paid(&self.daemon)
    }

    /// Checks the coalesced flushes, ends their window by chance, and changes the profile now and then.
    fn work_on_coalesced_flushes(&mut self) -> Result<(), String> {
        check_coalesced_flushes(&mut self.daemon)?;
        match self.daemon.machine.random.below(400) {
            0 => self.daemon.set_flush_coalescing(false),
            1..5 => self.daemon.set_flush_coalescing(true),
            5..25 => self.daemon.pay_flushes(),
            _ => Ok(()),
        }
    }

    fn is_by_chance(&mut self, numerator: u64, denominator: u64) -> bool {
        self.daemon.machine.random.chance(numerator, denominator)
    }
}
