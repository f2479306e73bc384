//! Root filesystem of the guest: an initramfs with the daemon, this program, the ring's tests, and the system
//! programs that cases run.

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::commands::{output_of, run};
use super::kernel::Kernel;
use crate::repository::target_folder;
use crate::test_run::programs;
use crate::world::tools;

/// System programs that cases run. The image also holds their libraries.
pub const PROGRAMS: [&str; 12] = [
    "blkid",
    "dmsetup",
    "fio",
    "fsck.ext4",
    "losetup",
    "mkfs.ext4",
    "mkfs.xfs",
    "nbd-client",
    "resize2fs",
    "script",
    "setpriv",
    "setsid",
];
/// Scripts in place of programs that the guest does not have.
const STAND_INS: [(&str, &str); 2] =
    [("sudo", include_str!("stand_ins/sudo")), ("systemctl", include_str!("stand_ins/systemctl"))];
/// Unit of the daemon, and its place in the guest.
const UNIT: &str = include_str!("../../../packaging/systemd/weir.service");
const UNIT_PATH: &str = "etc/systemd/system/weir.service";
/// Names of the programs in the guest.
const DAEMON: &str = "weir";
const SELF: &str = "xtask";
pub const RING_TESTS: &str = "ring-tests";
/// Script of the guest's first process. The names of the modules come from the kernel's package. `modprobe`
/// finds the modules in its list, and that they are loaded. The stacks of tasks that hang are messages of the
/// level that the console shows last.
const INIT: &str = "\
#!/bin/busybox sh
b=/bin/busybox
$b mkdir -p /proc /sys /dev /tmp /run /mnt /etc
$b mount -t proc proc /proc
$b mount -t sysfs sysfs /sys
$b mount -t devtmpfs devtmpfs /dev
$b mount -t tmpfs tmpfs /tmp
$b --install -s /bin
export PATH=/bin
for module in $(cat /modules/order); do insmod /modules/$module; done
mkdir -p /lib/modules/$(uname -r)
sed s/$/:/ /modules/order > /lib/modules/$(uname -r)/modules.dep
echo 7 > /proc/sys/kernel/printk
/bin/xtask guest-case $weir_case
poweroff -f
";

/// Programs that are built for the guest.
pub struct Built {
    weir: PathBuf,
    ring_tests: PathBuf,
}

/// Makes the initramfs at `image`, with more programs of the system.
pub fn make(folder: &Path, image: &Path, kernel: &Kernel, built: &Built, more: &[&str]) -> Result<()> {
    let root = folder.join("root");
    if root.exists() {
        fs::remove_dir_all(&root)?;
    }
    for name in ["bin", "modules"] {
        fs::create_dir_all(root.join(name))?;
    }
    let busybox = tools::find("busybox").context("busybox is not there")?;
    copy_program(&root, &busybox, "busybox")?;
    copy_stripped(&root, &built.weir, DAEMON)?;
    copy_stripped(&root, &built.ring_tests, RING_TESTS)?;
    copy_stripped(&root, &std::env::current_exe()?, SELF)?;
    for program in PROGRAMS.iter().chain(more) {
        let path = tools::find(program).with_context(|| format!("{program} is not there"))?;
        copy_program(&root, &path, program)?;
    }
    add_modules(&root, kernel)?;
    add_service(&root)?;
    write_executable(&root.join("init"), INIT.as_bytes())?;
    pack(&root, image)
}

fn add_modules(root: &Path, kernel: &Kernel) -> Result<()> {
    let mut order = String::new();
    for module in &kernel.modules {
        let name = module.file_name().unwrap_or_default();
        fs::copy(module, root.join("modules").join(name))?;
        order.push_str(&format!("{}\n", name.to_string_lossy()));
    }
    Ok(fs::write(root.join("modules/order"), order)?)
}

/// Adds the unit of the daemon, and the programs that start it.
fn add_service(root: &Path) -> Result<()> {
    for (name, script) in STAND_INS {
        write_executable(&root.join("bin").join(name), script.as_bytes())?;
    }
    fs::create_dir_all(root.join("usr/bin"))?;
    symlink("/bin/weir", root.join("usr/bin/weir"))?;
    let unit = root.join(UNIT_PATH);
    fs::create_dir_all(unit.parent().context("the unit lies in a folder")?)?;
    Ok(fs::write(unit, UNIT)?)
}

fn copy_program(root: &Path, from: &Path, name: &str) -> Result<()> {
    fs::copy(from, root.join("bin").join(name)).with_context(|| format!("cannot copy {}", from.display()))?;
    copy_libraries(root, from)
}

/// Adds a program without its debug data, which is the largest part of a test build.
fn copy_stripped(root: &Path, from: &Path, name: &str) -> Result<()> {
    let to = root.join("bin").join(name);
    run(Command::new("strip").arg("--strip-all").arg("-o").arg(&to).arg(from))?;
    copy_libraries(root, from)
}

fn copy_libraries(root: &Path, program: &Path) -> Result<()> {
    let output = Command::new("ldd").arg(program).output().context("cannot run ldd")?;
    // A static program has no libraries, which ldd reports as an error.
    let listing = String::from_utf8_lossy(&output.stdout);
    for library in listing.split_whitespace().filter(|word| word.starts_with('/')) {
        let to = root.join(library.trim_start_matches('/'));
        if !to.exists() {
            fs::create_dir_all(to.parent().context("a library lies in a folder")?)?;
            fs::copy(library, &to).with_context(|| format!("cannot copy {library}"))?;
        }
    }
    Ok(())
}

fn write_executable(path: &Path, content: &[u8]) -> Result<()> {
    fs::write(path, content)?;
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(0o755))?)
}

/// Packs a folder in the format that the kernel reads.
fn pack(root: &Path, image: &Path) -> Result<()> {
    let list = output_of(Command::new("find").arg(".").current_dir(root))?;
    let names = root.with_extension("names");
    fs::write(&names, list)?;
    let mut command = Command::new("cpio");
    command.args(["--quiet", "--create", "--format=newc"]).current_dir(root);
    command.stdin(Stdio::from(File::open(&names)?)).stdout(Stdio::from(File::create(image)?));
    let status = command.status().context("cannot run cpio")?;
    ensure!(status.success(), "cpio: {status}");
    Ok(())
}

/// Builds the guest's programs as test builds.
pub fn build(root: &Path) -> Result<Built> {
    Ok(Built { weir: daemon(root)?, ring_tests: ring_tests(root)? })
}

/// Builds the daemon. `WEIR_BINARY` names another one.
fn daemon(root: &Path) -> Result<PathBuf> {
    if let Some(binary) = std::env::var_os("WEIR_BINARY") {
        return Ok(PathBuf::from(binary));
    }
    // With the features of the whole workspace, so that little is built anew after the tests.
    let mut command = Command::new(env!("CARGO"));
    command.args(["build", "--workspace", "--bin=weir"]).current_dir(root);
    let status = command.status().context("cannot run cargo")?;
    ensure!(status.success(), "the daemon cannot be built: {status}");
    Ok(target_folder().join("debug/weir"))
}

/// Builds the program with the ring's tests.
fn ring_tests(root: &Path) -> Result<PathBuf> {
    let artifacts = programs::artifacts(root, &["--test=ring"])?;
    artifacts.iter().find_map(programs::path_of).context("cargo names no program with the ring's tests")
}
