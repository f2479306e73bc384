//! The configuration file: the shape of Portworx's `config.json` with Weir's own keys, as JSON or TOML.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use weir_journal::Geometry;
use weir_types::emulation::parse_time;
use weir_types::{ClassThreshold, ClassThresholds, Emulation, Size};

/// What a configuration file says. A key that is not here is an error.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Where alerts should be sent; no effect yet.
    pub alertingurl: String,
    /// The cluster's name.
    pub clusterid: String,
    /// The network interface for data; no effect yet.
    pub dataiface: String,
    /// The key-value store for a cluster's metadata; no effect yet: they are in the embedded catalogue.
    pub kvdb: Vec<String>,
    /// The network interface for management; no effect yet.
    pub mgtiface: String,
    /// The drives.
    pub storage: StorageConfig,
    /// The zone that the node is in, for those who read.
    pub zone: String,
    /// The region that the node is in, for those who read.
    pub region: String,
    /// Where classes of drives begin.
    pub classes: ClassesConfig,
    /// Data-plane threads.
    pub reactors: Option<u16>,
    /// Where NBD clients attach beside the socket in the state folder: `unix:PATH` or `tcp:ADDR:PORT`.
    pub nbd_listen: Vec<String>,
    /// NBD clients may attach over TCP from other machines.
    pub insecure_nbd: bool,
    /// Mode of NBD sockets, in octal digits.
    pub nbd_socket_mode: Option<String>,
    /// Group of NBD sockets.
    pub socket_group: Option<String>,
    /// Group whose members may administer through the API's socket.
    pub admin_group: Option<String>,
    /// The loopback address on which the API is served besides its Unix socket.
    pub api_listen: Option<SocketAddr>,
    /// File with the token of the API over TCP.
    pub api_token_file: Option<PathBuf>,
    /// Whether volumes to which no client is attached have series in the metrics; they do if absent.
    pub metrics_of_idle_volumes: Option<bool>,
    /// The state folder.
    pub state: Option<PathBuf>,
}

/// Size of a write journal unless another is configured, in bytes: a burst of half of it costs nobody anything, and a
/// disk takes it in seconds.
const JOURNAL_BYTES: u64 = 512 << 20;

/// The drives of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StorageConfig {
    /// The directories that are drives. Those that are none yet become so at the start; the one in the state folder is
    /// not made then.
    pub devices: Vec<PathBuf>,
    /// How some of them should behave, by their path, if they are to be emulated.
    pub emulate: BTreeMap<PathBuf, String>,
    /// Size of write journals that are made from now on, such as `1GiB`; 512 MiB if absent.
    pub journal_size: Option<String>,
    /// Whether the drive in the state folder is measured when it is new; it is if this is absent.
    pub measure_default: Option<bool>,
    /// From how full on a pool is an alarm, in percent; 95 if absent.
    pub pool_full_percent: Option<u8>,
}

/// A drive that the configuration names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfiguredDrive {
    /// Its directory.
    pub path: PathBuf,
    /// How it should behave, if it is to be emulated.
    pub emulation: Option<Emulation>,
}

/// Where classes of drives begin; what does not reach `medium` is `low`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClassesConfig {
    /// From here on a drive is `high`.
    pub high: ClassConfig,
    /// From here on a drive is `medium`.
    pub medium: ClassConfig,
}

/// Where a class begins; what is absent is as it is published.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClassConfig {
    /// Least random reads, and writes, of 4 KiB per second, 32 at a time.
    pub iops: Option<u64>,
    /// Longest median latency of one at a time, such as `2ms`.
    pub latency: Option<String>,
}

impl ClassConfig {
    fn threshold(&self, published: ClassThreshold) -> Result<ClassThreshold, String> {
        let latency = self.latency.as_deref().map(parse_time).transpose();
        Ok(ClassThreshold {
            iops: self.iops.unwrap_or(published.iops),
            latency_ns: latency.map_err(|error| error.to_string())?.unwrap_or(published.latency_ns),
        })
    }
}

impl ClassesConfig {
    /// The thresholds.
    ///
    /// # Errors
    /// If a value is not accepted, or a lower class asks for as much as a higher one.
    pub fn thresholds(&self) -> Result<ClassThresholds, String> {
        let published = ClassThresholds::default();
        let named = |class: &str, error: String| format!("{class}.latency: {error}");
        let high = self.high.threshold(published.high).map_err(|error| named("high", error))?;
        let medium = self.medium.threshold(published.medium).map_err(|error| named("medium", error))?;
        ClassThresholds { high, medium }.checked().map_err(|error| error.to_string())
    }
}

/// Why a configuration file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It cannot be read.
    #[error("cannot read the configuration file {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// It is not understood; the message names the key and its line.
    #[error("the configuration file {} is not accepted: {message}", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        message: String,
    },
    /// Where classes begin makes no sense.
    #[error("the configuration file's 'classes' is not accepted: {0}")]
    Classes(String),
    /// A value is not accepted.
    #[error("the configuration file's '{key}' is not accepted: {message}")]
    Value {
        /// The key.
        key: String,
        /// What is wrong, and what would be accepted.
        message: String,
    },
}

