//! `cargo xtask structure`: the tree of modules with the first sentence of each file, and the figures that keep
//! it simple: large types, cycles of modules, and groups of files that call each other in a circle.

mod cycles;
mod figures;
mod map;
mod parse;
mod paths;

use std::path::Path;

use anyhow::{Result, bail};

use crate::arguments::Arguments;
use crate::repository::repository_root;
use figures::{Figures, METHODS_MAX, PERCENT_MAX, TypeFigures, WRITTEN_FIELDS_MAX};
use parse::CrateSource;

/// Prints tree and figures of every crate, or of one. Fails if a bound is exceeded. With `--map`, prints the map
/// alone.
pub fn run(mut arguments: Arguments) -> Result<()> {
    let (is_map, is_calls) = (arguments.flag("--map"), arguments.flag("--calls"));
    let wanted = arguments.word();
    arguments.finish()?;
    let crates = parse::read_crates(&repository_root())?;
    if is_map {
        print!("{}", map::map(&crates));
        return Ok(());
    }
    let mut excess = 0;
    for source in crates.iter().filter(|source| wanted.as_ref().is_none_or(|name| *name == source.name)) {
        let figures = Figures::of(source);
        print_tree(source);
        if is_calls {
            print_calls(source);
        }
        print_figures(source, &figures);
        figures.excess().iter().for_each(|fault| println!("  BEYOND: {fault}"));
        excess += figures.excess().len();
    }
    if excess > 0 {
        bail!("{excess} figures are beyond their bound");
    }
    Ok(())
}

/// Each figure of a crate that is beyond its bound, in words.
///
/// # Errors
/// If a source cannot be read.
pub fn excess(root: &Path) -> Result<Vec<String>> {
    let crates = parse::read_crates(root)?;
    Ok(crates.iter().flat_map(|source| Figures::of(source).excess()).collect())
}

/// The map of the crates, as ARCHITECTURE.md has it.
///
/// # Errors
/// If a source cannot be read.
pub fn map(root: &Path) -> Result<String> {
    Ok(map::map(&parse::read_crates(root)?))
}

fn print_tree(source: &CrateSource) {
    for file in &source.files {
        let depth = file.module.len();
        let name = file.path.strip_prefix(&format!("crates/{}/src/", source.name)).unwrap_or(&file.path);
        println!("{:indent$}{name} ({}): {}", "", file.lines, file.sentence, indent = depth * 2);
    }
}

fn print_calls(source: &CrateSource) {
    let name = |file: usize| source.files[file].module.join("::");
    for (from, to, methods) in figures::calls(source) {
        println!("  {} -> {}: {}", name(from), name(to), methods.join(" "));
    }
}

fn print_figures(source: &CrateSource, figures: &Figures) {
    println!("{}: {} lines in {} files", source.name, figures.lines, source.files.len());
    let is_shown = |(place, one): &(usize, &TypeFigures)| *place < 3 || one.is_beyond();
    for (_, one) in figures.types.iter().enumerate().filter(is_shown) {
        println!(
            "  {}: {} methods (at most {METHODS_MAX}), {} fields that other files write (at most \
             {WRITTEN_FIELDS_MAX})",
            one.name, one.methods, one.written_fields
        );
    }
    if let Some(circle) = &figures.circle {
        println!(
            "  largest circle of calls: {} files, {} % of the lines (at most {PERCENT_MAX} %): {}",
            circle.files.len(),
            circle.percent,
            circle.files.join(" ")
        );
    }
    for cycle in &figures.module_cycles {
        println!("  cycle of modules: {cycle}");
    }
}
