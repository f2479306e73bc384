//! Tidy (`cargo xtask tidy`): checks that reviewers need not make by hand.
//!
//! Each check is a module with a function from the tree to complaints, and a test that shows that the check
//! can fail.

mod clocks;
mod dependencies;
mod description;
mod edges;
mod faults;
mod files;
mod links;
mod programs;
mod promises;
mod purity;
mod source;
mod structure;
mod style;
mod terms;
mod tests_index;
mod unsafety;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::arguments::Arguments;
use crate::repository::repository_root;
use source::Source;

/// Crates that decide and must not know the world: no clock, thread, socket, file or hash order.
pub const PURE_CRATES: [&str; 8] = [
    "weir-fuse",
    "weir-journal",
    "weir-nbd",
    "weir-plan",
    "weir-qos",
    "weir-replay",
    "weir-types",
    "weir-volume",
];

/// Repository as the checks see it.
pub struct Tree {
    root: PathBuf,
    sources: Vec<Source>,
    documents: Vec<Document>,
}

/// Document, or the description of the API.
pub struct Document {
    /// Path from the repository's root.
    path: String,
    text: String,
}

/// One fault, in one line with its location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaint(String);

impl Complaint {
    fn at(path: &str, line: usize, what: impl std::fmt::Display) -> Complaint {
        Complaint(format!("{path}:{line}: {what}"))
    }
}

type Check = fn(&Tree) -> Result<Vec<Complaint>>;

/// Number of checks, from the first on, that look at sources alone.
const SOURCE_CHECKS: usize = 12;

const CHECKS: [(&str, Check); 16] = [
    ("crate edges", edges::check),
    ("unsafe code", unsafety::check),
    ("purity", purity::check),
    ("promises", promises::check),
    ("house style", style::check),
    ("structure", structure::check),
    ("terms", terms::check),
    ("clocks in tests", clocks::check),
    ("interface description", description::check),
    ("planted faults", faults::check),
    ("links", links::check),
    ("files", files::check),
    ("dependencies", dependencies::check),
    ("formatting", programs::check_formatting),
    ("lints", programs::check_lints),
    ("purity, as the compiler sees it", programs::check_purity),
];

/// Runs all checks, prints the complaints, and fails if there are any. With `--list-tests`, lists the tests
/// that a promise may name.
pub fn run(mut arguments: Arguments) -> Result<()> {
    let is_quick = arguments.flag("--sources-only");
    let is_list = arguments.flag("--list-tests");
    arguments.finish()?;
    let tree = Tree::read(repository_root())?;
    if is_list {
        tests_index::test_paths(&tree.sources).iter().for_each(|path| println!("{path}"));
        return Ok(());
    }
    let mut complaint_count = 0;
    for (name, check) in CHECKS.iter().take(if is_quick { SOURCE_CHECKS } else { CHECKS.len() }) {
        let complaints = check(&tree).with_context(|| format!("cannot check {name}"))?;
        println!("tidy: {name}: {}", if complaints.is_empty() { "good" } else { "NOT GOOD" });
        complaints.iter().for_each(|complaint| println!("  {}", complaint.0));
        complaint_count += complaints.len();
    }
    if complaint_count > 0 {
        bail!("{complaint_count} complaints");
    }
    Ok(())
}

impl Tree {
    fn read(root: PathBuf) -> Result<Tree> {
        let mut sources = Vec::new();
        for folder in ["crates", "fuzz", "xtask"] {
            collect_sources(&root, &root.join(folder), &mut sources)?;
        }
        sources.sort_by(|a, b| a.path.cmp(&b.path));
        let documents = read_documents(&root)?;
        Ok(Tree { root, sources, documents })
    }

    #[cfg(test)]
    fn of(files: &[(&str, &str)]) -> Tree {
        let sources = files.iter().map(|(path, text)| Source::parse(path, text).unwrap()).collect();
        Tree { root: PathBuf::new(), sources, documents: Vec::new() }
    }
}

/// Returns the documents at the root and below `docs`, in order.
fn read_documents(root: &Path) -> Result<Vec<Document>> {
    let mut paths = Vec::new();
    let mut folders = vec![root.join("docs")];
    let is_document = |path: &Path| {
        path.extension().is_some_and(|extension| extension == "md")
            || path.file_name().is_some_and(|name| name == "openapi.json")
    };
    for entry in std::fs::read_dir(root)? {
        paths.push(entry?.path());
    }
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_dir() { folders.push(path) } else { paths.push(path) }
        }
    }
    paths.retain(|path| is_document(path));
    paths.sort();
    let read = |path: PathBuf| {
        let name = path.strip_prefix(root)?.to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {name}"))?;
        Ok(Document { path: name, text })
    };
    paths.into_iter().map(read).collect()
}

fn collect_sources(root: &Path, folder: &Path, sources: &mut Vec<Source>) -> Result<()> {
    if !folder.is_dir() {
        return Ok(());
    }
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            if !path.ends_with("target") {
                collect_sources(root, &path, sources)?;
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path)?;
            let name = path.strip_prefix(root)?.to_string_lossy().into_owned();
            sources.push(Source::parse(&name, &text).with_context(|| format!("cannot read {name}"))?);
        }
    }
    Ok(())
}