impl Config {
    /// Reads a configuration file: TOML if its name ends so, else JSON if it begins like that, else TOML.
    ///
    /// # Errors
    /// If it cannot be read or understood.
    pub fn read(path: &Path) -> Result<Config, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        let is_toml = path.extension().is_some_and(|extension| extension == "toml");
        let config = if !is_toml && text.trim_start().starts_with('{') {
            serde_json::from_str(&text).map_err(|error| error.to_string())
        } else {
            toml::from_str(&text).map_err(|error| toml_message(&error, &text))
        };
        let config: Config =
            config.map_err(|message| ConfigError::Parse { path: path.to_owned(), message })?;
        config.classes.thresholds().map_err(ConfigError::Classes)?;
        Ok(config)
    }

    /// Size of write journals that are made, in bytes.
    ///
    /// # Errors
    /// If no journal can have that size.
    pub fn journal_bytes(&self) -> Result<u64, ConfigError> {
        let Some(text) = &self.storage.journal_size else { return Ok(JOURNAL_BYTES) };
        let error = |message| ConfigError::Value { key: "storage.journal_size".to_owned(), message };
        let Size(bytes) = Size::parse(text, 1 << 30).map_err(|wrong| error(wrong.to_string()))?;
        Geometry::of_file(bytes).map_err(|wrong| error(wrong.to_string()))?;
        Ok(bytes)
    }

    /// The drives that it names.
    ///
    /// # Errors
    /// If a drive is to behave in a way that is not accepted, or one that is not named is.
    pub fn drives(&self) -> Result<Vec<ConfiguredDrive>, ConfigError> {
        let error = |path: &Path, message: String| ConfigError::Value {
            key: format!("storage.emulate.{}", path.display()),
            message,
        };
        if let Some(path) = self.storage.emulate.keys().find(|path| !self.storage.devices.contains(path)) {
            return Err(error(path, "it is none of storage.devices".to_owned()));
        }
        let drive = |path: &PathBuf| {
            let emulation = self.storage.emulate.get(path).map(|text| Emulation::parse(text)).transpose();
            let emulation = emulation.map_err(|wrong| error(path, wrong.to_string()))?;
            Ok(ConfiguredDrive { path: path.clone(), emulation })
        };
        self.storage.devices.iter().map(drive).collect()
    }

    /// What the file says that is accepted but has no effect yet.
    pub fn warnings(&self) -> Vec<String> {
        let keys = [
            ("alertingurl", &self.alertingurl),
            ("dataiface", &self.dataiface),
            ("mgtiface", &self.mgtiface),
        ];
        let set = keys.into_iter().filter(|(_, value)| !value.is_empty());
        let unused = set.map(|(key, value)| format!("the configuration's {key} '{value}' has no effect yet"));
        let metadata = (!self.kvdb.is_empty()).then(|| {
            let kvdb = self.kvdb.join(", ");
            format!(
                "the configuration's kvdb '{kvdb}' has no effect yet: metadata are in the embedded catalogue"
            )
        });
        unused.chain(metadata).collect()
    }
}

/// An error of the TOML reader in one line, with the line that it concerns.
fn toml_message(error: &toml::de::Error, text: &str) -> String {
    let message = error.message().replace('\n', " ");
    let line =
        error.span().and_then(|span| text.get(..span.start)).map(|before| before.matches('\n').count() + 1);
    line.map_or(message.clone(), |line| format!("{message} at line {line}"))
}

/// The state folder if none is named: that of the system for root, else the user's own, if that is known.
pub fn default_state() -> Option<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Some(PathBuf::from("/var/lib/weir"));
    }
    let folder = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = folder("XDG_STATE_HOME").or_else(|| folder("HOME").map(|home| home.join(".local/state")));
    state.map(|state| state.join("weir"))
}

