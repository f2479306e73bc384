//! Settings of the daemon, from options and configuration file together.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::unistd::Group;
use weir_types::ClassThresholds;

use crate::configuration::Config;
use crate::io_method::ChosenIo;
use crate::state_folder;
use weir_api::{ApiListeners, Facts};
use weir_api_types::IoMethod;
use weir_cli::CommandError;
use weir_cli::ServeArguments;
use weir_control::ConfiguredDrive;
use weir_engine::exports::ListenAddress;
use weir_engine::exports::listener::Listeners;
use weir_host::folders::{default_state, sockets_folder};
use weir_host::socket::SocketAccess;
use weir_host::token::{Token, read_token};
use weir_types::control_bounds::{POOL_FULL_PERCENT, POOL_FULL_PERCENT_DEFAULT, REACTORS};

/// File name of the socket for NBD clients.
pub(crate) const NBD_SOCKET: &str = "nbd.sock";
/// Default mode of NBD sockets: the daemon's user and the socket's group may connect.
const NBD_SOCKET_MODE: u32 = 0o660;
/// Bits that a socket's mode may have.
const MODE_BITS: u32 = 0o777;

/// Settings of the daemon.
pub(crate) struct Settings {
    pub state: PathBuf,
    /// Folder of the sockets.
    pub sockets: PathBuf,
    pub reactors: usize,
    /// How the data plane carries out operations; the best way if it is not given.
    pub io_method: Option<IoMethod>,
    pub nbd_listen: Vec<ListenAddress>,
    pub nbd_access: SocketAccess,
    pub admin_group: Option<u32>,
    pub api_listen: Option<SocketAddr>,
    /// Token that requests over TCP must show; it can be replaced while the daemon runs.
    pub token: Option<Arc<Token>>,
    pub rebuild_catalogue: bool,
    pub cluster_id: Option<String>,
    pub zone: Option<String>,
    pub region: Option<String>,
    pub drives: Vec<ConfiguredDrive>,
    pub classes: ClassThresholds,
    pub journal_bytes: u64,
    pub measure_default: bool,
    pub pool_full_percent: u8,
    pub warnings: Vec<String>,
    pub metrics_of_idle_volumes: bool,
}

/// Faults found so far. A faulty value is replaced by a harmless one, so that later faults are found too.
#[derive(Default)]
struct Faults(Vec<CommandError>);

impl Faults {
    fn note<T: Default>(&mut self, result: Result<T, CommandError>) -> T {
        result.unwrap_or_else(|fault| {
            self.0.push(fault);
            T::default()
        })
    }
}

impl Settings {
    /// Reads options and configuration file.
    ///
    /// # Errors
    /// The first fault.
    pub fn new(arguments: &ServeArguments) -> Result<Settings, CommandError> {
        Settings::examine(arguments).map_err(|mut faults| faults.remove(0))
    }

    /// Reads options and configuration file.
    ///
    /// # Errors
    /// All faults, at least one.
    pub fn examine(arguments: &ServeArguments) -> Result<Settings, Vec<CommandError>> {
        let mut faults = Faults::default();
        let config = arguments.config.as_deref().map(Config::read).transpose();
        let config = faults.note(config.map_err(CommandError::failed)).unwrap_or_default();
        let state = arguments.state.clone().or(config.state.clone()).or_else(default_state);
        let state = faults.note(state.ok_or_else(no_state).and_then(absolute));
        let sockets = sockets_folder(&state);
        let nbd_listen = faults.note(nbd_listen(arguments, &config, &sockets));
        let api_listen = arguments.api_listen.or(config.api_listen);
        let settings = Settings {
            reactors: faults.note(reactors(arguments.reactors.or(config.reactors))),
            io_method: arguments.io_method.or(config.io_method),
            nbd_access: SocketAccess {
                mode: faults.note(nbd_mode(arguments, &config)),
                group: faults.note(group("socket_group", &arguments.socket_group, &config.socket_group)),
            },
            admin_group: faults.note(group("admin_group", &arguments.admin_group, &config.admin_group)),
            token: faults.note(token(arguments, &config, api_listen)),
            api_listen: faults.note(on_loopback(api_listen)),
            rebuild_catalogue: arguments.rebuild_catalogue,
            drives: faults.note(config.drives().map_err(CommandError::failed)),
            classes: faults.note(config.classes.thresholds().map_err(CommandError::Failed)),
            journal_bytes: faults.note(config.journal_bytes().map_err(CommandError::failed)),
            measure_default: !arguments.no_measurement && config.storage.measure_default.unwrap_or(true),
            pool_full_percent: faults
                .note(pool_full_percent(arguments.pool_full_percent.or(config.storage.pool_full_percent))),
            warnings: config.warnings(),
            metrics_of_idle_volumes: config.metrics_of_idle_volumes.unwrap_or(true),
            cluster_id: named(config.clusterid),
            zone: named(config.zone),
            region: named(config.region),
            nbd_listen,
            sockets,
            state,
        };
        if faults.0.is_empty() { Ok(settings) } else { Err(faults.0) }
    }

