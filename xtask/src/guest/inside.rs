//! Environment of cases in the guest: disks that fail or delay on demand, filesystems on them, and the
//! daemon.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;

use super::client::Client;
use super::commands::{output_of, run};
use crate::world::daemon::Daemon;

/// Longest time that the guest waits for an expected event.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Path of the daemon.
pub const DAEMON: &str = "/bin/weir";
/// Mount point of the drive. The drive has the name of the folder.
pub const DRIVE: &str = "/mnt/drive";
/// State folder, in memory.
pub const STATE: &str = "/tmp/state/weir";
/// Longest interval of dm-flakey, in seconds: longer than any guest runs.
const FOREVER_S: u32 = 100_000;

/// Disk of the guest below the device mapper, whose behaviour changes while it is in use.
pub struct Disk {
    name: &'static str,
    below: &'static str,
    sectors: u64,
}

impl Disk {
    /// Maps a disk of the guest, for example `vda`, one to one.
    pub fn mapped(name: &'static str, below: &'static str) -> Result<Disk> {
        let sectors = std::fs::read_to_string(format!("/sys/block/{below}/size"))?.trim().parse()?;
        let disk = Disk { name, below, sectors };
        let table = disk.table(&format!("linear /dev/{below} 0"));
        dmsetup(&["create", name, "--table", &table])?;
        Ok(disk)
    }

    /// Returns the path of the device.
    pub fn path(&self) -> PathBuf {
        Path::new("/dev/mapper").join(self.name)
    }

    fn table(&self, target: &str) -> String {
        format!("0 {} {target}", self.sectors)
    }

    /// Makes every write fail from now on. Reads succeed.
    pub fn fail_writes(&self) -> Result<()> {
        self.become_target(&format!("flakey /dev/{} 0 0 {FOREVER_S} 1 error_writes", self.below))
    }

    /// Delays writes by this time from now on. Reads and flushes are not delayed.
    pub fn delay_writes(&self, delay: Duration) -> Result<()> {
        let below = self.below;
        let milliseconds = delay.as_millis();
        self.become_target(&format!("delay /dev/{below} 0 0 /dev/{below} 0 {milliseconds} /dev/{below} 0 0"))
    }

    /// Makes the disk serve all requests from now on.
    pub fn heal(&self) -> Result<()> {
        self.become_target(&format!("linear /dev/{} 0", self.below))
    }

    /// Returns the mount point of the disk.
    pub fn folder(&self) -> PathBuf {
        Path::new("/mnt").join(self.name)
    }

    /// Makes the disk answer no request from now on.
    pub fn hang(&self) -> Result<()> {
        dmsetup(&["suspend", "--nolockfs", "--noflush", self.name])
    }

    /// Makes the disk answer all waiting and later requests.
    pub fn answer(&self) -> Result<()> {
        dmsetup(&["resume", self.name])
    }

    /// Changes the disk's target. The filesystem must not notice: freezing it would write all dirty data.
    fn become_target(&self, target: &str) -> Result<()> {
        dmsetup(&["load", self.name, "--table", &self.table(target)])?;
        dmsetup(&["suspend", "--nolockfs", "--noflush", self.name])?;
        dmsetup(&["resume", self.name])
    }

    /// Returns the number of delayed writes. The kernel counts them as in flight only after their delay.
    pub fn writes_delayed(&self) -> Result<u64> {
        let status = output_of(Command::new("dmsetup").args(["status", self.name]))?;
        let words: Vec<&str> = status.split_whitespace().collect();
        let position = words.iter().position(|word| *word == "delay").context("the disk does not delay")?;
        // The counters are of reads, writes and flushes.
        Ok(words.get(position + 2).context("dm-delay counts writes")?.parse()?)
    }
}

/// Runs dmsetup, which creates the device nodes itself: the guest has no udev.
pub fn dmsetup(arguments: &[&str]) -> Result<()> {
    run(Command::new("dmsetup").args(arguments).env("DM_DISABLE_UDEV", "1"))
}

/// Returns the number of flushes that a disk of the guest, for example `vda`, has completed.
pub fn flushes(disk: &str) -> Result<u64> {
    let stat = std::fs::read_to_string(format!("/sys/block/{disk}/stat"))?;
    Ok(stat.split_whitespace().nth(15).context("the kernel counts flushes")?.parse()?)
}

/// Creates a filesystem and mounts it as the drive.
pub fn mount(mkfs: &[&str], mount: &[&str]) -> Result<()> {
    let (program, arguments) = mkfs.split_first().context("a filesystem is made by a program")?;
    run(Command::new(program).args(arguments))?;
    std::fs::create_dir_all(DRIVE)?;
    run(Command::new("mount").args(mount).arg(DRIVE))
}

/// Mounts an ext4 filesystem on a disk.
pub fn mount_ext4(disk: &Disk) -> Result<()> {
    let (device, folder) = (disk.path(), disk.folder());
    run(Command::new("mkfs.ext4").arg("-q").arg(&device))?;
    std::fs::create_dir_all(&folder)?;
    run(Command::new("mount").args(["-t", "ext4"]).arg(&device).arg(&folder))
}

/// Mounts an XFS filesystem whose files have their data on `data` and everything else on `vda`. An error of
/// `data` affects file data alone, and the filesystem's log continues.
pub fn mount_xfs_with_data_on(data: &Disk) -> Result<()> {
    let data = data.path().display().to_string();
    let device = format!("rtdev={data}");
    mount(
        &["mkfs.xfs", "-q", "-m", "reflink=0", "-d", "rtinherit=1", "-r", &device, "/dev/vda"],
        &["-t", "xfs", "-o", &device, "/dev/vda"],
    )
}

/// Starts the daemon.
pub fn start() -> Result<Daemon> {
    start_on(Path::new(STATE), &[])
}

/// Starts the daemon on the caller's state folder, with more arguments if any.
pub fn start_on(state: &Path, more: &[&str]) -> Result<Daemon> {
    Daemon::start_detached(Path::new(DAEMON), state, &[&["--reactors", "1"], more].concat())
}

/// Starts the daemon with the drive and a volume of 1 GiB on it, `vol1`.
pub fn start_with_volume() -> Result<Daemon> {
    let daemon = start()?;
    daemon.run(&format!("drive add {DRIVE} --no-measurement"))?;
    daemon.run("volume create vol1 --size 1 --drive drive")?;
    Ok(daemon)
}

/// Kills the daemon, and waits until its process is gone.
pub fn kill(mut daemon: Daemon) {
    daemon.process().signal(Signal::KILL);
    drop(daemon);
}

/// Attaches a volume.
pub fn attach(volume: &str) -> Result<Client> {
    Client::attach(&Path::new(STATE).join("nbd.sock"), volume)
}

/// Waits until a condition holds.
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    let start = Instant::now();
    while !is_so()? {
        ensure!(start.elapsed() < TIMEOUT, "{what}: not so within {TIMEOUT:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Makes all data on the drive's filesystem stable, through a file descriptor of the caller.
pub fn sync(folder: &File) -> Result<()> {
    Ok(rustix::fs::syncfs(folder)?)
}

/// Drops the kernel's cached pages, so that files are read from the disk.
pub fn forget_pages() -> Result<()> {
    Ok(std::fs::write("/proc/sys/vm/drop_caches", "3")?)
}

/// Returns the output of a program, for example `dmesg`.
pub fn printed(program: &str, arguments: &[&str]) -> Result<String> {
    output_of(Command::new(program).args(arguments))
}

/// Fails a case with a reason.
pub fn fail<T>(reason: impl std::fmt::Display) -> Result<T> {
    bail!("{reason}")
}
