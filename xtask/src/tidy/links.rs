//! Link check: each link of a document leads to a file of the repository, and to a heading of it.
//!
//! Links to other sites are not looked at: tidy must give the same answer without a network.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use anyhow::Result;
use pulldown_cmark::{Event, Parser, Tag, TagEnd};

use super::{Complaint, Document, Tree};

/// Complains about every link that leads nowhere.
pub fn check(tree: &Tree) -> Result<Vec<Complaint>> {
    let pages = tree.documents.iter().filter(|document| document.path.ends_with(".md"));
    Ok(complaints(pages, |path| tree.root.join(path).exists()))
}

/// What a page has for links.
struct Page<'a> {
    path: &'a str,
    /// Names of the headings, as links use them after `#`.
    anchors: BTreeSet<String>,
    /// Targets of the links with their lines.
    links: Vec<(usize, String)>,
}

fn complaints<'a>(
    documents: impl Iterator<Item = &'a Document>,
    exists: impl Fn(&Path) -> bool,
) -> Vec<Complaint> {
    let pages: Vec<Page<'_>> = documents.map(read).collect();
    let anchors: BTreeMap<&str, &BTreeSet<String>> =
        pages.iter().map(|page| (page.path, &page.anchors)).collect();
    let fault = |page: &Page<'_>, target: &str| {
        let (file, anchor) = target.split_once('#').map_or((target, None), |(file, at)| (file, Some(at)));
        let path = if file.is_empty() { PathBuf::from(page.path) } else { joined(page.path, file) };
        if !exists(&path) {
            return Some(format!("'{target}' leads to no file"));
        }
        let known = path.to_str().and_then(|path| anchors.get(path));
        let is_heading = |anchor| known.is_some_and(|anchors| anchors.contains(anchor));
        let is_lost = anchor.is_some_and(|anchor| !is_heading(anchor));
        is_lost.then(|| format!("'{target}' leads to no heading"))
    };
    let faults = pages.iter().flat_map(|page| {
        let inside = page.links.iter().filter(|(_, target)| !target.contains(':'));
        inside.filter_map(|(line, target)| {
            fault(page, target).map(|what| Complaint::at(page.path, *line, what))
        })
    });
    faults.collect()
}

fn read(document: &Document) -> Page<'_> {
    let mut page = Page { path: &document.path, anchors: BTreeSet::new(), links: Vec::new() };
    let mut heading: Option<String> = None;
    for (event, range) in Parser::new(&document.text).into_offset_iter() {
        match event {
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::End(TagEnd::Heading(_)) => {
                let name = anchor(&heading.take().unwrap_or_default());
                add_anchor(&mut page.anchors, name);
            }
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                let line = document.text[..range.start].matches('\n').count() + 1;
                page.links.push((line, dest_url.into_string()));
            }
            Event::Text(text) | Event::Code(text) => {
                if let Some(heading) = &mut heading {
                    heading.push_str(&text);
                }
            }
            _ => {}
        }
    }
    page
}

/// Name of a heading in links, as GitHub makes it: small letters, a hyphen for each space, and no other signs.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|sign| sign.is_alphanumeric() || matches!(sign, ' ' | '-' | '_'));
    kept.map(|sign| if sign == ' ' { '-' } else { sign }).collect::<String>().to_lowercase()
}

/// The second heading of a name gets `-1`, the third `-2`.
fn add_anchor(anchors: &mut BTreeSet<String>, name: String) {
    if !anchors.contains(&name) {
        anchors.insert(name);
        return;
    }
    let next = (1..).map(|number| format!("{name}-{number}")).find(|name| !anchors.contains(name));
    anchors.extend(next);
}

/// The path of a link from a page, without `..`.
fn joined(page: &str, link: &str) -> PathBuf {
    let folder = Path::new(page).parent().unwrap_or(Path::new(""));
    let mut path = PathBuf::new();
    for part in folder.join(link).components() {
        match part {
            Component::ParentDir => _ = path.pop(),
            Component::CurDir => {}
            part => path.push(part),
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str) -> Vec<String> {
        let page = |path: &str, text: &str| Document { path: path.to_owned(), text: text.to_owned() };
        let other = "# One `day`, or 2\n\n## Again\n\n## Again\n\n```sh\n# no heading\n```\n";
        let documents = [page("docs/a/page.md", text), page("docs/other.md", other)];
        let paths = ["docs/a/page.md", "docs/other.md", "src/main.rs"];
        let found = complaints(documents.iter(), |path| paths.contains(&path.to_str().unwrap()));
        found.into_iter().map(|complaint| complaint.0).collect()
    }

    #[test]
    fn links_to_files_and_headings_pass() {
        let text = "# Here\n[a](../other.md) [b](../other.md#one-day-or-2) [c](../other.md#again-1) \
                    [d](#here) [e](../../src/main.rs) [f](https://example.org/x#y)\n\n`[g](lost.md)`\n";
        assert_eq!(told(text), [""; 0]);
    }

    #[test]
    fn links_that_lead_nowhere_are_found() {
        let text = "# Here\n\n[a](other.md)\n[b](../other.md#no-heading) [c](#there)\n";
        assert_eq!(
            told(text),
            [
                "docs/a/page.md:3: 'other.md' leads to no file",
                "docs/a/page.md:4: '../other.md#no-heading' leads to no heading",
                "docs/a/page.md:4: '#there' leads to no heading"
            ]
        );
    }
}
