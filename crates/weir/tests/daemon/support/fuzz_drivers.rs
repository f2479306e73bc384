//! Fuzz driver: it reads any text as a configuration file, and checks properties that hold for all texts.
//!
//! The reader is included by its file, because the binary has no library.

#![allow(dead_code)]

#[path = "../../../src/configuration.rs"]
mod configuration;

use configuration::Config;
use weir_testkit::choices::Choices;
use weir_testkit::driver::{ANY_BYTES, Case, JSON_WORDS};

/// Way of an example in JSON with edits.
pub const JSON: &str = "edited JSON";
/// Way of an example in TOML with edits.
pub const TOML: &str = "edited TOML";

const JSON_FILE: &[u8] = br#"{"clusterid": "c", "kvdb": [], "storage": {"devices": ["/a"], "emulate":
    {"/a": "iops=100,latency=1ms"}, "journal_size": "1GiB", "pool_full_percent": 90}, "reactors": 2,
    "nbd_listen": ["tcp:127.0.0.1:10809"], "api_listen": "127.0.0.1:9001", "state": "/tmp/w",
    "classes": {"high": {"iops": 9000, "latency": "1.5ms"}}}"#;
const TOML_FILE: &[u8] = b"clusterid = 'c'\nkvdb = []\nreactors = 2\nnbd_listen = ['tcp:127.0.0.1:10809']\n\
    state = '/tmp/w'\n[storage]\ndevices = ['/a']\njournal_size = '1GiB'\n[storage.emulate]\n'/a' = 'nvme'\n\
    [classes.high]\niops = 9000\nlatency = '1.5ms'\n";

const TOML_WORDS: [&str; 16] = [
    "[",
    "]",
    "[[",
    "]]",
    "{",
    "}",
    "=",
    ".",
    "'",
    "\"\"\"",
    "\n",
    "#",
    "storage",
    "1979-05-27",
    "0x7f",
    "-1",
];

/// A configuration file. Every value of a file that was read is used or refused in words.
pub fn drive_configuration(data: &[u8]) -> Case {
    let mut choices = Choices::new(data);
    let is_toml = choices.one_in(2);
    let (way, text) = match (choices.byte() % 8, is_toml) {
        (0, _) => (ANY_BYTES, choices.rest().to_vec()),
        (_, true) => (TOML, choices.edited(TOML_FILE, &TOML_WORDS)),
        (_, false) => (JSON, choices.edited(JSON_FILE, &JSON_WORDS)),
    };
    let text = String::from_utf8_lossy(&text);
    match Config::parse(&text, is_toml) {
        Ok(config) => {
            assert_eq!(Config::parse(&text, is_toml), Ok(config.clone()));
            if let Err(error) = config.classes.thresholds() {
                assert!(!error.is_empty());
            }
            if let Err(error) = config.journal_bytes() {
                assert!(error.to_string().contains("storage.journal_size"));
            }
            if let Ok(drives) = config.drives() {
                assert_eq!(drives.len(), config.storage.devices.len());
            }
            assert!(config.warnings().len() <= 4);
            Case::new(way, true)
        }
        Err(error) => {
            assert!(!error.is_empty());
            Case::new(way, false)
        }
    }
}
