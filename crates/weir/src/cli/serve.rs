//! `weir serve`: the daemon's life from its options to its end.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::FlockOperation;
use rustix::process::{Resource, Rlimit};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use weir_types::ClassThresholds;

use super::arguments::ServeArguments;
use super::client::CommandError;
use super::notify;
use super::output;
use super::supervise::Supervised;
use crate::api::{ApiListeners, Facts, ListenError};
use crate::config::{Config, ConfiguredDrive, default_state, sockets_folder};
use crate::control::catalogue::Reserve;
use crate::control::{Control, ControlConfig};
use crate::dataplane::{DataPlane, DataPlaneConfig};
use crate::exports::ListenAddress;
use crate::exports::listener::{self, Listeners};
use crate::exports::table::ExportTable;
use crate::logging;
use crate::store::space::{Obstacle, explain};

/// Name of the API's socket.
const API_SOCKET: &str = "api.sock";
/// Name of the socket for NBD clients.
const NBD_SOCKET: &str = "nbd.sock";

/// Digits of a process's number in the lock file.
const HOLDER_DIGITS: usize = 10;

/// Everything that the daemon was told, by options and configuration file together.
#[derive(Debug)]
struct Settings {
    state: PathBuf,
    /// Where the sockets lie.
    sockets: PathBuf,
    reactors: usize,
    nbd_listen: Vec<ListenAddress>,
    api_listen: Option<SocketAddr>,
    rebuild_catalogue: bool,
    cluster_id: Option<String>,
    zone: Option<String>,
    region: Option<String>,
    drives: Vec<ConfiguredDrive>,
    classes: ClassThresholds,
    journal_bytes: u64,
    measure_default: bool,
    warnings: Vec<String>,
}

/// Runs the daemon until it is told to end.
pub fn serve(arguments: ServeArguments) -> Result<(), CommandError> {
    logging::start(&arguments.log_level, arguments.log_format).map_err(CommandError::Usage)?;
    let settings = Settings::new(arguments)?;
    settings.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
    make_folder(&settings.state, 0o700)?;
    make_folder(&settings.sockets, 0o755)?;
    let lock = lock_state(&settings.state)?;
    allow_many_files();
    // Caught from here on, so that an early SIGTERM also ends the daemon cleanly.
    let mut signals = Signals::new([SIGTERM, SIGINT]).map_err(CommandError::failed)?;
    run(&settings, || {
        let signal = signals.forever().next();
        tracing::info!(?signal, "ending");
    })?;
    drop(lock);
    Ok(())
}

