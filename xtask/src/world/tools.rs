//! External programs, and the packages that contain them.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
pub use weir_testkit::program::find;

use crate::repository::target_folder;

/// Programs with the Debian package that contains each.
const PACKAGES: [(&str, &str); 27] = [
    ("busybox", "busybox-static"),
    ("cpio", "cpio"),
    ("curl", "curl"),
    ("dmsetup", "dmsetup"),
    ("dockerd", "docker.io"),
    ("fio", "fio"),
    ("losetup", "mount"),
    ("mkfs.ext4", "e2fsprogs"),
    ("mkfs.xfs", "xfsprogs"),
    ("nbd-client", "nbd-client"),
    ("nbdcopy", "libnbd-bin"),
    ("nbdfuse", "libnbd-bin"),
    ("nbdinfo", "libnbd-bin"),
    ("nbdkit", "nbdkit"),
    ("openssl", "openssl"),
    ("python3", "python3"),
    ("qemu-img", "qemu-utils"),
    ("qemu-io", "qemu-utils"),
    ("qemu-nbd", "qemu-utils"),
    ("qemu-storage-daemon", "qemu-system-common"),
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("script", "bsdutils"),
    ("setpriv", "util-linux"),
    ("sqlite3", "sqlite3"),
    ("strip", "binutils"),
    ("xz", "xz-utils"),
    ("xfs_io", "xfsprogs"),
];
/// System interpreter, to which libnbd's Python module belongs, whichever `python3` comes first in PATH.
const SYSTEM_PYTHON: &str = "/usr/bin/python3";
/// Package of libnbd's Python module.
const PYTHON_PACKAGE: &str = "python3-libnbd";

/// The file system exerciser, which no package contains, and its version: its crate is built here.
const EXERCISER: (&str, &str) = ("fsx", "0.3.2");

/// Fails with the packages to install unless all programs are present.
pub fn require(programs: &[&str]) -> Result<()> {
    let missing: Vec<&str> = programs.iter().copied().filter(|program| find(program).is_none()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let packages = packages_of(&missing).join(" ");
    bail!("{} not found; install with: apt-get install {packages}", missing.join(", "))
}

/// Installs missing programs, or names them (`cargo xtask setup`).
pub fn setup() -> Result<()> {
    let missing: Vec<&str> =
        PACKAGES.iter().map(|(program, _)| *program).filter(|program| find(program).is_none()).collect();
    let mut packages = packages_of(&missing);
    if !has_python_module() {
        packages.push(PYTHON_PACKAGE);
    }
    install_exerciser()?;
    if packages.is_empty() {
        println!("setup: every program is there");
        return Ok(());
    }
    if !rustix::process::geteuid().is_root() || find("apt-get").is_none() {
        bail!("some programs are missing; as root: apt-get install {}", packages.join(" "));
    }
    install(&packages)
}

fn packages_of(programs: &[&str]) -> Vec<&'static str> {
    let mut packages: Vec<&str> = PACKAGES
        .iter()
        .filter(|(program, _)| programs.contains(program))
        .map(|(_, package)| *package)
        .collect();
    packages.sort_unstable();
    packages.dedup();
    packages
}

fn has_python_module() -> bool {
    let mut command = Command::new(SYSTEM_PYTHON);
    let output = command.args(["-c", "import nbd"]).output();
    output.is_ok_and(|output| output.status.success())
}

fn install(packages: &[&str]) -> Result<()> {
    println!("setup: installing {}", packages.join(" "));
    run_apt(&["update", "-q"])?;
    let arguments = ["install", "-q", "--yes", "--no-install-recommends"];
    run_apt(&arguments.iter().chain(packages).copied().collect::<Vec<_>>())
}

fn install_exerciser() -> Result<()> {
    let (program, version) = EXERCISER;
    if find(program).is_some() {
        return Ok(());
    }
    println!("setup: building {program}");
    let mut command = Command::new(env!("CARGO"));
    command.args(["install", "--quiet", "--locked", "--version", version, program]);
    let status = command.status().context("cannot run cargo")?;
    if !status.success() {
        bail!("cannot build {program}: {status}");
    }
    Ok(())
}

fn run_apt(arguments: &[&str]) -> Result<()> {
    let mut command = Command::new("apt-get");
    command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
    let status = command.status().context("cannot run apt-get")?;
    if !status.success() {
        bail!("apt-get {} failed with {status}", arguments.join(" "));
    }
    Ok(())
}

/// Program that builds modules of Go, from its usual place if it is there.
pub fn go() -> &'static str {
    const USUAL: &str = "/usr/local/go/bin/go";
    if Path::new(USUAL).exists() { USUAL } else { "go" }
}

/// Builds the daemon for measurements, and returns its path. `WEIR_BINARY` names another one.
pub fn weir_binary(root: &Path) -> Result<PathBuf> {
    if let Some(binary) = std::env::var_os("WEIR_BINARY") {
        return Ok(PathBuf::from(binary));
    }
    let mut command = Command::new(env!("CARGO"));
    command.args(["build", "--release", "--package=weir"]).current_dir(root);
    if !command.status().context("cannot run cargo")?.success() {
        bail!("cannot build weir");
    }
    Ok(target_folder().join("release/weir"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_program_is_reported_with_its_package() {
        assert_eq!(packages_of(&["qemu-nbd", "qemu-io", "fio"]), ["fio", "qemu-utils"]);
        assert_eq!(packages_of(&["xfs_io", "qemu-nbd", "mkfs.xfs"]), ["qemu-utils", "xfsprogs"]);
        assert!(require(&["sh"]).is_ok());
        assert!(require(&["no-such-program-anywhere"]).is_err());
    }
}
