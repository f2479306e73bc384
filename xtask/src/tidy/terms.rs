//! One term for each concept: words that were retired are refused in code, comments, tests, documents and the interface
//! description.
//!
//! An identifier counts as its words, so `SeatOfCopy` is refused for two of them. A word that has another meaning
//! somewhere is allowed there, file by file.

use anyhow::Result;

use super::{Complaint, Tree};

/// A retired word or phrase.
struct Retired {
    /// In lower case, its words separated by one space.
    words: &'static str,
    /// The term that takes its place.
    instead: &'static str,
    /// Beginnings of paths where it means something else.
    allowed: &'static [&'static str],
}

const fn retired(words: &'static str, instead: &'static str) -> Retired {
    Retired { words, instead, allowed: &[] }
}

const fn retired_but(
    words: &'static str,
    instead: &'static str,
    allowed: &'static [&'static str],
) -> Retired {
    Retired { words, instead, allowed }
}

/// Where files of a guest's image are copied.
const IMAGE: &[&str] = &["xtask/src/guest/image.rs"];

/// The words, by what takes their place.
const RETIRED: &[Retired] = &[
    retired_but("copy", "replica", IMAGE),
    retired("copies", "replicas"),
    retired("copying", "resync"),
    retired("made up for", "resync"),
    retired("resynchronisation", "resync"),
    retired("lacking", "out of sync"),
    // Service accounts of Kubernetes.
    retired_but("account", "replica metadata", &["xtask/src/kubernetes/"]),
    retired_but("accounts", "replica metadata", &["xtask/src/kubernetes/"]),
    retired("standing", "replica state"),
    retired("standings", "replica states"),
    retired("fallen", "failed"),
    retired("witness", "epoch record"),
    retired("witnesses", "epoch records"),
    retired("retire", "fail a replica"),
    retired("retired", "failed"),
    retired("has the word", "authoritative replica"),
    retired("have the word", "authoritative replica"),
    retired("seal", "checksum, checksums_valid"),
    retired("seals", "checksums"),
    retired("sealed", "checksums_valid"),
    retired("unsealed", "checksums_valid"),
    retired("sealing", "checksums_valid"),
    retired("sums", "checksums"),
    retired("capture", "snapshot in progress"),
    retired("captures", "snapshots in progress"),
    retired("captured", "in the snapshot"),
    retired("capturing", "snapshot in progress"),
    retired("condemn", "pending deletion"),
    retired("condemned", "pending deletion"),
    retired("cast off", "pending deletion"),
    retired("cut out", "pending deletion"),
    retired("cleanup", "reclaim"),
    retired("clean up", "reclaim"),
    retired("evacuation", "drain"),
    retired("evacuated", "drained"),
    retired("ghost", "orphaned I/O"),
    retired("haunt", "orphaned I/O"),
    retired("bury", "orphaned I/O"),
    retired("seat", "journal binding"),
    retired("seats", "journal bindings"),
    retired("sit down", "attach"),
    retired("patience", "busy poll, or timeout"),
    retired("yielding", "resync throttle"),
    retired("speaker", "reply order"),
    retired("commons", "shared state"),
    retired("mail", "messages"),
    retired("outlook", "projected state"),
    retired("media", "drive"),
    retired("in line for", "in the drive queue"),
    retired("stand in line", "wait in the drive queue"),
    retired("stands in line", "waits in the drive queue"),
    retired("stuck", "blocked_reason"),
];

/// Names of the language and of its libraries, in which words are not ours.
const FOREIGN_NAMES: [&str; 11] = [
    "Copy",
    "copied",
    "copy_from_slice",
    "copy_within",
    "copy_file_range",
    "trivially_copy_pass_by_ref",
    "media_type",
    "UnsupportedMediaType",
    "unsupported_media_type",
    "UNSUPPORTED_MEDIA_TYPE",
    "nbdcopy",
];

/// Phrases with a retired word that mean something else: names of functions, the kind of a drive, and the type
/// of a body in HTTP.
const PHRASES: [&str; 4] = ["fs::copy", "io::copy", "Media Type", "media type"];

/// Complains of every line with a retired word.
pub fn check(tree: &Tree) -> Result<Vec<Complaint>> {
    let sources = tree.sources.iter().map(|source| (source.path.as_str(), source.text.as_str()));
    let documents = tree.documents.iter().map(|document| (document.path.as_str(), document.text.as_str()));
    Ok(sources
        .filter(|(path, _)| *path != THIS_FILE)
        .chain(documents)
        .flat_map(|(path, text)| complaints_about(path, text))
        .collect())
}

/// The one file that names all of them.
const THIS_FILE: &str = "xtask/src/tidy/terms.rs";

fn complaints_about(path: &str, text: &str) -> Vec<Complaint> {
    let rules: Vec<&Retired> = RETIRED
        .iter()
        .filter(|rule| !rule.allowed.iter().any(|beginning| path.starts_with(beginning)))
        .collect();
    let mut complaints = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let words = words_of(&PHRASES.iter().fold(line.to_owned(), |line, phrase| line.replace(phrase, "")));
        for rule in &rules {
            if words.contains(&format!(" {} ", rule.words)) {
                let what = format!("'{}' is retired; the term is '{}'", rule.words, rule.instead);
                complaints.push(Complaint::at(path, number, what));
            }
        }
    }
    complaints
}

/// The words of a line in lower case, each between spaces. Identifiers are taken apart.
fn words_of(line: &str) -> String {
    let mut words = String::from(" ");
    let is_name = |character: char| character.is_alphanumeric() || character == '_';
    for name in line.split(|character| !is_name(character)).filter(|name| !name.is_empty()) {
        if FOREIGN_NAMES.contains(&name) {
            continue;
        }
        let mut is_lower_before = false;
        for character in name.chars() {
            if character == '_' || (character.is_uppercase() && is_lower_before) {
                words.push(' ');
            }
            if character != '_' {
                words.extend(character.to_lowercase());
            }
            is_lower_before = character.is_lowercase() || character.is_ascii_digit();
        }
        words.push(' ');
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(path: &str, text: &str) -> Vec<String> {
        complaints_about(path, text).into_iter().map(|complaint| complaint.0).collect()
    }

    #[test]
    fn retired_words_are_found_in_names_comments_and_phrases() {
        for (text, word) in [
            ("let seat = 1;", "seat"),
            ("struct SeatOfVolume;", "seat"),
            ("const SEAT_MAX: u8 = 1;", "seat"),
            ("fn take_witness() {}", "witness"),
            ("// A replica that was Condemned.", "condemned"),
            ("// They have the word from now on.", "have the word"),
        ] {
            let found = complaints("crates/weir-volume/src/x.rs", text);
            assert!(found.len() == 1 && found[0].contains(&format!("'{word}'")), "{text}: {found:?}");
        }
    }

    #[test]
    fn words_within_words_and_names_of_the_language_are_no_retired_words() {
        for text in ["let seating = checksums;", "#[derive(Clone, Copy)]", "all.copy_from_slice(&b)"] {
            assert_eq!(complaints("crates/weir-volume/src/x.rs", text), [""; 0], "{text}");
        }
    }
}
