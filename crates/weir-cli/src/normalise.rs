//! Normalisation of command lines: one spelling for options, commands and their aliases.
//!
//! Options are accepted with one or two dashes, with '-' or '_', and in any case; commands in any case. All
//! names are read from the definition of the commands, so a new option or command needs no code here.

use std::ffi::OsString;

use clap::{Arg, Command};

/// Rewrites a command line to the spelling that `root` defines; the first argument is the program's name. An
/// unknown argument stays unchanged, so that the parser reports it in the user's spelling.
pub fn normalise(root: &Command, arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments = arguments.into_iter().peekable();
    let mut normaliser = Normaliser { path: vec![root], in_names: false, rewritten: Vec::new() };
    normaliser.rewritten.extend(arguments.next());
    while let Some(argument) = arguments.next() {
        let Some(text) = argument.to_str().filter(|text| *text != "--") else {
            normaliser.rewritten.push(argument);
            normaliser.rewritten.extend(arguments);
            break;
        };
        if let Some(takes_value) = normaliser.option(text) {
            // ONTAP's document has an option without its value before the next option.
            let is_left_out = normaliser.may_lack_value(text)
                && arguments
                    .peek()
                    .and_then(|next| next.to_str())
                    .is_none_or(|next| normaliser.is_option(next));
            if takes_value && !is_left_out {
                normaliser.value(arguments.next());
            }
        } else {
            normaliser.word(text);
        }
    }
    normaliser.rewritten
}

struct Normaliser<'a> {
    /// Commands named so far, outermost first.
    path: Vec<&'a Command>,
    /// True after the first word that is no command: all further words are names.
    in_names: bool,
    rewritten: Vec<OsString>,
}

impl Normaliser<'_> {
    /// Rewrites an argument if it is an option. Returns whether the next argument is its value, or `None` if
    /// it is no option.
    fn option(&mut self, text: &str) -> Option<bool> {
        let name = text.strip_prefix("--").or_else(|| text.strip_prefix('-'))?;
        let is_short = !text.starts_with("--") && name.chars().nth(1).is_none_or(|second| second == '=');
        if is_short || name.starts_with(|c: char| !c.is_ascii_alphabetic()) {
            self.rewritten.push(text.into());
            return Some(is_short && !text.contains('=') && self.short_takes_value(name));
        }
        let (name, value) = name.split_once('=').map_or((name, None), |(name, value)| (name, Some(value)));
        let canonical = self.canonical_option(name);
        let Some(option) = self.find(|option| option.get_long() == Some(canonical.as_str())) else {
            // With one dash, the parser would report only the first letter.
            let text = if self.short_takes_value(name) { text.to_owned() } else { format!("--{name}") };
            self.rewritten.push(text.into());
            return Some(false);
        };
        let takes_value = option.get_action().takes_values();
        match value {
            Some(value) => self.rewritten.push(format!("--{canonical}={value}").into()),
            None => self.rewritten.push(format!("--{canonical}").into()),
        }
        Some(takes_value && value.is_none())
    }

    /// True if a text names a known option.
    fn is_option(&self, text: &str) -> bool {
        self.named(text).is_some()
    }

    /// True if a text names an option whose value may be omitted.
    fn may_lack_value(&self, text: &str) -> bool {
        let range = self.named(text).and_then(|option| option.get_num_args());
        range.is_some_and(|range| range.min_values() == 0 && range.takes_values())
    }

    fn named(&self, text: &str) -> Option<&Arg> {
        let name = text.strip_prefix("--").or_else(|| text.strip_prefix('-'))?;
        let canonical = self.canonical_option(name.split('=').next().unwrap_or(name));
        self.find(|option| option.get_long() == Some(canonical.as_str()))
    }

    fn short_takes_value(&self, name: &str) -> bool {
        let short = name.chars().next();
        self.find(|option| option.get_short() == short)
            .is_some_and(|option| option.get_action().takes_values())
    }

    /// Adds the value of the preceding option.
    fn value(&mut self, value: Option<OsString>) {
        let Some(value) = value else { return };
        let is_negative = value.to_str().is_some_and(|text| {
            text.strip_prefix('-').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        });
        match self.rewritten.last_mut() {
            // Joined with '=', because the parser would take a separate negative number for an option.
            Some(option) if is_negative => {
                option.push("=");
                option.push(value);
            }
            _ => self.rewritten.push(value),
        }
    }

    /// Adds a word: a command while a subcommand has this name, else a name.
    fn word(&mut self, text: &str) {
        let wanted = text.to_ascii_lowercase().replace('_', "-");
        let current = self.path.last().filter(|_| !self.in_names);
        let command = current.and_then(|current| current.find_subcommand(&wanted));
        match command {
            Some(command) => {
                self.path.push(command);
                self.rewritten.push(command.get_name().into());
            }
            None => {
                self.in_names = self.path.last().is_some_and(|current| !current.has_subcommands());
                self.rewritten.push(text.into());
            }
        }
    }

    /// Name of an option as it is defined. An alias is replaced, unless an option has that name itself.
    fn canonical_option(&self, name: &str) -> String {
        let name = name.to_ascii_lowercase().replace('_', "-");
        let is_alias =
            |option: &Arg| option.get_all_aliases().is_some_and(|aliases| aliases.contains(&name.as_str()));
        let ours =
            self.find(|option| option.get_long() == Some(name.as_str())).or_else(|| self.find(is_alias));
        ours.and_then(Arg::get_long).map_or(name.clone(), str::to_owned)
    }

    /// Finds an option of the commands named so far, innermost first.
    fn find(&self, is_wanted: impl Fn(&Arg) -> bool) -> Option<&Arg> {
        self.path.iter().rev().flat_map(|command| command.get_arguments()).find(|option| is_wanted(option))
    }
}
