//! `cargo xtask prose`: how long the sentences of the documents are, and how many begin with "What" without asking.
//!
//! Code, headings, link targets and what is between backquotes do not count. A cell of a table counts like a paragraph.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::arguments::Arguments;
use crate::repository::repository_root;

/// Most words that the median sentence of a document has.
const MEDIAN_MAX: usize = 14;
/// Most words that nine of ten sentences of a document have.
const NINE_OF_TEN_MAX: usize = 25;
/// Fewest words of a sentence: less is a label.
const SENTENCE_WORDS_MIN: usize = 3;

/// One sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Sentence {
    words: usize,
    text: String,
}

impl Sentence {
    fn of(text: &str) -> Option<Sentence> {
        let text = text.trim();
        let is_word = |word: &&str| word.chars().any(char::is_alphanumeric);
        let words = text.split_whitespace().filter(is_word).count();
        (words >= SENTENCE_WORDS_MIN).then(|| Sentence { words, text: text.to_owned() })
    }

    fn describes_instead_of_naming(&self) -> bool {
        self.text.starts_with("What ") && !self.text.ends_with('?')
    }

    fn is_long(&self) -> bool {
        self.words > NINE_OF_TEN_MAX
    }
}

/// The figures of one document, or of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Figures {
    sentences: usize,
    median: usize,
    nine_of_ten: usize,
    describing: usize,
}

impl Figures {
    fn of(sentences: &[Sentence]) -> Figures {
        let mut words: Vec<usize> = sentences.iter().map(|sentence| sentence.words).collect();
        words.sort_unstable();
        let at = |part: usize, of: usize| words.get(words.len() * part / of).copied().unwrap_or_default();
        Figures {
            sentences: sentences.len(),
            median: at(1, 2),
            nine_of_ten: at(9, 10),
            describing: sentences.iter().filter(|one| one.describes_instead_of_naming()).count(),
        }
    }

    fn is_good(self) -> bool {
        self.median <= MEDIAN_MAX && self.nine_of_ten <= NINE_OF_TEN_MAX && self.describing == 0
    }
}

impl std::fmt::Display for Figures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Figures { sentences, median, nine_of_ten, describing } = self;
        write!(
            f,
            "{sentences} sentences, median {median} words, nine of ten {nine_of_ten}, 'What' {describing}"
        )
    }
}

/// Prints the figures of each document; with `--list`, the sentences that are too long or begin with "What". Fails if a
/// document is not within the bounds.
pub fn run(mut arguments: Arguments) -> Result<()> {
    let is_list = arguments.flag("--list");
    arguments.finish()?;
    let root = repository_root();
    let (mut all, mut bad) = (Vec::new(), 0);
    for path in documents(&root)? {
        let text =
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let sentences = sentences(&text);
        let figures = Figures::of(&sentences);
        bad += usize::from(!figures.is_good());
        println!("{}: {figures}", path.strip_prefix(&root).unwrap_or(&path).display());
        let is_listed = |one: &&Sentence| is_list && (one.is_long() || one.describes_instead_of_naming());
        sentences.iter().filter(is_listed).for_each(|one| println!("  {}: {}", one.words, one.text));
        all.extend(sentences);
    }
    println!("all: {}", Figures::of(&all));
    if bad > 0 {
        bail!(
            "{bad} documents have a median above {MEDIAN_MAX} words, or one of ten sentences above {NINE_OF_TEN_MAX}"
        );
    }
    Ok(())
}

/// The documents at the root and below `docs`, in order.
fn documents(root: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_path_buf(), root.join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_dir() && folder != *root {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// The sentences of a document.
fn sentences(text: &str) -> Vec<Sentence> {
    let mut sentences = Vec::new();
    let mut paragraph = String::new();
    let mut is_code = false;
    for line in text.lines() {
        let line = line.trim();
        if line.starts_with("```") {
            is_code = !is_code;
        }
        let begins_anew =
            line.is_empty() || ['#', '|', '-', '*', '>', '`'].iter().any(|c| line.starts_with(*c));
        if is_code || begins_anew || line.starts_with(|c: char| c.is_ascii_digit()) {
            split(&std::mem::take(&mut paragraph), &mut sentences);
        }
        if is_code || line.starts_with("```") || line.starts_with('#') {
            continue;
        }
        if line.starts_with('|') {
            line.split('|').for_each(|cell| split(&plain(cell), &mut sentences));
            continue;
        }
        let line = line.trim_start_matches(['-', '*', '>', ' ']);
        paragraph.push_str(&plain(line));
        paragraph.push(' ');
    }
    split(&paragraph, &mut sentences);
    sentences
}

/// A line without marks, targets of links and names of code.
fn plain(line: &str) -> String {
    let mut plain = String::new();
    for (at, part) in line.split('`').enumerate() {
        plain.push_str(if at % 2 == 1 { "X" } else { part });
    }
    let mut text = String::new();
    let mut rest = plain.as_str();
    while let Some((before, after)) = rest.split_once("](") {
        text.push_str(before);
        rest = after.split_once(')').map_or("", |(_, after)| after);
    }
    text.push_str(rest);
    text.replace(['*', '[', ']', '_'], "")
}

/// Splits a paragraph where a mark that ends a sentence is followed by the beginning of another.
fn split(paragraph: &str, sentences: &mut Vec<Sentence>) {
    let characters: Vec<char> = paragraph.chars().collect();
    let mut begin = 0;
    for at in 0..characters.len() {
        let is_mark = matches!(characters[at], '.' | '!' | '?');
        let is_space = characters.get(at + 1).is_some_and(|next| next.is_whitespace());
        if is_mark && is_space {
            sentences.extend(Sentence::of(&characters[begin..=at].iter().collect::<String>()));
            begin = at + 1;
        }
    }
    sentences.extend(Sentence::of(&characters[begin..].iter().collect::<String>()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_are_told_from_code_headings_and_cells() {
        let text = "# A heading of words\n\nOne `x y z` is here. Two are\nthere: three words follow.\n\n```\nno no no no\n```\n\
            * A list item stands.\n\n| a cell of words | b |\n|---|---|\n";
        let found: Vec<(usize, String)> =
            sentences(text).into_iter().map(|one| (one.words, one.text)).collect();
        let expected = [
            (4, "One X is here."),
            (6, "Two are there: three words follow."),
            (4, "A list item stands."),
            (4, "a cell of words"),
        ];
        assert_eq!(found, expected.map(|(words, text)| (words, text.to_owned())));
    }

    #[test]
    fn long_and_describing_sentences_are_counted() {
        let long = vec!["word"; 40].join(" ");
        let text = format!("What it does is this. What is it for? {long}.");
        let figures = Figures::of(&sentences(&text));
        assert_eq!((figures.sentences, figures.describing, figures.nine_of_ten), (3, 1, 40));
        assert!(!figures.is_good());
    }

    #[test]
    fn target_of_a_link_is_no_word() {
        assert_eq!(plain("see [the map](docs/a_long_name.md) of *it*"), "see the map of it");
    }
}
