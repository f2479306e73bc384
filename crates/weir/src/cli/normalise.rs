//! Making one spelling of many: options with one or two dashes, with '-' or '_', in any case; commands in any
//! case; the words of other systems for ours. What is to be found is read off the definition of the commands
//! themselves, so a new option or command needs nothing here.

use std::ffi::OsString;

use clap::{Arg, Command};

/// Words of other systems for options of ours.
const OPTION_SYNONYMS: [(&str, &str); 4] =
    [("vserver", "tenant"), ("svm", "tenant"), ("vol", "volume"), ("replicas", "repl")];

/// Rewrites a command line (the first argument is the program's name) to the spelling that `root` defines.
/// What is not recognised is left as it is, for the parser to complain about in the user's own words.
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
            // ONTAP's document has an option whose value was left out before the next option.
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
    /// The commands that were named so far, outermost first.
    path: Vec<&'a Command>,
    /// True once a word came that is not a command: all further ones are names.
    in_names: bool,
    rewritten: Vec<OsString>,
}

impl Normaliser<'_> {
    /// Takes an argument if it is an option, and answers whether the next one is its value.
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
            // With two dashes, or the parser would complain about its first letter only.
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

    /// True if a text names an option that is known here.
    fn is_option(&self, text: &str) -> bool {
        self.named(text).is_some()
    }

    /// True if a text names an option whose value can be left out.
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

    /// Takes the value of the option before it.
    fn value(&mut self, value: Option<OsString>) {
        let Some(value) = value else { return };
        let is_negative = value.to_str().is_some_and(|text| {
            text.strip_prefix('-').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        });
        match self.rewritten.last_mut() {
            // Joined, or the parser would take it for an option and not tell what is wrong with it.
            Some(option) if is_negative => {
                option.push("=");
                option.push(value);
            }
            _ => self.rewritten.push(value),
        }
    }

    /// Takes a word: a command as long as there are any, then names.
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

    /// The name of an option as it is defined. A word of other systems is ours where an option is called so.
    fn canonical_option(&self, name: &str) -> String {
        let name = name.to_ascii_lowercase().replace('_', "-");
        let is_ours = self.find(|option| option.get_long() == Some(name.as_str())).is_some();
        let synonym = OPTION_SYNONYMS.iter().find(|(theirs, _)| *theirs == name && !is_ours);
        synonym.map_or(name, |(_, ours)| (*ours).to_owned())
    }

    /// An option of the commands named so far, the innermost first.
    fn find(&self, is_wanted: impl Fn(&Arg) -> bool) -> Option<&Arg> {
        self.path.iter().rev().flat_map(|command| command.get_arguments()).find(|option| is_wanted(option))
    }
}
