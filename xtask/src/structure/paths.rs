//! The graph of modules: which modules of one parent name each other.

use std::collections::{BTreeMap, BTreeSet};

use super::cycles::circles;
use super::parse::CrateSource;

type Module = Vec<String>;

/// Cycles among the children of each module, in words.
pub fn module_cycles(source: &CrateSource) -> Vec<String> {
    let modules: BTreeSet<Module> = source.files.iter().map(|file| file.module.clone()).collect();
    // Edges among the children of each parent.
    let mut edges: BTreeMap<Module, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
    for file in &source.files {
        for path in &file.paths {
            let Some(target) = resolve(source, &modules, &file.module, path) else { continue };
            let shared = file.module.iter().zip(&target).take_while(|(a, b)| a == b).count();
            if let (Some(from), Some(to)) = (file.module.get(shared), target.get(shared)) {
                let parent = edges.entry(file.module[..shared].to_vec()).or_default();
                parent.entry(from.clone()).or_default().insert(to.clone());
            }
        }
    }
    edges.iter().flat_map(|(parent, children)| cycles_among(parent, children)).collect()
}

fn cycles_among(parent: &Module, children: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let names: Vec<&String> =
        children.keys().chain(children.values().flatten()).collect::<BTreeSet<_>>().into_iter().collect();
    let number = |name: &String| names.iter().position(|one| *one == name).expect("each name has a number");
    let edges: Vec<Vec<usize>> =
        names.iter().map(|name| children.get(*name).into_iter().flatten().map(number).collect()).collect();
    let words = |circle: Vec<usize>| {
        let members: Vec<&str> = circle.iter().map(|member| names[*member].as_str()).collect();
        format!(
            "in {}: {}",
            if parent.is_empty() { "the root".to_owned() } else { parent.join("::") },
            members.join(" ")
        )
    };
    circles(&edges).into_iter().map(words).collect()
}

/// The deepest known module that a path leads to. A name that a module exports from below leads there.
fn resolve(
    source: &CrateSource,
    modules: &BTreeSet<Module>,
    from: &Module,
    path: &[String],
) -> Option<Module> {
    let mut at = from.clone();
    let mut rest = path.iter().peekable();
    while let Some(name) = rest.peek() {
        match name.as_str() {
            "crate" => at = Vec::new(),
            "self" => {}
            "super" => _ = at.pop(),
            _ => break,
        }
        rest.next();
    }
    for name in rest {
        let below: Module = at.iter().cloned().chain([name.clone()]).collect();
        if modules.contains(&below) {
            at = below;
            continue;
        }
        let exports =
            source.files.iter().filter(|file| file.module == at).find_map(|file| file.exports.get(name));
        if let Some(exported) = exports {
            let below: Module = at.iter().cloned().chain([exported.clone()]).collect();
            if modules.contains(&below) {
                at = below;
            }
        }
        break;
    }
    modules.contains(&at).then_some(at)
}
