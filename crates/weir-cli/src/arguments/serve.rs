//! Arguments of `weir serve`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use clap::builder::TypedValueParser as _;

use weir_api_types::IoMethod;
use weir_host::logging::LogFormat;
use weir_types::control_bounds::REACTORS;

/// Options of the daemon.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Example:\n  weir serve --state /var/lib/weir --nbd-listen tcp:127.0.0.1:10809\n\nOptions given here win over those of the configuration file."
)]
pub struct ServeArguments {
    /// Configuration file, JSON or TOML
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Folder for all persistent state [default: /var/lib/weir for root, else the user's state folder]
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Data-plane threads [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(REACTORS))]
    pub reactors: Option<u16>,
    /// How they carry out operations on files: by 'io_uring', or by 'threads', which take more processor time
    /// [default: io_uring, or threads where it is forbidden]
    #[arg(long, value_name = "METHOD", value_enum, hide_possible_values = true)]
    pub io_method: Option<IoMethod>,
    /// Additional address for NBD clients, beside unix:STATE/nbd.sock: unix:PATH or tcp:ADDR:PORT; may be
    /// given again
    #[arg(long, value_name = "ADDRESS")]
    pub nbd_listen: Vec<String>,
    /// Let NBD clients of other machines attach over TCP, without authentication or encryption
    #[arg(long)]
    pub insecure_nbd: bool,
    /// Mode of NBD sockets, in octal digits [default: 0660]
    #[arg(long, value_name = "MODE")]
    pub nbd_socket_mode: Option<String>,
    /// Group of NBD sockets: its members may attach volumes [default: the daemon's]
    #[arg(long, value_name = "GROUP")]
    pub socket_group: Option<String>,
    /// Group whose members may administer through the API's socket, beside root and the daemon's user
    #[arg(long, value_name = "GROUP")]
    pub admin_group: Option<String>,
    /// Serve the API on this loopback address too, to clients that show the token
    #[arg(long, value_name = "ADDR:PORT")]
    pub api_listen: Option<SocketAddr>,
    /// File with the token of the API over TCP; only its owner may be able to read it
    #[arg(long, value_name = "FILE")]
    pub api_token_file: Option<PathBuf>,
    /// Only check options and configuration file. Exit status: 0 if they are valid, else 1 or 2
    #[arg(long)]
    pub check: bool,
    /// Restore a lost catalogue from the record backups beside the volumes' extents
    #[arg(long)]
    pub rebuild_catalogue: bool,
    /// Do not measure a new drive in the state folder
    #[arg(long)]
    pub no_measurement: bool,
    /// Raise an alarm when a pool is this full, in percent; 95 unless configured
    #[arg(long, value_name = "PERCENT", overrides_with = "pool_full_percent")]
    pub pool_full_percent: Option<u8>,
    /// Log filter for standard error: error, warn, info, debug, trace, or a filter like weir=debug
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub log_level: String,
    /// Format of log lines
    #[arg(long, value_name = "FORMAT", value_parser = log_format(), default_value = "text", ignore_case = true)]
    pub log_format: LogFormat,
}

/// Parser of the log format, which lists the formats in the help.
fn log_format() -> impl clap::builder::TypedValueParser<Value = LogFormat> {
    clap::builder::PossibleValuesParser::new(["text", "json"]).map(|format| match format.as_str() {
        "json" => LogFormat::Json,
        _ => LogFormat::Text,
    })
}
