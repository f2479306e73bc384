//! One guest: QEMU without hardware virtualisation, so that it runs wherever tests run.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::cases;
use super::kernel::Kernel;

/// Line that a guest prints when its case holds.
pub const HOLDS: &str = "guest-case: holds";
/// Beginning of the line, before the reason, that a guest prints when its case does not hold.
pub const FAILS: &str = "guest-case: fails: ";
/// Size of each of the guest's disks, sparse on the host, in bytes.
const DISK_BYTES: u64 = 2 << 30;
/// Number of the guest's disks: `vda`, `vdb`.
const DISKS: usize = 2;
/// Variables for cases: how often they kill a daemon under load, and for how many seconds they hold a volume back.
const KILLS: &str = "WEIR_ATTACH_KILLS";
const SECONDS: &str = "WEIR_ATTACH_SECONDS";
/// Longest run of a guest. A guest that runs longer hangs.
const TIMEOUT: Duration = Duration::from_secs(300);
/// Longest run of a guest that measures.
const BENCH_TIME_MAX: Duration = Duration::from_secs(1200);
/// Longest time that a kill of the daemon adds to it.
const KILL_TIME_MAX: Duration = Duration::from_secs(30);
/// Number of console lines that are shown of a failed case: the stacks of some tasks that hang.
const CONSOLE_LINES_SHOWN: usize = 120;

/// Boots a guest for a case. Returns an error if the case does not hold.
pub fn run(folder: &Path, kernel: &Kernel, image: &Path, case: &str) -> Result<()> {
    let console = console(folder, case);
    let mut command = Command::new("qemu-system-x86_64");
    // The guest has one processor. With two emulated at once, a kernel that patches its own code at boot
    // sometimes panics.
    command.args(["-accel", "tcg", "-cpu", "max", "-m", "1536", "-smp", "1"]);
    command.args(["-display", "none", "-monitor", "none", "-no-reboot", "-nic", "none"]);
    command.arg("-kernel").arg(&kernel.image).arg("-initrd").arg(image);
    // The kernel passes unknown parameters to the first process as variables. The kernel's timer check
    // depends on real time: on a busy machine the guest stalls during the check, and panics.
    let options = "console=ttyS0 quiet loglevel=4 panic=-1 random.trust_cpu=on no_timer_check";
    let [kills, seconds] = [KILLS, SECONDS].map(|name| std::env::var(name).ok()?.parse::<u32>().ok());
    let variable = |(name, value): (&str, Option<u32>)| {
        value.map(|value| format!(" {}={value}", name.to_lowercase())).unwrap_or_default()
    };
    let variables: String = [(KILLS, kills), (SECONDS, seconds)].into_iter().map(variable).collect();
    let line = format!("{options} weir_case={case}{variables}");
    command.arg("-append").arg(line);
    command.arg("-serial").arg(format!("file:{}", console.display()));
    for index in 0..DISKS {
        let disk = empty_disk(folder, case, index)?;
        let drive = format!("if=none,id=d{index},format=raw,cache=unsafe,file={}", disk.display());
        command.args(["-drive", &drive, "-device", &format!("virtio-blk-pci,drive=d{index}")]);
    }
    let child = command.stdin(Stdio::null()).spawn().context("cannot start qemu-system-x86_64")?;
    let base = if cases::is_bench(case) { BENCH_TIME_MAX } else { TIMEOUT };
    let ended = wait(
        child,
        base + KILL_TIME_MAX * kills.unwrap_or(0) + Duration::from_secs(2 * u64::from(seconds.unwrap_or(0))),
    );
    for index in 0..DISKS {
        std::fs::remove_file(disk_path(folder, case, index))?;
    }
    let printed = std::fs::read(&console).unwrap_or_default();
    judge(&String::from_utf8_lossy(&printed), ended)
}

fn console(folder: &Path, case: &str) -> PathBuf {
    folder.join(format!("{case}.log"))
}

/// What the guest of a case has printed.
pub fn printed(folder: &Path, case: &str) -> Result<String> {
    let printed = std::fs::read(console(folder, case)).context("the guest printed nothing")?;
    Ok(String::from_utf8_lossy(&printed).into_owned())
}

fn disk_path(folder: &Path, case: &str, index: usize) -> PathBuf {
    folder.join(format!("{case}.{index}.disk"))
}

fn empty_disk(folder: &Path, case: &str, index: usize) -> Result<PathBuf> {
    let path = disk_path(folder, case, index);
    File::create(&path)?.set_len(DISK_BYTES)?;
    Ok(path)
}

fn wait(mut child: Child, time_max: Duration) -> Result<()> {
    let start = Instant::now();
    loop {
        match child.try_wait()? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => bail!("qemu-system-x86_64 ended with {status}"),
            None if start.elapsed() > time_max => {
                // The guest may have ended by itself at this moment.
                let _ = child.kill();
                child.wait()?;
                bail!("the guest did not end within {time_max:?}");
            }
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// Judges a case by the guest's console.
fn judge(console: &str, ended: Result<()>) -> Result<()> {
    let lines: Vec<&str> = console.lines().map(str::trim_end).collect();
    if lines.contains(&HOLDS) {
        return Ok(());
    }
    if let Some(reason) = lines.iter().find_map(|line| line.strip_prefix(FAILS)) {
        bail!("{reason}");
    }
    let last = lines[lines.len().saturating_sub(CONSOLE_LINES_SHOWN)..].join("\n");
    ended.with_context(|| format!("the console's last lines:\n{last}"))?;
    bail!("the guest ended without a result; the console's last lines:\n{last}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn console_without_a_result_is_a_failure() {
        assert!(judge("noise\r\nguest-case: holds\r\n", Ok(())).is_ok());
        let fails = judge("guest-case: fails: block 3 changed\r\n", Ok(())).unwrap_err();
        assert_eq!(fails.to_string(), "block 3 changed");
        assert!(judge("Kernel panic", Ok(())).unwrap_err().to_string().contains("Kernel panic"));
    }
}
