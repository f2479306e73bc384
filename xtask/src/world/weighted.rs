//! Where the kernel itself shares by weight: a loop device of our own under the BFQ scheduler, because the
//! scheduler of a disk that others use is not for a bench to change.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::tools;

/// A loop device past the page cache over a file, scheduled by BFQ. It goes away when the last who has it open
/// closes it, however that comes about.
pub struct WeightedDevice {
    path: PathBuf,
    scheduler: PathBuf,
    scheduler_before: String,
    _open: File,
}

impl WeightedDevice {
    /// Makes a device of a file; the error says why there is none.
    pub fn new(file: &Path) -> Result<WeightedDevice> {
        let losetup = tools::find("losetup").context("no losetup")?;
        let run = |arguments: &[&str]| -> Result<String> {
            let output = Command::new(&losetup).args(arguments).output().context("cannot run losetup")?;
            ensure!(output.status.success(), "losetup: {}", String::from_utf8_lossy(&output.stderr).trim());
            Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
        };
        let path = PathBuf::from(run(&["--find", "--show", "--direct-io=on", &file.to_string_lossy()])?);
        let open = File::open(&path);
        // Detaching a device that is open takes effect when it is closed.
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

    /// The device.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for WeightedDevice {
    fn drop(&mut self) {
        // The device is about to go; the choice would only stay for whoever gets the number next.
        let _ = std::fs::write(&self.scheduler, &self.scheduler_before);
    }
}

/// The one in brackets.
fn chosen(schedulers: &str) -> Option<&str> {
    schedulers.split_whitespace().find_map(|name| name.strip_prefix('[')?.strip_suffix(']'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chosen_scheduler_is_in_brackets() {
        assert_eq!(chosen("none [mq-deadline] kyber bfq\n"), Some("mq-deadline"));
        assert_eq!(chosen("none"), None);
    }
}
