//! Source file as a flat list of tokens with their lines.
//!
//! Comments and strings therefore never confuse a check, and code under `#[cfg(test)]` differs from
//! production code.

use anyhow::{Result, anyhow};
use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// One file.
pub struct Source {
    /// Path from the repository's root.
    pub path: String,
    /// Text of the file.
    pub text: String,
    /// Tokens in order. Groups appear as their opening and closing characters.
    pub tokens: Vec<Token>,
}

/// One token.
#[derive(Debug)]
pub struct Token {
    /// Text of the token. A literal is replaced by `"`, since no check may look into literals.
    pub text: String,
    /// Line, counting from 1.
    pub line: usize,
    /// Number of groups that enclose the token.
    pub depth: usize,
    /// True if the token is compiled only for tests.
    pub is_test: bool,
}

impl Source {
    /// Reads the tokens of a file.
    pub fn parse(path: &str, text: &str) -> Result<Source> {
        let stream: TokenStream = text.parse().map_err(|error| anyhow!("{path}: {error}"))?;
        let mut tokens = Vec::new();
        flatten(stream, 0, &mut tokens);
        let is_test_file = path.contains("/tests/") || path.ends_with("/tests.rs");
        mark_tests(&mut tokens, is_test_file);
        Ok(Source { path: path.to_owned(), text: text.to_owned(), tokens })
    }

    /// Returns the name of the package that the file belongs to, by its folder.
    pub fn package(&self) -> &str {
        let path = self.path.strip_prefix("crates/").unwrap_or(&self.path);
        path.split('/').next().unwrap_or_default()
    }

    /// Returns the positions in [`Self::tokens`] at which a sequence of tokens begins.
    pub fn find<'a>(&'a self, sequence: &'a [&'a str]) -> impl Iterator<Item = usize> + 'a {
        (0..self.tokens.len()).filter(|&at| self.begins(at, sequence))
    }

    /// Returns true if a sequence of tokens begins at a position.
    pub fn begins(&self, at: usize, sequence: &[&str]) -> bool {
        begins(&self.tokens, at, sequence)
    }
}

fn begins(tokens: &[Token], at: usize, sequence: &[&str]) -> bool {
    tokens.len() >= at + sequence.len()
        && sequence.iter().zip(&tokens[at..]).all(|(wanted, token)| *wanted == token.text)
}

fn flatten(stream: TokenStream, depth: usize, tokens: &mut Vec<Token>) {
    for tree in stream {
        let line = tree.span().start().line;
        let mut push = |text: &str, line: usize| {
            tokens.push(Token { text: text.to_owned(), line, depth, is_test: false });
        };
        match tree {
            TokenTree::Ident(ident) => push(&ident.to_string(), line),
            TokenTree::Punct(punct) => push(punct.as_char().encode_utf8(&mut [0; 4]), line),
            TokenTree::Literal(_) => push("\"", line),
            TokenTree::Group(group) => {
                let (open, close) = brackets(group.delimiter());
                push(open, line);
                flatten(group.stream(), depth + 1, tokens);
                let line = group.span_close().end().line;
                tokens.push(Token { text: close.to_owned(), line, depth, is_test: false });
            }
        }
    }
}

fn brackets(delimiter: Delimiter) -> (&'static str, &'static str) {
    match delimiter {
        Delimiter::Brace => ("{", "}"),
        Delimiter::Bracket => ("[", "]"),
        Delimiter::Parenthesis => ("(", ")"),
        Delimiter::None => ("", ""),
    }
}

/// Marks the items that follow `#[cfg(test)]`, or everything in a file of tests.
fn mark_tests(tokens: &mut [Token], is_test_file: bool) {
    if is_test_file {
        tokens.iter_mut().for_each(|token| token.is_test = true);
        return;
    }
    let mut at = 0;
    while at < tokens.len() {
        if !begins(tokens, at, &["#", "[", "cfg", "(", "test", ")", "]"]) {
            at += 1;
            continue;
        }
        let end = end_of_item(tokens, at + 7, tokens[at].depth);
        tokens[at..end].iter_mut().for_each(|token| token.is_test = true);
        at = end;
    }
}

/// Returns the position after the item that begins at `from`: after its closing brace or semicolon.
pub fn end_of_item(tokens: &[Token], from: usize, depth: usize) -> usize {
    let is_end = |token: &Token| token.depth == depth && matches!(token.text.as_str(), "}" | ";");
    tokens[from..].iter().position(is_end).map_or(tokens.len(), |found| from + found + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_strings_are_no_code_and_tests_are_marked() {
        let text =
            "// unsafe\nfn a() { let s = \"unsafe\"; }\n#[cfg(test)]\nmod tests { fn b() {} }\nfn c() {}";
        let source = Source::parse("crates/weir-qos/src/lib.rs", text).unwrap();
        assert_eq!(source.package(), "weir-qos");
        assert_eq!(source.find(&["unsafe"]).count(), 0);
        let is_test = |name| source.tokens[source.find(&["fn", name]).next().unwrap()].is_test;
        assert!(!is_test("a") && is_test("b") && !is_test("c"));
        assert_eq!(source.tokens.last().unwrap().line, 5);
    }

    #[test]
    fn file_in_tests_folder_is_all_test_code() {
        let source = Source::parse("crates/weir/tests/e2e.rs", "fn a() {}").unwrap();
        assert!(source.tokens.iter().all(|token| token.is_test));
    }
}
