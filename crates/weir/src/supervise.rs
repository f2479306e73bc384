//! Supervision of the daemon's own threads: the API, its events, checks of extent files, policies that follow the used
//! space, and the completion of background work.
//!
//! A thread that fails raises an alarm and is started again. The data plane serves on in any case.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use self::Rhythm::{Look, Work};
use crate::notify;
use weir_api::{ApiListeners, Facts, History};
use weir_control::Control;
use weir_host::processor;
use weir_types::control_bounds::EVENT_LOOK_SECONDS;

/// Pause before a failed thread is started again.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Interval of extent file checks.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Interval at which the space figures of drives are read.
const FIGURES_INTERVAL: Duration = Duration::from_secs(1);
/// Interval at which policies follow the used space of volumes. Together with the check itself, this is well
/// within the promised 10 s.
const FOLLOW_INTERVAL: Duration = Duration::from_secs(4);
/// Pause after a piece of work, as a multiple of its duration. The work never takes more than a fifth of a
/// core, or of a drive's time.
const PAUSE_FACTOR: u32 = 4;
/// Pause after a check, as a multiple of its processor time. Ten thousand idle volumes then take a quarter of
/// a percent of a core for each kind of check, also on a slow machine.
const LOOK_PAUSE_FACTOR: u32 = 400;
/// Interval at which finished background work and finished measurements are handled.
const SETTLE_INTERVAL: Duration = Duration::from_millis(100);
/// Interval at which the space is computed that volumes may still take on the state folder's filesystem.
const SPACE_INTERVAL: Duration = Duration::from_millis(100);
/// Interval at which the next replicas are added or removed, while a move is under way.
const MOVE_INTERVAL: Duration = Duration::from_millis(50);
/// Interval at which missing drives and failed replicas are looked for.
const RETURN_INTERVAL: Duration = Duration::from_secs(2);
/// Interval at which burst credit is saved. A killed daemon loses, or grants again, at most the credit of
/// this time.
const CREDITS_INTERVAL: Duration = Duration::from_millis(500);

/// The threads, which run until they are stopped.
pub struct Supervised {
    control: Arc<Control>,
    stop_api: watch::Sender<bool>,
    repeated: Vec<Repeated>,
    api: JoinHandle<ApiListeners>,
}

/// How often a thread repeats its work.
#[derive(Clone, Copy)]
enum Rhythm {
    /// Work that callers may wait for; it runs at every interval.
    Work(Duration),
    /// A check that no caller waits for; it runs at every interval, or more rarely if it would take too much
    /// of a core.
    Look(Duration),
}

/// A thread that repeats its work.
struct Repeated {
    stop: Sender<()>,
    thread: JoinHandle<()>,
}

impl Supervised {
    /// Starts the threads.
    ///
    /// # Errors
    /// If the system cannot start another thread.
    pub fn start(control: Arc<Control>, listeners: ApiListeners, facts: Facts) -> io::Result<Supervised> {
        let (stop_api, api_stopped) = watch::channel(false);
        let mut repeated = vec![
            Repeated::start("check", Look(CHECK_INTERVAL), control.clone(), Control::check_extent_files)?,
            Repeated::start("follow", Work(FOLLOW_INTERVAL), control.clone(), |control| {
                control.bindings.follow_used_space()
            })?,
            Repeated::start("figures", Look(FIGURES_INTERVAL), control.clone(), |control| {
                control.figures.refresh_figures()
            })?,
            Repeated::start(
                "replicas",
                Work(SETTLE_INTERVAL),
                control.clone(),
                Control::retry_record_backups,
            )?,
            Repeated::start("settle", Work(SETTLE_INTERVAL), control.clone(), |control| {
                control.reclaims.settle_background()
            })?,
            Repeated::start("space", Work(SPACE_INTERVAL), control.clone(), |control| {
                control.space.set_space_aside()
            })?,
            Repeated::start("scrub", Work(SETTLE_INTERVAL), control.clone(), |control| {
                control.scrubs.settle_scrubs()
            })?,
            Repeated::start("classify", Work(SETTLE_INTERVAL), control.clone(), |control| {
                control.measurements.settle_measurements()
            })?,
            Repeated::start("move", Work(MOVE_INTERVAL), control.clone(), Control::settle_moves)?,
            Repeated::start("return", Work(RETURN_INTERVAL), control.clone(), |control| {
                control.returns.look_for_returns()
            })?,
            Repeated::start("credits", Look(CREDITS_INTERVAL), control.clone(), |control| {
                control.credits.save_credits()
            })?,
        ];
        let history = Arc::new(History::begin());
        let look = {
            let history = history.clone();
            move |control: &Control| history.look(control)
        };
        let interval = Duration::from_secs(EVENT_LOOK_SECONDS);
        repeated.push(Repeated::start("events", Look(interval), control.clone(), look)?);
        if let Some(interval) = notify::watchdog_interval() {
            repeated.push(Repeated::start("watchdog", Work(interval), control.clone(), notify::is_alive)?);
        }
        let keeper = control.clone();
        let api = move || {
            serve_until_stopped(&control, &listeners, (&facts, &history), &api_stopped);
            listeners
        };
        let api = std::thread::Builder::new().name("weir-api".to_owned()).spawn(api)?;
        Ok(Supervised { control: keeper, stop_api, repeated, api })
    }

