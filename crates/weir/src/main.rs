//! `weir`: the daemon and its command line in one binary.
//!
//! It starts the parts of the daemon and knows nothing that they decide.

#![forbid(unsafe_code)]

mod configuration;
mod io_method;
mod notify;
mod serve;
mod settings;
mod state_folder;
mod state_lock;
mod supervise;

use weir_api_types::PoliciesApply;
use weir_cli::{CommandError, CsiArguments, DockerPluginArguments, Local, ServeArguments};
use weir_host::logging::{self, LogFormat};
use weir_replay::trace::Header;

fn main() -> std::process::ExitCode {
    weir_cli::run(std::env::args_os(), &Daemon)
}

/// The commands that need the daemon's code.
struct Daemon;

impl Local for Daemon {
    fn serve(&self, arguments: ServeArguments) -> Result<(), CommandError> {
        serve::serve(arguments)
    }

    fn keeper(&self, socket: &std::path::Path) -> Result<(), CommandError> {
        weir_attach::keeper::run(socket).map_err(CommandError::failed)
    }

    fn docker_plugin(
        &self,
        client: weir_client::Client,
        arguments: DockerPluginArguments,
    ) -> Result<(), CommandError> {
        if !client.is_local() {
            let message = "the plugin uses block devices of the daemon's host; run it there, with unix:PATH";
            return Err(CommandError::Usage(message.to_owned()));
        }
        logging::start("info", LogFormat::Text).map_err(CommandError::Usage)?;
        let settings = weir_docker::Settings {
            drivers: [vec!["weir".to_owned()], arguments.aliases].concat(),
            sockets: arguments.sockets,
            folder: arguments.folder,
            tenant: arguments.tenant,
            default_size_bytes: arguments.default_size.0,
        };
        weir_docker::serve(client, &settings).map_err(CommandError::failed)
    }

    fn csi(&self, client: weir_client::Client, arguments: CsiArguments) -> Result<(), CommandError> {
        if !client.is_local() {
            let message = "the driver uses block devices of the daemon's host; run it there, with unix:PATH";
            return Err(CommandError::Usage(message.to_owned()));
        }
        logging::start("info", LogFormat::Text).map_err(CommandError::Usage)?;
        let settings = weir_csi::Settings {
            name: arguments.driver_name,
            endpoint: arguments.endpoint,
            kubelet: arguments.kubelet,
            tenant: arguments.tenant,
            default_size_bytes: arguments.default_size.0,
        };
        weir_csi::serve(client, &settings).map_err(CommandError::failed)
    }

    fn openapi(&self) -> Result<String, CommandError> {
        weir_api::openapi_document().map_err(CommandError::failed)
    }

    fn put_under(&self, header: &mut Header, policies: PoliciesApply) -> Result<(), String> {
        let set = weir_api::read_set(policies).map_err(|error| error.to_string())?;
        weir_control::put_under(header, &set).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use weir_replay::dry_run::of_spec;
    use weir_replay::dry_run::spec::Spec;
    use weir_types::Emulation;

    use super::*;

    #[test]
    fn policies_of_file_apply_to_their_volumes() {
        let spec = Spec::parse("vol1:depth=8,capacity=1TB;vol2:depth=8").unwrap();
        let mut header = spec.header(Emulation::even(100_000, None, 0), 5);
        let text = r#"{"policies": {"volumes": [{"name": "vol1", "qos_adaptive_policy_group": "value"}]}}"#;
        Daemon.put_under(&mut header, serde_json::from_str(text).unwrap()).unwrap();
        let prediction = of_spec(&header, &spec);
        let iops: Vec<f64> = prediction.volumes.iter().map(|volume| volume.predicted.iops.round()).collect();
        // The built-in group permits 512 operations per second for each allocated TB.
        assert!((iops[0] - 512.0).abs() < 10.0 && iops[1] > 50_000.0, "{iops:?}");
    }
}
