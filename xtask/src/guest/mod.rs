//! `cargo xtask guest`: cases that need a kernel whose drives fail, delay writes and count flushes on demand.
//!
//! Each case boots its own guest: Debian's kernel, an initramfs with the daemon, the ring's tests and this program, two
//! empty disks. In the guest this program runs the case (`guest-case`) and prints whether it holds.

mod cases;
mod client;
mod commands;
mod image;
mod inside;
mod kernel;
mod machine;
mod recording;

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::{Result, bail};

use crate::arguments::Arguments;
use crate::repository::repository_root;
use crate::world::tools;

/// Programs that building and running guests needs.
const PROGRAMS: [&str; 8] =
    ["qemu-system-x86_64", "busybox", "cpio", "dmsetup", "mkfs.ext4", "mkfs.xfs", "strip", "xz"];

/// Guests that run at once: each keeps one processor busy, and takes 1.5 GiB of memory at most.
const GUESTS_AT_ONCE: usize = 2;

/// Runs all cases, or the one that is named, each in a guest of its own.
pub fn run(mut arguments: Arguments) -> Result<()> {
    let wanted = arguments.word();
    arguments.finish()?;
    let names = cases::names(wanted.as_deref())?;
    tools::require(&PROGRAMS)?;
    let root = repository_root();
    let folder = target(&root).join("guest");
    std::fs::create_dir_all(&folder)?;
    let kernel = kernel::ready(&folder)?;
    let image = folder.join("initramfs");
    image::make(&folder, &image, &kernel, &image::build(&root)?)?;
    let failures = run_all(&names, &|name| machine::run(&folder, &kernel, &image, name));
    match failures {
        0 => Ok(()),
        _ => bail!("{failures} of {} guest cases failed; consoles: {}/*.log", names.len(), folder.display()),
    }
}

/// Runs the cases, some at once, and tells of each as it ends; returns how many do not hold.
fn run_all(names: &[&str], run_one: &(dyn Fn(&str) -> Result<()> + Sync)) -> usize {
    let waiting = Mutex::new(names.iter());
    let next = || waiting.lock().expect("nobody panics with the list in hand").next();
    let failures = AtomicUsize::new(0);
    let work = || {
        while let Some(name) = next() {
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
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..GUESTS_AT_ONCE {
            scope.spawn(work);
        }
    });
    failures.into_inner()
}

/// True if there is such a case.
pub fn exists(name: &str) -> bool {
    cases::names(Some(name)).is_ok()
}

/// Downloads the guest's kernel, as a part of `cargo xtask setup`.
pub fn setup() -> Result<()> {
    if tools::find("apt-get").is_none() {
        println!("setup: no apt-get to download a kernel with: 'cargo xtask guest' will fail here");
        return Ok(());
    }
    let folder = target(&repository_root()).join("guest");
    std::fs::create_dir_all(&folder)?;
    kernel::ready(&folder).map(drop)
}

/// Runs a case in the guest, and prints what came of it.
pub fn run_inside(mut arguments: Arguments) -> Result<()> {
    let name = arguments.word().unwrap_or_default();
    match cases::run(&name) {
        Ok(()) => println!("{}", machine::HOLDS),
        // On one line: the host looks for it among what the kernel prints.
        Err(error) => println!("{}{}", machine::FAILS, format!("{error:#}").replace('\n', "; ")),
    }
    Ok(())
}

/// Where cargo builds.
fn target(root: &Path) -> PathBuf {
    let folder = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    root.join(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

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