    /// Lets running requests end, then stops the threads.
    pub fn stop(self) {
        // A thread that has already ended needs no message.
        let _ = self.stop_api.send(true);
        self.repeated.into_iter().for_each(Repeated::stop);
        self.control.measurements.stop_measurements();
        self.control.credits.save_credits();
        match self.api.join() {
            Ok(listeners) => listeners.remove(),
            Err(_) => tracing::error!("the API's thread ended in a panic"),
        }
    }
}

fn serve_until_stopped(
    control: &Arc<Control>,
    listeners: &ApiListeners,
    (facts, history): (&Facts, &History),
    stop: &watch::Receiver<bool>,
) {
    loop {
        let serve = || serve_api(control.clone(), listeners, (facts.clone(), history), stop.clone());
        let failure = match catch_unwind(AssertUnwindSafe(serve)) {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.to_string(),
            Err(_) => "a panic, which the log tells of".to_owned(),
        };
        control
            .raise_alarm(format!("the API failed and was started again; volumes were served on: {failure}"));
        std::thread::sleep(RETRY_INTERVAL);
    }
}

fn serve_api(
    control: Arc<Control>,
    listeners: &ApiListeners,
    (facts, history): (Facts, &History),
    stop: watch::Receiver<bool>,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let served = runtime.block_on(weir_api::serve(listeners, control, facts, history, stop));
    runtime.shutdown_timeout(RETRY_INTERVAL);
    served
}

/// Cost of one run.
struct Took {
    time: Duration,
    processor_time: Duration,
}

impl Rhythm {
    /// Pause after a run.
    fn pause(self, took: Took) -> Duration {
        let rest = took.time * PAUSE_FACTOR;
        match self {
            Work(interval) => interval.max(rest),
            Look(interval) => interval.max(rest).max(took.processor_time * LOOK_PAUSE_FACTOR),
        }
    }
}

impl Repeated {
    /// Starts a thread that runs at once and then in its rhythm.
    fn start(
        name: &str,
        rhythm: Rhythm,
        control: Arc<Control>,
        work: impl Fn(&Control) + Send + 'static,
    ) -> io::Result<Repeated> {
        let (stop, stopped) = channel();
        let what = name.to_owned();
        let repeat = move || repeat_until_stopped(&what, rhythm, &stopped, &control, &work);
        let thread = std::thread::Builder::new().name(format!("weir-{name}")).spawn(repeat)?;
        Ok(Repeated { stop, thread })
    }

    fn stop(self) {
        // A thread that has already ended needs no message.
        let _ = self.stop.send(());
        let _ = self.thread.join();
    }
}

fn repeat_until_stopped(
    name: &str,
    rhythm: Rhythm,
    stop: &Receiver<()>,
    control: &Control,
    work: &dyn Fn(&Control),
) {
    let mut pause = Duration::ZERO;
    while stop.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
        let (started, before) = (Instant::now(), processor::time_of_thread());
        if catch_unwind(AssertUnwindSafe(|| work(control))).is_err() {
            control.raise_alarm(format!("the thread weir-{name} failed once; the log tells why"));
        }
        let took = Took {
            time: started.elapsed(),
            processor_time: processor::time_of_thread().saturating_sub(before),
        };
        pause = rhythm.pause(took);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expensive_checks_are_rare_and_work_is_not() {
        let (second, millisecond) = (Duration::from_secs(1), Duration::from_millis(1));
        let took = |time, processor_time| Took { time, processor_time };
        assert_eq!(Look(second).pause(took(millisecond, millisecond)), second);
        assert_eq!(Look(second).pause(took(50 * millisecond, 40 * millisecond)), 16 * second);
        assert_eq!(Work(second).pause(took(50 * millisecond, 40 * millisecond)), second);
        assert_eq!(Work(millisecond).pause(took(second, millisecond)), 4 * second, "a slow drive rests too");
    }
}
