//! Arguments of the CSI driver.

use std::path::PathBuf;

use clap::Args;
use weir_types::name::DEFAULT_TENANT;
use weir_types::units::Size;

use super::volume::size;

/// Settings of the CSI driver.
#[derive(Debug, Args)]
pub struct CsiArguments {
    /// Socket where the kubelet and the sidecars call
    #[arg(long, value_name = "unix:///PATH", default_value = "unix:///run/weir-csi/csi.sock")]
    pub endpoint: String,
    /// Folder of the kubelet, usually /var/lib/kubelet: with it, the driver makes itself known to the kubelet
    #[arg(long, value_name = "FOLDER")]
    pub kubelet: Option<PathBuf>,
    /// Name of the driver, as StorageClasses name it
    #[arg(long, value_name = "NAME", default_value = "csi.weir")]
    pub driver_name: String,
    /// Tenant of the volumes
    #[arg(long, value_name = "TENANT", visible_alias = "vserver", alias = "svm", default_value = DEFAULT_TENANT)]
    pub tenant: String,
    /// Size of a volume that is created without one
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "1GiB")]
    pub default_size: Size,
}
