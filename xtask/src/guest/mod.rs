//! Guest cases (`cargo xtask guest`): cases that need a kernel whose drives fail, delay writes and count
//! flushes on demand.
//!
//! Each case boots its own guest. A guest has Debian's kernel, an initramfs with the daemon, the ring's tests
//! and this program, and two empty disks. In the guest this program runs the case (`guest-case`) and prints
//! whether it holds.

mod cases;
mod client;
mod commands;
mod image;
mod inside;
mod kernel;
mod machine;
mod recording;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::{Result, bail};

use kernel::Kernel;

use crate::arguments::Arguments;
use crate::repository::{repository_root, target_folder};
use crate::world::side_by_side::work_on;
use crate::world::tools;

pub use cases::ATTACH_BENCH;

/// Programs that are needed to build and run guests, beside those that a guest has.
const PROGRAMS: [&str; 5] = ["busybox", "cpio", "qemu-system-x86_64", "strip", "xz"];

/// Number of guests that run at once. Each keeps one processor busy, and takes at most 1.5 GiB of memory.
const GUESTS_AT_ONCE: usize = 2;

/// Runs all cases, or the named one, each in a guest of its own.
pub fn run(mut arguments: Arguments) -> Result<()> {
    let wanted = arguments.word();
    arguments.finish()?;
    let names = cases::names(wanted.as_deref())?;
    let folder = target_folder().join("guest");
    let (kernel, image) = prepare(&folder, &[])?;
    let failures = run_all(&names, &|name| machine::run(&folder, &kernel, &image, name));
    match failures {
        0 => Ok(()),
        _ => bail!("{failures} of {} guest cases failed; consoles: {}/*.log", names.len(), folder.display()),
    }
}

/// Prepares a kernel and its initramfs, with more programs of the system.
fn prepare(folder: &Path, more: &[&str]) -> Result<(Kernel, PathBuf)> {
    tools::require(&[&PROGRAMS[..], &image::PROGRAMS[..], more].concat())?;
    std::fs::create_dir_all(folder)?;
    let kernel = kernel::ready(folder)?;
    let image = folder.join(if more.is_empty() { "initramfs" } else { "initramfs-bench" });
    image::make(folder, &image, &kernel, &image::build(&repository_root())?, more)?;
    Ok((kernel, image))
}

/// Runs a bench in a guest that has more programs of the system. Returns what it printed as a table.
pub fn bench(name: &str, more: &[&str]) -> Result<String> {
    let folder = target_folder().join("guest");
    let (kernel, image) = prepare(&folder, more)?;
    machine::run(&folder, &kernel, &image, name)?;
    let printed = machine::printed(&folder, name)?;
    let table = printed.lines().map(str::trim_end).filter(|line| line.starts_with('|'));
    Ok(table.map(|line| format!("{line}\n")).collect())
}

/// Runs the cases, some at once, and reports each as it ends. Returns the number of cases that do not hold.
fn run_all(names: &[&str], run_one: &(dyn Fn(&str) -> Result<()> + Sync)) -> usize {
    let failures = AtomicUsize::new(0);
    work_on(names, GUESTS_AT_ONCE, &|name| {
        let start = Instant::now();
        let outcome = run_one(name);
        let seconds = start.elapsed().as_secs();
        match outcome {
            Ok(()) => println!("guest: {name}: holds ({seconds} s)"),
            Err(error) => {
                failures.fetch_add(1, Ordering::Relaxed);
                println!("guest: {name}: FAILS ({seconds} s): {error:#}");
            }
        }
    });
    failures.into_inner()
}

/// Returns true if there is a case of this name.
pub fn exists(name: &str) -> bool {
    cases::names(Some(name)).is_ok()
}

/// Downloads the guest's kernel, as a part of `cargo xtask setup`.
pub fn setup() -> Result<()> {
    if tools::find("apt-get").is_none() {
        println!("setup: no apt-get to download a kernel with: 'cargo xtask guest' will fail here");
        return Ok(());
    }
    let folder = target_folder().join("guest");
    std::fs::create_dir_all(&folder)?;
    kernel::ready(&folder).map(drop)
}

/// Runs a case in the guest, and prints its result.
pub fn run_inside(mut arguments: Arguments) -> Result<()> {
    let name = arguments.word().unwrap_or_default();
    match cases::run(&name) {
        Ok(()) => println!("{}", machine::HOLDS),
        // The result is on one line: the host looks for it among the kernel's messages.
        Err(error) => println!("{}{}", machine::FAILS, format!("{error:#}").replace('\n', "; ")),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn every_case_runs_once_and_each_failure_counts() {
        let ran = Mutex::new(Vec::new());
        let failures = run_all(&["a", "b", "c", "d", "e"], &|name| {
            ran.lock().unwrap().push(name.to_owned());
            if name < "d" { Ok(()) } else { bail!("as wished") }
        });
        let mut ran = ran.into_inner().unwrap();
        ran.sort();
        assert_eq!((failures, ran.join("")), (2, "abcde".to_owned()));
    }
}
