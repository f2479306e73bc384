//! Device that the kernel itself shares by weight: a separate loop device under the BFQ scheduler.
//!
//! A bench must not change the scheduler of a disk that other programs use.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::tools;

/// Loop device without the page cache over a file, scheduled by BFQ. The device disappears when its last user
/// closes it, also if the user is killed.
pub struct WeightedDevice {
    path: PathBuf,
    scheduler: PathBuf,
    scheduler_before: String,
    _open: File,
}

impl WeightedDevice {
    /// Creates a device over a file. The error gives the reason if it cannot.
    pub fn new(file: &Path) -> Result<WeightedDevice> {
        let losetup = tools::find("losetup").context("no losetup")?;
        let run = |arguments: &[&str]| -> Result<String> {
            let output = Command::new(&losetup).args(arguments).output().context("cannot run losetup")?;
            ensure!(output.status.success(), "losetup: {}", String::from_utf8_lossy(&output.stderr).trim());
            Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
        };
        let path = PathBuf::from(run(&["--find", "--show", "--direct-io=on", &file.to_string_lossy()])?);
        let open = File::open(&path);
        // An open device is detached when it is closed.
        run(&["--detach", &path.to_string_lossy()])?;
        let open = open.with_context(|| format!("cannot open {}", path.display()))?;
        let name = path.file_name().context("losetup named no device")?;
        let scheduler = Path::new("/sys/block").join(name).join("queue/scheduler");
        let all = std::fs::read_to_string(&scheduler).context("the device has no scheduler")?;
        let scheduler_before = chosen(&all).context("the device has no scheduler chosen")?.to_owned();
        if !all.split_whitespace().any(|name| name.trim_matches(['[', ']']) == "bfq") {
            bail!("the kernel has no scheduler BFQ");
        }
        std::fs::write(&scheduler, "bfq").context("cannot choose the scheduler BFQ")?;
        Ok(WeightedDevice { path, scheduler, scheduler_before, _open: open })
    }

    /// Returns the path of the device.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for WeightedDevice {
    fn drop(&mut self) {
        // The device is about to disappear. Without a reset, the next device with this number would have the
        // same scheduler.
        let _ = std::fs::write(&self.scheduler, &self.scheduler_before);
    }
}

/// Returns the scheduler in brackets.
fn chosen(schedulers: &str) -> Option<&str> {
    schedulers.split_whitespace().find_map(|name| name.strip_prefix('[')?.strip_suffix(']'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chosen_scheduler_is_the_one_in_brackets() {
        assert_eq!(chosen("none [mq-deadline] kyber bfq\n"), Some("mq-deadline"));
        assert_eq!(chosen("none"), None);
    }
}
