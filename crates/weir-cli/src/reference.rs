//! The reference of all commands in Markdown, made from the definition of the commands.
//!
//! The page has one section for each command, and one list for each group of commands. It knows nothing that the
//! help does not know.

use clap::{Arg, ArgAction, Command};

/// Path of the page in the repository.
#[cfg(test)]
const PAGE: &str = "docs/reference/commands.md";

/// First lines of the page.
const HEAD: &str = "# Commands

`weir commands > docs/reference/commands.md` writes this page from the definition of the commands. The
[grammar](command-line.md) tells what holds for every command: spelling, output formats, units, exit status.
";

/// Options that many commands have. They are explained once, and named only at each command.
const COMMON: [&str; 7] = ["output", "tenant", "if-exists", "if-not-exists", "if-version", "yes", "help"];

/// The page about all commands below `root`.
pub fn page(root: &Command) -> String {
    let mut root = root.clone();
    root.build();
    let mut text = HEAD.to_owned();
    text.push_str("\n## Options of every command\n\n");
    text.push_str(&options(root.get_arguments().filter(|option| option.is_global_set())));
    text.push_str("\n## Options of many commands\n\n");
    text.push_str(&common(&root));
    for command in shown(&root) {
        section(command, &mut text);
    }
    text
}

/// The commands below a command that the help shows.
fn shown(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|below| !below.is_hide_set() && below.get_name() != "help")
}

/// Commands that stand for others have no sections of their own.
fn is_another_name(command: &Command) -> bool {
    about(command).starts_with("The same as ")
}

/// The common options, each with its longest explanation: that of the command which uses it most widely.
fn common(root: &Command) -> String {
    fn all<'a>(command: &'a Command, found: &mut Vec<&'a Arg>) {
        found.extend(command.get_arguments());
        shown(command).for_each(|below| all(below, found));
    }
    let mut found = Vec::new();
    all(root, &mut found);
    let length = |option: &&&Arg| option.get_help().map(|help| help.to_string().len());
    let longest = |name: &&str| {
        let named = found.iter().filter(|option| option.get_long() == Some(name) && !option.is_positional());
        named.filter(|option| option.get_id() != "name").max_by_key(length).copied()
    };
    options(COMMON.iter().filter(|name| **name != "help").filter_map(longest))
}

fn section(command: &Command, text: &mut String) {
    let path = command.get_bin_name().unwrap_or_else(|| command.get_name());
    let depth = path.split(' ').count();
    text.push_str(&format!("\n{} {path}\n\n{}.\n", "#".repeat(depth.min(3)), about(command)));
    text.push_str(&long_about(command));
    let aliases: Vec<String> = command.get_visible_aliases().map(|alias| format!("`{alias}`")).collect();
    if !aliases.is_empty() {
        text.push_str(&format!("\nAlso: {}.\n", aliases.join(", ")));
    }
    if command.has_subcommands() {
        text.push_str("\n| command | does |\n|---|---|\n");
        for below in shown(command) {
            let path = below.get_bin_name().unwrap_or_else(|| below.get_name());
            text.push_str(&format!("| `{path}` | {} |\n", cell(&about(below))));
        }
        shown(command).filter(|below| !is_another_name(below)).for_each(|below| section(below, text));
        return;
    }
    let usage = command.clone().render_usage().to_string();
    text.push_str(&format!("\n```\n{}\n```\n", usage.trim_start_matches("Usage: ").trim()));
    let own = options(command.get_arguments().filter(|option| is_own(option)));
    if !own.is_empty() {
        text.push_str(&format!("\n{own}"));
    }
    let common: Vec<String> = COMMON
        .iter()
        .filter(|name| command.get_arguments().any(|option| is_common(option, name)))
        .map(|name| format!("`--{name}`"))
        .collect();
    text.push_str(&format!("\nCommon options: {}.\n", common.join(", ")));
    text.push_str(&examples(command));
}

/// True for an option or a value that the section of its command explains.
fn is_own(option: &Arg) -> bool {
    let is_common = COMMON.iter().any(|name| is_common(option, name));
    !is_common && !option.is_hide_set() && !option.is_global_set()
}

