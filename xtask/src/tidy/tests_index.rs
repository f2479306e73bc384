//! Index of tests: every test in the tree, with the path under which a promise may name it.

use super::source::{Source, end_of_item};

/// Returns all tests as `crate::module::…::name` or, for integration tests, `file::…::name`. Modules called
/// `tests` are left out, since they add no information.
pub fn test_paths(sources: &[Source]) -> Vec<String> {
    sources.iter().flat_map(tests_of).collect()
}

fn tests_of(source: &Source) -> Vec<String> {
    let prefix = file_path(&source.path);
    let mut modules: Vec<(String, usize)> = Vec::new();
    let mut is_test = false;
    let mut paths = Vec::new();
    for (at, token) in source.tokens.iter().enumerate() {
        modules.retain(|(_, end)| at < *end);
        let next = || source.tokens.get(at + 1).map_or(String::new(), |next| next.text.clone());
        if source.begins(at, &["#", "[", "test", "]"]) {
            is_test = true;
        } else if token.text == "mod" && source.tokens.get(at + 2).is_some_and(|brace| brace.text == "{") {
            modules.push((next(), end_of_item(&source.tokens, at, token.depth)));
        } else if token.text == "fn" && is_test {
            is_test = false;
            let inner = modules.iter().map(|(name, _)| name.clone());
            let path: Vec<String> = prefix.iter().cloned().chain(inner).chain([next()]).collect();
            paths.push(normalise(&path));
        }
    }
    paths
}

/// Returns the path of a file: `crates/weir-qos/src/a/b.rs` is `weir_qos::a::b`, and
/// `crates/weir/tests/e2e.rs` is `e2e`.
fn file_path(path: &str) -> Vec<String> {
    let path = path.strip_prefix("crates/").unwrap_or(path).trim_end_matches(".rs");
    let parts: Vec<&str> = path.split('/').collect();
    let rest = |from: usize| parts[from..].iter().map(|part| (*part).to_owned());
    match parts.get(1) {
        Some(&"src") => [parts[0].replace('-', "_")].into_iter().chain(rest(2)).collect(),
        Some(_) => rest(2).collect(),
        None => rest(0).collect(),
    }
}

/// Leaves out the parts of a path that add no information.
pub fn normalise(path: &[String]) -> String {
    let says_something = |part: &&String| !matches!(part.as_str(), "tests" | "mod" | "lib" | "main");
    path.iter().filter(says_something).cloned().collect::<Vec<_>>().join("::")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(path: &str, text: &str) -> Vec<String> {
        test_paths(&[Source::parse(path, text).unwrap()])
    }

    #[test]
    fn tests_are_found_in_all_modules() {
        let text =
            "mod inner { #[test] fn one() {} }\n#[test]\nfn two() { fn helper() {} }\nfn not_a_test() {}";
        assert_eq!(
            paths("crates/weir-qos/src/a/mod.rs", text),
            ["weir_qos::a::inner::one", "weir_qos::a::two"]
        );
        let text = "proptest! { #[test] fn three(x in 0..1) {} }";
        assert_eq!(paths("crates/weir/tests/e2e.rs", text), ["e2e::three"]);
        assert_eq!(paths("crates/weir/tests/e2e/main.rs", text), ["e2e::three"]);
    }
}
