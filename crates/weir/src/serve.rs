//! `weir serve`: the life of the daemon, from its options to its end.

use std::sync::Arc;

use rustix::fs::Mode;
use rustix::process::{Resource, Rlimit};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::io_method::ChosenIo;
use crate::notify;
use crate::settings::{NBD_SOCKET, Settings};
use crate::state_folder;
use crate::state_lock;
use crate::supervise::Supervised;
use weir_api::{ApiListeners, Facts, ListenError};
use weir_api_types::IoMethod;
use weir_cli::CommandError;
use weir_cli::ServeArguments;
use weir_cli::output;
use weir_control::catalogue::Reserve;
use weir_control::{Control, ControlConfig};
use weir_engine::exports::ListenAddress;
use weir_engine::exports::listener::{self, Listeners};
use weir_engine::{DataPlane, DataPlaneConfig};
use weir_engine_interface::ExportTable;
use weir_host::folders::devices_folder;
use weir_host::logging;
use weir_store::space::{Obstacle, explain};

/// File name of the API's socket.
const API_SOCKET: &str = "api.sock";

/// Runs the daemon until a signal ends it, or only checks its options and configuration file.
pub fn serve(arguments: ServeArguments) -> Result<(), CommandError> {
    if arguments.check {
        return check(&arguments);
    }
    logging::start(&arguments.log_level, arguments.log_format).map_err(CommandError::Usage)?;
    let settings = Settings::new(&arguments)?;
    settings.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
    // Files that the daemon creates are accessible to its own user only, unless a mode is stated.
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
    state_folder::make(&settings.state, settings.has_group())?;
    if settings.sockets != settings.state {
        state_folder::make(&settings.sockets, true)?;
    }
    let lock = state_lock::take(&settings.state)?;
    allow_many_files();
    // Signals are caught from here on, so an early SIGTERM also ends the daemon cleanly.
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(CommandError::failed)?;
    run(&settings, || {
        let mut is_end = |signal: &i32| match *signal {
            SIGHUP => {
                settings.reload(&arguments);
                false
            }
            _ => true,
        };
        let signal = signals.forever().find(&mut is_end);
        tracing::info!(?signal, "ending");
    })?;
    drop(lock);
    Ok(())
}

/// Reports the faults in options and configuration file, one on each line.
fn check(arguments: &ServeArguments) -> Result<(), CommandError> {
    let settings = Settings::examine(arguments).and_then(|settings| {
        let faults = settings.faults_here();
        if faults.is_empty() { Ok(settings) } else { Err(faults) }
    });
    let settings = match settings {
        Ok(settings) => settings,
        Err(mut faults) if faults.len() == 1 => return Err(faults.remove(0)),
        Err(faults) => {
            let is_usage = faults.iter().all(|fault| matches!(fault, CommandError::Usage(_)));
            let lines: Vec<String> = faults.iter().map(|fault| format!("\n  {fault}")).collect();
            let message = format!("{} faults:{}", lines.len(), lines.concat());
            return Err(if is_usage { CommandError::Usage(message) } else { CommandError::Failed(message) });
        }
    };
    settings.warnings.iter().for_each(|warning| eprintln!("weir: {warning}"));
    output::print(&format!("the configuration is good; the state folder is {}", settings.state.display()))
}

