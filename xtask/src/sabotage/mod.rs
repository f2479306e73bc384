//! Sabotage (`cargo xtask sabotage`): plants known faults in the production code, one at a time, and checks
//! that each is caught.
//!
//! A fault is a patch in `xtask/sabotage`, made of a header (see [`fault`]) and a unified diff. It is planted
//! in a clone of the committed tree, so that the working tree stays as it is. The commands that catch faults
//! must first pass in the clone without faults: a check that always fails catches nothing.

mod clone;
mod fault;

use std::collections::BTreeSet;

use anyhow::{Result, bail};

use crate::arguments::Arguments;
use crate::repository::repository_root;
use clone::{Clone, Outcome};
pub use fault::{FAULTS_FOLDER, Fault, read_all};

/// Plants the named faults, or all faults, and fails unless each is caught.
pub fn run(mut arguments: Arguments) -> Result<()> {
    let mut names = BTreeSet::new();
    while let Some(name) = arguments.word() {
        names.insert(name);
    }
    arguments.finish()?;
    let root = repository_root();
    let faults = chosen(read_all(&root)?, &names)?;
    let clone = Clone::of_head(&root)?;
    check_unharmed(&clone, &faults)?;
    let mut escaped = Vec::new();
    for fault in &faults {
        let verdict = plant(&clone, fault)?;
        println!("{}  {}: {}", if verdict.is_caught { "PASS" } else { "FAIL" }, fault.name, verdict.text);
        if !verdict.is_caught {
            escaped.push(fault.name.as_str());
        }
    }
    println!("{} of {} planted faults are caught", faults.len() - escaped.len(), faults.len());
    if !escaped.is_empty() {
        bail!("not caught: {}", escaped.join(", "));
    }
    Ok(())
}

/// Result of a planted fault.
struct Verdict {
    is_caught: bool,
    text: String,
}

fn chosen(all: Vec<Fault>, names: &BTreeSet<String>) -> Result<Vec<Fault>> {
    let known: BTreeSet<String> = all.iter().map(|fault| fault.name.clone()).collect();
    if let Some(unknown) = names.difference(&known).next() {
        let known = known.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        bail!("no fault is named '{unknown}' in {FAULTS_FOLDER}; these are: {known}");
    }
    Ok(all.into_iter().filter(|fault| names.is_empty() || names.contains(&fault.name)).collect())
}

/// Runs every command that catches a fault in the clone without faults.
fn check_unharmed(clone: &Clone, faults: &[Fault]) -> Result<()> {
    let commands: BTreeSet<&[String]> = faults.iter().map(|fault| fault.command.as_slice()).collect();
    for command in commands {
        match clone.cargo(command)? {
            Outcome::Passed => println!("good  cargo {} passes with nothing planted", command.join(" ")),
            outcome => bail!("cargo {} {outcome} with nothing planted", command.join(" ")),
        }
    }
    Ok(())
}

fn plant(clone: &Clone, fault: &Fault) -> Result<Verdict> {
    clone.apply(&fault.patch)?;
    let outcome = clone.cargo(&fault.command)?;
    clone.restore()?;
    let is_caught = matches!(outcome, Outcome::Failed);
    Ok(Verdict { is_caught, text: format!("cargo {} {outcome}", fault.command.join(" ")) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(name: &str) -> Fault {
        let text = format!("What: w\nCaught by: test -p a\n\n--- a/{name}\n+++ b/{name}\n");
        Fault::parse(name, &text).unwrap()
    }

    #[test]
    fn unknown_fault_is_refused_with_known_names() {
        let names = |list: &[&str]| list.iter().map(|name| name.to_string()).collect::<BTreeSet<_>>();
        let all = || vec![fault("one"), fault("two")];
        assert_eq!(chosen(all(), &names(&[])).unwrap().len(), 2);
        assert_eq!(chosen(all(), &names(&["two"])).unwrap()[0].name, "two");
        let error = chosen(all(), &names(&["three"])).unwrap_err().to_string();
        assert!(error.contains("'three'") && error.contains("one, two"), "{error}");
    }
}
