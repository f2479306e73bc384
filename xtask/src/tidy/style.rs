//! Style check: the countable part of the house style, which is lengths and words that must not be merged.

use anyhow::Result;

use super::source::Source;
use super::{Complaint, Tree};

/// Longest file in lines.
const FILE_LINES_MAX: usize = 800;
/// Longest function in lines, from `fn` to its closing brace.
const FUNCTION_LINES_MAX: usize = 70;
/// Functions that may be longer, as `path::function`, each with its reason. The list may only shrink.
const LONG_FUNCTIONS: [(&str, &str); 0] = [];
/// Macros that must not be merged.
const FORBIDDEN_MACROS: [&str; 3] = ["dbg", "todo", "unimplemented"];
/// Words that must not be merged, not even in comments. They are written in halves so that this file contains
/// none.
const FORBIDDEN_WORDS: [&str; 2] = [concat!("FIX", "ME"), concat!("XX", "X")];

/// Complains about every file that breaks a countable rule.
pub fn check(tree: &Tree) -> Result<Vec<Complaint>> {
    Ok(tree.sources.iter().flat_map(complaints_about).collect())
}

fn complaints_about(source: &Source) -> Vec<Complaint> {
    let mut complaints = long_functions(source);
    complaints.extend(forbidden_code(source));
    complaints.extend(forbidden_words(source));
    let line_count = source.text.lines().count();
    if line_count > FILE_LINES_MAX {
        let what = format!("file has {line_count} lines; {FILE_LINES_MAX} is the most");
        complaints.push(Complaint::at(&source.path, line_count, what));
    }
    complaints
}

fn long_functions(source: &Source) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for at in source.find(&["fn"]) {
        let (start, name) = (&source.tokens[at], source.tokens.get(at + 1).map_or("", |name| &name.text));
        let is_end = |text: &str| text == "}" || text == ";";
        let end = source.tokens[at..].iter().find(|token| token.depth == start.depth && is_end(&token.text));
        let line_count = end.map_or(0, |end| end.line - start.line + 1);
        let is_listed = LONG_FUNCTIONS.iter().any(|(known, _)| *known == format!("{}::{name}", source.path));
        if line_count > FUNCTION_LINES_MAX && !is_listed {
            let what = format!("function {name} has {line_count} lines; {FUNCTION_LINES_MAX} is the most");
            complaints.push(Complaint::at(&source.path, start.line, what));
        }
    }
    complaints
}

fn forbidden_code(source: &Source) -> Vec<Complaint> {
    let macros = FORBIDDEN_MACROS.iter().flat_map(|name| {
        source.find(&[*name, "!"]).map(|at| (at, format!("{name}! must not be merged"))).collect::<Vec<_>>()
    });
    let ignored =
        source.find(&["#", "[", "ignore"]).map(|at| (at, "tests are not ignored; skip loudly".to_owned()));
    macros
        .chain(ignored)
        .map(|(at, what)| Complaint::at(&source.path, source.tokens[at].line, what))
        .collect()
}

fn forbidden_words(source: &Source) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for (index, line) in source.text.lines().enumerate() {
        let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
        if let Some(word) = words.find(|word| FORBIDDEN_WORDS.contains(word)) {
            complaints.push(Complaint::at(&source.path, index + 1, format!("{word} must not be merged")));
        }
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(text: &str) -> usize {
        check(&Tree::of(&[("crates/weir/src/a.rs", text)])).unwrap().len()
    }

    #[test]
    fn lengths_are_counted() {
        assert_eq!(complaints(&format!("fn a() {{\n{}}}", "b();\n".repeat(68))), 0);
        assert_eq!(complaints(&format!("fn a() {{\n{}}}", "b();\n".repeat(69))), 1);
        assert_eq!(complaints(&"\n".repeat(801)), 1);
        assert_eq!(complaints("trait A { fn a(); }"), 0);
    }

    #[test]
    fn unfinished_code_is_found() {
        for text in ["fn a() { todo!() }", "fn a() { dbg!(1); }", "#[test]\n#[ignore]\nfn a() {}"] {
            assert_eq!(complaints(text), 1, "{text}");
        }
        assert_eq!(complaints(&format!("// {}: later", FORBIDDEN_WORDS[0])), 1);
    }
}
