//! What cases find in the guest: disks that fail or delay on demand, filesystems on them, and the daemon.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;

use super::client::Client;
use super::commands::{output_of, run};
use crate::world::daemon::Daemon;

/// How long the guest waits for something that must happen.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The daemon.
const DAEMON: &str = "/bin/weir";
/// Where the drive is mounted; its name is that of the folder.
pub const DRIVE: &str = "/mnt/drive";
/// The state folder, in memory.
pub const STATE: &str = "/tmp/state/weir";
/// Longest interval of dm-flakey, in seconds: what the guest does not live to see.
const FOREVER_S: u32 = 100_000;

/// A disk of the guest below the device mapper, which can be told how to behave while it is in use.
pub struct Disk {
    name: &'static str,
    below: &'static str,
    sectors: u64,
}

impl Disk {
    /// Maps a disk of the guest, such as `vda`, one to one.
    pub fn mapped(name: &'static str, below: &'static str) -> Result<Disk> {
        let sectors = std::fs::read_to_string(format!("/sys/block/{below}/size"))?.trim().parse()?;
        let disk = Disk { name, below, sectors };
        let table = disk.table(&format!("linear /dev/{below} 0"));
        dmsetup(&["create", name, "--table", &table])?;
        Ok(disk)
    }

    /// The device.
    pub fn path(&self) -> PathBuf {
        Path::new("/dev/mapper").join(self.name)
    }

    fn table(&self, target: &str) -> String {
        format!("0 {} {target}", self.sectors)
    }

    /// From now on every write fails; reads do not.
    pub fn fail_writes(&self) -> Result<()> {
        self.become_target(&format!("flakey /dev/{} 0 0 {FOREVER_S} 1 error_writes", self.below))
    }

    /// From now on writes take so long; reads and flushes do not.
    pub fn delay_writes(&self, delay: Duration) -> Result<()> {
        let below = self.below;
        let milliseconds = delay.as_millis();
        self.become_target(&format!("delay /dev/{below} 0 0 /dev/{below} 0 {milliseconds} /dev/{below} 0 0"))
    }

    /// From now on the disk does what it is asked to.
    pub fn heal(&self) -> Result<()> {
        self.become_target(&format!("linear /dev/{} 0", self.below))
    }

    /// The folder where it is mounted.
    pub fn folder(&self) -> PathBuf {
        Path::new("/mnt").join(self.name)
    }

    /// From now on nothing is answered.
    pub fn hang(&self) -> Result<()> {
        dmsetup(&["suspend", "--nolockfs", "--noflush", self.name])
    }

    /// What was asked is answered, and everything from now on.
    pub fn answer(&self) -> Result<()> {
        dmsetup(&["resume", self.name])
    }

    /// The filesystem must not notice: freezing it would write everything that is dirty.
    fn become_target(&self, target: &str) -> Result<()> {
        dmsetup(&["load", self.name, "--table", &self.table(target)])?;
        dmsetup(&["suspend", "--nolockfs", "--noflush", self.name])?;
        dmsetup(&["resume", self.name])
    }

    /// Writes that are delayed. The kernel counts them as under way only afterwards.
    pub fn writes_delayed(&self) -> Result<u64> {
        let status = output_of(Command::new("dmsetup").args(["status", self.name]))?;
        let words: Vec<&str> = status.split_whitespace().collect();
        let position = words.iter().position(|word| *word == "delay").context("the disk does not delay")?;
        // Reads, writes, flushes.
        Ok(words.get(position + 2).context("dm-delay counts writes")?.parse()?)
    }
}

/// Runs the device mapper's program, which makes the nodes itself: nobody else does in the guest.
pub fn dmsetup(arguments: &[&str]) -> Result<()> {
    run(Command::new("dmsetup").args(arguments).env("DM_DISABLE_UDEV", "1"))
}

/// Flushes that a disk of the guest, such as `vda`, has carried out.
pub fn flushes(disk: &str) -> Result<u64> {
    let stat = std::fs::read_to_string(format!("/sys/block/{disk}/stat"))?;
    Ok(stat.split_whitespace().nth(15).context("the kernel counts flushes")?.parse()?)
}

/// Makes a filesystem and mounts it as the drive.
pub fn mount(mkfs: &[&str], mount: &[&str]) -> Result<()> {
    let (program, arguments) = mkfs.split_first().context("a filesystem is made by a program")?;
    run(Command::new(program).args(arguments))?;
    std::fs::create_dir_all(DRIVE)?;
    run(Command::new("mount").args(mount).arg(DRIVE))
}

/// Mounts an ext4 on a disk.
pub fn mount_ext4(disk: &Disk) -> Result<()> {
    let (device, folder) = (disk.path(), disk.folder());
    run(Command::new("mkfs.ext4").arg("-q").arg(&device))?;
    std::fs::create_dir_all(&folder)?;
    run(Command::new("mount").args(["-t", "ext4"]).arg(&device).arg(&folder))
}

/// Mounts an XFS whose files have their data on `data` and everything else on `vda`: an error there is an error of data
/// alone, and its log goes on.
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

/// Starts the daemon on a state folder of the caller's, with more arguments if any.
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

/// Waits until something is so.
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    let start = Instant::now();
    while !is_so()? {
        ensure!(start.elapsed() < TIMEOUT, "{what}: not so within {TIMEOUT:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Makes everything on the drive's filesystem stable, by a descriptor that the caller opened.
pub fn sync(folder: &File) -> Result<()> {
    Ok(rustix::fs::syncfs(folder)?)
}

/// Drops what the kernel remembers of files, so that they are read from the disk.
pub fn forget_pages() -> Result<()> {
    Ok(std::fs::write("/proc/sys/vm/drop_caches", "3")?)
}

/// What a program prints, such as `dmesg`.
pub fn printed(program: &str, arguments: &[&str]) -> Result<String> {
    output_of(Command::new(program).args(arguments))
}

/// Fails a case with a reason.
pub fn fail<T>(reason: impl std::fmt::Display) -> Result<T> {
    bail!("{reason}")
}
