//! Kernel of the guest: Debian's, downloaded as a package and unpacked below `target/`, never installed.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::commands::{output_of, run};

/// Package that names the newest kernel package of its series.
const SERIES: &str = "linux-image-6.12-cloud-amd64";
/// Modules that the cases need, each after the modules that it depends on.
const MODULES: [&str; 12] = [
    "lib/libcrc32c",
    "drivers/block/virtio_blk",
    "drivers/block/loop",
    "drivers/block/nbd",
    "drivers/block/ublk_drv",
    "drivers/md/dm-mod",
    "drivers/md/dm-flakey",
    "drivers/md/dm-delay",
    "drivers/md/dm-log-writes",
    "drivers/md/dm-bufio",
    "drivers/md/dm-snapshot",
    "fs/xfs/xfs",
];

/// Kernel that is ready to boot.
pub struct Kernel {
    /// Image of the kernel.
    pub image: PathBuf,
    /// Unpacked modules, in the order in which they must be loaded.
    pub modules: Vec<PathBuf>,
}

/// Downloads and unpacks the kernel below `folder` unless it is there already.
pub fn ready(folder: &Path) -> Result<Kernel> {
    let unpacked = folder.join("kernel");
    if !unpacked.is_dir() {
        let new = folder.join("kernel.new");
        remove_if_there(&new)?;
        std::fs::create_dir_all(&new)?;
        let package = download(&new)?;
        run(Command::new("dpkg-deb").arg("--extract").arg(&package).arg(&new))?;
        std::fs::remove_file(&package)?;
        unpack_modules(&new)?;
        std::fs::rename(&new, &unpacked)?;
    }
    let modules: Vec<PathBuf> = MODULES.iter().map(|module| unpacked.join(file_name_of(module))).collect();
    if !modules.iter().all(|module| module.is_file()) {
        // The kernel was unpacked when the cases needed fewer modules.
        unpack_modules(&unpacked)?;
    }
    let image = only_entry(&unpacked.join("boot"), "vmlinuz-")?;
    Ok(Kernel { image, modules })
}

/// Downloads the kernel's package. Updates the package lists first if the present lists do not lead to it.
fn download(folder: &Path) -> Result<PathBuf> {
    if let Err(error) = try_download(folder) {
        println!("guest: {error:#}; updating the lists of packages");
        run(Command::new("apt-get").args(["update", "-q"]))?;
        try_download(folder)?;
    }
    only_entry(folder, "linux-image-")
}

fn try_download(folder: &Path) -> Result<()> {
    let depends = output_of(Command::new("apt-cache").args(["depends", SERIES]))?;
    let is_kernel = |word: &&str| word.starts_with("linux-image-6.12.");
    let package = depends.split_whitespace().find(is_kernel);
    let package = package.with_context(|| format!("package {SERIES} names no kernel package"))?;
    println!("guest: downloading {package}");
    // The sandbox of apt's download user has no access to a build folder.
    let options = ["-q", "-o", "APT::Sandbox::User=root", "download", package];
    run(Command::new("apt-get").args(options).current_dir(folder))
}

/// Unpacks the modules that the cases need, so that the guest needs no program for it.
fn unpack_modules(folder: &Path) -> Result<()> {
    let modules = only_entry(&folder.join("lib/modules"), "6.12.")?.join("kernel");
    for module in MODULES {
        let packed = modules.join(format!("{module}.ko.xz"));
        let mut command = Command::new("xz");
        command.args(["--decompress", "--stdout"]).arg(&packed);
        let output = command.output().context("cannot run xz")?;
        ensure!(output.status.success(), "cannot unpack {}", packed.display());
        std::fs::write(folder.join(file_name_of(module)), output.stdout)?;
    }
    Ok(())
}

fn file_name_of(module: &str) -> String {
    let name = module.rsplit('/').next().unwrap_or(module);
    format!("{name}.ko")
}

fn only_entry(folder: &Path, prefix: &str) -> Result<PathBuf> {
    let entries = std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(prefix) {
            found.push(entry.path());
        }
    }
    match found.as_slice() {
        [path] => Ok(path.clone()),
        _ => bail!("{} has {} entries '{prefix}*' instead of one", folder.display(), found.len()),
    }
}

fn remove_if_there(folder: &Path) -> Result<()> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        result => Ok(result?),
    }
}
