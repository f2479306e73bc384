//! Options of all commands that change something: answer format, confirmation, and conditions that are no
//! error.
//!
//! They are added to the commands in one place, so a new command gets them without further code.

use std::io::{IsTerminal, Write};

use clap::builder::EnumValueParser;
use clap::{Arg, ArgAction, ArgMatches, Command};

use super::arguments::Format;
use super::errors::CommandError;

/// Names of the options.
const OUTPUT: &str = "output";
const YES: &str = "yes";
const IF_EXISTS: &str = "if-exists";
const IF_NOT_EXISTS: &str = "if-not-exists";
const IF_VERSION: &str = "if-version";
/// Commands that change nothing and have no answer to format.
const WITHOUT_ANSWER: [&str; 7] = ["serve", "top", "completion", "man", "openapi", "commands", "export"];
/// Commands that change or remove one object, which has a version.
const OF_ONE_OBJECT: [&str; 7] = ["modify", "resize", "rename", "restore", "reset", "delete", "remove"];
/// Commands that destroy data. They ask for confirmation if a person sits at the terminal.
const DESTRUCTIVE: [[&str; 2]; 5] = [
    ["volume", "delete"],
    ["snapshot", "restore"],
    ["drive", "add"],
    ["journal", "add"],
    ["drive", "accept"],
];

/// Options of a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChangeOptions {
    /// Format of the answer and of errors.
    pub output: Format,
    /// True if the command asks for no confirmation.
    pub is_confirmed: bool,
    /// True if it is no error that the object to remove does not exist.
    pub if_exists: bool,
    /// True if it is no error that the object to create exists.
    pub if_not_exists: bool,
    /// Version that the object must have, or the change is refused.
    pub if_version: Option<u64>,
}

/// Adds the options to all commands below this one that change something.
pub fn add_to(command: Command) -> Command {
    command.mut_subcommands(|below| add_below(below, &[]))
}

fn add_below(command: Command, above: &[&str]) -> Command {
    let name = command.get_name().to_owned();
    if command.has_subcommands() {
        let path = [above, &[&name]].concat();
        return command.mut_subcommands(|below| add_below(below, &path));
    }
    let has_output = command.get_arguments().any(|argument| argument.get_id() == OUTPUT);
    if has_output || WITHOUT_ANSWER.contains(&name.as_str()) {
        return command;
    }
    let command = command.arg(output());
    let command = match name.as_str() {
        "delete" | "remove" => command.arg(flag(IF_EXISTS, "Do nothing, and succeed, if it does not exist")),
        "create" | "add" => command.arg(flag(IF_NOT_EXISTS, "Do nothing, and succeed, if it exists already")),
        _ => command,
    };
    let command = if OF_ONE_OBJECT.contains(&name.as_str()) { command.arg(if_version()) } else { command };
    let path = [above, &[&name]].concat();
    match DESTRUCTIVE.iter().any(|destructive| path == *destructive) {
        true => command.arg(flag(YES, "Ask nothing: without it, a person at a terminal is asked first")),
        false => command,
    }
}

fn output() -> Arg {
    let output = Arg::new(OUTPUT).short('o').long(OUTPUT).value_name("FORMAT").ignore_case(true);
    let output = output.value_parser(EnumValueParser::<Format>::new()).default_value("table");
    output.help("How to write the answer, and an error")
}

fn if_version() -> Arg {
    let version = Arg::new(IF_VERSION).long(IF_VERSION).value_name("VERSION");
    let version = version.value_parser(clap::value_parser!(u64));
    version.help("Refuse the change unless what it changes has this version, as 'show' and '-o json' show it")
}

fn flag(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
}

