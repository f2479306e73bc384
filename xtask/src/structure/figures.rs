//! The figures of one crate, and their bounds.

use std::collections::{BTreeMap, BTreeSet};

use super::cycles::circles;
use super::parse::{Call, CrateSource, Method};
use super::paths::module_cycles;

/// Methods of one type: more are more than one job.
pub const METHODS_MAX: usize = 60;
/// Fields of one type that other files write: more are nobody's.
pub const WRITTEN_FIELDS_MAX: usize = 15;
/// Part of a crate's lines, in percent, whose files call each other in a circle.
pub const PERCENT_MAX: usize = 25;

/// The figures of a crate.
pub struct Figures {
    name: String,
    /// Lines of production code.
    pub lines: usize,
    /// All types with methods or visible fields, the largest first.
    pub types: Vec<TypeFigures>,
    /// The largest circle of files by calls of methods.
    pub circle: Option<Circle>,
    /// Cycles among modules with the same parent.
    pub module_cycles: Vec<String>,
}

/// One type.
pub struct TypeFigures {
    /// Its name.
    pub name: String,
    /// Methods in inherent implementations.
    pub methods: usize,
    /// Fields that files other than the one with the type write.
    pub written_fields: usize,
}

/// Files that call each other in a circle.
pub struct Circle {
    /// Their modules.
    pub files: Vec<String>,
    /// Their part of the crate's lines.
    pub percent: usize,
}

impl TypeFigures {
    /// True if a figure of the type is beyond its bound.
    pub fn is_beyond(&self) -> bool {
        self.methods > METHODS_MAX || self.written_fields > WRITTEN_FIELDS_MAX
    }
}

impl Figures {
    /// Counts the figures of a crate.
    pub fn of(source: &CrateSource) -> Figures {
        let lines = source.files.iter().map(|file| file.lines).sum();
        Figures {
            name: source.name.clone(),
            lines,
            types: types(source),
            circle: largest_circle(source, lines),
            module_cycles: module_cycles(source),
        }
    }

    /// Each figure beyond its bound, in words.
    pub fn excess(&self) -> Vec<String> {
        let name = &self.name;
        let mut excess = Vec::new();
        for one in &self.types {
            if one.methods > METHODS_MAX {
                excess.push(format!(
                    "{name}: {} has {} methods; {METHODS_MAX} is the most",
                    one.name, one.methods
                ));
            }
            if one.written_fields > WRITTEN_FIELDS_MAX {
                let count = one.written_fields;
                excess.push(format!(
                    "{name}: other files write {count} fields of {}; {WRITTEN_FIELDS_MAX} is the most",
                    one.name
                ));
            }
        }
        let circle = self.circle.iter().filter(|one| one.percent > PERCENT_MAX);
        excess.extend(circle.map(|one| {
            format!("{name}: {} files with {} % of the lines call each other in a circle; {PERCENT_MAX} % is the most", one.files.len(), one.percent)
        }));
        excess.extend(
            self.module_cycles.iter().map(|cycle| format!("{name}: modules name each other: {cycle}")),
        );
        excess
    }
}

fn types(source: &CrateSource) -> Vec<TypeFigures> {
    let mut methods: BTreeMap<&str, usize> = BTreeMap::new();
    let mut fields: BTreeMap<&str, usize> = BTreeMap::new();
    for file in &source.files {
        file.methods.iter().for_each(|method| *methods.entry(&method.of).or_default() += 1);
        for (name, of) in &file.fields {
            let others = source.files.iter().filter(|other| other.path != file.path);
            let written: BTreeSet<&String> = others.flat_map(|other| &other.writes).collect();
            fields.insert(name, of.iter().filter(|field| written.contains(field)).count());
        }
    }
    let names: BTreeSet<&str> = methods.keys().chain(fields.keys()).copied().collect();
    let mut types: Vec<TypeFigures> = names
        .into_iter()
        .map(|name| TypeFigures {
            name: name.to_owned(),
            methods: methods.get(name).copied().unwrap_or_default(),
            written_fields: fields.get(name).copied().unwrap_or_default(),
        })
        .collect();
    types.sort_by_key(|one| std::cmp::Reverse(one.methods + 4 * one.written_fields));
    types
}

/// The calls between the files of a crate, by the numbers of the files: caller, callee, and the methods.
/// A call counts if the files that can define its method are one.
pub fn calls(source: &CrateSource) -> Vec<(usize, usize, Vec<String>)> {
    let definitions = Definitions::of(source);
    let mut calls: BTreeMap<(usize, usize), BTreeSet<&str>> = BTreeMap::new();
    for (number, file) in source.files.iter().enumerate() {
        for call in &file.calls {
            if let Some(to) = definitions.file_of(call).filter(|to| *to != number) {
                calls.entry((number, to)).or_default().insert(&call.name);
            }
        }
    }
    let names = |methods: BTreeSet<&str>| methods.into_iter().map(str::to_owned).collect();
    calls.into_iter().map(|((from, to), methods)| (from, to, names(methods))).collect()
}

/// Methods of the standard library's types that methods of ours share the name with. Without types, a call on
/// a value of unknown type says nothing; calls by path still count.
const STANDARD_METHODS: [&str; 14] = [
    "contains", "drain", "extend", "find", "forget", "get", "insert", "next", "open", "position", "remove",
    "shutdown", "start", "take",
];

/// The files that define each method.
struct Definitions<'a> {
    /// By name and number of arguments, for calls on a value of unknown type.
    by_signature: BTreeMap<(&'a str, usize), BTreeSet<usize>>,
    by_type: BTreeMap<(&'a str, &'a str), BTreeSet<usize>>,
}

impl Definitions<'_> {
    fn of(source: &CrateSource) -> Definitions<'_> {
        let mut definitions = Definitions { by_signature: BTreeMap::new(), by_type: BTreeMap::new() };
        for (number, file) in source.files.iter().enumerate() {
            for Method { of, name, arguments } in &file.methods {
                definitions.by_type.entry((of, name)).or_default().insert(number);
                if let Some(arguments) = arguments {
                    definitions.by_signature.entry((name, *arguments)).or_default().insert(number);
                }
            }
        }
        definitions
    }

    fn file_of(&self, call: &Call) -> Option<usize> {
        let files = match (&call.of, call.arguments) {
            (Some(of), _) => self.by_type.get(&(of.as_str(), call.name.as_str())),
            (None, Some(_)) if STANDARD_METHODS.contains(&call.name.as_str()) => None,
            (None, Some(arguments)) => self.by_signature.get(&(call.name.as_str(), arguments)),
            (None, None) => None,
        };
        files.filter(|files| files.len() == 1).and_then(|files| files.first().copied())
    }
}

/// The circle with the most lines.
fn largest_circle(source: &CrateSource, lines: usize) -> Option<Circle> {
    let mut edges = vec![Vec::new(); source.files.len()];
    calls(source).into_iter().for_each(|(from, to, _)| edges[from].push(to));
    let size = |circle: &Vec<usize>| circle.iter().map(|file| source.files[*file].lines).sum::<usize>();
    let largest = circles(&edges).into_iter().max_by_key(size)?;
    let own = size(&largest);
    let files = largest.iter().map(|file| source.files[*file].module.join("::")).collect();
    Some(Circle { files, percent: own * 100 / lines.max(1) })
}
