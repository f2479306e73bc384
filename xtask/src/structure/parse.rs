//! The sources of a crate as structure sees them: files, modules, types with methods and fields, calls, and
//! writes to fields. Code that is compiled for tests alone is left out.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result};
use syn::spanned::Spanned;
use syn::visit::Visit;

/// Methods that change the field on which they are called.
const CHANGING: [&str; 22] = [
    "push",
    "insert",
    "remove",
    "clear",
    "retain",
    "extend",
    "take",
    "get_mut",
    "entry",
    "pop",
    "drain",
    "truncate",
    "pop_front",
    "push_back",
    "push_front",
    "append",
    "replace",
    "iter_mut",
    "values_mut",
    "swap_remove",
    "set",
    "add",
];

/// One crate.
pub struct CrateSource {
    /// Name of the package.
    pub name: String,
    /// Its files in the order of their paths.
    pub files: Vec<SourceFile>,
}

/// One file.
#[derive(Default)]
pub struct SourceFile {
    /// Path from the repository's root.
    pub path: String,
    /// Path of the module; empty for the root of the crate.
    pub module: Vec<String>,
    /// Lines of production code, with comments.
    pub lines: usize,
    /// First sentence of the module's documentation.
    pub sentence: String,
    /// Structs by name, with the names of their fields that other files can see.
    pub fields: BTreeMap<String, Vec<String>>,
    /// The methods that this file defines in inherent implementations.
    pub methods: Vec<Method>,
    /// The calls of methods.
    pub calls: BTreeSet<Call>,
    /// Names of fields that this file writes, through something other than `self`.
    pub writes: BTreeSet<String>,
    /// Paths that begin with `crate`, `super` or `self`.
    pub paths: BTreeSet<Vec<String>>,
    /// Names that this file exports from modules below it: name → module.
    pub exports: BTreeMap<String, String>,
}

/// One method of a type.
pub struct Method {
    /// The type.
    pub of: String,
    /// Name of the method.
    pub name: String,
    /// Number of arguments beside `self`; `None` if it has no `self`.
    pub arguments: Option<usize>,
}

/// One call of a method.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub struct Call {
    /// The type, if it is known.
    pub of: Option<String>,
    /// Name of the method.
    pub name: String,
    /// Number of arguments beside `self`. A call by path may pass `self` among its arguments.
    pub arguments: Option<usize>,
}

/// Reads all crates below `crates`.
pub fn read_crates(root: &Path) -> Result<Vec<CrateSource>> {
    let mut folders: Vec<_> = std::fs::read_dir(root.join("crates"))?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    folders.sort();
    let mut crates = Vec::new();
    for folder in folders {
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut files = Vec::new();
        read_folder(root, &folder.join("src"), &[], &mut files)?;
        crates.push(CrateSource { name, files });
    }
    Ok(crates)
}

fn read_folder(root: &Path, folder: &Path, module: &[String], files: &mut Vec<SourceFile>) -> Result<()> {
    let mut entries: Vec<_> =
        std::fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?;
    entries.sort();
    for path in entries {
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if matches!(stem.as_str(), "tests" | "testing") {
            continue;
        }
        let below = || module.iter().cloned().chain([stem.clone()]).collect::<Vec<_>>();
        if path.is_dir() {
            read_folder(root, &path, &below(), files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let module =
                if matches!(stem.as_str(), "lib" | "main" | "mod") { module.to_vec() } else { below() };
            let text = std::fs::read_to_string(&path)?;
            let path = path.strip_prefix(root).unwrap_or(&path).display().to_string();
            files.push(parse(&path, module, &text)?);
        }
    }
    Ok(())
}

/// Reads one file.
pub fn parse(path: &str, module: Vec<String>, text: &str) -> Result<SourceFile> {
    let parsed = syn::parse_file(text).with_context(|| format!("cannot parse {path}"))?;
    let mut file = SourceFile { path: path.to_owned(), module, ..SourceFile::default() };
    file.sentence = first_sentence(&parsed.attrs);
    let mut reader = Reader { file: &mut file, implemented: None, test_lines: 0 };
    reader.visit_file(&parsed);
    let test_lines = reader.test_lines;
    file.lines = text.lines().count() - test_lines;
    Ok(file)
}

fn first_sentence(attributes: &[syn::Attribute]) -> String {
    let mut text = String::new();
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("doc")) {
        if let syn::Meta::NameValue(syn::MetaNameValue { value: syn::Expr::Lit(literal), .. }) =
            &attribute.meta
            && let syn::Lit::Str(line) = &literal.lit
        {
            text.push_str(&line.value());
        }
    }
    let text = text.trim();
    text.split_once(". ").map_or(text.trim_end_matches('.'), |(first, _)| first).to_owned()
}

fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let text = match &attribute.meta {
            syn::Meta::List(list) if list.path.is_ident("cfg") => list.tokens.to_string(),
            _ => String::new(),
        };
        text == "test" || text.starts_with("any (test") || attribute.path().is_ident("test")
    })
}

/// Fills a file from its syntax.
struct Reader<'a> {
    file: &'a mut SourceFile,
    /// The type whose implementation is being read.
    implemented: Option<String>,
    test_lines: usize,
}

