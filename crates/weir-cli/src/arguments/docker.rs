//! Arguments of the Docker plugin.

use std::path::PathBuf;

use clap::Args;
use weir_types::name::DEFAULT_TENANT;
use weir_types::units::Size;

use super::volume::size;

/// Settings of the Docker plugin.
#[derive(Debug, Args)]
pub struct DockerPluginArguments {
    /// Serve the driver under another name too, for example 'pxd'; can be repeated
    #[arg(long = "alias", value_name = "NAME")]
    pub aliases: Vec<String>,
    /// Tenant of the volumes
    #[arg(long, value_name = "TENANT", visible_alias = "vserver", alias = "svm", default_value = DEFAULT_TENANT)]
    pub tenant: String,
    /// Size of a volume that is created without one
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "10GiB")]
    pub default_size: Size,
    /// Folder of the mounts, which dockerd must see; best one that a restart of the host empties
    #[arg(long, value_name = "DIR", default_value = "/run/weir-docker")]
    pub folder: PathBuf,
    /// Folder of the sockets, where dockerd looks for plugins
    #[arg(long, value_name = "DIR", default_value = "/run/docker/plugins")]
    pub sockets: PathBuf,
}