/// Starts all parts, reports readiness, waits, and stops the parts in the opposite order.
fn run(settings: &Settings, wait: impl FnOnce()) -> Result<(), CommandError> {
    let io = ChosenIo::new(settings.io_method);
    let data_plane =
        DataPlane::start(DataPlaneConfig { reactors: settings.reactors, io_method: io.of_engine() });
    let data_plane = data_plane.map_err(CommandError::failed)?;
    let exports = Arc::new(ExportTable::default());
    let config = ControlConfig {
        state: settings.state.clone(),
        rebuild_catalogue: settings.rebuild_catalogue,
        drives: settings.drives.clone(),
        classes: settings.classes,
        journal_bytes: settings.journal_bytes,
        measure_default: settings.measure_default,
        pool_full_percent: settings.pool_full_percent,
        zone: settings.zone.clone(),
        device_folder: devices_folder(&settings.state),
        has_io_uring: io.method == IoMethod::IoUring,
        program: std::env::current_exe().map_err(CommandError::failed)?,
    };
    let control =
        Control::start(&config, data_plane.clone(), exports.clone()).map_err(CommandError::failed)?;
    let (api, listeners) = listen(settings, &exports, &data_plane)?;
    let facts = settings.facts(io, &api, &listeners);
    let ready = ready_line(&facts);
    let supervised = Supervised::start(control, api, facts).map_err(CommandError::failed)?;
    output::print(&ready)?;
    notify::ready();
    wait();
    notify::stopping();
    listeners.stop();
    supervised.stop();
    data_plane.shutdown();
    remove_sockets(&settings.nbd_listen);
    Ok(())
}

/// Binds all sockets. If the filesystem is full, the reserve in the state folder gives space back.
fn listen(
    settings: &Settings,
    exports: &Arc<ExportTable>,
    data_plane: &Arc<DataPlane>,
) -> Result<(ApiListeners, Listeners), CommandError> {
    let reserve = Reserve::of_state(&settings.state);
    let socket = settings.sockets.join(API_SOCKET);
    let is_full = |error: &ListenError| error.system_error().and_then(Obstacle::of) == Some(Obstacle::Full);
    let tcp = || settings.api_listen.zip(settings.token.clone());
    let api = reserve.help(is_full, || ApiListeners::bind(&socket, settings.admin_group, tcp()));
    let api = api.map_err(|error| match error.system_error() {
        Some(source) => CommandError::Failed(format!(
            "cannot listen on {}: {}",
            socket.display(),
            explain(&socket, source)
        )),
        None => CommandError::failed(error),
    })?;
    let start =
        || listener::start(exports.clone(), data_plane.clone(), &settings.nbd_listen, settings.nbd_access);
    let is_full = |error: &std::io::Error| error.kind() == std::io::ErrorKind::StorageFull;
    let listeners = reserve.help(is_full, start).map_err(CommandError::failed)?;
    reserve.refill();
    link_sockets(settings);
    Ok((api, listeners))
}

/// Links the sockets into the state folder if they lie elsewhere. The links stay when the daemon ends, so
/// they are created once.
fn link_sockets(settings: &Settings) {
    if settings.sockets == settings.state {
        return;
    }
    for name in [API_SOCKET, NBD_SOCKET] {
        let (link, socket) = (settings.state.join(name), settings.sockets.join(name));
        if std::fs::read_link(&link).is_ok_and(|target| target == socket) {
            continue;
        }
        // A daemon that listened in the state folder may have left a socket there.
        let _ = std::fs::remove_file(&link);
        if let Err(error) = std::os::unix::fs::symlink(&socket, &link) {
            tracing::warn!(%error, "{} does not lead to {}", link.display(), socket.display());
        }
    }
}

fn ready_line(facts: &Facts) -> String {
    let api = facts.api_listeners.iter().map(|address| format!("api {address}"));
    let nbd = facts.nbd_listeners.iter().map(|address| format!("nbd {address}"));
    format!("weir is ready: {}", api.chain(nbd).collect::<Vec<_>>().join(", "))
}

fn remove_sockets(listen: &[ListenAddress]) {
    for address in listen {
        if let ListenAddress::Unix(path) = address {
            // A name that is already gone needs no removal.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Raises the limit of open files to the maximum that the system allows. Every extent in use is an open file.
/// The usual limit of 1024 exists for programs that still use `select`; two large volumes need more.
fn allow_many_files() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    if let Err(error) =
        rustix::process::setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })
    {
        tracing::warn!(%error, "the limit of open files could not be raised from {:?}", limit.current);
    }
}