    /// Faults of this machine for these settings, as far as a check without a start can find them.
    pub fn faults_here(&self) -> Vec<CommandError> {
        let mut faults = Faults::default();
        if self.state.exists() {
            faults.note(state_folder::examine(&self.state));
        }
        for path in self.drives.iter().map(|drive| &drive.path).filter(|path| !path.exists()) {
            let fault =
                format!("storage.devices names {}, which does not exist; make it first", path.display());
            faults.note::<()>(Err(CommandError::Failed(fault)));
        }
        for address in &self.nbd_listen {
            if let ListenAddress::Unix(path) = address
                && path.parent().is_some_and(|parent| parent != self.sockets && !parent.is_dir())
            {
                let fault = format!("nbd_listen names {address}, whose folder does not exist; make it first");
                faults.note::<()>(Err(CommandError::Failed(fault)));
            }
        }
        faults.0
    }

    /// True if a group other than the daemon's own may use a socket.
    pub fn has_group(&self) -> bool {
        self.admin_group.is_some() || self.nbd_access.group.is_some()
    }

    /// Reads options and configuration file again, and applies the token, which can change while the daemon
    /// runs. Other changes are logged and apply from the next start on.
    pub fn reload(&self, arguments: &ServeArguments) {
        let new = match Settings::examine(arguments) {
            Ok(new) => new,
            Err(faults) => {
                for fault in faults {
                    tracing::error!("the configuration was not read again: {fault}");
                }
                return;
            }
        };
        if let (Some(token), Some(new)) = (&self.token, &new.token) {
            token.replace(new.duplicate());
        }
        let later = self.differences(&new);
        if later.is_empty() {
            tracing::info!("the configuration was read again; it holds as a whole");
        } else {
            let keys = later.join(", ");
            tracing::warn!("the configuration was read again; changes of {keys} hold from the next start on");
        }
    }

    /// Keys whose values differ in another configuration.
    fn differences(&self, new: &Settings) -> Vec<&'static str> {
        let keys = [
            ("state", self.state != new.state),
            ("reactors", self.reactors != new.reactors),
            ("io_method", self.io_method != new.io_method),
            ("nbd_listen", self.nbd_listen != new.nbd_listen),
            ("nbd_socket_mode", self.nbd_access.mode != new.nbd_access.mode),
            ("socket_group", self.nbd_access.group != new.nbd_access.group),
            ("admin_group", self.admin_group != new.admin_group),
            ("api_listen", self.api_listen != new.api_listen),
            ("clusterid", self.cluster_id != new.cluster_id),
            ("zone", self.zone != new.zone),
            ("region", self.region != new.region),
            ("storage.devices", self.drives != new.drives),
            ("classes", self.classes != new.classes),
            ("metrics_of_idle_volumes", self.metrics_of_idle_volumes != new.metrics_of_idle_volumes),
            ("storage.measure_default", self.measure_default != new.measure_default),
            ("storage.pool_full_percent", self.pool_full_percent != new.pool_full_percent),
            ("storage.journal_size", self.journal_bytes != new.journal_bytes),
        ];
        keys.into_iter().filter(|(_, is_different)| *is_different).map(|(key, _)| key).collect()
    }

    /// Facts about the settings that the API shows.
    pub fn facts(&self, io: ChosenIo, api: &ApiListeners, nbd: &Listeners) -> Facts {
        Facts {
            reactors: self.reactors,
            io_method: io.method,
            io_method_reason: io.reason,
            state_directory: self.state.display().to_string(),
            api_listeners: api.addresses(),
            nbd_listeners: nbd.addresses().iter().map(ListenAddress::to_string).collect(),
            cluster_id: self.cluster_id.clone(),
            zone: self.zone.clone(),
            region: self.region.clone(),
            warnings: self.warnings.clone(),
            metrics_of_idle_volumes: self.metrics_of_idle_volumes,
        }
    }
}

fn no_state() -> CommandError {
    let message = "no state folder is known, because neither XDG_STATE_HOME nor HOME is set; \
                   name one with --state DIR";
    CommandError::Usage(message.to_owned())
}

/// The text, or `None` if it is empty.
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
        Some(count) if !REACTORS.contains(&i64::from(count)) => {
            let (from, to) = (REACTORS.start(), REACTORS.end());
            Err(CommandError::Usage(format!("{count} reactors are not accepted; {from} to {to} are")))
        }
        wanted => Ok(wanted.map_or_else(cores, usize::from)),
    }
}

