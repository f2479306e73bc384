//! Configuration file: the structure of Portworx's `config.json` with Weir's own keys, as JSON or TOML.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use weir_api_types::IoMethod;
use weir_control::ConfiguredDrive;
use weir_journal::Geometry;
use weir_types::emulation::parse_time;
use weir_types::{ClassThreshold, ClassThresholds, Emulation, Size};

/// Content of a configuration file. An unknown key is an error.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// URL for alerts; no effect yet.
    pub alertingurl: String,
    /// Name of the cluster.
    pub clusterid: String,
    /// Network interface for data; no effect yet.
    pub dataiface: String,
    /// Key-value store for a cluster's metadata; no effect yet, because the metadata is in the embedded
    /// catalogue.
    pub kvdb: Vec<String>,
    /// Network interface for management; no effect yet.
    pub mgtiface: String,
    /// Drives of the node.
    pub storage: StorageConfig,
    /// Zone of the node; drives without a zone of their own use it.
    pub zone: String,
    /// Region of the node, for information only.
    pub region: String,
    /// Thresholds of the classes of drives.
    pub classes: ClassesConfig,
    /// Number of data-plane threads.
    pub reactors: Option<u16>,
    /// How they carry out operations on files; the best way if absent.
    pub io_method: Option<IoMethod>,
    /// Addresses for NBD clients beside the socket in the state folder: `unix:PATH` or `tcp:ADDR:PORT`.
    pub nbd_listen: Vec<String>,
    /// True if NBD clients of other machines may attach over TCP.
    pub insecure_nbd: bool,
    /// Mode of NBD sockets, in octal digits.
    pub nbd_socket_mode: Option<String>,
    /// Group of NBD sockets.
    pub socket_group: Option<String>,
    /// Group whose members may administer through the API's socket.
    pub admin_group: Option<String>,
    /// Loopback address on which the API is served beside its Unix socket.
    pub api_listen: Option<SocketAddr>,
    /// File with the token of the API over TCP.
    pub api_token_file: Option<PathBuf>,
    /// Whether volumes without an attached client have series in the metrics; true if absent.
    pub metrics_of_idle_volumes: Option<bool>,
    /// The state folder.
    pub state: Option<PathBuf>,
}

/// Default size of a write journal, in bytes. The journal absorbs a burst of half this size without delay,
/// and a disk takes that much within seconds.
const JOURNAL_BYTES: u64 = 512 << 20;

/// Drives of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StorageConfig {
    /// Directories of drives. A directory that is no drive yet becomes one at the start. If the list has
    /// entries, the default drive in the state folder is not created.
    pub devices: Vec<PathBuf>,
    /// Emulation of some of the drives, by path.
    pub emulate: BTreeMap<PathBuf, String>,
    /// Size of new write journals, for example `1GiB`; 512 MiB if absent.
    pub journal_size: Option<String>,
    /// Whether a new drive in the state folder is measured; true if absent.
    pub measure_default: Option<bool>,
    /// Fill level from which a pool raises an alarm, in percent; 95 if absent.
    pub pool_full_percent: Option<u8>,
}

/// Thresholds of the classes of drives; a drive below `medium` is `low`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClassesConfig {
    /// Threshold of class `high`.
    pub high: ClassConfig,
    /// Threshold of class `medium`.
    pub medium: ClassConfig,
}

/// Threshold of a class; an absent value is the published one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClassConfig {
    /// Minimum of random 4 KiB reads per second, and of writes, with 32 in flight.
    pub iops: Option<u64>,
    /// Maximum median latency with one request in flight, for example `2ms`.
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
    /// The thresholds of all classes.
    ///
    /// # Errors
    /// If a value is not accepted, or if a lower class demands as much as a higher one.
    pub fn thresholds(&self) -> Result<ClassThresholds, String> {
        let published = ClassThresholds::default();
        let named = |class: &str, error: String| format!("{class}.latency: {error}");
        let high = self.high.threshold(published.high).map_err(|error| named("high", error))?;
        let medium = self.medium.threshold(published.medium).map_err(|error| named("medium", error))?;
        ClassThresholds { high, medium }.checked().map_err(|error| error.to_string())
    }
}

/// Reason why a configuration file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration file {}: {source}", path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Cause of the failure.
        source: std::io::Error,
    },
    /// The file is not understood; the message names the key and the line.
    #[error("the configuration file {} is not accepted: {message}", path.display())]
    Parse {
        /// Path of the file.
        path: PathBuf,
        /// Description of the fault, with its place.
        message: String,
    },
    /// The thresholds of the classes contradict each other.
    #[error("the configuration file's 'classes' is not accepted: {0}")]
    Classes(String),
    /// A value is not accepted.
    #[error("the configuration file's '{key}' is not accepted: {message}")]
    Value {
        /// Name of the key.
        key: String,
        /// Description of the fault, with the accepted values.
        message: String,
    },
}

impl Config {
    /// Reads a configuration file. A file named `.toml` is TOML; another file is JSON if it begins with a
    /// brace, else TOML.
    ///
    /// # Errors
    /// If the file cannot be read or understood.
    pub fn read(path: &Path) -> Result<Config, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        let is_toml = path.extension().is_some_and(|extension| extension == "toml");
        let config = Config::parse(&text, is_toml);
        let config = config.map_err(|message| ConfigError::Parse { path: path.to_owned(), message })?;
        config.classes.thresholds().map_err(ConfigError::Classes)?;
        Ok(config)
    }

    /// Parses the text of a configuration file: TOML, or JSON if it begins with a brace and may be JSON.
    ///
    /// # Errors
    /// In words, with the line.
    pub fn parse(text: &str, is_toml: bool) -> Result<Config, String> {
        match !is_toml && text.trim_start().starts_with('{') {
            true => serde_json::from_str(text).map_err(|error| error.to_string()),
            false => toml::from_str(text).map_err(|error| toml_message(&error, text)),
        }
    }

    /// Size of new write journals, in bytes.
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

    /// The drives in the configuration.
    ///
    /// # Errors
    /// If an emulation is not accepted, or is for a directory that is not in the list of drives.
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

    /// Warnings about accepted keys that have no effect yet.
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

/// An error of the TOML reader on one line, with the line number.
fn toml_message(error: &toml::de::Error, text: &str) -> String {
    let message = error.message().replace('\n', " ");
    let line =
        error.span().and_then(|span| text.get(..span.start)).map(|before| before.matches('\n').count() + 1);
    line.map_or(message.clone(), |line| format!("{message} at line {line}"))
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
    fn portworx_structure_is_read_as_json_and_toml() {
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
    fn unknown_key_is_named_with_its_line() {
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
    fn documented_portworx_file_is_accepted() {
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
    fn emulation_is_read_and_its_faults_are_named() {
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
    fn class_thresholds_are_read_and_default_to_the_published_ones() {
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
    fn contradictory_class_thresholds_are_refused() {
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
