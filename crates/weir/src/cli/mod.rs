//! The command line: a client of the API and nothing else; and `weir serve`, which is the daemon.

mod arguments;
mod client;
mod commands;
mod normalise;
mod output;
mod policy_arguments;
mod rates;
mod serve;
mod supervise;
mod top;

#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};

use arguments::{Arguments, Command};
pub use client::CommandError;

/// Exit status of a command that was refused or failed.
const FAILED: u8 = 1;
/// Exit status of a command line that is not understood.
const USAGE: u8 = 2;

/// Runs the program with its arguments (the first is its name) and answers its exit status: 0 for success, 1
/// for refused or failed, 2 for a command line that is not understood.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments = match parse(arguments) {
        Ok(arguments) => arguments,
        Err(error) => {
            // Nothing is left to tell if not even this can be written.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { USAGE } else { 0 });
        }
    };
    match dispatch(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(CommandError::OutputClosed) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("weir: {error}");
            ExitCode::from(if matches!(error, CommandError::Usage(_)) { USAGE } else { FAILED })
        }
    }
}

/// Reads a command line in any of the accepted spellings.
fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Arguments, clap::Error> {
    let command = Arguments::command();
    let arguments = normalise::normalise(&command, arguments);
    Arguments::from_arg_matches(&command.try_get_matches_from(arguments)?)
}

fn dispatch(arguments: Arguments) -> Result<(), CommandError> {
    let connect = || client::Client::new(arguments.server.as_deref());
    match arguments.command {
        Command::Serve(serve) => serve::serve(serve),
        Command::Completion { shell } => commands::documents::completion(shell),
        Command::Man { directory } => commands::documents::man(&directory),
        Command::Openapi => commands::documents::openapi(),
        Command::Status(read) => commands::status::show(&connect()?, &read),
        Command::Top(top) => top::run(&connect()?, &top),
        Command::Drive { command } => commands::drive::run(&connect()?, command),
        Command::Pool { command } => commands::pool::run(&connect()?, command),
        Command::Service { command } => commands::service::run(&connect()?, command),
        Command::Volume { command } => commands::volume::run(&connect()?, command),
        Command::Snapshot { command } => commands::snapshot::run(&connect()?, command),
        Command::Template { command } => commands::template::run(&connect()?, command),
        Command::Journal { command } => commands::journal::run(&connect()?, command),
        Command::Tenant { command } => commands::tenant::run(&connect()?, command),
        Command::Scrub(scrub) => commands::scrub::run(&connect()?, scrub),
        Command::Qos { command } => commands::qos::run(&connect()?, command),
    }
}
