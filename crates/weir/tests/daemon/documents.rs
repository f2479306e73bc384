//! Documents: every command of the how-to guides works as it is printed.
//!
//! Each page has a daemon of its own and an explicit preparation (`documents/pages.rs`). Its commands run in
//! their order. A command that cannot run here is listed there, with the reason and the test that covers it.
//! `WEIR_PAGE` runs one page alone.

mod pages;
mod printed;
mod world;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use pages::{PAGES, Page};
use world::World;

/// Number of pages that run at once. Most of their time is waiting.
const PAGES_AT_ONCE: usize = 4;
/// Programs that the commands use.
const PROGRAMS: [&str; 6] = ["curl", "install", "nbdcopy", "nbdinfo", "openssl", "qemu-system-x86_64"];

#[test]
fn every_command_of_the_how_to_guides_works_as_printed() {
    if !crate::common::program::has(&PROGRAMS) {
        return;
    }
    let wanted = std::env::var("WEIR_PAGE").ok();
    let is_wanted = |page: &&Page| wanted.as_deref().is_none_or(|wanted| wanted == page.name);
    let waiting = Mutex::new(PAGES.iter().filter(is_wanted));
    let failures = AtomicUsize::new(0);
    let work = || {
        while let Some(page) = next(&waiting) {
            if std::panic::catch_unwind(|| run(page)).is_err() {
                eprintln!("the page {}.md does not work as printed", page.name);
                failures.fetch_add(1, Ordering::Relaxed);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..PAGES_AT_ONCE {
            scope.spawn(work);
        }
    });
    assert_eq!(failures.into_inner(), 0, "pages do not work as printed");
}

fn next<'pages>(waiting: &Mutex<impl Iterator<Item = &'pages Page>>) -> Option<&'pages Page> {
    waiting.lock().unwrap().next()
}

/// Runs all commands of a page.
fn run(page: &Page) {
    let attaches = printed::commands(page.name).iter().any(|command| command.starts_with("weir attach "));
    let _alone = attaches.then(crate::common::attached::alone);
    let mut world = World::new(page);
    page.preparation.iter().for_each(|step| world.take(step));
    for command in printed::commands(page.name) {
        if page.passed_over.iter().any(|passed| passed.command == command) {
            continue;
        }
        let before = page.before.iter().filter(|(at, _)| *at == command);
        before.flat_map(|(_, steps)| *steps).for_each(|step| world.take(step));
        world.run(&command);
    }
    world.end();
}

#[test]
fn every_page_with_commands_has_a_preparation() {
    for name in printed::pages() {
        let is_prepared = PAGES.iter().any(|page| page.name == name);
        assert_eq!(
            !printed::commands(&name).is_empty(),
            is_prepared,
            "{name}.md and the list of pages differ"
        );
    }
}

#[test]
fn every_listed_command_is_on_its_page() {
    for page in &PAGES {
        let commands = printed::commands(page.name);
        let listed = page.passed_over.iter().map(|passed| passed.command);
        for command in listed.chain(page.before.iter().map(|(at, _)| *at)) {
            assert!(commands.iter().any(|printed| printed == command), "{}.md has no '{command}'", page.name);
        }
        for (from, _) in page.replaced {
            assert!(
                commands.iter().any(|printed| printed.contains(from)),
                "{}.md has no '{from}'",
                page.name
            );
        }
    }
}

#[test]
fn every_command_that_is_passed_over_names_a_test_that_exists() {
    for passed in PAGES.iter().flat_map(|page| page.passed_over) {
        assert!(!passed.reason.is_empty(), "{} has no reason", passed.command);
        let (file, text) = match passed.covered_by.split_once("::") {
            None if passed.covered_by == pages::NONE => continue,
            None => panic!("{} is no test", passed.covered_by),
            Some(("guest", case)) => ("../../xtask/src/guest/cases/mod.rs".to_owned(), format!("\"{case}\"")),
            Some((module, test)) => (format!("tests/daemon/{module}.rs"), format!("fn {test}()")),
        };
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
        let source = std::fs::read_to_string(&path).unwrap();
        assert!(source.contains(&text), "{} has no {text}", path.display());
    }
}