impl ChangeOptions {
    /// Reads the options of the innermost command.
    pub fn of(matches: &ArgMatches) -> ChangeOptions {
        let mut innermost = matches;
        while let Some((_, next)) = innermost.subcommand() {
            innermost = next;
        }
        let is_set = |id| matches!(innermost.try_get_one::<bool>(id), Ok(Some(true)));
        // A read-only command has an option of the same name and type. Another type means another option.
        let output = innermost.try_get_one::<Format>(OUTPUT).ok().flatten().copied();
        ChangeOptions {
            output: output.unwrap_or_default(),
            is_confirmed: is_set(YES),
            if_exists: is_set(IF_EXISTS),
            if_not_exists: is_set(IF_NOT_EXISTS),
            if_version: innermost.try_get_one::<u64>(IF_VERSION).ok().flatten().copied(),
        }
    }

    /// Asks a person at a terminal to confirm an action; a program is not asked.
    ///
    /// # Errors
    /// If the answer is not yes; the action must not be done then.
    pub fn confirm(&self, question: &str) -> Result<(), CommandError> {
        let is_asked = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
        if self.is_confirmed || !is_asked {
            return Ok(());
        }
        let mut prompt = std::io::stderr();
        write!(prompt, "{question} [y/N] ")?;
        prompt.flush()?;
        let mut answer = String::new();
        std::io::stdin().read_line(&mut answer)?;
        match is_yes(&answer) {
            true => Ok(()),
            false => Err(CommandError::Failed(
                "it was not confirmed, so nothing was changed; --yes does it unasked".to_owned(),
            )),
        }
    }
}

fn is_yes(answer: &str) -> bool {
    matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}

#[cfg(test)]
mod tests {
    use super::super::command;
    use super::*;

    fn options(line: &str) -> ChangeOptions {
        let line = line.split(' ').map(std::ffi::OsString::from);
        let command = command();
        let line = super::super::normalise::normalise(&command, line);
        ChangeOptions::of(&command.try_get_matches_from(line).unwrap())
    }

    #[test]
    fn every_changing_command_has_the_common_options() {
        let json = ChangeOptions { output: Format::Json, ..ChangeOptions::default() };
        for line in [
            "weir volume create v --size 1 -o json",
            "weir volume list -o json",
            "weir qos policy-group modify p --max-throughput 5IOPS --output JSON",
            "weir drive remove d -o json --wait",
            "weir qos apply f.yaml -o json",
        ] {
            assert_eq!(options(line), json, "{line}");
        }
        let none = ChangeOptions::default();
        assert_eq!(options("weir volume record v --seconds 5 --output f.trace"), none, "that is a file");
        assert_eq!(options("weir volume delete v"), none);
        let confirmed = ChangeOptions { is_confirmed: true, ..none };
        assert_eq!(options("weir snapshot restore v@s --yes"), confirmed);
        assert_eq!(options("weir drive add /dev/x --format -yes"), confirmed);
        assert_eq!(options("weir journal add /dev/x --format --yes"), confirmed);
        let if_exists = ChangeOptions { if_exists: true, ..confirmed };
        assert_eq!(options("weir vol delete v --yes --if-exists"), if_exists);
        let if_not_exists = ChangeOptions { if_not_exists: true, ..none };
        assert_eq!(options("weir tenant create t -if_not_exists"), if_not_exists);
        let if_version = ChangeOptions { if_version: Some(12), ..none };
        for line in [
            "weir volume update v --read-only true --if-version 12",
            "weir volume resize v --size 2 -if_version 12",
            "weir vserver modify t --default-policy-group none --if-version=12",
            "weir qos policy-group rename p --new-name q --if-version 12",
            "weir pool modify low --reserve 7% --if-version 12",
            "weir template delete t --if-version 12",
            "weir drive remove d --if-version 12",
        ] {
            assert_eq!(options(line), if_version, "{line}");
        }
    }

    #[test]
    fn only_a_clear_yes_confirms() {
        for (answer, expected) in
            [("y\n", true), (" YES \n", true), ("\n", false), ("n\n", false), ("", false), ("yep\n", false)]
        {
            assert_eq!(is_yes(answer), expected, "{answer:?}");
        }
    }
}