/// True for the common option of a name. A required option of this name is another one: that of its command.
fn is_common(option: &Arg, name: &str) -> bool {
    option.get_long() == Some(name) && !option.is_required_set()
}

fn about(command: &Command) -> String {
    command.get_about().map(ToString::to_string).unwrap_or_default()
}

/// The further paragraphs of the description.
fn long_about(command: &Command) -> String {
    let long = command.get_long_about().map(ToString::to_string).unwrap_or_default();
    long.split_once("\n\n").map(|(_, rest)| format!("\n{rest}\n")).unwrap_or_default()
}

/// A list of options and values, with a line for each.
fn options<'a>(options: impl Iterator<Item = &'a Arg>) -> String {
    let row = |option: &Arg| format!("* {}\n", described(option));
    options.map(row).collect()
}

fn described(option: &Arg) -> String {
    let value = option.get_value_names().and_then(|names| names.first()).map(ToString::to_string);
    let value = value.filter(|_| option.get_action().takes_values());
    let name = match (option.get_long(), value) {
        (Some(long), Some(value)) => format!("`--{long} {value}`"),
        (Some(long), None) => format!("`--{long}`"),
        (None, value) => format!("`{}`", value.unwrap_or_else(|| option.get_id().to_string().to_uppercase())),
    };
    let short = option.get_short().map(|short| format!("`-{short}`"));
    let long = option.get_visible_aliases().into_iter().flatten().map(|alias| format!("`--{alias}`"));
    let others: Vec<String> = short.into_iter().chain(long).collect();
    let others = if others.is_empty() { String::new() } else { format!(" (also {})", others.join(", ")) };
    let help = option.get_help().map(ToString::to_string).unwrap_or_default();
    format!("{name}{others}: {}{}{}", help.trim_end_matches('.'), accepted(option), default(option, &help))
}

/// The value without the option, unless the help has it.
fn default(option: &Arg, help: &str) -> String {
    let values = option.get_default_values();
    if values.is_empty() || !option.get_action().takes_values() || help.contains("[default: ") {
        return String::new();
    }
    let values: Vec<_> = values.iter().map(|value| value.to_string_lossy()).collect();
    format!(" [default: {}]", values.join(", "))
}

/// The accepted words of an option, unless its value name lists them.
fn accepted(option: &Arg) -> String {
    let is_flag = matches!(option.get_action(), ArgAction::SetTrue);
    if is_flag || option.is_hide_possible_values_set() {
        return String::new();
    }
    let values = option.get_possible_values();
    let words: Vec<&str> =
        values.iter().filter(|value| !value.is_hide_set()).map(|value| value.get_name()).collect();
    if words.is_empty() { String::new() } else { format!(" [{}]", words.join(", ")) }
}

fn examples(command: &Command) -> String {
    let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let lines: Vec<&str> = help.lines().filter_map(|line| line.strip_prefix("  ")).collect();
    if lines.is_empty() { String::new() } else { format!("\n```sh\n{}\n```\n", lines.join("\n")) }
}

/// A text as a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_in_the_repository_is_current() {
        let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(PAGE);
        let written = std::fs::read_to_string(&file).unwrap_or_default();
        let current = page(&crate::command());
        assert!(written == current, "{PAGE} is stale: 'cargo run -p weir -- commands > {PAGE}' renews it");
    }

    #[test]
    fn page_names_every_command_and_every_spelling() {
        let page = page(&crate::command());
        for words in [
            "\n### weir volume create\n",
            "\n### weir policy-group modify\n",
            "| `weir qos policy-group` | The same as 'weir policy-group', as in ONTAP |",
            "`--class CLASS` (also `--io-priority`)",
            "`--tenant TENANT` (also `--vserver`)",
            "Also: `inspect`.",
            "weir scrub start vol1 vol2 --wait",
        ] {
            assert!(page.contains(words), "{words}");
        }
        assert!(!page.contains("### weir qos policy-group"), "a second path has no second section");
    }
}
