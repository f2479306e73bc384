//! Command line: a client of the API and nothing else.
//!
//! Commands that need the daemon's own code go through [`Local`], which the binary implements.

#![forbid(unsafe_code)]

mod arguments;
mod change_options;
mod client;
mod commands;
mod errors;
mod normalise;
pub mod output;
mod policy_file;
mod rates;
mod reference;
mod top;

#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};

use arguments::{Arguments, Command};
pub use arguments::{CsiArguments, DockerPluginArguments, ServeArguments};
use change_options::ChangeOptions;
pub use errors::CommandError;
use weir_api_types::PoliciesApply;
use weir_replay::trace::Header;

/// Commands that run without a daemon and need its code.
pub trait Local {
    /// Runs the daemon until a signal ends it, or checks its options.
    ///
    /// # Errors
    /// If the options are not accepted, or the daemon cannot start.
    fn serve(&self, arguments: ServeArguments) -> Result<(), CommandError>;

    /// Keeps mounts for daemons, until it keeps none and no daemon is connected.
    ///
    /// # Errors
    /// If the socket cannot be made.
    fn keeper(&self, socket: &std::path::Path) -> Result<(), CommandError>;

    /// Serves Docker until a signal ends it.
    ///
    /// # Errors
    /// If a socket cannot be bound.
    fn docker_plugin(
        &self,
        client: weir_client::Client,
        arguments: DockerPluginArguments,
    ) -> Result<(), CommandError>;

    /// Serves Kubernetes until a signal ends it.
    ///
    /// # Errors
    /// If the daemon cannot be reached, or the socket cannot be bound.
    fn csi(&self, client: weir_client::Client, arguments: CsiArguments) -> Result<(), CommandError>;

    /// The OpenAPI document of the API.
    ///
    /// # Errors
    /// If the document cannot be written as JSON.
    fn openapi(&self) -> Result<String, CommandError>;

    /// Puts the volumes of a trace under the policies of a file.
    ///
    /// # Errors
    /// In words, if the daemon would refuse the policies.
    fn put_under(&self, header: &mut Header, policies: PoliciesApply) -> Result<(), String>;
}

/// Runs the program with its arguments, of which the first is its name. Returns the exit status: 0 for
/// success, else the status of the error.
pub fn run(arguments: impl IntoIterator<Item = OsString>, local: &dyn Local) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let format = errors::asked_format(&arguments);
    let (arguments, options) = match parse(arguments) {
        Ok(parsed) => parsed,
        Err(error) if error.use_stderr() && !format.is_for_people() => {
            return errors::report(&CommandError::Usage(error.to_string()), format);
        }
        Err(error) => {
            // Nothing can be reported if this output fails.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { errors::USAGE } else { 0 });
        }
    };
    match dispatch(arguments, options, local) {
        Ok(()) | Err(CommandError::OutputClosed) => ExitCode::SUCCESS,
        Err(error) => errors::report(&error, options.output),
    }
}

/// The definition of all commands.
fn command() -> clap::Command {
    change_options::add_to(Arguments::command())
}

/// Reads a command line in any of the accepted spellings.
fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<(Arguments, ChangeOptions), clap::Error> {
    let command = command();
    let arguments = normalise::normalise(&command, arguments);
    let matches = command.try_get_matches_from(arguments)?;
    Ok((Arguments::from_arg_matches(&matches)?, ChangeOptions::of(&matches)))
}

fn dispatch(arguments: Arguments, options: ChangeOptions, local: &dyn Local) -> Result<(), CommandError> {
    let connect = || {
        let client = client::Client::new(arguments.server.as_deref(), arguments.token_file.as_deref());
        client.map(|client| client.with_options(options))
    };
    match arguments.command {
        Command::Serve(serve) => local.serve(serve),
        Command::Completion { shell } => commands::documents::completion(shell),
        Command::Man { directory } => commands::documents::man(&directory),
        Command::Openapi => output::print(&local.openapi()?),
        Command::Commands => output::print(&reference::page(&command())),
        Command::Status(read) => commands::status::show(&connect()?, &read),
        Command::Top(top) => top::run(&connect()?, &top),
        Command::Drive { command } => commands::drive::run(&connect()?, command),
        Command::Pool { command } => commands::pool::run(&connect()?, command),
        Command::Service { command } => commands::service::run(&connect()?, command),
        Command::Volume { command } => commands::volume::run(&connect()?, command),
        Command::Attach(attach) => commands::attachment::attach(&connect()?, &attach),
        Command::Detach(detach) => commands::attachment::detach(&connect()?, &detach),
        Command::Attachment { command } => commands::attachment::run(&connect()?, command),
        Command::Keeper { socket } => local.keeper(&socket),
        Command::DockerPlugin(plugin) => {
            let (server, token_file) = (arguments.server.as_deref(), arguments.token_file.as_deref());
            local.docker_plugin(weir_client::Client::new(server, token_file)?, plugin)
        }
        Command::Csi(driver) => {
            let (server, token_file) = (arguments.server.as_deref(), arguments.token_file.as_deref());
            local.csi(weir_client::Client::new(server, token_file)?, driver)
        }
        Command::Snapshot { command } => commands::snapshot::run(&connect()?, command),
        Command::Template { command } => commands::template::run(&connect()?, command),
        Command::Operation { command } => commands::operation::run(&connect()?, command),
        Command::Alarm { command } => commands::alarm::run(&connect()?, command),
        Command::Event { command } => commands::event::run(&connect()?, command),
        Command::Journal { command } => commands::journal::run(&connect()?, command),
        Command::Tenant { command } => commands::tenant::run(&connect()?, command),
        // A scrub may concern many volumes; the command prints one answer about all of them.
        Command::Scrub { command } => {
            let client = connect()?.with_options(ChangeOptions::default());
            commands::scrub::run(&client, command)
        }
        Command::PolicyGroup { command } => commands::policy::fixed(&connect()?, command),
        Command::AdaptivePolicyGroup { command } => commands::policy::adaptive(&connect()?, command),
        Command::BackgroundPolicy { command } => commands::background::policy(&connect()?, command),
        Command::Qos { command } => commands::qos::run(&connect()?, local, command),
    }
}
