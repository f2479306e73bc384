//! Bodies of Docker's volume plugin protocol, version 1. All calls are POST requests; an error is an answer with
//! `Err`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What a call asks. Each call uses some of the fields.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Call {
    /// Name of the volume, as Docker has it.
    #[serde(default)]
    pub name: String,
    /// Options of a volume to create.
    #[serde(default)]
    pub opts: Option<BTreeMap<String, String>>,
    /// Whoever mounts or unmounts.
    #[serde(default, rename = "ID")]
    pub id: String,
}

/// A volume, as Docker shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct DockerVolume {
    /// Name, as Docker asked for it.
    pub name: String,
    /// Where it is mounted; empty if it is not.
    pub mountpoint: String,
    /// Time of creation, in RFC 3339.
    pub created_at: String,
    /// What `docker volume inspect` shows as its status.
    pub status: BTreeMap<&'static str, String>,
}

/// What a call answers.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Answer {
    /// It is done.
    Done {},
    /// What the plugin is.
    #[serde(rename_all = "PascalCase")]
    Activated {
        /// Protocols that it speaks.
        implements: [&'static str; 1],
    },
    /// What the plugin can do.
    #[serde(rename_all = "PascalCase")]
    Capabilities {
        /// Its abilities.
        capabilities: Capabilities,
    },
    /// A place.
    #[serde(rename_all = "PascalCase")]
    Place {
        /// Where the volume is mounted; empty if it is not.
        mountpoint: String,
    },
    /// One volume.
    #[serde(rename_all = "PascalCase")]
    Volume {
        /// The volume.
        volume: DockerVolume,
    },
    /// All volumes.
    #[serde(rename_all = "PascalCase")]
    Volumes {
        /// The volumes.
        volumes: Vec<DockerVolume>,
    },
    /// The call failed.
    #[serde(rename_all = "PascalCase")]
    Failed {
        /// Why, in words.
        err: String,
    },
}

/// Abilities of the plugin.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct Capabilities {
    /// `local`: each host has its own volumes.
    pub scope: &'static str,
}