/// Fill level from which a pool raises an alarm, in percent.
fn pool_full_percent(wanted: Option<u8>) -> Result<u8, CommandError> {
    let (from, to) = (POOL_FULL_PERCENT.start(), POOL_FULL_PERCENT.end());
    match wanted.unwrap_or(POOL_FULL_PERCENT_DEFAULT) {
        percent if POOL_FULL_PERCENT.contains(&percent) => Ok(percent),
        percent => {
            let message = format!("pool_full_percent {percent} is not accepted; {from} to {to} is");
            Err(CommandError::Usage(message))
        }
    }
}

/// Addresses for NBD clients: the socket in the state folder, and the requested ones.
fn nbd_listen(
    arguments: &ServeArguments,
    config: &Config,
    sockets: &Path,
) -> Result<Vec<ListenAddress>, CommandError> {
    let more = if arguments.nbd_listen.is_empty() { &config.nbd_listen } else { &arguments.nbd_listen };
    let mut addresses = vec![ListenAddress::Unix(sockets.join(NBD_SOCKET))];
    for text in more {
        let address = parse_listen(text)?;
        if let ListenAddress::Tcp(address) = address
            && !address.ip().is_loopback()
            && !(arguments.insecure_nbd || config.insecure_nbd)
        {
            return Err(CommandError::Failed(format!(
                "nbd_listen {text} is not loopback: whoever reaches it could read and write every volume, because it \
                 neither asks who that is nor encrypts; listen on 127.0.0.1, or accept that with --insecure-nbd"
            )));
        }
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    Ok(addresses)
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

/// Mode of NBD sockets.
fn nbd_mode(arguments: &ServeArguments, config: &Config) -> Result<u32, CommandError> {
    let text = arguments.nbd_socket_mode.as_ref().or(config.nbd_socket_mode.as_ref());
    let Some(text) = text else { return Ok(NBD_SOCKET_MODE) };
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| mode & !MODE_BITS == 0);
    mode.ok_or_else(|| {
        let accepted = "0000 to 0777 in octal digits is accepted";
        CommandError::Usage(format!("nbd_socket_mode '{text}' is not a mode; {accepted}"))
    })
}

/// Number of the group that an option or a key names.
fn group(key: &str, option: &Option<String>, value: &Option<String>) -> Result<Option<u32>, CommandError> {
    let Some(text) = option.as_ref().or(value.as_ref()) else { return Ok(None) };
    if let Ok(number) = text.parse() {
        return Ok(Some(number));
    }
    match Group::from_name(text) {
        Ok(Some(group)) => Ok(Some(group.gid.as_raw())),
        Ok(None) => Err(CommandError::Failed(format!(
            "{key} '{text}' is no group of this machine; 'groupadd --system {text}' makes it, and a number is accepted"
        ))),
        Err(error) => Err(CommandError::Failed(format!("{key} '{text}' cannot be looked up: {error}"))),
    }
}

/// Token of the API over TCP; required if the API is served over TCP.
fn token(
    arguments: &ServeArguments,
    config: &Config,
    api_listen: Option<SocketAddr>,
) -> Result<Option<Arc<Token>>, CommandError> {
    let file = arguments.api_token_file.as_ref().or(config.api_token_file.as_ref());
    match (file, api_listen) {
        (Some(file), _) => {
            let token = read_token(file).map_err(CommandError::failed)?;
            Ok(Some(Arc::new(Token::new(token))))
        }
        (None, None) => Ok(None),
        (None, Some(address)) => Err(CommandError::Failed(format!(
            "api_listen {address} needs a token, because every program of this machine reaches it; \
             name a file that holds one with --api-token-file FILE ('openssl rand -hex 32' writes one)"
        ))),
    }
}

fn on_loopback(address: Option<SocketAddr>) -> Result<Option<SocketAddr>, CommandError> {
    match address.filter(|address| !address.ip().is_loopback()) {
        None => Ok(address),
        Some(beyond) => Err(CommandError::failed(weir_api::ListenError::NotLoopback(beyond))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pool_full_percent_outside_the_range_is_refused() {
        assert_eq!(pool_full_percent(None).unwrap(), 95);
        for percent in [50, 80, 100] {
            assert_eq!(pool_full_percent(Some(percent)).unwrap(), percent);
        }
        for percent in [0, 49, 101, 255] {
            let fault = pool_full_percent(Some(percent)).unwrap_err().to_string();
            assert!(fault.contains("50 to 100"), "{fault}");
        }
    }

    #[test]
    fn listen_addresses_are_parsed() {
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
    fn group_is_a_name_or_a_number() {
        let group = |text: &str| group("socket_group", &Some(text.to_owned()), &None);
        assert_eq!(group("root").unwrap(), Some(0));
        assert_eq!(group("107").unwrap(), Some(107));
        let error = group("no-such-group").unwrap_err().to_string();
        assert!(error.contains("socket_group 'no-such-group'") && error.contains("groupadd"), "{error}");
    }
}