/// Starts all parts, says so, waits, and ends them in the opposite order.
fn run(settings: &Settings, wait: impl FnOnce()) -> Result<(), CommandError> {
    let data_plane = DataPlane::start(DataPlaneConfig { reactors: settings.reactors });
    let data_plane = data_plane.map_err(CommandError::failed)?;
    let exports = Arc::new(ExportTable::default());
    let config = ControlConfig {
        state: settings.state.clone(),
        rebuild_catalogue: settings.rebuild_catalogue,
        drives: settings.drives.clone(),
        classes: settings.classes,
        journal_bytes: settings.journal_bytes,
        measure_default: settings.measure_default,
        zone: settings.zone.clone(),
    };
    let control =
        Control::start(&config, data_plane.clone(), exports.clone()).map_err(CommandError::failed)?;
    let (api, listeners) = listen(settings, &exports, &data_plane)?;
    let facts = settings.facts(&api);
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

/// Binds all sockets. Where there is no space for them, the state folder's reserve gives some.
fn listen(
    settings: &Settings,
    exports: &Arc<ExportTable>,
    data_plane: &Arc<DataPlane>,
) -> Result<(ApiListeners, Listeners), CommandError> {
    let reserve = Reserve::of_state(&settings.state);
    let socket = settings.sockets.join(API_SOCKET);
    let is_full = |error: &ListenError| error.system_error().and_then(Obstacle::of) == Some(Obstacle::Full);
    let api = reserve.help(is_full, || ApiListeners::bind(&socket, settings.api_listen));
    let api = api.map_err(|error| match error.system_error() {
        Some(source) => CommandError::Failed(format!(
            "cannot listen on {}: {}",
            socket.display(),
            explain(&socket, source)
        )),
        None => CommandError::failed(error),
    })?;
    let start = || listener::start(exports.clone(), data_plane.clone(), &settings.nbd_listen);
    let is_full = |error: &std::io::Error| error.kind() == std::io::ErrorKind::StorageFull;
    let listeners = reserve.help(is_full, start).map_err(CommandError::failed)?;
    reserve.refill();
    link_sockets(settings);
    Ok((api, listeners))
}

/// Lets the sockets be found in the state folder too, where they lie elsewhere. The links stay when the daemon ends, so
/// that they are made once.
fn link_sockets(settings: &Settings) {
    if settings.sockets == settings.state {
        return;
    }
    for name in [API_SOCKET, NBD_SOCKET] {
        let (link, socket) = (settings.state.join(name), settings.sockets.join(name));
        if std::fs::read_link(&link).is_ok_and(|target| target == socket) {
            continue;
        }
        // What a daemon left there that listened in the state folder.
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
            // A name that is gone already needs no removal.
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Settings {
    fn new(arguments: ServeArguments) -> Result<Settings, CommandError> {
        let config =
            arguments.config.as_deref().map(Config::read).transpose().map_err(CommandError::failed)?;
        let config = config.unwrap_or_default();
        let warnings = config.warnings();
        let drives = config.drives().map_err(CommandError::failed)?;
        let classes = config.classes.thresholds().map_err(CommandError::Failed)?;
        let journal_bytes = config.journal_bytes().map_err(CommandError::failed)?;
        let state = absolute(arguments.state.or(config.state).unwrap_or_else(default_state))?;
        let sockets = sockets_folder(&state);
        let listen = if arguments.nbd_listen.is_empty() { config.nbd_listen } else { arguments.nbd_listen };
        let mut nbd_listen = listen.iter().map(|text| parse_listen(text)).collect::<Result<Vec<_>, _>>()?;
        if nbd_listen.is_empty() {
            nbd_listen.push(ListenAddress::Unix(sockets.join(NBD_SOCKET)));
        }
        Ok(Settings {
            reactors: reactors(arguments.reactors.or(config.reactors))?,
            nbd_listen,
            api_listen: arguments.api_listen.or(config.api_listen),
            rebuild_catalogue: arguments.rebuild_catalogue,
            cluster_id: named(config.clusterid),
            zone: named(config.zone),
            region: named(config.region),
            drives,
            classes,
            journal_bytes,
            measure_default: !arguments.no_measurement && config.storage.measure_default.unwrap_or(true),
            warnings,
            sockets,
            state,
        })
    }

    fn facts(&self, api: &ApiListeners) -> Facts {
        Facts {
            reactors: self.reactors,
            state_directory: self.state.display().to_string(),
            api_listeners: api.addresses(),
            nbd_listeners: self.nbd_listen.iter().map(ListenAddress::to_string).collect(),
            cluster_id: self.cluster_id.clone(),
            zone: self.zone.clone(),
            region: self.region.clone(),
            warnings: self.warnings.clone(),
        }
    }
}

/// What is set, if it is.
fn named(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}

fn absolute(path: PathBuf) -> Result<PathBuf, CommandError> {
    std::path::absolute(&path)
        .map_err(|error| CommandError::Usage(format!("state folder '{}': {error}", path.display())))
}

fn reactors(wanted: Option<u16>) -> Result<usize, CommandError> {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    match wanted {
        Some(0) => Err(CommandError::Usage("0 reactors are not accepted; 1 or more are".to_owned())),
        wanted => Ok(wanted.map_or_else(cores, usize::from)),
    }
}

/// Reads `unix:PATH` or `tcp:ADDR:PORT`.
fn parse_listen(text: &str) -> Result<ListenAddress, CommandError> {
    let tcp = |rest: &str| rest.parse().ok().map(ListenAddress::Tcp);
    let address = match text.split_once(':') {
        Some(("unix", path)) if !path.is_empty() => Some(ListenAddress::Unix(absolute(path.into())?)),
        Some(("tcp", rest)) => tcp(rest),
        _ => None,
    };
    address.ok_or_else(|| {
        let accepted = "unix:PATH or tcp:ADDR:PORT (such as tcp:127.0.0.1:10809) is accepted";
        CommandError::Usage(format!("'{text}' is not a place to listen; {accepted}"))
    })
}

fn make_folder(folder: &Path, mode: u32) -> Result<(), CommandError> {
    DirBuilder::new().recursive(true).mode(mode).create(folder).map_err(|error| {
        CommandError::Failed(format!(
            "cannot make the folder {}: {}",
            folder.display(),
            explain(folder, &error)
        ))
    })
}

/// Makes this the only daemon of a state folder, for as long as the file lives.
fn lock_state(state: &Path) -> Result<File, CommandError> {
    let path = state.join("lock");
    let failed = |error: std::io::Error| {
        CommandError::Failed(format!("cannot lock {}: {}", path.display(), explain(&path, &error)))
    };
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
    let mut file = file.map_err(failed)?;
    if let Err(error) = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        if error != rustix::io::Errno::WOULDBLOCK {
            return Err(failed(error.into()));
        }
        let mut holder = String::new();
        // Who it is only helps the message.
        let _ = file.read_to_string(&mut holder);
        let (state, holder) = (state.display(), holder.lines().next().unwrap_or_default().trim());
        return Err(CommandError::Failed(format!(
            "another weir daemon (process {holder}) uses the state folder {state}; \
             stop it, or name another folder with --state"
        )));
    }
    // In place, and always as long: it takes no space that the file does not have. Who it is only helps a message.
    let holder = format!("{:<width$}\n", std::process::id(), width = HOLDER_DIGITS);
    let written = file.seek(SeekFrom::Start(0)).and_then(|_| file.write_all(holder.as_bytes()));
    if let Err(error) = written {
        tracing::warn!("{} does not say which process holds it: {}", path.display(), explain(&path, &error));
    }
    Ok(file)
}

/// Lets the daemon have as many open files as the system allows it: every extent in use is one, and the usual
/// limit of 1024, which exists for programs that still use `select`, is less than two of its larger volumes need.
fn allow_many_files() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    if let Err(error) =
        rustix::process::setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })
    {
        tracing::warn!(%error, "the limit of open files could not be raised from {:?}", limit.current);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_to_listen_are_read() {
        for (text, address) in [
            ("unix:/run/n.sock", Some(ListenAddress::Unix("/run/n.sock".into()))),
            ("tcp:127.0.0.1:10809", Some(ListenAddress::Tcp("127.0.0.1:10809".parse().unwrap()))),
            ("tcp:[::1]:1", Some(ListenAddress::Tcp("[::1]:1".parse().unwrap()))),
            ("unix:", None),
            ("/run/n.sock", None),
            ("tcp:here", None),
        ] {
            assert_eq!(parse_listen(text).ok(), address, "{text}");
        }
    }

    #[test]
    fn one_daemon_has_the_state_folder() {
        let state = tempfile::tempdir().unwrap();
        let lock = lock_state(state.path()).unwrap();
        let error = lock_state(state.path()).unwrap_err().to_string();
        assert!(error.contains(&format!("process {}", std::process::id())), "{error}");
        drop(lock);
        assert!(lock_state(state.path()).is_ok());
    }
}
