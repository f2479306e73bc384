//! Registration: the driver makes itself known to the kubelet of its node (interface `pluginregistration.v1` of Kubernetes).
//!
//! The kubelet watches a folder for sockets, and asks at each new one for a name and for the socket of the driver.

use std::path::{Path, PathBuf};

use crate::wire::{Empty, PluginInfo, RegistrationStatus};

/// The service, as calls name it.
pub const SERVICE: &str = "/pluginregistration.Registration/";
/// Folder below the kubelet's that it watches.
const WATCHED_FOLDER: &str = "plugins_registry";
/// The kind of plugin that the kubelet takes for a CSI driver.
const KIND: &str = "CSIPlugin";
/// The interface that the driver serves. The kubelet looks at the first number only.
const VERSION: &str = "1.13.0";

/// The socket where a kubelet finds the driver.
pub fn socket_in(kubelet: &Path, name: &str) -> PathBuf {
    kubelet.join(WATCHED_FOLDER).join(format!("{name}-reg.sock"))
}

/// What the kubelet is told.
pub fn info(name: &str, socket: &Path) -> PluginInfo {
    PluginInfo {
        kind: KIND.to_owned(),
        name: name.to_owned(),
        endpoint: socket.display().to_string(),
        supported_versions: vec![VERSION.to_owned()],
    }
}

/// Reports what came of it. A kubelet that failed tries again.
pub fn note(status: &RegistrationStatus) -> Empty {
    match status.plugin_registered {
        true => tracing::info!("the kubelet knows the driver"),
        false => tracing::error!(error = status.error, "the kubelet does not take the driver"),
    }
    Empty {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn socket_is_in_the_watched_folder() {
        let socket = socket_in(Path::new("/var/lib/kubelet"), "csi.weir");
        assert_eq!(socket, Path::new("/var/lib/kubelet/plugins_registry/csi.weir-reg.sock"));
    }
}