impl Reader<'_> {
    fn skip(&mut self, item: &impl Spanned) {
        let span = item.span();
        self.test_lines += span.end().line + 1 - span.start().line;
    }

    fn write_to(&mut self, target: &syn::Expr) {
        if let syn::Expr::Field(field) = target
            && let syn::Member::Named(name) = &field.member
        {
            let is_own = matches!(&*field.base, syn::Expr::Path(path) if path.path.is_ident("self"));
            if !is_own {
                self.file.writes.insert(name.to_string());
            }
        }
        if let syn::Expr::Index(index) = target {
            self.write_to(&index.expr);
        }
    }
}

fn type_name(of: &syn::Type) -> Option<String> {
    match of {
        syn::Type::Path(path) => path.path.segments.last().map(|segment| segment.ident.to_string()),
        _ => None,
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        let attributes = match item {
            syn::Item::Fn(one) => &one.attrs,
            syn::Item::Impl(one) => &one.attrs,
            syn::Item::Mod(one) => &one.attrs,
            syn::Item::Struct(one) => &one.attrs,
            syn::Item::Use(one) => &one.attrs,
            _ => return syn::visit::visit_item(self, item),
        };
        match is_test(attributes) {
            true => self.skip(item),
            false => syn::visit::visit_item(self, item),
        }
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        let is_seen = |field: &&syn::Field| !matches!(field.vis, syn::Visibility::Inherited);
        let fields = item.fields.iter().filter(is_seen).filter_map(|field| field.ident.as_ref());
        self.file.fields.insert(item.ident.to_string(), fields.map(ToString::to_string).collect());
        syn::visit::visit_item_struct(self, item);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let before = std::mem::replace(&mut self.implemented, type_name(&item.self_ty));
        if let (None, Some(name)) = (&item.trait_, self.implemented.clone()) {
            for one in &item.items {
                if let syn::ImplItem::Fn(method) = one
                    && !is_test(&method.attrs)
                {
                    let (of, own) = (name.clone(), &method.sig);
                    let arguments = own.receiver().map(|_| own.inputs.len() - 1);
                    self.file.methods.push(Method { of, name: own.ident.to_string(), arguments });
                }
            }
        }
        syn::visit::visit_item_impl(self, item);
        self.implemented = before;
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let mut all = Vec::new();
        flatten(&item.tree, &mut Vec::new(), &mut all);
        let is_export = !matches!(item.vis, syn::Visibility::Inherited);
        for path in all {
            if let (true, [module, .., name]) = (is_export, path.as_slice()) {
                self.file.exports.insert(name.clone(), module.clone());
            }
            if matches!(path[0].as_str(), "crate" | "super" | "self") {
                self.file.paths.insert(path);
            }
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if names.len() > 1 && matches!(names[0].as_str(), "crate" | "super" | "self") {
            self.file.paths.insert(names);
        }
        syn::visit::visit_path(self, path);
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        let is_own = matches!(&*call.receiver, syn::Expr::Path(path) if path.path.is_ident("self"));
        let of = self.implemented.clone().filter(|_| is_own);
        let name = call.method.to_string();
        if CHANGING.contains(&name.as_str()) {
            self.write_to(&call.receiver);
        }
        self.file.calls.insert(Call { of, name, arguments: Some(call.args.len()) });
        syn::visit::visit_expr_method_call(self, call);
    }

    fn visit_expr_path(&mut self, path: &'ast syn::ExprPath) {
        let segments: Vec<_> = path.path.segments.iter().collect();
        if let [.., of, name] = segments.as_slice() {
            let of = of.ident.to_string();
            let of = if of == "Self" { self.implemented.clone() } else { Some(of) };
            self.file.calls.insert(Call { of, name: name.ident.to_string(), arguments: None });
        }
        syn::visit::visit_expr_path(self, path);
    }

    fn visit_expr_assign(&mut self, assign: &'ast syn::ExprAssign) {
        match &*assign.left {
            syn::Expr::Tuple(tuple) => tuple.elems.iter().for_each(|one| self.write_to(one)),
            one => self.write_to(one),
        }
        syn::visit::visit_expr_assign(self, assign);
    }

    fn visit_expr_binary(&mut self, binary: &'ast syn::ExprBinary) {
        use syn::BinOp::{AddAssign, BitAndAssign, BitOrAssign, DivAssign, MulAssign, SubAssign};
        if matches!(
            binary.op,
            AddAssign(_) | SubAssign(_) | MulAssign(_) | DivAssign(_) | BitOrAssign(_) | BitAndAssign(_)
        ) {
            self.write_to(&binary.left);
        }
        syn::visit::visit_expr_binary(self, binary);
    }

    fn visit_expr_reference(&mut self, reference: &'ast syn::ExprReference) {
        if reference.mutability.is_some() {
            self.write_to(&reference.expr);
        }
        syn::visit::visit_expr_reference(self, reference);
    }
}

fn flatten(tree: &syn::UseTree, prefix: &mut Vec<String>, all: &mut Vec<Vec<String>>) {
    match tree {
        syn::UseTree::Path(path) => {
            prefix.push(path.ident.to_string());
            flatten(&path.tree, prefix, all);
            prefix.pop();
        }
        syn::UseTree::Group(group) => group.items.iter().for_each(|item| flatten(item, prefix, all)),
        syn::UseTree::Name(name) => {
            all.push(prefix.iter().cloned().chain([name.ident.to_string()]).collect())
        }
        syn::UseTree::Rename(name) => {
            all.push(prefix.iter().cloned().chain([name.ident.to_string()]).collect());
        }
        syn::UseTree::Glob(_) if !prefix.is_empty() => all.push(prefix.clone()),
        syn::UseTree::Glob(_) => {}
    }
}