/// The folder of the sockets of the daemon of a state folder. Those of the default state folder lie in memory, where the
/// system has a folder for that: listening needs no space on a disk then. Those of any other lie in it.
pub fn sockets_folder(state: &Path) -> PathBuf {
    let runtime = match rustix::process::geteuid().is_root() {
        true => Some(PathBuf::from("/run")),
        false => std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute()),
    };
    let runtime = runtime.filter(|folder| Some(state) == default_state().as_deref() && folder.is_dir());
    runtime.map_or_else(|| state.to_owned(), |folder| folder.join("weir"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str, text: &str) -> Result<Config, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        Config::read(&path).map_err(|error| error.to_string())
    }

    #[test]
    fn the_portworx_shape_is_read_as_json_and_toml() {
        let json = r#"{
            "alertingurl": "", "clusterid": "cos-demo-cluster", "dataiface": "", "kvdb": [],
            "mgtiface": "eth0", "storage": { "devices": [] }, "reactors": 2,
            "nbd_listen": ["tcp:127.0.0.1:10809"], "api_listen": "127.0.0.1:9001", "state": "/tmp/w"
        }"#;
        let toml = "clusterid = 'cos-demo-cluster'\nmgtiface = 'eth0'\nkvdb = []\nreactors = 2\n\
            nbd_listen = ['tcp:127.0.0.1:10809']\napi_listen = '127.0.0.1:9001'\nstate = '/tmp/w'\n\
            [storage]\ndevices = []\n";
        let from_json = read("config.json", json).unwrap();
        assert_eq!(from_json, read("config.toml", toml).unwrap());
        assert_eq!(from_json, read("config", json).unwrap());
        assert_eq!(from_json.clusterid, "cos-demo-cluster");
        assert_eq!(from_json.warnings(), ["the configuration's mgtiface 'eth0' has no effect yet"]);
    }

    #[test]
    fn a_wrong_key_is_named_with_its_line() {
        let wrong = [
            ("a.json", "{\n  \"clusterid\": \"a\",\n  \"clusterrid\": \"b\"\n}", "clusterrid", "line 3"),
            ("a.json", "{\n\"storage\": {\n\"device\": []\n}}", "device", "line 3"),
            ("a.toml", "clusterid = 'a'\nreactor = 2\n", "reactor", "line 2"),
            ("a.toml", "\n[storage]\ndevices = []\nsize = 1\n", "size", "line 4"),
            ("a.json", "{\n\"reactors\": \"two\"\n}", "two", "line 2"),
        ];
        for (name, text, key, line) in wrong {
            let error = read(name, text).unwrap_err();
            assert!(error.contains(key) && error.contains(line), "{error}");
        }
    }

    #[test]
    fn the_file_that_portworx_documents_is_accepted() {
        let config = read(
            "config.json",
            r#"{
                "alertingurl": "", "clusterid": "cos-demo-cluster", "dataiface": "",
                "kvdb": ["etcd://localhost:4001"], "mgtiface": "",
                "storage": { "devices": ["/dev/xvdl", "/dev/xvdn", "/dev/xvdj"] }
            }"#,
        )
        .unwrap();
        let drives = config.drives().unwrap();
        let paths: Vec<_> = drives.iter().map(|drive| drive.path.to_str().unwrap()).collect();
        assert_eq!(paths, ["/dev/xvdl", "/dev/xvdn", "/dev/xvdj"]);
        assert!(drives.iter().all(|drive| drive.emulation.is_none()));
        assert!(config.warnings()[0].contains("kvdb 'etcd://localhost:4001' has no effect yet"));
    }

    #[test]
    fn drives_can_be_emulated_and_what_is_wrong_is_named() {
        let emulate = |path: &str, what: &str| {
            let text =
                format!(r#"{{"storage": {{"devices": ["/a", "/b"], "emulate": {{"{path}": "{what}"}}}}}}"#);
            read("a.json", &text).unwrap().drives().map_err(|error| error.to_string())
        };
        let drives = emulate("/b", "iops=100,latency=1ms").unwrap();
        assert_eq!((drives[0].emulation, drives[1].emulation.map(|e| e.iops)), (None, Some(100)));
        assert!(emulate("/c", "iops=100").unwrap_err().contains("'storage.emulate./c'"));
        assert!(emulate("/a", "iops=0").unwrap_err().contains("'iops=0' is not from 1"));
    }

    #[test]
    fn classes_are_read_as_json_and_toml_and_what_is_absent_is_as_published() {
        let json = r#"{"classes": {"high": {"iops": 9000, "latency": "1.5ms"}, "medium": {"iops": 700}}}"#;
        let toml = "[classes.high]\niops = 9000\nlatency = '1.5ms'\n[classes.medium]\niops = 700\n";
        let config = read("a.json", json).unwrap();
        assert_eq!(config, read("a.toml", toml).unwrap());
        let high = ClassThreshold { iops: 9000, latency_ns: 1_500_000 };
        let medium = ClassThreshold { iops: 700, latency_ns: 10_000_000 };
        assert_eq!(config.classes.thresholds(), Ok(ClassThresholds { high, medium }));
        assert_eq!(read("a.json", "{}").unwrap().classes.thresholds(), Ok(ClassThresholds::default()));
    }

    #[test]
    fn classes_that_make_no_sense_are_refused_with_the_value() {
        for (text, words) in [
            ("[classes.high]\niops = 400\n", "medium.iops = 500 must be less than high.iops = 400"),
            ("[classes.medium]\nlatency = '1ms'\n", "medium.latency = 1ms at least high.latency = 2ms"),
            ("[classes.high]\nlatency = '2'\n", "high.latency: '2' is not a time with its unit"),
            ("[classes.medium]\niops = 0\n", "medium.iops = 0 is not accepted"),
            ("[classes.low]\niops = 5\n", "low"),
            ("[classes.high]\nrate = 5\n", "rate"),
        ] {
            let error = read("a.toml", text).unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
