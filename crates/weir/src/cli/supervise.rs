//! The daemon's own threads: the API, the look at extent files, policies that follow the used space, and what is
//! finished. If one fails, that is told and it is started again; the data plane serves on in any case.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use self::Rhythm::{Look, Work};
use super::notify;
use crate::api::{self, ApiListeners, Facts};
use crate::control::Control;
use crate::processor;

/// How long a failed thread rests before it is started again.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// How often the extent files are looked at.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// How often it is seen what drives hold.
const FIGURES_INTERVAL: Duration = Duration::from_secs(1);
/// How often policies are brought to what volumes occupy: with the look itself well within the 10 s that are
/// promised.
const FOLLOW_INTERVAL: Duration = Duration::from_secs(4);
/// What takes long is followed by a pause of this many times as long, so that it never takes more than a fifth of a
/// core, nor of a drive's time.
const PAUSE_FACTOR: u32 = 4;
/// A look that nobody waits for is followed by a pause of this many times the processor time that it took: ten thousand
/// volumes that do nothing take a quarter of a percent of a core for each kind of look, on a slow machine too.
const LOOK_PAUSE_FACTOR: u32 = 400;
/// How often it is looked which background work, and which measurements of drives, are finished.
const SETTLE_INTERVAL: Duration = Duration::from_millis(100);
/// How often it is looked how much space volumes may still take where the state folder is.
const SPACE_INTERVAL: Duration = Duration::from_millis(100);
/// How often it is looked which replicas of extents come or go next, while any do.
const MOVE_INTERVAL: Duration = Duration::from_millis(50);
/// How often missing drives and replicas that failed are looked for.
const RETURN_INTERVAL: Duration = Duration::from_secs(2);
/// How often burst credit is written down: what a daemon that is killed may give back or lose of it.
const CREDITS_INTERVAL: Duration = Duration::from_millis(500);

/// The threads, which run until they are stopped.
pub struct Supervised {
    control: Arc<Control>,
    stop_api: watch::Sender<bool>,
    repeated: Vec<Repeated>,
    api: JoinHandle<ApiListeners>,
}

/// How often something is done.
#[derive(Clone, Copy)]
enum Rhythm {
    /// At every interval, by somebody who may be waited for.
    Work(Duration),
    /// At every interval, and more rarely where it would take too much of a core.
    Look(Duration),
}

/// A thread that does the same again and again.
struct Repeated {
    stop: Sender<()>,
    thread: JoinHandle<()>,
}

impl Supervised {
    /// Starts the threads.
    ///
    /// # Errors
    /// If the system has no thread left.
    pub fn start(control: Arc<Control>, listeners: ApiListeners, facts: Facts) -> io::Result<Supervised> {
        let (stop_api, api_stopped) = watch::channel(false);
        let mut repeated = vec![
            Repeated::start("check", Look(CHECK_INTERVAL), control.clone(), Control::check_extent_files)?,
            Repeated::start("follow", Work(FOLLOW_INTERVAL), control.clone(), Control::follow_used_space)?,
            Repeated::start("figures", Look(FIGURES_INTERVAL), control.clone(), Control::refresh_figures)?,
            Repeated::start(
                "replicas",
                Work(SETTLE_INTERVAL),
                control.clone(),
                Control::retry_record_backups,
            )?,
            Repeated::start("settle", Work(SETTLE_INTERVAL), control.clone(), Control::settle_background)?,
            Repeated::start("space", Work(SPACE_INTERVAL), control.clone(), Control::set_space_aside)?,
            Repeated::start("scrub", Work(SETTLE_INTERVAL), control.clone(), Control::settle_scrubs)?,
            Repeated::start(
                "classify",
                Work(SETTLE_INTERVAL),
                control.clone(),
                Control::settle_measurements,
            )?,
            Repeated::start("move", Work(MOVE_INTERVAL), control.clone(), Control::settle_moves)?,
            Repeated::start("return", Work(RETURN_INTERVAL), control.clone(), Control::look_for_returns)?,
            Repeated::start("credits", Look(CREDITS_INTERVAL), control.clone(), Control::save_credits)?,
        ];
        if let Some(interval) = notify::watchdog_interval() {
            repeated.push(Repeated::start("watchdog", Work(interval), control.clone(), notify::is_alive)?);
        }
        let keeper = control.clone();
        let api = move || {
            serve_until_stopped(&control, &listeners, &facts, &api_stopped);
            listeners
        };
        let api = std::thread::Builder::new().name("weir-api".to_owned()).spawn(api)?;
        Ok(Supervised { control: keeper, stop_api, repeated, api })
    }

    /// Lets running requests end, then the threads.
    pub fn stop(self) {
        // A thread that has ended already needs no word.
        let _ = self.stop_api.send(true);
        self.repeated.into_iter().for_each(Repeated::stop);
        self.control.stop_measurements();
        self.control.save_credits();
        match self.api.join() {
            Ok(listeners) => listeners.remove(),
            Err(_) => tracing::error!("the API's thread ended in a panic"),
        }
    }
}

fn serve_until_stopped(
    control: &Arc<Control>,
    listeners: &ApiListeners,
    facts: &Facts,
    stop: &watch::Receiver<bool>,
) {
    loop {
        let serve = || serve_api(control.clone(), listeners, facts.clone(), stop.clone());
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
    facts: Facts,
    stop: watch::Receiver<bool>,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let served = runtime.block_on(listeners.serve(api::router(control, facts), stop));
    runtime.shutdown_timeout(RETRY_INTERVAL);
    served
}

/// What it took to do something once.
struct Took {
    time: Duration,
    processor_time: Duration,
}

impl Rhythm {
    /// How long to rest.
    fn pause(self, took: Took) -> Duration {
        let rest = took.time * PAUSE_FACTOR;
        match self {
            Work(interval) => interval.max(rest),
            Look(interval) => interval.max(rest).max(took.processor_time * LOOK_PAUSE_FACTOR),
        }
    }
}

impl Repeated {
    /// Starts a thread that works at once and then in its rhythm.
    fn start(name: &str, rhythm: Rhythm, control: Arc<Control>, work: fn(&Control)) -> io::Result<Repeated> {
        let (stop, stopped) = channel();
        let what = name.to_owned();
        let repeat = move || repeat_until_stopped(&what, rhythm, &stopped, &control, work);
        let thread = std::thread::Builder::new().name(format!("weir-{name}")).spawn(repeat)?;
        Ok(Repeated { stop, thread })
    }

    fn stop(self) {
        // A thread that has ended already needs no word.
        let _ = self.stop.send(());
        let _ = self.thread.join();
    }
}

fn repeat_until_stopped(
    name: &str,
    rhythm: Rhythm,
    stop: &Receiver<()>,
    control: &Control,
    work: fn(&Control),
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
    fn looks_that_cost_much_are_rare_and_work_is_not() {
        let (second, millisecond) = (Duration::from_secs(1), Duration::from_millis(1));
        let took = |time, processor_time| Took { time, processor_time };
        assert_eq!(Look(second).pause(took(millisecond, millisecond)), second);
        assert_eq!(Look(second).pause(took(50 * millisecond, 40 * millisecond)), 16 * second);
        assert_eq!(Work(second).pause(took(50 * millisecond, 40 * millisecond)), second);
        assert_eq!(Work(millisecond).pause(took(second, millisecond)), 4 * second, "a slow drive rests too");
    }
}
